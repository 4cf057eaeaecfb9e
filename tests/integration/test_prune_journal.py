"""Pruning accounts that only grow: of the journal, snapshots and markers goes what nobody needs any more."""
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import struct
import zlib

import forge
import lab
import pytest
from test_history import now
from test_logs import FSCK
from test_prune_far import Master, at, grown, remove, store  # noqa: F401 (a fixture)
from test_recover import recover, tree_of
from test_retained import Retaining, contents

KINDS = ("journal", "snapshot", "marker")
FOLDERS = {"journal": "journal", "snapshot": "snapshots", "marker": "markers"}


def names(endpoints, kind):
    return {path for endpoint in endpoints for path in lab.files_below(endpoint.root / FOLDERS[kind])}


def take_snapshot(archive):
    with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(archive.path):
        door.settimeout(30)
        door.connect("control.sock")
        door.sendall(json.dumps({"verb": "journal", "renew": True}).encode() + b"\n")
        answer = json.loads(door.makefile().readline())
    assert "error" not in answer, answer
    archive.await_stored()


def sums(report, word="files"):
    return {kind: sum(row[f"{kind}_{word}"] for row in report["endpoints"]) for kind in KINDS}


def await_superfluous(master, kinds=KINDS, **how):
    lab.until(lambda: all(sums(master.facts("--dry-run", "--max-share", "100", **how))[kind] for kind in kinds), 60,
              "much has been superfluous for long enough", pause=0.3)


def remount(mount):
    mount.umount()
    mount.start()


def lived(archive, mount):
    """Some days: files come and go, mounts too, and there are snapshots in between."""
    for day in range(3):
        store(archive, mount, range(10 * day, 10 * day + 10), size=20_000)
        remove(archive, mount, [10 * day])
        for _ in range(2):
            remount(mount)
            (mount.path / f"file {10 * day + 1}").chmod(0o600 + day)
        archive.await_stored()
        take_snapshot(archive)


@pytest.mark.slow
def test_what_is_superfluous_goes_and_all_that_is_kept_can_be_shown(place, grown):  # noqa: F811
    mount = place.mount(grown)
    lived(grown, mount)
    master = Master(place, grown.endpoints)
    before = {kind: names(grown.endpoints, kind) for kind in KINDS}
    await_superfluous(master, keep="5s")
    assert before == {kind: names(grown.endpoints, kind) for kind in KINDS}, "nothing goes with --dry-run"
    moment, wanted = now(), contents(mount.path)
    remove(grown, mount, [2])
    store(grown, mount, [40], size=30_000)
    last = contents(mount.path)
    shown = master.facts("--dry-run", "--max-share", "100", keep="5s")
    done = master.facts("--max-share", "100", keep="5s")
    assert done["done"] and "journal_stays" not in done, done
    removed = sums(done, "removed")
    assert all(removed[kind] >= sums(shown)[kind] > 0 for kind in KINDS)
    for kind in KINDS:
        gone = before[kind] - names(grown.endpoints, kind)
        assert len(gone) == removed[kind] and sums(done, "removed_bytes")[kind] > 0
    for endpoint in grown.endpoints:
        assert len(lab.files_below(endpoint.root / "snapshots")) >= 2
        assert (endpoint.root / "markers/00000001").exists()

    # All that is kept can be shown, here and by who follows.
    assert at(place, grown, moment) == wanted
    assert "file 2\n" in lab.ecfs("ls", "--at", moment, grown.path).stdout
    follower = lab.ecfs("ls", "--at", moment, master.path).stdout
    assert "file 2\n" in follower
    lab.forget_mounts()
    assert contents(mount.path) == last
    remount(mount)
    assert contents(mount.path) == last

    # And without this machine and two of the accounts.
    mount.umount()
    shutil.rmtree(grown.path)
    past, _ = recover(place, grown.endpoints[2:], "--read-only", "--at", moment)
    assert contents(place.mount(past, "-o", "ro").path) == wanted
    rest, _ = recover(place, grown.endpoints[2:])
    assert contents(place.mount(rest).path) == last


