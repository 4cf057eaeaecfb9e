#!/usr/bin/env python3
"""Compares `ecfs-fsck --deep` over file endpoints with `xxhsum -H3` over the same files, all of them in memory.

As many xxhsum run at once as there are processors, each over its part. Rounds take turns, and medians are told: of the
time that passed, and of processor time, which others on the machine disturb less.

Needs xxhsum (Debian: xxhash), which the tests do not.

Usage: fsck_speed.py [--build DIR] [--gib N] [--place DIR] [--rounds N]
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

STRIPES, FILE_BYTES = 6, 256 << 20


def run(commands):
    """Seconds until all have ended, and of processor time."""
    begin, before = time.monotonic(), os.times()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    assert all(one.wait() == 0 for one in running)
    after = os.times()
    return (time.monotonic() - begin,
            after.children_user - before.children_user + after.children_system - before.children_system)


def fill(build, place, gib):
    archive = place / "archive"
    endpoints = [f"file://{place}/e{i}" for i in range(STRIPES)]
    for i in range(STRIPES):
        (place / f"e{i}").mkdir()
    subprocess.run([build / "tools/ecfs", "init", archive, "--code", "rs:4+2", "--key", "none",
                    *[word for url in endpoints for word in ("--endpoint", url)]], check=True, stdout=subprocess.DEVNULL)
    stored = int(gib * 2**30 / 1.5)
    for number in range(0, stored, FILE_BYTES):
        with open(place / "content", "wb") as content:
            for _ in range(min(FILE_BYTES, stored - number) >> 20):
                content.write(os.urandom(1 << 20))
        subprocess.run([build / "tools/ecfs", "put", archive, place / "content", f"/file{number >> 20}"], check=True)
    (place / "content").unlink()
    return archive


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("--gib", default=2.0, type=float)
    parser.add_argument("--place", default="/dev/shm")
    parser.add_argument("--rounds", default=5, type=int)
    options = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir=options.place))
    try:
        archive = fill(options.build, place, options.gib)
        files = [str(path) for path in sorted(place.glob("e*/stripes/*/*"))]
        size, cores = sum(os.path.getsize(path) for path in files), len(os.sched_getaffinity(0))
        hashing = [["xxhsum", "-H3", *files[i::cores]] for i in range(cores) if files[i::cores]]
        checking = [[options.build / "tools/ecfs-fsck", "-n", "--deep", archive]]
        pairs = [(run(hashing), run(checking)) for _ in range(options.rounds)]
        rows = [[statistics.median(pair[i][j] for pair in pairs) for j in range(2)] for i in range(2)]
        print(f"{size / 2**30:.2f} GiB in {len(files)} stripes, {cores} processors\n{'':10} {'GB/s':>8} {'processor s':>12}")
        for name, (seconds, processor) in zip(["xxhsum", "ecfs-fsck"], rows):
            print(f"{name:10} {size / seconds / 1e9:8.2f} {processor:12.2f}")
        print(f"ecfs-fsck has {rows[0][0] / rows[1][0]:.0%} of the speed of one xxhsum per processor, "
              f"{rows[0][1] / rows[1][1]:.0%} by processor time")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
