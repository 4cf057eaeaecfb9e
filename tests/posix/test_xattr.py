"""Extended attributes, POSIX ACLs among them."""
import errno
import os
import struct

import pytest
from calls import ALICE, BOB, GUESTS, KINDS, NEEDS_ROOT, STAFF, Times, fails, make, mode_of, opened, read, supported, user, write


@pytest.fixture(autouse=True)
def needs_attributes(d):
    supported(lambda: os.setxattr(d, "user.probe", b""), "extended attributes")
    os.removexattr(d, "user.probe")


def names(path, **options):
    """What was set here; not what a security module adds."""
    return sorted(name for name in os.listxattr(path, **options) if name.startswith(("user.", "trusted.")))


def make_it(kind, d):
    return make(kind, d / "it")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_set_get_list_remove(d, kind):
    path = make_it(kind, d)
    assert names(path) == []
    for i, value in enumerate([b"plain", b"", b"\0\1\xff\n", b"x" * 1000]):
        times = Times(path)
        os.setxattr(path, f"user.{i}", value)
        assert times.moved(path) == "c"
        assert os.getxattr(path, f"user.{i}") == value
    assert names(path) == [f"user.{i}" for i in range(4)]
    os.setxattr(path, "user.0", b"replaced")
    assert os.getxattr(path, "user.0") == b"replaced"
    times = Times(path)
    os.removexattr(path, "user.0")
    assert times.moved(path) == "c"
    assert names(path) == ["user.1", "user.2", "user.3"]
    with fails(errno.ENODATA):
        os.getxattr(path, "user.0")
    with fails(errno.ENODATA):
        os.removexattr(path, "user.0")


def test_create_and_replace(d):
    path = write(d / "file")
    with fails(errno.ENODATA):
        os.setxattr(path, "user.a", b"1", os.XATTR_REPLACE)
    os.setxattr(path, "user.a", b"1", os.XATTR_CREATE)
    with fails(errno.EEXIST):
        os.setxattr(path, "user.a", b"2", os.XATTR_CREATE)
    os.setxattr(path, "user.a", b"3", os.XATTR_REPLACE)
    assert os.getxattr(path, "user.a") == b"3"
    with fails(errno.EINVAL):
        os.setxattr(path, "user.a", b"4", 1 << 10)


@pytest.mark.parametrize("size", [1, 255, 256, 4000, 65535, 65536])
def test_values_of_all_sizes(d, size):
    """Up to 64 KiB, where the file system goes that far."""
    path = write(d / "file")
    value = (b"0123456789abcdef" * 4097)[:size]
    try:
        os.setxattr(path, "user.big", value)
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.E2BIG) and size > 3000
        pytest.skip(f"no attributes of {size} bytes here")
    assert os.getxattr(path, "user.big") == value
    os.setxattr(path, "user.big", b"small")
    assert os.getxattr(path, "user.big") == b"small"


def test_a_value_above_64_kib_is_too_big(d):
    path = write(d / "file")
    with fails(errno.E2BIG):
        os.setxattr(path, "user.big", bytes(65537))
    assert names(path) == []


def test_sizes_are_asked_for_and_short_buffers_refused(d):
    from ctypes import create_string_buffer

    from calls import call
    path = write(d / "file")
    os.setxattr(path, "user.one", b"0123456789")
    os.setxattr(path, "user.two", b"")
    buffer = create_string_buffer(100)
    assert call("getxattr", path, b"user.one", buffer, 0) == 10
    assert call("getxattr", path, b"user.one", buffer, 10) == 10
    assert call("getxattr", path, b"user.two", buffer, 0) == 0
    for size in 1, 9:
        with fails(errno.ERANGE):
            call("getxattr", path, b"user.one", buffer, size)
    wanted = call("listxattr", path, buffer, 0)
    assert wanted >= 18 and call("listxattr", path, buffer, 100) == wanted
    with fails(errno.ERANGE):
        call("listxattr", path, buffer, wanted - 1)


def test_names_of_all_kinds(d):
    path = write(d / "file")
    for name in [b"user." + b"n" * 250, b"user.\xff\x80", b"user.with space", b"user.a.b.c", b"user.A", b"user.a"]:
        os.setxattr(os.fsencode(path), name, name)
        assert os.getxattr(os.fsencode(path), name) == name
    assert len(names(path)) == 6
    with fails(errno.ERANGE, errno.ENAMETOOLONG):
        os.setxattr(os.fsencode(path), b"user." + b"n" * 251, b"")
    with fails(errno.EOPNOTSUPP, errno.EINVAL):
        os.setxattr(path, "noprefix", b"")
    with fails(errno.EOPNOTSUPP):
        os.setxattr(path, "unknown.name", b"")
    with fails(errno.EINVAL, errno.EOPNOTSUPP):
        os.setxattr(path, "user.", b"")
    with fails(errno.ERANGE, errno.EINVAL):
        os.setxattr(path, "", b"")


