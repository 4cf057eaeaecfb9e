"""What stat(2), statvfs(3), inotify(7) and file handles tell; and that all of it is the same after a new mount."""
import ctypes
import errno
import os
import stat
import struct

import pytest
from calls import (AT_FDCWD, BOB, GUESTS, KINDS, NEEDS_ROOT, ROOT, all_entries, call, closing, exists, fails, fallocate, make,
                   opened, read, supported, user, write)

MIB = 1 << 20


def test_inode_numbers_are_stable_and_unique(d):
    numbers = {}
    for i in range(200):
        write(d / f"file-{i}")
        numbers[f"file-{i}"] = os.stat(d / f"file-{i}").st_ino
    os.mkdir(d / "directory")
    numbers["directory"] = os.stat(d / "directory").st_ino
    assert len(set(numbers.values())) == 201 and all(numbers.values())
    for name, number in numbers.items():
        assert os.stat(d / name).st_ino == number
    with opened(d) as fd:
        assert {entry.name.decode(): entry.ino for entry in all_entries(fd) if entry.name not in (b".", b"..")} == numbers
    for i in range(200):
        write(d / f"file-{i}", b"changed")
        assert os.stat(d / f"file-{i}").st_ino == numbers[f"file-{i}"]


def test_one_device_number_for_all(target, d):
    device = os.stat(target.path).st_dev
    for kind in KINDS:
        assert os.lstat(make(kind, d / kind)).st_dev == device


def test_blocks_tell_what_is_used(files):
    path = files.make(b"")
    assert os.stat(path).st_blocks == 0
    with opened(path, os.O_RDWR) as fd:
        os.write(fd, b"x" * MIB)
        os.fsync(fd)
    assert MIB <= os.stat(path).st_blocks * 512 <= 2 * MIB
    with opened(path, os.O_RDWR) as fd:
        os.ftruncate(fd, 100 * MIB)
        os.fsync(fd)
    found = os.stat(path)
    assert found.st_size == 100 * MIB and found.st_blocks * 512 <= 2 * MIB
    assert found.st_blksize >= 512


def test_blocks_of_a_small_file(files):
    path = files.make(b"x" * 100)
    with opened(path) as fd:
        os.fsync(fd)
    assert 0 < os.stat(path).st_blocks <= 64


@pytest.mark.parametrize("size", [1, 100, 5000, 100_000])
def test_nothing_moves_while_nobody_does_anything(files, size):
    """Nor does removing a name change more than ctime and the number of links."""
    path = files.make(b"x" * size)
    before = os.stat(path)
    with opened(path) as fd:
        files.close()
        os.unlink(path)
        after = os.fstat(fd)
    for field in FIELDS:
        if field not in ("st_nlink", "st_ctime_ns"):
            assert getattr(after, field) == getattr(before, field), field


def test_statvfs(d):
    write(d / "file", b"x" * 100_000)
    found = os.statvfs(d)
    assert found.f_bsize > 0 and found.f_frsize > 0 and found.f_namemax == 255
    assert 0 < found.f_blocks and found.f_bavail <= found.f_bfree <= found.f_blocks
    assert found.f_ffree <= found.f_files
    with opened(d / "file") as fd:
        assert any(os.fstatvfs(fd).f_blocks == os.statvfs(d).f_blocks for _ in range(20))  # others may write meanwhile
    assert not found.f_flag & os.ST_RDONLY


def test_path_limits(d):
    assert os.pathconf(d, "PC_NAME_MAX") == 255
    assert os.pathconf(d, "PC_PATH_MAX") == 4096
    assert os.pathconf(d, "PC_LINK_MAX") >= 127
    assert os.pathconf(d, "PC_CHOWN_RESTRICTED") == 1
    assert os.pathconf(d, "PC_NO_TRUNC") == 1


def handle_of(path):
    handle = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("=Ii", handle, 0, 128, 0)
    mount = ctypes.c_int()
    call("name_to_handle_at", AT_FDCWD, path, handle, ctypes.byref(mount), 0)
    return handle


