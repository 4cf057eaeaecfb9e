"""What storing in ecfs costs beside its relatives and its limits: python3 tests/bench/mount [OPTION...]

Every round gives each system a turn, so that all suffer alike from what else the machine does: cp into a directory;
libfuse's passthrough_ll; sshfs on one server; the bare mover (bare_mover.c), which is the limit of the links and of
SSH, over libssh2 and over the ssh program; and ecfs over sftp and over directories, through the mount and through put
and get, to a file and to /dev/null. All is in RAM, on loopback, and the page cache is emptied before reads. Printed are
medians, ratios to sshfs and to the mover with the transport of ecfs, and processor time of client, servers and the
program that asked (cp, cat), each apart, in seconds per GiB of file.

--rate holds each server's port to so many MB/s, 0 not at all; a list gives one table each. On slow links sshfs moves
only an eighth of the large file; seconds in the tables are for all of it. "wire" is how many bytes went over links for
each byte of the file; "others" is what other programs took of this machine's processors meanwhile: where that is much,
compare processor time instead.

--rtt puts servers so many milliseconds away, there and back, each behind a proxy that also holds it to the rate, and
ends with the rates as ratios: --systems sshfs,sftp,sftp-mount --code rs:4+2 --rate 10,25 --rtt 1,10,100,200.

--mount-options compares what FUSE can be told: --systems file-mount --works in,out --code rs:4+2 --size 256
--mount-options ":max_read=131072:max_background=12:clone_fd".

--works "paced in" writes as a program does that makes its bytes at the links' pace: --size 4096 --rate 10.

--dead reads with servers dead, and ends with the rates that are left as ratios, beside what is published of chunks
that are missing: --size 512 --systems sftp-mount,sftp-put --code ldpc:8+6,rs:8+6 --dead 0..3.

--scenario instead reads with endpoints in trouble (trouble.py): --scenario stalled,throttled --code rs:8+3 --rate 10.

--builds measures ecfs in several builds by turns, and ends with what each costs in relation to the first:
--systems sftp-mount,file-mount --code rs:4+2 --size 256 --rounds 9 --builds ../before/build,build.

--keys none,file measures archives with and without a key by turns, and ends with what the second costs in relation to the
first: --systems file-put,file-mount --code rs:4+2 --size 512 --rounds 9 --keys none,file; with --works in,out,fsck,recover
also what checks and brings back an archive.

--unequal instead stores and reads over links that differ (unequal.py), beside what the links allow, also with --builds:
--unequal 2,5,10,10,20,50:10,10,10,10,10,10 --code rs:4+2 --size 192 --builds ../before/build,build.

Needs root, a build in ./build or ECFS_BUILD, sshd, rsync, iproute2, util-linux; sshfs and libfuse3-dev for the rows of
these. The full measurement: --rate 0,5,10,25 --size 1024.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))
import lab  # noqa: E402
import links  # noqa: E402
import systems  # noqa: E402
import tables  # noqa: E402
import trouble  # noqa: E402
import unequal  # noqa: E402
from run import DEFAULT_KINDS, KINDS, Run  # noqa: E402

MEMORY = Path("/dev/shm")
WORKS = list(dict.fromkeys(systems.System.works + systems.EcfsMount.more_works +
                           systems.EcfsVerbs.works + systems.EcfsVerbs.more_works))
COPIES = 5  # of the large file that are there at once: source, stripes, and staging or what run.py touches beside them


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


def dead_counts(text):
    """"2", "1,3" or "0..3", as numbers above 0: with none dead it is read anyway."""
    if not re.fullmatch(r"\d+(\.\.\d+|(,\d+)*)", text):
        raise argparse.ArgumentTypeError(f"\"{text}\" is none of 2, 1,3 and 0..3")
    first, _, last = text.partition("..")
    counts = range(int(first), int(last) + 1) if last else map(int, text.split(","))
    return sorted({count for count in counts if count > 0})


def named_builds(directories):
    """By what tells them apart: their folder's name, or all of it where several are called so."""
    paths = [Path(directory).absolute() for directory in directories]
    names = {path.name for path in paths}
    return {path.name if len(names) == len(paths) else str(path): path for path in paths} or {"this build": lab.BUILD}