def test_many_attributes(d):
    path = write(d / "file")
    made = []
    try:
        for i in range(200):
            os.setxattr(path, f"user.attribute-{i:03d}", b"%d" % i)
            made.append(f"user.attribute-{i:03d}")
    except OSError as error:
        assert error.errno == errno.ENOSPC and i > 20
    assert names(path) == made
    assert [os.getxattr(path, name) for name in made] == [b"%d" % i for i in range(len(made))]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("file", "directory")])
def test_user_attributes_are_for_files_and_directories(d, kind):
    path = make_it(kind, d)
    if kind == "symlink":
        os.unlink(d / "it")
        os.symlink(write(d / "file"), path)
    with fails(errno.EPERM):
        os.setxattr(path, "user.a", b"x", follow_symlinks=False)
    with fails(errno.ENODATA, errno.EPERM):
        os.getxattr(path, "user.a", follow_symlinks=False)
    assert names(path, follow_symlinks=False) == []


def test_links_are_followed_unless_told_otherwise(d):
    write(d / "file")
    os.symlink("file", d / "link")
    os.setxattr(d / "link", "user.a", b"x")
    assert os.getxattr(d / "file", "user.a") == b"x" and names(d / "link", follow_symlinks=False) == []


@NEEDS_ROOT
@pytest.mark.parametrize("kind", KINDS)
def test_trusted_attributes_are_roots(d, kind):
    path = make_it(kind, d)
    supported(lambda: os.setxattr(path, "trusted.a", b"x", follow_symlinks=False), "trusted attributes")
    assert os.getxattr(path, "trusted.a", follow_symlinks=False) == b"x"
    assert names(path, follow_symlinks=False) == ["trusted.a"]
    with user(ALICE):
        with fails(errno.EPERM):
            os.setxattr(path, "trusted.b", b"x", follow_symlinks=False)
        with fails(errno.ENODATA, errno.EPERM):
            os.getxattr(path, "trusted.a", follow_symlinks=False)
        assert names(path, follow_symlinks=False) == []


@NEEDS_ROOT
def test_who_may(d):
    path = write(d / "file", b"", 0o640)
    os.chown(path, ALICE, STAFF)
    with user(ALICE):
        os.setxattr(path, "user.a", b"x")
    with user(BOB, STAFF):
        assert os.getxattr(path, "user.a") == b"x"
        with fails(errno.EACCES):
            os.setxattr(path, "user.a", b"y")
        with fails(errno.EACCES):
            os.removexattr(path, "user.a")
    with user(BOB, GUESTS), fails(errno.EACCES):
        os.getxattr(path, "user.a")
    os.mkdir(d / "sticky")
    os.chmod(d / "sticky", 0o1777)
    with user(BOB), fails(errno.EPERM):
        os.setxattr(d / "sticky", "user.a", b"x")


def test_attributes_belong_to_the_inode_and_survive_content_changes(files, d):
    path = files.make(b"content")
    os.setxattr(path, "user.a", b"x")
    os.link(path, d / "other")
    os.rename(path, d / "renamed")
    with opened(d / "renamed", os.O_RDWR) as fd:
        os.write(fd, b"changed")
        os.setxattr(fd, "user.b", b"y")
        assert names(fd) == ["user.a", "user.b"]
        os.unlink(d / "renamed")
    with opened(d / "other", os.O_WRONLY | os.O_TRUNC):
        pass
    assert names(d / "other") == ["user.a", "user.b"] and os.getxattr(d / "other", "user.a") == b"x"
    write(d / "new")
    os.rename(d / "new", d / "other")
    assert names(d / "other") == []


CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)  # revision 2, effective: may bind low ports


@NEEDS_ROOT
@pytest.mark.parametrize("how", ["write", "truncate", "ftruncate", "O_TRUNC", "chown", "fallocate"])
def test_changing_a_program_takes_its_capabilities(files, how):
    path = files.make(b"content")
    supported(lambda: os.setxattr(path, "security.capability", CAPABILITY), "file capabilities")
    assert os.getxattr(path, "security.capability") == CAPABILITY
    os.chmod(path, 0o755)
    assert os.getxattr(path, "security.capability") == CAPABILITY
    if how == "truncate":
        os.truncate(path, 3)
    elif how == "chown":
        os.chown(path, ALICE, STAFF)
    else:
        with opened(path, os.O_WRONLY | (os.O_TRUNC if how == "O_TRUNC" else 0)) as fd:
            {"write": lambda: os.write(fd, b"x"), "ftruncate": lambda: os.ftruncate(fd, 3), "O_TRUNC": lambda: None,
             "fallocate": lambda: os.posix_fallocate(fd, 0, 100)}[how]()
    with fails(errno.ENODATA):
        os.getxattr(path, "security.capability")


@NEEDS_ROOT
def test_security_attributes_of_others(d):
    path = write(d / "file")
    supported(lambda: os.setxattr(path, "security.note", b"x"), "security attributes")
    assert os.getxattr(path, "security.note") == b"x"
    with user(ALICE), fails(errno.EPERM, errno.EACCES):
        os.setxattr(path, "security.note", b"y")


ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER = 1, 2, 4, 8, 16, 32
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def acl(*entries):
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, 0xFFFFFFFF if who is None else who)
                                           for tag, bits, who in entries)


