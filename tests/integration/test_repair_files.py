"""Everything on any `tolerance` endpoints is lost, over real sshd: ecfs-fsck brings all back, for what the code costs.

ECFS_REPAIR_FILES=2000 does so for every code with so many files, and tells the figures (pytest -rP).
"""
import contextlib
import json
import os
import random
import shutil
import sqlite3

import lab
import pytest

KIB = 1 << 10
N_FILES = int(os.environ.get("ECFS_REPAIR_FILES", 30))
CODES = {"rs:4+2": 2, "ldpc:4+4": 3, "basic:4+4": 2, "copies:3": 2}
CLEAN, REPAIRED = 0, 1
THOROUGH = pytest.mark.nightly


def fsck(archive, *arguments):
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, "--json", *arguments, check=False, timeout=1800)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["about"] == "summary", done.stderr
    return done.returncode, summary


def shape(code):
    """k and n."""
    family, _, rest = code.partition(":")
    words = [int(word) for word in rest.split("+")]
    return (1, words[0]) if family == "copies" else (words[0], sum(words))


def planned_reads(code):
    """Bytes that the plans of repair read for each byte of one lost stripe, on average; None: this is not told."""
    k, n = shape(code)
    done = lab.ecfs("plan", "--json", "--code", code, "--availability", "0.99", check=False)
    if done.returncode != 0:
        return None
    found = [row["repair_reads"] for row in json.loads(done.stdout).get("codes", []) if "repair_reads" in row]
    return found[0] if found else None


def lost_per_object(archive, endpoints):
    """How many stripes each object has on these endpoints."""
    names = ",".join(f"'{endpoint.name}'" for endpoint in endpoints)
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None)) as connection:
        return [count for count, in connection.execute(
            "SELECT count(*) FROM stripes s JOIN endpoints p ON p.id = s.endpoint "
            f"WHERE p.name IN ({names}) GROUP BY s.object")]


def lose_and_repair(archive, endpoints):
    """The summary of a repair after all stripes of these endpoints are gone; a second run finds nothing to do."""
    lost = lost_per_object(archive, endpoints)
    for endpoint in endpoints:
        shutil.rmtree(endpoint.root / "stripes")
    status, summary = fsck(archive, "-y")
    assert status == REPAIRED and summary["objects_left"] == 0
    assert summary["stripes_rebuilt"] == summary["stripes_gone"] == sum(lost) > 0
    assert fsck(archive)[0] == CLEAN
    return summary, lost


@pytest.mark.parametrize("code", ["rs:4+2"] + [pytest.param(code, marks=THOROUGH) for code in CODES if code != "rs:4+2"])
@pytest.mark.slow
def test_whole_endpoints_come_back_for_what_the_code_costs(place, code):
    (k, n), tolerance, chosen = shape(code), CODES[code], random.Random(code)
    top = place.path / "tree"
    top.mkdir()
    for number in range(N_FILES):
        lab.write_pattern(top / f"file{number}", 64 * KIB + number * 37 % 4096, number)
    archive = place.archive([place.sshd(f"e{i:02}") for i in range(max(n, 2 * tolerance))], code)
    archive.configure("archive", small_file="0")
    archive.put_in_full(top, "/")
    expected = lab.describe_tree(top)

    summary, _ = lose_and_repair(archive, chosen.sample(archive.endpoints, 1))
    one, planned = summary["read_bytes"] / summary["written_bytes"], planned_reads(code)
    if code.startswith(("rs", "copies")):
        assert one == pytest.approx(k, rel=0.1)
    else:
        assert one < k
    if planned and N_FILES >= 1000:
        assert one == pytest.approx(planned, rel=0.1)

    gone = chosen.sample(archive.endpoints, tolerance)
    summary, lost = lose_and_repair(archive, gone)
    several = summary["read_bytes"] / summary["written_bytes"]
    most = (k if code.startswith(("rs", "copies")) else n) * len(lost) / sum(lost)
    assert several < most * 1.1
    print(f"{code}: {N_FILES} files, read per rebuilt byte: one endpoint {one:.3f} (plan {planned}), "
          f"{tolerance} endpoints {several:.3f} (k packets would be {k * len(lost) / sum(lost):.3f}), "
          f"{summary['stripes_rebuilt']} stripes")
    assert fsck(archive, "--deep")[0] == CLEAN
    for endpoint in chosen.sample([endpoint for endpoint in archive.endpoints if endpoint not in gone], tolerance):
        endpoint.kill()
    assert place.fetched(archive, "/tree") == expected
