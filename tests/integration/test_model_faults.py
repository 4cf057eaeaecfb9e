"""Random operations of two at a time on a mount whose endpoints are in trouble, compared with a plain directory.

Two endpoints of eight, as many as the code tolerates, fail, hang, lie, die and come back all the time; the other six
are well, so everything must succeed, and every outcome and every tree be the same. Now and then all is closed and synced,
and the mount is killed with -9 while things are as they are: the tree must be the same. So it must be after a remount,
and after the archive directory is thrown away and recovered without those two.

ECFS_MODEL_S says for how many seconds; ECFS_SEED=N for other operations and troubles than usual.
"""
import multiprocessing
import os
import random
import shutil
import time

import lab
import pytest
from test_model import SEED, Model, Side, plain_directory, tree
from test_recover import recover

SECONDS = float(os.environ.get("ECFS_MODEL_S", 2))
SESSIONS = 2 + int(SECONDS / 20)  # each but the last ends with a kill
N_WORKERS = 2
STRETCH = 100  # operations between two comparisons of a worker's tree
FORKS = multiprocessing.get_context("fork")
NAMES = [*lab.NAMES, "grove", "heath"]
RULES = ["any 20% fail 5", "write 40% fail 28", "any 3% hang", "any 40% delay 30", "read 40% flip", "write 30% flip",
         "write 30% truncate", "read 30% truncate", "list 50% stale", "mark 30% fail 5", "remove 50% fail 13",
         "any 1+ fail 5"]


class Flawed:
    """An endpoint in which everything goes wrong that can: rules of tests/lab/flaws.h, and what its server suffers."""

    def __init__(self, inner, directory):
        self.inner, self.name, self.root = inner, inner.name, inner.root
        self.rules = directory / f"flaws-{inner.name}"
        self.calm_down = lambda: None

    def endpoint(self):
        return self.inner.endpoint().replace("=", "=flaw+", 1) + f",flaws={self.rules},stall_timeout=2s"

    def kill(self):
        self.inner.kill()

    def die(self, numbers):
        self.inner.kill()
        self.calm_down = self.inner.start

    def stall(self, numbers):
        if not hasattr(self.inner, "suspend"):
            return self.die(numbers)
        self.inner.suspend()
        self.calm_down = self.inner.resume
        return None

    def break_rules(self, numbers):
        rules = numbers.sample(RULES, numbers.choice([1, 1, 2]))
        new = self.rules.with_suffix(".new")
        new.write_text("\n".join([f"seed {numbers.randrange(1000)}", *rules, ""]))
        new.rename(self.rules)
        self.calm_down = self.rules.unlink

    def trouble(self, numbers):
        self.calm()
        kinds = [self.die, self.stall, self.break_rules, self.break_rules, self.break_rules, lambda _: None]
        numbers.choice(kinds)(numbers)

    def calm(self):
        self.calm_down()
        self.calm_down = lambda: None


class Worker:
    """A process that does random operations below its own directory, on both sides, until it is told to end."""

    def __init__(self, session, number, sides, over):
        self.number, self.over, self.seed = number, over, f"{SEED}-{session}-{number}"
        self.sides = [Side(side / f"worker-{number}") for side in sides]
        for side in self.sides:
            side.root.mkdir(exist_ok=True)
            side.root.chmod(0o777)
        self.told, self.telling = FORKS.Pipe(duplex=False)
        self.process = FORKS.Process(target=self.run)

    def run(self):
        model = Model(random.Random(self.seed), self.sides)
        try:
            while model.n_done == 0 or not self.over.is_set():
                for _ in range(STRETCH):
                    model.step()
                model.compare()
            model.close_all()
            model.compare()
            self.telling.send((model.n_done, None))
        except BaseException as error:  # whatever it is, the test has to tell it
            self.telling.send((model.n_done, f"worker {self.number}: {error!r:.20000}\n{error}"))

    def join(self):
        """How many operations it did; what was wrong fails the test."""
        assert self.told.poll(300), f"worker {self.number} hangs, or was killed: {self.process.exitcode}"
        n_done, wrong = self.told.recv()
        self.process.join(60)
        assert wrong is None, wrong
        return n_done


class World:
    def __init__(self, place, tmp_path, monkeypatch):
        monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
        self.numbers = random.Random(SEED)
        self.flawed = [Flawed(place.sshd(NAMES[0]), place.path), Flawed(place.directories(NAMES[1:2])[0], place.path)]
        self.well = [place.sshd(NAMES[2]), *place.directories(NAMES[3:])]
        self.archive = place.archive([*self.flawed, *self.well])
        self.archive.configure("archive", segment_size="256K", commit=self.numbers.choice(["sync", "async"]))
        self.mount = place.mount(self.archive, *(["-o", "allow_other"] if lab.ROOT else []))
        self.plain = plain_directory(tmp_path, place.path) / "root"
        (self.mount.path / "root").mkdir()
        self.plain.mkdir()

    def run(self, session, seconds):
        """Troubles come and go while the workers work, and stay as they are then; how many operations were done."""
        over = FORKS.Event()
        sides = [self.mount.path / "root", self.plain]
        workers = [Worker(session, number, sides, over) for number in range(N_WORKERS)]
        for worker in workers:
            worker.process.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and all(worker.process.is_alive() for worker in workers):
                self.numbers.choice(self.flawed).trouble(self.numbers)
                over.wait(self.numbers.uniform(0.05, 1))  # for nothing: that is how long it lasts
        finally:
            over.set()
        return sum(worker.join() for worker in workers)

    def crash(self):
        """All that is closed is safe on the local disk at least, once its directory is synced."""
        directory = os.open(self.mount.path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        self.mount.kill()
        self.mount.start()

    def calm(self):
        for endpoint in self.flawed:
            endpoint.calm()

    def compare(self, mount, when):
        try:
            lab.assert_same_tree(tree(self.plain), tree(mount.path / "root"))
        except AssertionError as error:
            raise AssertionError(f"{when}: {error}\nECFS_SEED={SEED}") from None


@pytest.mark.skipif(not lab.ROOT, reason="other users and the page cache are for root")
@pytest.mark.slow
def test_two_endpoints_in_trouble_change_nothing(place, tmp_path, monkeypatch):
    print(f"ECFS_SEED={SEED}")
    world = World(place, tmp_path, monkeypatch)
    try:
        for session in range(SESSIONS):
            n_done = world.run(session, SECONDS / SESSIONS)
            print(f"{n_done} operations")
            assert n_done >= STRETCH * N_WORKERS
            world.compare(world.mount, f"after session {session}")
            if session < SESSIONS - 1:
                world.crash()
                world.compare(world.mount, f"after crash {session}")
    finally:
        world.calm()
    world.mount.umount()
    world.mount.start()
    world.compare(world.mount, "after a remount")
    world.archive.await_stored()
    world.mount.umount()
    shutil.rmtree(world.archive.path)
    for endpoint in world.flawed:
        endpoint.kill()
    recovered, _ = recover(place, world.well)
    lab.forget_mounts()
    again = place.mount(recovered, "-o", "allow_other")
    world.compare(again, "after ecfs recover")
    again.umount()
