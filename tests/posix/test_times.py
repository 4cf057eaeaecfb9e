"""Which times an operation moves, and setting them."""
import errno
import os
import stat
import time

import pytest
from calls import (ALICE, AT_SYMLINK_NOFOLLOW, BOB, KINDS, NEEDS_ROOT, STAFF, UTIME_NOW, UTIME_OMIT, Times, birth_time_ns, fails,
                   fallocate, make, opened, read, tick, user, utimensat, write)
from excuses import lacks

OLD, OLDER = (1_000_000_000, 123_456_789), (500_000_000, 987_654_321)


def ns(pair):
    return pair[0] * 10**9 + pair[1]


CONTENT = {
    "write": (lambda fd, path: os.write(fd, b"x"), "mc"),
    "pwrite": (lambda fd, path: os.pwrite(fd, b"x", 3), "mc"),
    "append a byte": (lambda fd, path: os.pwrite(fd, b"x", os.fstat(fd).st_size), "mc"),
    "empty write": (lambda fd, path: os.write(fd, b""), ""),
    "shrink": (lambda fd, path: os.ftruncate(fd, 2), "mc"),
    "grow": (lambda fd, path: os.ftruncate(fd, 100), "mc"),
    "ftruncate to its size": (lambda fd, path: os.ftruncate(fd, 10), "mc"),
    "truncate": (lambda fd, path: os.truncate(path, 3), "mc"),
    "fallocate": (lambda fd, path: fallocate(fd, 0, 0, 1000), "mc"),
    "copy_file_range": (lambda fd, path: os.copy_file_range(fd, fd, 1, 0, 5), "mc"),
    "chmod": (lambda fd, path: os.chmod(path, 0o600), "c"),
    "chmod to the same": (lambda fd, path: os.chmod(path, 0o644), "c"),
    "fsync": (lambda fd, path: os.fsync(fd), ""),
    "stat": (lambda fd, path: os.stat(path), ""),
    "access": (lambda fd, path: os.access(path, os.R_OK), ""),
    "open and close": (lambda fd, path: os.close(os.open(path, os.O_RDWR)), ""),
    "setxattr": (lambda fd, path: os.setxattr(path, "user.note", b"x"), "c"),
    "getxattr": (lambda fd, path: os.listxattr(path), ""),
    "lock": (lambda fd, path: os.lockf(fd, os.F_LOCK, 1), ""),
}


@pytest.mark.parametrize("operation", CONTENT)
def test_what_moves_the_times_of_a_file(files, operation):
    path = files.make(b"0123456789")
    run, expected = CONTENT[operation]
    with opened(path, os.O_RDWR) as fd:
        times = Times(path, path.parent)
        run(fd, path)
        assert times.moved(path).replace("a", "") == expected
        during = os.fstat(fd)
        if expected == "mc" and operation != "ftruncate to its size":
            assert during.st_mtime_ns == during.st_ctime_ns
    assert os.stat(path).st_mtime_ns == during.st_mtime_ns, "close moved the time again"
    assert os.stat(path).st_ctime_ns == during.st_ctime_ns
    assert times.moved(path.parent) == ""


def test_closing_a_written_file_moves_nothing(d):
    with opened(d / "file", os.O_CREAT | os.O_WRONLY) as fd:
        os.write(fd, b"x" * 100_000)
        os.fsync(fd)
        times = Times(d / "file")
    assert times.moved(d / "file") == ""
    os.utime(d / "file", ns=(5, 7))
    assert os.stat(d / "file").st_mtime_ns == 7


def test_times_set_on_an_open_file_survive_its_close(d):
    """What cp -p, tar and rsync do."""
    with opened(d / "file", os.O_CREAT | os.O_WRONLY) as fd:
        os.write(fd, b"x" * 100_000)
        os.utime(fd, ns=(ns(OLDER), ns(OLD)))
        os.fchmod(fd, 0o640)
    assert os.stat(d / "file").st_mtime_ns == ns(OLD)
    assert os.stat(d / "file").st_atime_ns == ns(OLDER)


def test_a_write_after_times_were_set_moves_them(files):
    path = files.make(b"content")
    with opened(path, os.O_WRONLY) as fd:
        os.utime(fd, ns=(ns(OLDER), ns(OLD)))
        os.write(fd, b"x")
    assert os.stat(path).st_mtime > time.time() - 100


