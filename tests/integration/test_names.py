"""cat, mkdir, mv, rm, put --update and get to a new name: without a mount, and beside one whose programs see it at once."""
import os
import shutil
import subprocess

import lab
import pytest

KIB = 1 << 10


@pytest.fixture(params=["alone", "mounted"])
def seat(place, request):
    """An archive that is mounted, or is not."""
    archive = place.archive(place.directories(), "rs:4+2")
    mount = place.mount(archive) if request.param == "mounted" else None
    return archive, mount


def names(archive, path="/"):
    return sorted(entry["path"] for entry in archive.json("ls", "-R", path))


def run(archive, verb, *arguments, check=True):
    return lab.ecfs(verb, archive.path, *arguments, check=check)


def cat(archive, place, path):
    """What cat writes, as bytes."""
    output = place.path / "output"
    with open(output, "wb") as file:
        subprocess.run([lab.PROGRAM, "cat", archive.path, path], stdout=file, check=True, timeout=60)
    return output.read_bytes()


def seen(mount, path):
    """A path as programs see it; they have looked before, so that the kernel has an opinion of it."""
    return mount is None or os.path.lexists(mount.path / path)


@pytest.mark.slow
def test_directories_are_made_moved_and_removed(seat):
    archive, mount = seat
    if mount:
        assert not (mount.path / "a").exists()
    run(archive, "mkdir", "/a", "b")
    run(archive, "mkdir", "-p", "/c/d/e", "/a")
    assert names(archive) == ["/a", "/b", "/c", "/c/d", "/c/d/e"]
    assert seen(mount, "a") and seen(mount, "c/d/e")
    for refused in [("mkdir", "/a"), ("mkdir", "/x/y"), ("rm", "/c"), ("rm", "/x"), ("rm", "-r", "/"), ("rm", "/a/../b"),
                    ("mv", "/c", "/c/d"), ("mv", "/x", "/y"), ("mv", "/a", "/b", "/x")]:
        assert run(archive, *refused, check=False).returncode == 1, refused
    run(archive, "mv", "/c", "/a")
    run(archive, "mv", "/b", "/z")
    assert names(archive) == ["/a", "/a/c", "/a/c/d", "/a/c/d/e", "/z"]
    assert seen(mount, "a/c/d/e") and not (mount and seen(mount, "c"))
    run(archive, "rm", "-f", "/x", "/z")
    run(archive, "rm", "-r", "/a")
    assert names(archive) == []
    assert not (mount and (seen(mount, "a") or seen(mount, "z")))


@pytest.mark.slow
def test_files_are_moved_over_others_and_keep_their_bytes(place, seat):
    archive, mount = seat
    digests = {}
    for name, size in [("one", 5), ("two", 300 * KIB)]:
        digests[name] = lab.write_pattern(place.path / name, size, size)
        archive.put(place.path / name, f"/{name}")
    if mount:
        assert lab.digest(mount.path / "one") == digests["one"]
    assert run(archive, "mv", "-n", "/two", "/one", check=False).returncode == 1
    run(archive, "mv", "/two", "/one")
    assert names(archive) == ["/one"]
    assert cat(archive, place, "/one") == (place.path / "two").read_bytes()
    if mount:
        assert lab.digest(mount.path / "one") == digests["two"] and not seen(mount, "two")
    archive.get("/one", place.path / "new name")
    assert lab.digest(place.path / "new name") == digests["two"]
    run(archive, "rm", "/one")
    assert names(archive) == [] and not (mount and seen(mount, "one"))


def test_an_open_file_that_is_removed_stays_readable(place):
    archive = place.archive(place.directories(), "rs:4+2")
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"still here")
    archive.await_stored()
    with open(mount.path / "file", "rb") as file:
        run(archive, "rm", "/file")
        assert not (mount.path / "file").exists()
        assert file.read() == b"still here"


def test_a_file_that_is_being_written_takes_the_place_of_another_by_mv(place):
    archive = place.archive(place.directories(), "rs:4+2")
    mount = place.mount(archive)
    (mount.path / "old").write_bytes(b"old")
    with open(mount.path / "new", "wb") as file:
        file.write(b"new")
        run(archive, "mv", "/new", "/old")
        file.write(b"er")
    assert (mount.path / "old").read_bytes() == b"newer"
    archive.await_stored()
    mount.umount()
    assert cat(archive, place, "/old") == b"newer"


