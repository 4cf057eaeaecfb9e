"""Files of several objects: what is only partly there is never taken for whole, and what is whole is found whole."""
import contextlib
import os
import shutil
import sqlite3

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
LIMIT = 64 * KIB  # bytes of an object here
SIZE = 5 * LIMIT // 2  # two whole objects and one half


@pytest.fixture
def archive(place):
    place.object_max = LIMIT
    return place.archive(place.directories())


def rows(archive, query, *values):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None)) as connection:
        return connection.execute(query, values).fetchall()


def objects(archive, name):
    """UUIDs of the objects of a file, in their order in it."""
    found = rows(archive, "SELECT o.uuid FROM objects o JOIN extents x ON x.object = o.id JOIN entries n ON n.ino = x.ino "
                          "WHERE n.name = CAST (? AS BLOB) ORDER BY x.start", name)
    return list(dict.fromkeys(uuid.hex() for uuid, in found))


def stripes_of(archive, uuid):
    return sorted(path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)
                  if path.name.startswith(uuid))


def test_wait_for_a_file_looks_at_all_of_its_objects(place, archive):
    """Both are as safe as the other: the first has a stripe at an endpoint that is gone, the second never had it."""
    archive.configure("archive", repair="off", small_file="0")
    source = place.path / "source"
    lab.write_pattern(source, 2 * LIMIT)
    archive.put_in_full(source, "/file")
    second = objects(archive, "file")[1]
    endpoint, name = rows(archive, "SELECT p.id, p.name FROM stripes s JOIN objects o ON o.id = s.object "
                                   "JOIN endpoints p ON p.id = s.endpoint WHERE o.uuid = ? AND s.idx = 5",
                          bytes.fromhex(second))[0]
    rows(archive, "DELETE FROM stripes WHERE idx = 5 AND object = (SELECT id FROM objects WHERE uuid = ?)",
         bytes.fromhex(second))
    rows(archive, "UPDATE counters SET n_not_full = 1")
    archive[name].kill()
    mount = place.mount(archive)
    lab.until(lambda: "down" in lab.ecfs("status", archive.path).stdout, 60, "the endpoint is known to be down")
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"quorum 5/6") or \
        os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"degraded")
    assert lab.ecfs("wait", archive.path, "/file", check=False).returncode == 1


