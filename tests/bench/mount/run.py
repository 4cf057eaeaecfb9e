"""A run: on links of each speed, in each round, every system has its turn."""
import contextlib
import itertools
import os
import sys
import traceback
from types import SimpleNamespace

import lab
import links
import measure
import systems

KINDS = {"cp": "plain cp", "passthrough": "passthrough_ll", "sshfs": "sshfs, 1 server", "sftp": "sftp, 1 server",
         "mover-libssh2": "bare mover, libssh2", "mover-openssh": "bare mover, openssh",
         "mover-files": "mover with a file", "sftp-mount": "sftp, mount",
         "sftp-put": "sftp, put/get", "file-mount": "files, mount", "file-put": "files, put/get"}
DEFAULT_KINDS = [kind for kind in KINDS if kind != "sftp"]
WITH_LINKS = {"sshfs", "sftp", "mover-libssh2", "mover-openssh", "mover-files", "sftp-mount", "sftp-put"}
TOUCHED = 5 / 2  # times the large file: what its stripes, staging and copy take in memory
WARM = {"in", "paced in", "cp -r", "8 at a time", "rsync -a", "rm -r"}  # all else begins with an empty page cache
MOUNTS = {"sftp-mount", "file-mount"}
VERBS = {"sftp-put", "file-put"}
FIRST_BYTES = 3  # in each round


def make_system(kind, code, base, sources, servers, mount_options="", variant=""):
    label = " ".join(filter(None, [KINDS[kind], mount_options, variant, code]))
    base = base / label.translate(str.maketrans(" ,/:+=", "------"))
    far = servers[1:systems.split_code(code)[1] + 1] if code else []
    return {"cp": lambda: systems.Directory(label, base, sources),
            "passthrough": lambda: systems.Passthrough(label, base, sources),
            "sshfs": lambda: systems.Sshfs(label, base, sources, servers),
            "sftp": lambda: systems.Sftp(label, base, sources, servers),
            "mover-libssh2": lambda: systems.Mover(label, base, sources, code, far),
            "mover-openssh": lambda: systems.Mover(label, base, sources, code, far),
            "mover-files": lambda: systems.MoverOfFiles(label, base, sources, code, far),
            "sftp-mount": lambda: systems.EcfsMount(label, base, sources, code, far, mount_options),
            "sftp-put": lambda: systems.EcfsVerbs(label, base, sources, code, far),
            "file-mount": lambda: systems.EcfsMount(label, base, sources, code, [], mount_options),
            "file-put": lambda: systems.EcfsVerbs(label, base, sources, code, [])}[kind]()


def transport_of(kind, options):
    if kind.startswith("mover-") and kind != "mover-files":
        return kind.removeprefix("mover-")
    return "openssh" if kind == "mover-files" and options.transport == "auto" else options.transport


def choose_systems(options, base, sources, servers):
    """Those asked for that can be measured here; says which cannot."""
    chosen = []
    for kind in options.systems:
        codes = [None] if kind in ("cp", "passthrough", "sshfs", "sftp") else options.codes
        variants = options.mount_options if kind in MOUNTS else [""]
        builds = options.builds if kind in MOUNTS | VERBS else {"": lab.BUILD}
        keys = options.keys if kind in MOUNTS | VERBS else ["none"]
        for code, words, build, key in itertools.product(codes, variants, builds, keys):
            label = " ".join([build] * (len(builds) > 1) + [f"key {key}"] * (len(keys) > 1))
            system = make_system(kind, code, base, sources, servers, words, label)
            system.kind, system.words, system.build_name, system.build = kind, words, build, builds[build]
            system.key = key
            system.transport = transport_of(kind, options)
            try:
                system.check()
                chosen.append(system)
            except systems.Missing as missing:
                print(f"NOT MEASURED: {system.name}: {missing}", file=sys.stderr)
    return chosen


def make_sources(base, options):
    """The large file, an eighth of it, and the tree of small ones, from random bytes."""
    base.mkdir()
    sources = SimpleNamespace(large=base / "large", small=base / "small")
    with open(sources.large, "wb") as file:
        for _ in range(options.size):
            file.write(os.urandom(1 << 20))
    sources.small.mkdir()
    for i in range(options.files):
        (sources.small / f"{i:06}").write_bytes(os.urandom(8192))
    return sources


