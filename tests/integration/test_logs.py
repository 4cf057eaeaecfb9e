"""Small files: records in logs, and packs that these become. Nothing that was closed is lost, and nothing deleted comes
back, whatever ends when."""
import itertools
import json
import os
import random
import shutil
import sqlite3
import sys
import threading
import time

import lab
import pytest
from test_recover import facts, lose_journal, recover, tree_of

WHOLE, LOG, PACK = 0, 1, 2
TOLERANCE = 2  # of rs:4+2
COPIES = TOLERANCE + 1
FSCK = lab.BUILD / "tools/ecfs-fsck"
SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"


def objects(archive):
    """(kind, code, bytes) of each object that the catalog has."""
    with sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True) as catalog:
        return catalog.execute("SELECT kind, code, size FROM objects ORDER BY id").fetchall()


def kinds(archive):
    return [kind for kind, _, _ in objects(archive)]


def uuids(archive):
    with sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True) as catalog:
        return sorted(uuid for uuid, in catalog.execute("SELECT uuid FROM objects"))


def log_copies(archive):
    """The files that copies of logs are in, by UUID of the log."""
    with sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True) as catalog:
        logs = [uuid.hex() for uuid, in catalog.execute("SELECT uuid FROM objects WHERE kind = 1")]
    return {log: [path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint) if path.name.startswith(log)]
            for log in logs}


def write_files(directory, n, seed=0, most=12_000):
    """Small files of many sizes, each by a close of its own."""
    some = random.Random(seed)
    directory.mkdir(exist_ok=True)
    for number in range(n):
        (directory / f"file {number:04}").write_bytes(some.randbytes(some.randrange(1, most)))


def contents(tree):
    return {path: what["digest"] for path, what in tree.items() if "digest" in what}


def packing(archive, **settings):
    """Packs soon, as tests have to."""
    archive.configure("archive", pack_after="1s", deletion_grace="1s", **settings)


def await_packed(archive, timeout=60):
    lab.until(lambda: LOG not in kinds(archive) and PACK in kinds(archive), timeout, "all is packed")


def lose_machine(archive, mount):
    mount.kill()
    shutil.rmtree(archive.path)


# Logs


@pytest.mark.slow
def test_small_files_are_records_of_one_log(place, archive, mount):
    write_files(mount.path / "d", 60)
    (mount.path / "large").write_bytes(os.urandom(40_000))
    (mount.path / "empty").write_bytes(b"")
    assert kinds(archive).count(LOG) == 1 and kinds(archive).count(WHOLE) == 1
    assert sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == COPIES + 6
    before = lab.describe_tree(mount.path)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    lab.assert_same_tree(before, tree_of(place, archive))
    assert lab.run(FSCK, "--deep", archive.path, check=False).returncode == 0


def test_all_is_there_after_a_crash(place, archive, mount):
    write_files(mount.path / "d", 60)
    before = lab.describe_tree(mount.path)
    mount.kill()
    again = place.mount(archive)
    lab.assert_same_tree(before, lab.describe_tree(again.path))
    write_files(again.path / "e", 5)  # into a log of its own: what was open is never appended to
    assert kinds(archive).count(LOG) == 2
    shutil.rmtree(again.path / "e")
    after = lab.describe_tree(again.path)
    assert {path: what for path, what in after.items() if path.startswith("d")} == {
        path: what for path, what in before.items() if path.startswith("d")}


@pytest.mark.parametrize("lost", itertools.combinations(range(6), TOLERANCE))
@pytest.mark.slow
def test_any_endpoints_that_may_vanish_may(place, archive, lost):
    mount = place.mount(archive)
    write_files(mount.path / "d", 12)
    before = lab.describe_tree(mount.path)
    mount.umount()
    for number in lost:
        archive.endpoints[number].kill()
    lab.assert_same_tree(before, tree_of(place, archive))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.slow
