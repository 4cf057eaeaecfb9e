"""Stripes that nothing knows: removed when old, and never what a newer catalog may know."""
import os
import shutil
import time
import uuid

import lab
import pytest
from test_fsck import CLEAN, FAILED, LEFT, PROGRAM, facts, fsck, rows, serving, stored, tree
from test_recover import recover

OLD = time.time() - 30 * 86400


def at_rest(archive):
    """Everything that endpoints hold but what is told of them."""
    return {str(path): lab.digest(path) for endpoint in archive.endpoints
            for path in sorted((endpoint.root / "stripes").rglob("*")) if path.is_file()}


def age(archive):
    for endpoint in archive.endpoints:
        for path in (endpoint.root / "stripes").rglob("*"):
            os.utime(path, (OLD, OLD))


def orphaned(place, archive):
    """Real stripes of a file that was deleted, and what brings them back to their endpoints."""
    archive.configure("archive", deletion_grace="0")
    lab.write_pattern(place.path / "gone", 300_000, 5)
    archive.put_in_full(tree(place, 8, 50_000), "/")
    archive.put_in_full(place.path / "gone", "/")
    paths = [path for _, path in stored(archive, "gone")]
    for number, path in enumerate(paths):
        shutil.copy2(path, place.path / f"kept{number}")
    mount = place.mount(archive)
    os.unlink(mount.path / "gone")
    lab.until(lambda: not any(path.exists() for path in paths) and not rows(archive, "SELECT 1 FROM deletions"), 60,
              "the stripes are deleted")
    mount.umount()

    def bring_back():
        for number, path in enumerate(paths):
            shutil.copy(place.path / f"kept{number}", path)
        age(archive)
    return paths, bring_back


@pytest.mark.slow
def test_only_what_is_old_and_unknown_is_removed(place, archive):
    paths, bring_back = orphaned(place, archive)
    nothing_is_removed_by_who_is_not_sure(archive, bring_back)
    only_what_is_old_is_removed(archive, paths, bring_back)
    the_mount_removes_them(place, archive, bring_back)


def only_what_is_old_is_removed(archive, paths, bring_back):
    bring_back()
    known = {path for _, path in stored(archive)}
    os.utime(paths[0])
    renamed = paths[1].with_name(paths[1].name[:-16] + "0123456789abcdef")
    garbage = paths[2].with_name(paths[2].name[:-16] + "0123456789abcdef")
    shutil.copy(paths[1], renamed)
    garbage.write_bytes(b"no stripe" * 1000)
    for path in [renamed, garbage]:
        os.utime(path, (OLD, OLD))
    before = at_rest(archive)
    for arguments in [(), ("--prune",), ("-n", "--prune"), ("-y",), ("-y", "--prune", "--older-than", "60d")]:
        status, _, summary = facts(archive, *arguments)
        assert status in [CLEAN, LEFT] and summary["orphans"] == len(paths) + 2 and at_rest(archive) == before
    assert facts(archive, "-n", "--prune")[2]["orphans_old"] == len(paths) + 1
    status, findings, summary = facts(archive, "-y", "--prune")
    assert status == LEFT and summary["orphans_removed"] == len(paths) - 1 and summary["orphans_old"] == len(paths) + 1
    assert {finding["text"].split(": ")[0] for finding in findings if finding["about"] == "prune"} <= {
        f"endpoint {endpoint.name}" for endpoint in archive.endpoints}
    left = {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
    assert left == known | {paths[0], renamed, garbage}
    assert fsck(archive, "--deep")[0] == CLEAN
    for path in [paths[0], renamed, garbage]:
        path.unlink()


def the_mount_removes_them(place, archive, bring_back):
    """Who is asked for them by ecfs-fsck."""
    bring_back()
    known = {path for _, path in stored(archive)}
    mount = serving(place, archive)
    status, _, summary = facts(archive, "-y", "--prune")
    assert status == CLEAN and summary["orphans_removed"] == summary["orphans"] > 0
    assert {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)} == known
    assert facts(archive, "-y", "--prune")[2]["orphans"] == 0
    mount.umount()


def nothing_is_removed_by_who_is_not_sure(archive, bring_back):
    """Too few endpoints answer, or the catalog has problems."""
    bring_back()
    before = at_rest(archive)
    for endpoint in archive.endpoints[1:]:
        endpoint.kill()
    status, _, summary = facts(archive, "-y", "--prune")
    assert status == LEFT and summary["orphans_removed"] == 0
    for endpoint in archive.endpoints[1:]:
        endpoint.start()
    rows(archive, "UPDATE counters SET n_objects = n_objects + 1")
    status, findings, summary = facts(archive, "-y", "--prune")
    assert status == LEFT and summary["orphans_removed"] == 0 and at_rest(archive) == before
    assert any(finding["about"] == "prune" and "problems" in finding["text"] for finding in findings)
    rows(archive, "UPDATE counters SET n_objects = n_objects - 1")


@pytest.mark.slow
def test_who_cannot_note_removes_what_its_endpoint_tells_the_time_of(place, archive):
    paths, bring_back = orphaned(place, archive)
    (archive.path / "scrub.sqlite").unlink(missing_ok=True)
    (archive.path / "scrub.sqlite").mkdir()
    bring_back()
    os.utime(paths[0], (0, 0))  # as one that tells none
    done = lab.run(PROGRAM, archive.path, "-y", "--prune", "--older-than", "1d", check=False)
    assert "scrub.sqlite" in done.stderr and "stay" in done.stderr
    assert [path for path in paths if path.exists()] == [paths[0]] and done.returncode == CLEAN, done


