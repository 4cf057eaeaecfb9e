"""Slow links as erasures: reading a file while endpoints are in trouble, beside the same read without any.

In each round one archive of --code (its last given) is read in turn with all endpoints healthy; with `tolerance`
endpoints removed beforehand; and with as many in trouble from the middle of the read on:

    stalled    their sshd processes are stopped (SIGSTOP)
    throttled  their links are held to a hundredth

and a second one, whose endpoints are held by those of tests/lab/flawed.h, healthy and

    delayed    each of all endpoints begins a tenth of its reads 100 ms later, each for itself

Writing is measured apart, close included, with so many endpoints stopped when it begins, and later, after half of the
time that it takes when all are well; beside the same write with these removed beforehand:

    quorum     as many as the default quorum does without: half of the tolerance, rounded down
    spares     three of three more than the code has stripes; what takes the place of others later begins their
               stripes anew, over lines which are the limit

Printed are medians, and what they are in relation to "healthy" and to "removed".
"""
import contextlib
import os
import threading
import time

import lab
import links
import measure
import systems
import tables

SCENARIOS = ["stalled", "throttled", "delayed", "quorum", "spares"]
DELAYS = "seed {}\nread 10% delay 100\n"
TAKEN = 1 << 20


class Reading:
    """Reads a file once from its beginning; in_the_middle is called when half of it was read."""

    def __init__(self, path, in_the_middle=None):
        self.seconds, self.first, self.longest, buffer = 0.0, None, 0.0, bytearray(TAKEN)
        size, done = os.path.getsize(path), 0
        begin = last = time.monotonic()
        with open(path, "rb", buffering=0) as file:
            while n_read := file.readinto(buffer):
                now = time.monotonic()
                self.first = self.first or now - begin
                self.longest, last, done = max(self.longest, now - last), now, done + n_read
                if in_the_middle and done >= size // 2:
                    in_the_middle()
                    in_the_middle = None
        self.seconds = time.monotonic() - begin
        assert done == size


class Writing:
    """Writes a file of so many MiB, and closes it."""

    def __init__(self, path, size):
        piece = os.urandom(TAKEN)
        path.unlink(missing_ok=True)
        begin = last = time.monotonic()
        self.first, self.longest = None, 0.0
        with open(path, "wb", buffering=0) as file:
            for _ in range(size):
                file.write(piece)
                now = time.monotonic()
                self.first = self.first or now - begin
                self.longest, last = max(self.longest, now - last), now
        self.seconds = time.monotonic() - begin
        self.longest = max(self.longest, time.monotonic() - last)


class Flawed(systems.Place):
    """An endpoint at a server in which operations go wrong as its file of rules says."""

    def __init__(self, server, transport):
        super().__init__(server, transport)
        self.rules = server.directory / "rules"

    def endpoint(self):
        name, _, url = super().endpoint().partition("=")
        return f"{name}=flaw+{url},flaws={self.rules}"


