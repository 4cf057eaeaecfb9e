"""An archive gets another key: at every step it has what it had, for who lost the machine too, and for nobody else."""
import os
import shutil
import signal
import struct
import time

import lab
import pytest
from keyed import key_pair, keys_of, secret
from steps import CRASHES, Kept, Steps, points
from test_fsck import stored
from test_salvage import load

pytestmark = lab.unkeyed

MIB = 1 << 20


def write_tree(top):
    top.mkdir()
    for name, size in {"small": 700, "odd": 300_001, "large": 3 * MIB + 77}.items():
        lab.write_pattern(top / name, size)
    os.symlink("target", top / "link")
    os.setxattr(top / "small", "user.note", b"attribute")


def make(place, *key, names=lab.NAMES, code="rs:4+2"):
    archive = lab.Archive(place.path / "archive", place.directories(list(names)), code)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("init", archive.path, "--code", code, *(key or ("--key", "split")), *words)
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    write_tree(mount.path / "tree")
    lab.ecfs("wait", mount.path)
    archive.tree = lab.describe_tree(mount.path)
    mount.umount()
    return archive


@pytest.fixture
def archive(place):
    return make(place)


def rotate(archive, *options, **how):
    return lab.ecfs("key", "rotate", archive.path, *options, **how)


def tree_of(place, archive, *options):
    mount = place.mount(archive, *options)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def recover(place, endpoints, *options, **how):
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    return lab.Archive(path, endpoints), lab.ecfs("recover", path, "--force", *words, *options, **how)


def add_file(place, archive, name, size=300_003):
    lab.write_pattern(place.path / name, size)
    archive.put(place.path / name, f"/{name}")
    archive.await_stored()
    archive.tree = tree_of(place, archive)


def key_files(archive):
    return {endpoint.name: sorted(path.name for path in (endpoint.root / "keys").iterdir())
            for endpoint in archive.endpoints}


@pytest.mark.slow
def test_what_was_stored_stays_and_what_comes_is_under_the_new_key(place, archive):
    before, files = keys_of(archive), key_files(archive)
    rotate(archive)
    after = keys_of(archive)
    assert after["key"] != before["key"] and after["retired"] == [before["key"]]
    assert all(len(names) == 1 for names in key_files(archive).values())
    assert key_files(archive) != files
    lab.assert_same_tree(archive.tree, tree_of(place, archive))
    add_file(place, archive, "new")
    assert archive.json("status")["verdict"] == "healthy"
    lab.ecfs("key", "check", archive.path)
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path)
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[2:])
    lab.assert_same_tree(archive.tree, tree_of(place, again))
    assert keys_of(again)["key"] == after["key"]


def salvage(place, endpoints, *options):
    target = place.path / f"salvaged-{next(place.numbers)}"
    lab.run(lab.REPOSITORY / "tools/ecfs-salvage", *options, "--to", target, *[endpoint.root for endpoint in endpoints])
    return lab.describe_tree(target)


@pytest.mark.slow
def test_salvage_reads_what_is_under_both(place, archive):
    rotate(archive)
    add_file(place, archive, "new")
    rotate(archive)
    add_file(place, archive, "newer")
    key = shutil.copy2(archive.path / "key", place.path / "copy")
    for options in ((), ("--key", key)):
        lab.assert_same_tree(archive.tree, salvage(place, archive.endpoints[2:], *options))


@pytest.mark.slow
def test_what_lies_under_the_old_key_is_counted_and_moved(place, archive):
    rotate(archive)
    assert archive.json("status")["retired_objects"] == 3
    lab.ecfs("recode", "--seal", archive.path)
    mount = place.mount(archive)
    lab.ecfs("wait", mount.path)
    mount.umount()
    assert archive.json("status")["retired_objects"] == 0
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


