"""Random operations on a mount and on a plain directory have the same outcomes and leave the same trees.

ECFS_MODEL_OPERATIONS says how many; ECFS_SEED=N for others than usual.
"""
import collections
import contextlib
import ctypes
import errno
import mmap
import os
import random
import stat

import lab
import pytest

OPERATIONS = int(os.environ.get("ECFS_MODEL_OPERATIONS", 8000))
SEED = int(os.environ.get("ECFS_SEED", 1))
STRETCH = 200  # operations between two comparisons of the trees
HANDLES = 8
KIB = 1 << 10
USERS = [0, 0, 0, 4001, 4002] if lab.ROOT else [os.geteuid()]
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
KEEP_SIZE, PUNCH_HOLE = 1, 2


def rename(old, new, flags):
    if LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), "rename")


def punch(file, offset, size):
    if LIBC.fallocate(file, KEEP_SIZE | PUNCH_HOLE, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def write_mapped(file, offset, data, flush):
    """As much of it as the file has bytes there; what there was before."""
    found = os.fstat(file)
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    if offset >= size:
        return None
    end = min(offset + len(data), size)
    with mmap.mmap(file, size) as mapped:
        before = mapped[offset:end]
        mapped[offset:end] = data[:end - offset]
        if flush:
            mapped.flush()
        return before


@contextlib.contextmanager
def as_user(user):
    """What the body does to files is done by this user, who is in his own group and in 4000."""
    if user == os.geteuid():
        yield
        return
    groups = os.getgroups()
    os.setgroups([4000])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


class When(int):
    """A time in nanoseconds, equal to one a few seconds apart: both sides do everything at about the same time."""

    def __eq__(self, other):
        return abs(self - other) < 10 * 10**9

    __hash__ = None


def facts(found):
    """What must be the same of two files, of what stat(2) tells."""
    kind = stat.S_IFMT(found.st_mode)
    size = found.st_size if kind in (stat.S_IFREG, stat.S_IFLNK) else None
    device = found.st_rdev if kind in (stat.S_IFCHR, stat.S_IFBLK) else None
    return (oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, size, device, When(found.st_mtime_ns))


def tree(root):
    """All of it: facts by path, with content and attributes."""
    found = {".": lab.describe(root)} | lab.describe_tree(root)
    for name, entry in found.items():
        entry["stat"] = facts(os.lstat(os.path.join(root, name)))
        del entry["mtime_ns"]  # exactly so; stat says it well enough
    return found


class Side:
    """The mount or the plain directory: where it is, and what is open in it by number."""

    def __init__(self, root):
        self.root, self.open = root, {}

    def close_all(self):
        for file in self.open.values():
            os.close(file)
        self.open.clear()


class Model:
    """Makes up operations: each is a description and a function that is called with one side after the other."""

    def __init__(self, numbers, sides):
        self.numbers, self.sides = numbers, sides
        self.handles, self.known, self.n_done, self.n_opened = [], [], 0, 0
        self.history = collections.deque(maxlen=40)
        self.outcomes = collections.Counter()
        self.operations = [(getattr(self, f"op_{name}"), weight) for name, weight in [
            ("open", 14), ("close", 7), ("read", 6), ("write", 14), ("truncate", 4), ("ftruncate", 3), ("allocate", 2),
            ("punch", 2), ("map", 3), ("copy", 2), ("fsync", 1), ("rename", 10), ("link", 5), ("link_handle", 1),
            ("symlink", 4), ("unlink", 7), ("mkdir", 7), ("rmdir", 4), ("mknod", 2), ("chmod", 4), ("fchmod", 1),
            ("chown", 4), ("utime", 4), ("setxattr", 4), ("getxattr", 2), ("removexattr", 2), ("list", 4), ("stat", 5),
            ("fstat", 3), ("readlink", 1), ("access", 2)]]

    # Choices

    def chance(self, one_in):
        return self.numbers.randrange(one_in) == 0

    def path(self):
        """Half of the time one that was there lately."""
        if self.n_done % 20 == 0:
            top = self.sides[1].root
            self.known = sorted(os.path.relpath(os.path.join(directory, name), top)
                                for directory, *lists in os.walk(top) for names in lists for name in names)
        if self.known and self.chance(2):
            return self.numbers.choice(self.known)
        depth = self.numbers.choice([1, 1, 2, 2, 2, 3])
        names = [self.numbers.choice("abcdefg") for _ in range(depth)]
        if self.chance(60):
            names[-1] = self.numbers.choice(["n" * 255, "n" * 256, "\udce9\n", "."])
        return "/".join(names)

    def mode(self):
        mode = self.numbers.choice([0o777, 0o777, 0o755, 0o644, 0o600, 0o666, 0o1777, 0o2775, 0o4755, 0o6711, 0o000])
        return mode if os.geteuid() == 0 else mode | 0o700  # who compares the trees has to see them

    def size(self):
        return self.numbers.choice([0, 1, 100, 4096, 16 * KIB, 16 * KIB + 1, 70_000, 256 * KIB, 300_001])

    def data(self):
        size = self.size()
        return bytes(size) if self.chance(8) else self.numbers.randbytes(16) * (size // 16) + b"x" * (size % 16)

    def handle(self):
        return self.numbers.choice(self.handles) if self.handles else None

    def follow(self):
        return not self.chance(4)

    # Operations on what is open

    def op_open(self):
        path, mode, number = self.path(), self.mode(), self.n_opened
        flags = self.numbers.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR])
        for flag, one_in in [(os.O_CREAT, 2), (os.O_EXCL, 6), (os.O_TRUNC, 5), (os.O_APPEND, 5), (os.O_NOFOLLOW, 10),
                             (os.O_DIRECTORY, 15), (os.O_SYNC, 20)]:
            flags |= flag if self.chance(one_in) else 0
        if flags & os.O_DIRECTORY:
            flags &= ~os.O_CREAT
        flags |= os.O_NONBLOCK  # pipes
        if len(self.handles) >= HANDLES:
            return self.op_close()
        with contextlib.suppress(OSError):
            kind = stat.S_IFMT(os.stat(os.path.join(self.sides[1].root, path)).st_mode)
            if kind in (stat.S_IFCHR, stat.S_IFBLK):
                return None  # a mount has no devices for anybody
        self.n_opened += 1

        def action(side):
            side.open[number] = os.open(path, flags, mode)
            if number not in self.handles:
                self.handles.append(number)
        return f"open {path} {flags:#o} {mode:#o} as {number}", action

    def op_close(self):
        number = self.handle()
        if number is None:
            return None
        self.handles.remove(number)
        return f"close {number}", lambda side: os.close(side.open.pop(number))

    def on_handle(self, words, action):
        """An operation on a random one of those that are open."""
        number = self.handle()
        if number is None:
            return None
        return f"{words} of {number}", lambda side: action(side.open[number])

    def op_read(self):
        offset, size = self.size(), self.size()
        return self.on_handle(f"read {size} at {offset}", lambda file: os.pread(file, size, offset))

    def op_write(self):
        offset, data = self.size(), self.data()
        return self.on_handle(f"write {len(data)} at {offset}", lambda file: os.pwrite(file, data, offset))

    def op_ftruncate(self):
        size = self.size()
        return self.on_handle(f"ftruncate to {size}", lambda file: os.ftruncate(file, size))

    def op_allocate(self):
        offset, size = self.size(), self.size()
        return self.on_handle(f"allocate {size} at {offset}", lambda file: os.posix_fallocate(file, offset, size))

    def op_punch(self):
        offset, size = self.size(), self.size()
        return self.on_handle(f"punch {size} at {offset}", lambda file: punch(file, offset, size))

    def op_map(self):
        offset, data, flush = self.size(), self.data(), self.chance(2)
        return self.on_handle(f"map and write {len(data)} at {offset}, flush {flush}",
                              lambda file: write_mapped(file, offset, data, flush))

    def op_copy(self):
        source, target, count = self.handle(), self.handle(), self.size()
        come_from, go_to = self.size(), self.size()

        def action(side):
            done = 0
            while done < count:
                part = os.copy_file_range(side.open[source], side.open[target], count - done, come_from + done,
                                          go_to + done)
                if part == 0:
                    break
                done += part
            return done
        return source is not None and (f"copy {count} at {come_from} of {source} to {go_to} of {target}", action)

    def op_fsync(self):
        return self.on_handle("fsync", os.fsync)

    def op_fchmod(self):
        mode = self.mode()
        return self.on_handle(f"fchmod {mode:#o}", lambda file: os.fchmod(file, mode))

    def op_fstat(self):
        return self.on_handle("fstat", lambda file: facts(os.fstat(file)))

    def op_link_handle(self):
        number, path = self.handle(), self.path()
        if number is None:
            return None
        return f"link {number} {path}", lambda side: os.link(f"/proc/self/fd/{side.open[number]}", path,
                                                             follow_symlinks=True)

    # Operations on names

    def op_truncate(self):
        path, size = self.path(), self.size()
        return f"truncate {path} to {size}", lambda side: os.truncate(path, size)

    def op_rename(self):
        old, new, flags = self.path(), self.path(), self.numbers.choice([0, 0, 0, NOREPLACE, EXCHANGE])
        return f"rename {old} {new} {flags}", lambda side: rename(old, new, flags)

    def op_link(self):
        old, new, follow = self.path(), self.path(), self.follow()
        return f"link {old} {new} {follow}", lambda side: os.link(old, new, follow_symlinks=follow)

    def op_symlink(self):
        path, target = self.path(), self.numbers.choice(["a", "b", "./c", "d/e", ".", "nowhere", "t" * 1000])
        return f"symlink {target:.20} {path}", lambda side: os.symlink(target, path)

    def op_unlink(self):
        path = self.path()
        return f"unlink {path}", lambda side: os.unlink(path)

    def op_mkdir(self):
        path, mode = self.path(), self.mode()
        return f"mkdir {path} {mode:#o}", lambda side: os.mkdir(path, mode)

    def op_rmdir(self):
        path = self.path()
        return f"rmdir {path}", lambda side: os.rmdir(path)

    def op_mknod(self):
        path, mode = self.path(), self.mode() & 0o777
        kind, device = self.numbers.choice([(stat.S_IFIFO, 0), (stat.S_IFSOCK, 0), (stat.S_IFREG, 0),
                                            (stat.S_IFCHR, os.makedev(1, 3)), (stat.S_IFBLK, os.makedev(259, 70_000))])
        return f"mknod {path} {kind | mode:#o}", lambda side: os.mknod(path, kind | mode, device)

    def op_chmod(self):
        path, mode = self.path(), self.mode()
        return f"chmod {path} {mode:#o}", lambda side: os.chmod(path, mode)

    def op_chown(self):
        path, follow = self.path(), self.follow()
        user, group = self.numbers.choice([-1, *USERS]), self.numbers.choice([-1, 4000, *USERS])
        return f"chown {path} {user} {group}", lambda side: os.chown(path, user, group, follow_symlinks=follow)

    def op_utime(self):
        path, follow = self.path(), self.follow()
        times = {} if self.chance(3) else {"ns": tuple(self.numbers.randrange(-10**18, 3 * 10**18) for _ in range(2))}
        return f"utime {path} {times}", lambda side: os.utime(path, **times, follow_symlinks=follow)

    def attribute(self):
        return self.numbers.choice(["user.a", "user.b", "user." + "n" * 200, "trusted.t", "user.", "nowhere.x"])

    def op_setxattr(self):
        path, name, value, follow = self.path(), self.attribute(), self.numbers.randbytes(5), self.follow()
        flags = self.numbers.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])
        return (f"setxattr {path} {name:.20} {flags}",
                lambda side: os.setxattr(path, name, value, flags, follow_symlinks=follow))

    def op_getxattr(self):
        path, name, follow = self.path(), self.attribute(), self.follow()
        return (f"getxattr {path} {name:.20}",
                lambda side: os.getxattr(path, name, follow_symlinks=follow))

    def op_removexattr(self):
        path, name, follow = self.path(), self.attribute(), self.follow()
        return (f"removexattr {path} {name:.20}",
                lambda side: os.removexattr(path, name, follow_symlinks=follow))

    def op_list(self):
        path = self.path()

        def action(side):
            with os.scandir(path) as entries:
                return sorted((entry.name, entry.is_symlink(), entry.is_dir(follow_symlinks=False))
                              for entry in entries)
        return f"list {path}", action

    def op_stat(self):
        path, follow = self.path(), self.follow()
        return f"stat {path} {follow}", lambda side: facts(os.stat(path, follow_symlinks=follow))

    def op_readlink(self):
        path = self.path()
        return f"readlink {path}", lambda side: os.readlink(path)

    def op_access(self):
        path, mode = self.path(), self.numbers.choice([os.R_OK, os.W_OK, os.X_OK])
        return f"access {path} {mode}", lambda side: os.access(path, mode, effective_ids=True)

    # Doing them

    @staticmethod
    def outcome(action, side, user):
        """Paths are relative: other users need not be let in to where the tests are."""
        before = os.open(".", os.O_RDONLY)
        os.chdir(side.root)
        try:
            with as_user(user):
                return action(side)
        except OSError as error:
            return errno.errorcode[error.errno]
        finally:
            os.fchdir(before)
            os.close(before)

    def step(self):
        made = None
        while not made:
            operation, = self.numbers.choices(*zip(*self.operations))
            made = operation()
        words, action = made
        user, mask = self.numbers.choice(USERS), self.numbers.choice([0o022, 0o022, 0, 0o027])
        os.umask(mask)
        outcomes = [self.outcome(action, side, user) for side in self.sides]
        os.umask(0o022)
        self.n_done += 1
        self.outcomes[operation.__name__, outcomes[1] if isinstance(outcomes[1], str) else "done"] += 1
        self.history.append(f"{self.n_done} {words} by {user}, {mask:#o}: {str(outcomes[1]):.100}")
        if outcomes[0] != outcomes[1]:
            raise self.failure(f"the mount says {outcomes[0]!r:.300}, not {outcomes[1]!r:.300}")

    def compare(self):
        expected, found = tree(self.sides[1].root), tree(self.sides[0].root)
        try:
            lab.assert_same_tree(expected, found)
        except AssertionError as error:
            raise self.failure(str(error)) from None

    def failure(self, text):
        return AssertionError("\n".join([*self.history, f"after operation {self.n_done}: {text}", f"ECFS_SEED={SEED}"]))

    def close_all(self):
        for side in self.sides:
            side.close_all()
        self.handles.clear()


