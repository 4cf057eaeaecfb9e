"""link(2), unlink(2), mkdir(2), rmdir(2), symlink(2), mknod(2)."""
import errno
import os
import socket
import stat
import threading

import pytest
from calls import (ALICE, AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, BOB, KINDS, NEEDS_ROOT, NON_DIRECTORIES, STAFF, Times, call,
                   exists, fails, in_child, links_of, make, mode_of, opened, read, umask, user, write)


@pytest.mark.parametrize("kind", NON_DIRECTORIES)
def test_link_gives_a_second_name(d, kind):
    first, second = make(kind, d / "first"), d / "second"
    os.mkdir(d / "other")
    times = Times(first, d)
    os.link(first, second, follow_symlinks=False)
    assert times.moved(first) == "c" and times.moved(d) == "mc"
    assert os.lstat(first) == os.lstat(second)
    assert links_of(first) == 2
    os.link(second, d / "other/third", follow_symlinks=False)
    assert links_of(first) == 3 and os.path.samestat(os.lstat(first), os.lstat(d / "other/third"))
    os.unlink(first)
    assert links_of(second) == 2
    times = Times(second, d)
    os.unlink(d / "other/third")
    assert links_of(second) == 1 and times.moved(second) == "c" and times.moved(d) == ""


def test_a_change_through_one_name_shows_through_all(files, d):
    path = files.make(b"content")
    os.link(path, d / "other")
    with opened(d / "other", os.O_WRONLY) as fd:
        os.pwrite(fd, b"C", 0)
    assert read(path) == b"Content"
    os.chmod(path, 0o600)
    assert mode_of(d / "other") == 0o600
    os.truncate(path, 3)
    assert read(d / "other") == b"Con"


def test_link_refusals(d):
    write(d / "file")
    os.mkdir(d / "directory")
    os.symlink("file", d / "link")
    os.symlink("nowhere", d / "dangling")
    for name in ["file", "directory", "link", "dangling"]:
        with fails(errno.EEXIST):
            os.link(d / "file", d / name)
    for old, new, number in [("nothing", "new", errno.ENOENT), ("file", "nothing/new", errno.ENOENT),
                             ("directory", "new", errno.EPERM), ("file/x", "new", errno.ENOTDIR),
                             ("file", "file/new", errno.ENOTDIR)]:
        with fails(number):
            os.link(d / old, d / new)
    with fails(errno.EXDEV):
        os.link("/proc/self/status", d / "new")
    assert links_of(d / "file") == 1


def test_linkat_follows_only_when_told(d):
    write(d / "file")
    os.symlink("file", d / "link")
    call("linkat", AT_FDCWD, d / "link", AT_FDCWD, d / "not-followed", 0)
    assert os.readlink(d / "not-followed") == "file" and links_of(d / "link") == 2
    call("linkat", AT_FDCWD, d / "link", AT_FDCWD, d / "followed", AT_SYMLINK_FOLLOW)
    assert links_of(d / "file") == 2
    with fails(errno.EINVAL):
        call("linkat", AT_FDCWD, d / "file", AT_FDCWD, d / "bad-flag", 0x100)


@NEEDS_ROOT
def test_linkat_by_handle(files, d):
    path = files.make(b"content")
    with opened(path) as fd:
        call("linkat", fd, "", AT_FDCWD, d / "second", AT_EMPTY_PATH)
    assert links_of(path) == 2 and read(d / "second") == b"content"


def test_what_was_unlinked_is_not_linked_again(files, d):
    path = files.make(b"content")
    with opened(path) as fd:
        os.unlink(path)
        with fails(errno.ENOENT):
            call("linkat", AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, d / "again", AT_SYMLINK_FOLLOW)
        assert os.fstat(fd).st_nlink == 0


def test_many_links(d):
    write(d / "file", b"x")
    for i in range(500):
        os.link(d / "file", d / f"link-{i}")
    assert links_of(d / "file") == 501
    for i in range(0, 500, 2):
        os.unlink(d / f"link-{i}")
    assert links_of(d / "file") == 251


@NEEDS_ROOT
def test_link_needs_to_write_the_directory(d):
    os.chmod(d, 0o755)
    path = write(d / "file")
    os.chown(path, ALICE, STAFF)
    os.mkdir(d / "hers", 0o700)
    os.chown(d / "hers", ALICE, STAFF)
    with user(ALICE):
        with fails(errno.EACCES):
            os.link(path, d / "new")
        os.link(path, d / "hers/new")
    with user(BOB), fails(errno.EACCES):
        os.link(d / "hers/new", d / "new")


