"""Small files of several mounts of one archive: each has logs of its own, and who leads packs them."""
import itertools
import os
import threading
import time

import lab
import postgresql
import pytest
from test_logs import COPIES, TOLERANCE, contents, write_files
from test_many_mounts import FSCK, cluster, is_clean, join, make, same_tree  # noqa: F401

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")


def mount_pair(place, cluster, first="10m", second="10m"):  # noqa: F811
    """Two archive directories of one catalog, both mounted, with their pack_after; the first leads."""
    archive = make(place, cluster)
    other = join(place, archive, "other")
    archive.configure("archive", pack_after=first)
    other.configure("archive", pack_after=second)
    return place.mount(archive), place.mount(other)


@pytest.fixture
def pair(place, cluster):  # noqa: F811
    return mount_pair(place, cluster)


def shared_as(mount, path):
    return mount.archive.json("info", f"/{path}")["objects"][0].get("shared_as")


def all_of(mount, kind):
    return all(shared_as(mount, path.relative_to(mount.path)) == kind for path in mount.path.rglob("*") if path.is_file())


def n_logs(cluster):  # noqa: F811
    """Of the newest archive."""
    schema = cluster.psql("SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                          "WHERE c.relname = 'objects' ORDER BY c.oid DESC LIMIT 1").stdout.strip()
    return int(cluster.psql(f'SELECT count (*) FROM "{schema}".objects WHERE kind = 1').stdout)


def test_small_files_of_each_are_records_of_a_log_of_its_own(pair):
    first, second = pair
    write_files(first.path / "a", 20)
    write_files(second.path / "b", 20, seed=1)
    same_tree([first, second])
    assert all_of(first, "log")
    assert sum(len(list(lab.stripe_files(endpoint))) for endpoint in first.archive.endpoints) == 2 * COPIES
    second.umount()
    first.umount()
    is_clean(first.archive)


@pytest.mark.slow
def test_who_leads_packs_what_others_have_ended_while_they_write_on(place, cluster):  # noqa: F811
    first, second = mount_pair(place, cluster, "1s", "1s")
    written, stop = [0], threading.Event()

    def write_on():
        for number in itertools.count():
            if stop.is_set():
                return
            (second.path / f"{number:05}").write_bytes(os.urandom(1 + number % 9000))
            written[0] += 1
            stop.wait(0.005)
    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        lab.until(lambda: written[0] > 50 and shared_as(first, "00000") == "pack", 120, "the first is packed")
    finally:
        stop.set()
        writer.join()
    expected = same_tree([second, first])
    lab.until(lambda: n_logs(cluster) == 0, 60, "all is packed")
    lab.forget_mounts()
    for mount in (first, second):
        lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    second.umount()
    first.umount()
    is_clean(first.archive)


@pytest.mark.slow
def test_an_open_log_of_which_nothing_is_left_takes_more(place, cluster):  # noqa: F811
    """Who leads, and packs all that has ended, leaves it alone."""
    first, second = mount_pair(place, cluster, "1s")
    for round_ in range(4):
        write_files(second.path / "d", 10, seed=round_)
        for path in (second.path / "d").iterdir():
            path.unlink()
        (second.path / f"kept {round_}").write_bytes(bytes(1000 + round_))
        time.sleep(1.5)  # for who packs
    assert all_of(first, "log") and n_logs(cluster) == 1
    expected = same_tree([second, first])
    second.umount()
    lab.assert_same_tree(expected, lab.describe_tree(first.path))
    first.umount()
    is_clean(first.archive)


@pytest.mark.slow
def test_what_the_journal_does_not_have_yet_was_not_removed(place, pair):
    """Mounts take inode numbers ahead: a file that is younger than the journal may have a lower one than those in it."""
    first, second = pair
    write_files(first.path / "a", 25)
    write_files(second.path / "b", 25, seed=1)
    for mount in pair:
        mount.archive.await_stored()
    for mount in pair:
        for i in range(3):
            (mount.path / "a" / f"last of {mount.path.name} {i}").write_bytes(os.urandom(500))
    expected = lab.describe_tree(second.path)
    for mount in pair:
        mount.kill()
    again = lab.Archive(place.path / "again", first.archive.endpoints)
    lab.ecfs("recover", again.path, "--force",
             *(word for endpoint in again.endpoints for word in ("--endpoint", endpoint.endpoint())))
    mount = place.mount(again)
    assert contents(lab.describe_tree(mount.path)) == contents(expected)
    mount.umount()


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(0, 1), (2, 5)])
def test_what_all_have_closed_comes_back_without_machines_and_database(place, pair, lost):
    """Records of several logs, of which some files were replaced by the other mount, and behind the journal."""
    first, second = pair
    assert len(lost) == TOLERANCE
    write_files(first.path / "a", 15)
    write_files(second.path / "b", 15, seed=1)
    for number in range(5):
        (second.path / "a" / f"file {number:04}").write_bytes(os.urandom(500))
        (first.path / "b" / f"file {number:04}").write_bytes(os.urandom(500))
    expected = same_tree([first, second])
    for mount in pair:
        mount.kill()
    left = [endpoint for number, endpoint in enumerate(first.archive.endpoints) if number not in lost]
    again = lab.Archive(place.path / "again", left)
    lab.ecfs("recover", again.path, "--force", *(word for endpoint in left for word in ("--endpoint", endpoint.endpoint())))
    mount = place.mount(again)
    assert contents(lab.describe_tree(mount.path)) == contents(expected)
    mount.umount()


