#!/usr/bin/python3
"""What authentication, integrity and encryption cost who reads: tests/bench/costs.py [MIB [ROUNDS]]

One file, in pieces (segments) of 1 MiB, is read through a mount, all of it from one place: endpoints (six directories, so
that no protocol of theirs is in the way), the mount's own cache, or the cache of a peer by TLS, while endpoints are slow; from an archive under a
key, which seals and tags what is stored, and from one without, which has checksums. Then from two peers of which one
gives wrong bytes for some of its pieces. Seconds, and processor seconds of the reader and of its peers per GiB; medians
of rounds in which the rows alternate. ECFS_BUILD names the build.

With perf(1): where the processor was while a peer's bytes were read. Beside it what `openssl speed` says of the parts."""
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import lab  # noqa: E402
import processors  # noqa: E402
from conftest import Place  # noqa: E402

MIB, SLOW = 1 << 20, 1_000_000  # bytes/s of each endpoint while peers are asked
PARTS = {  # by the library that ran: libcrypto comes without names of its functions
    "libcrypto, libssl: TLS at both ends, tags, content": r"libcrypto|libssl",
    "the kernel: copying, sockets, FUSE": r"^\[",
    "libc: copying, memory, locks": r"^libc\.",
    "libcurl: HTTP": r"libcurl",
}


def cpu_of(mount):
    return processors.used(mount.process.pid)


