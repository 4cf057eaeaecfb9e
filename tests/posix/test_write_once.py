"""What rewrite = deny and rewrite_max refuse, and nothing else: the list that ecfs-mount(1) gives."""
import errno
import os

import pytest
from calls import exists, fails, links_of, mode_of, opened, read, write
from excuses import DIRECTORY
from targets import Mounted

pytestmark = pytest.mark.skipif(DIRECTORY is not None, reason="a local directory has no such rules")

DATA = b"written once " * 10_000


@pytest.fixture(scope="module")
def deny(module_place):
    return Mounted(module_place, rewrite="deny", rewrite_max="100K")


@pytest.fixture
def d(deny, request):
    path = deny.path / request.node.name.replace("/", "-")
    path.mkdir()
    return path


def open_again(path):
    with opened(path) as fd:
        os.open(f"/proc/self/fd/{fd}", os.O_RDWR)


REFUSED = {
    "open for writing": lambda path: os.open(path, os.O_WRONLY),
    "open for reading and writing": lambda path: os.open(path, os.O_RDWR),
    "open for appending": lambda path: os.open(path, os.O_WRONLY | os.O_APPEND),
    "open with O_TRUNC": lambda path: os.open(path, os.O_WRONLY | os.O_TRUNC),
    "open with O_CREAT": lambda path: os.open(path, os.O_WRONLY | os.O_CREAT),
    "open with O_CREAT and O_TRUNC, as a shell's > does": lambda path: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    "open of a handle again": open_again,
    "truncate to nothing": lambda path: os.truncate(path, 0),
    "truncate to less": lambda path: os.truncate(path, 10),
    "truncate to more": lambda path: os.truncate(path, 1 << 20),
}


@pytest.mark.parametrize("what", REFUSED)
def test_stored_content_is_not_changed(d, what):
    path = write(d / "file", DATA)
    before = os.stat(path)
    with fails(errno.EPERM):
        REFUSED[what](path)
    after = os.stat(path)
    assert read(path) == DATA
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_size) == (before.st_mtime_ns, before.st_ctime_ns, before.st_size)


def test_until_the_last_writer_closes_all_is_legal(d):
    path = d / "file"
    with opened(path, os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, DATA)
        with opened(path, os.O_WRONLY | os.O_APPEND) as other:
            os.write(other, b"appended")
        os.pwrite(fd, b"W", 0)
        os.truncate(path, 1000)
        os.fsync(fd)
        os.posix_fallocate(fd, 0, 2000)
        with opened(path, os.O_RDWR | os.O_TRUNC):
            pass
        os.write(fd, b"end")
        os.pwrite(fd, b"start", 0)
    assert read(path) == b"start" + bytes(len(DATA) - 5) + b"end"
    with fails(errno.EPERM):
        os.open(path, os.O_WRONLY)


def test_all_but_content_changes(d):
    path = write(d / "file", DATA)
    os.chmod(path, 0o640)
    os.utime(path, ns=(1, 2))
    os.truncate(path, len(DATA))
    os.setxattr(path, "user.note", b"x")
    os.link(path, d / "linked")
    os.rename(path, d / "renamed")
    os.close(os.open(d / "renamed", os.O_RDONLY))
    assert read(d / "renamed") == read(d / "linked") == DATA
    assert mode_of(d / "linked") == 0o640 and links_of(d / "linked") == 2
    os.unlink(d / "linked")
    os.unlink(d / "renamed")
    assert os.listdir(d) == []


def test_a_name_can_be_given_to_other_content(d):
    path = write(d / "file", DATA)
    with opened(path) as fd:
        write(d / "new", b"new")
        os.rename(d / "new", path)
        assert read(path) == b"new" and os.pread(fd, 10**6, 0) == DATA
    os.unlink(path)
    write(path, b"newer")
    assert read(path) == b"newer"


def test_a_file_without_content_is_not_written_yet(d):
    """mknod, touch, and what tar, rsync and lock files do."""
    path = write(d / "file")
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"now")
    with fails(errno.EPERM):
        os.open(path, os.O_WRONLY)
    assert read(path) == b"now"
    os.mknod(d / "node")
    write(d / "node", b"now")
    assert read(d / "node") == b"now"


def test_a_new_mount_remembers(deny, d):
    path = write(d / "file", DATA)
    deny.remount()
    with fails(errno.EPERM):
        os.open(path, os.O_WRONLY)
    assert read(path) == DATA


@pytest.mark.slow
def test_rewrite_max_is_about_changing_in_place(place):
    """Above it, what needs the old bytes in staging is refused; replacing all of them is not."""
    mounted = Mounted(place, rewrite_max="100K")
    path, small = write(mounted.path / "file", DATA), write(mounted.path / "small", DATA[:100_000])
    for attempt in [lambda: os.open(path, os.O_WRONLY), lambda: os.open(path, os.O_RDWR | os.O_APPEND),
                    lambda: os.truncate(path, 10), lambda: os.truncate(path, 1 << 20)]:
        with fails(errno.EFBIG):
            attempt()
    assert mounted.mount.archive.json("status")["staging"]["too_large"] == 4
    assert read(path) == DATA
    with opened(small, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"more")
    assert read(small) == DATA[:100_000] + b"more"
    with opened(mounted.path / "sparse", os.O_CREAT | os.O_WRONLY) as fd:  # holes are not copied up
        os.pwrite(fd, b"far", 1 << 30)
    with opened(mounted.path / "sparse", os.O_RDWR) as fd:
        os.pwrite(fd, b"near", 0)
        assert os.pread(fd, 5, 0) == b"near\0" and os.pread(fd, 5, (1 << 30) - 1) == b"\0far"
    write(path, b"all new")
    assert read(path) == b"all new"
    write(path, DATA)
    os.truncate(path, 0)
    assert read(path) == b"" and exists(path)
