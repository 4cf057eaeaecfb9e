"""ecfs takeover: an archive goes from one directory to another and back, and nothing of either is lost."""
import contextlib
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import time

import lab
import pytest


class Flawed:
    """An endpoint of which one machine sees the rules of tests/lab/flaws.h, and others do not."""

    def __init__(self, inner, directory):
        self.inner, self.name, self.root = inner, inner.name, inner.root
        self.rules = directory / f"flaws-{inner.name}"
        self.rules.write_text("")

    def endpoint(self):
        return self.inner.endpoint().replace("=", "=flaw+", 1) + f",flaws={self.rules}"


@pytest.fixture
def endpoints(place):
    return place.directories()


def words_of(endpoints):
    return [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]


def taken(place, endpoints):
    """Somebody else takes the archive over, and mounts it."""
    lab.ecfs("takeover", place.path / "new", "--yes", *words_of(endpoints))
    return lab.Archive(place.path / "new", endpoints)


def facts_of(archive, *words):
    return json.loads(lab.ecfs("takeover", archive.path, "--json", *words).stdout)


def end(mount):
    """As umount(8) does."""
    lab.run("fusermount3", "-u", mount.path)
    mount.process.wait(60)
    mount.kill()


def below(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def staged(place, endpoints, monkeypatch):
    """A mount whose files do not get to the endpoints from now on; what it had stored before; and what it has staged."""
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    flawed = [Flawed(endpoint, place.path) for endpoint in endpoints]
    archive = place.archive(flawed)
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    before = lab.write_pattern(mount.path / "before", 70_000, 1)
    (mount.path / "folder").mkdir()
    archive.await_stored()
    for endpoint in flawed:
        endpoint.rules.write_text("write 1+ fail 28\nmark 1+ fail 28\n")
    mount.kill()  # rules are read when it begins
    mount = place.mount(archive)
    return flawed, archive, mount, before


@pytest.mark.slow
def test_an_old_machine_names_and_keeps_what_it_alone_has_and_takes_the_archive_back(place, endpoints, monkeypatch):
    flawed, archive, mount, before = staged(place, endpoints, monkeypatch)
    alone = lab.write_pattern(mount.path / "folder/alone", 50_000, 2)
    (mount.path / "empty directory").mkdir()
    os.rename(mount.path / "before", mount.path / "renamed")
    lab.run("sync", "-f", mount.path)
    new = taken(place, endpoints)
    other = place.mount(new)
    since = lab.write_pattern(other.path / "since", 60_000, 3)
    new.await_stored()


    refused = lab.ecfs("umount", archive.path, check=False)
    assert refused.returncode == 1 and "1 file with 50000 bytes and" in refused.stderr, refused.stderr
    busy = lab.ecfs("takeover", archive.path, "--yes", check=False)
    assert busy.returncode == 1 and "mounted" in busy.stderr
    end(mount)
    for endpoint in flawed:
        endpoint.rules.write_text("")
    told = archive.json("status")["unstored"]
    states = {row["path"]: (row["state"], row["size"]) for row in told["list"]}
    assert states["/folder/alone"] == ("staged", 50_000) and states["/before"] == ("removed", 0), states
    assert states["/empty directory"][0] == states["/renamed"][0] == "changed"
    assert "ecfs takeover" in lab.ecfs("status", archive.path).stdout

    left = below(archive.path / "staging")
    dry = facts_of(archive, "--dry-run", "--yes")
    assert dry["unstored"] == told and "kept" not in dry and below(archive.path / "staging") == left
    assert lab.ecfs("wait", archive.path, check=False).returncode == 1
    done = facts_of(archive, "--yes")
    assert done["kept"] == 1
    assert set(below(archive.path / "not-stored" / os.path.basename(done["kept_in"]))) == {"folder/alone"}
    assert lab.digest(os.path.join(done["kept_in"], "folder/alone")) == alone
    assert "staged\t50000\t/folder/alone\n" in open(done["kept_in"] + ".txt").read()

    assert "is an old copy" in lab.ecfs("wait", new.path, check=False).stderr
    other.kill()
    mount = place.mount(archive)
    assert lab.digest(mount.path / "before") == before and lab.digest(mount.path / "since") == since
    shutil.copy(os.path.join(done["kept_in"], "folder/alone"), mount.path / "folder/alone")
    archive.await_stored()
    mount.umount()
    again = lab.ecfs("takeover", archive.path, "--yes", check=False)
    assert again.returncode == 1 and "newest copy" in again.stderr


@pytest.mark.slow
def test_it_asks_where_another_machine_was_just_here(place, endpoints):
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    before = {endpoint.name: below(endpoint.root) for endpoint in endpoints}
    refused = lab.ecfs("takeover", place.path / "new", *words_of(endpoints), check=False)
    host = re.search(r"^host=(.*)$", (endpoints[0].root / "ecfs-endpoint").read_text(), re.M).group(1)
    assert refused.returncode == 1 and f"the machine {host} stored changes" in refused.stderr
    assert "--yes" in refused.stderr and not (place.path / "new").exists()
    assert {endpoint.name: below(endpoint.root) for endpoint in endpoints} == before
    done = lab.ecfs("takeover", place.path / "new", "--yes", *words_of(endpoints))
    assert f"the machine {host} stored changes" in done.stderr and f", by {host})" in done.stdout


@pytest.mark.slow
def test_who_is_paused_through_a_takeover_does_no_harm_when_it_goes_on(place, endpoints, monkeypatch):
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    monkeypatch.setenv("ECFS_LAB_HASTE", "20")  # it looks at markers each second
    archive = place.archive(endpoints)
    archive.configure("archive", deletion_grace="0s", commit="async")
    mount = place.mount(archive)
    for number in range(4):
        lab.write_pattern(mount.path / f"file{number}", 60_000 + number, number)
    archive.await_stored()
    digests = {name: lab.digest(mount.path / name) for name in ["file1", "file2", "file3"]}
    os.remove(mount.path / "file0")  # its deletion is due
    lab.write_pattern(mount.path / "alone", 40_000, 7)
    mount.process.send_signal(signal.SIGSTOP)
    new = taken(place, endpoints)
    other = place.mount(new)
    digests["file1"] = lab.write_pattern(other.path / "file1", 65_000, 9)
    new.await_stored()
    there = {endpoint.name: below(endpoint.root) for endpoint in endpoints}
    mount.process.send_signal(signal.SIGCONT)
    begun = time.monotonic()
    lab.until(lambda: "changes are refused from now on" in mount.text(), 30, "it notices")
    assert time.monotonic() - begun < 10, "with markers looked at each second"
    with pytest.raises(OSError):
        (mount.path / "more").mkdir()
    assert lab.ecfs("wait", archive.path, check=False).returncode == 1
    now = {endpoint.name: below(endpoint.root) for endpoint in endpoints}
    for name, files in there.items():
        lost = {path for path in files if now[name].get(path) != files[path] and not path.startswith("incoming/")}
        assert lost == set(), f"{name}: all of the newer archive is there"
    assert {name: lab.digest(other.path / name) for name in digests} == digests
    other.umount()
    end(mount)
    assert "/alone" in {row["path"] for row in archive.json("status")["unstored"]["list"]}
    done = facts_of(archive, "--yes")
    mount = place.mount(archive)
    assert {name: lab.digest(mount.path / name) for name in digests} == digests
    found = [mount.path / "alone", *(place.path / done.get("kept_in", "none")).rglob("alone")]
    lab.write_pattern(place.path / "alone", 40_000, 7)
    assert any(path.exists() and path.read_bytes() == (place.path / "alone").read_bytes() for path in found)
    mount.umount()


@pytest.mark.slow
def test_who_writes_while_it_is_taken_over_loses_nothing_that_was_waited_for(place, endpoints):
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "first", 50_000, 1)
    archive.await_stored()
    written, waited = {}, set()
    process = subprocess.Popen([lab.PROGRAM, "takeover", place.path / "new", "--yes", *words_of(endpoints)])
    for number in range(60):
        name, content = f"file{number}", os.urandom(9_000)
        try:
            (mount.path / name).write_bytes(content)
        except OSError:
            break
        written[name] = content
        if number % 3 == 0 and lab.ecfs("wait", archive.path, check=False).returncode == 0:
            waited |= set(written)
    assert process.wait(60) == 0
    lab.until(lambda: lab.ecfs("wait", archive.path, check=False).returncode == 1, 30, "it has noticed")
    end(mount)
    new = lab.Archive(place.path / "new", endpoints)
    mount = place.mount(new)
    assert waited <= set(os.listdir(mount.path))
    there = {name: (mount.path / name).read_bytes() for name in written if (mount.path / name).exists()}
    assert all(written[name] == content for name, content in there.items())
    mount.umount()
    done = facts_of(archive, "--yes")
    kept = below(place.path / done["kept_in"]) if "kept_in" in done else {}
    mount = place.mount(archive)
    for name, content in written.items():  # whatever was closed is in one place or the other
        assert content == (kept[name] if name in kept else (mount.path / name).read_bytes()), name
    mount.umount()


