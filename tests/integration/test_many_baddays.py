"""Several mounts of one archive on bad days, each at a machine of its own: killed, asleep for minutes, cut off, the
database restarted and crashed, and a standby that lagged in its place.

ECFS_MANY_SECONDS says for how long, and ECFS_MANY_SEED=N gives the same random numbers again.
"""
import contextlib
import os
import random
import signal
import threading
import time

import lab
import postgresql
import pytest
import switch
from test_many_mounts import is_clean, join, same_tree

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")]

N_MOUNTS, N_DIRECTORIES, N_NAMES = int(os.environ.get("ECFS_MANY_MOUNTS", "8")), 3, 25
SECONDS = int(os.environ.get("ECFS_MANY_SECONDS", "240"))
SEED = int(os.environ.get("ECFS_MANY_SEED", "0")) or random.randrange(1 << 30)
ASLEEP_S = CUT_S = (75, 120)  # longer than it takes to be thought dead
DB_PORT = 5432


class Site:
    """Machines on one switch: of the database, of the endpoints, of a standby, and those that mount."""

    def __init__(self, place, is_followed=False):
        self.place, self.stack = place, contextlib.ExitStack()
        try:
            self._set_up(is_followed)
        except BaseException:
            self.close()
            raise

    def _set_up(self, is_followed):
        self.net = switch.Switch()
        self.stack.callback(self.net.close)
        self.at_database, self.at_endpoints, self.at_standby = (self.net.machine() for _ in range(3))
        with self.at_database:
            self.database = self.stack.enter_context(postgresql.Cluster("fsync = on", port=DB_PORT, address=self.at_database.address))
        if is_followed:
            with self.at_standby:
                self.standby = self.stack.enter_context(postgresql.Standby(self.database, self.at_standby.address))
        with self.at_endpoints:
            endpoints = [self.place.sshd(name, self.at_endpoints.address) for name in lab.NAMES]
        hosts = [self.at_database.address] + [self.at_standby.address] * is_followed
        location = f"postgresql://ecfs@{','.join(f'{host}:{DB_PORT}' for host in hosts)}/postgres?sslmode=disable&target_session_attrs=read-write"
        self.machines = [self.net.machine() for _ in range(N_MOUNTS)]
        with self.machines[0]:
            self.archive = self.place.archive(endpoints, "rs:4+2", "--key", "none", "--set", f"catalog={location}",
                                              "--set", "catalog_mounts=many", "--set", "deletion_grace=0")
        self.members = [self.archive]
        for machine in self.machines[1:]:
            with machine:
                self.members.append(join(self.place, self.archive, f"other{len(self.members)}"))
        self.mounts = []
        for number, member in enumerate(self.members):
            with self.machines[number]:
                self.mounts.append(self.place.mount(member))

    def start(self, mount):
        with self.machines[self.mounts.index(mount)]:
            mount.start()

    def start_database(self):
        with self.at_database:
            self.database.start()

    def recovered(self):
        """The tree that the endpoints alone bring back."""
        again = lab.Archive(self.place.path / "again", self.archive.endpoints)
        words = [word for endpoint in self.archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        with self.machines[0]:
            lab.ecfs("recover", again.path, "--force", *words)
            mount = self.place.mount(again)
        found = lab.describe_tree(mount.path)
        mount.umount()
        return found

    def close(self):
        for mount in self.place.mounts:  # before their database is gone
            mount.kill()
        self.stack.close()


@pytest.fixture
def site(request, place):
    made = Site(place, getattr(request, "param", False))
    yield made
    made.close()


class Worker(threading.Thread):
    """Uses a mount. Only this one writes names that begin with its number, so it knows what they are; names that begin
    with "all" are everybody's, and each of them is one that somebody wrote."""

    def __init__(self, number, mount, seed):
        super().__init__(daemon=True)
        self.number, self.mount, self.random = number, mount, random.Random(seed)
        self.stopping, self.resting = threading.Event(), threading.Event()
        self.known, self.unsure, self.errors, self.n_done, self.serial = {}, set(), [], 0, 0
        self.wrong = None  # what was found that may not be

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
            except AssertionError as error:
                self.wrong = f"{self.number}, after {self.n_done}: {error}"
                return


def trouble(rng, site):
    """One bad thing; returns its name."""
    kind = rng.choice(["killed", "asleep", "cut off", "restarted", "crashed"])
    if kind == "restarted":
        site.database.stop(signal.SIGINT)
        site.start_database()
    elif kind == "crashed":
        site.database.stop(signal.SIGQUIT)
        time.sleep(rng.random() * 3)
        site.start_database()
    elif kind == "killed":
        mount = rng.choice(site.mounts)
        mount.kill()
        time.sleep(rng.random() * 5)
        site.start(mount)
    else:
        mount = rng.choice(site.mounts)
        if kind == "asleep":
            mount.process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(*ASLEEP_S))
            mount.process.send_signal(signal.SIGCONT)
        else:
            machine = site.machines[site.mounts.index(mount)]
            machine.cut_off()
            time.sleep(rng.uniform(*CUT_S))
            machine.cut_off(False)
        time.sleep(3)
        mount.kill()  # as its message says: it was taken for dead, and has to be mounted again
        site.start(mount)
    return kind


@pytest.mark.parametrize("seed", [SEED])
def test_bad_days_of_many_mounts(site, seed):
    rng, mounts = random.Random(seed), site.mounts
    for i in range(N_DIRECTORIES):
        (mounts[0].path / f"dir{i}").mkdir()
    workers = [Worker(i, mount, seed + i) for i, mount in enumerate(mounts)]
    for worker in workers:
        worker.start()
    until, happened = time.monotonic() + SECONDS, []
    while time.monotonic() < until:
        time.sleep(rng.uniform(3, 12))
        happened.append(trouble(rng, site))
        print(f"{time.strftime('%T')} {happened[-1]}", flush=True)
        lab.until(lambda: all(mount.process.poll() is None for mount in mounts), 60, "all are there")
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(180)
        assert not worker.is_alive(), f"{worker.number} hangs"
    print("seed", seed, happened, [(worker.n_done, len(worker.errors)) for worker in workers])
    assert not [worker.wrong for worker in workers if worker.wrong]
    for machine, member in zip(site.machines, site.members, strict=True):
        with machine:
            member.await_stored()
    expected = same_tree(mounts, 30)
    for worker in workers:
        for name, text in worker.known.items():
            if text is not None:
                assert (mounts[(worker.number + 1) % N_MOUNTS].path / name).read_text() == text, name
    for mount in mounts:
        mount.umount()
    with site.machines[0]:
        is_clean(site.archive)
    lab.assert_same_tree(expected, site.recovered())  # what was sent is what happened
