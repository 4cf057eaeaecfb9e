"""What history keeps is looked after like the present: counted, rebuilt, moved, and told where it cannot be."""
import shutil

import lab
import pytest
from test_history import kept, now, tree_at  # noqa: F401 (a fixture)
from test_logs import FSCK, write_files
from test_recover import recover, tree_of


def fsck(archive, *options):
    """Exit status, and what it says of history."""
    done = lab.run(FSCK, *options, archive.path, check=False)
    line = [line.strip() for line in done.stdout.splitlines() if line.startswith("  history")]
    return done.returncode, line[0] if line else ""


def lose_stripes(endpoint):
    for path in lab.stripe_files(endpoint):
        if "stripes" in path.parts:
            path.unlink()


def past(archive):
    return archive.json("status")["past"]


@pytest.fixture
def gone(place, kept):  # noqa: F811
    """Small files, large ones and a file of several versions, all of which only the past has: (mount, moment, tree)"""
    mount = place.mount(kept)
    write_files(mount.path / "d", 12)
    (mount.path / "large").write_bytes(bytes(range(256)) * 3000)
    (mount.path / "versions").write_bytes(b"first" * 20_000)
    kept.await_stored()
    moment, tree = now(), lab.describe_tree(mount.path)
    shutil.rmtree(mount.path / "d")
    (mount.path / "large").unlink()
    (mount.path / "versions").write_bytes(b"second" * 20_000)
    kept.await_stored()
    lab.until(lambda: past(kept)["objects"] >= 3, 60, "the log is of the past as well")
    return mount, moment, tree


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_what_is_missing_is_counted_and_rebuilt(place, kept, gone, mounted):  # noqa: F811
    mount, moment, tree = gone
    n_objects = past(kept)["objects"]
    if not mounted:
        mount.umount()
    assert fsck(kept, "-n")[0] == 0
    lose_stripes(kept.endpoints[0])
    status, line = fsck(kept, "-n")
    assert status == 4 and f"{n_objects} objects" in line and not line.startswith("history  0 ")
    status, line = fsck(kept, "-y", "--deep")
    assert status == 1 and "rebuilt" in line
    status, line = fsck(kept, "--deep", "-n")
    assert status == 0 and line.startswith("history  0 stripes missing")
    for endpoint in kept.endpoints[1:3]:
        endpoint.kill()
    lab.assert_same_tree(tree, tree_at(place, kept, moment))


@pytest.mark.slow
def test_it_moves_off_an_endpoint_and_is_rebuilt_for_a_dead_one(place, kept, gone):  # noqa: F811
    _, moment, tree = gone
    spares = place.directories(["spare1", "spare2"])
    lab.ecfs("endpoint", "add", kept.path, spares[0].endpoint())
    lab.ecfs("endpoint", "drain", kept.path, kept.endpoints[0].name)
    assert lab.ecfs("endpoint", "remove", kept.path, kept.endpoints[0].name).returncode == 0
    kept.endpoints[1].kill()
    lab.ecfs("endpoint", "replace", kept.path, kept.endpoints[1].name, spares[1].endpoint())
    assert past(kept)["lacking"] == 0
    for endpoint in kept.endpoints[2:4]:
        endpoint.kill()
    lab.assert_same_tree(tree, tree_at(place, kept, moment))
    lab.ecfs("undelete", kept.path, "/d", "/large", "--at", moment)
    again = {path: facts for path, facts in tree.items() if path != "versions"}
    found = tree_of(place, kept, "-o", "at=" + now())
    lab.assert_same_tree(again, {path: facts for path, facts in found.items() if path != "versions"})


