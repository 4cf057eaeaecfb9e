"""What a shell redirects into a file: it closes a descriptor before the command has written anything."""
import os
import subprocess

import lab
import pytest
from test_recover import recover

SIZE = 600_000


@pytest.fixture
def mount(place, archive):
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", SIZE, 1)
    lab.ecfs("wait", mount.path)
    return mount


class Command:
    """One that runs, and has written nothing yet."""

    def __init__(self, path, output="new"):
        self.process = subprocess.Popen(["bash", "-c", f"(read line; printf {output}) > '{path}'"], stdin=subprocess.PIPE)
        lab.until(lambda: path.stat().st_size == 0, 10, "it was opened")

    def end(self):
        self.process.communicate(b"go\n", timeout=30)
        assert self.process.returncode == 0


def test_the_old_content_stays_until_there_is_another(place, archive, mount):
    lab.write_pattern(place.path / "old", SIZE, 1)
    command = Command(mount.path / "file")
    for number in range(3):
        done = lab.ecfs("get", archive.path, "/file", place.path / f"back{number}")
        assert "this is what was stored before" in done.stderr
        assert lab.digest(place.path / f"back{number}") == lab.digest(place.path / "old")
    command.end()
    lab.ecfs("wait", mount.path)
    lab.ecfs("get", archive.path, "/file", place.path / "new")
    assert (place.path / "new").read_bytes() == b"new"


@pytest.mark.slow
def test_the_old_content_survives_the_machine(place, archive, mount):
    command = Command(mount.path / "file")
    mount.kill()
    command.process.kill()
    command.process.wait()
    mount.start()
    lab.write_pattern(place.path / "old", SIZE, 1)
    assert lab.digest(mount.path / "file") == lab.digest(place.path / "old")
    mount.umount()
    recovered, _ = recover(place, archive.endpoints, "--yes")
    lab.ecfs("get", recovered.path, "/file", place.path / "back")
    assert lab.digest(place.path / "back") == lab.digest(place.path / "old")


@pytest.mark.slow
def test_what_is_emptied_is_stored_as_empty(place, archive, mount):
    subprocess.run(["bash", "-c", f": > '{mount.path}/file'; > '{mount.path}/fresh'"], check=True)
    lab.ecfs("wait", mount.path)
    assert os.getxattr(mount.path / "file", "user.ecfs.state") == os.getxattr(mount.path / "fresh", "user.ecfs.state")
    mount.kill()
    mount.start()
    assert (mount.path / "file").stat().st_size == 0
    mount.umount()
    recovered, _ = recover(place, archive.endpoints, "--yes")
    assert {entry["path"]: entry["size"] for entry in recovered.json("ls", "/")} == {"/file": 0, "/fresh": 0}
