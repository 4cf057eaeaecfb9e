"""No room: under staging, under the catalog, at endpoints. Said at the call that it stops, in the log once and by status;
nothing is lost, and what waits goes on by itself when there is room again."""
import errno
import hashlib
import itertools
import os

import lab
import pytest

pytestmark = pytest.mark.nightly

MIB = 1 << 20
PATIENCE = 120  # seconds until what waits has gone on


def content(number, size):
    return hashlib.shake_128(number.to_bytes(4, "little")).digest(size)


def state(path):
    return os.getxattr(path, "user.ecfs.state").decode().partition(",")[0]


def await_state(path, expected):
    """On a busy machine close may leave a stripe to be stored behind."""
    lab.until(lambda: state(path) == expected, PATIENCE, f"{path.name} is {expected}")


def endpoint_state(archive, name):
    return next(facts for facts in archive.json("status")["endpoints"] if facts["name"] == name)


def errno_of(call, *arguments):
    """What a call fails with; 0: it does not."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def fill_file(path, size):
    """Writes until an error. (bytes written, errno of write, errno of close)."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    written, failed = 0, 0
    while written < size and not failed:
        try:
            written += os.write(file, bytes(min(MIB, size - written)))
        except OSError as error:
            failed = error.errno
    return written, failed, errno_of(os.close, file)


class Cramped:
    """A mount whose archive directory is on a small disk."""

    def __init__(self, place, size):
        self.disk = place.disk(place.path / "small", size)
        self.archive = lab.Archive(self.disk.path / "archive", place.directories())
        self.archive.init()
        # Writers wait for uploads to make room, for as long as a close may.
        self.archive.configure("archive", staging_reserve="8M", close_timeout="10s")
        self.mount = place.mount(self.archive)
        self.path = self.mount.path


@pytest.fixture
def cramped(place):
    return Cramped(place, 32 * MIB)


def test_staging_that_is_full_is_enospc_in_time(cramped):
    (cramped.path / "before").write_bytes(content(1, 5 * MIB))
    written, failed, closed = fill_file(cramped.path / "large", 100 * MIB)
    assert failed == errno.ENOSPC, "the writer is told while it writes"
    assert 10 * MIB < written < 25 * MIB and closed in (0, errno.ENOSPC)
    assert cramped.mount.text().count("staging_reserve") >= 1
    os.mkdir(cramped.path / "directory")  # the catalog goes on: it has the reserve
    os.rename(cramped.path / "before", cramped.path / "directory/after")
    os.unlink(cramped.path / "large")
    lab.until(lambda: cramped.disk.free_bytes() > 20 * MIB, PATIENCE, "staging has room again")
    (cramped.path / "next").write_bytes(content(2, 5 * MIB))
    lab.forget_mounts()
    assert (cramped.path / "directory/after").read_bytes() == content(1, 5 * MIB)
    assert (cramped.path / "next").read_bytes() == content(2, 5 * MIB)
    await_state(cramped.path / "next", "full 6/6")


def test_staging_filled_up_by_others_loses_nothing_that_was_closed(cramped):
    """Closed while endpoints were away, so it is in staging only."""
    away = cramped.archive.endpoints[:3]
    for endpoint in away:
        endpoint.kill()
    for i in range(3):
        assert errno_of((cramped.path / f"file-{i}").write_bytes, content(i, 3 * MIB)) == errno.EIO
    cramped.disk.fill(leave_bytes=8 * MIB)
    number = itertools.count()
    lab.until(lambda: fill_file(cramped.path / f"more-{next(number)}", MIB)[1] == errno.ENOSPC, PATIENCE, "no room")
    for endpoint in away:
        endpoint.start()
    cramped.archive.await_stored()
    cramped.disk.empty()
    lab.forget_mounts()
    for i in range(3):
        assert (cramped.path / f"file-{i}").read_bytes() == content(i, 3 * MIB)
    assert fill_file(cramped.path / "again", MIB) == (MIB, 0, 0)


def test_catalog_without_any_room_refuses_changes_and_goes_on(cramped):
    (cramped.path / "file").write_bytes(content(1, 100_000))
    cramped.archive.await_stored()  # so that nothing gives room back
    cramped.disk.fill()
    made = []

    def refused():
        code = errno_of(os.mkdir, cramped.path / f"directory-{len(made)}")
        made.append(code)
        return code == errno.ENOSPC

    lab.until(refused, PATIENCE, "changes are refused")
    assert set(made) <= {0, errno.ENOSPC}
    lab.forget_mounts()
    assert "file" in os.listdir(cramped.path)
    assert (cramped.path / "file").read_bytes() == content(1, 100_000)
    assert errno_of(os.unlink, cramped.path / "file") == errno.ENOSPC
    assert cramped.mount.text().count("kept in memory") == 1 and "make room" in cramped.mount.text()
    assert "refused until it succeeds" in cramped.archive.json("status")["catalog_error"]
    cramped.disk.empty()
    lab.until(lambda: errno_of(os.mkdir, cramped.path / "later") in (0, errno.EEXIST), PATIENCE, "changes are taken again")
    assert "nothing was lost" in cramped.mount.text()
    assert "catalog_error" not in cramped.archive.json("status")
    cramped.mount.umount()
    cramped.mount.start()
    expected = {f"directory-{i}" for i, code in enumerate(made) if code == 0} | {"file", "later"}
    assert set(os.listdir(cramped.path)) == expected


@pytest.fixture(params=["file", "sftp"])
def endpoints(request, place):
    """Six, and the first is on a small disk."""
    if request.param == "file":
        made = place.directories()
    else:
        made = [place.sshd(name) for name in lab.NAMES]
    made[0].disk = place.disk(made[0].root, 8 * MIB)
    return made