def test_what_was_closed_comes_back_without_the_machine(place, has_journal, keyed):
    """Files that the journal tells of, files behind its end, and no file that was deleted or replaced before that."""
    archive = place.archive(place.directories(), "rs:4+2", *([] if keyed else ["--key", "none"]))
    mount = place.mount(archive)
    write_files(mount.path / "d", 30)
    (mount.path / "gone").write_bytes(b"gone")
    (mount.path / "replaced").write_bytes(b"the first content")
    (mount.path / "gone").unlink()
    (mount.path / "replaced").write_bytes(b"the second")
    if has_journal:
        archive.await_stored()
    write_files(mount.path / "e", 30, seed=1)
    for number in range(10):
        (mount.path / f"e/more {number}").write_bytes(b"more" * number + b"!")
    before = lab.describe_tree(mount.path)
    lose_machine(archive, mount)
    for endpoint in archive.endpoints[:TOLERANCE]:
        endpoint.kill()
    again, told = facts(place, archive.endpoints[TOLERANCE:])
    assert told["lost"] == told["refused_records"] == 0
    found = tree_of(place, again)
    for path, what in before.items():
        if os.path.basename(path).startswith(("file", "more")):
            assert found[path]["digest"] == what["digest"], path
    if has_journal:
        assert told["hinted"] == 40 and "gone" not in found
        assert found["replaced"]["digest"] == before["replaced"]["digest"]
    third, told = facts(place, archive.endpoints[TOLERANCE:])  # the new catalog's journal tells the same
    assert told["hinted"] == told["lost"] == 0
    lab.assert_same_tree(found, tree_of(place, third))


def test_the_newest_record_of_a_file_counts(place, archive, mount):
    archive.await_stored()
    for number in range(20):
        (mount.path / "file").write_bytes(b"%d" % number)
    lose_machine(archive, mount)
    again, told = facts(place, archive.endpoints)
    assert told["hinted"] == 1 and told["set_apart"] == 0
    assert (place.mount(again).path / "file").read_bytes() == b"19"


def test_files_of_one_name_are_set_apart_beside_each_other(place, archive, mount):
    """Several contents of which no journal tells are in one log, and were files of one name: none gets in another's way."""
    for name in "ab":
        (mount.path / name).mkdir()
        (mount.path / name / "config").write_bytes(b"old")
    (mount.path / "f").write_bytes(b"1")
    archive.await_stored()
    for name in "ab":
        (mount.path / name / "config").write_bytes(b"new " + name.encode())
    for content in (b"22", b"333"):
        (mount.path / "f").unlink()
        (mount.path / "f").write_bytes(content)
    lose_machine(archive, mount)
    again, told = facts(place, archive.endpoints)
    assert told["lost"] == 0
    mount = place.mount(again)
    found = {path.read_bytes() for path in mount.path.rglob("*") if path.is_file()}
    assert {b"new a", b"new b", b"333"} <= found, sorted(mount.path.rglob("*"))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.slow
def test_torn_ends_at_as_many_endpoints_as_may_vanish_lose_nothing(place, keyed):
    """Without a key a record that one copy alone has comes back, but not under its name: anybody could have made it."""
    archive = place.archive(place.directories(), "rs:4+2", "--key", "file" if keyed else "none")
    key = shutil.copy(archive.path / "key", place.path) if keyed else None
    mount = place.mount(archive)
    archive.await_stored()
    write_files(mount.path / "d", 40)
    before = lab.describe_tree(mount.path)
    copies, = log_copies(archive).values()
    some = random.Random(7)
    lose_machine(archive, mount)
    for copy in some.sample(copies, TOLERANCE):
        os.truncate(copy, some.randrange(copy.stat().st_size))
    again, told = facts(place, archive.endpoints, *(["--key", key] if keyed else []))
    found, wanted = contents(tree_of(place, again)), contents(before)
    assert found == wanted if keyed else sorted(found.values()) == sorted(wanted.values())
    assert told["lost"] == 0


# Packs


