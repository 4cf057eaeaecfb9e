"""An archive with a key: no endpoint can read it, nor make what passes for it, and the key alone brings it back."""
import os
import resource
import shutil
import signal
import struct
import subprocess
import uuid
import zlib

import lab
import pytest
from forge import xxh3_64
from keyed import files_at, lose_machine, recover, share_of, tree_of, write_tree

SLOTS_AT = 8 + 2 + 16 + 16 + 2 + 255 * 32 + 33  # in a file with a share
PLANTED = ["planted-name", "planted-directory", "planted-content", "planted-target", "planted-attribute"]


@pytest.fixture
def archive(place):
    made = lab.Archive(place.path / "archive", place.directories())
    made.init("--key", "file")
    return made


def seen_at(endpoints):
    """What of it can be read there, also of what is only compressed."""
    found = set()
    for path in files_at(endpoints):
        data = path.read_bytes()
        for start in [at for at in range(min(len(data), 512)) if data[at] == 0x78]:
            unpacked = zlib.decompressobj()
            try:
                data += unpacked.decompress(data[start:])
            except zlib.error:
                continue
        found |= {word for word in PLANTED if word.encode() in data or word.encode() in bytes(path)}
    return found


@pytest.mark.slow
def test_endpoints_learn_nothing_and_the_key_brings_all_back(place, archive):
    mount = place.mount(archive)
    before = write_tree(mount)
    lab.ecfs("wait", mount.path)
    assert seen_at(archive.endpoints) == set()
    for endpoint in archive.endpoints[1:3]:
        endpoint.kill()
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    for endpoint in archive.endpoints[1:3]:
        endpoint.start()
    mount.umount()
    key = place.path / "copy of the key"
    shutil.copy2(archive.path / "key", key)
    shutil.rmtree(archive.path)
    at_endpoints = {path: path.read_bytes() for path in files_at(archive.endpoints)}
    _, refused = recover(place, archive, check=False)
    assert refused.returncode != 0 and "--key" in refused.stderr, refused.stderr
    assert {path: path.read_bytes() for path in files_at(archive.endpoints)} == at_endpoints
    again, _ = recover(place, archive, "--key", key)
    lab.assert_same_tree(before, tree_of(place, again))
    assert seen_at(again.endpoints) == set()


@pytest.mark.slow
def test_it_comes_back_from_stripes_alone(place, archive):
    mount = place.mount(archive)
    write_tree(mount)
    before = {path: facts["digest"] for path, facts in lab.describe_tree(mount.path).items() if "digest" in facts}
    lab.ecfs("wait", mount.path)
    mount.umount()
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root / "journal", ignore_errors=True)
        shutil.rmtree(endpoint.root / "snapshots", ignore_errors=True)
    _, refused = recover(place, archive, check=False)
    assert refused.returncode != 0 and "--key" in refused.stderr, refused.stderr
    again, _ = recover(place, archive, "--key", archive.path / "key")
    found = tree_of(place, again)
    assert {path: facts["digest"] for path, facts in found.items() if "digest" in facts} == before


def test_without_its_key_it_does_not_open(place, archive):
    key, away = archive.path / "key", place.path / "away"
    assert key.stat().st_mode & 0o777 == 0o600
    key.rename(away)
    done = lab.ecfs("status", archive.path, check=False)
    assert done.returncode != 0 and f"{key} is gone" in done.stderr
    other = lab.Archive(place.path / "other", place.directories())
    other.init("--key", "file")
    shutil.copy2(other.path / "key", key)
    done = lab.ecfs("put", archive.path, "/etc/hostname", "/", check=False)
    assert done.returncode != 0 and "another archive" in done.stderr
    shutil.copy2(away, key)
    key.chmod(0o640)
    done = lab.ecfs("status", archive.path, check=False)
    assert done.returncode != 0 and f"chmod 600 {key}" in done.stderr
    key.chmod(0o600)
    lab.ecfs("status", archive.path)