@pytest.mark.slow
def test_a_follower_goes_on_and_so_does_the_next_run(place, grown):  # noqa: F811
    mount = place.mount(grown)
    lived(grown, mount)
    master = Master(place, grown.endpoints)
    await_superfluous(master)
    followed, _ = recover(place, grown.endpoints, "--read-only")
    follower = place.mount(followed, "--follow")
    assert contents(follower.path) == contents(mount.path)
    assert all(sums(master.facts("--max-share", "100"), "removed").values())
    store(grown, mount, [50], size=30_000)
    remove(grown, mount, [3])
    wanted = contents(mount.path)

    def follows():
        try:
            return contents(follower.path) == wanted
        except FileNotFoundError:
            return False  # it went while we looked

    lab.until(follows, 30, "who follows sees what came since")

    # Deaths that are told behind the snapshot are still known, and what is superfluous next goes next.
    take_snapshot(grown)
    take_snapshot(grown)
    await_superfluous(master, ["journal", "snapshot"])
    done = master.facts("--max-share", "100")
    assert done["done"] and sum(row["removed"] for row in done["endpoints"]) >= 6, done
    assert all(row["unknown"] == 0 for row in done["endpoints"])
    lab.forget_mounts()
    assert contents(mount.path) == wanted == contents(follower.path)


def forget_names(archive):
    """What a thief does who has the archive's machine, and means its journal to be thrown away. Were there fewer names than
    inodes have links, no snapshot would be taken."""
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog:
        catalog.execute("UPDATE entries SET name = CAST('nothing' AS BLOB) WHERE name = CAST('file 1' AS BLOB)")
        catalog.commit()


@pytest.mark.slow
def test_a_snapshot_that_tells_something_else_takes_nothing_away(place, grown):  # noqa: F811
    mount = place.mount(grown)
    store(grown, mount, range(6), size=20_000)
    wanted, moment = contents(mount.path), now()
    mount.umount()
    forget_names(grown)
    mount.start()
    assert "file 1" not in contents(mount.path)
    for i in range(2):
        take_snapshot(grown)
        store(grown, mount, [60 + i], size=1000)
    mount.umount()
    master = Master(place, grown.endpoints)
    before = names(grown.endpoints, "journal") | names(grown.endpoints, "snapshot")
    lab.until(lambda: "something else" in master.facts("--dry-run", "--max-share", "100").get("journal_stays", ""), 30,
              "it is seen", pause=0.3)
    told = master.prune("--max-share", "100").stdout
    assert "the journal stays: " in told and "(names)" in told
    assert names(grown.endpoints, "journal") | names(grown.endpoints, "snapshot") == before
    assert at(place, grown, moment) == wanted


@pytest.mark.slow
def test_what_marks_and_absent_accounts_need_stays(place, grown):  # noqa: F811
    mount = place.mount(grown)
    store(grown, mount, range(4), size=20_000)
    lab.ecfs("mark", grown.path, "here")
    wanted = contents(mount.path)
    lived(grown, mount)
    master = Master(place, grown.endpoints)
    await_superfluous(master, ["marker"])
    told = master.facts("--max-share", "100")
    assert "before all marks" in told["journal_stays"] and sums(told)["journal"] == sums(told)["snapshot"] == 0
    assert at(place, grown, "here") == wanted
    lab.ecfs("mark", "--remove", grown.path, "here")
    grown.await_stored()

    # One of six cannot be asked: it may have stripes of which only old changes tell that they are dead.
    grown.endpoints[5].inner.kill()
    lab.until(lambda: "endpoint" in master.facts("--dry-run", "--max-share", "100").get("journal_stays", ""), 30,
              "it is missed", pause=0.3)
    assert sums(master.facts("--dry-run", "--max-share", "100"))["journal"] == 0
    grown.endpoints[5].inner.start()
    await_superfluous(master, ["journal", "snapshot"])
    assert master.facts("--max-share", "100")["done"]


