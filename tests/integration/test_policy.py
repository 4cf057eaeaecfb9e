"""ecfs policy: what is cold gets another code, what is read often its own again, and nothing else moves."""
import json
import os
import time

import lab
import pytest

DAY = 86400


@pytest.fixture
def archive(place):
    return place.archive(place.directories(), "copies:3")


WRITTEN = {}


def write(path, content, days=100):
    WRITTEN[path] = content
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def assert_content(mount):
    """As it was written; what looks at it counts as reading."""
    lab.forget_mounts()
    for path, content in WRITTEN.items():
        if path.is_relative_to(mount.path):
            assert path.read_bytes() == content, path


def code_of(archive, path):
    info = json.loads(lab.ecfs("info", "--json", archive.path, path).stdout)
    found = {object["code"] for object in info["objects"]}
    assert len(found) == 1, info
    return found.pop()


def policy(archive, *options, **how):
    return lab.ecfs("policy", *options, archive.path, **how)


@pytest.mark.slow
def test_what_is_cold_moves_and_the_rest_stays(place):
    archive = place.archive(place.directories([f"e{number}" for number in range(8)]), "copies:3")
    archive.configure("archive", policy="cold=basic:4+4 after=30d min=20K")
    mount = place.mount(archive)
    write(mount.path / "old", os.urandom(300_000))
    write(mount.path / "new", os.urandom(300_000), days=3)
    write(mount.path / "small", os.urandom(5_000))
    write(mount.path / "kept/old", os.urandom(300_000))
    write(mount.path / "other/old", os.urandom(300_000), days=5)
    os.setxattr(mount.path / "kept", "user.ecfs.policy", b"none")
    os.setxattr(mount.path / "other", "user.ecfs.policy", b"cold=rs:4+2 after=2d")
    told = json.loads(policy(archive, "-n", "--json").stdout)
    assert (told["files"], told["files_recoded"], told["content_bytes"]) == (5, 2, 600_000), told
    assert told["written_bytes"] > 900_000 and told["freed_bytes"] > 1_800_000
    assert "2 of 5 would change" in policy(archive, "--dry-run").stdout
    assert archive.json("status")["policy"]["files"] == 2
    assert "2 files wait to be moved to another code" in lab.ecfs("status", archive.path).stdout
    policy(archive)
    assert archive.json("status")["policy"] == {"files": 0, "content_bytes": 0}
    assert code_of(archive, "/old") == "basic:4+4" and code_of(archive, "/other/old") == "rs:4+2"
    assert code_of(archive, "/new") == code_of(archive, "/kept/old") == "copies:3"
    assert json.loads(policy(archive, "-n", "--json").stdout)["files_recoded"] == 0
    assert_content(mount)
    assert os.getxattr(mount.path / "old", "user.ecfs.code") == b"copies:3"
    write(mount.path / "old", b"written again" * 10_000, days=1)
    assert code_of(archive, "/old") == "copies:3"


@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.slow
def test_what_is_read_often_goes_back(place, archive, is_mounted):
    archive.configure("archive", policy="cold=rs:4+2 reads=3")
    mount = place.mount(archive)
    for name in ("often", "once", "never"):
        write(mount.path / name, os.urandom(100_000))
    policy(archive)
    assert {code_of(archive, f"/{name}") for name in ("often", "once", "never")} == {"rs:4+2"}
    for _ in range(3):
        (mount.path / "often").read_bytes()
    (mount.path / "once").read_bytes()
    if not is_mounted:
        mount.umount()
    policy(archive)
    assert code_of(archive, "/often") == "copies:3"
    assert code_of(archive, "/once") == code_of(archive, "/never") == "rs:4+2"
    policy(archive)  # nor is it cold at once
    assert code_of(archive, "/often") == "copies:3"