@pytest.mark.slow
def test_logs_become_packs_of_the_files_own_codes(place, archive):
    packing(archive)
    mount = place.mount(archive)
    (mount.path / "other").mkdir()
    os.setxattr(mount.path / "other", "user.ecfs.code", b"rs:3+1")
    write_files(mount.path / "d", 100)
    write_files(mount.path / "other", 100, seed=1)
    before = lab.describe_tree(mount.path)
    await_packed(archive)
    assert sorted(code for kind, code, _ in objects(archive)) == ["rs:3+1", "rs:4+2"]
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    lab.until(lambda: sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == 6 + 4, 60, "logs are gone")
    mount.umount()
    lab.assert_same_tree(before, tree_of(place, archive))
    assert lab.run(FSCK, "--deep", archive.path, check=False).returncode == 0


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.slow
def test_a_directory_that_is_read_in_order_is_read_ahead(place, archive, packed):
    archive.configure("archive", pack_after="1s" if packed else "1h", deletion_grace="1s")
    mount = place.mount(archive)
    write_files(mount.path / "d", 300)
    before = lab.describe_tree(mount.path)
    if packed:
        await_packed(archive)
    assert kinds(archive) == [PACK if packed else LOG]
    n_read = archive.json("status")["reads"]["segments"]
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    assert archive.json("status")["reads"]["segments"] - n_read < 60
    shutil.rmtree(mount.path / "d")
    if packed:
        lab.until(lambda: kinds(archive) == [] and not any(map(lab.stripe_files, archive.endpoints)), 60,
                  "what was read and kept at hand is deleted")


@pytest.mark.slow
def test_files_that_change_while_they_are_packed_are_what_they_became(place, archive):
    packing(archive)
    mount = place.mount(archive)
    some = random.Random(3)
    write_files(mount.path / "d", 300, most=3000)
    files = sorted((mount.path / "d").iterdir())
    for round in range(6):
        for path in some.sample(files, 60):
            match some.randrange(4):
                case 0:
                    path.write_bytes(some.randbytes(some.randrange(1, 5000)))
                case 1:
                    path.unlink()
                    files.remove(path)
                case 2:
                    os.truncate(path, some.randrange(path.stat().st_size + 1))
                case 3:
                    with open(path, "ab") as file:
                        file.write(some.randbytes(100))
    before = lab.describe_tree(mount.path)
    await_packed(archive)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    lab.assert_same_tree(before, tree_of(place, archive))


@pytest.mark.slow
def test_packs_come_back_without_the_machine(place, archive):
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 100)
    (mount.path / "d/file 0003").unlink()
    await_packed(archive)
    archive.await_stored()
    before = lab.describe_tree(mount.path)
    lose_machine(archive, mount)
    for endpoint in archive.endpoints[:TOLERANCE]:
        endpoint.kill()
    again, told = facts(place, archive.endpoints[TOLERANCE:])
    assert told["lost"] == told["hinted"] == told["set_apart"] == 0
    lab.assert_same_tree(before, tree_of(place, again))


@pytest.mark.slow
def test_packs_tell_of_their_files_where_no_journal_is_left(place, archive):
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 100)
    await_packed(archive)
    before = lab.describe_tree(mount.path)
    lab.until(lambda: sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == 6, 60, "logs are gone")
    lose_machine(archive, mount)
    for endpoint in archive.endpoints:
        lose_journal(endpoint)
    again, told = facts(place, archive.endpoints)
    assert told["hinted"] == 100 and told["set_apart"] == told["lost"] == 0
    found = tree_of(place, again)
    assert contents(found) == contents(before)


@pytest.mark.slow
def test_what_was_packed_behind_the_journal_is_no_other_file(place, archive):
    """The journal ends before files were packed: it names the log, whose stripes are still there, and the pack is no news."""
    mount = place.mount(archive)
    write_files(mount.path / "d", 50)
    (mount.path / "d/file 0007").unlink()
    archive.await_stored()
    mount.umount()
    kept = place.path / "kept"
    for endpoint in archive.endpoints:
        shutil.copytree(endpoint.root, kept / endpoint.name)
    packing(archive)
    mount = place.mount(archive)
    before = lab.describe_tree(mount.path)
    await_packed(archive)
    lose_machine(archive, mount)
    for endpoint in archive.endpoints:  # as if nothing of the journal, nor a deletion, had come there since
        for path in [*lab.files_below(endpoint.root / "journal"), *lab.files_below(endpoint.root / "snapshots")]:
            path.unlink()
        shutil.copytree(kept / endpoint.name, endpoint.root, dirs_exist_ok=True)
    again, told = facts(place, archive.endpoints)
    assert told["hinted"] == told["set_apart"] == told["lost"] == 0
    lab.assert_same_tree(before, tree_of(place, again))


