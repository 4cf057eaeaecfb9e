"""What reading finds damaged is queued, and the mount makes it whole again behind."""
import contextlib
import os
import re
import shutil
import sqlite3

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
NAMES = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath"]


def rows(archive, query, *values):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None)) as connection:
        return connection.execute(query, values).fetchall()


def stripes(archive, name):
    """{index: (file, digest in the catalog)} of the stripes of a file in the root directory."""
    found = rows(archive, "SELECT p.name, o.uuid, s.idx, s.instance, s.digest FROM stripes s "
                          "JOIN objects o ON o.id = s.object JOIN endpoints p ON p.id = s.endpoint "
                          "JOIN extents x ON x.object = o.id JOIN entries n ON n.ino = x.ino WHERE n.name = ?",
                 os.fsencode(name))
    return {index: (archive[endpoint].root / "stripes" / uuid.hex()[:3] / f"{uuid.hex()}-{index:02x}-{instance:016x}",
                    digest) for endpoint, uuid, index, instance, digest in found}


def n_stripes(code):
    return sum(int(word) for word in code.partition(":")[2].split("+"))


def flip(path):
    lab.flip(path, path.stat().st_size // 2)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


DAMAGES = {"flipped": flip, "truncated": cut, "deleted": os.unlink}


def read(mount, name):
    lab.forget_mounts()
    return (mount.path / name).read_bytes()


def rebuilt_or_queued(archive):
    repairs = archive.json("status")["repairs"]
    return repairs["rebuilt"] + repairs["unstored"] + repairs["queued"]


def meet_all(archive, mount, expected, n_met):
    """Reads now and then, until all that is damaged was met; who reads all the time leaves repairs a trickle."""
    for _ in range(20):
        assert read(mount, "file") == expected
        with contextlib.suppress(AssertionError):
            lab.until(lambda: rebuilt_or_queued(archive) >= n_met, 3, "all is met", pause=0.1)
            return
    raise AssertionError(f"only {rebuilt_or_queued(archive)} of {n_met} damaged stripes were met")


def get_until(archive, directory, condition):
    """Fetches all once, or again: on a busy machine a stripe may be read around before its damage is seen."""
    def fetched():
        archive.get("/", directory)
        return condition()
    lab.until(fetched, 60, "what is damaged was met", pause=0.2)


def until_whole(archive, n_rebuilt):
    """Until the mount has rebuilt so many stripes and nothing is queued or degraded; its status then."""
    def whole():
        status = archive.json("status")
        repairs = status["repairs"]
        return (repairs["queued"] == 0 and status["objects"]["degraded"] == 0 and repairs["rebuilt"] >= n_rebuilt
                and status)
    return lab.until(whole, 120, "everything is whole again", pause=0.2)


def fsck(archive, *arguments):
    return lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, *arguments, check=False).returncode


THOROUGH = pytest.mark.nightly


@pytest.mark.parametrize("code", ["rs:4+2", pytest.param("ldpc:4+2", marks=THOROUGH),
                                  pytest.param("basic:4+4", marks=THOROUGH)])
@pytest.mark.slow
def test_damage_met_by_a_read_is_repaired_behind(place, code):
    """Over sshd: stripes that a read needs are damaged, each in another way, up to the tolerance at a time."""
    archive = place.archive([place.sshd(name) for name in NAMES[:n_stripes(code)]], code)
    archive.configure("archive", read_policy="data-first")
    lab.write_pattern(place.path / "file", 3 * MIB + 77, 5)
    expected = (place.path / "file").read_bytes()
    archive.put_in_full(place.path / "file", "/")
    before = stripes(archive, "file")
    n_rebuilt = 0
    mount = None
    for damages in [(flip, os.unlink), (cut,)]:
        for index, damage in enumerate(damages):
            damage(stripes(archive, "file")[index][0])
            n_rebuilt += 1
        mount = mount or place.mount(archive)  # what a server has open can be read when it is deleted
        meet_all(archive, mount, expected, n_rebuilt)
        status = until_whole(archive, n_rebuilt)
        assert status["repairs"]["read_bytes"] > 0 and status["objects"]["unreadable"] == 0
        after = stripes(archive, "file")
        assert {index: digest for index, (_, digest) in after.items()} == \
            {index: digest for index, (_, digest) in before.items()}
        assert all(after[index][0] != before[index][0] and after[index][0].exists() for index in range(len(damages)))
    assert read(mount, "file") == expected
    mount.umount()
    assert fsck(archive, "--deep") == 0


