"""ecfs recover believes what enough endpoints tell alike, and changes nothing where it only looks."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import forge
import lab
import pytest

pytestmark = lab.unkeyed

NAMES = lab.NAMES


def recover(place, endpoints, *options, force=True, **how):
    """A new archive directory from these endpoints, and what the command told."""
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", path, *(["--force"] if force else []), *words, *options, **how)
    return lab.Archive(path, endpoints), done


def facts(place, endpoints, *options):
    archive, done = recover(place, endpoints, "--json", *options)
    return archive, json.loads(done.stdout)


def tree_of(place, archive, *options):
    mount = place.mount(archive, *options)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def everything(endpoints):
    """Every file and directory at the endpoints, markers and journal too, with their bytes."""
    return {str(path): lab.digest(path) if path.is_file() else None
            for endpoint in endpoints for path in sorted(endpoint.root.rglob("*"))}


def stripes(endpoints):
    """The files of stripes: what is stored later may have a directory of its own."""
    return {path for path, digest in everything(endpoints).items() if "/stripes/" in path and digest is not None}


def keep(endpoints, where):
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, where / endpoint.name)


def put_back(endpoints, where):
    for endpoint in endpoints:
        shutil.rmtree(endpoint.root)
        shutil.copytree(where / endpoint.name, endpoint.root)


class Worlds:
    """An archive as it is, and the lies of endpoints about it: as if nearly all had been deleted, and as if the archive
    had been recovered after that."""

    def __init__(self, place, snapshot=False):
        self.endpoints = place.directories()
        archive = place.archive(self.endpoints)
        archive.configure("archive", deletion_grace="0")
        mount = place.mount(archive)
        for number in range(5):
            lab.write_pattern(mount.path / f"file{number}", number * 30_000 + 1, number)
        (mount.path / "directory").mkdir()
        archive.await_stored()
        self.expected = lab.describe_tree(mount.path)
        mount.umount()
        if snapshot:
            archive, _ = recover(place, self.endpoints, "--set", "deletion_grace=0")
        self.truth, self.lies, self.archive = place.path / "truth", place.path / "lies", archive
        keep(self.endpoints, self.truth)
        mount = place.mount(archive)
        for number in range(4):
            (mount.path / f"file{number}").unlink()
        (mount.path / "file4").rename(mount.path / "directory/other")
        (mount.path / "evil").mkdir()
        archive.await_stored()
        mount.umount()
        for endpoint in self.endpoints:  # the next snapshot makes them superfluous
            shutil.copytree(endpoint.root / "journal", place.path / "segments" / endpoint.name)
        shutil.copytree(archive.path, place.path / "old")
        again, _ = recover(place, self.endpoints, "--set", "deletion_grace=0")
        mount = place.mount(again)
        (mount.path / "more").mkdir()
        again.await_stored()
        mount.umount()
        keep(self.endpoints, self.lies)
        for endpoint in self.endpoints:
            shutil.copytree(place.path / "segments" / endpoint.name, self.lies / endpoint.name / "journal", dirs_exist_ok=True)
        put_back(self.endpoints, self.truth)

    def lie(self, liars, what):
        for endpoint in self.endpoints:
            if endpoint.name not in liars:
                continue
            lies = self.lies / endpoint.name
            for part in ("journal", "snapshots"):
                for path in (lies / part).glob("*"):
                    new = int(path.name.split("-")[0], 16) > self.epoch()
                    if what == "all" or (what == "segment" and part == "journal" and not new) or (
                            what == "snapshot" and new and part == "snapshots"):
                        (endpoint.root / part).mkdir(exist_ok=True)
                        shutil.copyfile(path, endpoint.root / part / path.name)
            if what in ("all", "snapshot"):
                shutil.copyfile(lies / "ecfs-endpoint", endpoint.root / "ecfs-endpoint")
            if what in ("epoch", "last epoch"):
                marker = endpoint.root / "ecfs-endpoint"
                number = {"epoch": 3_000_000_000, "last epoch": 2**32 - 1}[what]
                marker.write_text(re.sub(r"(?m)^epoch=.*$", f"epoch={number}", marker.read_text()))

    def epoch(self):
        return max(int(re.search(r"(?m)^epoch=(\d+)$", (self.truth / name / "ecfs-endpoint").read_text())[1])
                   for name in NAMES)


@pytest.mark.parametrize("snapshot", [False, True], ids=["young", "with a snapshot"])
@pytest.mark.parametrize("what", ["segment", "snapshot", "epoch", "last epoch", "all"])
@pytest.mark.slow
def test_an_endpoint_that_lies_changes_no_name_and_deletes_nothing(place, what, snapshot):
    worlds = Worlds(place, snapshot)
    liars = [NAMES[2]]
    worlds.lie(liars, what)
    before = stripes(worlds.endpoints)
    again, told = facts(place, worlds.endpoints, "--set", "deletion_grace=0")
    assert told["endpoints_doubted"] == liars and told["endpoints_known"] == 6
    assert told["epoch"] <= worlds.epoch() + 17
    mount = place.mount(again)
    assert lab.describe_tree(mount.path) == worlds.expected
    (mount.path / "new").write_bytes(b"new")
    again.await_stored()
    mount.umount()
    assert before <= stripes(worlds.endpoints)


@pytest.mark.slow
def test_two_of_six_that_lie_alike_are_not_believed(place):
    worlds = Worlds(place, True)
    worlds.lie(NAMES[1:3], "all")
    before = stripes(worlds.endpoints)
    again, told = facts(place, worlds.endpoints, "--set", "deletion_grace=0")
    assert sorted(told["endpoints_doubted"]) == sorted(NAMES[1:3])
    assert tree_of(place, again) == worlds.expected
    assert before <= stripes(worlds.endpoints)


@pytest.mark.slow
def test_the_user_says_whose_word_counts(place):
    worlds = Worlds(place, True)
    worlds.lie(NAMES[1:4], "all")  # as many as would have to
    again, told = facts(place, worlds.endpoints, *(word for name in NAMES[1:4] for word in ("--distrust", name)))
    assert tree_of(place, again) == worlds.expected
    put_back(worlds.endpoints, worlds.truth)
    worlds.lie(NAMES[1:2], "all")
    again, told = facts(place, worlds.endpoints, "--believe", NAMES[1])
    assert "evil" in tree_of(place, again)
    assert recover(place, worlds.endpoints, "--believe", "nobody", check=False)[1].returncode == 2


@pytest.mark.slow
def test_what_endpoints_tell_makes_no_deletion_sooner(place):
    worlds = Worlds(place)
    again, _ = recover(place, worlds.endpoints)
    assert "deletion_grace = 0" not in (again.path / "ecfs.conf").read_text()


@pytest.mark.slow
def test_deletions_that_a_journal_tells_of_are_not_resumed(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)  # with the usual grace: all that was deleted waits
    mount = place.mount(archive)
    for number in range(3):
        lab.write_pattern(mount.path / f"file{number}", 50_000, number)
    archive.await_stored()
    (mount.path / "file0").unlink()
    lab.write_pattern(mount.path / "file1", 60_000, 7)
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    mount.umount()
    assert archive.json("status")["deletions"] > 0
    before = stripes(endpoints)
    again, _ = recover(place, endpoints, "--set", "deletion_grace=0")
    assert again.json("status")["deletions"] == 0
    assert tree_of(place, again) == expected
    assert stripes(endpoints) == before


@pytest.mark.slow
def test_a_rehearsal_changes_nothing_anywhere(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    before = everything(endpoints)
    again, done = recover(place, endpoints, "--dry-run", "--json", force=False)
    told = json.loads(done.stdout)
    assert told["files"] == 1 and told["epoch"] == 2 and told["lost"] == 0
    assert not again.path.exists()
    for few in (endpoints[:1], endpoints[:3]):
        again, done = recover(place, few, "--dry-run", force=False, check=False)
        assert done.returncode == 1 and "cannot be read" in done.stderr
        assert not again.path.exists()
    assert everything(endpoints) == before
    (mount.path / "later").mkdir()
    archive.await_stored()
    mount.umount()
    tree_of(place, archive)


@pytest.mark.slow
def test_an_archive_recovered_for_reading_leaves_the_living_one_alone(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    before = everything(endpoints)
    again, done = recover(place, endpoints[:4], "--read-only", force=False)
    assert "can only be read" in done.stdout
    assert lab.ecfs("ls", again.path, "/").stdout.split() == ["file"]
    (place.path / "got").mkdir()
    lab.ecfs("get", again.path, "/file", place.path / "got")
    assert lab.digest(place.path / "got/file") == digest
    assert tree_of(place, again, "-o", "ro") == expected
    for words in (("put", again.path, __file__, "/"), ("recode", again.path, "/file", "--code", "rs:3+3")):
        refused = lab.ecfs(*words, check=False)
        assert refused.returncode == 1 and "recovered for reading only" in refused.stderr
    refused = lab.run(lab.BUILD / "tools/ecfs-fsck", again.path, "-y", check=False)
    assert refused.returncode != 0 and "recovered for reading only" in refused.stderr
    writing = subprocess.run([lab.PROGRAM, "mount", again.path, place.path], capture_output=True, text=True, timeout=60)
    assert writing.returncode == 1 and "recovered for reading only" in writing.stderr
    assert everything(endpoints) == before
    (mount.path / "later").mkdir()
    archive.await_stored()
    mount.umount()
    assert "later" in tree_of(place, archive)


@pytest.mark.slow
def test_what_makes_no_sense_is_refused_without_force(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 50_000, 1)
    archive.await_stored()
    mount.umount()
    before = everything(endpoints)
    for given, why in ((endpoints[:2], "only 2 of them are given"), (endpoints[:3], "cannot be read with these"),
                       (endpoints, "stored changes")):
        again, done = recover(place, given, force=False, check=False)
        assert done.returncode == 1 and why in done.stderr
        assert not again.path.exists() and everything(endpoints) == before
    again, done = recover(place, endpoints[:3], check=False)
    assert done.returncode == 1 and (again.path / "ecfs.conf").exists()  # it is made, and a file is lost
    again, done = recover(place, endpoints[:3], "--allow-lost")
    assert "every other copy of this archive directory" in done.stdout


def closed_and_not_in_the_journal(place, name, size, *words):
    """An archive whose machine is lost right behind a close, and where the stripes of that file are."""
    endpoints = place.directories()
    archive = place.archive(endpoints, *words)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "before", 50_000, 1)
    archive.await_stored()
    there = stripes(endpoints)
    digest = lab.write_pattern(mount.path / name, size, 2)
    lab.until(lambda: os.getxattr(mount.path / name, "user.ecfs.state").startswith(b"full"), 60, "it is stored in full")
    mount.kill()
    shutil.rmtree(archive.path)
    return endpoints, digest, sorted(stripes(endpoints) - there)


@pytest.mark.parametrize("code", ["rs:4+2", "copies:3"])
def test_one_endpoint_gives_no_file_another_name(place, code):
    endpoints, digest, paths = closed_and_not_in_the_journal(place, "honest-name", 300_000, code)
    first = min(paths, key=lambda path: path.split("-")[-2])
    with open(first, "rb") as file:
        lie = forge.retold(file.read(), b"/honest-name", b"/forged-name")
    with open(first, "wb") as file:
        file.write(lie)
    again, told = facts(place, endpoints)
    found = tree_of(place, again)
    assert "forged-name" not in found and "before" in found and told["lost"] == 0
    if code == "rs:4+2":
        assert found["honest-name"]["digest"] == digest
    else:  # three endpoints have to agree, and only three have it
        assert [fact["digest"] for name, fact in found.items() if name.startswith("recovered/")] == [digest]


@pytest.mark.slow
def test_bytes_that_one_endpoint_made_up_get_into_no_file(place):
    endpoints, digest, paths = closed_and_not_in_the_journal(place, "honest-name", 300_000)
    first = pathlib.Path(min(paths, key=lambda path: path.split("-")[-2]))
    forge.forge(first)
    mode = struct.pack("<I", 0o100644)
    for path in paths:  # and all say that it is set-ID, which nobody can tell for certain
        with open(path, "rb") as file:
            lie = forge.retold(file.read(), mode, struct.pack("<I", 0o106755))
        with open(path, "wb") as file:
            file.write(lie)
    liar, = (endpoint for endpoint in endpoints if endpoint.root in first.parents)
    again, done = recover(place, endpoints)
    assert f"endpoint {liar.name} returns other bytes than were stored" in done.stderr, done.stderr
    found = tree_of(place, again)["honest-name"]
    assert found["digest"] == digest and found["mode"] == "0o755"
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", again.path, "-y", "--deep", check=False).returncode in (0, 1)
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", again.path, "-n", "--deep", check=False).returncode == 0
    second = sorted(paths, key=lambda path: path.split("-")[-2])[1]
    forge.forge(pathlib.Path(second))  # which the content's SHA-256 tells now
    (place.path / "got").mkdir()
    lab.ecfs("get", again.path, "/honest-name", place.path / "got")
    assert lab.digest(place.path / "got/honest-name") == digest


@pytest.mark.parametrize("alone", [False, True], ids=["beside what it is made of", "alone"])
def test_one_endpoint_puts_no_file_of_its_making_under_a_name(place, alone):
    endpoints, digest, paths = closed_and_not_in_the_journal(place, "honest-name", 300_000)
    uuid = os.urandom(16)
    liar = endpoints[2]
    (liar.root / "stripes" / uuid.hex()[:3]).mkdir(exist_ok=True)
    for path in paths:
        _, index, instance = path.split("/")[-1].split("-")
        with open(path, "rb") as file:
            lie = forge.retold(file.read(), b"/honest-name", b"/forged-name", uuid)
        (liar.root / "stripes" / uuid.hex()[:3] / f"{uuid.hex()}-{index}-{instance}").write_bytes(lie)
        if alone:
            os.unlink(path)
    again, done = recover(place, endpoints)
    names = tree_of_names(place, again)
    assert "forged-name" not in names and "before" in names and ("honest-name" in names) == (not alone)
    if alone:
        assert re.search(rf"/forged-name: .*too few endpoints say .* \({liar.name}\); it is /recovered/forged-name",
                         done.stderr), done.stderr
        assert [name for name in names if name.startswith("recovered/forged-name.")]


def tree_of_names(place, archive):
    """Without reading what was made up."""
    mount = place.mount(archive)
    found = {str(path.relative_to(mount.path)) for path in mount.path.rglob("*")}
    mount.umount()
    return found
