"""What is compared: each system stores and fetches the same files, in its own way.

A system is set up before its turn in a round and torn down after it, with all that it stored. `works` names what it can
do, in the order in which it is done; run () does it.
"""
import contextlib
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import lab
import measure

PASSTHROUGH_SOURCES = [Path("/usr/share/doc/libfuse3-dev/examples") / f"passthrough_ll.c{end}" for end in ("", ".gz")]
RANDOM_BYTES = 64 << 10
N_RANDOM = 200


class Missing(Exception):
    """A system that cannot be measured here, and what to do about it."""


def split_code(code):
    """k and n of a code like rs:4+2."""
    family, _, numbers = code.partition(":")
    if family == "copies":
        return 1, int(numbers)
    k, m = map(int, numbers.split("+"))
    return k, k + m


def need_program(name, package):
    if shutil.which(name) is None:
        raise Missing(f"there is no {name}; apt install {package}")


def empty(directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


@contextlib.contextmanager
def built_in(build):
    """With the programs of this build."""
    before = lab.PROGRAM
    lab.PROGRAM = build / "tools/ecfs"
    try:
        yield
    finally:
        lab.PROGRAM = before


def compare(sources, path):
    """Fails unless path holds what was copied there."""
    lab.run("cmp", sources.large, path / "large", timeout=1800)
    lab.run("diff", "-r", sources.small, path / "small", timeout=1800)


class System:
    """name: of rows; servers: sshd processes it uses; base: a directory of its own; sources: what to copy."""
    works = ["in", "out", "first byte", "random 64 KiB", "cp -r", "rsync -a", "small out", "find"]
    more_works = []  # only when asked for
    ends_with_work = False  # its clients are the programs that are run for a work
    code = None  # where a system has one, it survives dead servers
    transport = "auto"  # what carries SFTP, as the option of endpoints
    part = 1     # of the large file is moved on slow links: 1/part
    build = lab.BUILD  # whose programs it runs
    key = "none"      # of an archive, as ecfs init calls it

    def __init__(self, name, base, sources):
        self.name, self.base, self.sources = name, base, sources
        self.servers = []

    def check(self):
        """Raises Missing."""

    def setup(self):
        empty(self.base)

    def teardown(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def client_pids(self):
        return []

    def settle(self):
        """Waits until what was stored is where it belongs."""

    def alive(self):
        return [server for server in self.servers if server.process is not None]

    def run(self, work):
        """Does it; returns the processor time of the programs it ran, None if it ran none."""
        return getattr(self, "do_" + work.partition(",")[0].replace(" ", "_").replace("-", ""))()


class Directory(System):
    """Programs work in self.path."""
    more_works = ["8 at a time", "rm -r"]

    def __init__(self, name, base, sources):
        super().__init__(name, base, sources)
        self.path = base / "files"

    def setup(self):
        super().setup()
        self.path.mkdir()

    def do_in(self):
        return measure.run_program(f"cp {self.sources.large} {self.path}/large")

    def do_out(self):
        return measure.run_program(f"cat {self.path}/large > /dev/null")

    def do_first_byte(self):
        with open(self.path / "large", "rb", buffering=0) as file:
            assert len(file.read(1)) == 1

    def do_random_64_KiB(self):
        size = os.path.getsize(self.path / "large")
        choice = random.Random(1)
        with open(self.path / "large", "rb", buffering=0) as file:
            for _ in range(N_RANDOM):
                assert len(os.pread(file.fileno(), RANDOM_BYTES, choice.randrange(size - RANDOM_BYTES))) == RANDOM_BYTES

    def do_cp_r(self):
        return measure.run_program(f"cp -r {self.sources.small} {self.path}/small")

    def do_rsync_a(self):
        return measure.run_program(f"rsync -a {self.sources.small}/ {self.path}/again/")

    def do_8_at_a_time(self):
        """Small files by eight writers: what counts on links with a long round trip."""
        (self.path / "eight").mkdir()
        return measure.run_program(f"ls {self.sources.small} | sed 's|^|{self.sources.small}/|' | "
                                   f"xargs -P 8 -n 4 cp -t {self.path}/eight")

    def do_small_out(self):
        return measure.run_program(f"cat {self.path}/small/* > /dev/null")

    def do_rm_r(self):
        """Of what rsync stored."""
        return measure.run_program(f"rm -r {self.path}/again")

    def do_find(self):
        return measure.run_program(f"find {self.path} -ls > /dev/null")

    def verify(self):
        compare(self.sources, self.path)


class Passthrough(Directory):
    """libfuse's own example, the least that a FUSE file system can cost."""

    def check(self):
        need_program("cc", "gcc")
        if not any(map(Path.exists, PASSTHROUGH_SOURCES)):
            raise Missing(f"there is no {PASSTHROUGH_SOURCES[0]}; apt install libfuse3-dev")

    def setup(self):
        super().setup()
        program, behind = self.base / "passthrough_ll", self.base / "behind"
        behind.mkdir()
        source = next(filter(Path.exists, PASSTHROUGH_SOURCES))
        lab.run("sh", "-c", f"zcat -f {source} | cc -O2 -w -x c - -I{source.parent} -o {program} "
                            "$(pkg-config --cflags --libs fuse3)")
        self.process = subprocess.Popen([program, "-f", "-o", f"source={behind}", self.path], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)  # of the example's own warnings
        wait_mounted(self)

    def client_pids(self):
        return [self.process.pid]

    def teardown(self):
        unmount(self)
        super().teardown()


class Sshfs(Directory):
    """sshfs as Debian has it, with its defaults, on the first server."""
    part = 8

    def __init__(self, name, base, sources, servers):
        super().__init__(name, base, sources)
        self.servers = servers[:1]

    def check(self):
        need_program("sshfs", "sshfs")

    def setup(self):
        super().setup()
        server = self.servers[0]
        empty(server.root)
        self.process = subprocess.Popen(
            ["sshfs", "-f", server.url().removeprefix("sftp://").replace(f":{server.port}", ":", 1), self.path,
             "-p", str(server.port), "-o", f"IdentityFile={server.keys.identity}",
             "-o", f"UserKnownHostsFile={server.keys.known_hosts}"], stdin=subprocess.DEVNULL)
        wait_mounted(self)
        self.ssh = [pid for pid, _ in measure.own_children("ssh")]  # sshfs forks twice to start it

    def client_pids(self):
        return [self.process.pid, *self.ssh]

    def teardown(self):
        unmount(self)
        for pid in self.ssh:
            os.waitpid(pid, 0)
        super().teardown()


class Sftp(System):
    """OpenSSH's sftp with its defaults, which connects anew each time."""
    works = ["in", "out"]
    ends_with_work = True
    part = 8

    def __init__(self, name, base, sources, servers):
        super().__init__(name, base, sources)
        self.servers = servers[:1]

    def check(self):
        need_program("sftp", "openssh-client")

    def setup(self):
        super().setup()
        empty(self.servers[0].root)

    def do_in(self):
        return self._batch(f"put {self.sources.large} {self.servers[0].root}/large")

    def do_out(self):
        return self._batch(f"get {self.servers[0].root}/large {self.base}/large")

    def _batch(self, command):
        server = self.servers[0]
        return measure.run_program(
            f"echo {command} | sftp -q -b - -P {server.port} -i {server.keys.identity} "
            f"-o UserKnownHostsFile={server.keys.known_hosts} 127.0.0.1 > /dev/null")

    def verify(self):
        lab.run("cmp", self.sources.large, self.base / "large", timeout=1800)


def wait_mounted(system):
    lab.until(lambda: lab.is_mounted(system.path) or system.process.poll() is not None, 20, f"{system.name} serves")
    assert system.process.poll() is None, f"{system.name} ended"


def unmount(system):
    lab.detach(system.path)
    with contextlib.suppress(subprocess.TimeoutExpired):
        system.process.wait(60)
    system.process.kill()
    system.process.wait()


class EcfsMount(Directory):
    """An archive over servers, or over directories where there are none, through the mount."""
    more_works = ["paced in", *Directory.more_works]

    def __init__(self, name, base, sources, code, servers, mount_options=""):
        super().__init__(name, base, sources)
        self.code, self.servers = code, servers
        self.mount_options = ["-o", mount_options] if mount_options else []
        self.archive = self.mount = None

    def setup(self):
        super().setup()
        self.archive = new_archive(self)
        self.mount = lab.Mount(self.archive, self.path, *self.mount_options)
        self.mount.start()
        (self.path / "warm").write_bytes(bytes(RANDOM_BYTES))  # connects
        (self.path / "warm").unlink()

    def client_pids(self):
        return [self.mount.process.pid]

    def settle(self):
        lab.ecfs("wait", self.archive.path, timeout=600)

    def do_paced_in(self):
        """Writes as a program that makes the bytes at the pace of the links."""
        pace = split_code(self.code)[0] * self.line.rate_mb * 1e6
        begin, done = time.monotonic(), 0
        with open(self.sources.large, "rb") as source, open(self.path / "paced", "wb", buffering=0) as file:
            while piece := source.read(1 << 20):
                time.sleep(max(0, begin + done / pace - time.monotonic()) if pace else 0)
                done += file.write(piece)

    def teardown(self):
        try:
            self.mount.umount()
        finally:
            self.mount.kill()
        super().teardown()


class EcfsVerbs(System):
    """The same through ecfs put and ecfs get, which are the clients and connect anew each time."""
    works = ["in", "out", "out to null", "cp -r", "small out"]
    more_works = ["fsck", "recover"]
    ends_with_work = True

    def __init__(self, name, base, sources, code, servers):
        super().__init__(name, base, sources)
        self.code, self.servers, self.archive = code, servers, None

    def setup(self):
        super().setup()
        self.archive = new_archive(self)
        (self.base / "got").mkdir()

    def do_in(self):
        return self._verb("put", self.sources.large, "/large")

    def do_out(self):
        return self._verb("get", "/large", self.base / "got")

    def do_out_to_null(self):
        """As the bare mover and the reader of a mount have it: no file is written."""
        return self._verb("get", "/large", "-", ">", "/dev/null")

    def do_cp_r(self):
        return self._verb("put", self.sources.small, "/small")

    def do_small_out(self):
        return self._verb("get", "/small", self.base / "got")

    def do_fsck(self):
        return measure.run_program(f"{lab.PROGRAM.parent}/ecfs-fsck -n --deep {self.archive.path} > /dev/null")

    def do_recover(self):
        words = [word for endpoint in self.archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        words += ["--key", self.archive.path / "key"] if self.key == "file" else []
        return measure.run_program(f"{lab.PROGRAM} recover --force {self.base}/again {' '.join(map(str, words))} 2> /dev/null")

    def _verb(self, verb, *arguments):
        return measure.run_program(f"{lab.PROGRAM} {verb} {self.archive.path} {' '.join(map(str, arguments))}")

    def verify(self):
        compare(self.sources, self.base / "got")


class Place:
    """An endpoint at a server."""

    def __init__(self, server, transport):
        self.name, self.server, self.transport = server.name, server, transport

    def endpoint(self):
        return f"{self.server.endpoint()},transport={self.transport}"


def new_archive(system):
    _, n = split_code(system.code)
    for server in system.servers:
        empty(server.root)
    places = [Place(server, system.transport) for server in system.servers] or \
        [lab.Directory(system.base / "endpoints", f"d{i}") for i in range(n)]
    archive = lab.Archive(system.base / "archive", places, system.code)
    archive.init("--key", system.key)
    return archive


class Mover(System):
    """The limit: the same bytes over as many connections, and nothing else. See bare_mover.c."""
    works = ["in", "out"]
    ends_with_work = True

    def __init__(self, name, base, sources, code, servers):
        super().__init__(name, base, sources)
        self.code, self.servers = code, servers

    def setup(self):
        super().setup()
        for server in self.servers:
            empty(server.root)

    def _file(self, verb):
        return ""

    def _move(self, verb, total, per):
        """Moves total / per bytes to or from each server that is alive."""
        urls = " ".join(Place(server, self.transport).endpoint().partition("=")[2] for server in self.alive())
        return measure.run_program(
            f"{lab.BUILD}/tests/bench/mount/bare_mover {self._file(verb)} {verb} {-(-total // per)} {urls}")

    def do_in(self):
        return self._move("push", self.sources.large.stat().st_size, split_code(self.code)[0])

    def do_out(self):
        return self._move("pull", self.sources.large.stat().st_size, len(self.alive()))

    def verify(self):
        """It reads what it wrote, whatever that is."""


class MoverOfFiles(Mover):
    """The same from a file and to a file, as put and get have to."""

    def _file(self, verb):
        return f"-f {self.sources.large if verb == 'push' else self.base / 'got'}"