def parse_options():
    parser = argparse.ArgumentParser(prog="tests/bench/mount", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of the large file (default 1024)")
    parser.add_argument("--files", type=int, default=1000, metavar="N", help="of 8 KiB (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--code", dest="codes", type=comma_list(code), default=["rs:4+2", "rs:8+3"],
                        metavar="CODE,...", help="default rs:4+2,rs:8+3")
    parser.add_argument("--systems", type=comma_list(str, KINDS), default=DEFAULT_KINDS, metavar="SYSTEM,...",
                        help=f"of {','.join(KINDS)}; default all but sftp")
    parser.add_argument("--works", type=comma_list(str, WORKS), default=[], metavar="WORK,...",
                        help=f"of {','.join(WORKS)}; default all but \"paced in\", \"rm -r\", fsck and recover, and only all are verified")
    parser.add_argument("--transport", choices=["auto", "openssh", "libssh2"], default="auto",
                        help="of ecfs over sftp; auto, the default, is openssh here")
    parser.add_argument("--mount-options", type=lambda text: text.split(":"), default=[""], metavar="LIST:...",
                        help="of ecfs mount -o; a list gives one row each, and nothing is the default")
    parser.add_argument("--rate", dest="rates", type=comma_list(float), default=[0.0], metavar="MB/S,...",
                        help="of each server's link in each direction; default 0, no limit")
    parser.add_argument("--rtt", dest="rtts", type=comma_list(int), default=[0], metavar="MS,...",
                        help="round trip to each server; default 0, that of loopback")
    parser.add_argument("--dead", type=dead_counts, default=[], metavar="N,...",
                        help="also read the large file with so many servers of each archive dead; also N..N")
    parser.add_argument("--scenario", dest="scenarios", type=comma_list(str, trouble.SCENARIOS), default=[],
                        metavar="SCENARIO,...", help=f"of {', '.join(trouble.SCENARIOS)}; needs --rate")
    parser.add_argument("--unequal", type=lambda text: [unequal.rates_of(part) for part in text.split(":")], default=[],
                        metavar="MB/S,...:...", help="the links of each server, and so on; as many as --code has stripes")
    parser.add_argument("--builds", type=lambda text: text.split(","), default=[], metavar="DIR,...",
                        help="of ecfs, one row each; default that of ECFS_BUILD")
    parser.add_argument("--keys", type=comma_list(str, ["none", "file"]), default=["none"], metavar="KEY,...",
                        help="as of ecfs init, of archives, one row each; default none")
    parser.add_argument("--no-verify", dest="verify", action="store_false",
                        help="do not compare what was stored with what was meant")
    parser.add_argument("--json", action="store_true", help="print every sample as an object on a line, no tables")
    options = parser.parse_args()
    options.builds = named_builds(options.builds)
    options.lines = [links.Line(rate_mb, rtt_ms) for rate_mb in options.rates for rtt_ms in options.rtts]
    if options.dead and any(options.dead[-1] > n - k for k, n in map(systems.split_code, options.codes)):
        parser.error(f"not every code survives {options.dead[-1]} dead servers")
    lengths = {systems.split_code(code)[1] for code in options.codes}
    if any(len(rates) not in lengths or min(rates) <= 0 for rates in options.unequal):
        parser.error("--unequal needs as many rates above 0 as a --code has stripes")
    if options.scenarios and not all(options.rates):
        parser.error("--scenario needs a --rate above 0")
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
    if any(line.rate_mb and not line.rtt_ms for line in options.lines):
        systems.need_program("tc", "iproute2")
    free_mib = shutil.disk_usage(MEMORY).free >> 20
    if free_mib < COPIES * options.size:
        raise systems.Missing(f"{MEMORY} has {free_mib} MiB free and {COPIES * options.size} are needed: lower --size")


def print_object(sample):
    row = dataclasses.asdict(sample)
    print(json.dumps(row | row.pop("cost")), flush=True)


def main():
    options = parse_options()
    try:
        check_machine(options)
    except systems.Missing as missing:
        sys.exit(f"tests/bench/mount: {missing}")
    links.enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("tests/bench/mount: terminated"))  # servers and mounts too
    base = Path(tempfile.mkdtemp(prefix="ecfs-bench-", dir=MEMORY))
    n_failed = 0
    try:
        if options.unequal:
            unequal.run(options, base)
        elif options.scenarios:
            trouble.run(options, base)
        else:
            run = Run(options, base, print_object if options.json else None)
            run.measure(lambda line, samples: options.json or tables.show(options, line, samples))
            if len(options.rtts) > 1 and not options.json:
                tables.show_distances(options, run.samples)
            if len(options.builds) > 1 and not options.json:
                tables.show_ratios(run.systems, run.samples, "build_name", "build")
            if len(options.keys) > 1 and not options.json:
                tables.show_ratios(run.systems, run.samples, "key", "key")
            n_failed = run.n_failed
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