def open_archive(place, endpoints):
    archive = place.archive(endpoints)
    archive.configure("archive", deletion_grace="0s")
    return archive, place.mount(archive)


def partial_files(endpoint):
    return [path for path in lab.stripe_files(endpoint) if path.parts[-2] == "incoming"]


def test_full_endpoint_is_left_out_until_it_has_room(place, endpoints):
    archive, mount = open_archive(place, endpoints)
    amber = endpoints[0]
    for i in range(8):
        (mount.path / f"file-{i}").write_bytes(content(i, 6 * MIB))
        await_state(mount.path / f"file-{i}", "full 6/6" if i < 5 else "quorum 5/6")  # five stripes fit
    facts = lab.until(lambda: (told := endpoint_state(archive, "amber"))["state"] == "full" and told, PATIENCE, "amber is full")
    assert "amber" in facts["reason"]
    lab.until(lambda: mount.text().count("endpoint amber is full") == 1 + mount.text().count("endpoint amber has room again"),
              PATIENCE, "it is said")
    assert "make room there" in mount.text()
    (mount.path / "small").write_bytes(content(9, 300_000))
    assert state(mount.path / "small") in ("full 6/6", "quorum 5/6")
    lab.until(lambda: partial_files(amber) == [], PATIENCE, "nothing that was begun stays")
    for i in range(3):
        os.unlink(mount.path / f"file-{i}")  # deletions work there
    lab.until(lambda: endpoint_state(archive, "amber")["state"] == "active", PATIENCE, "amber has room")
    await_state(mount.path / "file-7", "full 6/6")
    assert mount.text().count("endpoint amber has room again") >= 1


def test_endpoint_that_others_fill_up_in_the_middle_of_a_stripe(place, endpoints):
    """Its figures were good when the stripe began."""
    archive, mount = open_archive(place, endpoints)
    amber = endpoints[0]
    lab.until(lambda: endpoint_state(archive, "amber").get("free_bytes"), PATIENCE, "the mount knows how much is free")
    amber.disk.fill(leave_bytes=700_000)
    (mount.path / "file").write_bytes(content(1, 20 * MIB))
    assert state(mount.path / "file") == "quorum 5/6"
    lab.until(lambda: endpoint_state(archive, "amber")["state"] == "full", PATIENCE, "amber is known to be full")
    lab.until(lambda: partial_files(amber) == [], PATIENCE, "what was begun there is removed")
    lab.until(lambda: amber.disk.free_bytes() > 500_000, PATIENCE, "its room is given back")
    amber.disk.empty()
    await_state(mount.path / "file", "full 6/6")
    lab.forget_mounts()
    assert (mount.path / "file").read_bytes() == content(1, 20 * MIB)


def test_stripes_of_a_full_endpoint_go_to_a_spare(place):
    endpoints = place.directories([*lab.NAMES, "grove"])
    disk = place.disk(endpoints[0].root, 2 * MIB)
    archive, mount = open_archive(place, endpoints)
    disk.fill(leave_bytes=600_000)
    for i in range(4):
        (mount.path / f"file-{i}").write_bytes(content(i, 6 * MIB))
        await_state(mount.path / f"file-{i}", "full 6/6")


def test_all_endpoints_full_is_enospc_and_what_waits_is_stored_later(place):
    endpoints = place.directories()
    disks = [place.disk(endpoint.root, 3 * MIB) for endpoint in endpoints]
    archive, mount = open_archive(place, endpoints)
    (mount.path / "first").write_bytes(content(1, 4 * MIB))
    for disk in disks:
        disk.fill(leave_bytes=300_000)
    file = os.open(mount.path / "second", os.O_WRONLY | os.O_CREAT)
    assert os.write(file, content(2, 4 * MIB)) == 4 * MIB
    assert errno_of(os.close, file) == errno.ENOSPC
    assert state(mount.path / "second") == "staged"
    staging = archive.json("status")["staging"]
    assert staging["files"] == 1 and "second" in staging["oldest"][0]["path"]
    lab.until(lambda: {facts["state"] for facts in archive.json("status")["endpoints"]} == {"full"}, PATIENCE, "all are full")
    assert (mount.path / "second").read_bytes() == content(2, 4 * MIB)
    for disk in disks:
        disk.empty()
    await_state(mount.path / "second", "full 6/6")  # without being asked to
    lab.until(lambda: not any(partial_files(endpoint) for endpoint in endpoints), PATIENCE, "nothing that was begun stays")
    lab.forget_mounts()
    assert (mount.path / "first").read_bytes() == content(1, 4 * MIB)
    assert (mount.path / "second").read_bytes() == content(2, 4 * MIB)


@pytest.mark.parametrize("ended", ["killed", "unmounted"])
def test_an_archive_on_a_disk_that_is_full_to_the_last_byte_can_be_read(place, ended):
    """Without a reserve nothing is left for the catalog: the mount says what to do, and serves what is stored."""
    disk = place.disk(place.path / "small", 8 * MIB)
    archive = lab.Archive(disk.path / "archive", place.directories())
    archive.init()
    archive.configure("archive", staging_reserve="0")
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 300_000, 1)
    archive.await_stored()
    mount.kill() if ended == "killed" else mount.umount()
    disk.fill()
    mount.start()
    assert "make room, unmount it, and mount it again" in mount.text()
    assert lab.digest(mount.path / "file") == expected
    with pytest.raises(OSError) as refused:
        (mount.path / "more").write_bytes(b"more")
    assert refused.value.errno == errno.EROFS
    mount.umount()
    disk.empty()
    mount.start()
    lab.write_pattern(mount.path / "later", 60_000, 2)
    archive.await_stored()
    assert lab.digest(mount.path / "file") == expected
    mount.umount()