@pytest.mark.slow
def test_what_waits_for_its_deletion_under_the_old_key_is_counted(place, archive):
    archive.configure("archive", deletion_grace="1h")
    rotate(archive)
    status = archive.json("status")
    assert status["retired_objects"] > 0 and status["retired_stripes"] == 0 and not status["sealed"]
    assert "sealed " not in lab.ecfs("status", archive.path).stdout
    lab.ecfs("recode", "--seal", archive.path)
    status = archive.json("status")
    assert status["retired_objects"] == 0 and status["retired_stripes"] > 0 and not status["sealed"]
    assert 3000 < status["retired_until"] - time.time() < 3700
    told = lab.ecfs("status", archive.path).stdout
    assert "stripes of what was under keys before can be read" in told and "sealed " not in told, told
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    lab.until(lambda: archive.json("status")["sealed"], 60, "nothing is under the old key any more")
    mount.umount()
    assert archive.json("status")["retired_stripes"] == 0
    assert "all that is stored is under the key" in lab.ecfs("status", archive.path).stdout


def check_lost(place, archive):
    """The machine is gone, and two endpoints."""
    again, _ = recover(place, archive.endpoints[2:])
    lab.assert_same_tree(archive.tree, tree_of(place, again))
    shutil.rmtree(again.path)


def check_goes_on(place, archive):
    """What is stored is there without this machine, also before the rotation has ended."""
    lab.write_pattern(place.path / "more", 70_001)
    done = archive.put(place.path / "more", "/more", check=False)
    if done.returncode != 0:
        assert "'ecfs key rotate' was interrupted" in done.stderr, done
        return
    archive.await_stored()
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[2:])
    target = place.path / "target"
    target.mkdir()
    again.get("/more", target)
    assert (target / "more").read_bytes() == (place.path / "more").read_bytes()
    shutil.rmtree(target)
    shutil.rmtree(again.path)


def check_goes_on_elsewhere(place, archive):
    """Who recovers without two endpoints goes on with one of the keys; and it counts when these are back."""
    again, _ = recover(place, archive.endpoints[2:], "--code", "rs:2+2")
    mount = place.mount(again)
    lab.write_pattern(mount.path / "later", 50_001)
    later, whole = lab.digest(mount.path / "later"), lab.describe_tree(mount.path)
    waited = lab.ecfs("wait", "--quorum", mount.path, check=False)  # two zones are all that the key could lose still
    assert "shares of the archive's key" in waited.stderr, waited
    mount.umount()
    shutil.rmtree(again.path)
    lab.assert_same_tree(whole, salvage(place, archive.endpoints))
    last, _ = recover(place, archive.endpoints)
    mount = place.mount(last)
    assert lab.digest(mount.path / "later") == later
    (mount.path / "later").unlink()
    lab.assert_same_tree(archive.tree, lab.describe_tree(mount.path))
    lab.ecfs("wait", mount.path)
    mount.umount()
    shutil.rmtree(last.path)


def kill_when_three_have_it(place, archive):
    """The key files of the new key, beside those of the old one."""
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    old, before, steps = key_files(archive), Kept(place, roots), Steps(place, roots)
    rotate(archive, env=steps.environment(0, "before"))
    first, last = 1, steps.count()
    while first <= last:  # the later it is killed, the more have them
        at = (first + last) // 2
        before.restore()
        rotate(archive, env=steps.environment(at, "before"), check=False)
        found = key_files(archive)
        if [len(names) for names in found.values()] == [2, 2, 2, 1, 1, 1]:
            return
        has_more = sum(found[name] != old[name] for name in old) > 3
        first, last = (first, at - 1) if has_more else (at + 1, last)
    raise AssertionError("it was never killed there")


