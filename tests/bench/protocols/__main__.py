"""Every protocol beside what others use for it, in one run: python3 tests/bench/protocols [OPTION...]

All is in RAM, on loopback. Each round gives every way a turn to store one file and to fetch it: cp; sshfs; curl to a
WebDAV server, in clear and with TLS; globus-url-copy with one stream and with four; and ecfs put and ecfs get over each
protocol, over one endpoint (copies:1) and over six (rs:4+2, half as much again). What was fetched is compared. Printed
are medians of MB/s of file; as medians of the rounds' ratios, what that is beside the program above of the same
protocol and beside sshfs; and processor seconds per GiB of client and servers. "others" is what other programs took of
this machine meanwhile: where that is much, compare processor time, or run it in a cgroup of its own with a large share.
nice does not help there: kernels that schedule by session give every server, which has its own, as much as a compiler.

Needs root, a build in ./build or ECFS_BUILD, sshd, nginx or Apache with WebDAV and globus-gridftp-server; curl, sshfs and
globus-url-copy (globus-gass-copy-progs) for the rows of these.
"""
import argparse
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS / "lab"), str(TESTS / "bench/mount")]
import gridftp  # noqa: E402
import lab  # noqa: E402
import links  # noqa: E402
import measure  # noqa: E402
import systems  # noqa: E402
import web  # noqa: E402
import ways  # noqa: E402

N_SERVERS = 6


class Servers:
    """Of every kind six, started when a way that is measured wants them."""

    def __init__(self, base, web_kind):
        self.base, self.web_kind, self.started = base, web_kind, []
        self.grid, self.keys = gridftp.Grid(base / "grid"), lab.Keys(base / "keys")
        self.kinds = {kind: [self._make(kind, f"{kind}{i}") for i in range(N_SERVERS)]
                      for kind in ["sftp", "dav", "davs", "ftp", "gsiftp"]}

    def _make(self, kind, name):
        place = self.base / "servers" / name
        if kind == "sftp":
            return lab.Sshd(place, name, self.keys)
        if kind.startswith("dav"):
            return web.Web(place, name, self.web_kind, *(["tls"] if kind == "davs" else []), authority=self.grid.authority)
        return gridftp.Server(place, name, self.grid, kind)

    def start(self, used):
        for server in [server for kind in self.kinds.values() for server in kind if server in used]:
            server.root.mkdir(exist_ok=True)
            self.started.append(server)
            server.start()

    def meter(self):
        lasting = [server for server in self.started if isinstance(server, web.Web)]
        return measure.Servers([server for server in self.started if server not in lasting], lasting)

    def kill(self):
        for server in self.started:
            server.kill()


def choose(options, base, servers):
    """The ways asked for that can be measured here; says which cannot."""
    sources, chosen = SimpleNamespace(large=base / "source"), []
    for way in ways.peers(base / "ways", sources, servers.kinds) + ways.ours(base / "ways", sources, servers.kinds):
        try:
            if re.search(options.only, way.name):
                way.check()
                chosen.append(way)
        except systems.Missing as missing:
            print(f"NOT MEASURED: {way.name}: {missing}", file=sys.stderr)
    return chosen


def take_turn(way, meter):
    """Costs of storing and fetching."""
    try:
        way.setup()
        costs = [measure.measured(way, work, meter) for work in way.works]
        way.verify()
        return costs
    finally:
        way.teardown()


def ratio(rounds, of, to, work):
    """How much faster, as the median over rounds; "" where one of them was not measured."""
    if to is None or to not in rounds[0]:
        return ""
    return f"{statistics.median(each[to][work].seconds / each[of][work].seconds for each in rounds):.2f}"


def print_table(chosen, rounds, size):
    def cpu(name, work, whose):
        return f"{statistics.median(getattr(each[name][work], whose) for each in rounds) * 2**30 / size:.2f}"

    peers = {}
    for way in chosen:
        peers.setdefault(way.proto, None if isinstance(way, ways.Ecfs) else way.name)
    head = ["MB/s", "× peer", "× sshfs", "client", "servers"]
    print(f"{'':38}" + "".join(f"{work + ' ' + head[0]:>10}" + "".join(f"{word:>9}" for word in head[1:])
                               for work in ("in", "out")) + "   s/GiB")
    for way in chosen:
        cells = []
        for work in (0, 1):
            seconds = statistics.median(each[way.name][work].seconds for each in rounds)
            cells += [f"{size / 1e6 / seconds:>10.0f}", *(f"{cell:>9}" for cell in (
                ratio(rounds, way.name, peers[way.proto], work), ratio(rounds, way.name, "sshfs", work),
                cpu(way.name, work, "client_cpu"), cpu(way.name, work, "server_cpu")))]
        print(f"{way.name:38}" + "".join(cells), flush=True)
    others = statistics.median(cost.others for each in rounds for costs in each.values() for cost in costs)
    print(f"others: {others:.0%} of the machine, median")


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/protocols", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="of the file (default 256)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--only", default="", metavar="REGEX", help="ways whose name has it, as in the table")
    parser.add_argument("--web", default="nginx", choices=["nginx", "apache"], help="of dav and davs (default nginx)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("tests/bench/protocols: only root can mount and empty the page cache")
    links.enter_namespace()
    measure.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("tests/bench/protocols: terminated"))  # servers and mounts too
    base = Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir="/dev/shm"))
    base.chmod(0o755)
    servers = Servers(base, options.web)
    try:
        chosen = choose(options, base, servers)
        servers.start([server for way in chosen for server in way.servers])
        lab.write_pattern(base / "source", options.size << 20)
        meter = servers.meter()
        rounds = [{way.name: take_turn(way, meter) for way in chosen} for _ in range(options.rounds)]
        print_table(chosen, rounds, options.size << 20)
    finally:
        servers.kill()
        lab.detach(base / "ways/sshfs/files")
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
