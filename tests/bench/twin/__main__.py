"""A read in a laboratory and its twin in a simulation: python3 tests/bench/twin [OPTION...]

Really: an archive over sshd processes whose ports tc holds to --rate, mounted; a file is read cold, healthy and with
`tolerance` of the servers stopped from the middle on. In the simulation: the same code, sizes and rates, `ecfs sim`.
Printed are seconds, and bytes that came for each byte read (those that were not needed included), medians of --rounds,
and how far the simulation is off; --json prints an object.

Needs what tests/bench/mount needs: root, a build in ./build or ECFS_BUILD, sshd, iproute2, util-linux.
"""
import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from types import SimpleNamespace

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "mount"), str(Path(__file__).resolve().parents[2] / "lab")]
import lab  # noqa: E402
import links  # noqa: E402
import systems  # noqa: E402
import trouble  # noqa: E402

PACKET = 256 << 10  # of a segment of 2 MiB and 8 data stripes
OVERHEAD = 1.012  # bytes on a line for each of content: tags, SFTP, SSH, TCP
GROUP = """[servers {name}]
count = {count}
bandwidth = {bandwidth}
latency_ms = 1
"""
SCENARIO = """[scenario]
about = the twin of a read in a laboratory
[objects]
size = {size}M
packet = {packet}
[compare]
codes = {code}
"""


def parse_options():
    parser = argparse.ArgumentParser(prog="tests/bench/twin", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256, metavar="MIB", help="of the file (default 256)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--rate", type=float, default=5.0, metavar="MB/S",
                        help="of each server (default 5: so slow that the processor does not matter)")
    parser.add_argument("--code", default="rs:8+3", metavar="CODE", help="default rs:8+3")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    return parser.parse_args()


def came(archive, size):
    """Bytes of packets that a mount received until now, for each byte of the file."""
    reads = archive.json("status")["reads"]
    return (reads["received_bytes"] + reads["hedged_bytes"]) / size


def measure(options, base):
    """{name: [(seconds, bytes that came for each byte)]} of real reads."""
    settings = SimpleNamespace(codes=[options.code], size=options.size, transport="auto")
    found = {"healthy": [], "stalled": []}
    laboratory = trouble.Trouble(settings, base / "lab", options.rate)
    with laboratory.serving():
        for _ in range(options.rounds):
            for name, runs in found.items():
                before = came(laboratory.archive, options.size << 20)
                reading = getattr(laboratory, name)()
                runs.append((reading.seconds, came(laboratory.archive, options.size << 20) - before))
    return found


def simulate(options, base, stalls_at_s):
    """(seconds, bytes that came for each byte); with so many servers stalled as the code has parity."""
    k, n = systems.split_code(options.code)
    bandwidth = int(options.rate * 1e6 / OVERHEAD)
    text = SCENARIO.format(size=options.size, packet=PACKET * 8 // k, code=options.code)
    text += GROUP.format(name="good", count=k, bandwidth=bandwidth)
    text += GROUP.format(name="bad", count=n - k, bandwidth=bandwidth)
    if stalls_at_s is not None:
        text += f"change_at_s = {stalls_at_s:.3f}\n"
    path = base / "twin.scenario"
    path.write_text(text)
    row = json.loads(lab.run(lab.BUILD / "tools/ecfs", "sim", "--json", path).stdout)["rows"][0]
    return row["seconds"], row["received"] + row["extra"]


def compare(options, base):
    healthy = simulate(options, base, None)
    simulated = {"healthy": healthy, "stalled": simulate(options, base, healthy[0] / 2)}
    rows = {}
    for name, runs in measure(options, base).items():
        real = median(run[0] for run in runs), median(run[1] for run in runs)
        rows[name] = {"seconds": real[0], "simulated_seconds": simulated[name][0],
                      "seconds_off": simulated[name][0] / real[0] - 1,
                      "bytes": real[1], "simulated_bytes": simulated[name][1],
                      "bytes_off": simulated[name][1] / real[1] - 1}
    return rows


def show(options, rows):
    print(f"{options.size} MiB, {options.code}, each server's link held to {options.rate:g} MB/s, medians of "
          f"{options.rounds}\n")
    print(f"{'cold read':10}{'s':>8}{'simulated':>11}{'off':>8}{'bytes':>9}{'simulated':>11}{'off':>8}")
    for name, row in rows.items():
        print(f"{name:10}{row['seconds']:8.2f}{row['simulated_seconds']:11.2f}{row['seconds_off']:+8.1%}"
              f"{row['bytes']:9.3f}{row['simulated_bytes']:11.3f}{row['bytes_off']:+8.1%}")


def main():
    options = parse_options()
    links.need_privileges("tests/bench/twin")
    links.enter_namespace()
    base = Path(tempfile.mkdtemp(prefix="ecfs-twin-", dir="/dev/shm"))
    try:
        rows = compare(options, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if options.json:
        print(json.dumps(rows))
    else:
        show(options, rows)


if __name__ == "__main__":
    main()