@pytest.mark.slow
def test_what_is_dead_by_old_changes_alone_keeps_them(place, grown):  # noqa: F811
    """A new machine's catalog knows nothing of what died before it, so its snapshots do not, either."""
    mount = place.mount(grown)
    store(grown, mount, range(6), size=20_000)
    stripe = lab.files_below(grown.endpoints[0].root / "stripes")[0]
    remove(grown, mount, range(6))
    mount.umount()
    stripe.chmod(0o600)
    stripe.write_bytes(b"what nobody sealed")
    shutil.rmtree(grown.path)
    recovered, _ = recover(place, grown.endpoints)
    recovered.configure("archive", history="0", deletion_grace="0s", small_file="0")
    mount = place.mount(recovered)
    for i in range(2):
        store(recovered, mount, [i], size=1000)
        take_snapshot(recovered)
    master = Master(place, grown.endpoints)
    lab.until(lambda: "--unproven amber" in master.facts("--dry-run", "--max-share", "100").get("journal_stays", ""), 30,
              "it is seen", pause=0.3)
    told = master.facts("--max-share", "100")
    assert told["done"] and sums(told, "removed")["journal"] == 0 and stripe.exists()
    told = master.facts("--max-share", "100", "--unproven", "amber")
    assert told["done"] and sums(told, "removed")["journal"] > 0 and not stripe.exists()


@pytest.mark.slow
def test_files_that_cannot_be_read_stay(place, grown):  # noqa: F811
    mount = place.mount(grown)
    lived(grown, mount)
    root = grown.endpoints[0].root
    broken = [min(lab.files_below(root / "journal")), root / "markers/00000002"]
    for path in broken:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-3])
        os.utime(path, (1_000_000_000, 1_000_000_000))
    master = Master(place, grown.endpoints)
    await_superfluous(master)
    told = master.facts("--max-share", "100")
    assert told["done"] and told["endpoints"][0]["unreadable"] == 2, told
    assert all(path.exists() for path in broken)
    mount.umount()
    mount.start()
    store(grown, mount, [70], size=1000)


def merged(paths, target):
    """One segment of the records of several, as ecfs merges them, in an archive without a key."""
    heads = [path.read_bytes()[:144] for path in paths]
    raw = b"".join(zlib.decompress(path.read_bytes()[144:]) for path in paths)
    stored, head = zlib.compress(raw), bytearray(heads[0])
    n_records = sum(struct.unpack_from("<I", one, 44)[0] for one in heads)
    struct.pack_into("<I", head, 44, n_records)
    head[56:72] = heads[-1][56:72]  # the last record and its time
    struct.pack_into("<QQ", head, 72, len(raw), len(stored))
    head[88:104] = forge.xxh3_128(stored)
    struct.pack_into("<Q", head, 136, forge.xxh3_64(bytes(head[:136])))
    target.write_bytes(bytes(head) + stored)