@pytest.mark.nightly
def test_logs_of_a_mount_that_is_gone_are_packed(place, cluster):  # noqa: F811
    first, second = mount_pair(place, cluster, "1s")
    write_files(second.path / "d", 30)
    expected = same_tree([second, first])
    second.kill()
    lab.until(lambda: all_of(first, "pack"), 180, "who leads has packed them")
    lab.forget_mounts()
    lab.assert_same_tree(expected, lab.describe_tree(first.path))
    second.start()
    write_files(second.path / "e", 10, seed=2)
    same_tree([second, first])
    second.umount()
    first.umount()
    is_clean(first.archive)


def test_who_waits_behind_a_crash_is_answered(pair):
    """What is staged still, and stored, leaves: nobody waits for what comes of it here."""
    first, second = pair
    for number in range(3):
        (second.path / f"file {number}").write_bytes(b"hello")
        second.kill()
        second.start()
        lab.ecfs("wait", second.path, timeout=20)
        assert (first.path / f"file {number}").read_bytes() == b"hello"
    second.umount()
    first.umount()
    is_clean(first.archive)


@pytest.mark.slow
def test_an_endpoint_that_goes_is_not_waited_for_by_whose_log_is_there(place, cluster):  # noqa: F811
    """The log of a mount that does not lead ends where one of its endpoints is drained."""
    archive = place.archive(place.directories([*lab.NAMES, "grove"]), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}",
                            "--set", "catalog_mounts=many")
    first = place.mount(archive)
    second = place.mount(join(place, archive, "other"))
    write_files(second.path / "d", 30)
    endpoint = next(endpoint for endpoint in archive.endpoints if list(lab.stripe_files(endpoint)))
    lab.ecfs("endpoint", "drain", archive.path, endpoint.name, timeout=60)
    lab.ecfs("endpoint", "remove", archive.path, endpoint.name, timeout=60)
    expected = same_tree([second, first])
    lab.forget_mounts()
    lab.assert_same_tree(expected, lab.describe_tree(first.path))
    write_files(second.path / "e", 5, seed=1)
    same_tree([second, first])
    second.umount()
    first.umount()
    is_clean(archive)


@pytest.mark.slow
def test_a_log_that_lost_a_copy_takes_no_more(pair):
    """Who leads packs what it has, and its owner begins another, though the log was open and nobody told it."""
    first, second = pair
    write_files(second.path / "d", 10)
    same_tree([second, first])
    lost = next(path for endpoint in first.archive.endpoints for path in lab.stripe_files(endpoint))
    lost.unlink()
    lab.run(FSCK, "-y", first.archive.path, check=False)
    lab.until(lambda: all_of(first, "pack"), 60, "who leads has packed it")
    write_files(second.path / "e", 10, seed=1)
    expected = same_tree([second, first])
    assert {shared_as(first, f"e/file {number:04}") for number in range(1, 10)} == {"log"}
    for mount in pair:
        mount.umount()
    is_clean(first.archive)
    first.start()
    lab.assert_same_tree(expected, lab.describe_tree(first.path))
    first.umount()
