"""The key of an archive that several machines write."""
import json
import shutil

import lab
import postgresql
import pytest
from keyed import recover, secret

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")
SETTINGS = ("--set", "catalog_mounts=many", "--key", "passphrase", "--alone", "--passphrase-file")


@pytest.fixture(scope="module")
def cluster():
    with postgresql.Cluster("fsync = on") as made:
        yield made


@pytest.fixture
def archive(place, cluster):
    return place.archive(place.directories(), "rs:4+2", "--set", f"catalog={cluster.location}", *SETTINGS,
                         secret(place, "old", "the one before\n"))


def copy_key(archive, other):
    for name in ("ecfs.conf", "catalog-place", "key", "key-slots"):
        shutil.copy(archive.path / name, other.path)


def join(place, archive):
    """The directory of another machine."""
    other = lab.Archive(place.path / "other", archive.endpoints)
    other.path.mkdir(mode=0o700)
    copy_key(archive, other)
    lab.ecfs("catalog", "join", other.path)
    return other


def slots(archive):
    return [slot["id"] for slot in json.loads(lab.ecfs("key", "list", "--json", archive.path).stdout)["slots"]]


def replace_slot(place, archive):
    """Another passphrase opens from now on, and that from before opens nothing."""
    before, = slots(archive)
    lab.ecfs("key", "add", "--passphrase", "--alone", "--passphrase-file", secret(place, "new", "the one after\n"),
             archive.path)
    lab.ecfs("key", "remove", archive.path, before)


def key_files(archive):
    return {path.name for endpoint in archive.endpoints for path in (endpoint.root / "keys").iterdir()}


def opens(archive, secret_path):
    return lab.ecfs("key", "check", "--passphrase-file", secret_path, archive.path, check=False).returncode == 0


def only_the_new_opens(place, archive, name):
    lab.until(lambda: key_files(archive) == {name}, 20, "endpoints have the newest key file alone")
    assert opens(archive, place.path / "new") and not opens(archive, place.path / "old")


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_slot_that_was_removed_stays_so(place, archive, mounted):
    """Another machine has its own copy of the slots, and would store what it finds missing."""
    other = join(place, archive)
    first = place.mount(archive)
    second = place.mount(other) if mounted else None
    replace_slot(place, archive)
    newest, = key_files(archive)
    if second is None:
        second = place.mount(other)
    first.umount()
    lab.until(lambda: "leads now" in second.text() or not mounted, 60, "the other leads")
    (second.path / "file").write_text("of the second\n")
    other.await_stored()
    assert (other.path / "key-slots").read_bytes() == (archive.path / "key-slots").read_bytes()
    only_the_new_opens(place, other, newest)
    lab.ecfs("key", "add", "--code", "--code-file", place.path / "code", other.path)
    second.umount()
    assert slots(archive) == slots(other) and len(slots(archive)) == 2
    shutil.rmtree(archive.path)
    shutil.rmtree(other.path)
    done = recover(place, archive, "--passphrase-file", place.path / "old", check=False)[1]
    assert done.returncode == 1 and "passphrase" in done.stderr, done
    recover(place, archive, "--passphrase-file", place.path / "new")


@pytest.mark.slow
def test_slots_that_nobody_shows_are_not_stored(place, archive):
    """Nor is anything else stored in their place: what is to be copied is said."""
    other = join(place, archive)
    replace_slot(place, archive)
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root / "keys")
        (endpoint.root / "keys").mkdir()
    mount = place.mount(other)
    lab.until(lambda: "copy the file key-slots from the machine that did it" in mount.text(), 20, "it says what to copy")
    done = lab.ecfs("key", "add", "--split", other.path, check=False)
    assert done.returncode == 1 and "copy the file key-slots" in done.stderr, done
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", other.path, check=False).returncode != 0
    assert key_files(archive) == set()
    mount.umount()
    copy_key(archive, other)
    mount = place.mount(other)
    lab.until(lambda: len(key_files(archive)) == 1, 30, "endpoints have the newest key file")
    assert opens(other, place.path / "new") and not opens(other, place.path / "old")
    mount.umount()


@pytest.mark.slow
def test_rotated_key_is_to_be_copied(place, archive):
    other = join(place, archive)
    lab.ecfs("key", "rotate", "--passphrase", "--alone", "--passphrase-file", place.path / "old", archive.path)
    place.path.joinpath("mnt").mkdir(exist_ok=True)
    done = lab.ecfs("mount", other.path, place.path / "mnt", check=False)
    assert done.returncode == 1 and "copy key and key-slots from the machine that rotated it" in done.stderr, done
    shutil.copy(archive.path / "key", other.path)
    done = lab.ecfs("mount", other.path, place.path / "mnt", check=False)
    assert done.returncode == 1 and "copy key and key-slots from the machine that rotated it" in done.stderr, done
    copy_key(archive, other)
    mount = place.mount(other)
    (mount.path / "file").write_text("of the second\n")
    other.await_stored()
    mount.umount()
