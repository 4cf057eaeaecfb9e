"""open(2): its flags, its refusals, who may."""
import errno
import fcntl
import mmap
import os
import stat

import pytest
from calls import (ALICE, BOB, CAROL, GUESTS, NEEDS_ROOT, STAFF, Times, call, closing, exists, fails, in_child, mode_of, opened,
                   read, supported, umask, user, write)

WRITABLE = [os.O_WRONLY, os.O_RDWR]
MODES = [0o000, 0o400, 0o200, 0o100, 0o600, 0o040, 0o020, 0o060, 0o004, 0o002, 0o006, 0o644, 0o466, 0o377]


def test_a_name_that_does_not_exist(d):
    for flags in [os.O_RDONLY, *WRITABLE, os.O_RDONLY | os.O_DIRECTORY, os.O_PATH]:
        with fails(errno.ENOENT):
            os.open(d / "nothing", flags)
    with fails(errno.ENOENT):
        os.open(d / "nothing/file", os.O_CREAT | os.O_WRONLY)
    with fails(errno.ENOENT):
        os.open("", os.O_RDONLY)


def test_creat_makes_a_file_and_leaves_an_old_one(files, d):
    with opened(d / "new", os.O_CREAT | os.O_RDWR, 0o640) as fd:
        assert os.fstat(fd).st_size == 0 and stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    path = files.make(b"old content")
    with opened(path, os.O_CREAT | os.O_RDWR, 0o600) as fd:
        assert os.read(fd, 100) == b"old content"
    assert mode_of(path) == 0o644


def test_creat_honours_the_umask(d):
    for mask in [0o000, 0o022, 0o027, 0o077, 0o777]:
        with umask(mask):
            os.close(os.open(d / f"{mask:o}", os.O_CREAT | os.O_WRONLY, 0o777))
            assert mode_of(d / f"{mask:o}") == 0o777 & ~mask


def test_creat_takes_all_mode_bits(d):
    with umask(0):
        for mode in [0o1644, 0o4755, 0o6711]:
            os.close(os.open(d / f"{mode:o}", os.O_CREAT | os.O_WRONLY, mode))
            assert mode_of(d / f"{mode:o}") == mode


def test_a_new_file_may_have_a_mode_that_forbids_what_it_is_open_for(d):
    with opened(d / "file", os.O_CREAT | os.O_RDWR, 0o000) as fd:
        assert os.write(fd, b"still") == 5
        assert os.pread(fd, 9, 0) == b"still"
    os.chmod(d / "file", 0o400)
    assert read(d / "file") == b"still"


