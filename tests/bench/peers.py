#!/usr/bin/python3
"""What many readers of one file cost the endpoints, and how long the last of them takes: with peers and without.

Six sshd behind proxies that hold all links to so many MB/s in all. Each reader is a mount that follows, with a cache of
its own, and all begin at once. ECFS_BUILD names the build; the first argument is the MiB of the
file, the second the MB/s, the others numbers of readers. All runs on one machine, so that many readers
share its processors, which is why their seconds are told as well."""
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import lab  # noqa: E402
from conftest import Place  # noqa: E402

MIB = 1 << 20


class Reader:
    def __init__(self, place, archive, number, ports):
        self.archive = lab.Archive(place.path / f"reader-{number}", archive.endpoints)
        words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        self.mount = place.mount(self.archive, "--follow", *words)
        self.mount.umount()
        settings = {"cache_size": "2G"}
        if ports:
            settings |= {"peers": ", ".join(f"127.0.0.1:{port}" for port in ports), "peer_listen": f"127.0.0.1:{ports[number]}"}
        self.archive.configure("archive", **settings)
        self.mount.start()
        self.seconds = self.digest = None

    def read(self, begun):
        self.digest = lab.digest(self.mount.path / "file")
        self.seconds = time.monotonic() - begun

    def cpu(self):
        fields = Path(f"/proc/{self.mount.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def down(archive):
    return sum(endpoint.proxy.status()["down"] for endpoint in archive.endpoints)


def read_all(archive, readers):
    """Seconds of the last, bytes that left the endpoints, seconds of processors."""
    lab.drop_caches()
    before, cpu = down(archive), sum(reader.cpu() for reader in readers)
    begun = time.monotonic()
    threads = [threading.Thread(target=reader.read, args=(begun,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(reader.seconds for reader in readers), down(archive) - before, sum(reader.cpu() for reader in readers) - cpu


def round_of(size, rate, n, with_peers):
    place = Place(None)
    try:
        archive = place.archive([place.behind_proxy(name) for name in lab.NAMES], "rs:4+2", "--set", "segment_size=1M", lab.AS_USERS)
        writer = place.mount(archive)
        lab.write_pattern(writer.path / "file", size, 1)
        digest = lab.digest(writer.path / "file")
        lab.ecfs("wait", writer.path)
        writer.umount()
        ports = [lab.free_port() for _ in range(n)] if with_peers else []
        with ThreadPoolExecutor(6) as workers:
            readers = list(workers.map(lambda number: Reader(place, archive, number, ports), range(n)))
        time.sleep(3 if with_peers else 0)  # a bench: all have met, or the first seconds show it
        for endpoint in archive.endpoints:
            endpoint.proxy.tell("throttle", rate // len(archive.endpoints))
        told = read_all(archive, readers)
        for endpoint in archive.endpoints:
            endpoint.proxy.tell("throttle", 0)
        assert {reader.digest for reader in readers} == {digest}
        return told
    finally:
        place.close()


def main():
    size, rate = int(sys.argv[1]) * MIB, int(sys.argv[2]) * 1_000_000
    print("readers  peers  last, s  copies from endpoints  processor s per reader and GiB")
    for n in map(int, sys.argv[3:] or ["1", "4", "12", "32"]):
        for with_peers in ([False, True] if n <= 4 else [True]):  # without them it is n copies, which takes too long
            last, came, cpu = round_of(size, rate, n, with_peers)
            print(f"{n:7}  {'yes' if with_peers else 'no':5}  {last:7.1f}  {came / size:21.2f}  {cpu / n / (size / (1 << 30)):31.1f}", flush=True)


if __name__ == "__main__":
    main()
