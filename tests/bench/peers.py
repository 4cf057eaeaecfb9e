#!/usr/bin/python3
"""What many readers of one file cost the endpoints, and how long the last of them takes: with peers and without.

Each reader is a mount that follows, with a cache and a network namespace of its own: so each has an address and a line,
held to --line MB/s. Six sshd are in another namespace, whose line is held to RATE MB/s for all readers together, or, with
--each, for each of them. All readers begin at once. Needs root, and ECFS_BUILD names the build.

All runs on one machine, so that many readers share its processors: seconds of these are told as well, of the mounts
alone, and how busy all processors were meanwhile, with all that ran beside. Where that is a virtual one, memory that was
not in use for minutes may be its host's again, and costs 2 to 3 s of a processor for each GiB when it is written first,
five times what it costs then: so as much as the caches and what is on its way will take is touched before."""
import argparse
import mmap
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import lab  # noqa: E402
import processors  # noqa: E402
import switch  # noqa: E402
from conftest import Place  # noqa: E402

MIB, PORT = 1 << 20, 7000


class Reader:
    def __init__(self, place, archive, machine, machines):
        with machine:
            self.archive = lab.Archive(place.path / f"reader-{machine.address}", archive.endpoints)
            words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
            self.mount = place.mount(self.archive, "--follow", *words)
            self.mount.umount()
            settings = {"cache_size": "2G"}
            if machines:
                settings |= {"peers": ", ".join(f"{each.address}:{PORT}" for each in machines), "peer_listen": f"{machine.address}:{PORT}"}
            self.archive.configure("archive", **settings)
            self.mount.start()
        self.seconds = self.is_right = None

    def read(self, begun, expected):
        """Compares, as digests would take a tenth of the processors."""
        with open(self.mount.path / "file", "rb", buffering=0) as file:
            self.is_right = all(file.read(MIB) == expected[offset:offset + MIB] for offset in range(0, len(expected), MIB)) and not file.read(1)
        self.seconds = time.monotonic() - begun

    def cpu(self):
        return processors.used(self.mount.process.pid)


class Lines:
    """Bytes that left the endpoints, and readers for each other."""

    def __init__(self, endpoints, machines):
        self.endpoints, self.machines = endpoints, machines

    def counts(self):
        sent, received = self.endpoints.moved()
        return sent, sum(machine.moved()[0] for machine in self.machines) - received


def touch_memory(n_bytes):
    with mmap.mmap(-1, n_bytes) as memory:
        for _ in range(n_bytes // MIB):
            memory.write(bytes(MIB))


def read_all(readers, lines, expected):
    lab.drop_caches()
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    touch_memory(min(5 * len(readers) * len(expected), free * 3 // 4))
    before, cpu, (all_before, busy_before) = lines.counts(), sum(reader.cpu() for reader in readers), processors.busy()
    begun = time.monotonic()
    threads = [threading.Thread(target=reader.read, args=(begun, expected)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (all_after, busy_after), after = processors.busy(), lines.counts()
    return {"last": max(reader.seconds for reader in readers), "endpoints": after[0] - before[0], "peers": after[1] - before[1],
            "cpu": sum(reader.cpu() for reader in readers) - cpu, "busy": (busy_after - busy_before) / (all_after - all_before)}


def hold(options, servers, machines, on):
    for machine in machines:
        machine.hold(options.line * 1_000_000 * on)
    if options.each:
        servers.hold_to_each(machines, options.rate * 1_000_000 * on)
    else:
        servers.hold(options.rate * 1_000_000 * on)


def round_of(options, n, with_peers):
    place, net = Place(None), switch.Switch()
    try:
        servers, machines = net.machine(), [net.machine() for _ in range(n)]
        with servers:
            archive = place.archive([place.sshd(name, servers.address) for name in lab.NAMES], "rs:4+2", "--set", "segment_size=1M", lab.AS_USERS)
            writer = place.mount(archive)
            lab.write_pattern(writer.path / "file", options.size * MIB, 1)
            expected = (writer.path / "file").read_bytes()
            lab.ecfs("wait", writer.path)
            writer.umount()
        with ThreadPoolExecutor(6) as workers:
            readers = list(workers.map(lambda machine: Reader(place, archive, machine, machines if with_peers else []), machines))
        time.sleep(3 if with_peers else 0)  # a bench: all have met, or the first seconds show it
        hold(options, servers, machines, True)
        told = read_all(readers, Lines(servers, machines), expected)
        hold(options, servers, machines, False)
        assert all(reader.is_right for reader in readers)
        return told
    finally:
        place.close()
        net.close()


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int, metavar="MIB", help="of the file")
    parser.add_argument("rate", type=int, metavar="RATE", help="MB/s of the endpoints' line")
    parser.add_argument("readers", type=int, nargs="*", default=[1, 4, 12, 32])
    parser.add_argument("--line", type=int, default=100, help="MB/s of each reader's own line")
    parser.add_argument("--each", action="store_true", help="RATE is for each reader, not for all of them")
    parser.add_argument("--alone", type=int, default=4, metavar="N", help="measure up to N readers without peers, too: they take N copies")
    return parser.parse_args()


def main():
    options = parsed()
    print("readers  peers  last, s  copies from endpoints  from peers  processor s per reader and GiB  all processors  load")
    for n in options.readers:
        for with_peers in ([False, True] if n <= options.alone else [True]):
            told, size = round_of(options, n, with_peers), options.size * MIB
            print(f"{n:7}  {'yes' if with_peers else 'no':5}  {told['last']:7.1f}  {told['endpoints'] / size:21.2f}  {told['peers'] / size:10.2f}"
                  f"  {told['cpu'] / n / (options.size / 1024):31.1f}  {told['busy']:13.0%}  {os.getloadavg()[0]:5.1f}", flush=True)


if __name__ == "__main__":
    main()