@NEEDS_ROOT
def test_handles_by_number(d):
    """name_to_handle_at and open_by_handle_at, as NFS servers and backup programs use them."""
    path = write(d / "file", b"content")
    handle = supported(lambda: handle_of(path), "file handles")
    with opened(d) as mount:
        with closing(call("open_by_handle_at", mount, handle, os.O_RDONLY)) as fd:
            assert os.pread(fd, 99, 0) == b"content"
        os.rename(path, d / "renamed")
        with closing(call("open_by_handle_at", mount, handle, os.O_RDWR)) as fd:
            os.pwrite(fd, b"C", 0)
        os.unlink(d / "renamed")
        with fails(errno.ESTALE):
            os.close(call("open_by_handle_at", mount, handle, os.O_RDONLY))
        other = handle_of(write(d / "other"))
        os.close(call("open_by_handle_at", mount, other, os.O_RDONLY))


@NEEDS_ROOT
def test_handles_by_number_are_good_after_a_new_mount(target, d):
    os.makedirs(d / "directory/deep")
    handles = {path: supported(lambda path=path: handle_of(path), "file handles")
               for path in [write(d / "directory/deep/file", b"content"), d / "directory", d / "directory/deep"]}
    gone = handle_of(write(d / "gone"))
    os.unlink(d / "gone")
    target.remount()
    with opened(target.path) as mount:
        for path, handle in handles.items():
            with closing(call("open_by_handle_at", mount, handle, os.O_RDONLY)) as fd:
                assert os.path.samestat(os.fstat(fd), os.stat(path))
                assert not path.is_dir() or os.readlink(f"/proc/self/fd/{fd}") == os.path.realpath(path)
        with fails(errno.ESTALE):
            os.close(call("open_by_handle_at", mount, gone, os.O_RDONLY))


EVENTS = {0x1: "access", 0x2: "modify", 0x4: "attrib", 0x8: "close_write", 0x20: "open", 0x40: "moved_from", 0x80: "moved_to",
          0x100: "create", 0x200: "delete", 0x400: "delete_self"}


def test_inotify(d):
    with closing(call("inotify_init1", os.O_NONBLOCK)) as fd:
        call("inotify_add_watch", fd, d, sum(EVENTS) & ~0x21)
        write(d / "file", b"x")
        os.chmod(d / "file", 0o600)
        os.rename(d / "file", d / "renamed")
        os.mkdir(d / "directory")
        os.unlink(d / "renamed")
        seen, data = [], os.read(fd, 65536)
        while data:
            _, mask, _, length = struct.unpack_from("=iIII", data)
            seen.append((EVENTS[mask & 0xFFF], data[16:16 + length].rstrip(b"\0").decode()))
            data = data[16 + length:]
    assert seen == [("create", "file"), ("modify", "file"), ("close_write", "file"), ("attrib", "file"), ("moved_from", "file"),
                    ("moved_to", "renamed"), ("create", "directory"), ("delete", "renamed")]


@NEEDS_ROOT
def test_paths_need_search_permission_all_along(d):
    os.makedirs(d / "a/b/c")
    write(d / "a/b/c/file", b"x", 0o666)
    os.chmod(d / "a/b", 0o644)
    with user(BOB, GUESTS):
        os.stat(d / "a/b")
        for attempt in [os.stat, read, os.unlink, os.listdir]:
            with fails(errno.EACCES):
                attempt(d / "a/b/c/file")
        assert os.listdir(d / "a/b") == ["c"]
    os.chmod(d / "a/b", 0o711)
    with user(BOB, GUESTS):
        assert read(d / "a/b/c/file") == b"x"
        with fails(errno.EACCES):
            os.listdir(d / "a/b")


def test_a_failed_lookup_is_forgotten_once_the_name_exists(d):
    for i in range(20):
        assert not exists(d / f"file-{i}")
        write(d / f"file-{i}")
        assert exists(d / f"file-{i}")
        os.rename(d / f"file-{i}", d / f"renamed-{i}")
        assert not exists(d / f"file-{i}") and exists(d / f"renamed-{i}")


