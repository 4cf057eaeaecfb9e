#!/usr/bin/python3
"""What the cache costs a first read and saves a second: one file over six directories, rounds side by side.

ECFS_BUILD names the build; the first argument is the directory to work in (a disk), the second the MiB of the file."""
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))
import lab  # noqa: E402
import processors  # noqa: E402

MIB = 1 << 20
ROUNDS = 3


def read(path):
    """Seconds, not from the kernel's memory."""
    lab.drop_caches()
    begun = time.monotonic()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=1M", "status=none"], check=True)
    return time.monotonic() - begun


def timed(mount, path):
    before = processors.used(mount.process.pid)
    seconds = read(path)
    return seconds, processors.used(mount.process.pid) - before


def round_of(top, size, cache_size):
    endpoints = [lab.Directory(top / "endpoints", name) for name in lab.NAMES]
    archive = lab.Archive(top / "archive", endpoints)
    archive.init("--set", f"cache_size={cache_size}", lab.AS_USERS)
    mount = lab.Mount(archive, top / "mnt")
    mount.start()
    try:
        lab.write_pattern(mount.path / "file", size * MIB, 1)
        lab.ecfs("wait", mount.path)
        first = timed(mount, mount.path / "file")
        if cache_size != "0":
            lab.ecfs("warm", mount.path / "file")
        return first, timed(mount, mount.path / "file")
    finally:
        mount.umount()


def main():
    top, size = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 256
    figures = {}
    for _ in range(ROUNDS):
        for cache_size in ("0", "4G"):
            with tempfile.TemporaryDirectory(dir=top) as place:
                first, second = round_of(Path(place), size, cache_size)
            figures.setdefault((cache_size, "first"), []).append(first)
            figures.setdefault((cache_size, "second"), []).append(second)
        with tempfile.TemporaryDirectory(dir=top) as place:
            plain = Path(place) / "file"
            lab.write_pattern(plain, size * MIB, 1)
            subprocess.run(["sync", plain], check=True)
            figures.setdefault(("plain file", ""), []).append((read(plain), 0.0))
    print(f"{size} MiB, medians of {ROUNDS}: seconds, CPU seconds of the mount")
    for (cache_size, which), values in figures.items():
        wall, cpu = (statistics.median(value[i] for value in values) for i in (0, 1))
        print(f"  cache_size {cache_size:>10} {which:<6}  {wall:6.2f}  {cpu:6.2f}")


if __name__ == "__main__":
    main()