@pytest.mark.slow
def test_what_goes_with_an_endpoint_is_told(place, kept, gone):  # noqa: F811
    """Nothing is left to rebuild it from: that holds up nobody who takes the endpoint out."""
    mount, _, _ = gone
    (mount.path / "versions").unlink()
    kept.await_stored()
    spare, = place.directories(["spare"])
    lab.ecfs("endpoint", "add", kept.path, spare.endpoint())
    dead, *others = kept.endpoints[:3]
    for endpoint in others:
        endpoint.kill()
        lab.ecfs("endpoint", "distrust", kept.path, endpoint.name)
    dead.kill()
    lab.until(lambda: past(kept)["degraded"] + past(kept)["unreadable"] == past(kept)["objects"], 60, "all are away")
    n_objects = past(kept)["unreadable"]
    assert n_objects >= 3  # of some small ones there are copies elsewhere
    plan = lab.ecfs("endpoint", "drain", "--dry-run", kept.path, dead.name).stdout
    assert f"lost     {n_objects} objects of the history" in plan
    drained = lab.ecfs("endpoint", "drain", kept.path, dead.name)
    assert f"history: {n_objects} objects cannot be rebuilt without endpoint {dead.name}" in drained.stderr
    removed = lab.ecfs("endpoint", "remove", kept.path, dead.name)
    assert f"history: {n_objects} objects cannot be rebuilt without it" in removed.stderr
    assert past(kept)["lacking"] >= n_objects


@pytest.mark.slow
def test_what_was_removed_before_it_was_full_becomes_full(place, kept):  # noqa: F811
    kept.endpoints[5].kill()
    mount = place.mount(kept)
    (mount.path / "file").write_bytes(b"bytes" * 30_000)
    tree, moment = lab.describe_tree(mount.path), None
    lab.ecfs("wait", "--quorum", kept.path)
    moment = now()
    (mount.path / "file").unlink()
    lab.until(lambda: past(kept)["lacking"] == 1, 60, "it lacks a stripe")
    verdict = lab.ecfs("status", kept.path).stdout
    assert "history: 1 objects that only the past has lack stripes" in verdict
    kept.endpoints[5].start()
    lab.until(lambda: past(kept)["lacking"] == 0, 60, "it is whole")
    for endpoint in kept.endpoints[:2]:
        endpoint.kill()
    lab.assert_same_tree(tree, tree_at(place, kept, moment))


@pytest.mark.slow
def test_a_recovery_finds_what_was_rebuilt(place, kept, gone):  # noqa: F811
    mount, moment, tree = gone
    lose_stripes(kept.endpoints[0])
    assert fsck(kept, "-y")[0] == 1
    kept.await_stored()
    mount.kill()
    shutil.rmtree(kept.path)
    for endpoint in kept.endpoints[1:3]:
        endpoint.kill()
    left = [kept.endpoints[0], *kept.endpoints[3:]]
    then, _ = recover(place, left, "--read-only", "--at", moment)
    lab.assert_same_tree(tree, tree_of(place, then, "-o", "ro"))
    recovered, _ = recover(place, left, "--yes")
    lab.assert_same_tree(tree, tree_at(place, recovered, moment))


@pytest.mark.slow
def test_a_new_machine_gets_what_a_mark_names(place, archive):
    """After a thief was there, with two endpoints gone as well. What he left is history, and nothing of it is destroyed."""
    archive.configure("archive", history="0", deletion_grace="0s", pack_after="1s")
    mount = place.mount(archive)
    write_files(mount.path / "d", 20)
    (mount.path / "large").write_bytes(bytes(range(256)) * 3000)
    archive.await_stored()
    lab.ecfs("mark", archive.path, "before")
    before = lab.describe_tree(mount.path)
    shutil.rmtree(mount.path / "d")
    (mount.path / "large").write_bytes(b"give me money" * 9000)
    archive.await_stored()
    lab.ecfs("mark", archive.path, "after")
    moment, robbed = now(), lab.describe_tree(mount.path)
    mount.kill()
    shutil.rmtree(archive.path)
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    left = archive.endpoints[2:]
    unknown = recover(place, left, "--at", "another", check=False)[1]
    assert unknown.returncode == 2 and "no mark of that name; there are: before, after, and" in unknown.stderr
    recovered, told = recover(place, left, "--at", "before", "--yes", "--set", "deletion_grace=0s")
    assert "marks of later moments end: after." in told.stdout + told.stderr
    mount = place.mount(recovered)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    lab.assert_same_tree(robbed, tree_at(place, recovered, moment))
    lab.assert_same_tree(before, tree_at(place, recovered, "before"))
    write_files(mount.path / "since", 5, seed=2)
    (mount.path / "large").unlink()
    recovered.await_stored("--quorum")  # what two endpoints have nobody can look for
    after = lab.describe_tree(mount.path)
    lab.assert_same_tree(robbed, tree_at(place, recovered, moment))
    lab.assert_same_tree(before, tree_at(place, recovered, "before"))
    mount.kill()
    shutil.rmtree(recovered.path)
    for how, tree in (([], after), (["--at", "before"], before)):
        again, _ = recover(place, left, "--read-only", *how)
        lab.assert_same_tree(tree, tree_of(place, again, "-o", "ro"))


