"""ecfs recover beside a mount that goes on: what it claims, what it leaves when it fails or is killed."""
import contextlib
import os
import re
import shutil
import signal
import subprocess

import lab
import pytest

NAMES = lab.NAMES


@pytest.fixture
def flawed(monkeypatch):
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")


@pytest.fixture
def hasty(flawed, monkeypatch):
    """A mount takes a claim for dead after 6 seconds instead of 120, a recovery after 2."""
    monkeypatch.setenv("ECFS_LAB_HASTE", "20")


def words_of(place, endpoints, rules):
    """The endpoints for recover alone, with these rules of what goes wrong, by name."""
    words = []
    for endpoint in endpoints:
        flaws = place.path / f"flaws-{next(place.numbers)}"
        flaws.write_text("".join(f"{rule}\n" for rule in rules.get(endpoint.name, rules.get("*", []))))
        words += ["--endpoint", f"{endpoint.name}=flaw+file://{endpoint.root},flaws={flaws}"]
    return words


def files(endpoints):
    return {str(path): path.read_bytes() for endpoint in endpoints for path in sorted(endpoint.root.rglob("*"))
            if path.is_file()}


def markers(endpoints):
    return [(endpoint.root / "ecfs-endpoint").read_text() for endpoint in endpoints]


def has_claim(endpoints):
    return any("claim_session" in text for text in markers(endpoints))