def part_of(sources, part):
    """The same sources with a large file of 1/part the size, beside it."""
    if part == 1:
        return sources
    path = sources.large.with_name(f"large-{part}")
    if not path.exists():
        with open(sources.large, "rb") as file:
            path.write_bytes(file.read(sources.large.stat().st_size // part))
    return SimpleNamespace(large=path, small=sources.small)


def touch_memory(base, size):
    """Memory that a virtual machine's host has taken back costs more at its first use than all that is measured."""
    path = base / "touched"
    zeros = bytes(1 << 20)
    try:
        with open(path, "wb") as file:
            for _ in range(int(size * TOUCHED) >> 20):
                file.write(zeros)
    finally:
        path.unlink()


@contextlib.contextmanager
def some_dead(system, servers, n_dead):
    """Without so many of the system's servers."""
    dead = system.servers[-n_dead:]
    for server in dead:
        server.kill()
    servers.wait_orphans()
    try:
        yield
    finally:
        for server in dead:
            server.start()


class Run:
    """sshds: as many as the largest code needs, and before them one for sshfs; samples: what was measured so far.

    note: called with each sample at once; may be None.
    """

    def __init__(self, options, base, note):
        self.options, self.base, self.note = options, base, note
        self.samples, self.systems, self.n_failed = [], [], 0
        keys = lab.Keys(base / "keys")
        n_servers = max(systems.split_code(code)[1] for code in options.codes) + 1
        if not WITH_LINKS & set(options.systems):
            n_servers = 0
        self.sshds = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(n_servers)]
        self.servers = measure.Servers(self.sshds)

    def measure(self, show):
        """Calls show (line, samples) after all rounds on lines of one kind."""
        measure.adopt_orphans()
        try:
            for sshd in self.sshds:
                sshd.start()
            sources = make_sources(self.base / "sources", self.options)
            for line in self.options.lines:
                with links.reached_through(line, self.sshds) as servers:
                    chosen = choose_systems(self.options, self.base, sources, servers)
                    self.systems = chosen
                    for number in range(self.options.rounds):
                        self._round(line, number, chosen[::1 if number % 2 == 0 else -1], sources)
                show(line, [sample for sample in self.samples if sample.line() == line])
        finally:
            for sshd in self.sshds:
                sshd.kill()

    def _round(self, line, number, chosen, sources):
        for system in chosen:
            if any(line) and system.kind not in WITH_LINKS:
                continue
            self._progress(f"{line}, round {number + 1}: {system.name}")
            system.sources, system.line = part_of(sources, system.part if any(line) else 1), line
            try:
                with systems.built_in(system.build):
                    for work, cost in self._turn(system):
                        self._note(line, number, system, work, cost)
            except Exception:  # whatever is wrong with one, the others can still be measured
                self.n_failed += 1
                print(f"FAILED: {system.name}:\n{traceback.format_exc()}", file=sys.stderr)
        self._progress("")

    def _turn(self, system):
        """Works of the system with their costs, as they are done."""
        works = [work for work in system.works + system.more_works if work in (self.options.works or system.works)]
        system.setup()
        try:
            survived = self.options.dead if system.code and system.servers else []
            for work, n_dead in [*((work, 0) for work in works), *((f"out, {n} dead", n) for n in survived)]:
                for _ in range(FIRST_BYTES if work == "first byte" else 1):
                    with some_dead(system, self.servers, n_dead) if n_dead else contextlib.nullcontext():
                        if work not in WARM:
                            system.settle()
                            lab.drop_caches()
                        if work.startswith(("in", "paced in", "out")):
                            touch_memory(self.base, system.sources.large.stat().st_size)
                        yield work, measure.measured(system, work, self.servers)
            if self.options.verify and set(works) >= set(system.works):
                system.verify()
        finally:
            system.teardown()

    def _note(self, line, number, system, work, cost):
        large = work.startswith(("in", "paced in", "out"))
        n_bytes = system.sources.large.stat().st_size if large else 8192 * self.options.files
        self.samples.append(measure.Sample(*line, number, system.name, work, n_bytes, cost))
        if self.note is not None:
            self.note(self.samples[-1])

    @staticmethod
    def _progress(text):
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