def test_a_chain_of_directories_is_removed(archive):
    run(archive, "mkdir", "-p", "/d" * 1200)
    run(archive, "mkdir", "/d/e")
    run(archive, "rm", "-r", "/d")
    assert names(archive) == []


def test_put_update_leaves_what_is_unchanged(place, seat):
    archive, _ = seat
    tree = place.path / "tree"
    tree.mkdir()
    for name in ["same", "grown", "touched", "linked"]:
        lab.write_pattern(tree / name, 20 * KIB, 1)
    os.link(tree / "linked", tree / "link")
    archive.put(tree, "/")
    before = {entry["path"]: entry["inode"] for entry in archive.json("ls", "-R", "/tree")}
    with open(tree / "grown", "ab") as file:
        file.write(b"more")
    os.utime(tree / "touched", ns=(1, 1))
    lab.write_pattern(tree / "added", 100, 2)
    archive.put("--update", tree, "/")
    after = {entry["path"]: entry["inode"] for entry in archive.json("ls", "-R", "/tree")}
    kept = {path for path in before if before[path] == after[path]}
    assert kept == {"/tree/same", "/tree/linked", "/tree/link"}
    assert set(after) == set(before) | {"/tree/added"}
    archive.get("/tree", place.path / "back")
    lab.assert_same_tree(lab.describe_tree(tree), lab.describe_tree(place.path / "back" / "tree"))


def left(archive):
    """Files that are at its endpoints."""
    return [path for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)]


@pytest.mark.slow
def test_destroy_leaves_nothing_of_an_archive(place):
    archive = place.archive(place.directories(), "rs:4+2")
    for number in range(20):
        lab.write_pattern(place.path / "source", 40 * KIB, number)
        archive.put(place.path / "source", f"/{number}")
    mount = place.mount(archive)
    archive.endpoints[1].kill()  # since when it is down is kept in the archive directory
    (mount.path / "more").write_bytes(b"more")
    lab.until((archive.path / "down-since").exists, 60, "it is down")
    archive.endpoints[1].start()
    refused = run(archive, "destroy", "--yes", check=False)
    assert refused.returncode == 1 and "mounted" in refused.stderr
    mount.umount()
    assert run(archive, "destroy", check=False).returncode == 1  # nobody is there to be asked
    strange = archive.endpoints[0].root / "stripes" / "mine.txt"
    strange.write_text("not of ecfs")
    run(archive, "destroy", "--yes")
    assert not archive.path.exists()
    assert left(archive) == [strange]
    archive.init()  # the same places serve another


def test_destroy_needs_every_endpoint_or_force(place):
    archive = place.archive(place.directories(), "rs:4+2")
    lab.write_pattern(place.path / "source", 40 * KIB, 1)
    archive.put(place.path / "source", "/file")
    away = archive.endpoints[2]
    away.kill()
    before = left(archive)
    assert run(archive, "destroy", "--yes", check=False).returncode == 1
    assert left(archive) == before and archive.path.exists()
    run(archive, "destroy", "--yes", "--force")
    away.start()
    assert not archive.path.exists()
    assert {path for path in left(archive)} == {path for path in lab.files_below(away.root)}
    assert lab.stripe_files(away)


def test_an_old_copy_destroys_nothing(place):
    archive = place.archive(place.directories(), "rs:4+2")
    copy = lab.Archive(place.path / "copy", archive.endpoints)
    shutil.copytree(archive.path, copy.path)
    mount = place.mount(archive)
    (mount.path / "new").write_bytes(b"new")
    archive.await_stored()
    mount.umount()
    before = left(archive)
    assert run(copy, "destroy", "--yes", check=False).returncode == 1
    assert run(copy, "destroy", "--yes", "--force", check=False).returncode == 1
    assert left(archive) == before and copy.path.exists()


def test_destroy_leaves_an_endpoint_that_tells_of_a_newer_copy(place):
    archive = place.archive(place.directories(), "rs:4+2")
    lab.write_pattern(place.path / "source", 40 * KIB, 1)
    archive.put(place.path / "source", "/file")
    newer = archive.endpoints[2]
    marker = newer.root / "ecfs-endpoint"
    marker.write_text(marker.read_text().replace("epoch=1\n", "epoch=7\n"))
    before = left(archive)
    assert run(archive, "destroy", "--yes", check=False).returncode == 1
    assert left(archive) == before and archive.path.exists()
    kept = lab.stripe_files(newer)
    run(archive, "destroy", "--yes", "--force")
    assert lab.stripe_files(newer) == kept and marker.exists()