@pytest.mark.slow
def test_what_a_recovery_left_alone_stays(place, archive):
    """It may be of a file that had too few stripes at the endpoints that were there."""
    paths, bring_back = orphaned(place, archive)
    shutil.rmtree(archive.path)
    recovered, _ = recover(place, archive.endpoints)
    recovered.configure("archive", deletion_grace="0")
    mount = place.mount(recovered)
    lab.until(lambda: not rows(recovered, "SELECT 1 FROM deletions"), 60, "nothing waits to be deleted")
    mount.umount()
    bring_back()
    before = at_rest(recovered)
    unrecovered_ones_are_named_and_stay(recovered, len(paths), at_rest(recovered))
    mount = serving(place, recovered)
    unrecovered_ones_are_named_and_stay(recovered, len(paths), before)
    mount.umount()
    status, _, summary = facts(recovered, "-y", "--prune", "--unrecovered", str(len(paths)))
    assert status == CLEAN and summary["orphans_removed"] == len(paths)
    assert {path for endpoint in recovered.endpoints for path in lab.stripe_files(endpoint)} == {
        path for _, path in stored(recovered)}


def unrecovered_ones_are_named_and_stay(archive, n, before):
    sizes = sum(path.stat().st_size for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)
                if path not in {path for _, path in stored(archive)})
    for arguments in [(), ("--unrecovered", str(n - 1)), ("--unrecovered", str(n + 1))]:
        status, findings, summary = facts(archive, "-y", "--prune", *arguments)
        assert status == LEFT and summary["orphans_removed"] == 0 and summary["orphans_old"] == n
        (named,) = [finding for finding in findings if finding["about"] == "unrecovered"]
        assert named["stripes"] == summary["orphans_unrecovered"] == n and named["bytes"] == sizes
        assert any(finding["about"] == "prune" for finding in findings) == bool(arguments)
        assert at_rest(archive) == before
    told = fsck(archive, "-y", "--prune")[1]
    assert f"--unrecovered {n}" in told and named["object"] in told


@pytest.mark.slow
def test_what_an_object_has_at_another_endpoint_stays(place, archive):
    """Endpoints that were copied, or that share a disk."""
    archive.put_in_full(tree(place, 8, 50_000), "/")
    for endpoint, other in zip(archive.endpoints, archive.endpoints[1:] + archive.endpoints[:1]):
        for path in lab.stripe_files(endpoint):
            copy = other.root / path.relative_to(endpoint.root)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, copy)
    age(archive)
    before = at_rest(archive)
    assert facts(archive, "-y", "--prune")[2]["orphans_old"] == 0 and at_rest(archive) == before
    any_number_of_orphans_is_counted(archive)


def any_number_of_orphans_is_counted(archive, n=9000):
    """More than are held in memory at a time: each once, told by name or not."""
    root = archive.endpoints[0].root / "stripes"
    for number in range(1, n + 1):
        name = f"{uuid.UUID(int=number << 100 | number).hex}-00-{number:016x}"
        (root / name[:3]).mkdir(exist_ok=True)
        (root / name[:3] / name).touch()
    status, findings, summary = facts(archive)
    assert status == CLEAN and summary["orphans"] == n and summary["orphans_old"] == 0
    assert sum(finding["about"] == "orphan" for finding in findings) == 100


@pytest.mark.slow
def test_last_weeks_archive_directory_deletes_nothing(place, archive):
    """Every verb is run on it; what was stored since stays, and is there for who has the newer catalog."""
    archive.configure("archive", deletion_grace="0")
    top = tree(place, 8, 50_000)
    archive.put_in_full(top, "/")
    backup = place.path / "backup"
    shutil.copytree(archive.path, backup, ignore=shutil.ignore_patterns("control.sock"))
    lab.write_pattern(top / "new", 400_000, 77)
    shutil.rmtree(top / "below")
    mount = place.mount(archive)
    shutil.rmtree(mount.path / "tree/below")
    shutil.copy2(top / "new", mount.path / "tree/new")
    archive.await_stored()
    mount.umount()
    newer = place.path / "newer"
    os.rename(archive.path, newer)
    shutil.copytree(backup, archive.path)
    age(archive)
    before = at_rest(archive)
    assert fsck(archive, "-y", "--prune")[0] == FAILED
    for arguments in [("-n", "--prune", "--deep"), ("-y", "--deep"), ("--deep",)]:
        assert fsck(archive, *arguments)[0] & ~(LEFT | FAILED) == CLEAN
    destination = place.path / "fetched"
    destination.mkdir()
    for verb in [("status",), ("ls", "/"), ("info", "/tree/large"), ("wait",), ("endpoint", "list"), ("recode", "/tree", "--code", "rs:3+2")]:
        lab.ecfs(*verb[:1 + (verb[0] == "endpoint")], archive.path, *verb[1 + (verb[0] == "endpoint"):], check=False)
    lab.ecfs("put", archive.path, top / "new", "/other", check=False)
    lab.ecfs("get", archive.path, "/tree", destination, check=False)
    lab.ecfs("drill", archive.path, "--without", "amber", check=False)
    lab.ecfs("tune", archive.path, "--load=1M", check=False)
    after = at_rest(archive)
    assert {path: after.get(path) for path in before} == before
    shutil.rmtree(archive.path)
    os.rename(newer, archive.path)
    assert fsck(archive, "--deep")[0] == CLEAN
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)