@pytest.mark.slow
def test_who_went_on_under_the_old_key_is_believed_when_key_files_of_the_new_one_turn_up(place, archive):
    """It was killed when three endpoints had these, as many as bring a key back; two of them were away next time."""
    kill_when_three_have_it(place, archive)
    check_goes_on_elsewhere(place, archive)


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_any_step_it_goes_on(place, archive):
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    before, steps = Kept(place, roots), Steps(place, roots)
    rotate(archive, env=steps.environment(0, "before"))
    n_steps = steps.count()
    assert n_steps > 20
    for at, moment in points(n_steps, max(CRASHES // 2, 6)):
        before.restore()
        done = rotate(archive, env=steps.environment(at, moment), check=False)
        where = steps.where()
        assert (done.returncode == -signal.SIGKILL) == (where is not None), done
        try:
            killed = Kept(place, roots)
            check_lost(place, archive)
            killed.restore()
            check_goes_on(place, archive)
            killed.restore()
            check_goes_on_elsewhere(place, archive)
            killed.restore()
            lab.assert_same_tree(archive.tree, salvage(place, archive.endpoints[2:]))
            rotate(archive)
            lab.assert_same_tree(archive.tree, tree_of(place, archive))
            assert archive.json("status")["verdict"] == "healthy"
            lab.ecfs("key", "check", archive.path)
            check_lost(place, archive)
            killed.drop()
        except AssertionError as error:
            raise AssertionError(f"killed {where}: {error}") from error


@pytest.mark.slow
def test_an_old_copy_with_the_old_key_does_no_harm(place, archive):
    old = shutil.copytree(archive.path, place.path / "old copy")
    rotate(archive)
    add_file(place, archive, "new")
    before = {path: path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)}
    stale = lab.Archive(old, archive.endpoints)
    refused = lab.ecfs("mount", old, place.path / "mnt-old", check=False)
    put = stale.put(place.path / "new", "/other", check=False)
    again = rotate(stale, check=False)
    fsck = lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", old, check=False)
    assert put.returncode != 0 and again.returncode != 0 and fsck.returncode != 0, (refused, put, again, fsck)
    assert {path: path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)} == before
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


@pytest.mark.slow
def test_a_key_that_is_a_file_alone_wants_a_copy_first(place):
    archive = make(place, "--key", "file")
    refused = rotate(archive, check=False)
    assert refused.returncode != 0 and "--copy" in refused.stderr, refused
    for inside in (archive.path / "key", archive.path / "copy"):
        assert rotate(archive, "--copy", inside, check=False).returncode != 0
    assert keys_of(archive)["retired"] == []
    copy = place.path / "copy"
    rotate(archive, "--copy", copy)
    assert copy.read_bytes() == (archive.path / "key").read_bytes() and copy.stat().st_mode & 0o77 == 0
    add_file(place, archive, "new")
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[2:], "--key", copy)
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.parametrize("kind", ["alone", "code", "passphrase", "recipient"])
@pytest.mark.slow
def test_ways_that_need_a_secret_are_given_again_or_dropped(place, kind):
    words = {"code": ["--code", "--code-file", place.path / "new"],
             "passphrase": ["--passphrase", "--passphrase-file", secret(place, "second", "another passphrase")],
             "alone": ["--passphrase", "--alone", "--passphrase-file", secret(place, "second", "another passphrase")]}
    first = secret(place, "first", "the first passphrase")
    private, public = key_pair(place)
    archive = make(place, "--key", *{"code": ["code", "--code-file", place.path / "old"],
                                     "passphrase": ["passphrase", "--passphrase-file", first],
                                     "alone": ["passphrase", "--alone", "--passphrase-file", first],
                                     "recipient": [f"recipient={public}"]}[kind])
    if kind != "recipient":
        refused = rotate(archive, check=False)
        assert refused.returncode != 0 and "nothing would open the new key" in refused.stderr, refused
        lab.ecfs("key", "add", archive.path, "--split")
        refused = rotate(archive, check=False)
        assert refused.returncode != 0 and f"({kind})" in refused.stderr and "--drop" in refused.stderr, refused
        assert keys_of(archive)["retired"] == []
    rotate(archive, *words.get(kind, []))
    kinds = [slot["kind"] for slot in keys_of(archive)["slots"]]
    assert sorted(kinds) == sorted([kind] if kind == "recipient" else ["split", kind])
    opens, no_longer = {"code": (["--code-file", place.path / "new"], ["--code-file", place.path / "old"]),
                        "recipient": (["--identity", private], None)}.get(
        kind, (["--passphrase-file", place.path / "second"], ["--passphrase-file", first]))
    lab.ecfs("key", "check", archive.path, *opens)
    if no_longer:
        assert lab.ecfs("key", "check", archive.path, *no_longer, check=False).returncode != 0
        rotate(archive, "--drop")
        assert [slot["kind"] for slot in keys_of(archive)["slots"]] == ["split"]
        opens = []
    shutil.rmtree(archive.path)
    again, _ = recover(place, archive.endpoints[2:], *opens)
    lab.assert_same_tree(archive.tree, tree_of(place, again))


