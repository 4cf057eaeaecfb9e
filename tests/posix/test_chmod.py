"""chmod(2) and chown(2) with their relatives: who may, and what they clear."""
import errno
import os
import stat

import pytest
from calls import (ALICE, AT_EMPTY_PATH, BOB, GUESTS, KINDS, NEEDS_ROOT, STAFF, Times, call, fails, make, mode_of, opened, read,
                   user, write)

ALL_MODES = [0o000, 0o001, 0o070, 0o444, 0o755, 0o1777, 0o2755, 0o4711, 0o6777, 0o7777]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "symlink"])
def test_chmod_sets_all_bits_of_anything(d, kind):
    path = make(kind, d / "it")
    before = os.stat(path)
    for mode in ALL_MODES:
        times = Times(path)
        os.chmod(path, mode)
        assert mode_of(path) == mode and times.moved(path) == "c"
        assert stat.S_IFMT(os.stat(path).st_mode) == stat.S_IFMT(before.st_mode)
    os.chmod(path, 0o755)


def test_fchmod(files):
    path = files.make(b"content")
    with opened(path) as fd:
        for mode in ALL_MODES:
            os.fchmod(fd, mode)
            assert stat.S_IMODE(os.fstat(fd).st_mode) == mode == mode_of(path)
    assert read(path) == b"content"


def test_fchmod_after_unlink(files):
    path = files.make(b"content")
    with opened(path) as fd:
        os.unlink(path)
        os.fchmod(fd, 0o741)
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o741


def test_chmod_follows_links_and_links_have_no_mode_of_their_own(d):
    write(d / "file", b"", 0o644)
    os.symlink("file", d / "link")
    os.chmod(d / "link", 0o600)
    assert mode_of(d / "file") == 0o600
    try:
        call("fchmodat", -100, d / "link", 0o640, 0x100)
        assert mode_of(d / "link") == 0o640  # some kernels let it
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP
    assert mode_of(d / "file") == 0o600


def test_chmod_of_what_is_not_there(d):
    write(d / "file")
    os.symlink("nowhere", d / "dangling")
    for name, number in [("nothing", errno.ENOENT), ("dangling", errno.ENOENT), ("file/x", errno.ENOTDIR)]:
        with fails(number):
            os.chmod(d / name, 0o600)
        with fails(number):
            os.chown(d / name, -1, -1)


@NEEDS_ROOT
def test_only_the_owner_changes_the_mode(d):
    path = write(d / "file", b"", 0o666)
    os.chown(path, ALICE, STAFF)
    with user(BOB, STAFF), fails(errno.EPERM):
        os.chmod(path, 0o600)
    with user(ALICE, GUESTS):
        os.chmod(path, 0o600)
    assert mode_of(path) == 0o600


@NEEDS_ROOT
def test_chmod_needs_a_way_to_the_file(d):
    os.mkdir(d / "directory", 0o700)
    path = write(d / "directory/file")
    os.chown(path, ALICE, STAFF)
    with user(ALICE), fails(errno.EACCES):
        os.chmod(path, 0o600)
    with user(ALICE), fails(errno.EACCES):
        os.chown(path, -1, STAFF)


@NEEDS_ROOT
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_sgid_is_for_members_of_the_group(d, kind):
    """chmod by an owner outside of the file's group drops the bit, silently."""
    path = make(kind, d / "it")
    os.chown(path, ALICE, STAFF)
    with user(ALICE, GUESTS):
        os.chmod(path, 0o2755)
    assert mode_of(path) == 0o755
    with user(ALICE, GUESTS, (STAFF,)):
        os.chmod(path, 0o2755)
    assert mode_of(path) == 0o2755
    with user(ALICE, GUESTS):
        os.chmod(path, 0o2750)
    assert mode_of(path) == 0o750


@NEEDS_ROOT
def test_sticky_is_for_everybody(d):
    path = write(d / "file")
    os.chown(path, ALICE, STAFF)
    with user(ALICE):
        os.chmod(path, 0o1644)
    assert mode_of(path) == 0o1644


