"""ecfs drill: a loss is rehearsed on the live archive."""
import contextlib
import itertools
import json
import math
import os
import sqlite3

import lab
import pytest
import test_logs

KIB, MIB = 1 << 10, 1 << 20


def drill(archive, *arguments):
    """The exit status and the report."""
    done = lab.run(lab.PROGRAM, "drill", archive.path, "--json", *arguments, check=False)
    return done.returncode, json.loads(done.stdout)


def rows(archive, query, *values):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None)) as connection:
        return connection.execute(query, values).fetchall()


def stripe_path(archive, name, index):
    (endpoint, uuid, instance), = rows(
        archive, "SELECT p.name, o.uuid, s.instance FROM stripes s JOIN objects o ON o.id = s.object "
                 "JOIN endpoints p ON p.id = s.endpoint JOIN extents x ON x.object = o.id "
                 "JOIN entries n ON n.ino = x.ino WHERE n.name = ? AND s.idx = ?", os.fsencode(name), index)
    return archive[endpoint].root / "stripes" / uuid.hex()[:3] / f"{uuid.hex()}-{index:02x}-{instance:016x}"


@pytest.fixture
def stored(place, archive):
    top = place.path / "tree"
    top.mkdir()
    for number in range(40):
        lab.write_pattern(top / f"file{number}", number * 9001 if number % 2 else 20 * KIB + number, number)
    lab.write_pattern(top / "large", 3 * MIB + 5, 99)
    archive.put_in_full(top, "/")
    return archive


def n_objects(archive):
    return rows(archive, "SELECT count(*) FROM objects")[0][0]


def misses(population, sampled, bad):
    return math.comb(population - bad, sampled) / math.comb(population, sampled)


@pytest.mark.slow
def test_all_is_read_without_any_tolerance_endpoints(place, stored):
    mount = place.mount(stored)
    for names in [("amber", "fjord"), ("birch", "cedar")]:
        status, report = drill(stored, "--without", ",".join(names), "--sample", "100%")
        assert status == 0 and report["unreadable"] == report["unreadable_by_catalog"] == 0
        assert report["sampled"] == report["objects"] == n_objects(stored) == 41
        assert report["bytes"] == rows(stored, "SELECT sum(size) FROM objects")[0][0]
        assert report["seconds"] > 0 and report["seconds_with_all"] > 0 and report["unreadable_at_most"] == 0
        assert all(notice["probability"] == pytest.approx(1) for notice in report["notices"])
    mount.umount()


@pytest.mark.slow
def test_what_cannot_be_read_is_told_and_what_the_sample_proves(stored):
    status, report = drill(stored, "--without", "amber,birch,cedar", "--sample", "100%")
    assert status == 1 and report["unreadable"] == report["unreadable_by_catalog"] == len(report["failures"]) > 0
    assert "/tree/large" in {failure["path"] for failure in report["failures"]}
    assert all(failure["readable_with_all"] and failure["error"] for failure in report["failures"])
    assert report["unreadable_with_all"] == 0 and report["unreadable_at_most"] == report["unreadable"]
    status, report = drill(stored, "--without", "delta", "--sample", "20%", "--seed", "7")
    assert status == 0 and report["sampled"] == math.ceil(0.2 * 41) and report["seed"] == 7
    assert {notice["objects"] for notice in report["notices"]} == {1, 5}
    for notice in report["notices"]:
        assert notice["probability"] == pytest.approx(1 - misses(41, report["sampled"], notice["objects"]))
    most = report["unreadable_at_most"]
    assert misses(41, report["sampled"], most) > 0.05 >= misses(41, report["sampled"], most + 1)
    again = drill(stored, "--without", "delta", "--sample", "20%", "--seed", "7")[1]
    assert (again["sampled"], again["bytes"]) == (report["sampled"], report["bytes"])