def empty(endpoint):
    """What an account has that was wiped and made anew, with its marker put back."""
    for path in endpoint.root.rglob("*"):
        if path.is_file() and path.name != "ecfs-endpoint":
            path.unlink()


@pytest.mark.slow
def test_accounts_that_are_emptied_get_what_tells_the_past(place, kept, gone):  # noqa: F811
    """One after another, each is filled again: then any two may vanish, and the past is told by the others."""
    mount, moment, tree = gone
    mark = lab.ecfs("mark", kept.path, "before")
    assert mark.returncode == 0
    for endpoint in kept.endpoints[:4]:
        empty(endpoint)
        assert fsck(kept, "-y")[0] == 1
        assert fsck(kept, "-y", "--deep")[0] == 0
    for endpoint in kept.endpoints[4:6]:
        endpoint.kill()
    lab.assert_same_tree(tree, tree_at(place, kept, moment))
    mount.umount()


@pytest.mark.slow
def test_that_the_past_is_not_told_everywhere_is_told(place, kept, gone):  # noqa: F811
    """Also where two snapshots of the present came since."""
    gone[0].umount()
    victim = kept.endpoints[0]
    for endpoint in kept.endpoints[1:3]:
        empty(endpoint)
        assert fsck(kept, "-y")[0] == 1
    assert fsck(kept, "-n")[0] == 0
    segments = sorted(path for path in (victim.root / "journal").iterdir())
    damaged = kept.endpoints[3].root / "journal" / segments[0].name  # which hides no good one
    if damaged.exists():
        lab.flip(damaged, damaged.stat().st_size // 2)
    segments[0].unlink()
    done = lab.run(FSCK, "-n", kept.path, check=False)
    assert done.returncode == 4 and f"endpoint {victim.name}: it lacks 1 files of the journal" in done.stdout
    assert lab.run(FSCK, "-y", kept.path, check=False).returncode == 1
    assert segments[0].exists() and lab.run(FSCK, "-n", kept.path, check=False).returncode == 0


@pytest.mark.slow
def test_new_accounts_get_what_tells_the_past(place, kept, gone):  # noqa: F811
    """All are replaced, one after another, each after snapshots of the present took the place of its records."""
    _, moment, tree = gone
    for number, endpoint in enumerate(list(kept.endpoints[:6])):
        new = place.directories([f"new{number}"])[0]
        lab.ecfs("endpoint", "replace", kept.path, endpoint.name, new.endpoint())
        endpoint.kill()
    lab.assert_same_tree(tree, tree_at(place, kept, moment))


@pytest.mark.slow
def test_what_may_go_with_an_endpoint_that_cannot_be_asked_is_told(place, kept, gone):  # noqa: F811
    """Where the others have all of the journal nothing is told, so one that is dead is taken out as quietly as ever."""
    mount, _, _ = gone
    mount.umount()
    spares = place.directories(["spare1", "spare2"])
    for spare in spares:
        lab.ecfs("endpoint", "add", kept.path, spare.endpoint())
    for path in (kept.endpoints[2].root / "journal").iterdir():  # so that the check stores a snapshot
        path.unlink()
    lab.run(FSCK, "-y", kept.path, check=False)
    assert list((kept.endpoints[3].root / "snapshots").iterdir())
    for number, endpoint in enumerate(kept.endpoints[:2]):
        lab.ecfs("endpoint", "drain", kept.path, endpoint.name)
        endpoint.kill()
        if number == 1:
            for other in (*kept.endpoints[2:], *spares):
                for path in sorted((other.root / "journal").iterdir())[:1]:
                    path.unlink()
        told = lab.ecfs("endpoint", "remove", kept.path, endpoint.name).stderr
        assert ("cannot be asked what it has of the journal" in told) == (number == 1), told