@NEEDS_ROOT
@pytest.mark.parametrize("kind", KINDS)
def test_chown_by_root(d, kind):
    path = make(kind, d / "it")
    for uid, gid, expected in [(ALICE, STAFF, (ALICE, STAFF)), (BOB, -1, (BOB, STAFF)), (-1, GUESTS, (BOB, GUESTS)),
                               (2**32 - 2, 2**31, (2**32 - 2, 2**31)), (0, 0, (0, 0))]:
        times = Times(path)
        os.lchown(path, uid, gid)
        found = os.lstat(path)
        assert (found.st_uid, found.st_gid) == expected and times.moved(path) == "c"


@NEEDS_ROOT
def test_chown_of_nothing_changes_nothing(d):
    path = write(d / "file", b"x")
    os.chown(path, ALICE, STAFF)
    os.chown(path, -1, -1)
    found = os.stat(path)
    assert (found.st_uid, found.st_gid) == (ALICE, STAFF)


@NEEDS_ROOT
def test_fchown_and_links(d):
    path = write(d / "file", b"x")
    os.symlink("file", d / "link")
    os.chown(d / "link", ALICE, STAFF)
    assert os.stat(path).st_uid == ALICE and os.lstat(d / "link").st_uid == 0
    os.lchown(d / "link", BOB, GUESTS)
    assert os.stat(path).st_uid == ALICE and os.lstat(d / "link").st_uid == BOB
    with opened(path) as fd:
        os.fchown(fd, BOB, -1)
        assert os.fstat(fd).st_uid == BOB
    with opened(d / "link", os.O_PATH | os.O_NOFOLLOW) as fd:
        call("fchownat", fd, "", ALICE, STAFF, AT_EMPTY_PATH)
    assert os.lstat(d / "link").st_uid == ALICE
    assert os.readlink(d / "link") == "file"


@NEEDS_ROOT
def test_users_give_nothing_away(d):
    path = write(d / "file", b"x", 0o666)
    os.chown(path, ALICE, STAFF)
    with user(ALICE, STAFF, (GUESTS,)):
        with fails(errno.EPERM):
            os.chown(path, BOB, -1)
        with fails(errno.EPERM):
            os.chown(path, -1, 12345)
        os.chown(path, ALICE, -1)
        os.chown(path, -1, GUESTS)
    assert os.stat(path).st_gid == GUESTS
    with user(BOB, STAFF, (GUESTS,)):
        for uid, gid in [(BOB, -1), (-1, STAFF), (ALICE, -1)]:
            with fails(errno.EPERM):
                os.chown(path, uid, gid)
    found = os.stat(path)
    assert (found.st_uid, found.st_gid) == (ALICE, GUESTS)


@NEEDS_ROOT
@pytest.mark.parametrize("by_root", [True, False])
@pytest.mark.parametrize(("mode", "after"), [(0o6755, 0o755), (0o4755, 0o755), (0o2755, 0o755), (0o2745, 0o2745),
                                             (0o6644, 0o2644), (0o6711, 0o711), (0o1755, 0o1755)])
def test_chown_takes_setuid_and_setgid_from_programs(files, mode, after, by_root):
    """setgid without group execution marks mandatory locks of old, and stays for root and for members of the group."""
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, mode)
    if by_root:
        os.chown(path, BOB, GUESTS)
    else:
        with user(ALICE, STAFF, (GUESTS,)):
            os.chown(path, -1, GUESTS)
    found = mode_of(path)
    assert found == after or (not by_root and found == after & ~0o2000)
    assert read(path) == b"content"


@NEEDS_ROOT
def test_chown_leaves_the_bits_of_directories(d):
    os.mkdir(d / "directory")
    os.chmod(d / "directory", 0o7755)
    os.chown(d / "directory", ALICE, STAFF)
    assert mode_of(d / "directory") == 0o7755


@NEEDS_ROOT
@pytest.mark.parametrize("how", ["write", "pwrite", "append", "truncate", "ftruncate", "O_TRUNC", "fallocate", "mmap-free"])
def test_writing_by_others_takes_setuid_and_setgid(files, how):
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o6777)
    with user(BOB, GUESTS):
        if how == "truncate":
            os.truncate(path, 3)
        elif how == "mmap-free":
            os.close(os.open(path, os.O_RDWR))
        else:
            flags = {"append": os.O_APPEND, "O_TRUNC": os.O_TRUNC}.get(how, 0)
            with opened(path, os.O_WRONLY | flags) as fd:
                {"write": lambda: os.write(fd, b"x"), "pwrite": lambda: os.pwrite(fd, b"x", 3),
                 "append": lambda: os.write(fd, b"x"), "ftruncate": lambda: os.ftruncate(fd, 2),
                 "fallocate": lambda: os.posix_fallocate(fd, 0, 100), "O_TRUNC": lambda: None}[how]()
    assert mode_of(path) == (0o6777 if how == "mmap-free" else 0o777)


