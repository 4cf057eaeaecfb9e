#!/usr/bin/python3
"""What names cost where the catalog is in a database: tests/bench/many.py [MILLISECONDS...]

Operations a second of one program in a mount: with the catalog in a file, in PostgreSQL for one mount, and for many; the
last also of so many mounts (--mounts) that work at once in directories of their own. All begin each kind of operation
together, and it has been done when the last of them has. The database answers after so many milliseconds (0: as fast as it
can). Where JUICEFS names a juicefs, that as well, with its metadata in the same server, as one mount and as many. Endpoints
are six directories, rs:4+2. ECFS_BUILD names the build. Medians of three runs, one of each row in turn. With --entries a
directory of so many names is listed as well: entries a second."""
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

N_FILES, N_RUNS, SETTLE_S = 150, 3, 2


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Crew:
    """Who works together: each kind of operation begins when all have done the one before it, and has been done when the last has."""

    def __init__(self, n_workers):
        self.n_workers, self.barrier, self.begun, self.figures = n_workers, threading.Barrier(n_workers, action=self.turn), None, {}
        self.kind, self.n_operations, self.failure = None, 0, None

    def work(self, directory):
        try:
            work(directory, self)
        except threading.BrokenBarrierError:
            pass  # another has failed
        except BaseException as failure:  # pylint: disable=broad-exception-caught
            self.failure = failure
            self.barrier.abort()

    def turn(self):
        now = time.monotonic()
        if self.kind:
            self.figures[self.kind] = self.n_workers * self.n_operations / (now - self.begun)
        self.kind, self.begun = None, now

    def timed(self, kind, n_operations, what):
        self.barrier.wait()
        self.kind, self.n_operations = kind, n_operations
        what()
        self.barrier.wait()


def timed(n, what):
    begun = time.monotonic()
    what()
    return n / (time.monotonic() - begun)


def work(directory, crew):
    """Operations a second, by kind, of the whole crew."""
    directory.mkdir()
    names = [directory / f"file{i}" for i in range(N_FILES)]
    crew.timed("mkdir", N_FILES, lambda: [(directory / f"dir{i}").mkdir() for i in range(N_FILES)])
    crew.timed("symlink", N_FILES, lambda: [name.symlink_to("target") for name in names])
    crew.timed("rename", N_FILES, lambda: [name.rename(f"{name}.new") for name in names])
    crew.timed("stat", N_FILES, lambda: [os.lstat(f"{name}.new") for name in names])
    crew.timed("readdir", 2 * N_FILES, lambda: list(os.scandir(directory)))
    crew.timed("unlink", N_FILES, lambda: [os.unlink(f"{name}.new") for name in names])
    crew.timed("close 4 KiB", N_FILES, lambda: [name.write_bytes(b"x" * 4096) for name in names])
    return crew.figures


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


def run(mountpoints, name):
    """What all do at once."""
    crew = Crew(len(mountpoints))
    threads = [threading.Thread(target=crew.work, args=(path / f"{name}-{number}",)) for number, path in enumerate(mountpoints)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if crew.failure:
        raise crew.failure
    return crew.figures


def measure(rows):
    """Of each row's mountpoints the medians of runs that take turns: the machine is another from one minute to the next."""
    runs = {name: [] for name in rows}
    for i in range(N_RUNS):
        for number, (name, mountpoints) in enumerate(rows.items()):
            runs[name].append(run(mountpoints, f"run-{number}-{i}"))
            time.sleep(SETTLE_S)
    return {name: median_of(figures) for name, figures in runs.items()}


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
    juicefs = None

    def note_large(name, mountpoint):
        """What is listed of a directory that is there."""
        if options.entries:
            rows[name].update(list_large(mountpoint, options.entries))
    with postgresql.Cluster("fsync = on", port=port) as cluster:
        proxy = lab.Proxy(port)
        try:
            location = f"postgresql://ecfs@127.0.0.1:{proxy.port if delay_ms else port}/postgres"
            secure = f"{location}?sslmode=disable"
            file, one = place.mount(archive_of(place, None, "one")), place.mount(archive_of(place, secure, "one"))
            archive = archive_of(place, secure, "many")
            first = place.mount(archive)
            alone = {"file": [file.path], "PostgreSQL, one": [one.path], "PostgreSQL, many": [first.path]}
            if "JUICEFS" in os.environ:
                juicefs = Juicefs(place, location)
                alone["juicefs"] = [juicefs.mount()]
            for [mountpoint] in alone.values() if options.entries else []:
                fill(mountpoint, options.entries)
            proxy.tell("delay", delay_ms / 2)
            rows.update(measure(alone))
            for name, [mountpoint] in alone.items():
                note_large(name, mountpoint)
            file.umount()
            one.umount()
            proxy.tell("delay", 0)
            mounts = [first] + [place.mount(join(place, archive, f"other{i}")) for i in range(1, options.mounts)]
            many = {f"… {options.mounts} mounts together": [mount.path for mount in mounts]}
            if juicefs:
                many[f"… {options.mounts} juicefs together"] = alone["juicefs"] + [juicefs.mount() for _ in range(1, options.mounts)]
            proxy.tell("delay", delay_ms / 2)
            rows.update(measure(many))
            for name, mountpoints in many.items():
                note_large(name, mountpoints[-1])
            proxy.tell("delay", 0)
            for mount in mounts:
                mount.umount()
        finally:
            if juicefs:
                juicefs.close()
            proxy.close()
            place.close()
    print(f"\n{delay_ms:g} ms away: operations a second")
    table(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("delays", type=float, nargs="*", default=[0], metavar="MILLISECONDS")
    parser.add_argument("--mounts", type=int, default=4)
    parser.add_argument("--entries", type=int, default=0)
    options = parser.parse_args()
    if not postgresql.have_postgresql():
        sys.exit("there is no PostgreSQL here")
    for delay in options.delays:
        bench(delay, options)


if __name__ == "__main__":
    main()
