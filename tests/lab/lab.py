"""Real parts for the integration tests: sshd processes, a bad network, archives, mounts, and what a tree contains.

Everything started here is ended here, by its process id. Whatever writes a log registers it with `logs`, and a failing
test shows the ends of all of them (see conftest.py).
"""
import contextlib
import ctypes
import errno
import functools
import hashlib
import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import catalogs
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
os.environ["PATH"] += ":/usr/sbin:/sbin"  # where users do not look for servers
BUILD = Path(os.environ.get("ECFS_BUILD", REPOSITORY / "build")).resolve()
PROGRAM = BUILD / "tools/ecfs"  # or BUILD / "tests/lab/ecfs-flawed", see tests/lab/flawed.h
NAMES = ["amber", "birch", "cedar", "delta", "ember", "fjord"]
ROOT = os.geteuid() == 0

# From <sys/mount.h>, by the kernel's words for them.
MOUNT_FLAGS = {"ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024}
MS_REMOUNT = 32

LATE = 0.05  # of the time that was waited, that until() may see late what it waits for, ...
PAUSE_MOST = 0.25  # ... and never more than so many seconds

logs = {}  # what wrote it -> Path
places = set()  # directories in which tests mount


def until(condition, timeout, what, pause=0.02):
    """Waits until condition() is true and returns its value; fails after timeout seconds. pause: between two looks, in the
    beginning: who waits longer looks less often, as a look may be a process, which takes the time of what is waited for."""
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"not within {timeout} s: {what() if callable(what) else what}")
        time.sleep(max(pause, min(waited * LATE, PAUSE_MOST)))


