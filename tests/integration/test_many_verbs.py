"""Verbs on a machine that has the archive not mounted, while others have it mounted for writing."""
import shutil
import signal
import subprocess
import threading

import lab
import postgresql
import pytest
from test_many_mounts import FSCK, cluster, is_clean, join, make  # pylint: disable=unused-import

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")


@pytest.fixture
def machines(place, cluster):  # pylint: disable=redefined-outer-name
    """An archive that is mounted, and the directory of another machine that has it not."""
    archive = make(place, cluster)
    return archive, join(place, archive, "other"), place.mount(archive)


def tree(place):
    source = place.path / "source"
    lab.real_tree(source, 20)
    lab.write_pattern(source / "big", 3 << 20, 7)
    return source


def recovered(place, cluster, archive):  # pylint: disable=redefined-outer-name
    """The archive as its endpoints alone tell it, mounted."""
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    cluster.psql(f'DROP SCHEMA "{schema}" CASCADE')
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", again.path, "--force", "--set", f"catalog={cluster.location}", *words)
    return place.mount(again)


@pytest.mark.slow
def test_put_is_seen_and_safe(place, cluster, machines):
    """As soon as the verb has ended: everything is lost then but the endpoints."""
    archive, other, mount = machines
    source = tree(place)
    (mount.path / "old").write_text("is replaced\n")
    (mount.path / "gone").write_text("is removed\n")
    held = open(mount.path / "gone", encoding="utf-8")
    lab.ecfs("put", other.path, source, "/")
    lab.ecfs("put", other.path, source / "big", "/old")
    lab.ecfs("mkdir", other.path, "/made")
    lab.ecfs("mv", other.path, "/source/big", "/made/big")
    lab.ecfs("rm", other.path, "/gone")
    lab.ecfs("mark", other.path, "then")
    expected = lab.describe_tree(source)
    digest = lab.digest(source / "big")
    del expected["big"]
    assert held.read() == "is removed\n"
    held.close()
    lab.until(lambda: not (mount.path / "gone").exists(), 5, "it is gone here, too")
    lab.until(lambda: lab.digest(mount.path / "old") == digest, 5, "what took its place is seen")
    assert lab.digest(mount.path / "made/big") == digest
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "source"))
    lab.ecfs("get", other.path, "/made/big", place.path / "got")
    assert lab.digest(place.path / "got") == digest
    assert "then" in lab.ecfs("mark", "--list", archive.path).stdout
    mount.kill()
    mount = recovered(place, cluster, archive)
    assert sorted(path.name for path in mount.path.iterdir()) == ["made", "old", "source"]
    assert lab.digest(mount.path / "old") == lab.digest(mount.path / "made/big") == digest
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "source"))
    mount.umount()


@pytest.mark.slow
def test_put_outlasts_the_mount(place, machines):
    """The mount that led ends meanwhile: the verb leads, and stores the journal."""
    archive, other, mount = machines
    source = tree(place)
    for i in range(400):
        (source / f"file{i}").write_text(f"{i}\n" * 2000)
    with subprocess.Popen([lab.BUILD / "tools/ecfs", "put", other.path, source, "/"], stdout=subprocess.DEVNULL) as put:
        lab.until(lambda: (mount.path / "source").exists(), 30, "it has begun")
        mount.umount()
        assert put.wait(120) == 0
    lab.ecfs("wait", "--unmounted", other.path)
    mount = place.mount(archive)
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "source"))
    mount.umount()
    is_clean(archive)


@pytest.mark.slow
def test_mount_comes_while_a_verb_leads(place, cluster):
    """The verb sends the journal for the mount, and what it takes away from an endpoint the mount reads elsewhere."""
    archive = make(place, cluster)
    other = join(place, archive, "other")
    source = tree(place)
    for i in range(400):
        (source / f"file{i}").write_text(f"{i}\n" * 2000)
    with subprocess.Popen([lab.BUILD / "tools/ecfs", "put", archive.path, source, "/"], stdout=subprocess.DEVNULL) as put:
        lab.until(lambda: lab.ecfs("ls", other.path).stdout.strip(), 30, "it has begun")
        mount = place.mount(other)
        (mount.path / "mine").write_text("of the mount\n")
        assert put.poll() is None
        lab.ecfs("wait", mount.path)
        assert put.wait(120) == 0
    lab.until(lambda: "leads now" in mount.text(), 60, "the mount leads")
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "source"))
    mount.umount()
    is_clean(archive)


def refused(*words, prog=("ecfs",)):
    done = lab.run(lab.BUILD / "tools" / prog[0], *words, check=False)
    assert done.returncode == 1, done
    return done.stderr


