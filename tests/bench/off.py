#!/usr/bin/python3
"""What cache and peers cost where nobody uses them: tests/bench/off.py [--before BUILD] [MIB [ROUNDS]]

One file over six directories is read by `ecfs get` and through a mount: by a build from before (--before, the build
directory of another commit), and by this one (ECFS_BUILD) without cache and peers, with a cache that has nothing of the
file yet, and with that cache and peers of which none is there. Each has an archive of its own under a key. Wall clock and processor
seconds, of the verb or of the mount: medians of rounds in which all alternate, and their ratio to the first."""
import argparse
import os
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


class Subject:
    def __init__(self, top, name, build, size, settings):
        self.program, self.directory, self.mountpoint = Path(build).absolute() / "tools/ecfs", top / name / "archive", top / name / "mnt"
        self.fills, self.out = settings.get("cache_size", "0") != "0", top / name / "out"
        self.mountpoint.mkdir(parents=True)
        endpoints = [word for each in lab.NAMES for word in ("--endpoint", f"{each}=file://{top / name / each}")]
        self.ecfs("init", self.directory, "--code", "rs:4+2", *[word for key, value in settings.items() for word in ("--set", f"{key}={value}")], *endpoints)
        lab.write_pattern(top / name / "in", size, 1)
        self.ecfs("put", self.directory, top / name / "in", "/file")
        (top / name / "in").unlink()

    def ecfs(self, *words):
        """Processor seconds."""
        process = subprocess.Popen([self.program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, said.decode()
        return usage.ru_utime + usage.ru_stime

    def forget(self):
        if self.fills:
            self.ecfs("cache", "--drop", self.directory)

    def get(self):
        self.forget()
        self.out.unlink(missing_ok=True)
        begun = time.monotonic()
        cpu = self.ecfs("get", self.directory, "/file", self.out)
        return time.monotonic() - begun, cpu

    def read(self):
        """Through a mount that has read nothing yet."""
        self.forget()
        process = subprocess.Popen([self.program, "mount", self.directory, self.mountpoint, "-f"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lab.until(lambda: lab.is_mounted(self.mountpoint), 60, "it is mounted")
        begun, before = time.monotonic(), processors.used(process.pid)
        subprocess.run(["dd", f"if={self.mountpoint}/file", "of=/dev/null", "bs=1M", "status=none"], check=True)
        figures = time.monotonic() - begun, processors.used(process.pid) - before
        self.ecfs("umount", self.mountpoint)
        assert process.wait(60) == 0
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="BUILD")
    parser.add_argument("size", type=int, nargs="?", default=256, metavar="MIB")
    parser.add_argument("rounds", type=int, nargs="?", default=7, metavar="ROUNDS")
    options = parser.parse_args()
    nobody = {"peers": f"127.0.0.1:{lab.free_port()}", "peer_listen": f"127.0.0.1:{lab.free_port()}"}
    wanted = {"before": (options.before, {})} if options.before else {}
    wanted |= {"neither": (lab.BUILD, {"cache_size": "0"}), "cache": (lab.BUILD, {"cache_size": "2G"}), "peers": (lab.BUILD, {"cache_size": "2G"} | nobody)}
    with tempfile.TemporaryDirectory(prefix="ecfs-off-", dir="/dev/shm") as top:
        subjects = {name: Subject(Path(top), name, build, options.size * MIB, settings) for name, (build, settings) in wanted.items()}
        figures = {}
        for _ in range(options.rounds):
            for name, subject in subjects.items():
                figures.setdefault(("get", name), []).append(subject.get())
                figures.setdefault(("mount", name), []).append(subject.read())
        print(f"{'':24} wall clock, s  ratio  processor, s  ratio   ({options.size} MiB, median of {options.rounds}, load {os.getloadavg()[0]:.1f})")
        for how in ("get", "mount"):
            first = None
            for name in subjects:
                middle = [statistics.median(column) for column in zip(*figures[how, name])]
                first = first or middle
                print(f"{how:6} {name:17} {middle[0]:13.3f}  {middle[0] / first[0]:5.2f}  {middle[1]:12.3f}  {middle[1] / first[1]:5.2f}")


if __name__ == "__main__":
    main()