@pytest.mark.parametrize("kind", NON_DIRECTORIES)
def test_unlink(d, kind):
    path = make(kind, d / "it")
    times = Times(d)
    os.unlink(path)
    assert not exists(path) and times.moved(d) == "mc"
    with fails(errno.ENOENT):
        os.unlink(path)


def test_unlink_refusals(d):
    write(d / "file")
    os.mkdir(d / "directory")
    for name, numbers in [("nothing", [errno.ENOENT]), ("directory", [errno.EISDIR, errno.EPERM]), ("file/x", [errno.ENOTDIR]),
                          ("file/", [errno.ENOTDIR]), ("directory/", [errno.EISDIR, errno.EPERM])]:
        with fails(*numbers):
            os.unlink(os.fspath(d) + "/" + name)
    with fails(errno.ENOTDIR):
        os.rmdir(d / "file")


def test_an_unlinked_file_works_until_it_is_closed(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd, opened(path) as other:
        os.unlink(path)
        found = os.fstat(fd)
        assert found.st_nlink == 0 and found.st_size == 10
        assert os.pread(fd, 99, 0) == b"0123456789"
        os.pwrite(fd, b"more", 10)
        assert os.pread(other, 99, 5) == b"56789more"
        os.ftruncate(fd, 5)
        assert os.pread(other, 99, 0) == b"01234"
        write(path, b"a new one of that name")
        assert os.pread(fd, 99, 0) == b"01234"
        os.utime(fd, (5, 6))
        assert os.fstat(other).st_mtime == 6
        os.fsync(fd)
        with opened(f"/proc/self/fd/{fd}") as again:
            assert os.pread(again, 99, 0) == b"01234"
    assert read(path) == b"a new one of that name"


def test_an_unlinked_stored_file_can_be_read_after_all_else_has_closed(files):
    data = bytes(range(256)) * 1000
    path = files.make(data)
    with opened(path) as fd:
        os.unlink(path)
        files.close()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, len(data) + 1, 0) == data


@NEEDS_ROOT
@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "fifo"])
@pytest.mark.parametrize(("owner", "by", "allowed"), [(ALICE, ALICE, True), (BOB, ALICE, False), (BOB, 0, True), (BOB, BOB, True)])
def test_sticky_directories_protect_from_all_but_owners(d, kind, owner, by, allowed):
    """Carol's directory; removal and renaming of owner's entry by another."""
    os.chown(d, 65503, STAFF)
    os.chmod(d, 0o1777)
    path = make(kind, d / "it")
    os.lchown(path, owner, STAFF)
    remove = os.rmdir if kind == "directory" else os.unlink
    with user(by, STAFF):
        if allowed:
            os.rename(path, d / "renamed")
            os.rename(d / "renamed", path)
            remove(path)
            return
        with fails(errno.EPERM, errno.EACCES):
            os.rename(path, d / "renamed")
        with fails(errno.EPERM, errno.EACCES):
            remove(path)
        make(kind, d / "mine")
        with fails(errno.EPERM, errno.EACCES):
            os.rename(d / "mine", path)
    with user(65503, STAFF):  # the directory's owner
        remove(path)


def test_mkdir(d):
    times = Times(d)
    before = links_of(d)
    os.mkdir(d / "directory", 0o751)
    found = os.stat(d / "directory")
    assert stat.S_ISDIR(found.st_mode) and mode_of(d / "directory") == 0o751
    assert times.moved(d) == "mc"
    if before > 1:  # some file systems do not count
        assert links_of(d) == before + 1 and found.st_nlink == 2
    os.rmdir(d / "directory")
    assert links_of(d) == before and not exists(d / "directory")


def test_mkdir_honours_the_umask_and_ignores_set_ids(d):
    with umask(0o027):
        os.mkdir(d / "one", 0o777)
    with umask(0):
        os.mkdir(d / "two", 0o1777)
        os.mkdir(d / "three", 0o6755)
    assert (mode_of(d / "one"), mode_of(d / "two"), mode_of(d / "three")) == (0o750, 0o1777, 0o755)


def test_mkdir_refusals(d):
    for kind in KINDS:
        make(kind, d / kind)
        with fails(errno.EEXIST):
            os.mkdir(d / kind)
    os.symlink("directory", d / "dirlink")
    for name, number in [("dirlink", errno.EEXIST), ("nothing/x", errno.ENOENT), ("file/x", errno.ENOTDIR), (".", errno.EEXIST),
                         ("..", errno.EEXIST)]:
        with fails(number):
            os.mkdir(os.path.join(os.fspath(d), name))
    os.mkdir(os.fspath(d) + "/slash/")
    assert os.path.isdir(d / "slash")