def test_ioctls_that_nobody_knows(d):
    import fcntl
    path = write(d / "file", b"x")
    with opened(path) as fd:
        with fails(errno.ENOTTY, errno.EINVAL):
            fcntl.ioctl(fd, 0x5401, bytes(64))  # TCGETS
        assert not os.isatty(fd)
        assert struct.unpack("i", fcntl.ioctl(fd, 0x541B, bytes(4)))[0] == 1  # FIONREAD: what is left to read


def test_polls_are_always_ready(files):
    import select
    path = files.make(b"x")
    with opened(path, os.O_RDWR) as fd:
        assert select.select([fd], [fd], [], 0) == ([fd], [fd], [])
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLOUT)
        assert poll.poll(0) == [(fd, select.POLLIN | select.POLLOUT)]


FIELDS = ["st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_atime_ns", "st_ctime_ns", "st_rdev",
          "st_blocks"]


def facts(path):
    found = os.lstat(path)
    all_facts = {field: getattr(found, field) for field in FIELDS}
    if not os.statvfs(os.path.dirname(path)).f_flag & os.ST_NOATIME:
        del all_facts["st_atime_ns"]  # comparing moves it
    if stat.S_ISREG(found.st_mode):
        all_facts["content"] = read(path)
        with opened(path) as fd:
            all_facts["hole"] = found.st_size and os.lseek(fd, 0, os.SEEK_HOLE)
    if stat.S_ISLNK(found.st_mode):
        all_facts["target"] = os.readlink(os.fsencode(path))
    all_facts["attributes"] = {name: os.getxattr(path, name, follow_symlinks=False)
                               for name in os.listxattr(path, follow_symlinks=False)}
    return all_facts


def tree(root):
    return {path: facts(path) for directory, names, files in os.walk(os.fsencode(root))
            for path in [directory, *(os.path.join(directory, name) for name in names + files)]}


def test_all_is_there_again_after_a_new_mount(target, d):
    for kind in KINDS:
        path = make(kind, d / kind)
        os.utime(path, ns=(1_000_000_001, -86_400_000_000_123), follow_symlinks=False)
        if ROOT:
            os.lchown(path, BOB, GUESTS)
        if kind in ("file", "directory"):
            supported(lambda path=path: os.setxattr(path, "user.a", b"x" * 500), "extended attributes")
            os.chmod(path, 0o6751)
    for size in [0, 1, 16384, 16385, 3 * MIB]:
        write(d / f"size-{size}", bytes(range(256)) * (size // 256) + b"z" * (size % 256))
    with opened(d / "sparse", os.O_CREAT | os.O_RDWR) as fd:
        os.pwrite(fd, b"x" * 65536, 8 * MIB)
        os.ftruncate(fd, 64 * MIB)
    with opened(d / "allocated", os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, b"x" * 65536)
        fallocate(fd, 0, 0, 65536)
    os.link(d / "size-1", d / "linked")
    os.link(d / "symlink", d / "linked symlink", follow_symlinks=False)
    write(os.fsencode(d) + b"/\xff\xfe newline\n ", b"odd")
    os.makedirs(d / "deep/er/still")
    os.rename(d / "deep/er", d / "moved")
    os.truncate(d / "size-16385", 70_000)
    os.utime(d, ns=(5, 6))
    before = tree(d)
    target.remount()
    after = tree(d)
    for path in before:
        for field in before[path]:
            assert after[path][field] == before[path][field], f"{field} of {path}"
    assert after.keys() == before.keys()


def test_what_is_open_unlinked_at_the_end_is_gone_after_it(target, d):
    path = write(d / "file", b"x" * 100_000)
    with opened(path):
        os.unlink(path)
    os.mkdir(d / "directory")
    with opened(d / "directory"):
        os.rmdir(d / "directory")
    target.remount()
    assert os.listdir(d) == []
