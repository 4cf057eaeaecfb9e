"""System calls that Python's os lacks or hides, and what the cases share."""
import contextlib
import ctypes
import errno
import os
import stat
import struct
import time
from collections import namedtuple

import pytest
from excuses import lacks

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT = 1, 2, 8, 16, 32
STATX_BASIC, STATX_BTIME = 0x7FF, 0x800

ROOT = os.geteuid() == 0
NEEDS_ROOT = pytest.mark.skipif(not ROOT, reason="acts as several users, which only root can")

ALICE, BOB, CAROL = 65501, 65502, 65503  # users without names
STAFF, GUESTS = 65601, 65602             # groups without names

REALTIME_COARSE = 5  # the clock that kernels stamp files from

PAGE = os.sysconf("SC_PAGE_SIZE")

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(name, *arguments):
    """Calls libc's function; integers are passed as long, names as bytes. Raises OSError."""
    ctypes.set_errno(0)
    converted = [ctypes.c_long(value) if isinstance(value, int) else
                 os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value for value in arguments]
    function = getattr(libc, name)
    if name in ("getdents64", "sync_file_range"):
        function.restype = ctypes.c_long
    result = function(*converted)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


@contextlib.contextmanager
def fails(*numbers):
    """The block ends with an OSError of one of these numbers."""
    wanted = " or ".join(errno.errorcode[number] for number in numbers)
    try:
        yield
    except OSError as error:
        found = errno.errorcode.get(error.errno, error.errno)
        assert error.errno in numbers, f"{found} instead of {wanted}"
    else:
        pytest.fail(f"success instead of {wanted}")


@contextlib.contextmanager
def user(uid, gid=STAFF, groups=()):
    """The block runs as somebody else."""
    before = os.getgroups()
    os.setgroups([gid, *groups])
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def closing(*fds):
    """Closes descriptors at the end of the block; gives one, or all."""
    try:
        yield fds if len(fds) > 1 else fds[0]
    finally:
        for fd in fds:
            os.close(fd)


def opened(path, flags=os.O_RDONLY, mode=0o644, dir_fd=None):
    return closing(os.open(path, flags, mode, dir_fd=dir_fd))


def in_child(function):
    """Runs it in a child process: its result as text, or its OSError here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            os.close(reader)
            text = f"={function()}"
        except OSError as error:
            text = f"!{error.errno}"
        except BaseException as error:  # an assertion: its words are all that the parent can show
            text = f"?{type(error).__name__}: {error}"
            code = 1
        os.write(writer, text.encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    if text[:1] == "!":
        raise OSError(int(text[1:]), os.strerror(int(text[1:])))
    assert text[:1] == "=", text
    return text[1:]


def become(uid, gid=STAFF, groups=()):
    """For good, with real, effective and saved ids: in a child."""
    os.setgroups([gid, *groups])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def write(path, data=b"", mode=None):
    """Makes a file, and closes it."""
    with open(path, "wb", buffering=0) as file:
        assert file.write(data) == len(data)
    if mode is not None:
        os.chmod(path, mode)
    return path


def read(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def exists(path):
    return os.path.lexists(path)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def links_of(path):
    return os.lstat(path).st_nlink


def make(kind, path):
    """Makes something of a kind: file, directory, symlink, fifo, socket, char, block."""
    makers = {"file": lambda: write(path, b"content"), "directory": lambda: os.mkdir(path),
              "symlink": lambda: os.symlink("nowhere", path), "fifo": lambda: os.mkfifo(path, 0o644),
              "socket": lambda: os.mknod(path, stat.S_IFSOCK | 0o644),
              "char": lambda: os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 3)),
              "block": lambda: os.mknod(path, stat.S_IFBLK | 0o644, os.makedev(7, 200))}
    makers[kind]()
    return path


KINDS = ["file", "directory", "symlink", "fifo", "socket"] + (["char", "block"] if ROOT else [])
NON_DIRECTORIES = [kind for kind in KINDS if kind != "directory"]


def renameat2(old, new, flags):
    call("renameat2", AT_FDCWD, old, AT_FDCWD, new, flags)


def fallocate(fd, mode, offset, size):
    call("fallocate", fd, mode, offset, size)


def utimensat(path, atime, mtime, flags=0):
    """Times as (seconds, nanoseconds), or UTIME_NOW, or UTIME_OMIT."""
    pairs = [time if isinstance(time, tuple) else (0, time) for time in (atime, mtime)]
    call("utimensat", AT_FDCWD, path, struct.pack("=qqqq", *pairs[0], *pairs[1]), flags)


def birth_time_ns(path):
    buffer = ctypes.create_string_buffer(256)
    call("statx", AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer)
    mask, = struct.unpack_from("=I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, 80)
    return seconds * 10**9 + nanoseconds if mask & STATX_BTIME else None


Entry = namedtuple("Entry", "ino next type name")


def getdents(fd, size=4096):
    """One call's worth of entries; next is the offset to lseek to for what follows."""
    buffer = ctypes.create_string_buffer(size)
    filled = call("getdents64", fd, buffer, size)
    found, at = [], 0
    while at < filled:
        ino, following, length, kind = struct.unpack_from("=QqHB", buffer, at)
        name = ctypes.string_at(ctypes.addressof(buffer) + at + 19)
        found.append(Entry(ino, following, kind, name))
        at += length
    return found


def all_entries(fd, size=32768):
    found = []
    while part := getdents(fd, size):
        found += part
    return found


def tick(*paths):
    """Waits until the clock that files are stamped from is past all times of paths: what changes then, shows."""
    latest = max((max(found.st_ctime_ns, found.st_mtime_ns) for found in map(os.lstat, paths)), default=0)
    latest = max(latest, time.clock_gettime_ns(REALTIME_COARSE))
    deadline = time.monotonic() + 60
    while time.clock_gettime_ns(REALTIME_COARSE) <= latest:
        assert time.monotonic() < deadline, "a file has a time in the future"


class Times:
    """The times of files before something happens, to say after it which have moved."""

    def __init__(self, *paths):
        tick(*paths)
        self.before = {path: os.lstat(path) for path in paths}

    def moved(self, path, now=None):
        """Which of a, m, c differ; none may go back."""
        before, now = self.before[path], now or os.lstat(path)
        moved = ""
        for letter, field in ("a", "st_atime_ns"), ("m", "st_mtime_ns"), ("c", "st_ctime_ns"):
            difference = getattr(now, field) - getattr(before, field)
            assert difference >= 0, f"{field} of {path} went back by {-difference} ns"
            moved += letter if difference else ""
        return moved


def supported(function, what):
    """Its result; where this file system does not have the feature at all, that needs an excuse."""
    try:
        return function()
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            lacks(what)
        raise