@pytest.mark.slow
def test_an_object_of_one_segment_that_is_still_written_says_in_all_stripes_which_bytes_it_has(place, archive):
    """What its stripes say is the same: they were once sent with their only segment, before anybody knew that."""
    mount = place.mount(archive)
    with open(mount.path / "file", "wb") as file:
        for number in range(160):
            file.write(os.urandom(LIMIT // 2))
    archive.await_stored()
    sizes = {uuid: {path.stat().st_size for path in stripes_of(archive, uuid)} for uuid in objects(archive, "file")}
    assert len(sizes) == 80 and all(len(found) == 1 for found in sizes.values()), sizes


def test_one_lost_object_is_an_error_and_never_zeros(place, archive):
    """Reading, get, export with fetch, and fsck --export, which says what is missing."""
    source = place.path / "source"
    lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    content = source.read_bytes()
    descriptor = place.path / "descriptor"
    descriptor.write_text(lab.ecfs("export", archive.path, "/file").stdout)
    for path in stripes_of(archive, objects(archive, "file")[1])[:3]:
        path.unlink()
    mount = place.mount(archive)
    with open(mount.path / "file", "rb") as file:
        assert file.read(LIMIT) == content[:LIMIT]
        with pytest.raises(OSError):
            for at in range(LIMIT, 2 * LIMIT, 4 * KIB):
                assert os.pread(file.fileno(), 4 * KIB, at) == content[at:at + 4 * KIB]
    mount.umount()
    assert archive.get("/file", f"{place.path}/got/", check=False).returncode == 1
    given = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    assert lab.ecfs("fetch", *given, descriptor, place.path / "fetched", check=False).returncode == 1
    assert not list(place.path.glob("got*/*")) and not list(place.path.glob("fetched*"))
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, "-n", "--deep", "--export", place.path / "out", check=False)
    assert done.returncode == 4
    assert (place.path / "out/unreadable.txt").read_text() == f"/file\t{LIMIT}\t{LIMIT}\n"
    assert (place.path / "out/file").read_bytes() == content[:LIMIT] + bytes(LIMIT) + content[2 * LIMIT:]


def test_damage_in_every_object_is_repaired(place, archive):
    source = place.path / "source"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    for number, uuid in enumerate(objects(archive, "file")):
        first, second, *_ = stripes_of(archive, uuid)
        lab.flip(first, first.stat().st_size // 2 + number)
        second.unlink()
    fsck = lab.BUILD / "tools/ecfs-fsck"
    assert lab.run(fsck, archive.path, "-y", "--deep", check=False).returncode == 1
    assert lab.run(fsck, archive.path, "-n", "--deep", check=False).returncode == 0
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    archive.get("/file", f"{place.path}/got/")
    assert lab.digest(place.path / "got/file") == digest


@pytest.mark.slow
def test_more_parity_and_less_for_every_object(place, archive):
    source = place.path / "source"
    digest = lab.write_pattern(source, SIZE)
    archive.configure("archive", allow_double="yes", small_file="0")
    archive.put_in_full(source, "/file")
    for code in ("rs:4+1", "copies:2", "rs:4+2"):
        lab.ecfs("recode", "--code", code, archive.path, "/file")
        assert {found for found, in rows(archive, "SELECT code FROM objects")} == {code}
        archive.get("/file", f"{place.path}/{code}/")
        assert lab.digest(place.path / code / "file") == digest


@pytest.mark.slow
def test_rewritten_in_the_middle_and_cut_and_grown(place, archive):
    mount = place.mount(archive)
    content = bytearray(os.urandom(SIZE))
    (mount.path / "file").write_bytes(content)
    with open(mount.path / "file", "r+b") as file:
        file.seek(LIMIT - 100)
        file.write(b"x" * 200)
    content[LIMIT - 100:LIMIT + 100] = b"x" * 200
    assert (mount.path / "file").read_bytes() == content
    for size in (2 * LIMIT + 1, 2 * LIMIT, LIMIT + 7, 3 * LIMIT, 100):
        os.truncate(mount.path / "file", size)
        content = content[:size] + bytes(max(0, size - len(content)))
        archive.await_stored()
        assert (mount.path / "file").read_bytes() == content
    with open(mount.path / "file", "ab") as file:
        file.write(b"y" * 3 * LIMIT)
    content += b"y" * 3 * LIMIT
    archive.await_stored()
    mount.umount()
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    mount.start()
    assert (mount.path / "file").read_bytes() == content


def recover(place, archive, *options, check=True):
    """What a recovery of the archive's endpoints shows when mounted, and what the command printed."""
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", path, "--force", *words, *options, check=check)
    mount = place.mount(lab.Archive(path, archive.endpoints))
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found, done


def n_stripes(archive):
    return sum(len(lab.stripe_files(endpoint)) for endpoint in archive.endpoints)


@pytest.mark.slow
def test_what_was_deleted_while_it_was_stored_stays_deleted(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    (mount.path / "kept").write_bytes(b"kept")
    (mount.path / "deleted").write_bytes(os.urandom(64 * MIB))
    lab.until(lambda: n_stripes(archive) > 200, 60, "it is being stored")
    os.unlink(mount.path / "deleted")
    archive.await_stored()
    mount.kill()
    found, _ = recover(place, archive)
    assert list(found) == ["kept"]


@pytest.mark.slow
def test_content_that_other_content_took_the_place_of_does_not_come_back(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(os.urandom(64 * MIB))
    lab.until(lambda: n_stripes(archive) > 200, 60, "it is being stored")
    (mount.path / "file").write_bytes(b"new")
    archive.await_stored()
    mount.kill()
    found, _ = recover(place, archive)
    assert list(found) == ["file"] and found["file"]["size"] == 3


def lose_journal(archive):
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root / "journal", ignore_errors=True)
        shutil.rmtree(endpoint.root / "snapshots", ignore_errors=True)


def write(mount, name, how):
    """Content of two objects and a half; "streamed" is stored along while it is written, as of unknown size."""
    content = os.urandom(SIZE)
    if how == "streamed":
        with open(mount.path / name, "wb") as file:
            for at in range(0, SIZE, 16 * KIB):
                file.write(content[at:at + 16 * KIB])
    else:
        with open(mount.path / name, "wb") as file:
            file.seek(LIMIT // 2)
            file.write(content[LIMIT // 2:])
            file.seek(0)
            file.write(content[:LIMIT // 2])
    return content


@pytest.mark.parametrize("how", ["streamed", "at the end"])
@pytest.mark.slow
def test_a_stored_file_is_found_whole_without_a_journal(place, archive, how):
    archive.configure("archive", segment_size="64K", small_file="0")
    mount = place.mount(archive)
    content = write(mount, "file", how)
    assert len(objects(archive, "file")) == 3
    mount.kill()
    lose_journal(archive)
    found, done = recover(place, archive)
    (place.path / "expected").write_bytes(content)
    assert {name: fact["digest"] for name, fact in found.items()} == {"file": lab.digest(place.path / "expected")}


@pytest.mark.parametrize("how", ["streamed", "at the end"])
@pytest.mark.parametrize("journal", ["with its name in the journal", "without a journal"])
@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.slow
def test_a_part_of_a_file_never_has_its_name(place, archive, how, journal, lost):
    """As of a machine that is lost between two objects, or of one that is lost with endpoints."""
    archive.configure("archive", segment_size="64K", small_file="0")
    mount = place.mount(archive)
    if journal.startswith("with "):
        (mount.path / "file").touch()
        (mount.path / "other").write_bytes(b"other")
        archive.await_stored("/other")
    content = write(mount, "file", how)
    uuids = objects(archive, "file")
    mount.kill()
    if journal.startswith("without"):
        lose_journal(archive)
    for path in stripes_of(archive, uuids[lost]):
        path.unlink()
    found, done = recover(place, archive, check=False)
    assert done.returncode == 1 and "only a part of this content is there" in done.stderr
    assert "file" not in found or found["file"]["size"] == 0
    apart, = [name for name in found if name.endswith(".partial")]
    assert apart.startswith("recovered/file.")


@pytest.mark.slow
def test_what_was_repaired_or_recoded_is_found_whole_without_a_journal(place, archive):
    """Their new stripes tell what the file has besides, in place of the content that its first objects were made for."""
    archive.configure("archive", allow_double="yes", small_file="0")
    digests = {}
    for number, name in enumerate(["repaired", "recoded"]):
        digests[name] = lab.write_pattern(place.path / name, SIZE, number)
        archive.put_in_full(place.path / name, f"/{name}")
    for path in stripes_of(archive, objects(archive, "repaired")[1])[:2]:
        path.unlink()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, "-y", check=False).returncode == 1
    lab.ecfs("recode", archive.path, "/recoded", "--code", "copies:2")
    for path in stripes_of(archive, objects(archive, "repaired")[1]):
        if len(stripes_of(archive, objects(archive, "repaired")[1])) > 4:
            path.unlink()
    used = {uuid for name in digests for uuid in objects(archive, name)}
    for endpoint in archive.endpoints:
        for path in lab.stripe_files(endpoint):
            if path.name[:32] not in used:
                path.unlink()  # as it is deleted once its grace is over
    lose_journal(archive)
    found, done = recover(place, archive)
    assert {name: fact["digest"] for name, fact in found.items() if "digest" in fact} == digests
