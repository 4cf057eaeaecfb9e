"""rename(2) and renameat2(2)."""
import errno
import os

import pytest
from calls import (ALICE, BOB, KINDS, NEEDS_ROOT, NON_DIRECTORIES, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, STAFF, Times,
                   exists, fails, in_child, links_of, make, opened, read, renameat2, supported, user, write)


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_name(d, kind):
    make(kind, d / "old")
    os.mkdir(d / "other")
    before = os.lstat(d / "old")
    times = Times(d / "old", d)
    os.rename(d / "old", d / "new")
    assert not exists(d / "old")
    assert os.path.samestat(os.lstat(d / "new"), before)
    assert times.moved(d / "old", os.lstat(d / "new")) == "c" and times.moved(d) == "mc"
    times = Times(d, d / "other")
    os.rename(d / "new", d / "other/new")
    assert times.moved(d) == times.moved(d / "other") == "mc"
    after = os.lstat(d / "other/new")
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)


@pytest.mark.parametrize("new", NON_DIRECTORIES)
@pytest.mark.parametrize("old", NON_DIRECTORIES)
def test_over_something(d, old, new):
    make(old, d / "old")
    make(new, d / "new")
    os.link(d / "new", d / "kept", follow_symlinks=False)
    before = os.lstat(d / "old")
    times = Times(d / "kept", d)
    os.rename(d / "old", d / "new")
    assert os.path.samestat(os.lstat(d / "new"), before) and not exists(d / "old")
    assert links_of(d / "kept") == 1
    assert times.moved(d / "kept") == "c" and times.moved(d) == "mc"


@pytest.mark.parametrize("kind", NON_DIRECTORIES)
def test_directories_and_others_do_not_replace_each_other(d, kind):
    make(kind, d / "it")
    os.mkdir(d / "directory")
    with fails(errno.EISDIR):
        os.rename(d / "it", d / "directory")
    with fails(errno.ENOTDIR):
        os.rename(d / "directory", d / "it")
    assert sorted(os.listdir(d)) == ["directory", "it"]


def test_a_directory_over_an_empty_one(d):
    os.mkdir(d / "old")
    write(d / "old/file", b"x")
    os.mkdir(d / "empty")
    ino = os.stat(d / "old").st_ino
    before = links_of(d)
    os.rename(d / "old", d / "empty")
    assert os.stat(d / "empty").st_ino == ino and read(d / "empty/file") == b"x"
    assert links_of(d) == (before - 1 if before > 1 else before)
    os.mkdir(d / "again")
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rename(d / "again", d / "empty")


def test_refusals(d):
    os.mkdir(d / "a")
    os.mkdir(d / "a/b")
    os.mkdir(d / "a/b/c")
    write(d / "file")
    for new in ["a/b/new", "a/new", "a/b/c/new", "a/b/c"]:
        with fails(errno.EINVAL):
            os.rename(d / "a", d / new)
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rename(d / "a/b/c", d / "a")
    for old, new, numbers in [("nothing", "new", [errno.ENOENT]), ("file", "nothing/new", [errno.ENOENT]),
                              ("file/x", "new", [errno.ENOTDIR]), ("file", "file/new", [errno.ENOTDIR]),
                              ("file", "new/", [errno.ENOTDIR]), ("file/", "new", [errno.ENOTDIR]),
                              ("a/.", "new", [errno.EBUSY, errno.EINVAL]), ("a/..", "new", [errno.EBUSY, errno.EINVAL]),
                              ("a", "a/b/..", [errno.EBUSY, errno.EINVAL, errno.ENOTEMPTY])]:
        with fails(*numbers):
            os.rename(os.fspath(d) + "/" + old, os.fspath(d) + "/" + new)
    with fails(errno.EXDEV):
        os.rename(d / "file", "/proc/file")
    os.rename(os.fspath(d) + "/a/", os.fspath(d) + "/z/")
    assert sorted(os.listdir(d)) == ["file", "z"]