def written(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    for number in range(3):
        lab.write_pattern(mount.path / f"file{number}", 60_000 + number, number)
    archive.await_stored()
    return endpoints, archive, mount


def goes_on(place, archive, mount):
    """The mount stores more, and the next one has all of it."""
    lab.write_pattern(mount.path / "later", 70_000, 9)
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    mount.umount()
    mount = place.mount(archive)
    assert " is an old copy: " not in mount.text()  # it may say what becomes one
    assert lab.describe_tree(mount.path) == expected
    (mount.path / "last").write_bytes(b"last")
    archive.await_stored()
    mount.umount()


@pytest.mark.parametrize("rules", [
    {"*": ["write 1+ fail 28"]},  # no room for the snapshot
    {"*": ["mark 2+ fail 28"], NAMES[0]: ["mark 3+ fail 5"]},  # claimed, and then no more
    {"*": [], NAMES[1]: ["list 6+ fail 5"]},  # dies in the middle
], ids=["full", "markers", "dies"])
@pytest.mark.slow
def test_one_that_fails_leaves_nothing_behind(place, flawed, rules):
    endpoints, archive, mount = written(place)
    before = files(endpoints)
    failed = lab.ecfs("recover", place.path / "new", "--force", *words_of(place, endpoints, rules), check=False)
    assert failed.returncode == 1
    assert not (place.path / "new").exists()
    if "mark 2+ fail 28" not in rules["*"]:
        assert files(endpoints) == before
    else:  # what cannot be taken back is named
        assert "its marker keeps what" in failed.stderr
        assert [text for text in markers(endpoints[1:]) if "epoch=1\n" not in text.replace("claim_epoch", "")] == []
    if not has_claim(endpoints):
        goes_on(place, archive, mount)


def is_written(path):
    with contextlib.suppress(OSError):
        return lab.write_pattern(path, 70_000, 9)
    return False


@pytest.mark.parametrize("rules", [
    {NAMES[3]: ["mark 1 hang"]},  # some have the claim
    {NAMES[0]: ["list 5 hang"]},  # all have it: before are markers, the key, and whether the journal is sealed
    {NAMES[1]: ["write 1 hang"]},  # half a snapshot
    {NAMES[0]: ["mark 2 hang"]},  # all of it, and no marker
], ids=["claiming", "reading", "snapshot", "markers"])
@pytest.mark.slow
def test_one_that_is_killed_makes_no_old_copy_of_the_living_archive(place, hasty, rules):
    endpoints, archive, mount = written(place)
    first = markers(endpoints)
    process = subprocess.Popen([lab.PROGRAM, "recover", place.path / "new", "--force",
                                *words_of(place, endpoints, rules)], stderr=subprocess.PIPE)
    wanted = (lambda: list((endpoints[0].root / "snapshots").glob("*"))) if "write" in str(rules) or "mark 2" in str(
        rules) else lambda: has_claim(endpoints)
    lab.until(wanted, 30, "it is in the middle")
    if "mark 2" in str(rules):
        lab.until(lambda: all(list((endpoint.root / "snapshots").glob("*-end")) for endpoint in endpoints), 30,
                  "the snapshot is there")
    process.kill()
    process.wait()
    for text, now in zip(first, markers(endpoints)):
        for key in ("epoch", "sequence", "session"):
            assert re.search(f"(?m)^{key}=.*$", text + f"{key}=")[0] == re.search(f"(?m)^{key}=.*$", now + f"{key}=")[0]
    lab.until(lambda: is_written(mount.path / "later"), 200, "writing waits for a claim that was seen, or does not see it")
    expected = lab.describe_tree(mount.path)
    lab.until(lambda: lab.ecfs("wait", archive.path, check=False).returncode == 0, 200, "the claim is taken for dead")
    mount.umount()
    mount = place.mount(archive)
    assert " is an old copy: " not in mount.text()  # it may say what becomes one
    assert lab.describe_tree(mount.path) == expected
    mount.umount()
    if "mark 2" in str(rules):  # the next recovery takes what was stored since, and not the snapshot of the dead one
        words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
        lab.ecfs("recover", place.path / "new again", "--force", *words)
        mount = place.mount(lab.Archive(place.path / "new again", endpoints))
        assert lab.describe_tree(mount.path) == expected
        mount.umount()


@pytest.mark.slow
def test_one_that_is_interrupted_takes_everything_back(place, flawed):
    endpoints, archive, mount = written(place)
    before = files(endpoints)
    words = words_of(place, endpoints, {"*": ["list 1+ delay 500"]})
    process = subprocess.Popen([lab.PROGRAM, "recover", place.path / "new", "--force", *words])
    lab.until(lambda: has_claim(endpoints), 30, "it is in the middle")
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 1
    assert files(endpoints) == before and not (place.path / "new").exists()
    goes_on(place, archive, mount)


@pytest.mark.slow
def test_two_at_once_do_not_both_win(place, flawed, monkeypatch):
    monkeypatch.setenv("ECFS_LAB_HASTE", "10")  # who lives has 4.5 seconds to show it
    endpoints, archive, mount = written(place)
    mount.umount()
    process = subprocess.Popen([lab.PROGRAM, "recover", place.path / "new", "--force",
                                *words_of(place, endpoints, {"*": ["list 4+ delay 1800"]})])
    lab.until(lambda: all("claim_session" in text for text in markers(endpoints)), 30, "the claim stands")
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    refused = lab.ecfs("recover", place.path / "other", "--force", *words, check=False)
    assert refused.returncode == 1 and "another recovery of this archive is under way" in refused.stderr
    process.kill()
    process.wait()
    done = lab.ecfs("recover", place.path / "other", "--force", *words)  # the dead one's claim is taken over
    assert "is taken over" in done.stderr and not has_claim(endpoints)
    mount = place.mount(lab.Archive(place.path / "other", endpoints))
    assert sorted(os.listdir(mount.path)) == ["file0", "file1", "file2"]
    mount.umount()


@pytest.mark.slow
def test_what_is_stored_meanwhile_is_not_lost(place, flawed):
    """The old machine stores a segment when recover has read the journal already."""
    endpoints, archive, mount = written(place)
    words = words_of(place, endpoints, {"*": ["write 1+ delay 500"]})
    process = subprocess.Popen([lab.PROGRAM, "recover", place.path / "new", "--force", *words], stderr=subprocess.PIPE,
                               text=True)
    lab.until(lambda: has_claim(endpoints), 30, "it is under way")
    number, acknowledged = 0, []
    while process.poll() is None and number < 40:
        number += 1
        try:
            (mount.path / f"new{number}").write_bytes(os.urandom(5000))
        except OSError:
            break
        if lab.ecfs("wait", archive.path, check=False).returncode == 0:
            acknowledged.append(f"new{number}")
    assert process.wait(120) == 0, process.stderr.read()
    mount.kill()
    shutil.rmtree(archive.path)
    again = place.mount(lab.Archive(place.path / "new", endpoints))
    there = set(os.listdir(again.path))
    assert set(acknowledged) <= there
    for name in acknowledged:
        assert len((again.path / name).read_bytes()) == 5000
    again.umount()


@pytest.mark.slow
def test_wait_says_that_the_archive_was_recovered_once_that_is_over(place, flawed):
    """The mount has seen the claim, and does not look again by itself before it is asked."""
    endpoints, archive, mount = written(place)
    words = words_of(place, endpoints, {"*": ["write 1+ delay 1500"]})
    process = subprocess.Popen([lab.PROGRAM, "recover", place.path / "new", "--force", *words])
    lab.until(lambda: has_claim(endpoints), 30, "it is under way")
    during = lab.ecfs("wait", archive.path, check=False)
    assert during.returncode == 1 and "recovery of this archive is under way" in during.stderr
    assert "held" in archive.json("status"), "the mount has seen it"
    assert process.wait(120) == 0
    for words in [(), ("--quorum",), ()]:
        done = lab.ecfs("wait", *words, archive.path, check=False)
        assert done.returncode == 1 and "the archive was recovered elsewhere" in done.stderr, done.stderr
        assert "under way" not in done.stderr
    mount.kill()
    done = lab.ecfs("wait", "--unmounted", archive.path, check=False)
    assert done.returncode == 1 and "the archive was recovered elsewhere" in done.stderr, done.stderr
