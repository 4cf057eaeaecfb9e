"""An archive with a key: endpoints learn no name from its journal, and nobody without the key makes the archive anew."""
import json
import os
import shutil
import zlib

import lab
import pytest

pytestmark = lab.unkeyed

SECRET = "a name that nobody is to learn"
HEAD = 144


def recover(place, endpoints, *options, **how):
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    return lab.Archive(path, endpoints), lab.ecfs("recover", path, "--force", *words, *options, **how)


def journal_files(endpoints):
    return [path for endpoint in endpoints for name in ("journal", "snapshots")
            for path in lab.files_below(endpoint.root / name)]


def state_of(endpoints):
    return {str(path): lab.digest(path) for endpoint in endpoints for path in lab.files_below(endpoint.root)}


def legible(content):
    """What anybody makes of the bytes of a file, wherever a stream may begin in it."""
    found = [content]
    for at in range(len(content)):
        for bits in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
            try:
                found.append(zlib.decompressobj(bits).decompress(content[at:]))
            except zlib.error:
                pass
    return b"\n".join(found)


@pytest.fixture
def keyed(place):
    """Its tree, the key as its owner kept it, and the endpoints, when the machine with the archive directory is gone."""
    endpoints = place.directories()
    archive = place.archive(endpoints, "rs:4+2", "--key", "file")
    mount = place.mount(archive)
    (mount.path / SECRET).mkdir()
    for number in range(12):
        (mount.path / SECRET / f"{SECRET} {number}").write_bytes(os.urandom(100 * number))
    archive.await_stored()
    tree = lab.describe_tree(mount.path)
    mount.umount()
    key = place.path / "kept" / "key"
    key.parent.mkdir()
    shutil.copy2(archive.path / "key", key)
    assert key.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(archive.path)
    return endpoints, key, tree


def tree_of(place, archive, *options):
    mount = place.mount(archive, *options)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def test_journal_tells_no_name(place, keyed):
    endpoints, _, _ = keyed
    files = journal_files(endpoints)
    assert len(files) >= len(endpoints)
    for path in files:
        content = path.read_bytes()
        assert content[14:16] == b"\1\0" and content[104:120].strip(b"\0") and content[HEAD:HEAD + 1]
        assert SECRET.encode() not in legible(content)


def test_journal_without_key_tells_names(place):
    """So that the test before this one can fail."""
    archive = place.archive(place.directories())
    mount = place.mount(archive)
    (mount.path / SECRET).mkdir()
    archive.await_stored()
    mount.umount()
    assert any(SECRET.encode() in legible(path.read_bytes()) for path in journal_files(archive.endpoints))
    assert not (archive.path / "key").exists()


@pytest.mark.slow
def test_all_comes_back_with_the_key(place, keyed):
    endpoints, key, tree = keyed
    before = state_of(endpoints)
    again, done = recover(place, endpoints, "--key", key, "--dry-run", "--json")
    assert json.loads(done.stdout)["files"] == 12 and not again.path.exists() and state_of(endpoints) == before
    again, done = recover(place, endpoints, "--key", key, "--read-only", "--json")
    assert state_of(endpoints) == before
    lab.assert_same_tree(tree, tree_of(place, again, "-o", "ro"))
    again, done = recover(place, endpoints[2:], "--key", key, "--json")
    told = json.loads(done.stdout)
    assert told["files"] == 12 and told["lost"] == told["hinted"] == told["set_apart"] == 0
    assert told["endpoints_doubted"] == []
    assert (again.path / "key").read_bytes() == key.read_bytes()
    lab.assert_same_tree(tree, tree_of(place, again))
    third, done = recover(place, endpoints[2:], "--key", again.path / "key", "--json")  # from the snapshot of the first
    assert json.loads(done.stdout)["snapshot"]
    lab.assert_same_tree(tree, tree_of(place, third))
    for path in journal_files(endpoints):
        assert path.read_bytes()[14:16] == b"\1\0"


@pytest.mark.slow
def test_nothing_comes_back_without_the_key(place, keyed):
    endpoints, key, _ = keyed
    other = place.archive(place.directories(), "rs:4+2", "--key", "file")
    before = state_of(endpoints)
    for options, message in (((), "this archive has a key: give it with --key FILE"),
                             (("--dry-run",), "this archive has a key: give it with --key FILE"),
                             (("--read-only",), "this archive has a key: give it with --key FILE"),
                             (("--key", other.path / "key"), "the keys are those of archive"),
                             (("--key", key.parent), "kept")):
        again, done = recover(place, endpoints, *options, check=False)
        assert done.returncode == 1 and message in done.stderr
        assert not again.path.exists() and state_of(endpoints) == before
    key.chmod(0o644)
    again, done = recover(place, endpoints, "--key", key, check=False)
    assert done.returncode == 1 and "chmod 600" in done.stderr
    assert not again.path.exists() and state_of(endpoints) == before


def test_key_is_none_file_or_split(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    done = archive.init("--key", "cellar", check=False)
    assert done.returncode == 2 and "none, file, split, passphrase, code or recipient" in done.stderr and not archive.path.exists()
    archive.init("--key", "none")
    assert not (archive.path / "key").exists()