@pytest.mark.slow
def test_small_files_move_together(place):
    archive = place.archive(place.directories(), "rs:4+2")
    archive.configure("archive", policy="cold=rs:3+2 after=1d", pack_after="1s")
    mount = place.mount(archive)
    for number in range(40):
        write(mount.path / "d" / f"file {number}", os.urandom(3000))
    for number in range(10):
        write(mount.path / "d" / f"new {number}", os.urandom(3000), days=0)
    policy(archive)
    assert code_of(archive, "/d/file 0") == code_of(archive, "/d/file 39") == "rs:3+2"
    assert code_of(archive, "/d/new 0") != "rs:3+2"
    assert json.loads(policy(archive, "-n", "--json").stdout)["files_recoded"] == 0
    assert_content(mount)


@pytest.mark.slow
def test_small_objects_of_before_are_packed(place):
    """As versions have stored them that knew no logs, and as endpoints get them that cannot append."""
    archive = place.archive(place.directories(), "rs:4+2")
    archive.configure("archive", small_file="0", deletion_grace="0")
    mount = place.mount(archive)
    for number in range(30):
        write(mount.path / "d" / f"file {number}", os.urandom(3000))
    mount.umount()
    archive.configure("archive", small_file="16K", policy="cold=rs:4+2 after=1d", deletion_grace="0")
    mount = place.mount(archive)
    assert json.loads(policy(archive, "-n", "--json").stdout)["files_recoded"] == 30
    policy(archive)
    assert json.loads(policy(archive, "-n", "--json").stdout)["files_recoded"] == 0
    lab.until(lambda: sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == 6, 60, "one object is left")
    assert_content(mount)


def test_what_makes_no_sense_is_refused(place, archive):
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    write(mount.path / "file", b"content")
    for bad in (b"", b"cold", b"cold=rs:4+9", b"cold=no:1", b"after=3d", b"cold=rs:4+2 after=x", b"cold=rs:4+2\0", b"x" * 300):
        with pytest.raises(OSError):
            os.setxattr(mount.path / "d", "user.ecfs.policy", bad)
    with pytest.raises(OSError):
        os.setxattr(mount.path / "file", "user.ecfs.policy", b"none")
    os.setxattr(mount.path / "d", "user.ecfs.policy", b"cold=rs:4+2")
    assert os.getxattr(mount.path / "d", "user.ecfs.policy") == b"cold=rs:4+2"
    os.removexattr(mount.path / "d", "user.ecfs.policy")
    with pytest.raises(OSError):
        os.getxattr(mount.path / "d", "user.ecfs.policy")
    mount.umount()
    archive.configure("archive", policy="cold=rs:4+9")
    refused = policy(archive, check=False)
    assert refused.returncode == 1 and "rs:4+9" in refused.stderr, refused
    assert "rs:4+9" in archive.json("status")["policy"]["error"]
    archive.configure("archive", policy="warm=rs:4+2")
    refused = policy(archive, check=False)
    assert refused.returncode == 1 and "policy" in refused.stderr and "warm=rs:4+2" in refused.stderr, refused


def test_a_policy_comes_back_without_the_machine(place, archive):
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    os.setxattr(mount.path / "d", "user.ecfs.policy", b"cold=rs:4+2 after=1d")
    write(mount.path / "d/file", os.urandom(50_000))
    archive.await_stored()
    before = lab.describe_tree(mount.path)
    mount.kill()
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", again.path, "--force", *words)
    policy(again)
    assert code_of(again, "/d/file") == "rs:4+2"
    mount = place.mount(again)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


def test_a_file_with_holes_moves_once(place):
    """Its object is as small as those that are packed, but no other file can have a part of that."""
    archive = place.archive(place.directories(), "copies:3")
    archive.configure("archive", policy="cold=rs:4+2 after=30d")
    mount = place.mount(archive)
    path = mount.path / "holes"
    write(path, os.urandom(4_000))
    with open(path, "r+b") as file:
        file.truncate(200_000)
        file.seek(100_000)
        file.write(WRITTEN[path])
    WRITTEN[path] += bytes(96_000) + WRITTEN[path] + bytes(96_000)
    then = time.time() - 100 * DAY
    os.utime(path, (then, then))
    archive.await_stored()
    policy(archive)
    assert json.loads(policy(archive, "-n", "--json").stdout)["files_recoded"] == 0
    assert_content(mount)
