"""What endpoints tell of the archive: newer copies of it, recoveries, and what only a few of them say."""
import contextlib
import errno
import json
import re
import shutil
import sqlite3
import time

import lab
import pytest
from test_cache import hide, show
from test_logs import contents, write_files
from test_recover import recover, tree_of

NAMES = ["one", "two", "three", "four", "five", "six"]


def forge(endpoint, **values):
    marker = endpoint.root / "ecfs-endpoint"
    text = marker.read_text()
    for key, value in values.items():
        text = re.sub(rf"^{key}=.*$", f"{key}={value}", text, flags=re.M)
    marker.write_text(text)


def test_wait_fails_where_the_archive_was_recovered_elsewhere_mounted_or_not(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", place.path / "again", "--force", *words)
    failed = lab.ecfs("wait", archive.path, check=False)
    assert failed.returncode == 1 and "is an old copy" in failed.stderr
    mount.kill()
    failed = lab.ecfs("wait", archive.path, check=False)
    assert failed.returncode == 1 and "is an old copy" in failed.stderr


def test_umount_tells_that_the_archive_was_recovered_elsewhere(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "before", 50_000, 1)
    archive.await_stored()
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", place.path / "again", "--force", *words)
    digest = lab.write_pattern(mount.path / "since", 50_000, 2)
    failed = lab.ecfs("umount", archive.path, check=False)
    assert failed.returncode == 1 and "is an old copy" in failed.stderr and "not unmounted" in failed.stderr
    assert lab.digest(mount.path / "since") == digest
    lab.run("fusermount3", "-u", mount.path)
    mount.process.wait(60)
    mount.kill()
    mount = place.mount(archive)  # for reading only
    assert "is an old copy" in mount.text() and lab.digest(mount.path / "since") == digest
    lab.ecfs("umount", archive.path)


def test_a_directory_that_was_restored_is_read_only_though_no_journal_told_of_it(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    mount.umount()
    shutil.copytree(archive.path, place.path / "backup")
    mount = place.mount(archive)
    mount.kill()  # it has changed nothing yet
    mount = place.mount(lab.Archive(place.path / "backup", endpoints))
    assert "is an old copy" in mount.text()
    mount.kill()
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "another", 50_000, 2)
    archive.await_stored()


def copy_if_there(source, target):
    """What is staged leaves at any moment."""
    try:
        return shutil.copy2(source, target)
    except FileNotFoundError:
        return target


@pytest.mark.slow
def test_a_copy_that_was_made_while_the_archive_was_in_use_is_read_only(place):
    """No journal tells of what was stored in the seconds since."""
    archive = place.archive(place.directories())
    archive.configure("archive", pack_after="1s", deletion_grace="0s")
    mount = place.mount(archive)
    write_files(mount.path / "before", 10)
    archive.await_stored()
    write_files(mount.path / "beside", 10)
    shutil.copytree(archive.path, place.path / "backup", ignore=shutil.ignore_patterns("*.sock"), copy_function=copy_if_there)
    write_files(mount.path / "since", 40)
    expected = contents(lab.describe_tree(mount.path))
    mount.kill()
    lost = place.path / "lost"
    archive.path.rename(lost)
    (place.path / "backup").rename(archive.path)
    mount = place.mount(archive)
    assert "a copy that was made while the archive was in use" in mount.text()
    with pytest.raises(OSError) as refused:
        (mount.path / "new").write_bytes(b"new")
    assert refused.value.errno == errno.EROFS
    told = lab.ecfs("status", "--check", archive.path, "--json", check=False)
    status = json.loads(told.stdout)
    assert told.returncode == 2 and status["verdict"] == "old copy" and "in use" in status["old_copy"]
    for command in (["rm", archive.path, "/before/file 0000"], ["wait", archive.path]):
        failed = lab.ecfs(*command, check=False)
        assert failed.returncode == 1 and "'ecfs takeover'" in failed.stderr, failed.stderr
    for options in (["-y"], ["-y", "--prune", "--older-than", "1s"]):
        failed = lab.run(lab.BUILD / "tools/ecfs-fsck", *options, archive.path, check=False)
        assert failed.returncode > 4 and "'ecfs takeover'" in failed.stderr, failed.stderr
    time.sleep(3)  # longer than it would take to pack and to delete
    mount.umount()
    recovered, _ = recover(place, archive.endpoints)
    assert contents(tree_of(place, recovered)) == expected


def put_back_over(copy, path):
    """As `cp -a COPY/. PATH` does: the same files, with other bytes."""
    for name in sorted(copy.rglob("*")):
        target = path / name.relative_to(copy)
        if name.is_file():
            target.write_bytes(name.read_bytes())
            shutil.copystat(name, target)


def put_back_new(copy, path):
    """As `rsync -a --delete COPY/ PATH` does, which leaves alone what has the same size and time."""
    for name in sorted(copy.rglob("*")):
        target = path / name.relative_to(copy)
        if name.is_file() and not (target.exists() and target.stat().st_size == name.stat().st_size and
                                   target.stat().st_mtime_ns == name.stat().st_mtime_ns):
            shutil.copy2(name, path / "temporary")
            (path / "temporary").rename(target)


def put_back_catalog(copy, path):
    for name in ("catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"):
        if (copy / name).exists():
            (path / name).write_bytes((copy / name).read_bytes())


@pytest.mark.parametrize("put_back", [put_back_over, put_back_new, put_back_catalog], ids=lambda how: how.__name__)
@pytest.mark.slow
def test_what_is_put_back_over_a_directory_that_was_in_use_is_recognised(place, put_back):
    """A stranger lost 45 of 48 acknowledged files by each of these."""
    archive = place.archive(place.directories())
    archive.configure("archive", pack_after="1s", deletion_grace="0s")
    mount = place.mount(archive)
    write_files(mount.path / "before", 10)
    archive.await_stored()
    shutil.copytree(archive.path, place.path / "backup", ignore=shutil.ignore_patterns("*.sock"))
    write_files(mount.path / "since", 40)
    expected = contents(lab.describe_tree(mount.path))
    mount.kill()
    time.sleep(0.2)
    put_back(place.path / "backup", archive.path)
    mount = place.mount(archive)
    with pytest.raises(OSError) as refused:
        (mount.path / "new").write_bytes(b"new")
    assert refused.value.errno == errno.EROFS
    assert lab.ecfs("status", "--check", archive.path, check=False).returncode == 2
    time.sleep(3)  # longer than it would take to pack and to delete
    mount.umount()
    recovered, _ = recover(place, archive.endpoints)
    assert contents(tree_of(place, recovered)) == expected


@pytest.mark.slow
def test_a_crash_of_the_mount_is_no_copy(place):
    """Whatever is on its way then."""
    archive = place.archive(place.directories())
    for round_number in range(5):
        mount = place.mount(archive)
        write_files(mount.path / f"round {round_number}", 20)
        expected = lab.describe_tree(mount.path)
        mount.kill()
    mount = place.mount(archive)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    write_files(mount.path / "at the end", 1)


def test_what_was_waited_for_is_told_as_stored_after_a_crash(place):
    archive = place.archive(place.directories())
    mount = place.mount(archive)
    write_files(mount.path / "d", 10)
    lab.ecfs("wait", archive.path)
    mount.kill()
    status = json.loads(lab.ecfs("status", archive.path, "--json").stdout)
    assert status["recovery_point"]["pending"] == 0, status["recovery_point"]


def test_a_directory_that_was_moved_after_a_crash_says_what_to_do(place):
    archive = place.archive(place.directories())
    mount = place.mount(archive)
    write_files(mount.path / "d", 10)
    expected = lab.describe_tree(mount.path)
    assert (archive.path / "in-use").exists()
    mount.kill()
    shutil.copytree(archive.path, place.path / "moved", ignore=shutil.ignore_patterns("*.sock"))
    shutil.rmtree(archive.path)
    (place.path / "moved").rename(archive.path)
    failed = lab.ecfs("mkdir", archive.path, "/e", check=False)
    assert failed.returncode == 1 and f"remove {archive.path}/in-use" in failed.stderr
    (archive.path / "in-use").unlink()
    mount = place.mount(archive)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    write_files(mount.path / "e", 10)
    mount.umount()
    assert not (archive.path / "in-use").exists()


@pytest.mark.slow
def test_who_says_what_nobody_else_does_is_named_and_can_be_distrusted(place):
    endpoints = place.directories(NAMES)
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    mount.umount()
    forge(endpoints[2], epoch=4294967295)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "another", 50_000, 2)
    archive.await_stored()
    told = archive.json("status")["endpoints"]
    assert [facts["name"] for facts in told if "disagrees" in facts] == ["three"]
    lab.ecfs("endpoint", "distrust", archive.path, "three")
    told = {facts["name"]: facts["state"] for facts in archive.json("status")["endpoints"]}
    assert told["three"] == "distrusted" and set(told.values()) == {"distrusted", "active"}
    lab.write_pattern(mount.path / "third", 5_000, 3)
    mount.umount()
    for endpoint in endpoints[:2] + endpoints[3:4]:
        forge(endpoint, sequence=2**64 - 1)
    failed = lab.ecfs("put", archive.path, __file__, "/", check=False)
    assert failed.returncode == 1 and "is an old copy" in failed.stderr
    lab.ecfs("endpoint", "distrust", archive.path, "one")  # three that say so were believed
    lab.ecfs("put", archive.path, __file__, "/")