def test_a_write_through_a_mapping_moves_mtime(files):
    import mmap
    path = files.make(bytes(5000))
    times = Times(path)
    with opened(path, os.O_RDWR) as fd:
        with mmap.mmap(fd, 5000) as view:
            view[4000] = 1
            view.flush()
    assert times.moved(path).replace("a", "") == "mc"


@pytest.mark.parametrize("kind", KINDS)
def test_making_something_stamps_it_and_its_parent(d, kind):
    os.utime(d, ns=(0, 0))
    before = time.time_ns() - 20_000_000
    make(kind, d / "it")
    found, parent = os.lstat(d / "it"), os.stat(d)
    for moment in [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns, parent.st_mtime_ns, parent.st_ctime_ns]:
        assert before <= moment <= time.time_ns()
    assert parent.st_atime_ns in (0, parent.st_atime_ns)
    times = Times(d, d / "it")
    (os.rmdir if kind == "directory" else os.unlink)(d / "it")
    assert times.moved(d) == "mc"


def test_creating_what_exists_leaves_the_parent_alone(files, d):
    path = files.make(b"content")
    times = Times(d)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR))
    os.close(os.open(path, os.O_TRUNC | os.O_RDWR))
    for attempt in [lambda: os.mkdir(path), lambda: os.rmdir(path), lambda: os.unlink(d / "nothing"), lambda: os.link(path, path)]:
        with fails(errno.EEXIST, errno.ENOTDIR, errno.ENOENT):
            attempt()
    assert times.moved(d) == ""


def test_lookups_and_listings_move_nothing_but_atime(d):
    write(d / "file", b"x")
    times = Times(d, d / "file")
    os.listdir(d)
    os.stat(d / "file")
    read(d / "file")
    os.access(d / "nothing", os.F_OK)
    assert times.moved(d) in ("", "a") and times.moved(d / "file") in ("", "a")


def test_reading_marks_atime_where_it_is_kept(d):
    """relatime: an atime older than mtime moves at the next read; a mount with noatime says so."""
    path = write(d / "file", b"x")
    if os.statvfs(d).f_flag & os.ST_NOATIME:
        lacks("atime")
    os.utime(path, ns=(ns(OLDER), ns(OLD)))
    read(path)
    assert os.stat(path).st_atime_ns > ns(OLDER)


@pytest.mark.parametrize("kind", KINDS)
def test_setting_times_of_anything(d, kind):
    path = make(kind, d / "it")
    tick(path)
    before = os.lstat(path)
    tick(path)
    utimensat(path, OLDER, OLD, AT_SYMLINK_NOFOLLOW)
    found = os.lstat(path)
    assert (found.st_atime_ns, found.st_mtime_ns) == (ns(OLDER), ns(OLD)) and found.st_ctime_ns > before.st_ctime_ns


@pytest.mark.parametrize("seconds", [0, 1, -1, -2, -86400 * 365, -(2**31) + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 9_000_000_000])
@pytest.mark.parametrize("nanoseconds", [0, 1, 999_999_999])
def test_times_far_away_and_exact(files, seconds, nanoseconds):
    path = files.make(b"content")
    utimensat(path, (seconds, nanoseconds), (seconds, nanoseconds))
    found = os.stat(path)
    assert found.st_atime_ns == found.st_mtime_ns == seconds * 10**9 + nanoseconds


@pytest.mark.parametrize("seconds", [10_000_000_000, 2**40, -(2**33), -(2**40)])
def test_times_out_of_range_become_the_last_that_can_be_kept(files, seconds):
    """Never some other time, in the other direction."""
    path = files.make(b"content")
    utimensat(path, OLD, (seconds, 5))
    found = os.stat(path).st_mtime_ns
    if found != seconds * 10**9 + 5:
        assert abs(found) > 2**31 * 10**9 - 1 and (found < 0) == (seconds < 0) and abs(found) <= abs(seconds) * 10**9