class Machine:
    """A follower."""

    def __init__(self, place, archive, port=None, ports=(), **settings):
        self.archive = lab.Archive(place.path / f"machine-{next(place.numbers)}", archive.endpoints)
        words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        self.mount = place.mount(self.archive, "--follow", *words)
        self.mount.umount()
        if port:
            settings |= {"peers": ", ".join(f"127.0.0.1:{each}" for each in ports), "peer_listen": f"127.0.0.1:{port}"}
        self.archive.configure("archive", **settings)
        self.mount.start()
        self.path = self.mount.path / "file"

    def read(self, digest=None):
        lab.drop_caches()
        if digest is None:
            subprocess.run(["dd", f"if={self.path}", "of=/dev/null", "bs=1M", "status=none"], check=True)
        else:
            assert lab.digest(self.path) == digest

    def warm(self):
        lab.ecfs("warm", self.path)

    def serve(self):
        """Without a mount, as who is asked for what nobody is known to have."""
        self.mount.umount()
        with open(self.mount.log, "ab") as log:
            self.mount.process = subprocess.Popen([lab.PROGRAM, "swarm", "serve", self.archive.path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def forget(self):
        lab.ecfs("cache", "--drop", self.archive.path)

    def peers(self):
        return self.archive.json("status")["peers"]


def timed(reader, givers):
    before = cpu_of(reader.mount), sum(cpu_of(giver.mount) for giver in givers)
    begun = time.monotonic()
    reader.read()
    seconds = time.monotonic() - begun
    return seconds, cpu_of(reader.mount) - before[0], sum(cpu_of(giver.mount) for giver in givers) - before[1]


def stored(place, endpoints, size, *words):
    """An archive with a file, and the file's digest."""
    archive = place.archive(endpoints, "rs:4+2", "--set", "segment_size=1M", *words)
    writer = place.mount(archive)
    lab.write_pattern(writer.path / "file", size, 1)
    digest = lab.digest(writer.path / "file")
    lab.ecfs("wait", writer.path)
    writer.umount()
    return archive, digest


def await_peers(reader):
    lab.until(lambda: all(peer["state"] == "up" and peer["seeder"] for peer in reader.peers()["list"]), 60, "all have met")


def swarm(place, archive, n):
    """A reader and n that have the file in their caches."""
    ports = [lab.free_port() for _ in range(n + 1)]
    machines = [Machine(place, archive, port, ports, cache_size="4G") for port in ports]
    for giver in machines[1:]:
        giver.warm()
        giver.serve()
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", SLOW)
    await_peers(machines[0])
    return machines[0], machines[1:]


class FromPeer:
    """Its endpoints are slow, or they would be asked."""

    def __init__(self, reader, givers):
        self.reader, self.givers, self.from_endpoints = reader, givers, []

    def measure(self, size):
        self.reader.forget()
        return self.timed(size)

    def timed(self, size):
        proxies = [endpoint.proxy for endpoint in self.reader.archive.endpoints]
        before = sum(proxy.status()["down"] for proxy in proxies)
        figures = timed(self.reader, self.givers)
        self.from_endpoints.append((sum(proxy.status()["down"] for proxy in proxies) - before) / size)
        return figures


class FromLiar(FromPeer):
    """One of two is a liar in some of its pieces. It is not asked again once one was seen, so the reader begins anew."""

    def __init__(self, reader, givers, share, digest):
        super().__init__(reader, givers)
        self.share, self.digest, self.cells = share, digest, [path for path in (givers[1].archive.path / "cache").rglob("cells/*/*") if path.is_file()]

    def flip(self, cells):
        for path in cells:
            lab.flip(path, 100)

    def measure(self, size):
        lied = random.Random(1).sample(self.cells, round(self.share * len(self.cells)))
        self.flip(lied)
        self.reader.mount.umount()
        self.reader.forget()
        self.reader.mount.start()
        await_peers(self.reader)
        figures = self.timed(size)
        self.flip(lied)
        assert lab.digest(self.reader.path) == self.digest  # in the kernel's memory
        return figures


class FromHere:
    """Endpoints, or its own cache."""

    def __init__(self, reader):
        self.reader = reader

    def measure(self, _):
        return timed(self.reader, [])


def rows(place, size):
    made = {}
    for sealed, words in (("no key", ["--key", "none"]), ("sealed", [lab.AS_USERS])):
        archive, digest = stored(place, place.directories(), size, *words)
        made[f"endpoints, {sealed}"] = FromHere(Machine(place, archive))
        cached = Machine(place, archive, cache_size="4G")
        cached.warm()
        made[f"own cache, {sealed}"] = FromHere(cached)
    archive, digest = stored(place, [place.behind_proxy(name) for name in lab.NAMES], size, lab.AS_USERS)
    reader, givers = swarm(place, archive, 1)
    made["a peer, sealed, TLS"] = FromPeer(reader, givers)
    archive, digest = stored(place, [place.behind_proxy(f"{name}2") for name in lab.NAMES], size, lab.AS_USERS)
    reader, givers = swarm(place, archive, 2)
    for share in (0, 0.01, 0.1):
        made[f"two peers, one lies in {share:.0%}"] = FromLiar(reader, givers, share, digest)
    for row in made.values():
        row.reader.read(digest)
    return made


def where_it_was(row, size):
    """Shares of the processor, by part; None without perf."""
    if shutil.which("perf") is None:
        return None
    pids = ",".join(str(machine.mount.process.pid) for machine in (row.reader, *row.givers))
    with tempfile.NamedTemporaryFile() as data:
        perf = subprocess.Popen(["perf", "record", "-q", "-F", "997", "-o", data.name, "-p", pids], stderr=subprocess.DEVNULL)
        time.sleep(1)  # a bench: it has begun
        for _ in range(3):
            row.measure(size)
        perf.terminate()
        perf.wait(30)
        told = subprocess.run(["perf", "report", "-i", data.name, "--sort", "dso", "-F", "overhead,dso", "--stdio", "-q"],
                              capture_output=True, text=True, check=False).stdout
    shares = dict.fromkeys([*PARTS, "all else"], 0.0)
    for share, library in re.findall(r"^\s*([\d.]+)%\s+(\S+)", told, flags=re.M):
        part = next((name for name, known in PARTS.items() if re.search(known, library)), "all else")
        shares[part] += float(share)
    return shares


def speeds():
    """GiB/s of one processor, in blocks of 16 KiB."""
    found = {}
    for name in ("aes-256-gcm", "aes-256-ctr", "sha256"):
        told = subprocess.run(["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384", "-evp", name], capture_output=True, text=True, check=False).stdout
        rate = re.search(r"^\+F:\d+:[^:]+:([\d.]+)", told, flags=re.M)
        found[name] = float(rate[1]) / (1 << 30) if rate else float("nan")
    return found


def came(row):
    return f"{statistics.median(row.from_endpoints):27.1%}" if isinstance(row, FromPeer) else ""


def main():
    size, n_rounds = (int(word) for word in (sys.argv[1:] + ["128", "5"][len(sys.argv) - 1:]))
    place = Place(None)
    try:
        made, figures = rows(place, size * MIB), {}
        for _ in range(n_rounds):
            for name, row in made.items():
                figures.setdefault(name, []).append(row.measure(size * MIB))
        print(f"{'from':32} seconds  reader: processor s/GiB  its peers: processor s/GiB  together, times that of the first row  of the file, from endpoints")
        first = None
        for name, each in figures.items():
            seconds, reader, givers = (statistics.median(column) for column in zip(*each))
            first = first or reader + givers
            print(f"{name:32} {seconds:7.2f}  {reader * 1024 / size:23.2f}  {givers * 1024 / size:26.2f}  {(reader + givers) / first:39.2f}  {came(made[name])}")
        shares = where_it_was(made["a peer, sealed, TLS"], size * MIB)
        for part, share in (shares or {}).items():
            print(f"{part:52} {share:5.1f}%")
        print("openssl speed, GiB/s of one processor: " + ", ".join(f"{name} {rate:.2f}" for name, rate in speeds().items()))
    finally:
        place.close()


if __name__ == "__main__":
    main()
