"""user.ecfs.places: a directory's rule says where stripes of the files below it may be, and whatever stores or moves
them keeps it."""
import contextlib
import errno
import json
import os
import shutil
import sqlite3
from types import SimpleNamespace

import lab
import pytest
from test_logs import PACK, kinds, write_files
from test_recover import facts, recover

KIB, MIB = 1 << 10, 1 << 20
CLEAN, REPAIRED, LEFT = 0, 1, 4
FSCK = lab.BUILD / "tools/ecfs-fsck"
PLACES = "user.ecfs.places"
NAMES = ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3"]


@pytest.fixture
def archive(place):
    """rs:2+1 over two zones of four endpoints."""
    made = place.archive(place.directories(NAMES), "rs:2+1")
    for name in NAMES:
        made.configure(f"endpoint {name}", zone=name[0])
    return made


def rule(directory, text):
    os.setxattr(directory, PLACES, text.encode())


def placed(archive, path=""):
    """The endpoints of each object of the files whose paths begin so, as a list of sorted names."""
    with contextlib.closing(sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True)) as catalog:
        files = catalog.execute("""
            WITH RECURSIVE tree (ino, path) AS (SELECT 1, '' UNION ALL
              SELECT e.ino, t.path || '/' || CAST (e.name AS TEXT) FROM entries e JOIN tree t ON e.parent = t.ino)
            SELECT DISTINCT t.path, x.object FROM tree t JOIN extents x ON x.ino = t.ino""").fetchall()
        names = {}
        for object, name in catalog.execute("SELECT s.object, e.name FROM stripes s JOIN endpoints e ON e.id = s.endpoint"):
            names.setdefault(object, []).append(name)
    return [sorted(names[object]) for object in {object for file, object in files if file.startswith(path)}]


def assert_within(archive, path, allowed, n=None):
    found = placed(archive, path)
    assert found and all(set(names) <= set(allowed) for names in found), found
    assert n is None or all(len(names) == n for names in found), found
    return found


def zones_of(archive):
    return {one["name"]: one["zone"] for one in json.loads(lab.ecfs("endpoint", "list", archive.path, "--json").stdout)}