@pytest.mark.slow
def test_what_a_log_was_given_in_vain_is_no_file(place):
    """Too few endpoints took it, and it was stored in the next log; the first has it still when the machine is lost."""
    archive = place.archive([place.sshd(name) for name in lab.NAMES], "rs:4+2", "--key", "none")
    mount = place.mount(archive)
    write_files(mount.path / "d", 5)
    archive.await_stored()
    (paths,) = log_copies(archive).values()
    holders = [endpoint for endpoint in archive.endpoints if set(paths) & set(lab.stripe_files(endpoint))]
    for endpoint in holders[:TOLERANCE]:
        endpoint.suspend()
    texts = {name: f"what is in {name} ".encode() * 20 for name in ("kept", "gone", "replaced", "emptied")}
    writers = [threading.Thread(target=(mount.path / name).write_bytes, args=(text,)) for name, text in texts.items()]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    (mount.path / "replaced").write_bytes(b"something else")
    (mount.path / "emptied").write_bytes(b"")
    (mount.path / "gone").unlink()
    for endpoint in holders[:TOLERANCE]:
        endpoint.resume()
    archive.await_stored()
    assert any(text in path.read_bytes() for path in paths for text in texts.values()), "nothing was in vain"
    before = lab.describe_tree(mount.path)
    lose_machine(archive, mount)
    assert salvaged(place, archive) == contents(before)
    for _ in range(2):
        again, told = facts(place, archive.endpoints)
        assert told["hinted"] == told["set_apart"] == told["lost"] == told["unfinished"] == 0
        lab.assert_same_tree(before, tree_of(place, again))
        assert salvaged(place, archive) == contents(before)


@pytest.mark.slow
def test_dead_packs_are_packed_anew(place, archive):
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 100)
    await_packed(archive)
    for path in sorted((mount.path / "d").iterdir())[10:]:
        path.unlink()
    before = lab.describe_tree(mount.path)
    lab.until(lambda: [kind for kind, _, size in objects(archive) if size < 200_000] == [PACK], 60, "the pack is smaller")
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    shutil.rmtree(mount.path / "d")
    lab.until(lambda: kinds(archive) == [], 60, "a pack of nothing is gone")
    lab.until(lambda: sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == 0, 60, "and its stripes")


def test_packs_that_stay_small_are_left_alone(place, archive):
    """So many codes have one small pack each that it looks as if they were worth a larger one."""
    packing(archive)
    mount = place.mount(archive)
    codes = ["rs:2+1", "rs:2+2", "rs:2+3", "rs:2+4", "rs:3+1", "rs:3+2", "rs:3+3", "rs:4+1", "rs:4+2", "rs:5+1", "ldpc:3+3",
             "ldpc:2+3", "ldpc:3+2", "copies:5", "ldpc:2+2", "ldpc:4+2", "ldpc:2+4"]
    for number, code in enumerate(codes):
        directory = mount.path / str(number)
        directory.mkdir()
        os.setxattr(directory, "user.ecfs.code", code.encode())
        write_files(directory, 4, seed=number)
    await_packed(archive)

    def is_quiet():
        before = uuids(archive)
        time.sleep(4)
        return uuids(archive) == before

    lab.until(is_quiet, 60, "nothing is packed any more")


