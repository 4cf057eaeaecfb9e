"""ecfs recover: the archive directory is gone, and everything comes back from the endpoints."""
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import time

import lab
import pytest

NAMES = lab.NAMES
TOLERANCE = 2  # of rs:4+2


def recover(place, endpoints, *options, **how):
    """A new archive directory from these endpoints, and what the command told."""
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", path, "--force", *words, *options, **how)
    return lab.Archive(path, endpoints), done


def facts(place, endpoints, *options):
    archive, done = recover(place, endpoints, "--json", *options)
    return archive, json.loads(done.stdout)


def tree_of(place, archive, *options):
    """What a mount of the archive shows."""
    mount = place.mount(archive, *options)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def stored(endpoints):
    """Every file at the endpoints but for markers and journal, with its bytes."""
    return {str(path): lab.digest(path) for endpoint in endpoints for path in lab.stripe_files(endpoint)
            if "incoming" not in path.parts}


def lose_journal(endpoint):
    shutil.rmtree(endpoint.root / "journal", ignore_errors=True)
    shutil.rmtree(endpoint.root / "snapshots", ignore_errors=True)


def rsync(*arguments):
    lab.run("rsync", "-aHX", *arguments)


def write_history(place, mount):
    """A tree that came by rsync, changed, and what it is in the end."""
    source = place.path / "source"
    lab.real_tree(source, 120)
    lab.add_oddities(source)
    rsync(f"{source}/", f"{mount.path}/")
    survivor = source / "odd/size-1"  # changed below; what the tree has besides is this machine's
    victims = sorted(path for path in source.rglob("*")
                     if path.is_file() and not path.is_symlink() and path != survivor)
    for path in victims[::7]:
        path.unlink()
    for number, path in enumerate(victims[1::7]):
        path.write_bytes(b"another content " * (1 + number * 2000))
    (source / "odd/directory").rename(source / "moved")
    lab.settle(source)
    rsync("--delete", f"{source}/", f"{mount.path}/")
    shutil.move(mount.path / "moved", mount.path / "moved twice")
    os.rename(source / "moved", source / "moved twice")
    os.utime(source, ns=(7, 1_500_000_000_123_456_789))
    os.utime(mount.path, ns=(7, 1_500_000_000_123_456_789))
    for path in (source, mount.path):
        os.chmod(path / survivor.relative_to(source), 0o604)
        os.utime(path / "moved twice", ns=(8, 1_400_000_000_000_000_001))
    return lab.describe_tree(source)


@pytest.mark.parametrize("kind", ["directories", "sshd"])
@pytest.mark.slow
def test_all_comes_back_without_the_machine_and_as_many_endpoints_as_may_vanish(place, kind):
    endpoints = place.directories() if kind == "directories" else [place.sshd(name) for name in NAMES]
    archive = place.archive(endpoints, "rs:4+2", lab.AS_USERS)
    archive.configure("archive", segment_size="256K")
    mount = place.mount(archive)
    expected = write_history(place, mount)
    archive.await_stored()
    mount.kill()
    shutil.rmtree(archive.path)
    for endpoint in endpoints[:TOLERANCE]:
        endpoint.kill()
    again, told = facts(place, endpoints[TOLERANCE:])
    assert told["lost"] == told["hinted"] == told["set_apart"] == told["unfinished"] == told["refused_records"] == 0
    assert told["epoch"] == 2
    lab.assert_same_tree(expected, tree_of(place, again))
    assert "segment_size = 256K" in (again.path / "ecfs.conf").read_text()

    shutil.rmtree(again.path)  # and once more, now from the snapshot that the first has made
    third, told = facts(place, endpoints[TOLERANCE:])
    assert told["snapshot"] and told["epoch"] == 3 and told["lost"] == 0
    point = third.json("status")["recovery_point"]
    assert point["snapshot_time"] > 0 and point["behind_snapshot"] == 0
    lab.assert_same_tree(expected, tree_of(place, third))
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", third.path, "-n", check=False).returncode == 4  # two endpoints are gone