def test_two_names_of_one_file_stay_both(files, d):
    path = files.make(b"content")
    os.link(path, d / "other")
    os.rename(path, d / "other")
    os.rename(path, path)
    assert links_of(path) == 2 and read(d / "other") == b"content"
    os.mkdir(d / "directory")
    os.rename(d / "directory", d / "directory")
    assert sorted(os.listdir(d)) == ["directory", "file", "other"]


def test_open_handles_go_on(files, d):
    path = files.make(b"content")
    write(d / "replaced", b"the old one")
    with opened(path, os.O_RDWR) as fd, opened(d / "replaced", os.O_RDWR) as old:
        os.rename(path, d / "replaced")
        assert os.pread(old, 99, 0) == b"the old one" and os.fstat(old).st_nlink == 0
        os.pwrite(old, b"THE", 0)
        assert os.pread(old, 99, 0) == b"THE old one"
        os.pwrite(fd, b"C", 0)
    assert read(d / "replaced") == b"Content"


def test_writing_renaming_and_writing_on(d):
    with opened(d / "part", os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, b"first ")
        os.rename(d / "part", d / "whole")
        os.write(fd, b"second")
        assert os.stat(d / "whole").st_size == 12
    assert read(d / "whole") == b"first second" and not exists(d / "part")


def test_save_by_rename_as_editors_do(files, d):
    path = files.make(b"old text")
    with opened(d / ".file.new", os.O_CREAT | os.O_EXCL | os.O_WRONLY) as fd:
        os.write(fd, b"new text")
        os.fsync(fd)
    os.rename(d / ".file.new", path)
    with opened(d) as directory:
        os.fsync(directory)
    assert read(path) == b"new text" and os.listdir(d) == ["file"]


def test_directories_carry_their_tree_and_their_dotdot(d):
    os.makedirs(d / "one/sub/deep")
    os.mkdir(d / "two")
    write(d / "one/sub/deep/file", b"x")
    two = links_of(d / "two")
    one = links_of(d / "one")
    with opened(d / "one/sub") as fd:
        os.rename(d / "one/sub", d / "two/sub")
        assert os.stat("..", dir_fd=fd).st_ino == os.stat(d / "two").st_ino
        assert os.listdir(fd) == ["deep"]
    assert read(d / "two/sub/deep/file") == b"x"
    assert os.stat(os.fspath(d) + "/two/sub/..").st_ino == os.stat(d / "two").st_ino
    if one > 1:
        assert (links_of(d / "one"), links_of(d / "two")) == (one - 1, two + 1)
    dots = {entry.name: entry.inode() for entry in os.scandir(d / "two")}
    assert dots == {"sub": os.stat(d / "two/sub").st_ino}


def test_a_working_directory_moves_along(d):
    os.makedirs(d / "one/here")
    os.mkdir(d / "two")

    def inside():
        os.chdir(d / "one/here")
        os.rename(d / "one/here", d / "two/there")
        assert os.getcwd() == os.path.realpath(d / "two/there")
        write("file", b"x")
        assert sorted(os.listdir("..")) == ["there"]

    in_child(inside)
    assert read(d / "two/there/file") == b"x"


