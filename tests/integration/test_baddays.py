"""Bad days: a server that hangs, while people work on the mount."""
import os
import statistics
import time

import lab
import pytest

OPERATIONS = 24
MEDIAN_MORE = 1  # seconds that a stopped server may add to the median, on a busy machine; nothing that waits for it
LONGEST = 30  # seconds; without going around it, the first of each would wait out stall_timeout
KIB = 1 << 10


@pytest.fixture
def servers(place):
    return {name: place.sshd(name) for name in lab.NAMES}


@pytest.fixture
def mount(place, servers):
    archive = place.archive(list(servers.values()))
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", stall_timeout="60s")
    return place.mount(archive)


def seconds(operation, *arguments):
    begin = time.monotonic()
    operation(*arguments)
    return time.monotonic() - begin


class Work:
    """What people do, each time with files of its own; knows what they are to contain."""

    def __init__(self, mount):
        self.root = mount.path
        self.wanted = {}

    def write(self, name):
        data = os.urandom(len(name) * 20 * KIB)  # a few packets; nothing that the two cores would be busy with
        self.wanted[name] = data
        with open(self.root / name, "wb", buffering=0) as file:
            file.write(data)

    def read(self, name):
        assert (self.root / name).read_bytes() == self.wanted[name]

    def measure(self, turn, to_read):
        """Seconds of each operation by kind. to_read: names that were not read since the page cache was dropped."""
        names = [f"{turn}-{i:02}" for i in range(OPERATIONS)]
        times = {"write": [seconds(self.write, name) for name in names]}
        lab.forget_mounts()
        times["read"] = [seconds(self.read, name) for name in to_read]
        times["stat"] = [seconds(os.stat, self.root / name) for name in names]
        times["list"] = [seconds(os.listdir, self.root) for _ in names]
        return times

    def check(self):
        lab.forget_mounts()
        for name in self.wanted:
            self.read(name)


@pytest.mark.slow
def test_a_stopped_server_holds_nobody_up(servers, mount):
    """It keeps its connections and says nothing: files go on being written and read at the speed of before."""
    work = Work(mount)
    old = [f"old-{i:02}" for i in range(2 * OPERATIONS)]
    for name in old:
        work.write(name)
    mount.archive.await_stored()
    before = work.measure("before", old[:OPERATIONS])
    servers["cedar"].suspend()
    try:
        stopped = work.measure("stopped", old[OPERATIONS:])
        state = os.getxattr(mount.path / "stopped-00", "user.ecfs.state")
        assert state.startswith(b"quorum 5/6"), state
    finally:
        servers["cedar"].resume()
    for kind, times in stopped.items():
        usual, now = statistics.median(before[kind]), statistics.median(times)
        print(f"{kind}: median {usual * 1e3:.1f} ms, stopped {now * 1e3:.1f} ms, longest {max(times) * 1e3:.1f} ms")
        assert now <= 2 * usual + MEDIAN_MORE, f"{kind}: {now:.3f} s, {usual:.3f} s before"
        assert max(times) < LONGEST, f"{kind}: {max(times):.3f} s"
    mount.archive.await_stored()
    states = {name: os.getxattr(mount.path / name, "user.ecfs.state") for name in work.wanted}
    assert all(state.startswith(b"full 6/6") for state in states.values()), states
    work.check()