def test_excl(files, d):
    path = files.make(b"content")
    os.symlink(path, d / "link")
    os.symlink("nowhere", d / "dangling")
    os.mkdir(d / "directory")
    os.mkfifo(d / "fifo")
    for name in ["file", "link", "dangling", "directory", "fifo"]:
        with fails(errno.EEXIST):
            os.open(d / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    assert not exists(d / "nowhere") and read(path) == b"content"
    with opened(d / "new", os.O_CREAT | os.O_EXCL | os.O_WRONLY):
        pass


def test_creat_goes_through_a_dangling_link(d):
    os.symlink("target", d / "link")
    write(d / "link", b"through")
    assert read(d / "target") == b"through"


def test_trunc(files):
    path = files.make(b"content")
    times = Times(path)
    with opened(path, os.O_WRONLY | os.O_TRUNC) as fd:
        assert os.fstat(fd).st_size == 0
        assert os.stat(path).st_size == 0
    assert times.moved(path) == "mc"
    assert read(path) == b""


def test_trunc_of_an_empty_file_moves_its_times(files):
    path = files.make()
    times = Times(path)
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    assert times.moved(path) == "mc"


def test_open_handles_see_a_truncation_by_another(files):
    path = files.make(b"content")
    with opened(path) as reader:
        assert os.pread(reader, 3, 0) == b"con"
        with opened(path, os.O_WRONLY | os.O_TRUNC) as writer:
            assert os.pread(reader, 9, 0) == b""
            os.write(writer, b"new")
            assert os.pread(reader, 9, 0) == b"new"
        assert os.pread(reader, 9, 0) == b"new"


def test_append_writes_at_the_end_wherever_the_offset_is(files):
    path = files.make(b"start")
    with opened(path, os.O_WRONLY | os.O_APPEND) as first, opened(path, os.O_WRONLY | os.O_APPEND) as second:
        for i in range(20):
            os.write(first, b"a%02d" % i)
            os.lseek(second, 0, os.SEEK_SET)
            os.write(second, b"b%02d" % i)
    assert read(path) == b"start" + b"".join(b"a%02db%02d" % (i, i) for i in range(20))


def test_append_with_pwrite_appends_all_the_same(files):
    path = files.make(b"start")
    with opened(path, os.O_RDWR | os.O_APPEND) as fd:
        os.pwrite(fd, b"+end", 0)
        assert os.pread(fd, 99, 0) == b"start+end"


def test_append_can_be_set_and_cleared_later(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(fd, b"end")
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        os.pwrite(fd, b"S", 0)
    assert read(path) == b"S123456789end"


def test_appends_of_several_processes_do_not_overwrite_each_other(d):
    path = write(d / "log")
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
                for i in range(50):
                    os.write(fd, b"%d:%03d\n" % (number, i))
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    lines = read(path).split()
    assert sorted(lines) == sorted(b"%d:%03d" % (n, i) for n in range(4) for i in range(50))
    for number in range(4):
        mine = [line for line in lines if line.startswith(b"%d:" % number)]
        assert mine == sorted(mine)


def test_nofollow(d):
    write(d / "file", b"x")
    os.mkdir(d / "directory")
    os.symlink("file", d / "link")
    os.symlink("directory", d / "dirlink")
    with fails(errno.ELOOP):
        os.open(d / "link", os.O_RDONLY | os.O_NOFOLLOW)
    with fails(errno.ELOOP):
        os.open(d / "link", os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW)
    with fails(errno.ENOTDIR, errno.ELOOP):
        os.open(d / "dirlink", os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    os.close(os.open(d / "file", os.O_RDONLY | os.O_NOFOLLOW))
    with opened(d / "link", os.O_PATH | os.O_NOFOLLOW) as fd:
        assert stat.S_ISLNK(os.fstat(fd).st_mode)
        assert os.readlink("", dir_fd=fd) == "file"
    write(d / "directory/inside", b"y")
    os.close(os.open(d / "dirlink/inside", os.O_RDONLY | os.O_NOFOLLOW))


def test_directory_flag(d):
    write(d / "file")
    os.symlink("file", d / "link")
    os.mkfifo(d / "fifo")
    for name in ["file", "link", "fifo"]:
        with fails(errno.ENOTDIR):
            os.open(d / name, os.O_RDONLY | os.O_DIRECTORY)
    os.close(os.open(d, os.O_RDONLY | os.O_DIRECTORY))


def test_directories_are_not_written(d):
    for flags in [*WRITABLE, os.O_RDONLY | os.O_TRUNC, os.O_RDONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT]:
        with fails(errno.EISDIR):
            os.open(d, flags)
    with opened(d) as fd:
        with fails(errno.EISDIR):
            os.read(fd, 10)
        with fails(errno.EBADF):
            os.write(fd, b"x")


def test_a_file_is_no_directory_on_the_way(d):
    write(d / "file")
    os.symlink("file", d / "link")
    for name in ["file/x", "link/x", "file/"]:
        with fails(errno.ENOTDIR):
            os.open(os.fspath(d) + "/" + name, os.O_RDONLY)
    with fails(errno.ENOTDIR):
        os.open(d / "file/x", os.O_CREAT | os.O_WRONLY)
    with fails(errno.EISDIR):
        os.open(os.fspath(d) + "/new/", os.O_CREAT | os.O_WRONLY)


def test_loops(d):
    os.symlink("b", d / "a")
    os.symlink("a", d / "b")
    os.symlink("self", d / "self")
    for name in ["a", "b", "self", "a/x", "self/x"]:
        with fails(errno.ELOOP):
            os.open(d / name, os.O_RDONLY)
    write(d / "c0", b"end")
    for i in range(40):
        os.symlink(f"c{i}", d / f"c{i + 1}")
    assert read(d / "c40") == b"end"
    os.symlink("c40", d / "c41")
    with fails(errno.ELOOP):
        os.open(d / "c41", os.O_RDONLY)


def test_a_fifo_without_reader_is_not_opened_for_writing_at_once(d):
    os.mkfifo(d / "fifo")
    with fails(errno.ENXIO):
        os.open(d / "fifo", os.O_WRONLY | os.O_NONBLOCK)
    with opened(d / "fifo", os.O_RDONLY | os.O_NONBLOCK):
        os.close(os.open(d / "fifo", os.O_WRONLY | os.O_NONBLOCK))


def test_a_socket_is_not_opened(d):
    os.mknod(d / "socket", stat.S_IFSOCK | 0o644)
    with fails(errno.ENXIO):
        os.open(d / "socket", os.O_RDONLY)
    os.close(os.open(d / "socket", os.O_PATH))


@NEEDS_ROOT
def test_a_device_without_driver_is_not_opened(d):
    os.mknod(d / "device", stat.S_IFCHR | 0o644, os.makedev(251, 99999))
    with fails(errno.ENXIO, errno.ENODEV, errno.EACCES):  # EACCES: where devices are not honoured
        os.open(d / "device", os.O_RDONLY)


@NEEDS_ROOT
def test_a_running_program_is_not_written(d):
    write(d / "program", open("/bin/sleep", "rb").read(), 0o755)
    child = os.posix_spawn(d / "program", ["sleep", "60"], {})
    try:
        os.stat(f"/proc/{child}/exe")
        for flags in WRITABLE:
            with fails(errno.ETXTBSY):
                os.open(d / "program", flags)
        with fails(errno.ETXTBSY):
            os.truncate(d / "program", 10)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    os.close(os.open(d / "program", os.O_RDWR))


def test_a_file_open_for_writing_is_not_run(d):
    write(d / "program", open("/bin/true", "rb").read(), 0o755)
    assert os.waitpid(os.posix_spawn(d / "program", ["true"], {}), 0)[1] == 0
    with opened(d / "program", os.O_WRONLY), fails(errno.ETXTBSY):
        os.posix_spawn(d / "program", ["true"], {})
    assert os.waitpid(os.posix_spawn(d / "program", ["true"], {}), 0)[1] == 0


def test_a_handle_that_exec_closes(files):
    """The kernel closes it in the middle of exec, while it holds what others need to look at the process."""
    path = files.make(b"content")
    child = os.fork()
    if child == 0:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.write(fd, b"C")
        os.execv("/bin/true", ["true"])
    assert os.waitpid(child, 0)[1] == 0
    assert read(path) == b"Content"


def test_scripts_run(d):
    write(d / "script", b"#!/bin/sh\nexit 7\n", 0o755)
    assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(d / "script", ["script"], {}), 0)[1]) == 7
    os.chmod(d / "script", 0o644)
    with fails(errno.EACCES):
        os.posix_spawn(d / "script", ["script"], {})


def test_tmpfile_has_no_name_until_it_is_linked(d):
    fd = supported(lambda: os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640), "O_TMPFILE")
    try:
        assert os.listdir(d) == []
        found = os.fstat(fd)
        assert found.st_nlink == 0 and stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
        os.write(fd, b"unnamed")
        assert os.pread(fd, 99, 0) == b"unnamed"
        call("linkat", -100, f"/proc/self/fd/{fd}", -100, d / "name", 0x400)
        assert os.fstat(fd).st_nlink == 1
        assert os.stat(d / "name").st_ino == found.st_ino
    finally:
        os.close(fd)
    assert read(d / "name") == b"unnamed" and mode_of(d / "name") == 0o640