@pytest.mark.slow
def test_what_was_merged_goes_as_well(place):
    """As of an account that deleted once: what the wide one has byte for byte, and nothing else."""
    archive = place.archive([Retaining(endpoint) for endpoint in place.directories()], "rs:4+2", "--key", "none")
    archive.configure("archive", history="0", deletion_grace="0s", small_file="0", journal_interval="1s")
    mount = place.mount(archive)
    for i in range(5):
        store(archive, mount, [i], size=1000)
    wanted = contents(mount.path)
    mount.umount()
    folder = archive.endpoints[0].root / "journal"
    small = sorted(lab.files_below(folder))[:4]
    wide = folder / f"{small[0].name[:26]}{small[-1].name[26:]}"
    merged(small, wide)
    other = folder / f"{small[0].name[:26]}{small[1].name[26:]}"  # of two of them, with another time
    merged(small[:2], other)
    content = bytearray(other.read_bytes())
    raw = bytearray(zlib.decompress(bytes(content[144:])))
    raw[8] ^= 1
    stored = zlib.compress(bytes(raw))
    content[144:] = stored
    struct.pack_into("<Q", content, 80, len(stored))
    content[88:104] = forge.xxh3_128(stored)
    struct.pack_into("<Q", content, 136, forge.xxh3_64(bytes(content[:136])))
    other.write_bytes(bytes(content))
    master = Master(place, archive.endpoints)
    await_superfluous(master, ["journal"])
    done = master.facts("--max-share", "100")
    assert done["done"] and sums(done, "removed")["journal"] == 4, done
    assert wide.exists() and other.exists() and not any(path.exists() for path in small)
    other.unlink()
    shutil.rmtree(archive.path)
    rest, _ = recover(place, archive.endpoints[:1] + archive.endpoints[3:])
    assert contents(place.mount(rest).path) == wanted


@pytest.mark.parametrize("retaining", [6, 2])
@pytest.mark.slow
def test_a_snapshot_tells_what_all_kinds_of_changes_do(place, retaining):
    """Also where some accounts delete, and small files lie in logs and packs."""
    directories = place.directories()
    endpoints = [Retaining(one) for one in directories[:retaining]] + directories[retaining:]
    archive = place.archive(endpoints, "rs:3+2", "--key", "split")
    archive.configure("archive", history="0", deletion_grace="0s", journal_interval="1s", pack_after="1s")
    mount = place.mount(archive)
    top = mount.path
    for i in range(30):
        lab.write_pattern(top / f"small {i}", 900 + i, seed=i)
    (top / "d/e").mkdir(parents=True)
    os.setxattr(top / "d", "user.ecfs.code", b"copies:3")
    lab.write_pattern(top / "d/e/copies", 70_000, seed=40)
    lab.write_pattern(top / "large", 3_000_000, seed=41)
    archive.await_stored()
    os.setxattr(top / "large", "user.mine", b"value")
    os.symlink("large", top / "link")
    os.link(top / "large", top / "d/hard")
    os.mkfifo(top / "fifo")
    os.truncate(top / "small 3", 100)
    os.truncate(top / "large", 2_500_000)
    with open(top / "hole", "wb") as file:
        file.truncate(1_000_000)
    os.rename(top / "small 1", top / "d/moved")
    os.rename(top / "d/e", top / "e")
    os.removexattr(top / "large", "user.mine")
    for i in range(10, 20):
        (top / f"small {i}").unlink()
    open(top / "empty", "wb").close()
    archive.await_stored()
    lab.ecfs("recode", archive.path, "/large", "--code", "rs:4+1")
    lab.ecfs("mark", archive.path, "gone")
    lab.ecfs("mark", "--remove", archive.path, "gone")
    for path in lab.files_below(directories[5].root / "stripes")[:3]:
        path.chmod(0o600)
        path.unlink()
    lab.run(FSCK, "-y", archive.path, check=False)
    archive.await_stored()
    unlinked = open(top / "small 5", "rb")  # in no directory, and there
    (top / "small 5").unlink()
    take_snapshot(archive)
    store(archive, mount, [1])
    take_snapshot(archive)
    unlinked.close()
    wanted = lab.describe_tree(top)
    master = Master(place, archive.endpoints)
    lab.until(lambda: "no snapshot" not in master.facts("--dry-run", "--max-share", "100").get("journal_stays", ""), 40,
              "a snapshot is old enough", pause=0.3)
    master.accept()
    done = master.facts()
    assert done["done"] and "journal_stays" not in done and sums(done, "removed")["journal"] > 0, done
    lab.forget_mounts()
    lab.assert_same_tree(wanted, lab.describe_tree(top))
    mount.umount()
    shutil.rmtree(archive.path)
    rest, _ = recover(place, archive.endpoints)
    lab.assert_same_tree(wanted, tree_of(place, rest))
