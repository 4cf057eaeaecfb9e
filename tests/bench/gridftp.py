"""GridFTP beside globus-url-copy, SFTP and sshfs, in one run: python3 tests/bench/gridftp.py [--size MIB] [--rounds N]

All is in RAM, on loopback. Each round gives every way a turn to store and to fetch the same file; printed are medians of
MB/s and of processor seconds per GiB, of the client and of the servers. ecfs puts and gets through `ecfs put` and
`ecfs get`, over one endpoint (copies:1) and over six (rs:4+2). Needs globus-url-copy (globus-gass-copy-progs) and sshfs
for the rows of these.
"""
import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "lab"), str(TESTS / "bench/mount")]
import gridftp  # noqa: E402
import lab  # noqa: E402
import measure  # noqa: E402

PATIENT = {"stall_timeout": "60s"}  # a handshake for each transfer
PRIVATE = {"protection": "private", **PATIENT}


class Ecfs:
    """An archive over servers; options of their endpoints."""

    def __init__(self, base, name, servers, code, **options):
        self.name, self.servers, self.base = name, servers, base
        places = [type("Place", (), {"name": server.name, "endpoint": lambda _, server=server:
                                     server.endpoint(**options)})() for server in servers]
        self.archive = lab.Archive(base / "archive", places, code)

    def prepare(self):
        for server in self.servers:
            shutil.rmtree(server.root, ignore_errors=True)
            server.root.mkdir()
        shutil.rmtree(self.base, ignore_errors=True)
        (self.base / "got").mkdir(parents=True)
        self.archive.init()

    def store(self, file):
        return f"{lab.PROGRAM} put {self.archive.path} {file} /large"

    def fetch(self):
        return f"{lab.PROGRAM} get {self.archive.path} /large {self.base}/got", self.base / "got/large"


class UrlCopy:
    """globus-url-copy to one server."""

    def __init__(self, base, name, server, options):
        self.name, self.servers, self.base = name, [server], base
        grid = server.grid
        self.command = (f"env X509_USER_PROXY={grid.proxy} X509_CERT_DIR={grid.authority.certificates} "
                        f"globus-url-copy {options}")
        self.url = f"{server.scheme}://localhost:{server.port}{server.root}/large"

    def prepare(self):
        shutil.rmtree(self.base, ignore_errors=True)
        self.base.mkdir(parents=True)

    def store(self, file):
        return f"{self.command} file://{file} {self.url}"

    def fetch(self):
        return f"{self.command} {self.url} file://{self.base}/large", self.base / "large"


class Sshfs:
    """cp to and from a mounted server; the client's time is that of cp alone."""

    def __init__(self, base, name, server):
        self.name, self.servers, self.base = name, [server], base

    def prepare(self):
        server = self.servers[0]
        lab.detach(self.base)
        self.base.mkdir(parents=True, exist_ok=True)
        lab.run("sshfs", server.url().removeprefix("sftp://").replace(f":{server.port}", ":", 1), self.base, "-p",
                server.port, "-o", f"IdentityFile={server.keys.identity}", "-o",
                f"UserKnownHostsFile={server.keys.known_hosts}")

    def store(self, file):
        return f"cp {file} {self.base}/large"

    def fetch(self):
        lab.detach(self.base)
        self.prepare()
        return f"cp {self.base}/large {self.base}.got", Path(f"{self.base}.got")


def measured(way, command):
    """Seconds, and processor seconds of client and servers."""
    servers = lambda: measure.tree_cpu([server.process.pid for server in way.servers])  # noqa: E731
    before, begin = servers(), time.monotonic()
    client = measure.run_program(command)
    return time.monotonic() - begin, client, servers() - before


def make_ways(base, place):
    sftp = [place("sshd", f"s{i}") for i in range(6)]
    gsi = [place("gsiftp", f"g{i}") for i in range(6)]
    ftp = [place("ftp", f"f{i}") for i in range(6)]
    ways = []
    if shutil.which("globus-url-copy"):
        ways += [UrlCopy(base / "guc1", "globus-url-copy, clear, 1 stream", gsi[0], "-nodcau"),
                 UrlCopy(base / "guc4", "globus-url-copy, clear, 4 streams", gsi[0], "-nodcau -p 4"),
                 UrlCopy(base / "gucp", "globus-url-copy, private, 1 stream", gsi[0], "-dcpriv")]
    else:
        print("NOT MEASURED: globus-url-copy: apt install globus-gass-copy-progs", file=sys.stderr)
    if shutil.which("sshfs"):
        ways.append(Sshfs(base / "sshfs", "sshfs", sftp[0]))
    else:
        print("NOT MEASURED: sshfs: apt install sshfs", file=sys.stderr)
    for code, n in [("copies:1", 1), ("rs:4+2", 6)]:
        for kind, servers, options in [("sftp", sftp, {}), ("ftp", ftp, {}), ("gsiftp clear", gsi, PATIENT),
                                       ("gsiftp private", gsi, PRIVATE)]:
            label = f"ecfs {code}, {kind}"
            ways.append(Ecfs(base / label.translate(str.maketrans(" :,+", "----")), label, servers[:n], code, **options))
    return ways


def print_table(samples, size):
    print(f"{'':36}{'in MB/s':>9}{'client':>8}{'servers':>8}{'out MB/s':>10}{'client':>8}{'servers':>8}   s/GiB")
    for name, rows in samples.items():
        cells = []
        for column in (0, 1):
            seconds, client, servers = (statistics.median(row[column][i] for row in rows) for i in range(3))
            cells += [f"{size / 1e6 / seconds:.0f}", f"{client * 2**30 / size:.2f}", f"{servers * 2**30 / size:.2f}"]
        print("{:36}{:>9}{:>8}{:>8}{:>10}{:>8}{:>8}".format(name, *cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, help="MiB of the file (256)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose name this regular expression matches")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir="/dev/shm"))
    servers = []
    grid, keys = gridftp.Grid(base / "grid"), lab.Keys(base / "keys")

    def place(kind, name):
        server = lab.Sshd(base / "servers" / name, name, keys) if kind == "sshd" else \
            gridftp.Server(base / "servers" / name, name, grid, kind)
        servers.append(server)
        server.root.mkdir(exist_ok=True)
        server.start()
        return server

    try:
        ways = [way for way in make_ways(base / "ways", place) if re.search(options.only, way.name)]
        source, size = base / "source", options.size << 20
        lab.write_pattern(source, size)
        samples = {way.name: [] for way in ways}
        for _ in range(options.rounds):
            for way in ways:
                way.prepare()
                stored = measured(way, way.store(source))
                command, got = way.fetch()
                fetched = measured(way, command)
                subprocess.run(["cmp", source, got], check=True)
                got.unlink()
                samples[way.name].append((stored, fetched))
        print_table(samples, size)
    finally:
        for server in servers:
            server.kill()
        lab.detach(base / "ways/sshfs")
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
