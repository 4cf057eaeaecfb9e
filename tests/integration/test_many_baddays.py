"""Several mounts of one archive on bad days: killed, asleep for minutes, the database restarted and crashed."""
import os
import random
import signal
import threading
import time

import lab
import postgresql
import pytest
from test_many_mounts import is_clean, join, make, same_tree

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")]

N_MOUNTS, N_DIRECTORIES, N_NAMES = 4, 3, 25
SECONDS = int(os.environ.get("ECFS_MANY_SECONDS", "240"))
ASLEEP_S = 75  # longer than it takes to be thought dead


@pytest.fixture(scope="module")
def cluster():
    with postgresql.Cluster("fsync = on") as made:
        yield made


class Worker(threading.Thread):
    """Uses a mount. Only this one writes names that begin with its number, so it knows what they are; names that begin
    with "all" are everybody's, and each of them is one that somebody wrote."""

    def __init__(self, number, mount, seed):
        super().__init__(daemon=True)
        self.number, self.mount, self.random = number, mount, random.Random(seed)
        self.stopping, self.resting = threading.Event(), threading.Event()
        self.known, self.unsure, self.errors, self.n_done, self.serial = {}, set(), [], 0, 0

    def path(self, who):
        return f"dir{self.random.randrange(N_DIRECTORIES)}/{who}-{self.random.randrange(N_NAMES)}"

    def change(self, names, what):
        """What fails may have been done all the same."""
        for name in names:
            self.known.pop(name, None)
            self.unsure.add(name)
        what()
        self.unsure.difference_update(names)

    def write(self, name):
        self.serial += 1
        text = f"{self.number}.{self.serial}\n" * self.random.randrange(1, 3000)
        self.change([name], lambda: (self.mount.path / name).write_text(text))
        self.known[name] = text

    def rename(self, old, new):
        text = self.known.get(old)
        self.change([old, new], lambda: (self.mount.path / old).rename(self.mount.path / new))
        self.known[new] = text

    def unlink(self, name):
        self.change([name], lambda: (self.mount.path / name).unlink())

    def everybodys(self):
        name, kind = self.path("all"), self.random.randrange(4)
        path = self.mount.path / name
        try:
            if kind < 2:
                path.write_text(f"by {self.number}\n" * 10)
            elif kind == 2:
                path.rename(self.mount.path / self.path("all"))
            else:
                path.unlink()
        except OSError as error:  # somebody else writes it, or has removed it
            if error.errno not in (2, 5, 16, 30, 107, 103, 116):
                raise

    def check(self, name):
        text = (self.mount.path / name).read_text()
        assert text == self.known[name], f"{name}: {text[:30]!r} instead of {self.known[name][:30]!r}"

    def step(self):
        kind = self.random.randrange(12)
        own = [name for name in self.known if self.known[name] is not None]
        if kind < 5:
            self.write(self.path(self.number))
        elif kind < 7 and own:
            old, new = self.random.choice(own), self.path(self.number)
            if old != new:
                self.rename(old, new)
        elif kind == 7 and own:
            self.unlink(self.random.choice(own))
        elif kind < 10 and own:
            self.check(self.random.choice(own))
        else:
            self.everybodys()
        self.n_done += 1

    def run(self):
        while not self.stopping.is_set():
            try:
                self.step()
            except OSError as error:
                self.errors.append(error)
                time.sleep(0.3)


def trouble(rng, cluster, workers):
    """One bad thing; returns its name."""
    kind = rng.choice(["killed", "asleep", "restarted", "crashed"])
    if kind == "restarted":
        cluster.stop(signal.SIGINT)
        cluster.start()
    elif kind == "crashed":
        cluster.stop(signal.SIGQUIT)
        time.sleep(rng.random() * 3)
        cluster.start()
    elif kind == "killed":
        mount = rng.choice(workers).mount
        mount.kill()
        time.sleep(rng.random() * 5)
        mount.start()
    else:
        mount = rng.choice(workers).mount
        mount.process.send_signal(signal.SIGSTOP)
        time.sleep(ASLEEP_S)
        mount.process.send_signal(signal.SIGCONT)
        time.sleep(3)
        mount.kill()  # as its message says: it was taken for dead, and has to be mounted again
        mount.start()
    return kind


@pytest.mark.parametrize("seed", [int(os.environ.get("ECFS_MANY_SEED", "0")) or random.randrange(1 << 30)])
def test_bad_days_of_many_mounts(place, cluster, seed):
    rng = random.Random(seed)
    archive = make(place, cluster)
    members = [archive] + [join(place, archive, f"other{i}") for i in range(1, N_MOUNTS)]
    mounts = [place.mount(member) for member in members]
    for i in range(N_DIRECTORIES):
        (mounts[0].path / f"dir{i}").mkdir()
    workers = [Worker(i, mount, seed + i) for i, mount in enumerate(mounts)]
    for worker in workers:
        worker.start()
    until, happened = time.monotonic() + SECONDS, []
    while time.monotonic() < until:
        time.sleep(rng.uniform(3, 12))
        happened.append(trouble(rng, cluster, workers))
        lab.until(lambda: all(mount.process.poll() is None for mount in mounts), 60, "all are there")
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(120)
        assert not worker.is_alive()
    print("seed", seed, happened, [(worker.n_done, len(worker.errors)) for worker in workers])
    for member in members:
        member.await_stored()
    expected = same_tree(mounts, 30)
    for worker in workers:
        for name, text in worker.known.items():
            if text is not None:
                assert (mounts[(worker.number + 1) % N_MOUNTS].path / name).read_text() == text, name
    for mount in mounts:
        mount.umount()
    is_clean(archive)
    # What was sent is what happened.
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", again.path, "--force", *words)
    mount = place.mount(again)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    mount.umount()