def run(*command, timeout=120, check=True, **options):
    """A finished process with text in .stdout and .stderr; check: its failure is the test's."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="surrogateescape",
                          timeout=timeout, stdin=subprocess.DEVNULL, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done


def free_port():
    """One that no connection takes for its own end, as it could take others while their server is away."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def processes():
    """Number and /proc/PID/status, as a dictionary, of every process.

    Not /proc/PID/stat: newer kernels keep that locked while a process is within execve, which one that closes a file on
    a hanging mount there never leaves.
    """
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                lines = (entry / "status").read_text(errors="replace").splitlines()
                yield int(entry.name), dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def descendants(pid):
    """All processes below pid, children first found through /proc (sshd's sessions leave its process group)."""
    children = {}
    for number, status in processes():
        children.setdefault(int(status["PPid"]), []).append(number)
    found, left = [], [pid]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def signal_all(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def lives(pid):
    """A process that has ended and whose parent does not ask for it has nothing open any more."""
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(errors="replace")
    return False


def end_all(pids):
    """Kills these processes and waits for their ends: until then they may have a port that answers."""
    signal_all(pids, signal.SIGKILL)
    until(lambda: not any(map(lives, pids)), 60, "killed processes end", pause=0.005)


class Keys:
    """A key pair for the user and a known_hosts file that servers add themselves to."""

    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.identity = directory / "id_ed25519"
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.touch(mode=0o600)
        make_key(self.identity)
        self.public = self.identity.with_suffix(".pub").read_text()

    def know(self, host, port, public):
        """Makes known_hosts say that this is the key of host:port, and no other."""
        name = f"[{host}]:{port} "
        lines = [line for line in self.known_hosts.read_text().splitlines() if not line.startswith(name)]
        kind, key = public.split()[:2]
        self.known_hosts.write_text("\n".join([*lines, f"{name}{kind} {key}", ""]))


def make_key(path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", path)


class Sshd:
    """One sshd with its own host key, port and root directory, run by whoever runs the tests.

    start() returns when it answers. kill() ends its sessions too, as if the machine were gone; start() then brings it
    back on the same port.
    """

    def __init__(self, directory, name, keys, address="127.0.0.1"):
        self.name, self.keys, self.directory, self.address = name, keys, directory, address
        directory.mkdir(parents=True)
        self.root = directory / "root"
        self.log = directory / "log"
        self.host_key = directory / "host_key"
        self.process = None
        self.subsystem = "internal-sftp"  # with its options; of the next start
        self.port = 0
        make_key(self.host_key)
        (directory / "authorized_keys").write_text(keys.public)
        logs[f"sshd {name}"] = self.log

    def url(self, path=None, port=None):
        return f"sftp://{pwd.getpwuid(os.geteuid()).pw_name}@{self.address}:{port or self.port}{path or self.root}"

    def endpoint(self, path=None, port=None):
        """As `ecfs init --endpoint` takes it; port: of a proxy in front."""
        return (f"{self.name}={self.url(path, port)},identity_file={self.keys.identity},"
                f"known_hosts={self.keys.known_hosts}")

    def know(self, port=None):
        self.keys.know(self.address, port or self.port, self.host_key.with_suffix(".pub").read_text())

    def start(self):
        """Listens again, on the same port once it had one; another program may take a free port before us, so retry."""
        assert self.process is None
        self.port = until(lambda: self._start_on(self.port or free_port()), 60, f"sshd {self.name} starts", pause=0.1)
        self.know()

    def _start_on(self, port):
        """The port, or None: somebody else has it."""
        if ROOT:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # its empty chroot; init would have made it
        config = self.directory / "config"
        # Against what OpenSSH prefers, which takes each side 20 ms of a processor, test_ssh.c connects.
        config.write_text("\n".join([
            "KexAlgorithms curve25519-sha256",
            f"ListenAddress {self.address}:{port}", f"HostKey {self.host_key}", "PidFile none", "StrictModes no",
            f"AuthorizedKeysFile {self.directory}/authorized_keys", "PubkeyAuthentication yes", "UsePAM no",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes",
            "MaxStartups 200", "MaxSessions 200", "LogLevel VERBOSE", f"Subsystem sftp {self.subsystem}", ""]))
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"  # it wants to be started by its full path
        before = size_of(self.log)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        until(lambda: self.process.poll() is not None or self._listens(before) and self._answers(port), 60,
              f"sshd {self.name} on port {port}")
        if self.process.poll() is None:
            return port
        self.process = None
        return None

    def _listens(self, before):
        """Whether it says so behind the first bytes of its log; else it may be another one that answers."""
        return b"Server listening" in self.log.read_bytes()[before:]

    def _answers(self, port):
        try:
            with socket.create_connection((self.address, port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _all(self):
        return [self.process.pid, *descendants(self.process.pid)]

    def suspend(self):
        """Connections stay open and nothing answers."""
        signal_all(self._all(), signal.SIGSTOP)

    def resume(self):
        signal_all(self._all(), signal.SIGCONT)

    def kill(self):
        if self.process is None:
            return
        os.kill(self.process.pid, signal.SIGSTOP)  # no new session while we look for the old ones
        end_all(self._all())
        self.process.wait()
        self.process = None

    def restart(self):
        self.kill()
        self.start()


class Proxy:
    """lab-proxy in front of a port; see `lab-proxy` for its commands."""

    def __init__(self, port, listen_port=0):
        self.process = subprocess.Popen([BUILD / "tests/lab/lab-proxy", "127.0.0.1", str(port), str(listen_port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        word, _, number = self.process.stdout.readline().partition(" ")
        assert word == "port", "lab-proxy does not start"
        self.port = int(number)

    def tell(self, *words):
        """Gives a command; what it answers after "ok"."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer.split(" ")[0] == "ok", f"lab-proxy: {words}: {answer}"
        return answer[3:]

    def status(self):
        """connections, up, down (bytes) as a dictionary."""
        return {key: int(value) for key, value in (pair.split("=") for pair in self.tell("status").split())}

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Behind:
    """An sshd that is reached through a proxy."""

    def __init__(self, server, proxy):
        self.server, self.proxy, self.name = server, proxy, server.name
        self.root = server.root

    def endpoint(self):
        return self.server.endpoint(port=self.proxy.port)


class Directory:
    """A file:// endpoint; kill() moves its root away, start() brings it back."""

    def __init__(self, directory, name):
        self.name = name
        directory.mkdir(parents=True, exist_ok=True)
        self.root = directory / name
        self.away = directory / f"{name}.away"

    def endpoint(self):
        return f"{self.name}=file://{self.root}"

    def kill(self):
        if self.root.exists():
            self.root.rename(self.away)

    def start(self):
        if self.away.exists():
            self.away.rename(self.root)


class Disk:
    """A disk of a known size, mounted on a directory: a tmpfs."""

    def __init__(self, path, size_bytes):
        if not ROOT:
            pytest.skip("only root can mount a small disk")
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "ecfs-lab", path)

    def free_bytes(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, leave_bytes=0):
        """Somebody else takes all but so much."""
        with open(self.path / "filler", "ab", buffering=0) as file:
            while (left := self.free_bytes() - leave_bytes) > 0:
                try:
                    file.write(bytes(min(left, 1 << 20)))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break

    def empty(self):
        (self.path / "filler").unlink()

    def remove(self):
        run("umount", "-l", self.path, check=False)


def files_below(root):
    """All files there; what a mount moves or removes meanwhile may be missing."""
    return sorted(Path(directory, name) for directory, _, names in os.walk(root) for name in names)


def size_of(path):
    """In bytes; 0: it is gone."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def stripe_files(endpoint):
    """The files below an endpoint's root that hold stripes."""
    return files_below(endpoint.root / "stripes") + files_below(endpoint.root / "incoming")


def stripes_of_one_object(endpoints):
    """A stripe at each of them, all of the same object: the last object of a file may be in fewer places."""
    files = [{path.name.partition("-")[0]: path for path in stripe_files(endpoint)} for endpoint in endpoints]
    name = min(set.intersection(*map(set, files)))
    return [paths[name] for paths in files]


AS_USERS = "as users"  # a word for init, which is not passed on: the key is kept as it is if nothing is said


class AllKeyed:
    """What key archives have that tests make without saying --key: none, as many look at what endpoints have, are over
    few of them, or change their code. With AS_USERS, and so in tests marked as_users, they have what users get.

    With ECFS_TEST_KEYS=yes every archive has a key: shared by its endpoints, so that these alone bring it back, or
    where they are too few, in a file that outlives the archive's directory as users' do. To look for what a key
    breaks: tests that go on to codes which survive more than the first one are refused that."""

    def __init__(self):
        self.is_on = os.environ.get("ECFS_TEST_KEYS") == "yes"
        self.keys = {}  # endpoint as it was given -> bytes

    def run(self, words, **options):
        if AS_USERS in words:
            return run(PROGRAM, *[word for word in words if word != AS_USERS], **options)
        if words[:1] not in (["init"], ["recover"]) or "--key" in words:
            return run(PROGRAM, *words, **options)
        if not self.is_on:
            return run(PROGRAM, *words, *(["--key", "none"] if words[0] == "init" else []), **options)
        if words[0] == "init":
            done = run(PROGRAM, *words, "--key", "split", **options | {"check": False})
            if "cannot be shared" in done.stderr:
                return self._init_with_file(words, **options)
            return done if done.returncode == 0 else run(PROGRAM, *words, **options)  # fails as it did
        keys = [self.keys[word] for word in words if word in self.keys]
        if not keys:
            return run(PROGRAM, *words, **options)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "key"
            path.write_bytes(keys[0])
            path.chmod(0o600)
            return run(PROGRAM, *words, "--key", path, **options)

    def _init_with_file(self, words, **options):
        done = run(PROGRAM, *words, "--key", "file", **options)
        if done.returncode == 0:
            key = (Path(words[1]) / "key").read_bytes()
            self.keys |= {word: key for before, word in zip(words, words[1:]) if before == "--endpoint"}
        return done


all_keyed = AllKeyed()

# Of tests that make stripes, journals or descriptors themselves, or look at digests, which are others with a key.
unkeyed = pytest.mark.skipif(all_keyed.is_on, reason="about archives without a key")


def ecfs(*arguments, **options):
    """Runs the program; options as of run()."""
    assert PROGRAM.exists(), f"{PROGRAM} is missing: build first (meson setup build && ninja -C build), or set ECFS_BUILD"
    words = [str(part) for part in arguments]
    more = catalogs.words(words)
    done = all_keyed.run([*words, *more], **options | ({"check": False} if more else {}))
    if more and catalogs.makes_way(done):
        done = all_keyed.run([*words, *more], **options | {"check": False})
    if more and options.get("check", True):
        assert done.returncode == 0, f"exit {done.returncode}: ecfs {' '.join([*words, *more])}\n{done.stdout}{done.stderr}"
    return done


def schemes():
    """Of endpoints' URLs: those that this build has, and those that it was built without."""
    told = re.search(r"^endpoints +([\w, ]+)(?:; built without ([\w, ]+))?$", ecfs("--version").stdout, flags=re.M)
    return [names.split(", ") if names else [] for names in told.groups()]


class Archive:
    """An archive directory with its endpoints, and the verbs on it."""

    def __init__(self, path, endpoints, code="rs:4+2"):
        self.path, self.endpoints, self.code = path, endpoints, code

    def init(self, *words, **options):
        arguments = [word for endpoint in self.endpoints for word in ("--endpoint", endpoint.endpoint())]
        return ecfs("init", self.path, "--code", self.code, *words, *arguments, **options)

    def __getitem__(self, name):
        return next(endpoint for endpoint in self.endpoints if endpoint.name == name)

    def put(self, *arguments, **options):
        return ecfs("put", self.path, *arguments, **options)

    def put_in_full(self, *arguments):
        """Again, if some stripes are missing for once, as of an endpoint that is slow: nothing fills up what a put left.
        Of a directory that gets another name, what is in it: the second time, it would go into that of the first."""
        *sources, target = arguments
        if target != "/":
            sources = [f"{source}/." if isinstance(source, Path) and source.is_dir() else source for source in sources]
        until(lambda: "fewer stripes" not in self.put(*sources, target).stderr, 120, "it is stored in full")

    def get(self, *arguments, **options):
        return ecfs("get", self.path, *arguments, **options)

    def await_stored(self, *arguments):
        """Until `ecfs wait` succeeds: it fails where it meets an endpoint that is still thought down, or is slow today."""
        said = []

        def is_stored():
            done = ecfs("wait", "--unmounted", self.path, *arguments, check=False)
            said[:] = [done.stderr]
            return done.returncode == 0
        until(is_stored, 180, lambda: f"all is stored: {said[0]}", pause=0.2)

    def json(self, verb, *arguments):
        return json.loads(ecfs(verb, self.path, *arguments, "--json").stdout)

    def configure(self, section, **settings):
        """Sets keys of ecfs.conf; section as in the file: "archive", "endpoint amber"."""
        config = self.path / "ecfs.conf"
        lines = config.read_text().splitlines()
        at = lines.index(f"[{section}]") + 1
        ours = tuple(f"{key} " for key in settings) + tuple(f"{key}=" for key in settings)
        end = next((i for i in range(at, len(lines)) if lines[i].startswith("[")), len(lines))
        kept = [line for line in lines[at:end] if not line.startswith(ours)]
        added = [f"{key} = {value}" for key, value in settings.items()]
        config.write_text("\n".join([*lines[:at], *added, *kept, *lines[end:], ""]))


def is_mounted(path):
    """Also when its daemon is dead and nothing below it answers."""
    return any(line.split()[1] == str(path) for line in Path("/proc/self/mounts").read_text().splitlines())


def detach(path):
    """Takes a mount out of the way, whatever state it is in."""
    if is_mounted(path):
        command = ["umount", "-l"] if ROOT else ["fusermount3", "-u", "-z"]
        run(*command, path)


class Mount:
    """`ecfs mount -f`; start() returns when it serves. path is the mountpoint."""

    count = 0

    def __init__(self, archive, path, *options):
        Mount.count += 1
        self.archive, self.path, self.options = archive, path, options
        self.log = archive.path.parent / f"mount-{Mount.count}.log"
        self.process = None
        path.mkdir(exist_ok=True)
        logs[f"mount {Mount.count}"] = self.log

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "mount", str(self.archive.path), str(self.path), "-f", *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.mounted() or self.process.poll() is not None, 120, "the mount serves")
        assert self.process.poll() is None, f"mount ended with {self.process.returncode}:\n{self.log.read_text()}"

    def mounted(self):
        return is_mounted(self.path)

    def text(self):
        return self.log.read_text(errors="replace")

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    def umount(self, timeout=120):
        """Drains and unmounts; the daemon must have ended well."""
        ecfs("umount", self.path, timeout=timeout)
        assert self.process.wait(timeout) == 0, self.text()
        self.process = None

    def kill(self):
        """kill -9, and the dead mount out of the way."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        detach(self.path)


class Watch(threading.Thread):
    """The largest resident memory of the mount while the body runs."""

    def __init__(self, mount):
        super().__init__()
        self.mount, self.over, self.peak = mount, threading.Event(), 0

    def run(self):
        while not self.over.wait(0.05):
            self.peak = max(self.peak, self.mount.resident_bytes())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def drop_caches():
    """Empties the page cache of the whole machine, for a measurement; tests need only forget_mounts ()."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError as error:
        pytest.skip(f"the page cache cannot be dropped here ({error.strerror}), and a read from it would prove nothing")


def forget_mounts():
    """Empties the kernel's caches of what is mounted in places, so that the next read is a read from endpoints."""
    libc = ctypes.CDLL(None, use_errno=True)
    devices = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if " - fuse.ecfs " not in line or not any(fields[4].startswith(f"{place}/") for place in places):
            continue
        # Mounted once more it gives up every name, and with it the pages of each file that nobody has open. mount(8)
        # would ask the daemon, which may be dead.
        flags = functools.reduce(int.__or__, (MOUNT_FLAGS.get(word, 0) for word in fields[5].split(",")), MS_REMOUNT)
        if libc.mount(b"none", fields[4].encode(), None, ctypes.c_ulong(flags), None) != 0:
            reason = os.strerror(ctypes.get_errno())
            pytest.skip(f"caches cannot be emptied here ({reason}), and a read from them would prove nothing")
        devices.add(fields[2])
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # it may be closed by now
            found = os.fstat(number)
            if stat.S_ISREG(found.st_mode) and f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}" in devices:
                os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)


def digest(path):
    found = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def attributes(path):
    """The extended attributes a user set."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:  # the file system has none
        return {}
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names if name.startswith("user.")}


def describe(path, content=True):
    """What must be the same of a file in two places."""
    found = os.lstat(path)
    facts = {"type": stat.S_IFMT(found.st_mode), "mode": oct(stat.S_IMODE(found.st_mode)),
             "owner": (found.st_uid, found.st_gid), "mtime_ns": found.st_mtime_ns, "xattrs": attributes(path)}
    if stat.S_ISLNK(found.st_mode):
        facts["target"] = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        facts |= {"size": found.st_size, "links": found.st_nlink}
        if content:
            facts["digest"] = digest(path)
    return facts


def describe_tree(root, content=True):
    """Facts of everything below root by relative path; hard links as the group of paths that share an inode."""
    facts, groups = {}, {}
    for directory, names, files in os.walk(root):
        for name in sorted(names + files):
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, root)
            facts[relative] = describe(path, content)
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                groups.setdefault(found.st_ino, []).append(relative)
    for group in groups.values():
        for relative in group:
            facts[relative]["linked"] = sorted(group)
    return facts


def assert_same_tree(expected, found):
    """Compares what describe_tree returned; says the first differences, not both trees."""
    wrong = [f"missing: {path}" for path in sorted(expected.keys() - found.keys())]
    wrong += [f"unexpected: {path}" for path in sorted(found.keys() - expected.keys())]
    for path in sorted(expected.keys() & found.keys()):
        keys = sorted(expected[path].keys() | found[path].keys())
        wrong += [f"{path}: {key} is {found[path].get(key)}, not {expected[path].get(key)}" for key in keys
                  if expected[path].get(key) != found[path].get(key)]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])


def write_pattern(path, size, seed=0):
    """Writes size bytes that differ from place to place, cheaply; returns their digest."""
    block = bytearray(hashlib.shake_128(seed.to_bytes(8, "little")).digest(1 << 20))
    found = hashlib.blake2b(digest_size=16)
    with open(path, "wb", buffering=0) as file:
        for offset in range(0, size, len(block)):
            block[:8] = offset.to_bytes(8, "little")
            piece = memoryview(block)[:min(len(block), size - offset)]
            found.update(piece)
            assert file.write(piece) == len(piece)
    return found.hexdigest()


def flip(path, offset):
    """Changes one byte of a file in place."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))


REAL_TREES = ["/usr/include", "/usr/share/doc"]


def real_tree(target, n_files):
    """Copies n_files real files or some more to target, directory by directory; makes up what the system lacks."""
    count = 0
    for top in map(Path, REAL_TREES):
        for directory in sorted(filter(Path.is_dir, top.iterdir())) if top.is_dir() else []:
            if count >= n_files * (1 + REAL_TREES.index(str(top))) / len(REAL_TREES):
                break
            inside = [] if directory.is_symlink() else directory.rglob("*")
            n_inside = sum(path.is_file() and not path.is_symlink() for path in inside)
            if n_inside > n_files:  # some systems have a directory of 14,000
                continue
            copy = target / top.name / directory.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            run("cp", "-a", directory, copy, check=False)  # dangling and unreadable entries do not matter
            count += n_inside
    for i in range(count, n_files):
        made = target / f"made/{i % 50}/file-{i}"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(hashlib.shake_128(str(i).encode()).digest(i * 37 % 20000))


def add_oddities(target):
    """What real trees have too seldom: links of both kinds, odd names, modes and times, sizes around the limits."""
    odd = target / "odd"
    odd.mkdir(parents=True)
    for size in [0, 1, 16383, 16384, 16385, 2 << 20, (2 << 20) + 1, 9_000_001]:
        write_pattern(odd / f"size-{size}", size, size)
    (odd / "name with spaces, \"quotes\" and \n a newline").write_text("x")
    (odd / os.fsdecode(b"latin-1-\xe9-is-no-utf-8")).write_text("y")
    (odd / ("long-" + "n" * 250)).write_text("z")
    os.link(odd / "size-16385", odd / "hard link")
    (odd / "directory").mkdir(mode=0o711)
    os.link(odd / "size-16385", odd / "directory/another hard link")
    (odd / "link").symlink_to("size-16385")
    (odd / "dangling").symlink_to("/nowhere/" + "t" * 200)
    (odd / "empty directory").mkdir()
    os.chmod(odd / "size-1", 0o4755)
    os.chmod(odd / "size-0", 0o400)
    os.utime(odd / "size-1", ns=(1_000_000_001, 1_234_567_890_123_456_789))
    os.utime(odd / "link", ns=(5, 987_654_321), follow_symlinks=False)
    if ROOT:
        os.chown(odd / "size-16383", 1234, 4321)
        os.lchown(odd / "dangling", 1234, 4321)
    with contextlib.suppress(OSError):  # a tmpfs of older kernels has none
        os.setxattr(odd / "size-16384", "user.note", b"\x00binary\xff")
    os.utime(odd / "empty directory", ns=(1, 1_111_111_111_111_111_111))
    settle(target)


def settle(target):
    """Makes everything a day old: rsync leaves times alone that differ by less than a second, as new ones do."""
    for directory, names, files in os.walk(target, topdown=False):
        for name in [*files, *names]:
            path = os.path.join(directory, name)
            found = os.lstat(path)
            if found.st_mtime > time.time() - 3600:
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - 86_400 * 10**9), follow_symlinks=False)