def test_noreplace(d):
    write(d / "one", b"1")
    for kind in KINDS:
        make(kind, d / kind)
        with fails(errno.EEXIST):
            renameat2(d / "one", d / kind, RENAME_NOREPLACE)
    with fails(errno.EEXIST):
        renameat2(d / "one", d / "one", RENAME_NOREPLACE)
    with fails(errno.ENOENT):
        renameat2(d / "nothing", d / "new", RENAME_NOREPLACE)
    renameat2(d / "one", d / "new", RENAME_NOREPLACE)
    assert read(d / "new") == b"1" and not exists(d / "one")


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", ["file", "directory", "symlink"])
def test_exchange(d, first, second):
    os.mkdir(d / "there")
    one, two = make(first, d / "one"), make(second, d / "there/two")
    before = os.lstat(one), os.lstat(two), links_of(d), links_of(d / "there")
    times = Times(d, d / "there")
    supported(lambda: renameat2(one, two, RENAME_EXCHANGE), "RENAME_EXCHANGE")
    assert os.path.samestat(os.lstat(two), before[0]) and os.path.samestat(os.lstat(one), before[1])
    assert times.moved(d) == times.moved(d / "there") == "mc"
    if before[2] > 1:
        moved = (second == "directory") - (first == "directory")
        assert (links_of(d), links_of(d / "there")) == (before[2] + moved, before[3] - moved)
    for path in one, two:
        if os.path.isdir(path):
            assert os.stat(os.fspath(path) + "/..").st_ino == os.stat(path.parent).st_ino
    renameat2(one, two, RENAME_EXCHANGE)
    assert os.path.samestat(os.lstat(one), before[0])


def test_exchange_refusals(d):
    os.makedirs(d / "a/b")
    write(d / "file")
    with fails(errno.ENOENT):
        renameat2(d / "file", d / "nothing", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(d / "a", d / "a/b", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(d / "a/b", d / "a", RENAME_EXCHANGE)
    with fails(errno.EINVAL):
        renameat2(d / "file", d / "a", RENAME_EXCHANGE | RENAME_NOREPLACE)
    with fails(errno.EINVAL):
        renameat2(d / "file", d / "new", 1 << 8)


def test_exchange_keeps_contents_in_whatever_state(files, d):
    one, two = files.make(b"1" * 50_000, "one"), files.make(b"2" * 100, "two")
    renameat2(one, two, RENAME_EXCHANGE)
    assert read(one) == b"2" * 100 and read(two) == b"1" * 50_000
    renameat2(one, two, RENAME_EXCHANGE)
    assert read(one) == b"1" * 50_000


def test_whiteout_is_done_or_refused_whole(d):
    write(d / "old", b"x")
    try:
        renameat2(d / "old", d / "new", RENAME_WHITEOUT)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)
        assert os.listdir(d) == ["old"]
    else:
        assert read(d / "new") == b"x" and os.lstat(d / "old").st_rdev == 0


@NEEDS_ROOT
def test_permissions_of_both_directories(d):
    for name in ["hers", "his"]:
        os.mkdir(d / name, 0o755)
    os.chown(d / "hers", ALICE, STAFF)
    os.chown(d / "his", BOB, STAFF)
    write(d / "hers/file", b"x")
    os.mkdir(d / "hers/directory")
    with user(ALICE):
        for new in ["his/file", "new"]:
            with fails(errno.EACCES):
                os.rename(d / "hers/file", d / new)
        os.rename(d / "hers/file", d / "hers/new")
    os.chmod(d / "his", 0o777)
    with user(ALICE):
        os.rename(d / "hers/new", d / "his/file")
        with fails(errno.EACCES):
            os.rename(d / "hers/directory", d / "his/directory")  # its '..' would change, and it is root's
    with user(BOB), fails(errno.EACCES):
        os.rename(d / "his/file", d / "hers/file")


@NEEDS_ROOT
def test_moving_does_not_change_the_group_even_into_a_setgid_directory(d):
    os.mkdir(d / "setgid")
    os.chown(d / "setgid", 0, STAFF)
    os.chmod(d / "setgid", 0o2755)
    write(d / "file")
    os.rename(d / "file", d / "setgid/file")
    assert os.stat(d / "setgid/file").st_gid == 0


def test_a_long_chain_of_renames(files, d):
    path = files.make(b"content")
    for i in range(200):
        os.rename(path, d / f"name-{i}")
        path = d / f"name-{i}"
    assert os.listdir(d) == ["name-199"] and read(path) == b"content"