@pytest.mark.slow
def test_off_queues_and_tells_and_the_next_mount_repairs(place, archive):
    archive.configure("archive", repair="off", read_policy="data-first")
    lab.write_pattern(place.path / "file", 2 * MIB, 6)
    expected = (place.path / "file").read_bytes()
    archive.put_in_full(place.path / "file", "/")
    places = stripes(archive, "file")
    mount = place.mount(archive)
    flip(places[1][0])
    os.unlink(places[2][0])
    meet_all(archive, mount, expected, 2)
    status = archive.json("status")
    assert status["objects"]["degraded"] == 1 and not status["repairs"]["auto"]
    assert {(stripe["stripe"], stripe["state"], stripe["path"]) for stripe in status["repairs"]["stripes"]} == \
        {(1, "damaged", "/file"), (2, "gone", "/file")}
    info = archive.json("info", "/file")
    assert {stripe["index"]: stripe["state"] for stripe in info["stripes"]} == \
        {0: "stored", 1: "damaged", 2: "gone", 3: "stored", 4: "stored", 5: "stored"}
    assert "checksum" in info["stripes"][1]["reason"] and info["stripes"][1]["since"] > 0
    assert info["state"].startswith("degraded 4/6")
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"degraded 4/6")
    text = lab.ecfs("status", archive.path).stdout
    assert "2 damaged stripes" in text and "repair = off" in text
    assert read(mount, "file") == expected
    assert archive.json("status")["repairs"]["queued"] == 2, "each is queued once"
    mount.umount()
    archive.configure("archive", repair="auto")
    mount = place.mount(archive)
    until_whole(archive, 2)
    mount.umount()
    assert fsck(archive, "--deep") == 0


def test_what_was_read_in_vain_is_told_at_once(place, archive):
    archive.configure("archive", small_file="0")
    lab.write_pattern(place.path / "file", MIB, 13)
    archive.put_in_full(place.path / "file", "/")
    mount = place.mount(archive)
    for path, _ in stripes(archive, "file").values():
        os.unlink(path)
    with pytest.raises(OSError, match="Input/output"):
        read(mount, "file")
    done = lab.ecfs("wait", archive.path, check=False)
    assert done.returncode == 1
    assert re.search("/file: [3-6] of its stripes are damaged or gone", done.stderr), "as many as were asked for"

    def all_are_known():
        """A read asks for as many as could be there still."""
        with pytest.raises(OSError, match="Input/output"):
            read(mount, "file")
        return archive.json("status")["repairs"]["queued"] == 6
    lab.until(all_are_known, 60, "each stripe was asked for")
    assert archive.json("status")["verdict"] == "unreadable"
    mount.umount()


@pytest.mark.slow
def test_names_travel_though_a_file_is_not_full(place, archive):
    archive.configure("archive", small_file="0", repair="off")
    lab.write_pattern(place.path / "file", MIB, 13)
    archive.put_in_full(place.path / "file", "/")
    mount = place.mount(archive)
    os.unlink(stripes(archive, "file")[0][0])
    lab.until(lambda: read(mount, "file") and archive.json("status")["repairs"]["queued"] == 1, 60, "the loss is met")
    (mount.path / "file").rename(mount.path / "renamed")
    assert lab.ecfs("wait", archive.path, check=False).returncode == 1
    mount.kill()
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", again.path, "--force", *words)
    mount = place.mount(again)
    assert os.listdir(mount.path) == ["renamed"]
    mount.umount()