@pytest.mark.slow
def test_small_packs_become_one(place, archive):
    packing(archive)
    mount = place.mount(archive)
    for number in range(17):
        write_files(mount.path / f"d{number}", 3, seed=number)
        lab.until(lambda: LOG not in kinds(archive), 60, "it is packed")
    before = lab.describe_tree(mount.path)
    lab.until(lambda: len(kinds(archive)) <= 2, 60, "few are left")
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


# Checks and repairs


def stripes_by_kind(archive, kind):
    """(path of the stripe, endpoint) of the objects of a kind."""
    with sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True) as catalog:
        uuids = [uuid.hex() for uuid, in catalog.execute("SELECT uuid FROM objects WHERE kind = ?", (kind,))]
    return [(path, endpoint) for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)
            if path.name.split("-")[0] in uuids]


@pytest.mark.parametrize("damage", ["removed", "cut", "flipped"])
@pytest.mark.slow
def test_fsck_finds_a_damaged_copy_and_packs_what_it_had(place, archive, damage):
    mount = place.mount(archive)
    write_files(mount.path / "d", 50)
    before = lab.describe_tree(mount.path)
    mount.umount()
    for copy, _ in stripes_by_kind(archive, LOG)[:TOLERANCE]:
        if damage == "removed":
            copy.unlink()
        elif damage == "cut":
            os.truncate(copy, copy.stat().st_size // 2)
        else:
            lab.flip(copy, copy.stat().st_size // 2)
    deep = ["--deep"] if damage == "flipped" else []
    assert lab.run(FSCK, *deep, "-n", archive.path, check=False).returncode == 4
    assert lab.run(FSCK, *deep, "-y", archive.path, check=False).returncode == 1
    assert kinds(archive) == [PACK]
    assert lab.run(FSCK, "--deep", "-n", archive.path, check=False).returncode == 0
    lab.assert_same_tree(before, tree_of(place, archive))


def test_all_files_of_a_lost_pack_are_named(place, archive):
    """Too little of it is left: how many files that are is told, and each is exported and listed."""
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 30)
    await_packed(archive)
    before = lab.describe_tree(mount.path)
    mount.umount()
    for path, _ in stripes_by_kind(archive, PACK)[:TOLERANCE + 1]:
        path.unlink()
    target = place.path / "rescued"
    found = lab.run(FSCK, "-n", "--export", target, archive.path, check=False)
    assert "and 29 small files with it: " in found.stdout, found.stdout
    listed = (target / "unreadable.txt").read_text()
    assert listed.count("file ") > 1
    mount = place.mount(archive)
    for path, digest in contents(before).items():
        if path in listed:
            assert (target / path).exists()
        else:  # it lies in stripes that are there
            assert lab.digest(mount.path / path) == digest, path


def test_nobody_misses_what_no_file_has(place, archive):
    """All files of a log went, and then a copy of it."""
    mount = place.mount(archive)
    write_files(mount.path / "d", 5)
    shutil.rmtree(mount.path / "d")
    mount.umount()
    assert kinds(archive) == [LOG]
    path, _ = stripes_by_kind(archive, LOG)[0]
    path.unlink()
    assert lab.run(FSCK, "-n", archive.path, check=False).returncode == 0


def test_a_pack_of_nothing_is_in_no_way(place, archive):
    """Its files went when the mount ended, and an endpoint is to have nothing any more."""
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 20)
    await_packed(archive)
    archive.configure("archive", pack_after="10m")
    mount.umount()
    mount = place.mount(archive)
    shutil.rmtree(mount.path / "d")
    mount.umount()
    assert kinds(archive) == [PACK]
    lab.ecfs("endpoint", "drain", archive.path, archive.endpoints[0].name)
    assert kinds(archive) == []


def holders_of(archive, paths):
    return [endpoint for endpoint in archive.endpoints if set(paths) & set(lab.stripe_files(endpoint))]


def journal_ends(archive):
    return [max((path.name for path in lab.files_below(endpoint.root / "journal")), default="") for endpoint in archive.endpoints]