def test_tmpfile_goes_when_it_is_closed(d):
    with closing(supported(lambda: os.open(d, os.O_TMPFILE | os.O_WRONLY, 0o600), "O_TMPFILE")) as fd:
        os.write(fd, b"x" * 100_000)
    assert os.listdir(d) == []
    os.rmdir(d)


def test_tmpfile_with_excl_is_never_linked(d):
    flags = os.O_TMPFILE | os.O_RDWR | os.O_EXCL
    with closing(supported(lambda: os.open(d, flags, 0o600), "O_TMPFILE")) as fd, fails(errno.ENOENT):
        call("linkat", -100, f"/proc/self/fd/{fd}", -100, d / "name", 0x400)


def test_tmpfile_wants_a_directory_and_writing(d):
    supported(lambda: os.close(os.open(d, os.O_TMPFILE | os.O_RDWR)), "O_TMPFILE")
    write(d / "file")
    with fails(errno.EINVAL):
        os.open(d, os.O_TMPFILE | os.O_RDONLY)
    with fails(errno.ENOTDIR):
        os.open(d / "file", os.O_TMPFILE | os.O_RDWR)
    with fails(errno.ENOENT):
        os.open(d / "nothing", os.O_TMPFILE | os.O_RDWR)


def test_a_path_handle_reads_nothing_but_leads_on(d):
    write(d / "file", b"content", 0o600)
    with opened(d / "file", os.O_PATH) as fd:
        for attempt in [lambda: os.read(fd, 1), lambda: os.write(fd, b"x"), lambda: os.fchmod(fd, 0o644),
                        lambda: os.fchown(fd, -1, -1), lambda: os.ftruncate(fd, 0)]:
            with fails(errno.EBADF, errno.EINVAL):
                attempt()
        assert os.fstat(fd).st_size == 7
        with opened(f"/proc/self/fd/{fd}") as real:
            assert os.read(real, 9) == b"content"
    with opened(d, os.O_PATH | os.O_DIRECTORY) as fd, opened("file", dir_fd=fd) as inside:
        assert os.read(inside, 9) == b"content"