def test_rmdir_refusals(d):
    os.mkdir(d / "full")
    write(d / "full/file")
    os.mkdir(d / "other")
    os.symlink("other", d / "link")
    with fails(errno.ENOTEMPTY, errno.EEXIST):
        os.rmdir(d / "full")
    for name, numbers in [("other/.", [errno.EINVAL]), ("full/..", [errno.ENOTEMPTY, errno.EEXIST]), ("nothing", [errno.ENOENT]),
                          ("link", [errno.ENOTDIR]), ("full/file", [errno.ENOTDIR]), ("full/file/x", [errno.ENOTDIR])]:
        with fails(*numbers):
            os.rmdir(os.fspath(d) + "/" + name)
    os.unlink(d / "full/file")
    times = Times(d)
    os.rmdir(d / "full")
    assert times.moved(d) == "mc"


def test_rmdir_of_a_mountpoint_and_of_the_root(target):
    with fails(errno.EBUSY, errno.ENOTEMPTY):
        os.rmdir(target.path)


def test_a_removed_working_directory_is_a_dead_end(d):
    os.mkdir(d / "here")

    def inside():
        os.chdir(d / "here")
        os.rmdir(d / "here")
        assert os.stat(".").st_nlink == 0
        assert os.listdir(".") == []
        for attempt in [lambda: open("file", "w"), lambda: os.mkdir("directory"), os.getcwd, lambda: os.symlink("x", "link"),
                        lambda: os.mkfifo("fifo"), lambda: os.link(d / "file", "link"), lambda: os.rename(d / "file", "file")]:
            with fails(errno.ENOENT):
                attempt()
        os.stat("..")
        os.chdir("..")
        assert os.path.exists("file")

    write(d / "file")
    in_child(inside)


def test_an_open_directory_survives_its_removal(d):
    os.mkdir(d / "directory")
    with opened(d / "directory") as fd:
        os.rmdir(d / "directory")
        assert os.fstat(fd).st_nlink == 0
        assert os.listdir(fd) == []
        with fails(errno.ENOENT):
            os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
        os.fchmod(fd, 0o700)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o700
        os.mkdir(d / "directory")
        assert os.fstat(fd).st_ino != os.stat(d / "directory").st_ino or os.fstat(fd).st_nlink == 0


@pytest.mark.parametrize("length", [1, 59, 60, 61, 1023, 1024, 4094, 4095])
def test_symlinks_of_all_lengths(target, d, length):
    text = ("/" + "t" * 200) * 21
    os.symlink(text[:length], d / "link")
    found = os.lstat(d / "link")
    assert os.readlink(d / "link") == text[:length] and found.st_size == length
    assert stat.S_IMODE(found.st_mode) == 0o777


def test_symlink_refusals(d):
    with fails(errno.ENAMETOOLONG):
        os.symlink("t" * 4096, d / "link")
    with fails(errno.ENOENT):
        os.symlink("", d / "link")
    write(d / "file")
    for name, number in [("file", errno.EEXIST), ("nothing/x", errno.ENOENT), ("file/x", errno.ENOTDIR)]:
        with fails(number):
            os.symlink("x", d / name)
    for name, number in [("file", errno.EINVAL), (".", errno.EINVAL), ("nothing", errno.ENOENT)]:
        with fails(number):
            os.readlink(d / name)


def test_symlinks_hold_any_bytes(d):
    for i, text in enumerate([b"\xff\xfe\x80", b"new\nline", b" leading and trailing ", b"//double//", b"..", b"\x01\x7f"]):
        os.symlink(text, os.fsencode(d / f"link-{i}"))
        assert os.readlink(os.fsencode(d / f"link-{i}")) == text


def test_symlinks_lead_where_they_say(d):
    os.mkdir(d / "directory")
    write(d / "directory/file", b"found")
    os.symlink("directory", d / "relative")
    os.symlink(d / "directory", d / "absolute")
    os.symlink("../directory/file", d / "directory/upward")
    for name in ["relative/file", "absolute/file", "directory/upward", "relative/../directory/file", "absolute/upward"]:
        assert read(os.fspath(d) + "/" + name) == b"found"
    assert stat.S_ISDIR(os.lstat(os.fspath(d) + "/relative/").st_mode)


