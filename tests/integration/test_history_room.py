"""Room that history takes: no more than it may, and none that endpoints lack; the oldest goes first, by whole moments."""
import contextlib
import errno
import os
import shlex
import shutil
import sqlite3
import time

import lab
import pytest
from test_logs import FSCK, await_packed, contents, kinds, write_files
from test_recover import recover
from test_history import now, tree_at, undelete

MIB = 1 << 20


@pytest.fixture
def kept(archive):
    """All of the past may go, and what may go goes at once."""
    archive.configure("archive", history="1d", history_min="0s", deletion_grace="0s", small_file="0")
    return archive


def past(archive):
    return archive.json("status")["past"]


def remove_one_by_one(mount, archive, n_files, size):
    """The moments before each goes, with what was there."""
    for i in range(n_files):
        lab.write_pattern(mount.path / f"file-{i}", size, i)
    archive.await_stored()
    moments = []
    for i in range(n_files):
        moments.append((now(), lab.describe_tree(mount.path)))
        (mount.path / f"file-{i}").unlink()
    archive.await_stored()
    return moments


@pytest.mark.slow
def test_history_stays_within_its_limit(place, kept):
    mount = place.mount(kept)
    moments = remove_one_by_one(mount, kept, 6, 200_000)
    whole = past(kept)["bytes"]
    assert whole > 6 * 300_000 and "released" not in past(kept)
    mount.umount()
    kept.configure("archive", history_max=str(whole // 2))
    mount = place.mount(kept)
    lab.until(lambda: past(kept)["bytes"] <= whole // 2, 20, "the oldest is gone")
    assert past(kept)["bytes"] > whole // 2 - whole // 6 - 1000, "no more than has to"
    assert past(kept)["released_for"] == "history_max"
    assert mount.text().count("more than history_max") == 1
    assert "was let go: it took more than history_max" in lab.ecfs("status", kept.path).stdout
    for moment, tree in moments[3:]:
        lab.assert_same_tree(tree, tree_at(place, kept, moment))
    told = undelete(kept, "/file-2", check=False)
    assert told.returncode == 1 and "too few of its stripes are left" in told.stderr
    undelete(kept, "/file-3")
    assert lab.describe(mount.path / "file-3") == moments[0][1]["file-3"]


@pytest.mark.slow
def test_history_gives_room_and_its_last_days_do_not(place):
    endpoints = place.directories()
    for endpoint in endpoints:
        place.disk(endpoint.root, 14 * MIB)
    archive = place.archive(endpoints)
    archive.configure("archive", history="1d", history_min="1d", deletion_grace="0s")
    mount = place.mount(archive)
    moments = remove_one_by_one(mount, archive, 5, 8 * MIB)
    with pytest.raises(OSError) as failed:
        lab.write_pattern(mount.path / "new", 16 * MIB)
    assert failed.value.errno == errno.ENOSPC
    assert "within history_min makes none" in mount.text()
    lab.until(lambda: "kept_though_full" in past(archive), 20, "it is said that history stays")
    assert "stays all the same (history_min)" in lab.ecfs("status", archive.path).stdout
    lab.assert_same_tree(moments[0][1], tree_at(place, archive, moments[0][0]))
    mount.kill()
    archive.configure("archive", history_min="0s")
    mount = place.mount(archive)
    lab.until(lambda: os.getxattr(mount.path / "new", "user.ecfs.state").startswith(b"full 6/6"), 60, "it is stored")
    assert past(archive)["released_for"] == "room"
    assert "history gives room, the oldest first" in mount.text()
    lab.assert_same_tree(moments[4][1], tree_at(place, archive, moments[4][0]))


def brake_of(archive):
    return archive.json("status").get("brake")


def grow_old(mount):
    """What is there was made long ago: in their first minute files are not missed."""
    mount.umount()
    with contextlib.closing(sqlite3.connect(mount.archive.path / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE inodes SET btime_ns = btime_ns - 100000000000")
    mount.start()


def files_lost(mount, names):
    """Overwritten and deleted, in turn."""
    for i, name in enumerate(names):
        if i % 2:
            (mount.path / f"d/{name}").unlink()
        else:
            (mount.path / f"d/{name}").write_bytes(b"give me money")


def await_look(archive, mount):
    """Until the mount has looked at what there is now. In each round it looks before it deletes what is due, so the round in
    which the second file goes began after the first was gone."""
    for name in ("look", "look again"):
        (mount.path / name).write_bytes(bytes(MIB))
        archive.await_stored()
        (mount.path / name).unlink()
        archive.await_stored()
        lab.until(lambda: archive.json("status")["deletions"] == 0, 60, "what was deleted goes", pause=0.1)


@pytest.mark.slow
def test_what_a_mass_deletion_takes_is_kept_and_undone_by_the_command_told(place, archive):
    """Without a history, over a kill and beside other changes; and the user may say that it was meant."""
    archive.configure("archive", history="0", deletion_grace="0s", pack_after="1s")
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    for i in range(1300):
        (mount.path / f"d/{i}").write_bytes(b"content %d" % i)
    archive.await_stored()
    grow_old(mount)
    stays = range(0, 1300, 26)  # one in each object, so that none is deleted before the loss is noticed, however late that is
    goes = [i for i in range(1300) if i not in stays]
    for i in range(1200):  # these come and go
        (mount.path / "new").write_bytes(b"%d" % i)
        (mount.path / "new").rename(mount.path / f"d/{stays[i % 2]}")
    archive.await_stored()
    before, earlier = contents(lab.describe_tree(mount.path)), now()
    await_look(archive, mount)  # it tells the moment of the look before
    files_lost(mount, goes[:900])
    archive.await_stored()
    assert brake_of(archive) is None, "fewer than a thousand are nothing to worry about"
    (mount.path / "other").write_bytes(b"work of another")
    for i in goes[900:]:
        (mount.path / f"d/{i}").unlink()
    told = lab.until(lambda: brake_of(archive), 20, "it is noticed")
    mount.kill()
    mount.start()
    assert brake_of(archive)["moment"] == told["moment"] and 1000 < told["lost"] <= 1250
    assert 1290 <= told["files"] <= 1302, "as many as there were, but for what went since it looked"
    assert mount.text().count("files were deleted or overwritten within an hour") == 1
    assert "BRAKE" in lab.ecfs("history", archive.path).stdout
    assert told["command"] in lab.ecfs("status", archive.path).stdout and told["command"] in mount.text()
    command = shlex.split(told["command"])
    undelete(archive, "/d/3", "--at", told["moment"])
    assert brake_of(archive), "one file is not all"
    undelete(archive, "/d", "--at", earlier)
    undelete(archive, "/", "--at", earlier)
    assert brake_of(archive), "and another moment may lack what came since"
    lab.ecfs(*command[1:])
    tree = contents(lab.describe_tree(mount.path))
    assert {path: tree[path] for path in before} == before and (mount.path / "other").exists()
    assert brake_of(archive) is None


@pytest.mark.slow
def test_a_mass_deletion_that_was_meant(place, archive):
    archive.configure("archive", deletion_grace="0s", small_file="0", object_max="16K", delete_brake="1%")
    mount = place.mount(archive)
    lab.ecfs("history", archive.path, "--release")
    for i in range(1010):
        (mount.path / f"{i}").write_bytes(b"content")
    archive.await_stored()
    grow_old(mount)
    for i in range(1010):
        (mount.path / f"{i}").unlink()
    lab.until(lambda: brake_of(archive), 20, "it is noticed")
    mount.umount()
    assert archive.json("status")["deletions"] > 0
    lab.ecfs("history", archive.path, "--release")
    assert brake_of(archive) is None
    mount = place.mount(archive)
    lab.until(lambda: archive.json("status")["deletions"] == 0, 60, "all goes")


@pytest.mark.slow
def test_one_mark_in_the_place_of_another_frees_what_that_kept(place, archive):
    """However soon it follows."""
    archive.configure("archive", history="0", deletion_grace="0s", small_file="0")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 100_000)
    archive.await_stored()
    lab.ecfs("mark", archive.path, "monday")
    (mount.path / "file").unlink()
    archive.await_stored()
    lab.until(lambda: archive.json("status")["marks"][0]["bytes"] > 0, 20, "the mark has it alone")
    time.sleep(2.5)  # the mount looks every two seconds
    lab.ecfs("mark", "--remove", archive.path, "monday")
    lab.ecfs("mark", archive.path, "tuesday")
    lab.until(lambda: archive.json("status")["deletions"] == 0, 20, "it goes")


def test_a_key_does_not_end_what_a_mark_names(place):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none")
    lab.ecfs("mark", archive.path, "release-1")
    done = lab.ecfs("key", "init", "--key", "split", archive.path, check=False)
    assert done.returncode != 0 and "release-1" in done.stderr
    assert not (archive.path / "key").exists()
    lab.ecfs("mark", "--remove", archive.path, "release-1")
    lab.ecfs("key", "init", "--key", "split", archive.path)


@pytest.mark.slow
def test_what_a_mark_names_is_kept_until_it_is_removed(place, archive):
    """Without a history, over packing, a recovery, and beside a mount or without."""
    archive.configure("archive", history="0", deletion_grace="0s", pack_after="1s")
    mount = place.mount(archive)
    write_files(mount.path / "d", 20)
    lab.write_pattern(mount.path / "large", 300_000)
    archive.await_stored()
    lab.ecfs("mark", archive.path, "release-1")
    marked = lab.describe_tree(mount.path)
    await_packed(archive)
    shutil.rmtree(mount.path / "d")
    lab.write_pattern(mount.path / "large", 300_000, 5)
    lab.write_pattern(mount.path / "later", 400_000, 6)
    archive.await_stored()
    (mount.path / "later").unlink()  # that no mark needs
    lab.until(lambda: kinds(archive) == [0] and archive.json("status")["past"]["stripes"] == 0, 60, "what may go is gone")
    mount.umount()
    lab.ecfs("mark", archive.path, "release-2")
    lab.assert_same_tree(marked, tree_at(place, archive, "release-1"))
    first, second = archive.json("mark", "--list")
    assert (first["name"], second["name"]) == ("release-1", "release-2") and first["bytes"] > 400_000 > second["bytes"]
    assert "release-1" in lab.ecfs("status", archive.path).stdout
    for name, code in (("release-1", 1), ("2026-11-25", 2), ("2d", 2), ("a/b", 2), ("", 2)):
        assert lab.ecfs("mark", archive.path, name, check=False).returncode == code, name
    assert lab.ecfs("ls", "--at", "release-3", archive.path, check=False).returncode == 2
    shutil.rmtree(archive.path)
    archive, _ = recover(place, archive.endpoints)
    archive.configure("archive", deletion_grace="0s")
    lab.assert_same_tree(marked, tree_at(place, archive, "release-1"))
    lab.run(FSCK, "-y", "--prune", archive.path, check=False)
    mount = place.mount(archive)
    undelete(archive, "/d", "--at", "release-1")
    (mount.path / "large").unlink()
    archive.await_stored()
    lab.assert_same_tree(marked, tree_at(place, archive, "release-1"))
    lab.ecfs("mark", archive.path, "--remove", "release-1")
    lab.ecfs("mark", archive.path, "--remove", "release-2")
    assert archive.json("mark", "--list") == []
    lab.until(lambda: archive.json("status")["deletions"] == 0, 60, "what only marks needed is gone")