def test_open_again_through_proc_gives_a_handle_of_its_own(files):
    path = files.make(b"content")
    with opened(path) as fd, opened(f"/proc/self/fd/{fd}", os.O_RDWR) as other:
        os.lseek(fd, 3, os.SEEK_SET)
        assert os.read(other, 3) == b"con" and os.read(fd, 9) == b"tent"
        os.pwrite(other, b"C", 0)
        assert os.pread(fd, 7, 0) == b"Content"


def test_direct_io(files):
    path = files.make(bytes(8192))
    fd = os.open(path, os.O_RDWR)
    os.close(fd)
    try:
        fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    except OSError as error:
        assert error.errno == errno.EINVAL
        pytest.skip("no O_DIRECT here")
    with closing(fd), mmap.mmap(-1, 8192) as block, opened(path) as cached:
        assert os.pread(cached, 9, 4096) == bytes(9)
        block[:] = b"direct.." * 1024
        assert os.pwritev(fd, [block], 4096) == 8192
        assert os.pread(cached, 8, 4096) == b"direct.."
        block[:] = bytes(8192)
        assert os.preadv(fd, [block], 4096) == 8192 and block[:] == b"direct.." * 1024
        assert os.preadv(fd, [block], 8192) == 4096
        assert os.preadv(fd, [block], 12288) == 0
    assert read(path) == bytes(4096) + b"direct.." * 1024


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
def test_synchronous_writes(files, flag):
    path = files.make(b"start")
    with opened(path, os.O_WRONLY | os.O_APPEND | flag) as fd:
        for i in range(3):
            os.write(fd, b"%d" % i)
    assert read(path) == b"start012"


def test_access_modes_hold_for_the_handle(files):
    path = files.make(b"content")
    with opened(path) as fd:
        with fails(errno.EBADF):
            os.write(fd, b"x")
        with fails(errno.EINVAL, errno.EBADF):
            os.ftruncate(fd, 0)
    with opened(path, os.O_WRONLY) as fd, fails(errno.EBADF):
        os.read(fd, 1)


def test_two_opens_have_two_offsets_and_a_dup_shares_one(files):
    path = files.make(b"0123456789")
    with opened(path) as first, opened(path) as second, closing(os.dup(first)) as copy:
        assert os.read(first, 4) == b"0123"
        assert os.read(second, 2) == b"01"
        assert os.read(copy, 2) == b"45"
        assert os.lseek(first, 0, os.SEEK_CUR) == 6


@NEEDS_ROOT
@pytest.mark.parametrize("mode", MODES, ids=oct)
def test_who_may_read_and_write(files, mode):
    """Owner, group, other, each with the three ways to open; the first class that fits decides."""
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, mode)
    for uid, gid, groups, shift in [(ALICE, STAFF, (), 6), (ALICE, GUESTS, (), 6), (BOB, STAFF, (), 3),
                                    (BOB, GUESTS, (STAFF,), 3), (CAROL, GUESTS, (), 0)]:
        bits = mode >> shift & 7
        with user(uid, gid, groups):
            for flags, need in [(os.O_RDONLY, 4), (os.O_WRONLY, 2), (os.O_RDWR, 6), (os.O_RDONLY | os.O_TRUNC, 6),
                                (os.O_CREAT | os.O_WRONLY, 2)]:
                if bits & need == need:
                    if not flags & os.O_TRUNC:
                        os.close(os.open(path, flags))
                else:
                    with fails(errno.EACCES):
                        os.open(path, flags)
    assert read(path) == b"content"


