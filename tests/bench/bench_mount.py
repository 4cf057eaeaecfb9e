#!/usr/bin/env python3
"""What a mount costs beside sshfs: tests/bench/bench_mount.py [--size MiB] [--files N] [--rounds N] [--code CODE]

In every round the same work goes over sshfs on one server, over ecfs on as many servers as its code has stripes, and
over ecfs on directories; all in RAM, on loopback, the page cache emptied before each read. Prints medians in seconds
and their ratio to sshfs; CPU is that of client and servers together, in seconds per GiB moved in or out.
Needs root (for the page cache), sshfs, and a build in ./build or ECFS_BUILD.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
import lab  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """User and system time of the processes, their children and what these waited for."""
    total = 0
    for pid in {each for root in pids for each in [root, *lab.descendants(root)]}:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / TICK


class Sshfs:
    def __init__(self, base, server):
        self.name, self.server, self.path = "sshfs, 1 server", server, base / "sshfs"
        self.path.mkdir()
        server.root.mkdir()

    def start(self):
        keys = self.server.keys
        self.process = subprocess.Popen(
            ["sshfs", "-f", self.server.url().removeprefix("sftp://").replace(f":{self.server.port}", ":", 1),
             str(self.path), "-p", str(self.server.port), "-o", f"IdentityFile={keys.identity}",
             "-o", f"UserKnownHostsFile={keys.known_hosts}"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lab.until(lambda: lab.is_mounted(self.path) or self.process.poll() is not None, 20, "sshfs serves")
        assert self.process.poll() is None, "sshfs ended"

    def pids(self):
        return [self.process.pid, self.server.process.pid]

    def stop(self):
        lab.run("umount", self.path)
        self.process.wait(60)


class Ecfs:
    def __init__(self, name, base, servers, code):
        self.name = name
        base.mkdir()
        self.servers = [server for server in servers if isinstance(server, lab.Sshd)]
        self.archive = lab.Archive(base / "archive", servers, code)
        self.archive.init()
        self.mount = lab.Mount(self.archive, base / "mnt")
        self.path = self.mount.path

    def start(self):
        self.mount.start()

    def pids(self):
        return [self.mount.process.pid, *(server.process.pid for server in self.servers)]

    def stop(self):
        self.mount.umount()


class Measured:
    def __init__(self):
        self.seconds = {}

    def note(self, work, system, seconds):
        self.seconds.setdefault(work, {}).setdefault(system, []).append(seconds)

    def table(self, systems):
        width = max(map(len, systems))
        print(f"{'':26}" + "".join(f"{name:>{width + 3}}{'ratio':>7}" for name in systems))
        for work, results in self.seconds.items():
            base = statistics.median(results[systems[0]])
            row = "".join(f"{statistics.median(results[name]):{width + 3}.3f}"
                          f"{statistics.median(results[name]) / base if base else 0:7.2f}" for name in systems)
            print(f"{work:26}{row}")


def timed(command):
    begin = time.monotonic()
    lab.run("sh", "-c", command, timeout=600)
    return time.monotonic() - begin


def one_round(system, source, options, measured):
    system.start()
    gib = options.size / 1024
    for work, command, cold in [
            (f"{options.size} MiB in", f"cp {source}/large {system.path}/large", False),
            (f"{options.size} MiB out, cold", f"cat {system.path}/large > /dev/null", True),
            ("first 4 KiB, cold", f"head -c 4096 {system.path}/large > /dev/null", True),
            (f"{options.files} x 8 KiB, cp -r", f"cp -r {source}/small {system.path}/small", False),
            (f"{options.files} x 8 KiB, rsync -a", f"rsync -a {source}/small/ {system.path}/again/", False),
            (f"{options.files} x 8 KiB out, cold", f"cat {system.path}/small/* > /dev/null", True),
            ("find over them", f"find {system.path} -ls > /dev/null", False)]:
        if cold:
            lab.drop_caches()
        before = cpu_seconds(system.pids())
        measured.note(work, system.name, timed(command))
        if "MiB" in work:
            measured.note(f"  CPU s per GiB {'out' if cold else 'in'}", system.name,
                          (cpu_seconds(system.pids()) - before) / gib)
    lab.run("sh", "-c", f"rm -rf {system.path}/*")
    system.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--code", default="rs:4+2")
    options = parser.parse_args()
    n = sum(int(part) for part in options.code.removeprefix("rs:").split("+"))
    base = Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir="/dev/shm"))
    keys = lab.Keys(base / "keys")
    servers = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(n + 1)]
    try:
        for server in servers:
            server.start()
        source = base / "source"
        (source / "small").mkdir(parents=True)
        (source / "large").write_bytes(os.urandom(options.size << 20))
        for i in range(options.files):
            (source / "small" / str(i)).write_bytes(os.urandom(8192))
        systems = [Sshfs(base, servers[0]), Ecfs(f"ecfs {options.code}, {n} servers", base / "far", servers[1:],
                                                 options.code),
                   Ecfs(f"ecfs {options.code}, directories", base / "near",
                        [lab.Directory(base / "near-endpoints" / f"d{i}", f"d{i}") for i in range(n)], options.code)]
        measured = Measured()
        for _ in range(options.rounds):
            for system in systems:
                one_round(system, source, options, measured)
        measured.table([system.name for system in systems])
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
