"""flock(2), and locks of ranges: fcntl(2) by process and by open file."""
import contextlib
import errno
import fcntl
import os
import struct
import time

import catalogs
import pytest
from calls import closing, fails, in_child, opened
from excuses import lacks

OFD_SETLK, OFD_GETLK = 37, 36


def locked(fd, kind, start=0, size=0, command=fcntl.F_SETLK):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, size, 0))


def holder(fd, kind, start=0, size=0, command=fcntl.F_GETLK):
    """The lock in the way: (kind, start, size, pid), or None."""
    found = struct.unpack("hhqqi4x", fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, size, 0)))
    return None if found[0] == fcntl.F_UNLCK else (found[0], found[2], found[3], found[4])


@contextlib.contextmanager
def process(function):
    """A child that runs function, and is ended after the block; the block starts once it says that it is ready."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            function(lambda: os.write(writer, b"r"))
            os._exit(0)
        except BaseException:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"r"
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        os.close(reader)


def stay(fd, lock):
    def run(ready):
        lock()
        ready()
        time.sleep(60)
    return run


def test_flock_between_handles(files):
    path = files.make(b"content")
    with opened(path) as one, opened(path, os.O_WRONLY) as two, closing(os.dup(one)) as copy:
        fcntl.flock(one, fcntl.LOCK_SH)
        fcntl.flock(two, fcntl.LOCK_SH)
        with fails(errno.EWOULDBLOCK):
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_UN)
        fcntl.flock(copy, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the same open file as one
        with fails(errno.EWOULDBLOCK):
            fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with opened(path) as three:
        fcntl.flock(three, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_flock_between_processes_and_at_their_end(d, files):
    path = files.make(b"content")
    mine = os.open(path, os.O_RDWR)
    with closing(mine):
        def take(ready):
            other = os.open(path, os.O_RDWR)
            fcntl.flock(other, fcntl.LOCK_EX)
            ready()
            time.sleep(60)

        with process(take) as child:
            with fails(errno.EWOULDBLOCK):
                fcntl.flock(mine, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.kill(child, 9)
            os.waitpid(child, 0)
            fcntl.flock(mine, fcntl.LOCK_EX)


def test_flock_on_directories_and_inherited(d):
    with opened(d) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        in_child(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))  # one open file, in two processes
        with opened(d) as other, fails(errno.EWOULDBLOCK):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_ranges_between_processes(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        with process(stay(fd, lambda: locked(fd, fcntl.F_WRLCK, 10, 10))) as child:
            assert holder(fd, fcntl.F_RDLCK) == (fcntl.F_WRLCK, 10, 10, child)
            assert holder(fd, fcntl.F_WRLCK, 0, 10) is None and holder(fd, fcntl.F_WRLCK, 20, 0) is None
            for number, kind in [(15, fcntl.F_RDLCK), (19, fcntl.F_WRLCK)]:
                with fails(errno.EAGAIN, errno.EACCES):
                    locked(fd, kind, number, 1)
            locked(fd, fcntl.F_WRLCK, 0, 10)
            locked(fd, fcntl.F_WRLCK, 20, 0)
        locked(fd, fcntl.F_WRLCK)  # its death freed it


def test_shared_ranges_and_changing_them(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        with process(stay(fd, lambda: locked(fd, fcntl.F_RDLCK, 0, 100))):
            locked(fd, fcntl.F_RDLCK, 50, 100)
            with fails(errno.EAGAIN, errno.EACCES):
                locked(fd, fcntl.F_WRLCK, 50, 10)
            locked(fd, fcntl.F_WRLCK, 100, 50)
            locked(fd, fcntl.F_UNLCK, 0, 0)


def test_any_close_drops_the_locks_of_a_process(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        locked(fd, fcntl.F_WRLCK)
        with fails(errno.EAGAIN, errno.EACCES):
            in_child(lambda: locked(fd, fcntl.F_WRLCK))
        os.close(os.open(path, os.O_RDONLY))
        in_child(lambda: locked(fd, fcntl.F_WRLCK))


def test_locks_are_not_inherited_and_need_the_right_mode(files):
    path = files.make(b"x")
    with opened(path) as fd:
        with fails(errno.EBADF):
            locked(fd, fcntl.F_WRLCK)
        locked(fd, fcntl.F_RDLCK)
    with opened(path, os.O_WRONLY) as fd, fails(errno.EBADF):
        locked(fd, fcntl.F_RDLCK)


def test_a_waiter_gets_the_lock(files):
    path = files.make(b"x")
    with opened(path, os.O_RDWR) as fd:
        locked(fd, fcntl.F_WRLCK)

        def wait(ready):
            ready()
            locked(fd, fcntl.F_WRLCK, command=fcntl.F_SETLKW)
            os.pwrite(fd, b"!", 0)

        with process(wait) as child:
            locked(fd, fcntl.F_UNLCK)
            assert os.waitpid(child, 0)[1] == 0
        assert os.pread(fd, 1, 0) == b"!"


def test_a_deadlock_is_found(files):
    if catalogs.KIND == "many":
        lacks("deadlocks of locks")
    path = files.make(b"xy")
    with opened(path, os.O_RDWR) as fd:
        locked(fd, fcntl.F_WRLCK, 0, 1)

        def cross(ready):
            locked(fd, fcntl.F_WRLCK, 1, 1)
            ready()
            locked(fd, fcntl.F_WRLCK, 0, 1, fcntl.F_SETLKW)

        with process(cross) as child:
            deadline = time.monotonic() + 60
            while b"-> POSIX" not in open("/proc/locks", "rb").read() and time.monotonic() < deadline:
                time.sleep(0.005)  # until it waits
            with fails(errno.EDEADLK):
                locked(fd, fcntl.F_WRLCK, 1, 1, fcntl.F_SETLKW)
            locked(fd, fcntl.F_UNLCK)
            assert os.waitpid(child, 0)[1] == 0


def test_locks_of_open_files(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as one, opened(path, os.O_RDWR) as two, closing(os.dup(one)) as copy:
        locked(one, fcntl.F_WRLCK, 0, 5, OFD_SETLK)
        with fails(errno.EAGAIN, errno.EACCES):
            locked(two, fcntl.F_WRLCK, 4, 2, OFD_SETLK)
        assert holder(two, fcntl.F_WRLCK, 0, 0, OFD_GETLK) == (fcntl.F_WRLCK, 0, 5, -1)
        locked(copy, fcntl.F_WRLCK, 4, 2, OFD_SETLK)
        with fails(errno.EAGAIN, errno.EACCES):
            locked(two, fcntl.F_WRLCK, 5, 1)  # a process lock against it
        os.close(os.open(path, os.O_RDWR))  # does not drop it
        with fails(errno.EAGAIN, errno.EACCES):
            locked(two, fcntl.F_WRLCK, 0, 1, OFD_SETLK)
        locked(one, fcntl.F_UNLCK, 0, 0, OFD_SETLK)
        locked(two, fcntl.F_WRLCK, 0, 0, OFD_SETLK)


def test_lockf_and_unlinked_files(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        os.unlink(path)
        os.lockf(fd, os.F_LOCK, 4)
        with fails(errno.EAGAIN, errno.EACCES):
            in_child(lambda: (os.lseek(fd, 0, os.SEEK_SET), os.lockf(fd, os.F_TLOCK, 1)))
        os.lockf(fd, os.F_ULOCK, 4)
        in_child(lambda: (os.lseek(fd, 0, os.SEEK_SET), os.lockf(fd, os.F_TLOCK, 1)))


@pytest.mark.parametrize("kind", [fcntl.F_RDLCK, fcntl.F_WRLCK])
def test_refused_ranges(files, kind):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        with fails(errno.EINVAL):
            locked(fd, kind, -1, 1)
        with fails(errno.EINVAL, errno.EOVERFLOW):
            locked(fd, kind, 5, -6)
        locked(fd, kind, 5, -5)
        locked(fd, kind, 2**62, 0)