@pytest.mark.slow
def test_a_clone_becomes_the_archive_in_its_own_place(place, endpoints):
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    lab.run("cp", "-a", archive.path, place.path / "clone")
    since = lab.write_pattern(mount.path / "since", 60_000, 2)
    archive.await_stored()
    clone = lab.Archive(place.path / "clone", endpoints)
    assert f"ecfs takeover {clone.path}" in lab.ecfs("status", clone.path).stdout
    facts_of(clone, "--yes")
    other = place.mount(clone)
    assert lab.digest(other.path / "file") == digest and lab.digest(other.path / "since") == since
    lab.write_pattern(other.path / "more", 1000, 3)
    clone.await_stored()
    assert "the archive was recovered elsewhere" in lab.ecfs("wait", archive.path, check=False).stderr
    other.umount()


@pytest.mark.slow
def test_what_was_stored_after_the_takeover_counts_as_stored_nowhere(place, endpoints):
    """The old machine has not looked at markers yet, and stores content and journal."""
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "first", 50_000, 1)
    archive.await_stored()
    taken(place, endpoints)
    digest = lab.write_pattern(mount.path / "late", 30_000, 2)
    assert lab.ecfs("wait", archive.path, check=False).returncode == 1
    end(mount)
    states = {row["path"]: (row["state"], row["size"]) for row in archive.json("status")["unstored"]["list"]}
    assert states == {"/late": ("content", 30_000)}
    done = facts_of(archive, "--yes")
    assert done["kept"] == 1 and lab.digest(os.path.join(done["kept_in"], "late")) == digest