@pytest.mark.slow
def test_a_copy_that_was_cut_does_not_pass_for_the_log(place):
    """An endpoint that has only the beginning of a log is what is left: what else was in it is told as lost."""
    archive = place.archive([place.sshd(name) for name in lab.NAMES], "rs:4+2", "--key", "none")
    mount = place.mount(archive)
    write_files(mount.path / "d", 5)
    archive.await_stored()
    (paths,) = log_copies(archive).values()
    cut, *others = holders_of(archive, paths)
    cut.suspend()
    ends = journal_ends(archive)
    (mount.path / "late").write_bytes(b"only two of them have this")
    lab.until(lambda: sum(new > old for new, old in zip(journal_ends(archive), ends)) >= 5, 60, "the journal tells of it")
    lose_machine(archive, mount)
    cut.resume()
    for endpoint in others:
        endpoint.kill()
    with_cut = [endpoint for endpoint in archive.endpoints if endpoint not in others]
    _, done = recover(place, with_cut, "--json", check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["lost"] == 1


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.slow
def test_a_copy_that_was_made_anew_is_found(place, is_told):
    """Whether the journal tells of it or not."""
    archive = place.archive([place.sshd(name) for name in lab.NAMES], "rs:4+2", "--key", "none")
    mount = place.mount(archive)
    write_files(mount.path / "d", 20)
    archive.await_stored()
    before = lab.describe_tree(mount.path)
    mount.umount()
    (paths,) = log_copies(archive).values()
    lost, *others = holders_of(archive, paths)
    kept = {endpoint.name: place.path / f"kept-{endpoint.name}" for endpoint in archive.endpoints}
    for endpoint in archive.endpoints:
        shutil.copytree(endpoint.root / "journal", kept[endpoint.name])
    for path in set(paths) & set(lab.stripe_files(lost)):
        path.unlink()
    away = next(endpoint for endpoint in archive.endpoints if endpoint not in (lost, *others))
    away.kill()
    lab.run(FSCK, "-y", archive.path, check=False)
    assert LOG in kinds(archive), "it is packed, and no copy was made"
    away.start()
    shutil.rmtree(archive.path)
    for endpoint in archive.endpoints if not is_told else ():
        shutil.rmtree(endpoint.root / "journal")
        shutil.copytree(kept[endpoint.name], endpoint.root / "journal")
    for endpoint in others:
        endpoint.kill()
    again, told = facts(place, [endpoint for endpoint in archive.endpoints if endpoint not in others])
    assert told["lost"] == 0
    lab.assert_same_tree(before, tree_of(place, again))


@pytest.mark.slow
def test_packs_are_repaired_with_what_they_tell_of_their_files(place, archive):
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 80)
    await_packed(archive)
    (mount.path / "d/file 0007").unlink()
    before = lab.describe_tree(mount.path)
    mount.umount()
    lab.until(lambda: len(stripes_by_kind(archive, PACK)) == 6, 10, "all is there")
    for path, _ in stripes_by_kind(archive, PACK)[:TOLERANCE]:
        path.unlink()
    assert lab.run(FSCK, "-y", archive.path, check=False).returncode == 1
    assert lab.run(FSCK, "--deep", "-n", archive.path, check=False).returncode == 0
    lab.assert_same_tree(before, tree_of(place, archive))
    shutil.rmtree(archive.path)
    for endpoint in archive.endpoints:
        lose_journal(endpoint)
    again, told = facts(place, archive.endpoints)
    assert told["hinted"] == 80 and told["set_apart"] == 0  # only the journal told of the one that was deleted
    found = contents(tree_of(place, again))
    assert found.pop("d/file 0007") and found == contents(before)


def test_an_endpoint_that_goes_has_no_copies_left(place):
    archive = place.archive(place.directories([*lab.NAMES, "grove"]))
    mount = place.mount(archive)
    write_files(mount.path / "d", 50)
    before = lab.describe_tree(mount.path)
    _, endpoint = stripes_by_kind(archive, LOG)[0]
    lab.ecfs("endpoint", "drain", archive.path, endpoint.name)
    lab.ecfs("endpoint", "remove", archive.path, endpoint.name)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    write_files(mount.path / "e", 5)
    mount.umount()