@pytest.mark.slow
def test_what_the_leader_does_is_refused_elsewhere(place, machines):
    """By who has it, and nothing has changed."""
    archive, other, mount = machines
    (mount.path / "file").write_text("kept\n")
    archive.await_stored()
    lab.ecfs("wait", "--unmounted", other.path)
    place.path.joinpath("new").mkdir()
    name, leads = archive.endpoints[0].name, f"process {mount.process.pid} on "
    before = lab.ecfs("endpoint", "list", archive.path).stdout
    for words in (["endpoint", "readonly", other.path, name], ["endpoint", "drain", other.path, name], ["endpoint", "remove", other.path, name],
                  ["endpoint", "add", other.path, f"file://{place.path}/new"], ["endpoint", "distrust", other.path, name],
                  ["recode", "--code", "rs:3+3", other.path, "/"], ["policy", other.path], ["undelete", other.path, "/gone"]):
        said = refused(*words)
        assert leads in said and "leads those that have the archive open" in said, words
    for words in (["catalog", "move", other.path, "file"], ["destroy", "--yes", other.path]):
        said = refused(*words)
        assert leads in said and "needs it for itself: unmount it there first" in said, words
    assert lab.ecfs("endpoint", "list", archive.path).stdout == before
    assert (mount.path / "file").read_text() == "kept\n"
    lab.ecfs("endpoint", "readonly", archive.path, name)
    mount.umount()
    lab.ecfs("endpoint", "active", other.path, name)
    is_clean(other)


def test_fsck_elsewhere_has_the_leader_repair(place, machines):
    archive, other, mount = machines
    lab.write_pattern(mount.path / "file", 1 << 20, 3)
    digest = lab.digest(mount.path / "file")
    archive.await_stored()
    stripe = next(path for path in archive.endpoints[0].root.rglob("*") if path.is_file() and path.stat().st_size > 100000)
    stripe.unlink()
    said = lab.run(FSCK, "-y", other.path, check=False)
    assert said.returncode == 8 and "queued for repair" in said.stderr and f"process {mount.process.pid} on " in said.stderr, said
    lab.until(lambda: lab.run(FSCK, other.path, check=False).returncode == 0, 60, "the mount has repaired it")
    assert lab.digest(mount.path / "file") == digest
    mount.umount()
    is_clean(archive)


@pytest.mark.nightly
def test_verb_leads_after_a_mount_died(place, machines):
    """What needs who leads looks for a minute whether that is alive, and then does it itself."""
    archive, other, mount = machines
    (mount.path / "file").write_text("stored\n")
    archive.await_stored()
    mount.kill()
    lab.ecfs("endpoint", "drain", other.path, archive.endpoints[0].name, check=False, timeout=200)
    assert "draining" in lab.ecfs("endpoint", "list", other.path).stdout
    lab.ecfs("endpoint", "active", other.path, archive.endpoints[0].name)
    (place.path / "more").write_text("put\n")
    lab.ecfs("put", other.path, place.path / "more", "/more")
    mount.start()
    assert (mount.path / "file").read_text() == "stored\n" and (mount.path / "more").read_text() == "put\n"
    mount.umount()
    is_clean(archive)


@pytest.mark.nightly
def test_paused_verb_does_no_harm(place, machines):
    """It was taken for dead: what it had not put is not there, and nothing else is hurt."""
    archive, other, mount = machines
    source = tree(place)
    for i in range(400):
        (source / f"file{i}").write_text(f"{i}\n" * 2000)
    (mount.path / "file").write_text("of the mount\n")
    with subprocess.Popen([lab.BUILD / "tools/ecfs", "put", other.path, source, "/"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as put:
        lab.until(lambda: (mount.path / "source/file7").exists(), 60, "it is under way")
        put.send_signal(signal.SIGSTOP)
        lab.until(lambda: "taken for dead" in mount.text(), 120, "it is taken for dead")
        put.send_signal(signal.SIGCONT)
        said = put.communicate(timeout=120)[1]
        assert put.returncode == 1 and "taken over" in said, said
    lab.ecfs("put", "--update", other.path, source, "/")
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "source"))
    mount.umount()
    is_clean(archive)


@pytest.mark.slow
def test_two_verbs_at_once(place, cluster):
    """Without any mount: one of them leads."""
    archive = make(place, cluster)
    other = join(place, archive, "other")
    for name in ("first", "second"):
        lab.real_tree(place.path / name, 30)
    verbs = [threading.Thread(target=lab.ecfs, args=("put", where.path, place.path / name, "/"))
             for where, name in ((archive, "first"), (other, "second"))]
    for verb in verbs:
        verb.start()
    for verb in verbs:
        verb.join()
    lab.ecfs("wait", "--unmounted", other.path)
    shutil.rmtree(other.path)
    mount = place.mount(archive)
    for name in ("first", "second"):
        lab.assert_same_tree(lab.describe_tree(place.path / name), lab.describe_tree(mount.path / name))
    mount.umount()
    is_clean(archive)
