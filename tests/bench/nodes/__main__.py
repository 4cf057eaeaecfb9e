"""What the loss of a node costs in copies, Reed-Solomon and MS-BASIC: python3 tests/bench/nodes [OPTION...]

For each code an archive over as many sshd processes as it has stripes; what the machine that reads and repairs gets from
all of them together is held to --rate, as the paper of MS-BASIC holds each node's link to 100 Mbit/s, and so is each
server. Files of k blocks are stored. Then all stripes at one server are lost:

  repair    ecfs-fsck -y rebuilds them: bytes that were read for each that was rebuilt, and seconds
  degraded  the server is dead, and what it had of the files' content is read through a mount: bytes that came for each
            byte asked for, and seconds

Printed are medians of --rounds, and what Reed-Solomon of as many stripes takes in relation to each, beside the factors
that the paper measured; --json prints an object.

Needs what tests/bench/mount needs: root, a build in ./build or ECFS_BUILD, sshd, iproute2, util-linux.
"""
import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "mount"), str(Path(__file__).resolve().parents[2] / "lab")]
import lab  # noqa: E402
import links  # noqa: E402
import measure  # noqa: E402
import systems  # noqa: E402

MIB = 1 << 20
READ = 64 << 10
CODES = "copies:3,rs:4+4,basic:4+4,rs:6+6,basic:6+6,rs:8+8,basic:8+8"
# Of Reed-Solomon to MS-BASIC: repair traffic by n, and time of a degraded read and of recovery, "about".
PAPER_TRAFFIC, PAPER_READ, PAPER_RECOVERY = {8: 2.67, 12: 2.86, 16: 3.1}, 1.45, 1.5


class Nodes:
    """An archive with files of k blocks of @block MiB, over a server for each stripe."""

    def __init__(self, base, code, options):
        base.mkdir()
        self.base, self.code, self.options = base, code, options
        keys = lab.Keys(base / "keys")
        self.k, self.n = systems.split_code(code)
        self.servers = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(self.n)]

    @contextlib.contextmanager
    def serving(self):
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                server.start()
                stack.callback(server.kill)
            self.archive = lab.Archive(self.base / "archive", [systems.Place(server, "auto") for server in self.servers], self.code)
            self.archive.init("--key", "none")
            for number in range(self.options.files):
                source = self.base / "source"
                with open(source, "wb") as file:
                    for _ in range(self.k * self.options.block):
                        file.write(os.urandom(MIB))
                self.archive.put_in_full(source, f"/{number}")
                source.unlink()
            stack.enter_context(links.Links([server.port for server in self.servers], self.options.rate, shared=True))
            yield self

    def lost_bytes(self, server):
        return sum(path.stat().st_size for path in lab.stripe_files(server))

    def repair(self, server):
        """(bytes read for each rebuilt, seconds)"""
        size, wire, begin = self.lost_bytes(server), measure.wire_bytes(), time.monotonic()
        shutil.rmtree(server.root / "stripes")
        lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", self.archive.path, check=False, timeout=1800)
        seconds = time.monotonic() - begin
        assert self.lost_bytes(server) == size, f"{self.code}: it was not rebuilt"
        return (measure.wire_bytes() - wire) / size - 1, seconds

    def lost_ranges(self, server):
        """(file, offset, length) of content that only the server has as it is, but for copies; a small read in each packet,
        as larger ones are read ahead of."""
        for number in range(self.options.files):
            told = self.archive.json("info", f"/{number}")
            segment = told["objects"][0]["segment_bytes"]
            for stripe in told["stripes"]:
                if stripe["endpoint"] == server.name and stripe["index"] < self.k:
                    for at in range(0, told["size"], segment):
                        yield number, at + stripe["index"] * segment // self.k, READ

    def read_lost(self, server):
        """(bytes that came for each, seconds)"""
        ranges = list(self.lost_ranges(server))
        random.shuffle(ranges)  # in order more would be read ahead than is asked for
        mount = lab.Mount(self.archive, self.base / "files")
        server.kill()
        mount.start()
        try:
            lab.until(lambda: any(endpoint["state"] == "down" for endpoint in self.archive.json("status")["endpoints"]), 60,
                      "the mount has found out")
            files = [os.open(mount.path / str(number), os.O_RDONLY) for number in range(self.options.files)]
            wire, begin, asked = measure.wire_bytes(), time.monotonic(), 0
            for number, offset, length in ranges:
                os.posix_fadvise(files[number], 0, 0, os.POSIX_FADV_RANDOM)
                asked += len(os.pread(files[number], length, offset))
            seconds = time.monotonic() - begin
            for file in files:
                os.close(file)
            return ((measure.wire_bytes() - wire) / asked, seconds / asked * MIB * self.options.block) if asked else (0, 0)
        finally:
            mount.umount()
            server.start()


def measure_code(code, options, base):
    with Nodes(base / code.replace(":", "-"), code, options).serving() as nodes:
        rounds = [(*nodes.repair(server), *nodes.read_lost(server)) for server in nodes.servers[:options.rounds]]
    reads = [row[2:] for row in rounds if row[2] > 0]
    return {"stripes": nodes.n, "repair_bytes": median(row[0] for row in rounds), "repair_seconds": median(row[1] for row in rounds),
            "read_bytes": median(row[0] for row in reads), "read_seconds": median(row[1] for row in reads)}


def show(options, rows):
    print(f"Files of k blocks of {options.block} MiB, {options.files} of them; all links together held to {options.rate:g} MB/s; "
          f"medians of {options.rounds}\n")
    print(f"{'code':10}{'repair: B/B':>12}{'s':>8}{'degraded: B/B':>15}{'s/block':>9}    Reed-Solomon / this (paper)")
    for code, row in rows.items():
        line = (f"{code:10}{row['repair_bytes']:12.2f}{row['repair_seconds']:8.1f}{row['read_bytes']:15.2f}"
                f"{row['read_seconds']:9.2f}")
        rs = rows.get(code.replace("basic", "rs")) if code.startswith("basic") else None
        if rs is not None:
            line += (f"    traffic {rs['repair_bytes'] / row['repair_bytes']:.2f} ({PAPER_TRAFFIC.get(row['stripes'], 0):.2f}), "
                     f"recovery {rs['repair_seconds'] / row['repair_seconds']:.2f} ({PAPER_RECOVERY}), "
                     f"degraded read {rs['read_seconds'] / row['read_seconds']:.2f} ({PAPER_READ})")
        print(line)


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/nodes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", default=CODES, metavar="CODE,...", help=f"default {CODES}")
    parser.add_argument("--block", type=int, default=8, metavar="MIB", help="of a stripe (default 8; the paper's have 64)")
    parser.add_argument("--files", type=int, default=4, metavar="N", help="default 4")
    parser.add_argument("--rate", type=float, default=12.5, metavar="MB/S", help="default 12.5, which is 100 Mbit/s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3, each with another server")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args()
    links.need_privileges("tests/bench/nodes")
    links.enter_namespace()
    base = Path(tempfile.mkdtemp(prefix="ecfs-nodes-", dir="/dev/shm"))
    try:
        rows = {code: measure_code(code, options, base) for code in options.codes.split(",")}
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if options.json:
        print(json.dumps(rows))
    else:
        show(options, rows)


if __name__ == "__main__":
    main()