@pytest.mark.slow
def test_an_endpoint_that_fails_ends_the_log_and_nothing_waits(place, archive):
    """What was acknowledged is safe; what comes then goes elsewhere."""
    mount = place.mount(archive)
    write_files(mount.path / "d", 20)
    _, endpoint = stripes_by_kind(archive, LOG)[0]
    endpoint.kill()
    write_files(mount.path / "e", 20, seed=1)
    before = lab.describe_tree(mount.path)
    assert kinds(archive).count(LOG) >= 2 or PACK in kinds(archive)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.kill()
    lab.assert_same_tree(before, tree_of(place, archive))
    endpoint.start()
    assert lab.run(FSCK, "-y", archive.path, check=False).returncode in (0, 1)
    assert lab.run(FSCK, "--deep", "-n", archive.path, check=False).returncode == 0
    lab.assert_same_tree(before, tree_of(place, archive))


def test_who_waits_is_answered_when_all_is_packed(place, archive):
    """An endpoint that was away for a moment is back: what its logs lack comes with the packs, in seconds."""
    mount = place.mount(archive)
    for number in range(2):
        write_files(mount.path / f"d{number}", 20, seed=number)
        _, endpoint = stripes_by_kind(archive, LOG)[0]
        endpoint.kill()
        write_files(mount.path / f"e{number}", 20, seed=10 + number)
        time.sleep(1.2)  # so that somebody else has looked after it, and waits before the next look
        endpoint.start()
        lab.ecfs("wait", mount.path)
    assert archive.json("status")["staging"]["files"] == 0
    mount.umount()


# The other implementation


def salvaged(place, archive, *options, check=True):
    target = place.path / f"salvaged-{next(place.numbers)}"
    key = ["--key", place.path / "key"] if (place.path / "key").exists() else []
    lab.run(sys.executable, SALVAGE, *key, *options, "--to", target, *[endpoint.root for endpoint in archive.endpoints],
            check=check, timeout=300)
    return contents(lab.describe_tree(target))


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.slow
def test_logs_are_salvaged(place, keyed, has_journal):
    """Files that the journal tells of, and those behind its end; none that was deleted or replaced before that."""
    archive = place.archive(place.directories(), "rs:4+2", "--key", "file" if keyed else "none")
    if keyed:
        shutil.copy(archive.path / "key", place.path)
    mount = place.mount(archive)
    write_files(mount.path / "d", 30)
    for word in [b"gone", b"replaced"]:
        (mount.path / word.decode()).write_bytes(word)
    (mount.path / "gone").unlink()
    (mount.path / "replaced").write_bytes(b"anew")
    if has_journal:
        archive.await_stored()
    write_files(mount.path / "e", 30, seed=1)
    before = contents(lab.describe_tree(mount.path))
    lose_machine(archive, mount)
    for copy in lab.stripe_files(archive.endpoints[0]):
        os.truncate(copy, copy.stat().st_size // 2)
    for endpoint in archive.endpoints[1:TOLERANCE]:
        endpoint.kill()
    found = salvaged(place, archive)
    assert {path: digest for path, digest in found.items() if path in before} == before
    assert not has_journal or found == before


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.slow
def test_packs_are_salvaged(place, keyed, has_journal):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "file" if keyed else "none")
    if keyed:
        shutil.copy(archive.path / "key", place.path)
    packing(archive)
    mount = place.mount(archive)
    write_files(mount.path / "d", 100)
    (mount.path / "d/file 0003").unlink()
    await_packed(archive)
    archive.await_stored()
    before = contents(lab.describe_tree(mount.path))
    lab.until(lambda: sum(len(list(lab.stripe_files(endpoint))) for endpoint in archive.endpoints) == 6, 60, "logs are gone")
    lose_machine(archive, mount)
    for endpoint in archive.endpoints[:TOLERANCE]:
        endpoint.kill()
    for endpoint in archive.endpoints[TOLERANCE:]:
        if not has_journal:
            lose_journal(endpoint)
    assert salvaged(place, archive) == before
