"""Links that differ: how near storing and reading come to what the links allow.

In each round, on each set of links, each build stores one file through a mount with default settings and reads it back,
cold. Measured are

    close   until close(2) has returned: the quorum is stored, where the rest is certain to be late
    full    until all stripes are stored
    read    from the first to the last byte

each beside its bound. A stripe is 1/k of the file and goes to one link, so close is bounded by k times the rate of the
slowest link of the quorum, full by that of the slowest of all. Of a segment any k packets serve, and each link has one:
a packet's rate x is the largest for which the sum of min (rate, x) over the links is k x, and reading is bounded by k x.
"""
import contextlib
import os
import statistics
import time
from pathlib import Path

import lab
import links
import systems
import tables
from trouble import Reading, Writing

WARM_MIB = 32  # stored and read first: what endpoints are like is known then, as it is after a day
GOALS = {"close": 0.9, "full": 0.9, "read": 0.95}


def quorum(k, n):
    """Stripes of a code without better than any k: decodable after half of the tolerance, rounded up, is lost too."""
    return k + (n - k + 1) // 2


def reading_bound(rates, k):
    """Bytes per second of the file. The sum less k x falls in x from where it is positive; it is linear between rates."""
    rates = sorted(rates)
    for slower in range(len(rates), -1, -1):  # so many links have less than x
        faster = len(rates) - slower
        if faster < k:
            x = sum(rates[:slower]) / (k - faster)
            if slower == 0 or x >= rates[slower - 1]:
                return k * x
    return k * rates[0]


def bounds(rates, code):
    k, n = systems.split_code(code)
    descending = sorted(rates, reverse=True)
    return {"close": k * descending[quorum(k, n) - 1], "full": k * descending[n - 1], "read": reading_bound(rates, k)}


class Pass:
    """An archive of its own over servers behind links, for as long as one pass takes."""

    def __init__(self, options, base, servers, code):
        self.options, self.base, self.servers, self.code = options, base, servers, code
        self.transport = options.transport

    def measure(self):
        """Megabytes per second by what was measured."""
        systems.empty(self.base)
        mount = lab.Mount(systems.new_archive(self), self.base / "files")
        mount.start()
        try:
            self.mount = mount
            self._store("warm", WARM_MIB)
            self._read("warm")
            begin = time.monotonic()
            close = self._store("large", self.options.size)
            size = self.options.size * 1.048576
            full = self.settled - begin
            return {"close": size / close, "full": size / full, "read": size / self._read("large")}
        finally:
            with contextlib.suppress(Exception):
                mount.umount()
            mount.kill()

    def _store(self, name, size):
        """Seconds until it was closed; waits until it is full."""
        path = self.mount.path / name
        seconds = Writing(path, size).seconds
        lab.until(lambda: os.getxattr(path, "user.ecfs.state").startswith(b"full"), 600, f"{name} is full", pause=0.02)
        self.settled = time.monotonic()
        lab.ecfs("wait", self.mount.archive.path, timeout=600)
        return seconds

    def _read(self, name):
        lab.drop_caches()
        return Reading(self.mount.path / name).seconds


def rates_of(text):
    return [float(part) for part in text.split(",")]


def print_set(options, code, rates, found):
    print(f"{options.size} MiB, {code}, links of {', '.join(f'{rate:g}' for rate in rates)} MB/s, medians of "
          f"{options.rounds} rounds\n")
    bound = bounds(rates, code)
    rows = [["MB/s of the file", *(f"{what} (/bound)" for what in bound)],
            ["bound", *(f"{bound[what]:.1f}" for what in bound)]]
    for name, samples in found.items():
        medians = {what: statistics.median(sample[what] for sample in samples) for what in bound}
        rows.append([name, *(f"{medians[what]:.1f} ({medians[what] / bound[what]:.2f}"
                             f"{'' if medians[what] >= GOALS[what] * bound[what] else ' !'})" for what in bound)])
    tables.print_rows(rows)


def run(options, base):
    """Measures and prints. Sets of links are taken with the first of --code that has as many stripes."""
    keys = lab.Keys(base / "keys")
    sets = [(rates, next(code for code in options.codes if systems.split_code(code)[1] == len(rates)))
            for rates in options.unequal]
    servers = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(max(map(len, options.unequal)))]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.start()
            stack.callback(server.kill)
        for rates, code in sets:
            found = {name: [] for name in options.builds}
            used = servers[:len(rates)]
            for number in range(options.rounds):
                for name, build in list(options.builds.items())[::1 if number % 2 == 0 else -1]:
                    with links.Links([server.port for server in used], max(rates)) as held, systems.built_in(build):
                        for server, rate in zip(used, rates):
                            held.hold([server.port], rate)
                        found[name].append(Pass(options, base / "pass", used, code).measure())
            print_set(options, code, rates, found)