@NEEDS_ROOT
def test_writing_by_the_owner_takes_them_too_and_by_root_does_not(files):
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o4755)
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"root")
    assert mode_of(path) == 0o4755
    with user(ALICE), opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"own")
    assert mode_of(path) == 0o755
    assert read(path) == b"owntent"


@NEEDS_ROOT
def test_a_write_that_fails_or_is_empty_takes_nothing(files):
    path = files.make(b"content")
    os.chmod(path, 0o4777)
    with user(BOB), opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"")
    assert mode_of(path) == 0o4777


@NEEDS_ROOT
def test_setgid_without_group_execution_survives_writing_by_a_member(files):
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o2766)
    with user(BOB, STAFF), opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"x")
    assert mode_of(path) == 0o2766


@NEEDS_ROOT
def test_setuid_programs_run_as_their_owner(d):
    """Where the mount honours it at all: with nosuid the bit is kept but has no effect."""
    program = write(d / "id", open("/usr/bin/id", "rb").read())
    os.chown(program, ALICE, STAFF)
    os.chmod(program, 0o4755)
    nosuid = os.statvfs(d).f_flag & os.ST_NOSUID
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresgid(GUESTS, GUESTS, GUESTS)
        os.setresuid(BOB, BOB, BOB)
        os.dup2(writer, 1)
        os.execv(program, ["id", "-u"])
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == f"{BOB if nosuid else ALICE}\n"
    os.waitpid(child, 0)


@NEEDS_ROOT
def test_a_setgid_directory_hands_its_group_down(d):
    os.mkdir(d / "directory")
    os.chown(d / "directory", 0, GUESTS)
    os.chmod(d / "directory", 0o2777)
    with user(ALICE, STAFF):
        write(d / "directory/file")
        os.mkdir(d / "directory/inner", 0o700)
        os.symlink("x", d / "directory/link")
        os.mkfifo(d / "directory/fifo")
    for name in ["file", "inner", "link", "fifo"]:
        found = os.lstat(d / "directory" / name)
        assert (found.st_uid, found.st_gid) == (ALICE, GUESTS)
    assert mode_of(d / "directory/inner") == 0o2700
    assert mode_of(d / "directory/file") == 0o644
    with user(ALICE, STAFF):
        os.mkdir(d / "directory/inner/deeper")
    assert os.stat(d / "directory/inner/deeper").st_gid == GUESTS
    assert mode_of(d / "directory/inner/deeper") == 0o2755


@NEEDS_ROOT
def test_a_program_made_with_setgid_in_a_foreign_group_loses_the_bit(d):
    os.chown(d, 0, GUESTS)
    os.chmod(d, 0o2777)
    with user(ALICE, STAFF):
        os.close(os.open(d / "program", os.O_CREAT | os.O_WRONLY, 0o2755))
        os.close(os.open(d / "no-program", os.O_CREAT | os.O_WRONLY, 0o2745))
    assert mode_of(d / "program") == 0o755
    assert mode_of(d / "no-program") in (0o745, 0o2745)


@NEEDS_ROOT
def test_access_asks_for_the_real_ids_and_faccessat_for_the_effective(d):
    path = write(d / "file", b"x", 0o640)
    os.chown(path, ALICE, STAFF)
    with user(ALICE):
        assert os.access(path, os.R_OK | os.W_OK, effective_ids=True)
        assert not os.access(path, os.X_OK, effective_ids=True)
        assert os.access(path, os.R_OK | os.W_OK)  # root's
    with user(BOB, STAFF):
        assert os.access(path, os.R_OK, effective_ids=True)
        assert not os.access(path, os.W_OK, effective_ids=True)
    with user(BOB, GUESTS):
        assert os.access(path, os.F_OK, effective_ids=True)
        assert not os.access(path, os.R_OK, effective_ids=True)
    assert os.access(path, os.W_OK) and not os.access(path, os.X_OK)
    assert not os.access(d / "nothing", os.F_OK)
