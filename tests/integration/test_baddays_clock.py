"""Bad days: the time of day is set ten years forward and back under a mount; nothing is deleted early, nothing hangs."""
import os
import struct
import subprocess
import time

import lab
import pytest

pytestmark = pytest.mark.nightly

YEARS_10 = 10 * 31_557_600
LOOKS = 5  # seconds in which maintenance, which looks every 2 s, has looked for what it may delete
HANGS = 120  # seconds, even on a busy machine


class Clock:
    """The time of day as a mount sees it."""

    def __init__(self, place, monkeypatch):
        self.path = place.path / "clock"
        self.path.write_bytes(bytes(8))
        monkeypatch.setenv("ECFS_LAB_CLOCK", str(self.path))
        monkeypatch.setenv("LD_PRELOAD", str(lab.BUILD / "tests/lab/lab-clock.so"))

    def set(self, seconds):
        with open(self.path, "r+b") as file:  # in place: it is mapped
            file.write(struct.pack("<q", seconds))


@pytest.fixture
def clock(place, monkeypatch):
    return Clock(place, monkeypatch)


def stripes(archive):
    return [path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)]


def write(path, data):
    subprocess.run(["tee", path], input=data, stdout=subprocess.DEVNULL, check=True, timeout=HANGS)


def test_jumps_of_the_clock_neither_hang_nor_lose(place, archive, clock):
    mount = place.mount(archive)
    wanted = {}
    for number, jump in enumerate([0, YEARS_10, -YEARS_10, 0]):
        clock.set(jump)
        name = f"file-{number}"
        wanted[name] = os.urandom(300_000)
        write(mount.path / name, wanted[name])
        seen = os.stat(mount.path / name).st_mtime
        assert abs(seen - time.time() - jump) < 3600, "the mount did not see the clock jump"
        archive.await_stored()
        lab.ecfs("status", archive.path, timeout=HANGS)
        lab.forget_mounts()
        assert all((mount.path / name).read_bytes() == data for name, data in wanted.items())
    mount.umount()


def test_a_clock_set_forward_deletes_nothing_early(place, archive, clock):
    """Also where it is set while the archive is closed."""
    archive.configure("archive", deletion_grace="1h")
    mount = place.mount(archive)
    write(mount.path / "file", os.urandom(300_000))
    archive.await_stored()
    kept = stripes(archive)
    assert len(kept) == 6
    os.unlink(mount.path / "file")
    lab.until(lambda: archive.json("status")["deletions"] == 6, 60, "they are to be deleted")
    clock.set(YEARS_10)
    time.sleep(LOOKS)
    assert stripes(archive) == kept
    mount.umount()
    clock.set(2 * YEARS_10)
    mount.start()
    time.sleep(LOOKS)
    assert stripes(archive) == kept


def test_a_clock_set_back_does_not_keep_what_is_deleted(place, archive, clock):
    archive.configure("archive", deletion_grace="2s")
    mount = place.mount(archive)
    write(mount.path / "file", os.urandom(300_000))
    archive.await_stored()
    os.unlink(mount.path / "file")
    lab.until(lambda: archive.json("status")["deletions"] or not stripes(archive), 60, "its stripes are to be deleted")
    clock.set(-YEARS_10)
    lab.until(lambda: not stripes(archive), 60, "the stripes of a deleted file are gone")