@pytest.mark.several_objects
@pytest.mark.slow
def test_content_that_no_journal_tells_of_is_found_by_its_stripes(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "a/b").mkdir(parents=True)
    lab.write_pattern(mount.path / "a/old", 300_000, 1)
    (mount.path / "a/small").write_bytes(b"small")
    archive.await_stored()
    before = lab.describe_tree(mount.path)
    new = lab.write_pattern(mount.path / "a/b/new", 3_000_000, 2)
    (mount.path / "c").mkdir()
    lab.write_pattern(mount.path / "c/newer", 70_000, 3)
    replaced = lab.write_pattern(mount.path / "a/old", 400_000, 4)
    mount.kill()  # within the minute
    shutil.rmtree(archive.path)
    again, told = facts(place, endpoints)
    assert told["hinted"] == 2 and told["set_apart"] == 1 and told["lost"] == 0
    found = tree_of(place, again)
    for name in ("a/old", "a/small"):
        assert found[name] == before[name]
    assert found["a/b/new"]["digest"] == new and found["c/newer"]["size"] == 70_000
    apart = [path for path in found if path.startswith("recovered/")]
    assert len(apart) == 1 and apart[0].startswith("recovered/old.") and found[apart[0]]["digest"] == replaced


@pytest.mark.several_objects
@pytest.mark.slow
def test_content_that_the_journal_awaits_gets_the_name_that_it_tells(place):
    """As of rsync: written under a temporary name, renamed, and stored when the journal has gone already."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    content = os.urandom(3 << 20)
    # Begun before the file is open: a process that is forked later closes its own descriptor, which stores the file.
    waiting = subprocess.Popen(["sh", "-c", f"read go && exec {lab.PROGRAM} wait {archive.path} /other"],
                               stdin=subprocess.PIPE)
    with open(mount.path / ".temporary", "wb") as file:
        file.write(content)
        file.flush()
        os.rename(mount.path / ".temporary", mount.path / "final")
        os.chmod(mount.path / "final", 0o640)
        os.setxattr(mount.path / "final", "user.note", b"kept")
        os.link(mount.path / "final", mount.path / "second name")
        (mount.path / "other").write_bytes(b"x")
        waiting.communicate(b"go\n", timeout=60)
        assert waiting.returncode == 0
    mount.kill()
    shutil.rmtree(archive.path)
    again, done = recover(place, endpoints)
    assert "hint" not in done.stdout + done.stderr
    mount = place.mount(again)
    assert sorted(os.listdir(mount.path)) == ["final", "other", "second name"]
    for name in ("final", "second name"):
        assert (mount.path / name).read_bytes() == content
        assert lab.describe(mount.path / name)["mode"] == "0o640"
        assert os.getxattr(mount.path / name, "user.note") == b"kept"
        assert os.stat(mount.path / name).st_nlink == 2


@pytest.mark.several_objects
@pytest.mark.slow
def test_a_file_in_the_way_of_what_is_set_apart_is_left_alone(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "recovered").symlink_to("nowhere")
    lab.write_pattern(mount.path / "old", 300_000, 1)
    archive.await_stored()
    before = lab.describe_tree(mount.path)
    replaced = lab.write_pattern(mount.path / "old", 400_000, 4)
    mount.kill()
    again, done = recover(place, endpoints)
    assert "it is /recovered-2/old." in done.stderr
    found = tree_of(place, again)
    assert found["old"] == before["old"] and found["recovered"] == before["recovered"]
    assert [found[path]["digest"] for path in found if path.startswith("recovered-2/")] == [replaced]


@pytest.mark.several_objects
@pytest.mark.slow
def test_without_any_journal_names_are_hints(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    source = place.path / "source"
    source.mkdir()
    for number in range(12):
        lab.write_pattern(source / f"file{number}", number * 40_000 + 1, number)
    archive.put_in_full(source, "/")
    shutil.rmtree(archive.path)
    for endpoint in endpoints:
        lose_journal(endpoint)
    again, done = recover(place, endpoints[1:5])
    assert "neither snapshot nor journal" in done.stdout and "hints in its stripes" in done.stderr
    found = {name: fact["digest"] for name, fact in tree_of(place, again).items() if "digest" in fact}
    assert found == {f"source/{path.name}": lab.digest(path) for path in source.iterdir()}


@pytest.mark.several_objects
def test_what_was_deleted_stays_deleted_and_what_cannot_be_read_is_told(place):
    endpoints = place.directories()
    archive = place.archive(endpoints, "copies:2")
    mount = place.mount(archive)
    for name in ("kept", "gone", "lost"):
        lab.write_pattern(mount.path / name, 100_000, len(name))
    archive.await_stored()
    lost = {stripe["endpoint"] for stripe in archive.json("info", "/lost")["stripes"]}
    (mount.path / "gone").unlink()
    archive.await_stored()
    mount.kill()
    shutil.rmtree(archive.path)
    left = [endpoint for endpoint in endpoints if endpoint.name not in lost]
    again, done = recover(place, left, check=False)
    assert done.returncode == 1 and "/lost cannot be read" in done.stderr
    assert sorted(lab.ecfs("ls", again.path, "/").stdout.split()) == ["kept", "lost"]


@pytest.mark.slow
def test_an_old_copy_of_the_archive_directory_is_read_only_and_deletes_nothing(place):
    endpoints = place.directories()
    archive, old, expected = outdated_copy(place, endpoints)
    before = stored(endpoints)

    mount = place.mount(old)
    assert "is an old copy" in mount.text()
    with pytest.raises(OSError):
        (mount.path / "another").write_bytes(b"x")
    lab.ecfs("status", old.path)
    lab.run(lab.BUILD / "tools/ecfs-fsck", old.path, "-y", check=False)
    mount.kill()
    refused = lab.ecfs("put", old.path, __file__, "/", check=False)
    assert refused.returncode == 1 and "is an old copy" in refused.stderr
    lab.run(lab.BUILD / "tools/ecfs-fsck", old.path, "-y", check=False)
    assert stored(endpoints) == before
    lab.assert_same_tree(expected, tree_of(place, archive))

    again, told = facts(place, endpoints)  # the first is an old copy from here on, too
    assert told["lost"] == 0
    mount = place.mount(archive)
    assert "is an old copy" in mount.text()
    mount.kill()
    lab.assert_same_tree(expected, tree_of(place, again))


def journal_names(endpoints):
    """The names of every journal file at the endpoints, finished or not."""
    return sorted(str(path) for endpoint in endpoints for part in ("journal", "snapshots", "incoming")
                  for path in (endpoint.root / part).rglob("*") if path.is_file())


def outdated_copy(place, endpoints):
    """An archive, a copy of its directory from before its last changes, and what it shows now."""
    archive = place.archive(endpoints)
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    for number in range(4):
        lab.write_pattern(mount.path / f"file{number}", 50_000, number)
    archive.await_stored()
    mount.umount()
    backup = place.path / "backup"
    shutil.copytree(archive.path, backup)
    mount = place.mount(archive)
    (mount.path / "file0").unlink()
    lab.write_pattern(mount.path / "file1", 60_000, 77)
    lab.write_pattern(mount.path / "later", 60_000, 78)
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    lab.until(lambda: archive.json("status")["deletions"] == 0, 60, "the old stripes are deleted")
    mount.umount()
    return archive, lab.Archive(backup, endpoints), expected


def await_recognised(archive):
    lab.until(lambda: "is an old copy" in lab.ecfs("status", archive.path).stdout, 120, "the old copy is known for one")


@pytest.mark.slow
def test_an_old_copy_that_was_used_while_nobody_answered_stays_one(place):
    endpoints = place.directories()
    archive, old, expected = outdated_copy(place, endpoints)
    lab.write_pattern(place.path / "file3", 50_000, 3)
    before, journal = stored(endpoints), journal_names(endpoints)
    for endpoint in endpoints:
        endpoint.kill()
    mount = place.mount(old)
    for number in range(100):  # by now it counts more changes than the newer one
        (mount.path / f"directory{number}").mkdir()
    assert old.json("status")["sequence"] > archive.json("status")["sequence"]
    (mount.path / "file0").unlink()
    for endpoint in endpoints:
        endpoint.start()
    await_recognised(old)
    failed = lab.ecfs("wait", old.path, check=False)
    assert failed.returncode == 1 and "is an old copy" in failed.stderr
    for change in (lambda: (mount.path / "another").mkdir(), lambda: (mount.path / "file1").write_bytes(b"x"),
                   lambda: (mount.path / "file2").unlink()):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert lab.digest(mount.path / "file3") == lab.digest(place.path / "file3")
    mount.kill()
    assert stored(endpoints) == before and journal_names(endpoints) == journal
    lab.assert_same_tree(expected, tree_of(place, archive))


@pytest.mark.slow
def test_a_mount_whose_archive_is_recovered_elsewhere_deletes_nothing_from_then_on(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    for number in range(4):
        lab.write_pattern(mount.path / f"file{number}", 50_000, number)
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    again, told = facts(place, endpoints)
    assert told["lost"] == 0
    before = stored(endpoints)
    (mount.path / "file0").unlink()
    lab.until(lambda: "is an old copy" in mount.text(), 120, "the mount sees the new epoch")
    assert "is an old copy" in lab.ecfs("status", archive.path).stdout
    mount.kill()
    assert stored(endpoints) == before
    lab.assert_same_tree(expected, tree_of(place, again))


@pytest.mark.slow
def test_endpoints_of_another_archive_are_left_alone(place):
    ours, theirs = place.directories(), place.directories(["one", "two", "three"])
    archive, other = place.archive(ours), place.archive(theirs, "copies:2")
    uuid = archive.json("status")["archive"]
    source = place.path / "file"
    lab.write_pattern(source, 100_000, 5)
    archive.put_in_full(source, "/")
    other.put_in_full(source, "/other")
    before = stored(theirs)
    marker = (theirs[0].root / "ecfs-endpoint").read_text()
    _, done = recover(place, ours[:3] + theirs, check=False)  # no archive has most of them
    assert done.returncode == 1 and "name the UUID" in done.stderr
    assert all(f"{endpoint.name} of " in done.stderr for endpoint in ours[:3] + theirs)
    for options in ([], ["--archive", uuid]):
        again, done = recover(place, ours + theirs, *options)
        assert [name for name in ("one", "two", "three") if f"endpoint {name} belongs to archive" not in done.stderr] == []
        assert lab.ecfs("ls", again.path, "/").stdout.split() == ["file"]
    assert stored(theirs) == before and (theirs[0].root / "ecfs-endpoint").read_text() == marker


@pytest.mark.slow
def test_a_damaged_journal_is_used_as_far_as_it_goes(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    for name in ("first", "second", "third"):
        lab.write_pattern(mount.path / name, 20_000, len(name))
        archive.await_stored()
    mount.kill()
    shutil.rmtree(archive.path)
    segments = sorted((endpoints[0].root / "journal").iterdir())
    assert len(segments) >= 3
    for path in segments[1:]:  # one good copy is enough
        lab.flip(path, 150)
    again, _ = recover(place, endpoints)
    assert sorted(lab.ecfs("ls", again.path, "/").stdout.split()) == ["first", "second", "third"]
    shutil.rmtree(again.path)
    for endpoint in endpoints:
        shutil.rmtree(endpoint.root / "snapshots", ignore_errors=True)
        (endpoint.root / "journal" / segments[1].name).unlink(missing_ok=True)
    again, done = recover(place, endpoints)
    assert "the journal has a gap" in done.stderr
    assert sorted(lab.ecfs("ls", again.path, "/").stdout.split()) == ["first", "second", "third"]  # two of them by hints


def test_a_segment_claims_no_record_that_it_lacks(place):
    """As when records are dropped behind the back of who makes a segment of them."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    archive.await_stored()
    for endpoint in endpoints:
        endpoint.kill()
    for number in range(20):
        (mount.path / f"directory {number}").mkdir()
    directory = os.open(mount.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    mount.kill()
    with sqlite3.connect(archive.path / "catalog.sqlite") as catalog:
        missing = catalog.execute("SELECT max (seq) FROM journal").fetchone()[0] - 10
        catalog.execute("DELETE FROM journal WHERE seq = ?", (missing,))
    catalog.close()
    for endpoint in endpoints:
        endpoint.start()
    place.mount(archive)
    archive.await_stored()
    for endpoint in endpoints:
        numbers = [[int(word, 16) for word in path.name.split("-")]
                   for path in (endpoint.root / "journal").iterdir()]
        assert not [number for number in numbers if number[1] <= missing <= number[2]]


def test_the_most_tolerant_code_in_use_says_how_safe_the_journal_has_to_be(place):
    archive = place.archive(place.directories(), "rs:4+1")
    mount = place.mount(archive)
    for name, code in (("safer", b"rs:3+3"), ("empty", b"copies:3")):
        (mount.path / name).mkdir()
        os.setxattr(mount.path / name, "user.ecfs.code", code)
    archive.await_stored()
    mount.umount()
    assert archive.json("status")["recovery_point"]["copies"] == 4
    mount = place.mount(archive)
    for name in NAMES[:3]:
        archive[name].kill()
    (mount.path / "another").mkdir()
    failed = lab.ecfs("wait", archive.path, check=False)
    assert failed.returncode == 1 and "has to be on 4" in failed.stderr
    told = lab.ecfs("umount", mount.path).stderr
    assert "changes of names are on too few endpoints to be safe without this machine" in told
    assert mount.process.wait(60) == 0
    assert "on too few endpoints to be safe without this machine" in mount.text()


@pytest.mark.slow
def test_one_endpoint_that_takes_nothing_does_not_fail_it(place, monkeypatch):
    """Others have room for the new catalog, and tell of the new epoch."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    content = os.urandom(100_000)
    (place.path / "file").write_bytes(content)
    archive.put_in_full(place.path / "file", "/file")
    archive.await_stored()
    shutil.rmtree(archive.path)
    words = []
    for number, endpoint in enumerate(endpoints):
        flaws = place.path / f"flaws-{number}"
        flaws.write_text({0: "write 1+ fail 28\n", 1: "mark 1+ fail 28\n"}.get(number, ""))
        words += ["--endpoint", f"{endpoint.name}=flaw+file://{endpoint.root},flaws={flaws}"]
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    told = lab.ecfs("recover", place.path / "new", "--force", *words).stderr
    assert "the new catalog is stored without it" in told and "its marker stays as it was" in told
    lab.ecfs("get", place.path / "new", "/file", place.path / "got")
    assert (place.path / "got").read_bytes() == content
    for number in range(1, 6):
        (place.path / f"flaws-{number}").write_text("write 1+ fail 28\n")
    failed = lab.ecfs("recover", place.path / "newer", "--force", *words, check=False)
    assert failed.returncode == 1 and "cannot be stored on 3 endpoints" in failed.stderr


@pytest.mark.several_objects
@pytest.mark.slow
def test_content_of_a_copy_that_was_given_up_does_not_come_back(place):
    """The machine that was thought lost had gone on, and what it stored lies beside what the recovered one did."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(os.urandom(60_000))
    archive.await_stored()
    kept, later = place.path / "kept", place.path / "later"
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, kept / endpoint.name)
    for number in range(300):
        (mount.path / f"directory {number}").mkdir()
    (mount.path / "late").write_bytes(os.urandom(60_000))
    archive.await_stored()
    mount.umount()
    for endpoint in endpoints:
        shutil.copytree(endpoint.root / "stripes", later / endpoint.name)
        shutil.copytree(endpoint.root / "journal", later / f"journal-{endpoint.name}")
        shutil.rmtree(endpoint.root)
        shutil.copytree(kept / endpoint.name, endpoint.root)
    second, _ = recover(place, endpoints)
    mount = place.mount(second)
    (mount.path / "new").write_bytes(b"new")
    second.await_stored()
    mount.umount()
    for endpoint in endpoints:
        shutil.copytree(later / endpoint.name, endpoint.root / "stripes", dirs_exist_ok=True)
        shutil.copytree(later / f"journal-{endpoint.name}", endpoint.root / "journal", dirs_exist_ok=True)
    third, done = recover(place, endpoints)
    assert sorted(lab.ecfs("ls", third.path, "/").stdout.split()) == ["file", "new"]
    assert "1 objects were stored by a copy" in done.stderr and "of a copy of the archive directory" in done.stderr