@pytest.mark.slow
def test_an_endpoint_that_was_away_gets_the_new_key_file(place, archive):
    archive.endpoints[0].kill()
    rotate(archive)
    archive.endpoints[0].start()
    mount = place.mount(archive)
    expected = key_files(archive)[archive.endpoints[1].name]
    lab.until(lambda: key_files(archive)[archive.endpoints[0].name] == expected, 90, "it has the new key file alone")
    lab.ecfs("wait", mount.path)
    mount.umount()
    assert archive.json("status")["verdict"] == "healthy"
    shutil.rmtree(archive.path)
    again, _ = recover(place, [archive.endpoints[0], *archive.endpoints[3:]])
    lab.assert_same_tree(archive.tree, tree_of(place, again))


def bytes_at(archive):
    return {path: path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)}


def add_directory(place, archive, name):
    """A change that needs no more endpoints than the journal does."""
    mount = place.mount(archive)
    (mount.path / name).mkdir()
    archive.tree = lab.describe_tree(mount.path)
    mount.umount()


def check_usable(place, archive, name):
    """Under the key that it had."""
    assert keys_of(archive)["retired"] == [] and "key_rotates" not in archive.json("status")
    assert not list(archive.path.glob("key*-next"))
    add_directory(place, archive, name)


@pytest.mark.slow
def test_zones_that_cannot_share_a_key_change_nothing(place):
    """Every way that the refusal names is one."""
    archive = make(place, names=lab.NAMES[:5], code="rs:3+2")
    lab.ecfs("endpoint", "distrust", archive.path, "amber")
    code, phrase = place.path / "code", secret(place, "phrase", "a passphrase of mine")
    before = bytes_at(archive)
    for options in ([], ["--drop"], ["--code", "--code-file", code],
                    ["--passphrase", "--passphrase-file", phrase, "--drop"]):
        refused = rotate(archive, *options, check=False)
        assert refused.returncode == 2 and "cannot be shared by 4 zones" in refused.stderr, refused
        assert "nothing has changed" in refused.stderr and "--drop" in refused.stderr, refused
        assert bytes_at(archive) == before and not code.exists() and code.name not in refused.stdout
    check_usable(place, archive, "after")
    private, public = key_pair(place)
    whole = Kept(place, [archive.path, *[endpoint.root for endpoint in archive.endpoints]])
    for kind, words, opens in (("code", ["--code", "--code-file", code], ["--code-file", code]),
                               ("alone", ["--passphrase", "--alone", "--passphrase-file", phrase],
                                ["--passphrase-file", phrase]),
                               ("recipient", ["--recipient", public], ["--identity", private])):
        rotate(archive, *words, "--drop")
        assert [slot["kind"] for slot in keys_of(archive)["slots"]] == [kind]
        lab.ecfs("key", "check", archive.path, *opens)
        add_directory(place, archive, kind)
        shutil.rmtree(archive.path)
        again, _ = recover(place, archive.endpoints[1:], *opens)
        lab.assert_same_tree(archive.tree, tree_of(place, again))
        whole.restore()


@pytest.mark.slow
def test_too_few_endpoints_change_nothing(place, archive):
    key = keys_of(archive)["key"]
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    for options in ([], ["--code", "--drop"]):
        refused = rotate(archive, *options, check=False)
        assert refused.returncode == 1 and "4 zones answer" in refused.stderr, refused
        assert refused.stdout == "" and "endpoint replace" in refused.stderr, refused
    check_usable(place, archive, "after")
    lab.ecfs("endpoint", "distrust", archive.path, archive.endpoints[0].name)
    lab.ecfs("endpoint", "distrust", archive.path, archive.endpoints[0].name, "--undo")
    for endpoint in archive.endpoints[:2]:
        endpoint.start()
    rotate(archive)
    assert keys_of(archive)["retired"] == [key]
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