@pytest.mark.slow
def test_what_is_refused_takes_the_place_of_nothing(place, endpoints):
    """The last version of a file may be in the old copy alone: a change that fails there leaves it as it is."""
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    for name in ("cut", "emptied", "written", "appended"):
        (mount.path / name).write_bytes(b"first")
    archive.await_stored()
    taken(place, endpoints)
    last = {name: name.encode() * 10_000 for name in ("cut", "emptied", "written", "appended")}
    for name, content in last.items():
        (mount.path / name).write_bytes(content)
    assert lab.ecfs("wait", archive.path, check=False).returncode != 0  # and so it notices
    for change in (lambda: os.truncate(mount.path / "cut", 0), lambda: open(mount.path / "emptied", "w", encoding="ascii"),
                   lambda: open(mount.path / "written", "r+b"), lambda: open(mount.path / "appended", "ab"),
                   lambda: open(mount.path / "fresh", "xb")):
        with pytest.raises(OSError) as failed:
            change()
        assert failed.value.errno == errno.EROFS
    assert not (mount.path / "fresh").exists()
    for name, content in last.items():
        assert (mount.path / name).read_bytes() == content
    end(mount)
    lab.ecfs("takeover", archive.path, "--yes")
    kept = below(archive.path / "not-stored")
    assert {path.split("/", 1)[1]: content for path, content in kept.items() if "/" in path} == last


@pytest.mark.slow
def test_names_may_be_as_long_as_they_can_be(place, endpoints, monkeypatch):
    _, archive, mount, _ = staged(place, endpoints, monkeypatch)
    closed = b"closed" * 10_000
    (mount.path / ("n" * 250)).write_bytes(closed)
    file = os.open(mount.path / ("u" * 250), os.O_WRONLY | os.O_CREAT)
    os.write(file, b"open")
    taken(place, endpoints)
    mount.kill()
    with contextlib.suppress(OSError):
        os.close(file)
    lab.ecfs("takeover", archive.path, "--yes", *words_of(endpoints))
    kept = {path.split("/", 1)[1]: content for path, content in below(archive.path / "not-stored").items() if "/" in path}
    assert sorted(kept.values()) == [closed, b"open"] and all(path.startswith("long-names/") for path in kept)


@pytest.mark.slow
def test_what_cannot_be_kept_stops_it_until_it_can(place, endpoints):
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    archive.await_stored()
    taken(place, endpoints)
    (mount.path / "last").write_bytes(b"last" * 20_000)
    assert lab.ecfs("wait", archive.path, check=False).returncode != 0
    end(mount)
    stripes = [path for endpoint in endpoints[:3] for path in lab.stripe_files(endpoint) if path.parts[-3] == "stripes"]
    for path in stripes:  # too many for it to be read
        path.rename(f"{path}-away")
    done = lab.ecfs("takeover", archive.path, "--yes", check=False)
    assert len(stripes) == 3 and done.returncode != 0 and "/last cannot be kept" in done.stderr
    assert "1 files that only" in done.stderr and "with --force these files are lost" in done.stderr
    for path in stripes:
        os.rename(f"{path}-away", path)
    lab.ecfs("takeover", archive.path, "--yes")
    assert b"last" * 20_000 in below(archive.path / "not-stored").values()


@pytest.mark.parametrize("n_moved", range(4))
@pytest.mark.slow
def test_an_exchange_that_was_interrupted_goes_on(place, endpoints, n_moved):
    """Where the power went after so many of its files were renamed."""
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "first").write_bytes(b"first")
    archive.await_stored()
    mount.umount()
    new = taken(place, endpoints)
    mount = place.mount(new)
    (mount.path / "second").write_bytes(b"second")
    new.await_stored()
    mount.umount()
    names = ("key", "key-slots", "ecfs.conf", "catalog.sqlite")
    (archive.path / "taken-over").mkdir(mode=0o700)
    for number, name in enumerate(names):
        if (new.path / name).exists():
            shutil.move(new.path / name, archive.path / ("taken-over" if number >= n_moved else "") / name)
    done = lab.ecfs("ls", archive.path, check=False)
    assert done.returncode != 0 and "run 'ecfs takeover' on it again" in done.stderr
    lab.ecfs("takeover", archive.path, "--yes", check=False)  # it is the newest then, and there is nothing to take over
    assert not (archive.path / "taken-over").exists()
    mount = place.mount(archive)
    assert (mount.path / "first").read_bytes() == b"first" and (mount.path / "second").read_bytes() == b"second"


def test_status_knows_at_once_that_another_machine_took_over(place, endpoints):
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"content")
    archive.await_stored()
    taken(place, endpoints)
    assert "old_copy" in archive.json("status")
