"""A random history, and many moments of it: each is shown as it was, whatever is moved, repaired or lost meanwhile."""
import os
import random
import shutil
import time

import lab
import pytest
from test_history import Writer, now, tree_at
from test_logs import FSCK, packing
from test_recover import recover

SEED = int(os.environ.get("ECFS_SEED", random.randrange(1 << 32)))
MOST_FILES = 40


class Bounded(Writer):
    """As many files as can be looked at often."""

    def step(self):
        files = self.paths(os.path.isfile)
        if len(files) > MOST_FILES:
            self.random.choice(files).unlink()
        else:
            super().step()


class History:
    """An archive that is changed, and what moves and loses its stripes between the changes."""

    def __init__(self, place):
        self.place, self.dice = place, random.Random(SEED)
        self.endpoints = place.directories([*lab.NAMES, "spare"])
        self.archive = place.archive(self.endpoints)
        packing(self.archive, history="1d")
        self.archive.configure("archive", deletion_grace="0s")
        self.mount = place.mount(self.archive)
        self.writer = Bounded(self.mount.path, SEED)
        self.moments = []

    def recode(self):
        lab.ecfs("recode", "--code", self.dice.choice(["rs:3+3", "rs:4+2", "rs:3+2"]), self.archive.path, "/")

    def drain(self):
        name = self.dice.choice(self.endpoints).name
        lab.ecfs("endpoint", "drain", self.archive.path, name)
        lab.ecfs("endpoint", "active", self.archive.path, name)

    def repair(self):
        for path in lab.stripe_files(self.dice.choice(self.endpoints)):
            if "stripes" in path.parts:
                path.unlink()
        assert lab.run(FSCK, "-y", self.archive.path, check=False).returncode in (0, 1)

    def pack(self):
        time.sleep(1.5)  # logs are packed when they are a second old

    def crash(self):
        self.mount.kill()
        self.mount.start()

    def go_on(self, n_moments):
        for number in range(n_moments):
            for _ in range(self.dice.randrange(1, 6)):
                self.writer.step()
            self.archive.await_stored()  # a crash comes to nothing that was not
            self.moments.append((now(), lab.describe_tree(self.mount.path)))
            if number % 6 == 5:
                self.dice.choice([self.recode, self.drain, self.repair, self.pack, self.crash])()

    def check(self, archive, moments):
        for moment, tree in moments:
            lab.assert_same_tree(tree, tree_at(self.place, archive, moment))


@pytest.mark.parametrize("n_moments", [40, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_moments_are_shown_as_they_were(place, n_moments):
    print(f"ECFS_SEED={SEED}")
    history = History(place)
    history.go_on(n_moments)
    for event in (history.recode, history.drain, history.repair):
        event()
    history.archive.await_stored()
    history.check(history.archive, history.moments[::2])
    history.mount.kill()
    shutil.rmtree(history.archive.path)
    for endpoint in history.dice.sample(history.endpoints, 2):
        history.endpoints.remove(endpoint)
        endpoint.kill()
    recovered, _ = recover(place, history.endpoints, "--yes")
    history.check(recovered, history.moments[1::2])
