#!/usr/bin/env python3
"""Makes a catalog of so many files and prints how long ecfs-fsck takes to check it, and its peak memory.

The archive is made by `ecfs init`, so its tables are those of this version; rows are added as commits would leave them:
each file has one object of 6 stripes. What ecfs sums up in these tables it adds when it finds them without. Its endpoints hold nothing, so only the phase that checks the catalog means
something: the check ends when that is over.

Usage: fsck_catalog.py [--build DIR] [--objects N] [--keep DIR]
"""
import argparse
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import time

STRIPES, PER_DIRECTORY, BATCH = 6, 1000, 20_000
INODE = ("INSERT INTO inodes (ino, mode, nlink, uid, gid, rdev, size, atime_ns, mtime_ns, ctime_ns, btime_ns, committed_size, "
         "data_bytes) VALUES (?, ?, ?, 0, 0, 0, ?, 1, 1, 1, 1, ?, ?)")


def add_directories(catalog, n):
    """Inodes 2 to n + 1, below the root."""
    catalog.executemany(INODE, ((2 + i, 0o40755, 2, 0, 0, 0) for i in range(n)))
    catalog.executemany("INSERT INTO entries VALUES (1, ?, ?, ?)", ((b"directory%d" % i, 1 + i, 2 + i) for i in range(n)))
    catalog.execute("UPDATE inodes SET nlink = nlink + ? WHERE ino = 1", (n,))


def add_files(catalog, first, last, n_directories, size, stripe_size):
    inos = range(2 + n_directories + first, 2 + n_directories + last)
    catalog.executemany(INODE, ((ino, 0o100644, 1, size, size, size) for ino in inos))
    catalog.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)",
                        ((2 + i % n_directories, b"file%d" % i, 1 + n_directories + i, ino) for i, ino in zip(range(first, last), inos)))
    catalog.executemany("INSERT INTO objects (id, uuid, epoch, sequence, code, size, segment_bytes, block_bytes, header_bytes, digest) VALUES (?, ?, 1, ?, 'rs:4+2', ?, 2097152, 32768, 192, ?)",
                        ((i + 1, os.urandom(16), i + 1, size, os.urandom(16)) for i in range(first, last)))
    catalog.executemany("INSERT INTO stripes VALUES (?, ?, ?, ?, ?, ?)",
                        ((i + 1, index, (i + 1) * 8 + index, index + 1, stripe_size, os.urandom(16))
                         for i in range(first, last) for index in range(STRIPES)))
    catalog.executemany("INSERT INTO extents VALUES (?, 0, ?, ?, 0)", ((ino, size, i + 1) for i, ino in zip(range(first, last), inos)))


def fill(path, n):
    size, stripe_size, n_directories = 1_000_000, 260_000, max(1, n // PER_DIRECTORY)
    catalog = sqlite3.connect(path, isolation_level=None)
    catalog.execute("PRAGMA synchronous = OFF")
    catalog.execute("BEGIN")
    add_directories(catalog, n_directories)
    for first in range(0, n, BATCH):
        add_files(catalog, first, min(n, first + BATCH), n_directories, size, stripe_size)
    catalog.execute("UPDATE counters SET next_ino = ?, next_position = ?, n_inodes = ?, n_files = ?, n_objects = ?, "
                    "content_bytes = ?, stripe_bytes = ?, sequence = sequence + ?",
                    (2 + n_directories + n, 2 + n_directories + n, 1 + n_directories + n, n, n, n * size, n * STRIPES * stripe_size, n))
    catalog.execute("COMMIT")
    catalog.execute("ALTER TABLE inodes DROP COLUMN content_sum")
    catalog.execute("PRAGMA user_version = 10")
    catalog.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    catalog.close()


def measure(program, archive):
    """Until fsck tells the next phase: seconds, those of processor time, and peak memory in MiB."""
    begin = time.monotonic()
    running = subprocess.Popen([program, archive, "-n", "--max-time", "1ms", "--json"], stdout=subprocess.PIPE, text=True)
    output = running.stdout.read()
    _, status, usage = os.wait4(running.pid, 0)
    problems = output.count('"about":"catalog"')
    processor = usage.ru_utime + usage.ru_stime
    return time.monotonic() - begin, processor, usage.ru_maxrss / 1024, problems, os.waitstatus_to_exitcode(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--objects", default=1_000_000, type=int)
    parser.add_argument("--keep", type=pathlib.Path, help="make it there, or use what is there")
    options = parser.parse_args()
    place = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="ecfs-bench-"))
    archive = place / "archive"
    if not archive.exists():
        place.mkdir(exist_ok=True)
        endpoints = [place / f"e{i}" for i in range(STRIPES)]
        for endpoint in endpoints:
            endpoint.mkdir()
        subprocess.run([options.build / "tools/ecfs", "init", archive, "--code", "rs:4+2", "--key", "none",
                        *[word for endpoint in endpoints for word in ("--endpoint", f"file://{endpoint}")]], check=True)
        fill(archive / "catalog.sqlite", options.objects)
        subprocess.run([options.build / "tools/ecfs", "put", archive, __file__, "/"], check=True)
    size = (archive / "catalog.sqlite").stat().st_size
    seconds, processor, memory, problems, status = measure(options.build / "tools/ecfs-fsck", archive)
    print(f"catalog {size / 2**20:.0f} MiB, {size / options.objects:.0f} bytes per file")
    print(f"checked in {seconds:.1f} s ({processor:.1f} s of processor time) with {memory:.0f} MiB at most, {problems} problems, exit status {status}")
    if not options.keep:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