@pytest.mark.slow
def test_status_tells_the_recovery_point_and_wait_fails_without_one(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "directory").mkdir()
    archive.await_stored()
    point = archive.json("status")["recovery_point"]
    assert point["pending"] == 0 and point["behind_snapshot"] == point["sequence"] and "snapshot_time" not in point
    assert "safe without this machine" in lab.ecfs("status", archive.path).stdout
    for endpoint in endpoints[:4]:
        endpoint.kill()
    (mount.path / "another").mkdir()
    failed = lab.ecfs("wait", archive.path, check=False)
    assert failed.returncode == 1 and "has to be on 3" in failed.stderr
    point = archive.json("status")["recovery_point"]
    assert point["pending"] > 0 and point["sequence"] > 0 and point["copies"] == 3
    for endpoint in endpoints[:4]:
        endpoint.start()
    archive.await_stored()
    counts = {len(list((endpoint.root / "journal").iterdir())) for endpoint in endpoints[:4]}
    assert min(counts) >= 1
    mount.umount()
    assert lab.ecfs("wait", "-u", archive.path).returncode == 0


def states_of(archive):
    return {endpoint["name"]: endpoint["state"] for endpoint in archive.json("status")["endpoints"]}


@pytest.mark.slow
def test_what_was_decided_of_an_endpoint_outlives_the_machine(place):
    """Distrusted and readonly stay; one that was being emptied is given again, and active as any other."""
    endpoints = place.directories([*NAMES, "extra", "more", "other"])  # six are active in the end
    archive = place.archive(endpoints)
    distrusted, readonly, drained = NAMES[0], NAMES[1], "extra"
    for verb, name in {"distrust": distrusted, "readonly": readonly}.items():
        lab.ecfs("endpoint", verb, archive.path, name)
    lab.ecfs("endpoint", "drain", archive.path, drained)
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(os.urandom(60_000))
    archive.await_stored()
    digest = lab.digest(mount.path / "file")
    mount.umount()
    assert states_of(archive)[drained] == "draining"
    shutil.rmtree(archive.path)
    again, done = recover(place, endpoints)
    decided = {distrusted: "distrusted", readonly: "readonly"}
    assert states_of(again) == {endpoint.name: decided.get(endpoint.name, "active") for endpoint in endpoints}
    lines = done.stderr.splitlines()
    for name, undo in {distrusted: f"ecfs endpoint distrust --undo {again.path} {distrusted}",
                       readonly: f"ecfs endpoint active {again.path} {readonly}"}.items():
        assert len([line for line in lines if f"endpoint {name} is" in line and undo in line]) == 1, done.stderr
    mount = place.mount(again)
    assert lab.digest(mount.path / "file") == digest
    (mount.path / "more").write_bytes(os.urandom(60_000))
    before = stored(endpoints[:2])
    again.await_stored()
    assert stored(endpoints[:2]) == before, "nothing is placed at these"
    mount.umount()
    lab.ecfs("endpoint", "distrust", "--undo", again.path, distrusted)
    lab.ecfs("endpoint", "active", again.path, readonly)
    assert set(states_of(again).values()) == {"active"}
    shutil.rmtree(again.path)
    last, done = recover(place, endpoints)
    assert set(states_of(last).values()) == {"active"} and "as before" not in done.stderr