@pytest.mark.slow
def test_while_it_is_interrupted_nothing_is_stored(place, archive):
    (place.path / "x").write_bytes(b"x")
    (place.path / "mnt").mkdir()
    kill_when_three_have_it(place, archive)
    for words in (["put", archive.path, place.path / "x", "/x"], ["key", "init", archive.path],
                  ["key", "add", archive.path, "--code"], ["mount", archive.path, place.path / "mnt"]):
        other = lab.ecfs(*words, check=False)
        assert other.returncode != 0 and "'ecfs key rotate' was interrupted" in other.stderr, other
    lab.assert_same_tree(archive.tree, tree_of(place, archive, "-o", "ro"))
    status = lab.ecfs("status", "--check", archive.path, check=False)
    assert status.returncode == 2 and "'ecfs key rotate' was interrupted" in status.stdout, status
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", archive.path, check=False)
    assert done.returncode == 4 and "'ecfs key rotate' was interrupted" in done.stdout + done.stderr, done
    rotate(archive)
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


@pytest.mark.slow
def test_one_that_was_interrupted_and_cannot_end_is_taken_back(place, archive):
    """Endpoints that it began with are gone."""
    kill_when_three_have_it(place, archive)
    for endpoint in archive.endpoints[4:]:
        endpoint.kill()
    refused = rotate(archive, check=False)
    assert refused.returncode == 1 and "can be used as before" in refused.stderr, refused
    assert all(len(names) == 1 for name, names in key_files(lab.Archive(archive.path, archive.endpoints[:4])).items())
    check_usable(place, archive, "after")
    new = place.directories(["fresh", "other"])
    for gone, endpoint in zip(archive.endpoints[4:], new):
        lab.ecfs("endpoint", "replace", archive.path, gone.name, endpoint.endpoint())
    archive.endpoints[4:] = new
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", archive.path)
    rotate(archive)
    assert len(keys_of(archive)["retired"]) == 1
    add_file(place, archive, "later")
    lab.ecfs("key", "check", archive.path)
    check_lost(place, archive)