class Trouble:
    """An archive over sshd processes behind links, mounted, with one file; place: the class of its endpoints.

    n_spare: endpoints that it has more than the code has stripes; n_bad: are in trouble, the tolerance of rs by default.
    """

    def __init__(self, options, base, rate_mb, place=systems.Place, n_spare=0, n_bad=None):
        base.mkdir()
        self.place = place
        self.base, self.rate_mb, self.code, self.options = base, rate_mb, options.codes[-1], options
        k, n = systems.split_code(self.code)
        keys = lab.Keys(base / "keys")
        self.servers = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(n + n_spare)]
        self.bad = self.servers[-(n_bad or n - k):]
        self.links = None

    @contextlib.contextmanager
    def serving(self):
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                server.start()
                stack.callback(server.kill)
            self.places = [self.place(server, self.options.transport) for server in self.servers]
            self.archive = lab.Archive(self.base / "archive", self.places, self.code)
            self.archive.init()
            self.mount = lab.Mount(self.archive, self.base / "files")
            self.mount.start()
            stack.callback(self.mount.kill)
            self.fill()
            self.links = links.Links([server.port for server in self.servers], self.rate_mb)
            stack.enter_context(self.links)
            yield self

    def fill(self):
        self.file = self.mount.path / "large"
        with open(self.file, "wb") as file:
            for _ in range(self.options.size):
                file.write(os.urandom(1 << 20))
        lab.ecfs("wait", self.archive.path, timeout=600)

    def await_states(self, n_down):
        def down():
            found = self.archive.json("status")["endpoints"]
            return sum(endpoint["state"] == "down" or not endpoint["connected"] for endpoint in found)
        lab.until(lambda: down() == n_down, 120, f"{n_down} endpoints are down", pause=0.2)

    def read(self, in_the_middle=None):
        lab.drop_caches()
        return Reading(self.file, in_the_middle)

    def write(self):
        writing = Writing(self.mount.path / "written", self.options.size)
        lab.ecfs("wait", self.archive.path, "--quorum", timeout=600)
        return writing

    def healthy(self):
        return self.read()

    def removed(self):
        with self.bad_removed():
            return self.read()

    def write_healthy(self):
        self.well = self.write()
        return self.well

    def write_removed(self):
        with self.bad_removed():
            return self.write()

    def write_stopped(self):
        with self.bad_ended(lambda: lab.signal_all(self.bad_pids(), lab.signal.SIGSTOP)):
            return self.write()

    def write_stopped_later(self):
        usual = self.bad
        later = threading.Timer(self.well.seconds / 2, self.stop_busy)
        try:
            with self.bad_ended(later.start):
                writing = self.write()
                later.join()
                assert self.bad, "no server was at work"
                return writing
        finally:
            self.bad = usual

    def stop_busy(self):
        """Stops as many as are bad of those that are at work."""
        n_bad, self.bad = len(self.bad), []
        busy = [server for server in self.servers
                if any(file.stat().st_size > TAKEN for file in (server.root / "incoming").iterdir())]
        self.bad = busy[-n_bad:]
        lab.signal_all(self.bad_pids(), lab.signal.SIGSTOP)

    @contextlib.contextmanager
    def bad_removed(self):
        for server in self.bad:
            server.kill()
        try:
            self.await_states(len(self.bad))
            yield
        finally:
            for server in self.bad:
                server.start()
            self.await_states(0)

    def bad_pids(self):
        return [pid for server in self.bad for pid in [server.process.pid, *lab.descendants(server.process.pid)]]

    @contextlib.contextmanager
    def bad_ended(self, begin):
        """Stopped servers end, and others take their places."""
        begin()
        try:
            yield
        finally:
            for server in self.bad:
                server.resume()
                server.restart()
            self.await_states(0)

    def stalled(self):
        pids = self.bad_pids()
        with self.bad_ended(lambda: None):
            return self.read(lambda: lab.signal_all(pids, lab.signal.SIGSTOP))

    def throttled(self):
        ports = [server.port for server in self.bad]
        try:
            return self.read(lambda: self.links.hold(ports, self.rate_mb / 100))
        finally:
            self.links.hold(ports, self.rate_mb)
            for server in self.bad:
                server.restart()
            self.await_states(0)

    def delayed(self):
        for number, place in enumerate(self.places):
            place.rules.write_text(DELAYS.format(number))
        try:
            return self.read()
        finally:
            for place in self.places:
                place.rules.unlink()


def print_medians(options, rate_mb, found):
    print(f"{options.size} MiB, {options.codes[-1]}, medians of {options.rounds} rounds, "
          f"each server's link held to {rate_mb:g} MB/s\n")
    rows = [["cold read or write", "s", "MB/s", "/healthy", "/removed", "longest wait s", "first byte s"]]
    medians = {name.removeprefix("write_"): measure.median(each.seconds for each in readings)
               for name, readings in found.items()}
    for key, readings in found.items():
        name = key.removeprefix("write_")
        rows.append([key.replace("_", ", "), f"{medians[name]:.2f}", f"{options.size * 1.048576 / medians[name]:.0f}",
                     tables.ratio(medians[name], medians.get("healthy")),
                     tables.ratio(medians[name], medians.get("removed")),
                     f"{measure.median(each.longest for each in readings):.2f}",
                     f"{measure.median(each.first for each in readings):.3f}"])
    tables.print_rows(rows)


def measure_one(options, rate_mb, trouble, names):
    found = {}
    with trouble.serving():
        for _ in range(options.rounds):
            for name in names:
                found.setdefault(name, []).append(getattr(trouble, name)())
    print_medians(options, rate_mb, found)


def run(options, base):
    """Measures and prints."""
    ends = [name for name in options.scenarios if name in ("stalled", "throttled")]
    k, n = systems.split_code(options.codes[-1])
    for number, rate_mb in enumerate(options.rates):
        if ends:
            measure_one(options, rate_mb, Trouble(options, base / f"trouble{number}", rate_mb),
                        ["healthy", "removed", *ends])
        for name, n_spare, n_bad in [("quorum", 0, (n - k) // 2), ("spares", 3, 3)]:
            if name in options.scenarios and n_bad > 0:
                measure_one(options, rate_mb, Trouble(options, base / f"{name}{number}", rate_mb, systems.Place, n_spare,
                                                      n_bad), ["write_healthy", "write_removed", "write_stopped",
                                                               "write_stopped_later"])
        if "delayed" in options.scenarios:
            lab.PROGRAM = lab.BUILD / "tests/lab/ecfs-flawed"
            measure_one(options, rate_mb, Trouble(options, base / f"flawed{number}", rate_mb, Flawed),
                        ["healthy", "delayed"])
            lab.PROGRAM = lab.BUILD / "tools/ecfs"