def plain_directory(*candidates):
    """The first that knows all that is compared."""
    for path in candidates:
        probe = path / "probe"
        probe.mkdir()
        with contextlib.suppress(OSError):
            os.setxattr(probe, "user.probe", b"")
            rename(probe, path / "moved", NOREPLACE)
            return path
    pytest.skip(f"no attributes of users or flags of rename in {' or '.join(map(str, candidates))}")


class World:
    """A mount beside a plain directory, and what happens to the mount but not to the directory."""

    def __init__(self, place, archive, tmp_path, numbers):
        self.archive, self.numbers, self.down = archive, numbers, None
        self.mount = place.mount(archive, *(["-o", "allow_other"] if lab.ROOT else []))
        plain = plain_directory(tmp_path, place.path)
        sides = [Side(self.mount.path / "root"), Side(plain / "root")]
        for side in sides:
            side.root.mkdir()
            side.root.chmod(0o777)
        self.model = Model(numbers, sides)

    def remount(self):
        self.model.close_all()
        self.mount.umount()
        self.mount.start()

    def change_endpoints(self):
        """One of two endpoints goes, or comes back; the six others are enough for new content while it is thought down."""
        if self.down:
            self.down.start()
            self.down = None
        else:
            self.down = self.numbers.choice(self.archive.endpoints[:2])
            self.down.kill()

    def all_back(self):
        if self.down:
            self.change_endpoints()

    def happen(self):
        what = self.numbers.randrange(5)
        self.model.history.append(f"-- {['nothing', 'remount', 'endpoints', 'endpoints', 'caches'][what]}")
        if what == 1:
            self.remount()
        elif what in (2, 3):
            self.change_endpoints()
        elif what == 4 and lab.ROOT:
            lab.forget_mounts()


@pytest.mark.long
@pytest.mark.slow
def test_mount_does_what_a_plain_directory_does(place, tmp_path):
    print(f"ECFS_SEED={SEED}")
    archive = place.archive(place.directories([*lab.NAMES, "grove", "heath"]))
    archive.configure("archive", segment_size="256K")
    world = World(place, archive, tmp_path, random.Random(SEED))
    while world.model.n_done < OPERATIONS:
        for _ in range(STRETCH):
            world.model.step()
        world.model.compare()
        world.happen()
    print(*sorted(world.model.outcomes.items()), sep="\n")
    world.all_back()
    world.remount()
    archive.await_stored()
    for endpoint in world.numbers.sample(archive.endpoints, 2):
        endpoint.kill()
    lab.forget_mounts()
    world.model.compare()