def test_a_path_of_4095_bytes_is_the_longest(d):
    os.chdir(d)
    path = os.fspath(d)
    filler = 4095 - len(path)
    dots = "/." * (filler // 2 - 1)
    name = "/" + "n" * (filler - len(dots) - 1)
    write(path + dots + name, b"x")
    assert read(path + dots + name) == b"x"
    for attempt in [os.stat, os.mkdir, os.unlink, os.rmdir, read]:
        with fails(errno.ENAMETOOLONG):
            attempt(path + dots + name + "n")


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_of_255_bytes_is_the_longest(d, kind):
    name = d / ("n" * 255)
    make(kind, name)
    assert os.listdir(d) == ["n" * 255]
    for attempt in [lambda path: make(kind, path), os.lstat, os.unlink, os.rmdir, lambda path: os.rename(name, path),
                    lambda path: os.rename(path, d / "x"), lambda path: os.link(name, path), os.readlink]:
        with fails(errno.ENAMETOOLONG):
            attempt(d / ("n" * 256))


def test_names_are_bytes_and_all_different(d):
    """Any byte but 0 and '/'; nothing is folded, trimmed or normalised."""
    names = [bytes([i]) for i in range(1, 256) if bytes([i]) not in (b"/", b".")]
    names += [b"a ", b" a", b"a.", b"...", b"new\nline", b"tab\t", b"\xc3\xa9", b"e\xcc\x81", b"A\xff\x80", b"con", b"-rf", b"**",
              b"a\\b", b"%41", b"\xed\xa0\x80", "\u2028".encode(), "ß".encode(), b"SS"]
    for i, name in enumerate(names):
        write(os.fsencode(d) + b"/" + name, b"%d" % i)
    assert sorted(os.listdir(os.fsencode(d))) == sorted(names)
    for i, name in enumerate(names):
        assert read(os.fsencode(d) + b"/" + name) == b"%d" % i


@pytest.mark.parametrize(("kind", "device"), [("fifo", 0), ("socket", 0), ("file", 0), ("char", os.makedev(1, 3)),
                                              ("char", os.makedev(4095, 1048575)), ("block", os.makedev(7, 200)),
                                              ("char", 0), ("block", os.makedev(259, 70000))])
def test_mknod(d, kind, device):
    formats = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "file": stat.S_IFREG, "char": stat.S_IFCHR, "block": stat.S_IFBLK}
    if kind in ("char", "block") and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    times = Times(d)
    os.mknod(d / "node", formats[kind] | 0o660, device)
    found = os.lstat(d / "node")
    assert stat.S_IFMT(found.st_mode) == formats[kind] and mode_of(d / "node") == 0o640
    assert found.st_rdev == device and found.st_nlink == 1 and found.st_size == 0
    assert times.moved(d) == "mc"
    with fails(errno.EEXIST):
        os.mknod(d / "node", formats[kind] | 0o660, device)


@NEEDS_ROOT
def test_devices_are_made_by_root_alone(d):
    os.chmod(d, 0o777)
    with user(ALICE):
        for kind in [stat.S_IFCHR, stat.S_IFBLK]:
            with fails(errno.EPERM):
                os.mknod(d / "device", kind | 0o600, os.makedev(1, 3))
        os.mknod(d / "fifo", stat.S_IFIFO | 0o600)
        os.mknod(d / "socket", stat.S_IFSOCK | 0o600)
        os.mknod(d / "file", stat.S_IFREG | 0o600)
    assert sorted(os.listdir(d)) == ["fifo", "file", "socket"]


@NEEDS_ROOT
def test_devices_work_where_the_mount_honours_them(d):
    os.mknod(d / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    nodev = os.statvfs(d).f_flag & os.ST_NODEV
    if nodev:
        with fails(errno.EACCES):
            os.open(d / "null", os.O_RDWR)
        return
    with opened(d / "null", os.O_RDWR) as fd:
        assert os.write(fd, b"gone") == 4 and os.read(fd, 10) == b""


def test_a_fifo_carries_data_between_processes(d):
    os.mkfifo(d / "fifo")

    def send():
        with open(d / "fifo", "wb") as fifo:
            fifo.write(b"x" * 100_000 + b"end")

    sender = threading.Thread(target=send)
    sender.start()
    data = read(d / "fifo")
    sender.join(10)
    assert len(data) == 100_003 and data.endswith(b"xend")
    assert os.stat(d / "fifo").st_size == 0


def test_a_socket_is_bound_and_spoken_through(d):
    os.chdir(d)
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("socket")
        assert stat.S_ISSOCK(os.lstat("socket").st_mode)
        server.listen()
        client.connect("socket")
        end, _ = server.accept()
        with end:
            client.sendall(b"hello")
            assert end.recv(10) == b"hello"
        with socket.socket(socket.AF_UNIX) as second, fails(errno.EADDRINUSE):
            second.bind("socket")
        os.rename("socket", "renamed")
        with socket.socket(socket.AF_UNIX) as late:
            late.connect("renamed")
        os.unlink("renamed")