def set_acl(path, name, value):
    supported(lambda: os.setxattr(path, name, value), "POSIX ACLs")


GRANTS_BOB = acl((ACL_USER_OBJ, 6, None), (ACL_USER, 6, BOB), (ACL_GROUP_OBJ, 4, None), (ACL_MASK, 6, None), (ACL_OTHER, 0, None))


@NEEDS_ROOT
def test_acls_grant_and_show_in_the_mode(files):
    path = files.make(b"content")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o640)
    set_acl(path, ACCESS, GRANTS_BOB)
    assert os.getxattr(path, ACCESS) == GRANTS_BOB and ACCESS in os.listxattr(path)
    assert mode_of(path) == 0o660  # the group bits are the mask
    with user(BOB, GUESTS), opened(path, os.O_RDWR) as fd:
        os.write(fd, b"by bob!")
    with user(65503, STAFF):
        os.close(os.open(path, os.O_RDONLY))
        with fails(errno.EACCES):
            os.open(path, os.O_WRONLY)
    with user(65503, GUESTS), fails(errno.EACCES):
        os.open(path, os.O_RDONLY)
    os.chmod(path, 0o640)  # narrows the mask
    with user(BOB, GUESTS), fails(errno.EACCES):
        os.open(path, os.O_WRONLY)
    with user(BOB, GUESTS):
        os.close(os.open(path, os.O_RDONLY))
        with fails(errno.EPERM):
            os.setxattr(path, ACCESS, GRANTS_BOB)
    os.removexattr(path, ACCESS)
    with user(BOB, GUESTS), fails(errno.EACCES):
        os.open(path, os.O_RDONLY)
    assert read(path) == b"by bob!"


@NEEDS_ROOT
def test_an_acl_that_says_no_more_than_the_mode_becomes_the_mode(d):
    path = write(d / "file", b"", 0o600)
    set_acl(path, ACCESS, acl((ACL_USER_OBJ, 7, None), (ACL_GROUP_OBJ, 5, None), (ACL_OTHER, 4, None)))
    assert mode_of(path) == 0o754
    assert ACCESS not in os.listxattr(path)


@NEEDS_ROOT
def test_malformed_acls_are_refused(d):
    path = write(d / "file", b"", 0o644)
    set_acl(path, ACCESS, GRANTS_BOB)
    for value in [b"", b"xx", acl((ACL_USER_OBJ, 6, None)), struct.pack("<I", 3) + GRANTS_BOB[4:], GRANTS_BOB + b"x",
                  acl((ACL_USER_OBJ, 6, None), (ACL_USER, 6, BOB), (ACL_GROUP_OBJ, 4, None), (ACL_OTHER, 0, None))]:
        with fails(errno.EINVAL, errno.EOPNOTSUPP) if value else never_mind():
            os.setxattr(path, ACCESS, value)
    with fails(errno.EACCES, errno.EINVAL):
        os.setxattr(path, DEFAULT, GRANTS_BOB)  # no directory


def never_mind():
    """An empty value removes the list, or is refused."""
    import contextlib
    return contextlib.suppress(OSError)


@NEEDS_ROOT
def test_default_acls_are_handed_down(d):
    os.mkdir(d / "directory")
    default = acl((ACL_USER_OBJ, 7, None), (ACL_USER, 7, BOB), (ACL_GROUP_OBJ, 5, None), (ACL_MASK, 7, None), (ACL_OTHER, 1, None))
    set_acl(d / "directory", DEFAULT, default)
    assert mode_of(d / "directory") == 0o755 and os.getxattr(d / "directory", DEFAULT) == default
    os.umask(0o077)  # has no say where there is a default list
    os.close(os.open(d / "directory/file", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir(d / "directory/inner", 0o777)
    os.mkfifo(d / "directory/fifo", 0o640)
    os.symlink("x", d / "directory/link")
    assert (mode_of(d / "directory/file"), mode_of(d / "directory/inner"), mode_of(d / "directory/fifo")) == (0o660, 0o771, 0o640)
    assert os.getxattr(d / "directory/inner", DEFAULT) == default
    assert os.getxattr(d / "directory/inner", ACCESS) == default
    expected = acl((ACL_USER_OBJ, 6, None), (ACL_USER, 7, BOB), (ACL_GROUP_OBJ, 5, None), (ACL_MASK, 6, None), (ACL_OTHER, 0, None))
    assert os.getxattr(d / "directory/file", ACCESS) == expected
    with user(BOB, GUESTS), opened(d / "directory/file", os.O_RDWR):
        pass
    os.removexattr(d / "directory", DEFAULT)
    os.close(os.open(d / "directory/later", os.O_CREAT | os.O_WRONLY, 0o666))
    assert mode_of(d / "directory/later") == 0o600
