"""Programs that are killed at counted steps: calls that change what is below some directories (tests/crash/steps.h)."""
import datetime
import os
import random
import shutil
import signal
import struct

import lab

CRASHES = int(os.environ.get("ECFS_CRASHES", 8))
BOARD = struct.Struct("<II256sI")


class Steps:
    """A process whose environment makes it count its steps, and end at one of them."""

    def __init__(self, place, roots):
        self.board, self.roots = place.path / "board", roots

    def environment(self, at, moment):
        self.board.write_bytes(bytes(BOARD.size))
        return os.environ | {"LD_PRELOAD": str(lab.BUILD / "tests/crash/crash-steps.so"),
                             "ECFS_CRASH_ROOTS": ":".join(map(str, self.roots)), "ECFS_CRASH_AT": str(at),
                             "ECFS_CRASH_MOMENT": moment, "ECFS_CRASH_BOARD": str(self.board)}

    def count(self):
        return BOARD.unpack(self.board.read_bytes())[0]

    def where(self):
        """The step at which it ended, or None."""
        _, died, where, _ = BOARD.unpack(self.board.read_bytes())
        return where.rstrip(b"\0").decode() if died else None


class Pauses(Steps):
    """A process that stops before a step of its own, and goes on when it is told to."""

    def environment(self):
        return super().environment(0, "before") | {"ECFS_CRASH_PAUSES": "1"}

    def _write(self, offset, number):
        with open(self.board, "r+b") as board:
            board.seek(offset)
            board.write(struct.pack("<I", number))

    def stop_at(self, n_steps):
        """After so many more steps."""
        self._write(264, self.count() + n_steps)

    def go_on(self, process):
        self._write(4, 0)
        process.send_signal(signal.SIGCONT)


def seed_of_the_day():
    """Another one tomorrow: a run that began today keeps it in ECFS_DAY."""
    return int(os.environ.get("ECFS_SEED") or os.environ.setdefault("ECFS_DAY", str(datetime.date.today().toordinal())))


def dice_of_the_day():
    """For samples of what is too much for each day: other ones tomorrow, and the same again with the ECFS_SEED printed."""
    seed = seed_of_the_day()
    print(f"ECFS_SEED={seed}")
    return random.Random(seed)


def points(n_steps, most=CRASHES):
    """(step, moment) at which to end: all of them, or @most of them, always with the first, the middle and the last. Where
    there are as many as steps, each step has one."""
    every = [(step, moment) for step in range(1, n_steps + 1) for moment in ("before", "halfway")]
    if len(every) <= most:
        return every
    dice = dice_of_the_day()
    chosen = [every[0], every[-1]]
    if most >= n_steps:
        chosen += [dice.choice(every[at:at + 2]) for at in range(2, len(every) - 2, 2)]
    left = [point for point in every if point not in chosen]
    return sorted({*chosen, *dice.sample(left, min(max(most - len(chosen), 1), len(left)))})


class Kept:
    """Directories that are put back as they were, on the same disk: what tells an archive directory from a copy goes."""

    def __init__(self, place, paths):
        self.paths = paths
        self.copies = [place.path / f"kept-{next(place.numbers)}" for _ in paths]
        for path, copy in zip(paths, self.copies):
            shutil.copytree(path, copy, symlinks=True)

    def restore(self):
        for path, copy in zip(self.paths, self.copies):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(copy, path, symlinks=True, ignore=shutil.ignore_patterns("in-use"))

    def drop(self):
        for copy in self.copies:
            shutil.rmtree(copy)
