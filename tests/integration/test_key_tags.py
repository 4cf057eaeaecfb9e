"""Objects whose tags are HMACs, as an earlier ecfs stored them, are read, checked, repaired and salvaged; new ones have others.

tags-by-hmac.tar.xz has an archive with rs:2+1 that it made: three endpoints, the key, and the files below.
"""
import struct
import sys
import tarfile

import lab
import pytest

FILES = {"small": bytes(i * i % 251 for i in range(1001)), "middle": bytes(i * i % 241 for i in range(20011))}
SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"
HMAC, GHASH = 2, 3  # kinds of tags in a header


@pytest.fixture
def old(place):
    """The directories of the endpoints; the key is beside them."""
    with tarfile.open(lab.REPOSITORY / "tests/integration/tags-by-hmac.tar.xz") as tar:
        tar.extractall(place.path / "old")
    return [lab.Directory(place.path / "old", name) for name in ("e0", "e1", "e2")]


def stripes(endpoints):
    return [path for endpoint in endpoints for path in (endpoint.root / "stripes").rglob("*-*") if path.is_file()]


def kind_of(path):
    return struct.unpack_from("<H", path.read_bytes(), 96)[0]


def recover(place, endpoints):
    archive = lab.Archive(place.path / "recovered", endpoints, "rs:2+1")
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.run(lab.PROGRAM, "recover", archive.path, "--force", *words, "--key", place.path / "old/key")
    return archive


def fsck(archive, *options):
    return lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, "--deep", *options, check=False).returncode


def assert_readable(place, archive):
    for name, content in FILES.items():
        archive.get(f"/{name}", place.path / "got")
        assert (place.path / "got").read_bytes() == content
        (place.path / "got").unlink()


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.slow
def test_old_tags_are_read_checked_and_repaired(place, old, journal):
    if not journal:
        for endpoint in old:
            for path in (endpoint.root / "journal").iterdir():
                path.unlink()
    archive = recover(place, old)
    assert fsck(archive, "-n") == 0
    assert_readable(place, archive)
    before = stripes(old)
    for path in stripes(old[:1]):
        lab.flip(path, path.stat().st_size // 2)
    assert fsck(archive, "-y") == 1
    assert fsck(archive, "-n") == 0
    assert_readable(place, archive)
    assert len(set(stripes(old)) - set(before)) == 2 and {kind_of(path) for path in stripes(old)} == {HMAC}


def test_old_tags_are_salvaged(place, old):
    for path in stripes(old[:1]):
        lab.flip(path, path.stat().st_size // 2)
    for words in ([], ["--slow-aes"]):
        target = place.path / f"salvaged{len(words)}"
        done = lab.run(sys.executable, SALVAGE, *words, "--key", place.path / "old/key", "--to", target,
                       *(endpoint.root for endpoint in old))
        assert "not authentic" not in done.stderr
        assert {path.name: path.read_bytes() for path in target.iterdir()} == FILES


def test_new_objects_have_other_tags(place, old):
    archive = recover(place, old)
    (place.path / "new").write_bytes(FILES["middle"])
    archive.put(place.path / "new", "/new")
    kinds = [kind_of(path) for path in stripes(old)]
    assert sorted(kinds) == [HMAC] * 5 + [GHASH] * 3  # small ones are copies
    assert fsck(archive, "-n") == 0
