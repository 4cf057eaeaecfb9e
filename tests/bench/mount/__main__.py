"""What storing in ecfs costs beside its relatives and its limits: python3 tests/bench/mount [OPTION...]

Every round gives each system a turn, so that all suffer alike from what else the machine does: cp into a directory;
libfuse's passthrough_ll; sshfs on one server; the bare mover (bare_mover.c), which is the limit of the links and of
SSH; and ecfs over sftp and over directories, through the mount and through put and get. All is in RAM, on loopback,
and the page cache is emptied before reads. Printed are medians, ratios to sshfs and to the mover, and processor
time of client, servers and the program that asked (cp, cat), each apart, in seconds per GiB of file.

--rate holds each server's port to so many MB/s, 0 not at all; a list gives one table each. On slow links sshfs moves
only an eighth of the large file; seconds in the tables are for all of it. "wire" is how many bytes went over links for
each byte of the file; "others" is what other programs took of this machine's processors meanwhile: where that is much,
compare processor time instead.

Needs root, a build in ./build or ECFS_BUILD, sshd, rsync, iproute2, util-linux; sshfs and libfuse3-dev for the rows of
these. The full measurement: --rate 0,5,10,25 --size 1024.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))
import lab  # noqa: E402
import links  # noqa: E402
import measure  # noqa: E402
import systems  # noqa: E402
import tables  # noqa: E402

KINDS = {"cp": "plain cp", "passthrough": "passthrough_ll", "sshfs": "sshfs, 1 server", "mover": "bare mover",
         "sftp-mount": "sftp, mount", "sftp-put": "sftp, put/get", "file-mount": "files, mount",
         "file-put": "files, put/get"}
WITH_LINKS = {"sshfs", "mover", "sftp-mount", "sftp-put"}
WARM = {"in", "cp -r", "rsync -a"}  # all else begins with an empty page cache
FIRST_BYTES = 3  # in each round


def make_system(kind, code, base, sources, servers):
    label = f"{KINDS[kind]} {code or ''}".strip()
    base = base / label.translate(str.maketrans(" ,/:+", "-----"))
    far = servers[1:systems.split_code(code)[1] + 1] if code else []
    return {"cp": lambda: systems.Directory(label, base, sources),
            "passthrough": lambda: systems.Passthrough(label, base, sources),
            "sshfs": lambda: systems.Sshfs(label, base, sources, servers),
            "mover": lambda: systems.Mover(label, base, sources, code, far),
            "sftp-mount": lambda: systems.EcfsMount(label, base, sources, code, far),
            "sftp-put": lambda: systems.EcfsVerbs(label, base, sources, code, far),
            "file-mount": lambda: systems.EcfsMount(label, base, sources, code, []),
            "file-put": lambda: systems.EcfsVerbs(label, base, sources, code, [])}[kind]()


def choose_systems(options, base, sources, servers):
    """Those asked for that can be measured here; says which cannot."""
    chosen = []
    for kind in options.systems:
        codes = [None] if kind in ("cp", "passthrough", "sshfs") else options.codes
        for code in codes:
            system = make_system(kind, code, base, sources, servers)
            system.kind = kind
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


def one_turn(system, options, servers, note):
    """Sets the system up, calls note () with every work and its cost, and tears it down."""
    system.setup()
    try:
        for work in system.works:
            dead = work == "out, some dead"
            if dead and not (options.dead and system.code and system.servers):
                continue
            for _ in range(FIRST_BYTES if work == "first byte" else 1):
                with some_dead(system, servers, options.dead) if dead else contextlib.nullcontext():
                    if work not in WARM:
                        lab.drop_caches()
                    note(work, measure.measured(system, work, servers))
        if options.verify:
            system.verify()
    finally:
        system.teardown()


def one_rate(options, rate_mb, chosen, sources, servers):
    """All rounds on links of this speed; the samples."""
    samples = []
    for number in range(options.rounds):
        for system in chosen:
            if rate_mb > 0 and system.kind not in WITH_LINKS:
                continue
            if sys.stderr.isatty():
                print(f"\r\033[Kround {number + 1}: {system.name}", end="", file=sys.stderr, flush=True)
            system.sources = part_of(sources, system.part if rate_mb > 0 else 1)

            def note(work, cost, system=system, number=number):
                large = work.startswith(("in", "out"))
                n_bytes = system.sources.large.stat().st_size if large else 8192 * options.files
                samples.append(measure.Sample(rate_mb, number, system.name, work, n_bytes, cost))
            one_turn(system, options, servers, note)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return samples


def measure_all(options, base):
    keys = lab.Keys(base / "keys")
    n_servers = max(systems.split_code(code)[1] for code in options.codes) + 1
    if not WITH_LINKS & set(options.systems):
        n_servers = 0
    sshds = [lab.Sshd(base / f"sshd{i}", f"s{i}", keys) for i in range(n_servers)]
    samples = []
    measure.adopt_orphans()
    try:
        for sshd in sshds:
            sshd.start()
        sources = make_sources(base / "sources", options)
        chosen = choose_systems(options, base, sources, sshds)
        for rate_mb in options.rates:
            with links.Links([sshd.port for sshd in sshds], rate_mb):
                found = one_rate(options, rate_mb, chosen, sources, measure.Servers(sshds))
            if not options.json:
                tables.show(options, rate_mb, found)
            samples += found
    finally:
        for sshd in sshds:
            sshd.kill()
    return samples


def comma_list(convert, known=None):
    def parse(text):
        values = [convert(part) for part in text.split(",")]
        if known and not set(values) <= set(known):
            raise argparse.ArgumentTypeError(f"choose from {', '.join(known)}")
        return values
    return parse


def code(text):
    if not re.fullmatch(r"\w+:[1-9]\d*\+\d+", text):
        raise argparse.ArgumentTypeError(f"\"{text}\" is not a code like rs:4+2")
    return text


def parse_options():
    parser = argparse.ArgumentParser(prog="tests/bench/mount", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of the large file (default 1024)")
    parser.add_argument("--files", type=int, default=1000, metavar="N", help="of 8 KiB (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--code", dest="codes", type=comma_list(code), default=["rs:4+2", "rs:8+3"],
                        metavar="CODE,...", help="default rs:4+2,rs:8+3")
    parser.add_argument("--systems", type=comma_list(str, KINDS), default=list(KINDS), metavar="SYSTEM,...",
                        help=f"default {','.join(KINDS)}")
    parser.add_argument("--rate", dest="rates", type=comma_list(float), default=[0.0], metavar="MB/S,...",
                        help="of each server's link in each direction; default 0, no limit")
    parser.add_argument("--dead", type=int, default=0, metavar="N",
                        help="also read the large file with so many servers of each archive dead")
    parser.add_argument("--no-verify", dest="verify", action="store_false",
                        help="do not compare what was stored with what was meant")
    parser.add_argument("--json", action="store_true", help="print every sample as an object on a line, no tables")
    options = parser.parse_args()
    if any(options.dead > n - k for k, n in map(systems.split_code, options.codes)):
        parser.error(f"no code survives {options.dead} dead servers")
    return options


def check_machine(options):
    """Raises systems.Missing for what nothing can be measured without."""
    if os.geteuid() != 0:
        raise systems.Missing("only root can mount, empty the page cache and limit links")
    for path in ("tools/ecfs", "tests/bench/mount/bare_mover"):
        if not (lab.BUILD / path).exists():
            raise systems.Missing(f"{lab.BUILD / path} is missing: build first, or set ECFS_BUILD")
    systems.need_program("rsync", "rsync")
    if not (shutil.which("sshd") or Path("/usr/sbin/sshd").exists()):
        raise systems.Missing("there is no sshd; apt install openssh-server")
    systems.need_program("unshare", "util-linux")
    systems.need_program("ip", "iproute2")


def main():
    options = parse_options()
    try:
        check_machine(options)
    except systems.Missing as missing:
        sys.exit(f"tests/bench/mount: {missing}")
    links.enter_namespace()
    base = Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir="/dev/shm"))
    try:
        samples = measure_all(options, base)
        if options.json:
            for sample in samples:
                row = dataclasses.asdict(sample)
                print(json.dumps(row | row.pop("cost")))
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