def fsck(archive, *arguments):
    done = lab.run(FSCK, archive.path, "--json", *arguments, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and lines[-1]["about"] == "summary", done.stderr
    return done.returncode, [line for line in lines if line["about"] == "misplaced"], lines[-1]


A, B = NAMES[:4], NAMES[4:]


def test_what_makes_no_sense_is_refused(place, archive):
    mount = place.mount(archive)
    directory = mount.path / "d"
    directory.mkdir()
    (mount.path / "file").write_bytes(b"content")
    for bad in ("", "zone=a", "only:nobody", "never:zone=c", "only:a0 only:a1", "never:zone=a never:b0 never:b1", "only:a0\0",
                "only:" + "a" * 5000):
        with pytest.raises(OSError) as refused:
            rule(directory, bad)
        assert refused.value.errno == errno.EINVAL, bad
    assert 'the rule "only:a0 only:a1" leaves 2 endpoints that take stripes, and the code rs:2+1 needs 3' in mount.text()
    assert "no endpoint is named nobody" in mount.text() and "no endpoint is in a zone c" in mount.text()
    with pytest.raises(OSError) as refused:
        rule(mount.path / "file", "none")
    assert refused.value.errno == errno.EPERM
    with pytest.raises(OSError) as absent:
        os.getxattr(directory, PLACES)
    assert absent.value.errno == errno.ENODATA
    rule(directory, "only:zone=a never:a3")
    assert os.getxattr(directory, PLACES) == b"only:zone=a never:a3" and PLACES in os.listxattr(directory)
    os.setxattr(directory, "user.ecfs.code", b"copies:2")
    rule(directory, "only:a0 only:b0")  # which are enough for this code, …
    with pytest.raises(OSError):
        os.setxattr(directory, "user.ecfs.code", b"rs:2+1")  # … and not for that
    assert os.getxattr(directory, "user.ecfs.code") == b"copies:2"
    os.removexattr(directory, PLACES)
    assert os.listxattr(directory) == []


@pytest.mark.slow
def test_files_keep_to_the_nearest_rule(place, archive):
    mount = place.mount(archive)
    for name in ("d", "d/below", "d/free", "d/b", "other"):
        (mount.path / name).mkdir()
    rule(mount.path / "d", "only:zone=a")
    rule(mount.path / "d/free", "none")
    rule(mount.path / "d/b", "never:zone=a never:b0")
    for directory in ("d", "d/below", "d/free", "d/b", "other"):
        for number in range(6):
            lab.write_pattern(mount.path / directory / f"large {number}", 300 * KIB + number, number)
        write_files(mount.path / directory, 12)
    archive.await_stored()
    assert_within(archive, "/d/large", A, 3)
    assert_within(archive, "/d/file", A)
    assert_within(archive, "/d/below/", A)
    assert_within(archive, "/d/b/", ["b1", "b2", "b3"])
    for path in ("/d/free/large", "/other/large"):
        assert {name[0] for names in placed(archive, path) for name in names} == {"a", "b"}
    text = lab.ecfs("info", archive.path, "/d/below/large 0").stdout
    assert "places     only:zone=a\n" in text
    assert archive.json("info", "/d/b")["places"] == "never:zone=a never:b0"
    assert "places" not in archive.json("info", "/d/free/large 0")
    archive.put(FSCK, "/d/below/put")
    assert_within(archive, "/d/below/put", A, 3)


def test_what_fails_is_not_made_good_elsewhere(place, archive):
    """One of three that are allowed is gone: the file has two stripes, and the third comes when it may."""
    archive.configure("archive", small_file="0")
    mount = place.mount(archive)
    directory = mount.path / "d"
    directory.mkdir()
    rule(directory, "only:a0 only:a1 only:a2")
    lab.write_pattern(directory / "first", 200 * KIB, 1)
    archive["a2"].kill()
    with contextlib.suppress(OSError):  # what is not stored at close is stored later
        lab.write_pattern(directory / "second", 200 * KIB, 2)
    assert_within(archive, "/d/", ["a0", "a1", "a2"])
    archive["a1"].kill()
    with contextlib.suppress(OSError):
        lab.write_pattern(directory / "third", 200 * KIB, 3)
    said = "the rule user.ecfs.places (only:a0 only:a1 only:a2) allows only a0, a1, a2"
    lab.until(lambda: said in mount.text(), 60, "the rule is named")
    assert not placed(archive, "/d/third")
    for name in ("a1", "a2"):
        archive[name].start()
    archive.await_stored()
    assert_within(archive, "/d/", ["a0", "a1", "a2"], 3)


@pytest.mark.slow
def test_logs_and_packs_are_of_one_rule(place, archive):
    archive.configure("archive", pack_after="1s", deletion_grace="1s")
    mount = place.mount(archive)
    for name, text in (("a", "only:zone=a"), ("b", "only:zone=b")):
        (mount.path / name).mkdir()
        rule(mount.path / name, text)
    for round in range(3):  # in turn
        for name in ("a", "b", "a"):
            write_files(mount.path / name / f"{round}", 10, seed=round)
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    assert_within(archive, "/a/", A)
    assert_within(archive, "/b/", B)
    lab.until(lambda: set(kinds(archive)) == {PACK}, 60, "all is packed")
    assert_within(archive, "/a/", A)
    assert_within(archive, "/b/", B)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


def test_what_is_stored_together_is_of_one_rule(place, archive):
    """Where nothing may be appended to there are no logs."""
    archive.configure("archive", commit="async")
    for name in NAMES:
        archive.configure(f"endpoint {name}", delete="never")
    mount = place.mount(archive)
    for name in ("a", "b"):
        (mount.path / name).mkdir()
        rule(mount.path / name, f"only:zone={name}")
    for number in range(40):  # in turn
        for name in ("a", "b"):
            (mount.path / name / str(number)).write_bytes(os.urandom(1000 + number))
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    assert PACK in kinds(archive) and len(kinds(archive)) < 40
    assert_within(archive, "/a/", A)
    assert_within(archive, "/b/", B)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


@pytest.mark.slow
def test_what_shares_a_pack_goes_apart(place, archive):
    """Files whose rules leave no common place are told, and recode stores each where it may be."""
    archive.configure("archive", pack_after="1s", deletion_grace="1s")
    mount = place.mount(archive)
    for name in ("a", "b"):
        (mount.path / name).mkdir()
        write_files(mount.path / name, 10)
    archive.await_stored()
    lab.until(lambda: kinds(archive) == [PACK], 60, "all is in one pack")
    rule(mount.path / "a", "only:zone=a")
    rule(mount.path / "b", "only:zone=b")
    before = lab.describe_tree(mount.path)
    status, found, _ = fsck(archive, "-y")
    assert status == LEFT and [one["result"] for one in found] == ["left"] and "ecfs recode" in found[0]["reason"], found
    lab.ecfs("recode", "--code", "rs:2+1", archive.path, "/")
    assert_within(archive, "/a/", A)
    assert_within(archive, "/b/", B)
    lab.until(lambda: fsck(archive, "-n")[0] == CLEAN, 60, "the old pack is gone")
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_a_new_rule_is_kept_by_what_was_there(place, archive, mounted):
    """ecfs-fsck tells what is where the rule forbids it, and moves it; what it may, it leaves."""
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    (mount.path / "other").mkdir()
    for directory in ("d", "other"):
        for number in range(8):
            lab.write_pattern(mount.path / directory / f"file{number}", 100 * KIB + number * 10 * KIB, number)
    os.link(mount.path / "other/file0", mount.path / "d/linked")
    archive.await_stored()
    elsewhere = placed(archive, "/other/file7")
    rule(mount.path / "d", "never:zone=b")
    before = lab.describe_tree(mount.path)
    if not mounted:
        mount.umount()
    n_forbidden = sum(any(name in B for name in names) for names in placed(archive, "/d/"))
    status, found, summary = fsck(archive, "-n")
    assert status == LEFT and summary["objects_misplaced"] == len(found) == n_forbidden > 0
    assert {(one["rule"], one["result"]) for one in found} == {("never:zone=b", "found")}
    info = archive.json("info", found[0]["path"])
    assert info["misplaced_stripes"] == found[0]["forbidden"] > 0 and info["places"] == "never:zone=b"
    status, found, summary = fsck(archive, "-y")
    assert status == REPAIRED and {one["result"] for one in found} == {"moved"} and summary["objects_moved"] == n_forbidden
    assert_within(archive, "/d/", A, 3)
    assert placed(archive, "/other/file7") == elsewhere
    status, found, summary = fsck(archive, "-y", "--deep")
    assert status == CLEAN and not found and summary["stripes_moved"] == 0
    if mounted:
        lab.forget_mounts()
        lab.assert_same_tree(before, lab.describe_tree(mount.path))
    else:
        lab.assert_same_tree(before, lab.describe_tree(place.mount(archive).path))


@pytest.mark.slow
def test_what_has_no_place_that_is_allowed_stays_and_is_told(place, archive):
    top = place.path / "d"
    top.mkdir()
    lab.write_pattern(top / "file", 200 * KIB, 1)
    archive.put_in_full(top, "/")
    mount = place.mount(archive)
    (has,) = placed(archive, "/d/")
    other = next(name for name in NAMES if name not in has)
    wanted = [*has[:2], other]
    rule(mount.path / "d", " ".join(f"only:{name}" for name in wanted))
    mount.umount()
    archive[other].kill()
    status, found, _ = fsck(archive, "-y")
    assert status & LEFT and placed(archive, "/d/") == [has]
    assert [one["result"] for one in found] == ["left"] and other in found[0]["reason"], found
    archive[other].start()
    assert fsck(archive, "-y")[0] == REPAIRED
    assert_within(archive, "/d/", wanted, 3)
    assert fsck(archive, "-n")[0] == CLEAN


@pytest.mark.slow
def test_a_rule_that_cannot_be_kept_does_not_keep_from_repair(place, archive):
    """A zone that has another name now: what is lost is stored where it was, rather than nowhere."""
    top = place.path / "d"
    top.mkdir()
    archive.put_in_full(top, "/")
    mount = place.mount(archive)
    rule(mount.path / "d", "only:zone=a")
    lab.write_pattern(mount.path / "d/file", 200 * KIB, 1)
    lab.ecfs("wait", mount.path)
    mount.umount()
    for name in NAMES[:4]:
        archive.configure(f"endpoint {name}", zone="c")
    (has,) = placed(archive, "/d/")
    for stripe in lab.stripe_files(archive[has[0]]):
        stripe.unlink()
    done = lab.run(FSCK, archive.path, "-y", check=False)
    assert done.returncode & LEFT and "/d" in done.stdout + done.stderr  # the rule is told, ...
    assert "leaves 0 endpoints" in done.stdout + done.stderr and "recode" not in done.stdout
    assert placed(archive, "/d/") == [has]
    archive[has[1]].kill()
    lab.ecfs("get", archive.path, "/d/file", place.path / "back")  # ... and the file is as safe as it was
    lab.write_pattern(place.path / "wanted", 200 * KIB, 1)
    assert lab.digest(place.path / "back") == lab.digest(place.path / "wanted")


def test_a_name_that_would_leave_no_place_is_refused(place, archive):
    mount = place.mount(archive)
    for name, zone in [("one", "a"), ("two", "b"), ("any", None)]:
        (mount.path / name).mkdir()
        if zone is not None:
            rule(mount.path / name, f"only:zone={zone}")
    lab.write_pattern(mount.path / "one/file", 200 * KIB, 1)
    with pytest.raises(OSError) as refused:
        os.link(mount.path / "one/file", mount.path / "two/file")
    assert refused.value.errno == errno.EXDEV
    os.link(mount.path / "one/file", mount.path / "any/file")
    with pytest.raises(OSError) as refused:
        os.rename(mount.path / "any/file", mount.path / "two/file")  # it has a name in one/, too
    assert refused.value.errno == errno.EXDEV
    os.rename(mount.path / "any/file", mount.path / "one/again")
    os.unlink(mount.path / "one/again")
    os.rename(mount.path / "one/file", mount.path / "two/file")
    lab.ecfs("wait", mount.path)
    lab.write_pattern(mount.path / "two/file", 200 * KIB, 2)
    lab.ecfs("wait", mount.path)
    assert_within(archive, "/two", NAMES[4:], 3)


def test_what_is_preferred_comes_first_and_costs_nothing(place, archive):
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    rule(mount.path / "d", "prefer:a0 prefer:a1")
    for number in range(5):
        lab.write_pattern(mount.path / "d" / f"file{number}", 200 * KIB, number)
    (mount.path / "d/twice").mkdir()
    os.setxattr(mount.path / "d/twice", "user.ecfs.code", b"copies:2")
    lab.write_pattern(mount.path / "d/twice/file", 200 * KIB, 7)
    archive.await_stored()
    assert placed(archive, "/d/twice/") == [["a0", "a1"]]  # which one zone could take away
    assert all({"a0", "a1"} < set(names) for names in assert_within(archive, "/d/file", NAMES, 3))
    mount.umount()
    assert fsck(archive, "-n")[0] == CLEAN  # and nothing is to leave them
    archive["a0"].kill()
    lab.write_pattern(place.path / "more", 200 * KIB, 9)
    archive.put_in_full(place.path / "more", "/d/more")
    assert "a1" in placed(archive, "/d/more")[0] and len(placed(archive, "/d/more")[0]) == 3


@pytest.mark.slow
def test_drain_repair_and_recode_keep_it(place, archive):
    mount = place.mount(archive)
    (mount.path / "d").mkdir()
    rule(mount.path / "d", "only:zone=a")
    for number in range(6):
        lab.write_pattern(mount.path / "d" / f"file{number}", 150 * KIB + number, number)
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    mount.umount()
    plan = json.loads(lab.ecfs("endpoint", "drain", "--dry-run", "--json", archive.path, "a0").stdout)
    assert plan["unplaced_objects"] == 0 and {one["name"] for one in plan["targets"]} <= set(A)
    lab.ecfs("endpoint", "drain", archive.path, "a0")
    assert_within(archive, "/d/", ["a1", "a2", "a3"], 3)
    lab.ecfs("recode", "--code", "copies:2", archive.path, "/d")
    assert_within(archive, "/d/", ["a1", "a2", "a3"], 2)
    for stripe in lab.stripe_files(archive["a1"]):
        stripe.unlink()
    assert lab.run(FSCK, archive.path, "-y", check=False).returncode == REPAIRED
    assert_within(archive, "/d/", ["a1", "a2", "a3"], 2)
    assert fsck(archive, "-n")[0] == CLEAN
    lab.assert_same_tree(before, lab.describe_tree(place.mount(archive).path))


@pytest.mark.slow
def test_a_rule_that_was_damaged_is_told(place, archive):
    """Nothing is stored below it, and all else goes on."""
    mount = place.mount(archive)
    for name in ("d", "e"):
        (mount.path / name).mkdir()
        rule(mount.path / name, "only:zone=a")
        lab.write_pattern(mount.path / name / "file", 100 * KIB, 1)
    archive.await_stored()
    mount.umount()
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog:
        catalog.execute("UPDATE xattrs SET value = x'' WHERE ino = (SELECT ino FROM entries WHERE name = CAST ('d' AS BLOB))")
        catalog.commit()
    done = lab.run(FSCK, archive.path, "-n", check=False)
    assert done.returncode == LEFT and "user.ecfs.places" in done.stdout and "/e: " not in done.stdout, done
    assert "user.ecfs.places" in archive.json("info", "/d/file")["places_error"]
    assert archive.json("info", "/e/file")["places"] == "only:zone=a"
    refused = archive.put(FSCK, "/d/new", check=False)
    assert refused.returncode != 0 and "the rule user.ecfs.places that holds for /d" in refused.stderr
    archive.put(FSCK, "/e/new")
    mount = place.mount(archive)
    rule(mount.path / "d", "only:zone=a")
    mount.umount()
    assert fsck(archive, "-n")[0] == CLEAN


def rules_of(place, archive):
    mount = place.mount(archive)
    found = {path.name: os.getxattr(path, PLACES).decode() if os.listxattr(path) else None for path in mount.path.iterdir()}
    mount.umount()
    return found


@pytest.mark.slow
def test_a_rule_comes_back_without_the_machine(place, archive):
    """From the journal, and from a snapshot."""
    mount = place.mount(archive)
    for name, text in (("d", "only:zone=a"), ("gone", "only:zone=a")):
        (mount.path / name).mkdir()
        rule(mount.path / name, text)
    os.removexattr(mount.path / "gone", PLACES)
    archive.await_stored()
    mount.kill()
    with_zones = [SimpleNamespace(endpoint=lambda one=one: f"{one.endpoint()},zone={one.name[0]}") for one in archive.endpoints]
    again, _ = recover(place, with_zones)
    assert rules_of(place, again) == {"d": "only:zone=a", "gone": None}
    shutil.rmtree(again.path)  # and once more, now from the snapshot that the first has made
    again, told = facts(place, with_zones)
    assert told["snapshot"]
    mount = place.mount(again)
    assert os.getxattr(mount.path / "d", PLACES) == b"only:zone=a" and os.listxattr(mount.path / "gone") == []
    for number in range(6):
        lab.write_pattern(mount.path / "d" / f"file{number}", 150 * KIB, number)
    again.await_stored()
    assert_within(again, "/d/", A, 3)


@pytest.mark.parametrize("mounted", [False, True], ids=["unmounted", "mounted"])
@pytest.mark.slow
def test_rules_follow_an_endpoint_that_is_replaced(place, archive, mounted):
    mount = place.mount(archive)
    for name, text in (("d", "only:a0 only:a1 only:a2"), ("d/zone", "only:zone=a"), ("e", "prefer:a0 never:b0"), ("f", "only:zone=b")):
        (mount.path / name).mkdir()
        rule(mount.path / name, text)
    for number in range(4):
        lab.write_pattern(mount.path / "d" / f"file {number}", 300 * KIB, number)
    archive.await_stored()
    if not mounted:
        mount.umount()
    (archive["a0"].root / "stripes").rename(place.path / "gone")  # it died
    [new] = place.directories(["n0"])
    done = lab.ecfs("endpoint", "replace", archive.path, "a0", new.endpoint(), timeout=300)
    assert "n0 is in the zone a;" in done.stdout and zones_of(archive)["n0"] == "a"
    assert "2 rules user.ecfs.places that named a0 name n0 now" in done.stdout and "gone" not in done.stderr
    if not mounted:
        mount.start()
    found = {name: os.getxattr(mount.path / name, PLACES).decode() for name in ("d", "d/zone", "e", "f")}
    assert found == {"d": "only:n0 only:a1 only:a2", "d/zone": "only:zone=a", "e": "prefer:n0 never:b0", "f": "only:zone=b"}
    lab.write_pattern(mount.path / "d" / "later", 300 * KIB, 9)
    archive.await_stored()
    assert_within(archive, "/d/file", ["n0", "a1", "a2"], 3)
    assert_within(archive, "/d/later", ["n0", "a1", "a2"], 3)
    mount.umount()
    assert fsck(archive)[0] == CLEAN


@pytest.mark.slow
def test_what_takes_a_place_is_in_its_zone(place, archive):
    """Also that of one whose section of ecfs.conf is lost; another one, where that is given; none, where it had its own."""
    archive.configure("endpoint b0", zone="b0")
    place.mount(archive).umount()  # so the journal tells of zones
    config = archive.path / "ecfs.conf"
    head, *sections = config.read_text().split("[endpoint ")
    config.write_text("[endpoint ".join([head, *(text for text in sections if not text.startswith("a0]"))]))
    assert zones_of(archive)["a0"] == "a"
    new = {one.name: one.endpoint() for one in place.directories(["n0", "n1", "n2"])}
    for old, text in (("a0", new["n0"]), ("a1", f"{new['n1']},zone=other"), ("b0", new["n2"])):
        lab.ecfs("endpoint", "replace", archive.path, old, text, timeout=300)
    zones = zones_of(archive)
    assert [zones[name] for name in new] == ["a", "other", "n2"]


@pytest.mark.slow
def test_a_rule_that_names_what_was_removed_is_told(place, archive):
    mount = place.mount(archive)
    for name, text in (("it's", "only:a0 only:a1 only:a2 only:a3"), ("e", "never:a0"), ("f", "prefer:zone=b")):
        (mount.path / name).mkdir()
        rule(mount.path / name, text)
    archive.await_stored()
    lab.ecfs("endpoint", "drain", archive.path, "a0", timeout=300)
    said = lab.ecfs("endpoint", "remove", archive.path, "a0").stderr
    better = "-v 'only:NAME only:a1 only:a2 only:a3' ./'it'\\''s'"
    assert "names what is gone (a0)" in said and better in said and "-v 'none' ./'e'" in said and "/f" not in said
    mount.umount()
    done = lab.run(FSCK, archive.path, check=False)
    assert done.returncode == LEFT and "names what is gone (a0)" in done.stdout and better in done.stdout, done.stdout
    shutil.move(archive.path, place.path / "lost")
    with_zones = [SimpleNamespace(endpoint=lambda one=one: f"{one.endpoint()},zone={one.name[0]}")
                  for one in archive.endpoints if one.name != "a0"]
    again, told = recover(place, with_zones)
    assert "names what is gone (a0)" in told.stdout + told.stderr
    mount = place.mount(again)
    rule(mount.path / "it's", "only:a1 only:a2 only:a3")
    rule(mount.path / "e", "none")
    mount.umount()
    assert fsck(again)[0] == CLEAN


@pytest.mark.parametrize("by", ["init", "conf", "add"])
@pytest.mark.slow
def test_zones_come_back_without_being_given(place, by):
    """From the journal, by whichever way they came there; a zone that is given counts more, and 'never' stays never."""
    endpoints = place.directories(NAMES)
    with_zones = [SimpleNamespace(name=one.name, root=one.root, endpoint=lambda one=one: f"{one.endpoint()},zone={one.name[0]}")
                  for one in endpoints]
    made = place.archive(with_zones if by == "init" else endpoints[:-1] if by == "add" else endpoints, "rs:2+1")
    for name in NAMES[:-1] if by != "init" else []:
        made.configure(f"endpoint {name}", **({"zone": name[0]} if by == "conf" or name != NAMES[-1] else {}))
    if by == "conf":
        made.configure(f"endpoint {NAMES[-1]}", zone="b")
    if by == "add":
        lab.ecfs("endpoint", "add", made.path, with_zones[-1].endpoint())
    mount = place.mount(made)
    (mount.path / "d").mkdir()
    rule(mount.path / "d", "never:zone=b")
    made.await_stored()
    mount.umount()
    shutil.move(made.path, place.path / "lost")
    given = [SimpleNamespace(endpoint=lambda one=one: f"{one.endpoint()},zone=b" if one.name == "a3" else one.endpoint())
             for one in endpoints]
    again, told = recover(place, given)
    said = told.stdout + told.stderr
    assert "a0 in a" in said and "b3 in b" in said and "a3 in" not in said and "names what is gone" not in said
    assert zones_of(again) == {name: "b" if name == "a3" else name[0] for name in NAMES}
    mount = place.mount(again)
    lab.write_pattern(mount.path / "d" / "file", 300 * KIB, 1)
    again.await_stored()
    assert_within(again, "/d/", ["a0", "a1", "a2"], 3)


@pytest.mark.as_users
def test_zones_that_nobody_knows_are_told(place):
    """Before the first mount no journal tells of zones: accounts that have one share of the key were in one."""
    endpoints = place.directories(["one", "two", "three", "four"])
    zones = {"three": ",zone=x", "four": ",zone=x"}
    made = [SimpleNamespace(name=one.name, endpoint=lambda one=one: one.endpoint() + zones.get(one.name, "")) for one in endpoints]
    place.archive(made, "rs:1+1", lab.AS_USERS)
    _, told = recover(place, endpoints)
    said = told.stdout + told.stderr
    assert "zones are not known" in said and "three, four" in said and "one," not in said.split("zones are not known")[1]
    _, told = recover(place, made)
    assert "zones are not known" not in told.stdout + told.stderr
