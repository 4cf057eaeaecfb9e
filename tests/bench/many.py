#!/usr/bin/python3
"""What names cost where the catalog is in a database: tests/bench/many.py [MILLISECONDS...]

Operations a second of one program in a mount: with the catalog in a file, in PostgreSQL for one mount, and for many; the
last also of so many mounts (--mounts) that work at once in directories of their own, together. The database answers after
so many milliseconds, an even number (0: as fast as it can). Where JUICEFS names a juicefs, that as well, with its metadata
in the same server, as one mount and as many. Endpoints are six directories, rs:4+2. ECFS_BUILD names the build. Medians of
three. With --entries a directory of so many names is listed as well: entries a second."""
import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
import lab  # noqa: E402
import postgresql  # noqa: E402
from conftest import Place  # noqa: E402
from test_many_mounts import join  # noqa: E402

N_FILES, N_SMALL, N_RUNS = 150, 40, 3


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def timed(n, what):
    begun = time.monotonic()
    what()
    return n / (time.monotonic() - begun)


def work(directory):
    """Operations a second, by kind."""
    directory.mkdir()
    names = [directory / f"file{i}" for i in range(N_FILES)]
    figures = {}
    figures["mkdir"] = timed(N_FILES, lambda: [(directory / f"dir{i}").mkdir() for i in range(N_FILES)])
    figures["symlink"] = timed(N_FILES, lambda: [name.symlink_to("target") for name in names])
    figures["rename"] = timed(N_FILES, lambda: [name.rename(f"{name}.new") for name in names])
    figures["stat"] = timed(N_FILES, lambda: [os.lstat(f"{name}.new") for name in names])
    figures["readdir"] = timed(2 * N_FILES, lambda: list(os.scandir(directory)))
    figures["unlink"] = timed(N_FILES, lambda: [os.unlink(f"{name}.new") for name in names])
    figures["close 4 KiB"] = timed(N_SMALL, lambda: [name.write_bytes(b"x" * 4096) for name in names[:N_SMALL]])
    return figures


def fill(mountpoint, n_entries):
    """A directory that is large, and that others list."""
    large = mountpoint / "large"
    large.mkdir()
    for i in range(n_entries):
        os.symlink("target", large / f"entry {i:07}")


def list_large(mountpoint, n_entries):
    return {"readdir large": statistics.median(timed(n_entries, lambda: list(os.scandir(mountpoint / "large"))) for _ in range(N_RUNS))}


def median_of(runs):
    return {kind: statistics.median(run[kind] for run in runs) for kind in runs[0]}


def measure(mountpoint, name):
    return median_of([work(mountpoint / f"{name}-{i}") for i in range(N_RUNS)])


def together(mounts, name):
    """The sum of what all do at once."""
    runs = []
    for i in range(N_RUNS):
        found = [None] * len(mounts)

        def one(number):
            found[number] = work(mounts[number] / f"{name}-{i}-{number}")
        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(mounts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs.append({kind: sum(part[kind] for part in found) for kind in found[0]})
    return median_of(runs)


def archive_of(place, location, mounts):
    words = ["--set", f"catalog={location}", "--set", f"catalog_mounts={mounts}"] if location else []
    return place.archive(place.directories(), "rs:4+2", "--key", "none", *words)


class Juicefs:
    """As many mounts of one file system as are asked for, each with a cache of its own."""

    def __init__(self, place, location):
        self.directory, self.processes = place.path / "juicefs", []
        self.directory.mkdir()
        self.program, self.meta = os.environ["JUICEFS"], location.replace("postgresql://", "postgres://") + "?sslmode=disable"
        subprocess.run([self.program, "format", "--storage", "file", "--bucket", f"{self.directory}/", self.meta, "bench"], check=True, capture_output=True)

    def mount(self):
        mountpoint = self.directory / f"mnt{len(self.processes)}"
        mountpoint.mkdir()
        words = ["--no-usage-report", "--cache-dir", str(self.directory / f"cache{len(self.processes)}")]
        process = subprocess.Popen([self.program, "mount", *words, self.meta, str(mountpoint)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append((process, mountpoint))
        lab.until(lambda: lab.is_mounted(mountpoint), 60, "juicefs is mounted")
        return mountpoint

    def close(self):
        for process, mountpoint in self.processes:
            subprocess.run(["umount", mountpoint], check=False)
            process.wait(60)


def table(rows):
    kinds = list(next(iter(rows.values())))
    print(f"{'':28}" + "".join(f"{kind:>14}" for kind in kinds))
    for name, figures in rows.items():
        print(f"{name:28}" + "".join(f"{figures[kind]:14.0f}" for kind in kinds), flush=True)


def bench(delay_ms, options):
    port, rows, place = free_port(), {}, Place(None)

    def note(name, mountpoints, figures):
        """What all do at once, and what one of them lists that another has filled."""
        rows[name] = figures
        if options.entries and len(mountpoints) == 1:
            if delay_ms:
                proxy.tell("delay", 0)
            fill(mountpoints[0], options.entries)
            if delay_ms:
                proxy.tell("delay", delay_ms // 2)
        if options.entries:
            rows[name].update(list_large(mountpoints[-1], options.entries))
    with postgresql.Cluster("fsync = on", port=port) as cluster:
        proxy = lab.Proxy(port)
        try:
            if delay_ms:
                proxy.tell("delay", delay_ms // 2)
            location = f"postgresql://ecfs@127.0.0.1:{proxy.port if delay_ms else port}/postgres"
            secure = f"{location}?sslmode=disable"
            mount = place.mount(archive_of(place, None, "one"))
            note("file", [mount.path], measure(mount.path, "one"))
            mount.umount()
            mount = place.mount(archive_of(place, secure, "one"))
            note("PostgreSQL, one", [mount.path], measure(mount.path, "one"))
            mount.umount()
            archive = archive_of(place, secure, "many")
            mounts = [place.mount(archive)]
            note("PostgreSQL, many", [mounts[0].path], measure(mounts[0].path, "one"))
            mounts += [place.mount(join(place, archive, f"other{i}")) for i in range(1, options.mounts)]
            paths = [mount.path for mount in mounts]
            note(f"… {options.mounts} mounts together", paths, together(paths, "all"))
            for mount in mounts:
                mount.umount()
            if "JUICEFS" in os.environ:
                juicefs = Juicefs(place, location)
                try:
                    mountpoints = [juicefs.mount()]
                    note("juicefs", mountpoints, measure(mountpoints[0], "one"))
                    mountpoints += [juicefs.mount() for _ in range(1, options.mounts)]
                    note(f"… {options.mounts} juicefs together", mountpoints, together(mountpoints, "all"))
                finally:
                    juicefs.close()
        finally:
            proxy.close()
            place.close()
    print(f"\n{delay_ms} ms away: operations a second")
    table(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delays", type=int, nargs="*", default=[0], metavar="MILLISECONDS")
    parser.add_argument("--mounts", type=int, default=4)
    parser.add_argument("--entries", type=int, default=0)
    options = parser.parse_args()
    if not postgresql.have_postgresql():
        sys.exit("there is no PostgreSQL here")
    for delay in options.delays:
        bench(delay, options)


if __name__ == "__main__":
    main()
