"""A mount namespace of its own in which ecfs is installed, so that mount(8) finds it and this machine does not change."""
import os
import signal
import subprocess
from pathlib import Path

import lab
import pytest

# Mounts of others stay where they are: kept here too, they would not end when they are unmounted there.
ENTER = r"""
set -e
place=$1 prefix=$2 sbin=$(realpath /sbin)
awk '$3 ~ /^fuse/ { print $2 }' /proc/self/mounts | while read -r at; do umount -i -l "$(printf '%b' "$at")"; done
mkdir -p /run/mount && mount -t tmpfs none /run/mount # mount(8)'s own table
mkdir "$place/sbin" "$place/original"
mount --bind "$sbin" "$place/original"
ln -s "$place"/original/* "$place/sbin/"
ln -sf "$place"/installed/sbin/* "$place/sbin/"
mount --bind "$place/sbin" "$sbin"
mount --bind "$place/installed$prefix" "$prefix"
echo ready
exec cat
"""


class MountNamespace:
    """Commands run() in it see helpers in /sbin and ecfs below its prefix, as `meson install` puts them."""

    def __init__(self, place):
        if not lab.ROOT:
            pytest.skip("only root may make mount namespaces")
        self.place = place
        place.mkdir()
        lab.run("meson", "install", "-C", lab.BUILD, "--no-rebuild", "--destdir", place / "installed")
        program = next((place / "installed").rglob("bin/ecfs"))
        prefix = "/" / program.parent.parent.relative_to(place / "installed")
        self.program = prefix / "bin/ecfs"
        self.process = subprocess.Popen(["unshare", "--mount", "sh", "-c", ENTER, "sh", str(place), str(prefix)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            pytest.skip(f"no mount namespace can be made here: {self.process.stderr.read().strip()}")

    def command(self, *command):
        return ["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", *map(str, command)]

    def run(self, *command, **options):
        """As lab.run()."""
        return lab.run(*self.command(*command), **options)

    def shell(self, script, *arguments, **options):
        return self.run("sh", "-ec", script, "sh", *arguments, **options)

    def cover(self, path, text):
        """Puts a file with this text over one of the system, inside the namespace only."""
        if not Path(path).exists():
            pytest.skip(f"there is no {path} to put another over")
        file = self.place / path.replace("/", "_")
        file.write_text(text)
        file.chmod(0o644)
        self.run("mount", "--bind", file, path)

    def mounted(self, path):
        """The fields of the topmost mount on path in /proc/mounts, source first; None without one."""
        lines = Path(f"/proc/{self.process.pid}/mounts").read_text().splitlines()
        return next((line.split() for line in reversed(lines) if line.split()[1] == str(path)), None)

    def inside(self):
        """All processes in the namespace but the one that holds it."""
        ours = os.readlink(f"/proc/{self.process.pid}/ns/mnt")
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if os.readlink(entry / "ns/mnt") == ours:
                        found.append(int(entry.name))
                except OSError:  # it has just ended
                    pass
        return found

    def close(self):
        for line in reversed(Path(f"/proc/{self.process.pid}/mounts").read_text().splitlines()):
            if line.split()[2] == "fuse.ecfs":
                self.run("umount", "-i", "-l", line.split()[1], check=False)
        try:
            lab.until(lambda: not self.inside(), 60, "what was mounted in the namespace ends")
        finally:
            lab.signal_all(self.inside(), signal.SIGKILL)
            self.process.stdin.close()
            self.process.wait(60)
            self.process.stdout.close()
            self.process.stderr.close()