@NEEDS_ROOT
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o500, 0o300, 0o100, 0o700, 0o070, 0o007])
def test_what_a_directory_lets_do(d, mode):
    """Listing takes r, passing takes x, making and removing take w and x."""
    path = d / "directory"
    os.mkdir(path)
    for uid in [ALICE, BOB, CAROL]:
        write(path / f"of-{uid}", b"x")
        write(path / f"old-{uid}", b"x")
    write(path / "file", b"x")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, mode)
    for uid, shift in [(ALICE, 6), (BOB, 3), (CAROL, 0)]:
        may_read, may_write, may_pass = (bool(mode >> shift & bit) for bit in (4, 2, 1))
        with user(uid, GUESTS if uid == CAROL else STAFF):
            for allowed, attempt in [(may_read, lambda: os.listdir(path)),
                                     (may_pass, lambda: os.stat(path / "file")),
                                     (may_pass, lambda: os.close(os.open(path / "file", os.O_RDONLY))),
                                     (may_pass, lambda: os.chdir(path)),
                                     (may_write and may_pass, lambda: write(path / f"by-{uid}")),
                                     (may_write and may_pass, lambda: os.rename(path / f"of-{uid}", path / f"was-{uid}")),
                                     (may_write and may_pass, lambda: os.unlink(path / f"old-{uid}"))]:
                if allowed:
                    attempt()
                else:
                    with fails(errno.EACCES):
                        attempt()
        os.chdir("/")


@NEEDS_ROOT
def test_root_passes_all_but_execution(d):
    os.mkdir(d / "directory", 0o000)
    path = write(d / "directory/file", b"#!/bin/sh\n", 0o000)
    assert read(path) == b"#!/bin/sh\n"
    write(path, b"#!/bin/sh\nexit 3\n")
    with fails(errno.EACCES):
        os.posix_spawn(path, ["file"], {})


@NEEDS_ROOT
def test_new_files_belong_to_the_caller(d):
    os.chmod(d, 0o777)
    with user(ALICE, GUESTS, (STAFF,)):
        write(d / "file")
        os.mkdir(d / "directory")
        os.symlink("x", d / "link")
        os.mkfifo(d / "fifo")
    for name in ["file", "directory", "link", "fifo"]:
        found = os.lstat(d / name)
        assert (found.st_uid, found.st_gid) == (ALICE, GUESTS)


@NEEDS_ROOT
def test_noatime_is_for_the_owner(d):
    path = write(d / "file", b"x", 0o666)
    with user(ALICE), fails(errno.EPERM):
        os.open(path, os.O_RDONLY | os.O_NOATIME)
    os.chown(path, ALICE, STAFF)
    with user(ALICE):
        os.close(os.open(path, os.O_RDONLY | os.O_NOATIME))


@NEEDS_ROOT
def test_rights_are_checked_at_open_and_stay_with_the_handle(files, d):
    path = files.make(b"content")
    os.chmod(path, 0o666)
    with user(ALICE):
        fd = os.open(path, os.O_RDWR)
    with closing(fd):
        os.chmod(path, 0o000)
        with user(ALICE):
            assert os.pread(fd, 99, 0) == b"content"
            assert os.pwrite(fd, b"C", 0) == 1
            with fails(errno.EACCES):
                os.open(path, os.O_RDONLY)
    assert read(path) == b"Content"


@NEEDS_ROOT
def test_sticky_world_writable_directories_protect_files_from_creat(d):
    """fs.protected_regular: O_CREAT of somebody else's file there may be refused; without O_CREAT it opens."""
    os.chmod(d, 0o1777)
    with user(ALICE):
        write(d / "file", b"x", 0o666)
    with user(BOB):
        os.close(os.open(d / "file", os.O_WRONLY))


def test_leases_and_dnotify_do_no_harm(d):
    path = write(d / "file", b"x")
    with opened(path) as fd:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            assert error.errno in (errno.EINVAL, errno.EAGAIN, errno.EOPNOTSUPP)


def test_a_process_inherits_handles(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        assert in_child(lambda: os.read(fd, 4).decode()) == "0123"
        assert os.read(fd, 2) == b"45"
        in_child(lambda: os.write(fd, b"child"))
        assert os.pread(fd, 99, 0) == b"012345child"