@lab.unkeyed
def test_a_restored_directory_that_was_written_to_offline_is_found_by_its_journal(place):
    """It has more changes than were stored behind the backup, and no newer session: the numbers alone tell nothing. The backup
    left out the note by which a copy of a directory in use is known."""
    archive = place.archive(place.directories(), "rs:4+2", "--set", "commit=async")
    mount = place.mount(archive)
    (mount.path / "before").write_text("before\n" * 500)
    lab.ecfs("wait", mount.path)
    backup = place.path / "backup"
    shutil.copytree(archive.path, backup, ignore=shutil.ignore_patterns("*.sock", "catalog.sqlite*", "in-use"))
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog:
        catalog.execute(f"VACUUM INTO '{backup / 'catalog.sqlite'}'")
    (mount.path / "waited").write_text("waited\n" * 500)
    lab.ecfs("wait", mount.path)
    mount.kill()
    shutil.rmtree(archive.path)
    shutil.move(backup, archive.path)
    hide(archive)
    mount.start()
    for number in range(40):
        (mount.path / f"offline-{number}").write_text(f"{number}\n" * 500)
    mount.kill()
    show(archive)
    mount.start()
    failed = lab.ecfs("wait", mount.path, check=False)
    assert failed.returncode == 1 and "another copy" in failed.stderr, failed
    assert "OLD COPY" in lab.ecfs("status", mount.path, check=False).stdout
    assert (mount.path / "offline-3").read_text() == "3\n" * 500
    lab.run("fusermount3", "-u", mount.path)
    mount.process.wait(60)