def test_now_and_omit(files):
    path = files.make(b"content")
    utimensat(path, OLDER, OLD)
    times = Times(path)
    utimensat(path, UTIME_OMIT, UTIME_OMIT)
    assert times.moved(path) == ""
    utimensat(path, UTIME_NOW, UTIME_OMIT)
    found = os.stat(path)
    assert found.st_mtime_ns == ns(OLD) and found.st_atime > time.time() - 100
    utimensat(path, OLDER, OLD)
    utimensat(path, UTIME_OMIT, UTIME_NOW)
    found = os.stat(path)
    assert found.st_atime_ns == ns(OLDER) and found.st_mtime > time.time() - 100
    utimensat(path, OLDER, UTIME_OMIT)
    os.utime(path)
    found = os.stat(path)
    assert found.st_atime > time.time() - 100 and abs(found.st_atime - found.st_mtime) < 0.1
    with fails(errno.EINVAL):
        utimensat(path, (0, 10**9), OLD)
    with fails(errno.EINVAL):
        utimensat(path, (0, -1), OLD)


def test_now_is_now(files):
    """Neither the second nor the fraction are rounded away, and times set one after the other are ordered as they were."""
    path = files.make(b"content")
    before = time.time_ns() - 20_000_000
    os.utime(path)
    assert before <= os.stat(path).st_mtime_ns <= time.time_ns()


def test_futimens_and_links(files, d):
    path = files.make(b"content")
    os.symlink(path, d / "link")
    with opened(path) as fd:
        os.utime(fd, ns=(1, 2))
        assert os.fstat(fd).st_mtime_ns == 2
    utimensat(d / "link", OLDER, OLD, AT_SYMLINK_NOFOLLOW)
    assert os.stat(path).st_mtime_ns == 2 and os.lstat(d / "link").st_mtime_ns == ns(OLD)
    utimensat(d / "link", OLDER, OLDER)
    assert os.stat(path).st_mtime_ns == ns(OLDER)
    with fails(errno.ENOENT):
        utimensat(d / "nothing", OLD, OLD)


@NEEDS_ROOT
def test_who_may_set_times(files):
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o646)
    with user(ALICE):
        utimensat(path, OLDER, OLD)
    with user(BOB, STAFF):
        with fails(errno.EACCES):
            utimensat(path, UTIME_NOW, UTIME_NOW)
        with fails(errno.EPERM):
            utimensat(path, OLD, OLD)
    with user(BOB, 12345):  # may write: may set to now, and nothing else
        utimensat(path, UTIME_NOW, UTIME_NOW)
        for pair in [(OLD, OLD), (UTIME_NOW, OLD), (OLD, UTIME_OMIT), (UTIME_NOW, UTIME_OMIT)]:
            with fails(errno.EPERM):
                utimensat(path, *pair)
        utimensat(path, UTIME_OMIT, UTIME_OMIT)
    os.chmod(path, 0o400)
    with user(ALICE):
        utimensat(path, OLDER, OLD)
        utimensat(path, UTIME_NOW, UTIME_NOW)


def test_times_of_a_directory_stay_as_set_until_it_changes(d):
    os.mkdir(d / "directory")
    write(d / "directory/file", b"x")
    os.utime(d / "directory", ns=(ns(OLDER), ns(OLD)))
    write(d / "directory/file", b"changed content")
    os.chmod(d / "directory/file", 0o600)
    assert os.stat(d / "directory").st_mtime_ns == ns(OLD)
    write(d / "directory/another")
    assert os.stat(d / "directory").st_mtime_ns > ns(OLD)


def test_ctime_never_goes_back_and_is_the_systems(files):
    path = files.make(b"content")
    times = Times(path)
    utimensat(path, (2**33, 0), (2**33, 0))
    assert times.moved(path) == "amc"
    assert os.stat(path).st_ctime < time.time() + 1


def test_birth_times_stay(files):
    path = files.make(b"content")
    born = birth_time_ns(path)
    if born is None:
        lacks("birth times")
    tick(path)
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"changed")
    os.utime(path, ns=(1, 1))
    os.rename(path, path.parent / "renamed")
    assert birth_time_ns(path.parent / "renamed") == born


def test_stat_of_an_open_file_agrees_with_stat_of_its_name(files):
    path = files.make(b"content")
    with opened(path, os.O_RDWR) as fd:
        for change in [lambda: os.write(fd, b"more and more"), lambda: os.chmod(path, 0o600), lambda: os.ftruncate(fd, 3),
                       lambda: os.utime(path, ns=(8, 9))]:
            change()
            assert os.fstat(fd) == os.stat(path) == os.lstat(path)
    assert stat.S_ISREG(os.stat(path).st_mode)