@pytest.mark.slow
def test_damage_elsewhere_makes_a_loss_cost_files_and_is_queued(place, stored):
    for index in (0, 1):
        path = stripe_path(stored, "large", index)
        lab.flip(path, path.stat().st_size // 2)
    others = [endpoint.name for endpoint in stored.endpoints
              if not any(stripe_path(stored, "large", index).is_relative_to(endpoint.root) for index in (0, 1))]
    status, report = drill(stored, "--without", others[0], "--sample", "100%")
    assert status == 1 and [failure["path"] for failure in report["failures"]] == ["/tree/large"]
    assert report["failures"][0]["readable_with_all"] and report["unreadable_by_catalog"] == 0
    assert stored.json("status")["repairs"]["queued"] == 2
    done = lab.ecfs("drill", stored.path, "--without", others[0], "--sample", "100%", check=False)
    assert done.returncode == 1 and "/tree/large" in done.stderr and "1 could not be read" in done.stdout


def test_all_files_of_an_object_are_counted(place, archive):
    test_logs.packing(archive)
    mount = place.mount(archive)
    test_logs.write_files(mount.path / "d", 20)
    test_logs.await_packed(archive)
    mount.umount()
    status, report = drill(archive, "--without", "amber,birch,cedar", "--sample", "100%")
    assert status == 1 and sum(failure["files"] for failure in report["failures"]) == 20
    done = lab.ecfs("drill", archive.path, "--without", "amber,birch,cedar", "--sample", "100%", check=False)
    most = max(failure["files"] for failure in report["failures"])
    assert most > 1 and f" and {most - 1} more files: " in done.stderr


@pytest.mark.slow
def test_the_catalog_alone_tells_which_sets_are_safe(stored):
    status, report = drill(stored)
    assert status == 0
    assert [(loss["endpoints"], loss["sets"], loss["safe"]) for loss in report["losses"]] == \
        [(n, math.comb(6, n), math.comb(6, n)) for n in range(3)]
    assert all(loss["objects"] == 41 and loss["unsafe"] == [] for loss in report["losses"])
    path = stripe_path(stored, "large", 2)
    lacking = next(endpoint.name for endpoint in stored.endpoints if path.is_relative_to(endpoint.root))
    with contextlib.closing(sqlite3.connect(stored.path / "catalog.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM stripes WHERE idx = 2 AND object = (SELECT x.object FROM extents x "
                           "JOIN entries n ON n.ino = x.ino WHERE n.name = CAST ('large' AS BLOB))")
    status, report = drill(stored)
    none, one, two = report["losses"]
    assert status == 1 and none["safe"] == 1 and one["safe"] == 6
    expected = {frozenset(names) for names in itertools.combinations(
        sorted(endpoint.name for endpoint in stored.endpoints if endpoint.name != lacking), 2)}
    assert {frozenset(loss["without"]) for loss in two["unsafe"]} == expected
    assert two["safe"] == 15 - len(expected) and all(loss["unreadable"] == 1 for loss in two["unsafe"])
    text = lab.ecfs("drill", stored.path, check=False)
    assert text.returncode == 1 and f"{15 - len(expected)} of 15 sets" in text.stdout


@pytest.mark.slow
def test_what_is_known_to_be_gone_is_lost_already(place, stored):
    """For the drill that reads, and for the one that does not, as for status."""
    gone = [stripe_path(stored, "large", index) for index in (0, 1)]
    poor = {endpoint.name for endpoint in stored.endpoints if any(path.is_relative_to(endpoint.root) for path in gone)}
    for path in gone:
        path.unlink()
    assert drill(stored)[0] == 0, "nobody knows yet"
    stored.get("/tree/large", place.path / "back")
    assert (place.path / "back").read_bytes() == (place.path / "tree/large").read_bytes()
    facts = stored.json("status")
    assert (facts["verdict"], facts["repairs"]["queued"], facts["objects"]["guarantee"]) == ("at risk", 2, 0)
    status, report = drill(stored)
    none, one, two = report["losses"]
    others = {endpoint.name for endpoint in stored.endpoints} - poor
    assert status == 1 and none["safe"] == 1, "all can be read"
    assert {name for loss in one["unsafe"] for name in loss["without"]} == others and one["safe"] == 2
    assert two["safe"] == 1 and len(two["unsafe"]) == 14
    page = place.path / "drill.html"
    lab.ecfs("drill", "--html", page, stored.path, check=False)
    assert "NOTHING WOULD BE LOST" not in page.read_text() and "SOMETHING WOULD BE LOST" in page.read_text()
    status, report = drill(stored, "--without", min(others), "--sample", "100%")
    assert status == 1 and report["unreadable_by_catalog"] == report["unreadable"] == 1


def test_wrong_usage_and_empty_archives(archive):
    for arguments, status in [(("--sample", "5%"), 2), (("--without", "", "--sample", "5%"), 2),
                              (("--without", "amber", "--sample", "0%"), 2), (("--without", "nobody"), 1),
                              (("--without", "amber", "--sample", "101%"), 2)]:
        assert lab.ecfs("drill", archive.path, *arguments, check=False).returncode == status
    assert drill(archive)[0] == 0
    status, report = drill(archive, "--without", "amber")
    assert status == 0 and report["sampled"] == 0