@pytest.mark.slow
def test_one_that_was_interrupted_and_cannot_be_shared_any_more_is_taken_back(place, archive):
    """Six zones have become two."""
    kill_when_three_have_it(place, archive)
    for endpoint in archive.endpoints:
        archive.configure(f"endpoint {endpoint.name}", zone="east" if endpoint is archive.endpoints[0] else "west")
    killed = Kept(place, [archive.path, *[endpoint.root for endpoint in archive.endpoints]])
    refused = rotate(archive, check=False)
    assert refused.returncode == 2 and "can be used as before" in refused.stderr, refused
    check_usable(place, archive, "after")
    killed.restore()
    code = place.path / "code"
    rotate(archive, "--code", "--code-file", code, "--drop")
    assert [slot["kind"] for slot in keys_of(archive)["slots"]] == ["code"]
    lab.ecfs("key", "check", archive.path, "--code-file", code)
    assert all(len(names) == 1 for names in key_files(archive).values())


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_any_step_and_taken_back_it_does_no_harm(place, archive):
    """What is stored after that is believed, whatever key files of the new key turn up again."""
    roots = [archive.path, *[endpoint.root for endpoint in archive.endpoints]]
    before, steps, n_taken_back = Kept(place, roots), Steps(place, roots), 0
    rotate(archive, env=steps.environment(0, "before"))
    is_taken_back = steps.count() * 2 // 5, "before"
    for at, moment in [is_taken_back, *points(steps.count(), max(CRASHES // 2, 4))]:
        before.restore()
        tree = archive.tree
        rotate(archive, env=steps.environment(at, moment), check=False)
        where = steps.where()
        try:
            for endpoint in archive.endpoints[:2]:
                endpoint.kill()
            done = rotate(archive, check=False)
            n_taken_back += "can be used as before" in done.stderr
            assert done.returncode == 0 or "has the key that it had" in done.stderr, done
            assert "run again" not in done.stderr, done
            add_directory(place, archive, "after")
            for endpoint in archive.endpoints[:2]:
                endpoint.start()
            shutil.rmtree(archive.path)
            for endpoints in (archive.endpoints, archive.endpoints[2:]):
                again, _ = recover(place, endpoints)
                lab.assert_same_tree(archive.tree, tree_of(place, again))
                shutil.rmtree(again.path)
        except AssertionError as error:
            raise AssertionError(f"killed {where}: {error}") from error
        archive.tree = tree
    assert n_taken_back > 0


@pytest.mark.slow
def test_a_mounted_archive_keeps_its_key(place, archive):
    mount = place.mount(archive)
    refused = rotate(archive, check=False)
    assert refused.returncode != 0 and "not mounted" in refused.stderr, refused
    mount.umount()


@pytest.mark.slow
def test_endpoints_with_what_they_had_before_are_known(place, archive):
    """Two of them were put back to the day before the key was another one."""
    kept = Kept(place, [endpoint.root for endpoint in archive.endpoints[:2]])
    rotate(archive)
    add_file(place, archive, "new")
    kept.restore()
    lab.assert_same_tree(archive.tree, tree_of(place, archive))
    shutil.rmtree(archive.path)
    kept.restore()
    again, _ = recover(place, archive.endpoints)
    lab.assert_same_tree(archive.tree, tree_of(place, again))
    assert len(keys_of(again)["retired"]) == 1


@pytest.mark.slow
def test_who_is_taken_out_is_no_longer_to_read(place):
    archive = make(place, names=[*lab.NAMES, "grove"], code="rs:3+2")
    said = lab.ecfs("endpoint", "distrust", archive.path, "amber").stdout
    assert "ecfs key rotate" in said, said
    lab.ecfs("endpoint", "distrust", archive.path, "amber", "--undo")
    lab.ecfs("endpoint", "drain", archive.path, "amber")
    said = lab.ecfs("endpoint", "remove", archive.path, "amber").stdout
    assert "ecfs key rotate" in said, said
    rotate(archive)
    lab.assert_same_tree(archive.tree, tree_of(place, archive))


def forge_block(salvage, path, keys):
    """Another bit in the first check block, with the tag that keys make of it."""
    salvage.KEYS = salvage.Keys(keys)
    data = bytearray(path.read_bytes())
    header_bytes, = struct.unpack_from("<I", data, 12)
    found = salvage.sections(bytes(data[16:header_bytes]))
    fields = struct.unpack_from("<16s16sQQIHHHHIII", found[1])
    uuid, index, size = fields[1], fields[8], fields[10]
    block = data[header_bytes:header_bytes + size]
    block[0] ^= 1
    tag = salvage.ObjectKeys(found[4], uuid).mac(struct.pack("<QQQ", index, 0, size) + bytes(block))
    data[header_bytes:header_bytes + size + len(tag)] = block + tag
    path.write_bytes(data)


def first_bytes(place, archive, name):
    mount = place.mount(archive)
    with open(mount.path / name, "rb") as file:
        found = os.pread(file.fileno(), 100, 0)
    mount.umount()
    return found


@pytest.mark.slow
def test_who_has_the_retired_key_forges_stripes_of_what_was_not_moved(place, archive):
    """With an account. Who reads all of an object compares it with what was stored; who reads a part cannot."""
    lab.write_pattern(place.path / "victim", 400_003, 3)
    archive.put_in_full(place.path / "victim", "/victim")
    true, old = (place.path / "victim").read_bytes(), (archive.path / "key").read_bytes()
    data_stripe = next(path for _, path in stored(archive, "victim") if "-00-" in path.name)
    rotate(archive)
    salvage = load()
    forge_block(salvage, data_stripe, old)
    forged = first_bytes(place, archive, "victim")
    assert forged[1:] == true[1:100] and forged[0] == true[0] ^ 1, "a part is not what was stored"
    archive.get("/victim", place.path / "got")
    assert (place.path / "got").read_bytes() == true, "the whole is"
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path, check=False)
    assert done.returncode == 4 and "victim" in done.stdout, done
    lab.ecfs("recode", "--seal", archive.path)
    data_stripe = next(path for _, path in stored(archive, "victim") if "-00-" in path.name)
    with pytest.raises(salvage.Bad):
        forge_block(salvage, data_stripe, old)
    assert first_bytes(place, archive, "victim") == true[:100]