@pytest.mark.parametrize("code", ["rs:4+2", "copies:3", "ldpc:4+4", "basic:4+4"])
@pytest.mark.slow
def test_what_is_lost_is_made_good_without_the_content(place, code):
    archive = lab.Archive(place.path / "archive", place.directories([*lab.NAMES, "grove", "haven"]), code)
    archive.init("--key", "file")
    mount = place.mount(archive)
    before = write_tree(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    lost, damaged = [endpoint for endpoint in archive.endpoints if lab.stripe_files(endpoint)][:2]
    for path in lab.stripe_files(lost):
        path.unlink()
    for path in lab.stripe_files(damaged):
        lab.flip(path, path.stat().st_size // 2)
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", "--deep", archive.path, check=False).returncode == 1
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0
    lab.assert_same_tree(before, tree_of(place, archive))
    assert seen_at(archive.endpoints) == set()


@pytest.mark.slow
def test_an_endpoint_that_was_away_is_filled_up_and_files_change_their_code(place, archive):
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    archive.endpoints[5].kill()
    before = write_tree(mount)
    archive.endpoints[5].start()
    lab.until(lambda: lab.ecfs("wait", mount.path, check=False).returncode == 0, 120, "all stripes are there")
    for code in ["rs:4+1", "rs:4+2", "copies:3", "rs:2+2"]:
        lab.ecfs("recode", archive.path, "/planted-directory", "--code", code)
        lab.forget_mounts()
        lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0
    assert seen_at(archive.endpoints) == set()


@pytest.mark.slow
def test_stripes_are_added_without_the_content(place, archive):
    mount = place.mount(archive)
    before = write_tree(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    archive.configure("archive", staging_reserve="1000T")  # what reads content would need more room than there is
    lab.ecfs("recode", archive.path, "/planted-directory/planted-name-large", "--code", "rs:4+1")
    lab.ecfs("recode", archive.path, "/planted-directory/planted-name-large", "--code", "rs:4+2")
    refused = lab.ecfs("recode", archive.path, "/planted-directory/planted-name-large", "--code", "rs:2+2", check=False)
    assert refused.returncode != 0 and "staging_reserve" in refused.stderr, refused.stderr
    lab.assert_same_tree(before, tree_of(place, archive))
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0


# Shared by the endpoints


@pytest.fixture
def shared(place):
    made = lab.Archive(place.path / "archive", place.directories())
    made.init("--key", "split")
    return made


@pytest.mark.slow
def test_the_endpoints_alone_bring_all_back(place, shared):
    before = lose_machine(place, shared)
    assert seen_at(shared.endpoints) == set()
    for endpoint in shared.endpoints[:2]:
        endpoint.kill()
    again, _ = recover(place, lab.Archive(shared.path, shared.endpoints[2:]))
    lab.assert_same_tree(before, tree_of(place, again))
    assert (again.path / "key").stat().st_mode & 0o777 == 0o600


def test_two_of_them_open_nothing(place, shared):
    lose_machine(place, shared)
    two = lab.Archive(shared.path, shared.endpoints[3:5])
    again, refused = recover(place, two, check=False)
    assert refused.returncode != 0 and "too few of the endpoints" in refused.stderr, refused.stderr
    assert not again.path.exists()
    words = {share_of(endpoint).read_bytes() for endpoint in two.endpoints}
    assert len(words) == 2


@pytest.mark.slow
def test_forged_and_lost_shares_are_done_without_and_named(place, shared):
    before = lose_machine(place, shared)
    lab.flip(share_of(shared.endpoints[0]), 60)  # not even its checksum fits
    share = bytearray(share_of(shared.endpoints[1]).read_bytes())
    other = share_of(shared.endpoints[2]).read_bytes()
    share_of(shared.endpoints[1]).write_bytes(other)  # another's, which is a true one
    assert bytes(share) != other
    again, told = recover(place, shared)
    assert "endpoint amber: keys/" in told.stderr
    lab.assert_same_tree(before, tree_of(place, again))


def test_lost_and_damaged_shares_are_found_and_stored_anew(place, shared):
    fsck = lab.BUILD / "tools/ecfs-fsck"
    before = share_of(shared.endpoints[0]).read_bytes()
    lab.flip(share_of(shared.endpoints[0]), 4000)
    share_of(shared.endpoints[1]).unlink()
    for options, status, word in (("-n", 4, "LEFT"), ("-y", 1, "STORED ANEW"), ("-n", 0, "")):
        done = lab.run(fsck, options, shared.path, check=False)
        assert done.returncode == status, done.stdout
        assert done.stdout.count("its share of the archive's key is missing or damaged") == (2 if word else 0)
        assert word in done.stdout
    assert share_of(shared.endpoints[0]).read_bytes() == before


@pytest.mark.slow
def test_slots_that_an_endpoint_changed_are_not_taken_over(place, shared):
    """It has emptied them: with these nobody would ever get the key from shares again."""
    key = place.path / "copy of the key"
    shutil.copy2(shared.path / "key", key)
    before = lose_machine(place, shared)
    path = share_of(shared.endpoints[0])
    whole = path.read_bytes()
    data = whole[:SLOTS_AT] + bytes(2) + whole[-64:-8]
    path.write_bytes(data + struct.pack("<Q", xxh3_64(data)))
    again, _ = recover(place, shared, "--key", key)
    lab.assert_same_tree(before, tree_of(place, again))
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", again.path, check=False)
    assert done.stdout.count("its share of the archive's key") == 1 and "endpoint amber: its share" in done.stdout


def test_what_others_keep_in_a_directory_of_that_name_stays(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    own = archive.endpoints[0].root / "keys/id_ed25519"
    own.parent.mkdir(parents=True)
    own.write_text("not of ecfs")
    archive.init("--key", "split")
    lab.ecfs("destroy", archive.path, "--yes")
    assert own.read_text() == "not of ecfs"
    blocked = archive.endpoints[5].root
    shutil.rmtree(blocked, ignore_errors=True)
    blocked.write_text("no directory")
    assert archive.init("--key", "split", check=False).returncode != 0
    assert [path for endpoint in archive.endpoints[:5] for path in lab.files_below(endpoint.root)] == [own]


def test_a_lost_file_of_slots_is_told(place, shared):
    (shared.path / "key-slots").unlink()
    done = lab.ecfs("status", shared.path, check=False)
    assert done.returncode == 0 and "key-slots is gone" in done.stderr
    done = lab.ecfs("put", shared.path, "/etc/hostname", "/", check=False)
    assert done.returncode != 0 and "key-slots is gone" in done.stderr


@pytest.mark.slow
def test_keys_that_are_given_are_shared_anew_where_nobody_has_a_share(place, shared):
    key = place.path / "copy of the key"
    shutil.copy2(shared.path / "key", key)
    before = lose_machine(place, shared)
    for endpoint in shared.endpoints:
        shutil.rmtree(endpoint.root / "keys")
    again, told = recover(place, shared, "--key", key)
    assert "stores new ones" in told.stderr
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", again.path, check=False)
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", again.path).returncode == 0
    shutil.rmtree(again.path)
    last, _ = recover(place, lab.Archive(shared.path, shared.endpoints[1:]))
    lab.assert_same_tree(before, tree_of(place, last))


def test_a_code_by_which_more_could_read_is_refused(place):
    archive = lab.Archive(place.path / "archive", place.directories(), "rs:4+1")
    archive.init("--key", "split")
    archive.configure("archive", code="rs:4+2")
    done = lab.ecfs("put", archive.path, "/etc/hostname", "/", check=False)
    assert done.returncode != 0 and "key is shared" in done.stderr
    lab.ecfs("ls", archive.path)
    lab.ecfs("status", archive.path)


def test_an_init_that_was_begun_otherwise_is_not_gone_on_with(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--key", "split")
    (archive.path / "ecfs.conf").unlink()
    for how in ("none", "file"):
        done = archive.init("--key", how, check=False)
        assert done.returncode != 0 and "another --key" in done.stderr, done.stderr
    archive.init("--key", "split")
    lab.ecfs("status", archive.path)


@pytest.mark.slow
def test_endpoints_come_and_go_with_their_shares(place, shared):
    mount = place.mount(shared)
    before = write_tree(mount)
    more = place.directories(["seventh"])[0]
    lab.ecfs("endpoint", "add", shared.path, more.endpoint())
    assert share_of(more).exists()
    lab.ecfs("wait", mount.path)
    mount.umount()
    left = [*shared.endpoints[1:], more]
    lab.ecfs("endpoint", "drain", shared.path, "amber")
    lab.ecfs("endpoint", "remove", shared.path, "amber")
    assert not (shared["amber"].root / "keys").exists() or not list((shared["amber"].root / "keys").iterdir())
    shutil.rmtree(shared.path)
    again, _ = recover(place, lab.Archive(shared.path, left[2:]))
    lab.assert_same_tree(before, tree_of(place, again))


def test_an_endpoint_without_which_the_key_could_be_lost_stays(place):
    archive = lab.Archive(place.path / "archive", place.directories(["one", "two", "three"]), "copies:2")
    archive.init("--key", "split")
    lab.ecfs("endpoint", "drain", archive.path, "one")
    refused = lab.ecfs("endpoint", "remove", archive.path, "one", check=False)
    assert refused.returncode != 0 and "key is shared" in refused.stderr, refused.stderr
    more = place.directories(["four"])[0]
    lab.ecfs("endpoint", "add", archive.path, more.endpoint())
    lab.ecfs("endpoint", "remove", archive.path, "one")


def test_where_no_number_of_shares_keeps_both_promises_init_says_so(place):
    archive = lab.Archive(place.path / "archive", place.directories(["one", "two"]), "rs:1+1")
    refused = archive.init("--key", "split", check=False)
    assert refused.returncode == 2 and "--key file" in refused.stderr and "3 zones" in refused.stderr
    assert not archive.path.exists()


@pytest.mark.parametrize("how", ["file", "split"])
def test_destroy_leaves_nothing_of_it(place, how):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--key", how)
    lab.ecfs("destroy", archive.path, "--yes")
    assert not archive.path.exists()
    assert [path for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)] == []


@pytest.mark.slow
def test_a_stripe_that_looks_sealed_keeps_no_archive_from_being_recovered(place):
    """One endpoint puts it there, under the archive's own UUID, where the archive has no key."""
    keyed = lab.Archive(place.path / "keyed", place.directories())
    keyed.init("--key", "file")
    lab.write_pattern(place.path / "file", 300_000)
    keyed.put(place.path / "file", "/file")
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--key", "none")
    archive.put(place.path / "file", "/file")
    archive.await_stored()
    forged = next(path for path in lab.stripe_files(keyed.endpoints[0]))
    data = bytearray(forged.read_bytes())
    data[24:40] = uuid.UUID(archive.json("status")["archive"]).bytes  # of the public section, which is the first
    end = 24 + int.from_bytes(data[20:24], "little")
    data[end:end + 8] = struct.pack("<Q", xxh3_64(bytes(data[16:end])))
    target = archive.endpoints[0].root / forged.relative_to(keyed.endpoints[0].root)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    again, _ = recover(place, archive)
    again.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(place.path / "file")


def ends_with_core(place, command, is_ready):
    """Whether a program that fails leaves what was in its memory."""
    def allow():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=place.path, preexec_fn=allow)
    is_ready(process)
    process.send_signal(signal.SIGABRT)
    process.stdout.close()
    return os.WCOREDUMP(os.waitpid(process.pid, 0)[1])


def test_who_reads_leaves_no_keys_in_a_core_dump(place, archive):
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY or not ends_with_core(
            place, ["sh", "-c", "echo && read nothing < /dev/zero"], lambda process: process.stdout.read(1)):
        pytest.skip("nothing that fails leaves a core dump here")
    source = place.path / "source"
    lab.write_pattern(source, 8 << 20, 1)
    archive.put_in_full(source, "/")
    reading = [lab.PROGRAM, "cat", archive.path, "/source"]  # which nobody reads to its end
    assert not ends_with_core(place, reading, lambda process: process.stdout.read(1))
