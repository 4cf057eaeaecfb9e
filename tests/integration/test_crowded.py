"""Objects with more of their stripes in one zone than they need to have: ecfs-fsck tells them and moves them apart."""
import contextlib
import itertools
import json
import signal
import sqlite3
import subprocess

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
CLEAN, REPAIRED, LEFT = 0, 1, 4
FSCK = lab.BUILD / "tools/ecfs-fsck"
ZONES = {"a": ["a0", "a1", "a2"], "b": ["b0", "b1"], "c": ["c0", "c1"]}


def facts(archive, *arguments):
    """The exit status, findings by what they are about, and the summary."""
    done = lab.run(FSCK, archive.path, "--json", *arguments, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and lines[-1]["about"] == "summary", done.stderr
    found = {about: [line for line in lines if line["about"] == about] for about in ["crowded", "waiting", "file"]}
    return done.returncode, found, lines[-1]


def server(archive, name):
    """What is to die, perhaps behind a proxy."""
    return getattr(archive[name], "server", archive[name])


def in_zones(archive, endpoints):
    for name in endpoints:
        archive.configure(f"endpoint {name.name}", zone=name.name[0])


def filled(place, archive, n_files):
    """Files that were stored while c1 was down: three of six stripes are in zone a."""
    top = place.path / "tree"
    top.mkdir()
    for number in range(n_files):
        lab.write_pattern(top / f"file{number}", 20 * KIB + number * 61_717 % (200 * KIB), number)
    server(archive, "c1").kill()
    archive.put_in_full(top, "/")
    return top


def spread(archive):
    """For each object its stripes by zone."""
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as connection:
        rows = connection.execute("SELECT s.object, substr(e.name, 1, 1) FROM stripes s JOIN endpoints e "
                                  "ON e.id = s.endpoint ORDER BY 1, 2").fetchall()
    return ["".join(zone for _, zone in of) for _, of in itertools.groupby(rows, lambda row: row[0])]


def assert_survives(place, archive, top, *zones):
    for zone in zones:
        names = [endpoint.name for endpoint in archive.endpoints if endpoint.name.startswith(zone)]
        for name in names:
            server(archive, name).kill()
        assert place.fetched(archive, "/tree") == lab.describe_tree(top)
        for name in names:
            server(archive, name).start()


@pytest.mark.slow
def test_what_a_zone_could_not_take_is_moved_there_when_it_can(place):
    endpoints = place.directories([name for zone in ZONES.values() for name in zone])
    archive = place.archive(endpoints)
    in_zones(archive, endpoints)
    top = filled(place, archive, 12)
    crowded = spread(archive)
    assert crowded == ["aaabbc"] * 12

    status, found, summary = facts(archive, "-y")
    assert status == LEFT and spread(archive) == crowded and not found["crowded"] and summary["objects_waiting"] == 12
    assert [(one["name"], one["zone"], one["objects"]) for one in found["waiting"]] == [("c1", "c", 12)]
    assert found["waiting"][0]["text"]

    archive["c1"].start()
    status, found, summary = facts(archive, "-n")
    assert status == LEFT and spread(archive) == crowded and summary["objects_crowded"] == 12
    assert {(one["zones"], one["possible_zones"], one["moves"], one["result"]) for one in found["crowded"]} == {
        (0, 1, 1, "found")}
    assert {one["path"] for one in found["crowded"]} == {f"/tree/file{number}" for number in range(12)}
    status, found, summary = facts(archive, "-y", "/tree/file3")
    assert status == REPAIRED and [one["path"] for one in found["crowded"]] == ["/tree/file3"]
    text = lab.run(FSCK, archive.path, "-y", check=False)
    assert text.returncode == REPAIRED and text.stdout.count("moved apart\n") == 11
    assert spread(archive) == ["aabbcc"] * 12
    status, found, summary = facts(archive, "-y", "--deep")
    assert status == CLEAN and summary["stripes_moved"] == 0 and not any(found.values())
    assert_survives(place, archive, top, "a", "b", "c")


@pytest.mark.slow
def test_repairs_come_first_and_a_new_zone_takes_its_part(place):
    """Two zones cannot bear the loss of one; a third can, and what was lost is rebuilt on the way."""
    endpoints = place.directories(["a0", "a1", "a2", "b0", "b1", "b2"])
    archive = place.archive(endpoints)
    in_zones(archive, endpoints)
    top = place.path / "tree"
    top.mkdir()
    for number in range(6):
        lab.write_pattern(top / f"file{number}", 30 * KIB + number * 50 * KIB, number)
    archive.put_in_full(top, "/")
    assert facts(archive, "-n")[0] == CLEAN  # nothing is better than this
    for name in ["c0", "c1"]:
        new = lab.Directory(place.path / "new", name)
        lab.ecfs("endpoint", "add", archive.path, f"{new.endpoint()},zone=c")
        archive.endpoints.append(new)
    for stripe in lab.stripe_files(archive["a1"]):
        stripe.unlink()
    status, found, summary = facts(archive, "-y")
    assert status == REPAIRED and len(found["file"]) == 6 and summary["objects_moved"] == 6
    assert spread(archive) == ["aabbcc"] * 6
    assert facts(archive, "-y", "--deep")[0] == CLEAN
    assert_survives(place, archive, top, "a")


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_whoever_moves_may_be_killed(place, mounted):
    endpoints = place.directories([name for zone in ZONES.values() for name in zone if name != "c1"])
    archive = place.archive([*endpoints, place.behind_proxy("c1")])
    in_zones(archive, archive.endpoints)
    top = filled(place, archive, 8)
    server(archive, "c1").start()
    mount = place.mount(archive) if mounted else None
    archive["c1"].proxy.tell("throttle", "150000")
    asking = subprocess.Popen([FSCK, archive.path, "-y"], stdout=subprocess.DEVNULL)
    lab.until(lambda: 0 < spread(archive).count("aabbcc") < 8, 60, "some are moved")
    if mounted:
        mount.kill()
        asking.wait(60)
    else:
        asking.send_signal(signal.SIGKILL)
        asking.wait()
    archive["c1"].proxy.tell("throttle", "0")
    assert "aaabbc" in spread(archive)
    if mounted:
        mount.start()
    lab.until(lambda: facts(archive, "-y")[0] & LEFT == 0, 60, "what was left is moved", pause=0.2)
    assert spread(archive) == ["aabbcc"] * 8
    if mounted:
        mount.umount()
    assert facts(archive, "-n", "--deep")[0] == CLEAN
