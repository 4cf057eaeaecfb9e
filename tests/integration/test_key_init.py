"""An archive that was made without a key gets one: at every step it has what it had, for who lost the machine too."""
import contextlib
import os
import shutil
import signal
import struct
import time
import uuid
import zlib

import lab
import pytest
from forge import xxh3_64, xxh3_128
from steps import Kept, Steps, points

pytestmark = lab.unkeyed

PLANTED = ["planted-name", "planted-directory", "planted-content", "planted-target", "planted-attribute"]
MIB = 1 << 20


def write_tree(top):
    """Files whose every check block has something that nobody is to see, with holes, links and attributes."""
    top.mkdir()
    for name, size in {"small": 700, "odd": 300_001, "large": 3 * MIB + 77}.items():
        (top / f"planted-name-{name}").write_bytes((b"planted-content " * (size // 16 + 1))[:size])
    with open(top / "planted-name-sparse", "wb") as file:
        for at in (0, 2 * MIB):
            file.seek(at)
            file.write(b"planted-content " * 5000)
    os.link(top / "planted-name-odd", top / "planted-name-linked")
    os.symlink("planted-target", top / "planted-link")
    os.setxattr(top / "planted-name-small", "user.note", b"planted-attribute")


def files_at(endpoints):
    """All that is there but for the program that restores files, which is the same everywhere."""
    return [path for endpoint in endpoints for path in lab.files_below(endpoint.root) if path.parent.name != "salvage"]


def legible(data):
    """What anybody makes of the bytes of a file, also where they are compressed."""
    found = [data]
    for start in [at for at in range(min(len(data), 512)) if data[at] == 0x78]:
        try:
            found.append(zlib.decompressobj().decompress(data[start:]))
        except zlib.error:
            continue
    return b"\n".join(found)


def seen_at(endpoints):
    found = set()
    for path in files_at(endpoints):
        data = legible(path.read_bytes()) + os.fsencode(path)
        found |= {word for word in PLANTED if word.encode() in data}
    return found


def lies_open(path):
    """Not one that a mount has just removed."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()[14:16] == b"\0\0"
    return False


def open_journal(endpoints):
    return [path for path in files_at(endpoints) if path.parent.name in ("journal", "snapshots") and lies_open(path)]


@pytest.fixture
def archive(place):
    """With a tree that was stored without a key, and the tree."""
    made = lab.Archive(place.path / "archive", place.directories())
    made.init()
    made.configure("archive", deletion_grace="0")
    mount = place.mount(made)
    write_tree(mount.path / "planted-directory")
    lab.ecfs("wait", mount.path)
    made.tree = lab.describe_tree(mount.path)
    mount.umount()
    assert seen_at(made.endpoints) == set(PLANTED), "what is planted can be found"
    return made


def key_init(archive, *options, **how):
    return lab.ecfs("key", "init", archive.path, *options, **how)


def key_init_file(place, archive):
    """With a key that is kept as a file: nothing happens before there is a copy."""
    done = key_init(archive, "--key", "file", check=False)
    assert done.returncode != 0 and "--copy" in done.stderr, done
    for wrong in (archive.path / "key", place.path / "nowhere"):
        assert key_init(archive, "--key", "file", "--copy", wrong, check=False).returncode != 0
    lab.assert_same_tree(archive.tree, tree_of(place, archive))
    key = shutil.copy2(archive.path / "key", place.path / "copy of the key")
    key_init(archive, "--key", "file", "--copy", key)
    return key


def tree_of(place, archive, *options):
    mount = place.mount(archive, *options)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def recover(place, endpoints, *options, **how):
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    return lab.Archive(path, endpoints), lab.ecfs("recover", path, "--force", *words, *options, **how)


@pytest.mark.several_objects
@pytest.mark.parametrize("kept", ["split", "file"])
@pytest.mark.slow
def test_what_was_open_is_closed(place, archive, kept):
    key = key_init_file(place, archive) if kept == "file" else key_init(archive)
    assert open_journal(archive.endpoints) == []
    assert archive.json("status")["open"]["objects"] >= 4
    mount = place.mount(archive)
    (mount.path / "planted-directory" / "planted-name-new").write_bytes(b"planted-content, later" * 1000)
    lab.ecfs("wait", mount.path)
    tree = lab.describe_tree(mount.path)
    lab.ecfs("recode", "--seal", archive.path)
    lab.forget_mounts()
    lab.assert_same_tree(tree, lab.describe_tree(mount.path))
    lab.until(lambda: "open" not in archive.json("status"), 60, "nothing lies open any more")
    mount.umount()
    assert seen_at(archive.endpoints) == set()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[1:], *(["--key", key] if kept == "file" else []))
    lab.assert_same_tree(tree, tree_of(place, again))
    assert seen_at(again.endpoints[1:]) == set()


@pytest.mark.slow
def test_what_a_lost_machine_would_have_deleted_is_told_and_removed(place, archive):
    archive.configure("archive", deletion_grace="1h")
    key_init(archive)
    lab.ecfs("recode", "--seal", archive.path)
    mount = place.mount(archive)
    lab.ecfs("wait", mount.path)
    mount.umount()
    shutil.rmtree(archive.path)
    again, done = recover(place, archive.endpoints)
    assert seen_at(archive.endpoints) and "from before the archive had its key" in done.stderr, done
    status = again.json("status")
    assert not status["sealed"] and status["open"]["stray_stripes"] > 0
    assert "fsck --prune" in lab.ecfs("status", again.path).stdout
    for path in files_at(archive.endpoints):
        os.utime(path, (time.time() - 30 * 86400,) * 2)
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", "--prune", again.path)
    assert seen_at(archive.endpoints) == set()
    assert again.json("status")["sealed"]
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.slow
def test_before_it_is_moved_all_is_there(place, archive):
    """Half of it is moved; the machine is lost, and two endpoints; who has the key as a file reads it as well."""
    key_init(archive)
    lab.ecfs("recode", "--seal", archive.path, "/planted-directory/planted-name-odd")
    assert archive.json("status")["open"]["objects"] == 3
    archive.await_stored()
    key = shutil.copy2(archive.path / "key", place.path / "copy of the key")
    shutil.rmtree(archive.path)
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    out = place.path / "salvaged"
    done = lab.run(lab.REPOSITORY / "tools/ecfs-salvage", "--key", key, "--to", out,
                   *[endpoint.root for endpoint in archive.endpoints[2:]], check=False)
    assert done.returncode == 0, done
    for name in ("small", "odd", "large", "sparse"):
        path = out / "planted-directory" / f"planted-name-{name}"
        assert lab.digest(path) == archive.tree[f"planted-directory/planted-name-{name}"]["digest"]
    for endpoint in archive.endpoints[:2]:
        endpoint.start()
    again, _ = recover(place, archive.endpoints)
    lab.assert_same_tree(archive.tree, tree_of(place, again))
    lab.ecfs("recode", "--seal", again.path)
    assert again.json("status").get("open", {}).get("objects", 0) == 0
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.slow
def test_it_says_what_is_wrong(place, archive):
    mount = place.mount(archive)
    done = key_init(archive, check=False)
    assert done.returncode != 0 and "while it is not mounted" in done.stderr
    mount.umount()
    for word in ("none", "cellar"):
        done = key_init(archive, "--key", word, check=False)
        assert done.returncode == 2 and "--key is split or file" in done.stderr
    done = key_init(archive, "--key", "file", "--code", check=False)
    assert done.returncode == 2 and "--key goes with neither" in done.stderr
    done = lab.ecfs("recode", "--seal", archive.path, check=False)
    assert done.returncode != 0 and "has no key to seal with" in done.stderr
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    done = key_init(archive, check=False)
    assert done.returncode != 0 and "has no key still" in done.stderr and "zones have the key file" in done.stderr
    lab.assert_same_tree(archive.tree, tree_of(place, archive))
    for endpoint in archive.endpoints[:2]:
        endpoint.start()
    key_init(archive)
    done = key_init(archive, check=False)
    assert done.returncode != 0 and "has a key already" in done.stderr


def test_destroy_leaves_a_newer_copy_alone_where_a_key_was_only_begun(place, archive):
    """Markers have no MAC then, and what one says of a newer copy counts, as it does in an archive without a key."""
    assert key_init(archive, "--key", "file", check=False).returncode != 0 and (archive.path / "key").exists()
    marker = archive.endpoints[0].root / "ecfs-endpoint"
    marker.write_text(marker.read_text().replace("epoch=1\n", "epoch=2\n"))
    before, said = set(files_at(archive.endpoints)), marker.read_bytes()
    done = lab.ecfs("destroy", "--yes", archive.path, check=False)
    assert set(files_at(archive.endpoints)) == before and marker.read_bytes() == said
    assert done.returncode == 1 and "newer copy" in done.stderr, done


@pytest.mark.slow
def test_a_code_opens_it(place, archive):
    code = place.path / "code"
    key_init(archive, "--code", "--code-file", code)
    archive.await_stored()
    shutil.rmtree(archive.path)
    again, done = recover(place, archive.endpoints[1:], check=False)
    assert done.returncode != 0 and "code" in done.stderr, done
    again, _ = recover(place, archive.endpoints[1:], "--code-file", code)
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.slow
def test_no_code_is_given_that_opens_nothing(place, archive):
    key_init(archive, "--code", "--code-file", place.path / "code")
    again = place.path / "another code"
    for options in (["--code"], ["--code", "--code-file", again]):
        done = key_init(archive, *options, check=False)
        assert done.returncode == 1 and "has a key already" in done.stderr and done.stdout == "", done
    assert not again.exists()


@pytest.mark.slow
def test_an_endpoint_that_was_away_is_tidied_up_later(place, archive):
    archive.endpoints[0].kill()
    key_init_file(place, archive)
    archive.endpoints[0].start()
    assert open_journal(archive.endpoints)
    assert archive.json("status")["open"]["endpoints_unknown"] == 1
    mount = place.mount(archive)
    lab.ecfs("wait", mount.path)
    lab.until(lambda: not open_journal(archive.endpoints), 60, "its open journal is removed")
    lab.until(lambda: archive.json("status")["open"]["endpoints_unknown"] == 0, 60, "that is known")
    mount.umount()


@pytest.mark.slow
def test_what_is_being_written_is_left_for_the_next_time(place, archive):
    key_init(archive)
    mount = place.mount(archive)
    path = mount.path / "planted-directory" / "planted-name-odd"
    with open(path, "r+b", buffering=0) as file:
        file.write(b"other")
        done = lab.ecfs("recode", "--seal", archive.path, check=False)
        assert done.returncode == 1 and "is not stored yet; left alone" in done.stderr, done
        assert archive.json("status")["open"]["objects"] == 1
    lab.ecfs("wait", mount.path)
    lab.ecfs("recode", "--seal", archive.path)
    lab.until(lambda: "open" not in archive.json("status"), 60, "nothing lies open any more")
    lab.forget_mounts()
    assert path.read_bytes()[:16] == b"othered-content "
    mount.umount()
    assert seen_at(archive.endpoints) == set()


@pytest.mark.slow
def test_moving_that_is_killed_goes_on(place, archive):
    key_init(archive)
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    before, steps = Kept(place, roots), Steps(place, roots)
    lab.ecfs("recode", "--seal", archive.path, env=steps.environment(0, "before"))
    n_steps = steps.count()
    for share in (0.2, 0.5, 0.8):
        before.restore()
        environment = steps.environment(int(n_steps * share), "halfway")
        done = lab.ecfs("recode", "--seal", archive.path, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL, done
        lab.assert_same_tree(archive.tree, tree_of(place, archive))
        lab.ecfs("recode", "--seal", archive.path)
        lab.assert_same_tree(archive.tree, tree_of(place, archive))
        assert archive.json("status").get("open", {}).get("objects", 0) == 0
        lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path)


def archive_uuid(archive):
    return uuid.UUID(archive.json("status")["archive"]).bytes


def forged_segment(archive, number, record):
    """A segment with one record, as who has no key makes it."""
    now = time.time_ns()
    raw = struct.pack("<QqI", number, now, len(record)) + record
    packed = zlib.compress(raw)
    head = struct.pack("<8sHHHH16sIIIIQQqQQ16s32s", bytes.fromhex("8945434a0d0a1a0a"), 1, 1, 1, 0, archive, 1, 0, 0, 1,
                       number, number, now, len(raw), len(packed), xxh3_128(packed), bytes(32))
    return head + struct.pack("<Q", xxh3_64(head)) + packed


@pytest.mark.slow
def test_unsealed_changes_of_liars_are_refused(place, archive):
    """Two of six make a segment that would remove everything: as the journal goes on, and in place of what is sealed."""
    own = archive_uuid(archive)
    key_init(archive)
    archive.await_stored()
    newest = max(path.name for path in (archive.endpoints[0].root / "journal").iterdir())
    last = int(newest.split("-")[2], 16)
    removed = struct.pack("<BBI", 1, 5, 8 + 17) + struct.pack("<Q", 1) + b"planted-directory"
    for endpoint in archive.endpoints[:2]:
        for at in (last, last + 1):
            path = endpoint.root / f"journal/00000001-{at:016x}-{at:016x}"
            path.unlink(missing_ok=True)
            path.write_bytes(forged_segment(own, at, removed))
    lab.assert_same_tree(archive.tree, tree_of(place, archive))
    shutil.rmtree(archive.path)
    again, done = recover(place, archive.endpoints)
    assert "it is not sealed, and this archive has a key" in done.stderr, done
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.slow
def test_unsealed_files_of_liars_are_refused(place, archive):
    """All endpoints have stripes of a file that the catalog does not know and that is newer than all it knows."""
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    kept = Kept(place, roots)
    before = {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
    (place.path / "evil").write_bytes(b"what was never stored " * 40_000)
    archive.put(place.path / "evil", "/evil")
    forged = {path: later(path.read_bytes()) for endpoint in archive.endpoints
              for path in lab.stripe_files(endpoint) if path not in before}
    assert len(forged) >= 4
    kept.restore()
    for is_keyed in (False, True):
        if is_keyed:
            kept.restore()
            key_init(archive)
        for path, data in forged.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        shutil.rmtree(archive.path)
        again, _ = recover(place, archive.endpoints)
        tree = tree_of(place, again)
        assert ("evil" in tree) == (not is_keyed), "so that this test can fail"
        assert not is_keyed or not any("recovered" in path for path in tree)


def later(data):
    """A stripe as of a later change."""
    data = bytearray(data)
    size = struct.unpack_from("<I", data, 20)[0]
    at = 16 + 8 + 16 + 16 + 8  # the sequence, behind archive, object and instance
    struct.pack_into("<Q", data, at, 1 << 30)
    struct.pack_into("<Q", data, 16 + 8 + size, xxh3_64(data[16:16 + 8 + size]))
    return bytes(data)


def check_lost(place, archive):
    """The machine is gone, and one endpoint."""
    again, _ = recover(place, archive.endpoints[1:])
    lab.assert_same_tree(archive.tree, tree_of(place, again))
    shutil.rmtree(again.path)


@pytest.mark.slow
def test_lost_while_half_of_the_markers_left_are_under_the_key(place):
    """Two endpoints are lost with the machine; of the others two have their markers as before. No more than half of them
    say that there is no key, so they may lie, but they are needed."""
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--code", "rs:4+2")
    write_tree(place.path / "source")
    archive.put(place.path / "source", "/tree")
    archive.await_stored()
    before = tree_of(place, archive)
    markers = [(endpoint.root / "ecfs-endpoint").read_bytes() for endpoint in archive.endpoints]
    key_init(archive)
    for number in (1, 2):
        (archive.endpoints[number].root / "ecfs-endpoint").write_bytes(markers[number])
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[1:5])
    lab.assert_same_tree(before, tree_of(place, again))
    assert all(b"mac=" in (endpoint.root / "ecfs-endpoint").read_bytes() for endpoint in archive.endpoints[1:4])


def check_goes_on(place, archive):
    """Whatever it has, it has that at the endpoints before something new is stored."""
    (place.path / "new").write_bytes(b"planted-content " * 2000)
    done = archive.put(place.path / "new", "/new", check=False)
    if done.returncode != 0:
        assert "'ecfs key init' was interrupted" in done.stderr, done
        return
    archive.await_stored()
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[1:])
    target = place.path / "target"
    target.mkdir()
    again.get("/new", target)
    assert (target / "new").read_bytes() == (place.path / "new").read_bytes()
    shutil.rmtree(target)
    shutil.rmtree(again.path)


@pytest.mark.slow
def test_a_mount_closes_what_was_left_open(place, archive):
    """The archive has its key, and who gave it was killed before anything could be removed."""
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    before, steps = Kept(place, roots), Steps(place, roots)
    key_init(archive, env=steps.environment(0, "before"))
    for at in range(steps.count() * 9 // 10, 0, -1):
        before.restore()
        key_init(archive, env=steps.environment(at, "before"), check=False)
        status = archive.json("status")
        assert "key" in status, "it is not found"
        if status["open"]["endpoints_unknown"] == len(archive.endpoints):
            break
    assert open_journal(archive.endpoints)
    mount = place.mount(archive)
    lab.ecfs("wait", mount.path)
    lab.until(lambda: not open_journal(archive.endpoints), 90, "the open journal is removed")
    mount.umount()
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


@pytest.mark.slow
def test_status_says_that_it_was_interrupted(place, archive):
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    before, steps = Kept(place, roots), Steps(place, roots)
    key_init(archive, env=steps.environment(0, "before"))
    for at in range(steps.count() // 2, 0, -steps.count() // 20):
        before.restore()
        key_init(archive, env=steps.environment(at, "before"), check=False)
        if "key_begun" in archive.json("status"):
            break
    status = lab.ecfs("status", "--check", archive.path, check=False)
    assert status.returncode == 2 and "'ecfs key init' was interrupted" in status.stdout, status
    for option in "-n", "-y":
        done = lab.run(lab.BUILD / "tools/ecfs-fsck", option, archive.path, check=False)
        assert done.returncode == 4 and "'ecfs key init' was interrupted" in done.stdout + done.stderr, done
    key_init(archive)
    assert "key_begun" not in archive.json("status")


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_any_step_it_goes_on(place, archive):
    before = Kept(place, [archive.path, *[endpoint.root for endpoint in archive.endpoints]])
    steps = Steps(place, [archive.path, *[endpoint.root for endpoint in archive.endpoints]])
    key_init(archive, env=steps.environment(0, "before"))
    n_steps = steps.count()
    assert n_steps > 20
    for at, moment in points(n_steps):
        before.restore()
        done = key_init(archive, env=steps.environment(at, moment), check=False)
        where = steps.where()
        assert (done.returncode == -signal.SIGKILL) == (where is not None), done
        try:
            killed = Kept(place, before.paths)
            check_lost(place, archive)
            killed.restore()
            check_goes_on(place, archive)
            killed.restore()
            done = key_init(archive, check=False)
            assert done.returncode == 0 or "has a key already" in done.stderr, done
            lab.assert_same_tree(archive.tree, tree_of(place, archive))
            assert open_journal(archive.endpoints) == []
            killed.drop()
        except AssertionError as error:
            raise AssertionError(f"killed {where}: {error}") from error