def test_no_endpoint_says_of_itself_what_it_is(place):
    """What was decided later counts, whatever one endpoint still has of before."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    before = place.path / "before"
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(os.urandom(60_000))
    archive.await_stored()
    shutil.copytree(endpoints[0].root / "journal", before)
    lab.ecfs("endpoint", "distrust", archive.path, NAMES[0])
    mount.umount()  # which stores the journal
    shutil.rmtree(endpoints[0].root / "journal")
    shutil.copytree(before, endpoints[0].root / "journal")
    shutil.rmtree(archive.path)
    again, _ = recover(place, endpoints)
    assert states_of(again)[NAMES[0]] == "distrusted"


@pytest.mark.slow
def test_what_a_recovery_left_that_was_killed_is_no_archive(place, archive):
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"content")
    archive.await_stored()
    mount.umount()
    left = place.path / f"recovered-{next(place.numbers) + 1}"
    (left / "staging").mkdir(parents=True)
    for name in ("recovering", "catalog.sqlite", "catalog.sqlite-wal", "key"):
        (left / name).write_bytes(b"half")
    recovered, _ = recover(place, archive.endpoints)
    assert recovered.path == left
    assert contents_of(place, recovered) == {"file"}
    (recovered.path / "recovering").touch()  # it ended, and the machine before it could say so
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    assert "is an archive already" in lab.ecfs("recover", left, "--force", *words, check=False).stderr
    assert contents_of(place, recovered) == {"file"}


def contents_of(place, archive):
    return set(tree_of(place, archive))


@pytest.mark.nightly
def test_a_recovery_that_was_killed_can_be_repeated_in_its_directory(place, archive):
    """At any of its steps, by the same command."""
    mount = place.mount(archive)
    for number in range(20):
        lab.write_pattern(mount.path / f"file {number}", 3_000 * number, number)
    expected = lab.describe_tree(mount.path)
    archive.await_stored()
    mount.kill()
    shutil.rmtree(archive.path)
    path = place.path / "again"
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    n_killed = 0
    for pause in (0.01, 0.03, 0.05, 0.07, 0.09):
        with subprocess.Popen([lab.BUILD / "tools/ecfs", "recover", path, "--force", *words],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recovering:
            time.sleep(pause)
            recovering.kill()
        n_killed += (path / "recovering").exists()
        if (path / "ecfs.conf").exists():
            shutil.rmtree(path)
    assert n_killed > 0
    lab.until(lambda: lab.ecfs("recover", path, "--force", *words, check=False).returncode == 0, 120, "it is recovered", 1)
    assert not (path / "recovering").exists()
    lab.assert_same_tree(expected, tree_of(place, lab.Archive(path, archive.endpoints)))