@pytest.mark.slow
def test_get_queues_beside_a_mount_and_without_one(place, archive):
    archive.configure("archive", read_policy="data-first")
    lab.write_pattern(place.path / "file", 2 * MIB, 7)
    archive.put_in_full(place.path / "file", "/")
    flip(stripes(archive, "file")[0][0])
    get_until(archive, place.path / "out", lambda: archive.json("status")["repairs"]["queued"] == 1)
    mount = place.mount(archive)
    until_whole(archive, 1)
    os.unlink(stripes(archive, "file")[3][0])
    get_until(archive, place.path / "out", lambda: rebuilt_or_queued(archive) == 2)
    until_whole(archive, 2)
    mount.umount()
    assert (place.path / "out/file").read_bytes() == (place.path / "file").read_bytes()
    assert fsck(archive, "--deep") == 0


@pytest.mark.slow
def test_fsck_repairs_what_is_queued_without_reading_all(place, archive):
    archive.configure("archive", read_policy="data-first")
    lab.write_pattern(place.path / "file", MIB, 10)
    archive.put_in_full(place.path / "file", "/")
    before = stripes(archive, "file")
    flip(before[0][0])
    assert fsck(archive, "-y") == 0, "nobody has met it"
    get_until(archive, place.path / "out", lambda: queue_length(archive) == 1)
    assert fsck(archive, "-n") == 4 and queue_length(archive) == 1
    assert fsck(archive, "-y") == 1 and queue_length(archive) == 0
    after = stripes(archive, "file")
    assert {index for index in before if after[index][0] != before[index][0]} == {0}
    assert fsck(archive, "--deep") == 0


def test_an_export_queues_nothing_where_nothing_is_to_change(place, archive):
    lab.write_pattern(place.path / "file", MIB, 11)
    archive.put_in_full(place.path / "file", "/")
    for index in range(3):
        flip(stripes(archive, "file")[index][0])
    assert fsck(archive, "-n", "--deep", "--export", place.path / "out") == 4
    assert (place.path / "out/unreadable.txt").exists() and queue_length(archive) == 0


def test_what_is_met_during_a_long_repair_is_queued_at_once(place, archive):
    archive.configure("archive", segment_size="64K", read_policy="data-first", repair_rate="32K")
    for name in ("slow", "file"):
        lab.write_pattern(place.path / name, 2 * MIB, 12)
    archive.put_in_full(place.path / "slow", place.path / "file", "/")
    flip(stripes(archive, "slow")[0][0])
    get_until(archive, place.path / "out", lambda: queue_length(archive) == 1)
    mount = place.mount(archive)
    flip(stripes(archive, "file")[0][0])
    expected = (place.path / "file").read_bytes()
    def queued():
        assert read(mount, "file") == expected
        return queue_length(archive) == 2
    lab.until(queued, 20, "it is queued beside the one that takes over a minute", pause=0.2)
    assert archive.json("status")["repairs"]["rebuilt"] == 0
    mount.umount()


@pytest.mark.slow
def test_who_is_down_or_not_mounted_is_not_damaged(place):
    """An endpoint whose disk is gone below a living connection has no stripes and no marker: that is no loss."""
    archive = place.archive([place.sshd(name) for name in NAMES[:6]], "rs:3+3")
    archive.configure("archive", read_policy="data-first")
    lab.write_pattern(place.path / "file", 2 * MIB, 8)
    expected = (place.path / "file").read_bytes()
    archive.put_in_full(place.path / "file", "/")
    before = stripes(archive, "file")
    mount = place.mount(archive)
    assert all(endpoint["connected"] for endpoint in archive.json("status")["endpoints"])
    down, away, _ = (next(endpoint for endpoint in archive.endpoints if before[index][0].is_relative_to(endpoint.root))
                     for index in (0, 1, 2))
    down.kill()
    shutil.move(away.root, away.root.with_name("away"))
    away.root.mkdir()
    os.unlink(before[2][0])
    meet_all(archive, mount, expected, 1)
    lab.until(lambda: archive.json("status")["repairs"]["rebuilt"] == 1, 60, "what is proven is repaired", pause=0.1)
    after = stripes(archive, "file")
    assert {index for index in before if after[index] != before[index]} == {2}
    assert archive.json("status")["repairs"]["queued"] == 0
    shutil.rmtree(away.root)
    shutil.move(away.root.with_name("away"), away.root)
    mount.umount()


