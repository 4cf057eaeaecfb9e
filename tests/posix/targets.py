"""What the conformance suite examines: a mount, or a local directory to check the suite itself."""
import os
import shutil
import tempfile
from pathlib import Path

import lab
from calls import ROOT, opened, write
from excuses import DIRECTORY


class Local:
    """A directory of a local file system, in the place of a mount."""

    def __init__(self):
        self.path = Path(tempfile.mkdtemp(prefix="posix-", dir=DIRECTORY))

    def remount(self):
        """Nothing that a case could see."""

    def close(self):
        shutil.rmtree(self.path)


class Mounted:
    """A mount of an archive, which other users may enter; settings as in ecfs.conf."""

    def __init__(self, place, **settings):
        place.path.chmod(0o755)
        archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
        archive.configure("archive", **settings)
        self.mount = place.mount(archive, *(["-o", "allow_other"] if ROOT else []))
        self.path = self.mount.path

    def remount(self):
        self.mount.umount()
        self.mount.start()

    def close(self):
        """Its place does that."""


class Files:
    """Makes files whose content is in one of its states: still being written, or closed and stored."""

    def __init__(self, directory, state):
        self.directory, self.state, self.held = directory, state, []

    def make(self, data=b"", name="file"):
        path = write(self.directory / name, data)
        if self.state == "staged":
            fd = os.open(path, os.O_WRONLY)
            self.held.append(fd)
            if data:
                os.pwrite(fd, data, 0)
        else:
            with opened(path) as fd:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return path

    def close(self):
        """Whatever is being written is stored now."""
        while self.held:
            os.close(self.held.pop())