def test_what_lacks_stripes_and_has_nothing_staged_is_completed(place, archive):
    lab.write_pattern(place.path / "file", 2 * MIB, 9)
    archive.put_in_full(place.path / "file", "/")
    path, _ = stripes(archive, "file")[5]
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM stripes WHERE idx = 5")
        connection.execute("UPDATE counters SET n_not_full = n_not_full + 1")
    mount = place.mount(archive)
    lab.until(lambda: archive.json("status")["objects"]["missing_stripes"] == 0, 60, "the stripe is there again")
    mount.umount()
    assert stripes(archive, "file")[5][0] != path
    assert fsck(archive, "--deep") == 0


def queue_length(archive):
    return rows(archive, "SELECT count(*) FROM repairs")[0][0]


def named_by_catalog(archive):
    """Paths of all stripe files that the catalog knows."""
    found = rows(archive, "SELECT p.name, o.uuid, s.idx, s.instance FROM stripes s JOIN objects o ON o.id = s.object "
                          "JOIN endpoints p ON p.id = s.endpoint")
    return {archive[endpoint].root / "stripes" / uuid.hex()[:3] / f"{uuid.hex()}-{index:02x}-{instance:016x}"
            for endpoint, uuid, index, instance in found}


@pytest.mark.slow
def test_killed_in_the_middle_of_repairs(place, archive):
    """Each mount is killed after some repairs and within others; the next goes on, and nothing is left or lost."""
    archive.configure("archive", segment_size="64K", read_policy="data-first", repair_rate="2M",
                      deletion_grace="0")
    contents = {}
    for number in range(10):
        lab.write_pattern(place.path / f"file{number}", 512 * KIB + 4099 * number, number)
        contents[f"file{number}"] = (place.path / f"file{number}").read_bytes()
    archive.put_in_full(*(place.path / name for name in contents), "/")
    for name in contents:
        flip(stripes(archive, name)[1][0])
    n_queued = len(contents)
    get_until(archive, place.path / "out", lambda: queue_length(archive) == n_queued)
    mount = place.mount(archive)
    for _ in range(3):
        lab.until(lambda: queue_length(archive) < n_queued, 120, "something is repaired")
        mount.kill()
        n_queued = queue_length(archive)
        mount.start()
    until_whole(archive, 0)
    for name, content in contents.items():
        assert read(mount, name) == content
    lab.until(lambda: {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
              == named_by_catalog(archive), 120, "what was replaced or begun is deleted", pause=0.2)
    mount.umount()
    assert fsck(archive, "--deep") == 0


@pytest.mark.skipif(not lab.ROOT, reason="only root can make a directory read-only for itself")
@pytest.mark.slow
def test_a_mount_for_reading_only_hands_over_what_it_met(place):
    """To who may write next; and where nobody may, it says so, once, with the file and what to run."""
    archive = place.archive(place.directories(NAMES[:6]), "rs:4+2")
    archive.configure("archive", read_policy="data-first")
    lab.write_pattern(place.path / "file", MIB, 5)
    archive.put_in_full(place.path / "file", "/")
    flip(stripes(archive, "file")[0][0])
    lab.run("mount", "--bind", archive.path, archive.path)
    try:
        lab.run("mount", "-o", "remount,bind,ro", archive.path)
        reader = place.mount(archive, "-o", "ro")
        assert read(reader, "file") == (place.path / "file").read_bytes()
        lab.until(lambda: "ecfs-fsck --deep -y" in reader.text(), 60, "it is told")
        reader.umount()
    finally:
        lab.run("umount", archive.path)
    told = [line for line in reader.text().splitlines() if "ecfs-fsck --deep -y" in line]
    assert len(told) == 1 and "/file: it has damaged stripes" in told[0], told
    assert not rows(archive, "SELECT * FROM repairs")

    reader = place.mount(archive, "-o", "ro")
    assert read(reader, "file") == (place.path / "file").read_bytes()
    lab.until(lambda: rows(archive, "SELECT * FROM repairs"), 60, "it is queued")
    mount = place.mount(archive)
    until_whole(archive, 1)
    mount.umount()
    reader.umount()
    assert fsck(archive, "--deep") == 0
