"""Every way to keep an archive's keys: made by init, added and taken away, and what opens them when the machine is lost."""
import hashlib
import json
import os
import re
import shutil
import struct
import sys

import lab
import pytest
from keyed import KeyFile, key_pair, lose_machine, recover, secret, share_of, tree_of, typed
from steps import Kept as Before
from test_salvage import load

FSCK = lab.BUILD / "tools/ecfs-fsck"
PASSPHRASE = "correct horse battery staple"


class Kept:
    """An archive whose key is kept in some way, and the options that make it, open it, and do not open it."""

    def __init__(self, place, how, endpoints=None, code="rs:4+2"):
        self.place, self.how = place, how
        self.archive = lab.Archive(place.path / "archive", endpoints or place.directories(), code)
        right, wrong = secret(place, "right", PASSPHRASE + "\n"), secret(place, "wrong", "wrong horse battery staple\n")
        if how in ("passphrase", "alone"):
            self.make = ["--key", "passphrase", "--passphrase-file", right, *(["--alone"] if how == "alone" else [])]
            self.opens, self.does_not = ["--passphrase-file", right], ["--passphrase-file", wrong]
        elif how == "code":
            other = secret(place, "other-code", "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH")
            self.make = ["--key", "code", "--code-file", place.path / "code"]
            self.opens, self.does_not = ["--code-file", place.path / "code"], ["--code-file", other]
        elif how == "recipient":
            (private, public), (other, _) = key_pair(place), key_pair(place, "other")
            self.make = ["--key", f"recipient={public}"]
            self.opens, self.does_not = ["--identity", private], ["--identity", other]
        else:
            self.make, self.opens, self.does_not = ["--key", how], [], None

    def init(self):
        self.archive.init(*self.make)
        return self.archive


def listed(archive):
    return json.loads(lab.ecfs("key", "list", "--json", archive.path).stdout)


def kinds(archive):
    return sorted(slot["kind"] for slot in listed(archive)["slots"])


def check(archive, *options):
    return lab.ecfs("key", "check", archive.path, *options, check=False)


def state_of(endpoints):
    return {path: path.read_bytes() for endpoint in endpoints for path in lab.files_below(endpoint.root)}


@pytest.mark.parametrize("how", ["passphrase", "alone", "code", "recipient"])
@pytest.mark.slow
def test_it_opens_with_what_was_kept_and_with_nothing_else(place, how):
    kept = Kept(place, how)
    archive = kept.init()
    assert kinds(archive) == [how]
    assert check(archive, *kept.opens).returncode == 0
    assert check(archive, *kept.does_not).returncode == 1 and check(archive).returncode == 1
    before = lose_machine(place, archive)
    stored = state_of(archive.endpoints)
    for options, word in (([], "opens it"), (kept.does_not, "wrong" if how != "recipient" else "was not made for")):
        again, refused = recover(place, archive, *options, check=False)
        assert refused.returncode == 1 and word in refused.stderr, refused.stderr
        assert not again.path.exists() and state_of(archive.endpoints) == stored
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    again, _ = recover(place, lab.Archive(archive.path, archive.endpoints[2:]), *kept.opens)
    lab.assert_same_tree(before, tree_of(place, again))
    assert kinds(again) == [how] and (again.path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_the_right_passphrase_opens_nothing_with_fewer_accounts_than_are_needed(place):
    kept = Kept(place, "passphrase")
    archive = kept.init()
    before = lose_machine(place, archive)
    two = lab.Archive(archive.path, archive.endpoints[2:4])
    again, refused = recover(place, two, *kept.opens, check=False)
    assert refused.returncode == 1 and "needs the shares of 3 zones, and there are 2" in refused.stderr, refused.stderr
    assert not again.path.exists()
    for endpoint in archive.endpoints[:2]:  # these two have lost no more than their key files
        shutil.rmtree(endpoint.root / "keys")
    again, _ = recover(place, archive, *kept.opens)
    assert lab.run(FSCK, "-n", again.path, check=False).stdout.count("its share of the archive's key is missing") == 2
    assert lab.run(FSCK, "-y", again.path, check=False).returncode == 1
    assert lab.run(FSCK, "-n", again.path).returncode == 0
    lab.assert_same_tree(before, tree_of(place, again))
    assert share_of(again.endpoints[0]).read_bytes()[:46] == share_of(again.endpoints[3]).read_bytes()[:46]


@pytest.mark.parametrize("how", ["passphrase", "code", "recipient"])
@pytest.mark.slow
def test_lying_endpoints_take_no_way_in_away_and_are_not_asked_for_long(place, how):
    """One has emptied its slots, one has slots of its own that cost as much as they may, and another's share."""
    kept = Kept(place, how)
    archive = kept.init()
    before = lose_machine(place, archive)
    empty, costly = (share_of(endpoint) for endpoint in archive.endpoints[:2])
    file = KeyFile(empty.read_bytes())
    file.slots = []
    empty.write_bytes(bytes(file))
    file = KeyFile(share_of(archive.endpoints[2]).read_bytes())
    file.slots = [os.urandom(16) + struct.pack("<H", 2 + number % 2) + os.urandom(32) + bytes([16, 64, 16, 0])
                  + struct.pack("<I", 100) + os.urandom(100) for number in range(62)] + [
                      os.urandom(16) + struct.pack("<H", kind) + os.urandom(32) + bytes([30, 64, 16, 0])
                      + struct.pack("<I", 100) + os.urandom(100) for kind in (2, 3)]
    costly.write_bytes(bytes(file))
    again, _ = recover(place, archive, *kept.opens, timeout=60)
    lab.assert_same_tree(before, tree_of(place, again))
    assert kinds(again) == [how]
    assert lab.run(FSCK, "-n", again.path, check=False).stdout.count("its share of the archive's key") == 2


@pytest.mark.slow
def test_a_liar_makes_nobody_ask(place):
    """Whose slot nobody else has: the keys of the others open without a question."""
    kept = Kept(place, "split")
    archive = kept.init()
    before = lose_machine(place, archive)
    asked = place.path / "asked"
    program = secret(place, "askpass", f"#!/bin/sh\necho \"$1\" >> {asked}\necho something\n")
    program.chmod(0o700)
    path = share_of(archive.endpoints[0])
    file = KeyFile(path.read_bytes())
    file.slots = [os.urandom(16) + struct.pack("<H", kind) + os.urandom(32) + bytes([17, 8, 1, 0]) + struct.pack("<I", 100)
                  + os.urandom(100) for kind in (3, 4)]
    path.write_bytes(bytes(file))
    environment = os.environ | {"ECFS_ASKPASS": str(program)}
    two = lab.Archive(archive.path, archive.endpoints[:2])
    _, refused = recover(place, two, check=False, env=environment)
    assert refused.returncode == 1 and not asked.exists(), refused.stderr
    again, _ = recover(place, archive, env=environment)
    lab.assert_same_tree(before, tree_of(place, again))
    assert not asked.exists()


# Where secrets come from


@pytest.mark.slow
def test_it_is_asked_for_at_the_terminal_by_a_program_or_found_among_credentials(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    command = [lab.PROGRAM, "init", archive.path, "--key", "passphrase", *words]
    said, status = typed(place, command, [PASSPHRASE, PASSPHRASE + "!"], os.environ)
    assert status == 2 and "two different passphrases" in said and PASSPHRASE not in said, said
    said, status = typed(place, command, [PASSPHRASE, "wrong\x15" + PASSPHRASE + "x\x7f"], os.environ)
    assert status == 0 and PASSPHRASE not in said, said
    assert archive.init("--key", "passphrase", check=False).returncode != 0  # nobody is there
    check_command = [lab.PROGRAM, "key", "check", archive.path]
    assert typed(place, check_command, [PASSPHRASE], os.environ)[1] == 0
    said, status = typed(place, check_command, ["what was it?"], os.environ)
    assert status == 1 and "the passphrase is wrong" in said
    program = secret(place, "askpass", f"#!/bin/sh\necho '{PASSPHRASE}'\n")
    program.chmod(0o700)
    lab.run(*check_command, env=os.environ | {"ECFS_ASKPASS": str(program)})
    secret(place, "ecfs.passphrase", PASSPHRASE)
    lab.run(*check_command, env=os.environ | {"CREDENTIALS_DIRECTORY": str(place.path)})
    assert lab.run(*check_command, check=False).returncode == 1


@pytest.mark.slow
def test_a_secret_that_anybody_may_read_is_refused(place):
    kept = Kept(place, "passphrase")
    archive = kept.init()
    kept.opens[1].chmod(0o644)
    done = check(archive, *kept.opens)
    assert done.returncode == 1 and "chmod 600" in done.stderr
    short = secret(place, "short", "1234567\n")
    done = lab.ecfs("key", "add", "--passphrase", "--passphrase-file", short, archive.path, check=False)
    assert done.returncode == 2 and "at least 8" in done.stderr
    code = secret(place, "there", "")
    done = lab.ecfs("key", "add", "--code", "--code-file", code, archive.path, check=False)
    assert done.returncode == 1 and code.read_text() == "" and kinds(archive) == ["passphrase"]


# Adding and taking away


@pytest.mark.slow
def test_ways_come_and_go_and_each_alone_brings_all_back(place):
    kept = Kept(place, "split")
    archive = kept.init()
    ways = [kept, *(Kept(place, how, archive.endpoints) for how in ("passphrase", "code", "recipient"))]
    mount = place.mount(archive)
    for way in ways[1:3]:  # the mount makes the change
        words = ["--code", *way.opens] if way.how == "code" else ["--passphrase", *way.opens]
        lab.ecfs("key", "add", archive.path, *words)
    more = place.directories(["seventh"])[0]
    lab.ecfs("endpoint", "add", archive.path, more.endpoint())
    assert KeyFile(share_of(more).read_bytes()).slots == KeyFile(share_of(archive.endpoints[0]).read_bytes()).slots
    mount.umount()
    lab.ecfs("key", "add", archive.path, "--recipient", ways[3].make[1].partition("=")[2])
    assert kinds(archive) == ["code", "passphrase", "recipient", "split"]
    assert {len(list((endpoint.root / "keys").iterdir())) for endpoint in archive.endpoints} == {1}
    for way in ways:
        assert check(archive, *way.opens).returncode == 0
    copies = [(endpoint, share_of(endpoint), share_of(endpoint).read_bytes()) for endpoint in archive.endpoints]
    for slot in listed(archive)["slots"]:
        if slot["kind"] != "code":
            lab.ecfs("key", "remove", archive.path, slot["id"][:8])
    refused = lab.ecfs("key", "remove", archive.path, listed(archive)["slots"][0]["id"], check=False)
    assert refused.returncode == 1 and "last key slot" in refused.stderr and kinds(archive) == ["code"]
    before = lose_machine(place, archive)
    for way in (ways[0], ways[1], ways[3]):
        _, refused = recover(place, archive, *way.opens, check=False)
        assert refused.returncode == 1 and "code opens it" in refused.stderr, refused.stderr
    again, _ = recover(place, archive, *ways[2].opens)
    lab.assert_same_tree(before, tree_of(place, again))
    shutil.rmtree(again.path)
    for _, path, data in copies[:3]:  # who had copied them before can
        path.write_bytes(data)
    again, _ = recover(place, archive, *ways[3].opens)
    assert kinds(again) == ["code"], "the newest that is authentic counts"
    assert lab.run(FSCK, "-n", again.path, check=False).stdout.count("it still has an older file") == 3
    lab.run(FSCK, "-y", again.path, check=False)
    assert lab.run(FSCK, "-n", again.path).returncode == 0
    lab.assert_same_tree(before, tree_of(place, again))


def split_slot(archive):
    return next(slot["id"] for slot in listed(archive)["slots"] if slot["kind"] == "split")


def told(archive):
    """The lines of the key, of status and of drill."""
    lines = [line for verb in ("status", "drill")
             for line in lab.ecfs(verb, archive.path, check=False).stdout.splitlines() if re.match("key ", line)]
    assert len(lines) == 2, lines
    return lines


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_shares_without_a_slot_are_vouched_for_by_nobody(place, mounted):
    archive = Kept(place, "split").init()
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 100_000)
    lab.ecfs("wait", mount.path)
    assert lab.ecfs("status", archive.path, "--check", check=False).returncode == 0
    if not mounted:
        mount.umount()
    lab.ecfs("key", "remove", "-f", archive.path, split_slot(archive))
    done = lab.ecfs("wait", *([] if mounted else ["--unmounted"]), archive.path, check=False)
    assert done.returncode == 1 and "no key slot is left" in done.stderr and "ecfs key add" in done.stderr, done
    done = lab.ecfs("status", archive.path, "--check", check=False)
    assert done.returncode == 2 and "nothing comes back without the file" in done.stdout, done
    facts = archive.json("status")
    assert facts["key_sharing"]["slots"] == [] and "key_shares" not in facts
    assert facts["verdict"] == "at risk" and "no key slot is left" in facts["reason"], facts["reason"]
    done = lab.ecfs("drill", archive.path, check=False)
    assert done.returncode == 1 and "does not come back: no key slot is left" in done.stdout, done
    lab.ecfs("key", "add", archive.path, "--split")
    lab.ecfs("wait", *([] if mounted else ["--unmounted"]), archive.path)
    assert lab.ecfs("status", archive.path, "--check", check=False).returncode == 0
    lab.ecfs("key", "remove", "-f", archive.path, split_slot(archive))
    if mounted:
        mount.umount()
    shutil.rmtree(archive.path)
    _, refused = recover(place, archive, check=False)
    assert refused.returncode == 1 and "no slot is left" in refused.stderr and "--key FILE" in refused.stderr, refused
    assert "damaged" not in refused.stderr


@pytest.mark.slow
def test_what_is_needed_beside_the_endpoints_is_told(place):
    kept = Kept(place, "split")
    archive = kept.init()
    status, drill = told(archive)
    assert "any 3 of which bring it back and fewer read nothing;" in status and "comes back without any 2" in drill
    lab.ecfs("key", "add", archive.path, "--code", "--code-file", place.path / "code")
    status, drill = told(archive)
    assert "fewer read nothing without a code;" in status and "comes back without any 2" in drill
    lab.ecfs("key", "remove", archive.path, split_slot(archive))
    status, drill = told(archive)
    assert "any 1 of which brings it back with a code" in status and "comes back with a code without any" in drill
    assert archive.json("status")["key_sharing"]["needed"] == 1
    lab.ecfs("wait", "--unmounted", archive.path)
    drill = lab.ecfs("drill", archive.path, "--without", archive.endpoints[0].name).stdout
    assert "comes back with a code, which is not tried here, from any 1 of the 5 zones" in drill


@pytest.mark.slow
def test_a_passphrase_that_is_needed_with_the_shares_is_told(place):
    archive = Kept(place, "passphrase").init()
    status, drill = told(archive)
    assert "any 3 of which bring it back with the passphrase and fewer read nothing;" in status
    assert "comes back with the passphrase without any 2 of the 6 zones that have their shares" in drill


def test_check_names_the_recipient(place):
    kept = Kept(place, "recipient")
    archive = kept.init()
    recipient = listed(archive)["slots"][0]["recipient"]
    done = check(archive, *kept.opens)
    assert done.returncode == 0 and f"by the private half of {recipient} (slot" in done.stdout, done


def test_status_speaks_of_no_shares_where_there_are_none(place):
    archive = Kept(place, "code").init()
    for endpoint in archive.endpoints[1:]:
        endpoint.kill()
    told = lab.ecfs("status", archive.path, check=False).stdout
    assert "1 of 6 zones have the key file now" in told and "share" not in told, told


@pytest.mark.slow
def test_what_was_removed_or_is_at_too_few_endpoints_is_not_vouched_for(place):
    archive = Kept(place, "split").init()
    code = place.path / "written down"
    before = [(share_of(endpoint), share_of(endpoint).read_bytes()) for endpoint in archive.endpoints]
    lab.ecfs("key", "add", archive.path, "--code", "--code-file", code)
    assert check(archive, "--code-file", code).returncode == 0
    with_it = [(share_of(endpoint), share_of(endpoint).read_bytes()) for endpoint in archive.endpoints]
    for (path, _), (old, data) in zip(with_it[2:], before[2:]):
        path.unlink()
        old.write_bytes(data)
    few = check(archive, "--code-file", code)
    assert few.returncode == 1 and "2 of 6 zones have that slot" in few.stderr, few
    lab.run(FSCK, "-y", archive.path, check=False)
    assert check(archive, "--code-file", code).returncode == 0
    slot = next(slot["id"] for slot in listed(archive)["slots"] if slot["kind"] == "code")
    lab.ecfs("key", "remove", archive.path, slot)
    for path, data in with_it[:2]:
        path.write_bytes(data)
    gone = check(archive, "--code-file", code)
    assert gone.returncode == 1 and "was removed: 2 of 6 zones have that slot still" in gone.stderr, gone
    assert check(archive).returncode == 0


@pytest.mark.slow
def test_an_endpoint_that_is_away_gets_the_new_file_by_fsck(place):
    kept = Kept(place, "split")
    archive = kept.init()
    away = archive.endpoints[5]
    away.kill()
    done = lab.ecfs("key", "add", archive.path, "--code", "--code-file", place.path / "code")
    assert "endpoint fjord" in done.stderr and "fsck -y" in done.stderr
    old = [endpoint for endpoint in archive.endpoints[:4]]
    away.start()
    assert "fjord" in lab.run(FSCK, "-n", archive.path, check=False).stdout
    lab.until(lambda: lab.run(FSCK, "-y", archive.path, check=False).returncode in (0, 1), 60, "it is repaired")
    assert lab.run(FSCK, "-n", archive.path).returncode == 0
    assert KeyFile(share_of(away).read_bytes()).slots == KeyFile(share_of(old[0]).read_bytes()).slots
    for endpoint in archive.endpoints[:5]:
        endpoint.kill()
    refused = lab.ecfs("key", "add", archive.path, "--passphrase", "--passphrase-file", secret(place, "new", PASSPHRASE), check=False)
    assert refused.returncode == 1 and "too few endpoints" in refused.stderr


@pytest.mark.parametrize("way", ["split", "passphrase"])
@pytest.mark.parametrize("mounted", [False, True], ids=["alone", "mounted"])
@pytest.mark.slow
def test_a_slot_with_new_shares_is_not_safe_before_it_outlives_any_loss(place, way, mounted):
    """Three shares bring it back, and any two endpoints may vanish: five must have theirs."""
    archive = Kept(place, "code").init()
    kept = Kept(place, way, archive.endpoints)
    digest = lab.write_pattern(place.path / "file", 300_003)
    archive.put(place.path / "file", "/file")
    archive.await_stored()
    words = ["key", "add", archive.path, "--json", f"--{way}", *kept.opens]
    before = Before(place, [archive.path, *(endpoint.root for endpoint in archive.endpoints)])
    for n_away, status in ((1, 0), (2, 1)):
        mount = place.mount(archive) if mounted else None
        for endpoint in archive.endpoints[:n_away]:
            endpoint.kill()
        done = lab.ecfs(*words, check=False)
        told = json.loads(done.stdout)
        assert (done.returncode, told["safe"], len(told["behind"])) == (status, status == 0, n_away), done
        if mounted:
            mount.umount()
        shutil.rmtree(archive.path)
        for endpoint in archive.endpoints:
            endpoint.start()
        left = lab.Archive(archive.path, archive.endpoints[:-2])
        again, done = recover(place, left, *kept.opens, check=False)
        assert (done.returncode == 0) == (status == 0), done
        if status == 0:
            again.get("/file", place.path / "got")
            assert lab.digest(place.path / "got") == digest
            shutil.rmtree(again.path)
        else:
            assert "and there are 2" in done.stderr or "more endpoints may help" in done.stderr, done.stderr
        before.restore()


@pytest.mark.slow
def test_where_a_secret_cannot_be_shared_a_passphrase_is_taken_alone_only_when_told(place):
    endpoints = place.directories(["one", "two"])
    kept = Kept(place, "passphrase", endpoints, "copies:2")
    refused = kept.archive.init(*kept.make, check=False)
    assert refused.returncode == 2 and "--key passphrase --alone" in refused.stderr and not kept.archive.path.exists()
    kept = Kept(place, "alone", endpoints, "copies:2")
    archive = kept.init()
    refused = lab.ecfs("key", "add", archive.path, "--split", check=False)
    assert refused.returncode == 2 and "cannot be shared" in refused.stderr
    before = lose_machine(place, archive)
    endpoints[0].kill()
    again, _ = recover(place, lab.Archive(archive.path, endpoints[1:]), *kept.opens)
    lab.assert_same_tree(before, tree_of(place, again))


@pytest.mark.parametrize("how", ["file", "code"])
@pytest.mark.slow
def test_what_was_not_shared_can_be_shared_later(place, how):
    kept = Kept(place, how)
    archive = kept.init()
    lab.ecfs("key", "add", archive.path, "--split")
    assert kinds(archive) == (["split"] if how == "file" else ["code", "split"])
    lab.ecfs("status", archive.path)
    before = lose_machine(place, archive)
    again, _ = recover(place, lab.Archive(archive.path, archive.endpoints[2:]))
    lab.assert_same_tree(before, tree_of(place, again))
    assert kinds(again) == (["split"] if how == "file" else ["code", "split"])


@pytest.mark.slow
def test_no_code_is_left_in_memory_once_it_was_shown_or_read(place):
    """Nor in a buffer of stdio."""
    archive = Kept(place, "file").init()
    remains, code = place.path / "remains", place.path / "code"
    environment = os.environ | {"LD_PRELOAD": str(lab.BUILD / "tests/lab/lab-remains.so"), "ECFS_LAB_REMAINS": str(remains)}
    assert re.search("([A-Z2-7]{4}-){7}", lab.ecfs("key", "add", archive.path, "--code", env=environment).stdout)
    lab.ecfs("key", "add", archive.path, "--code", "--code-file", code, env=environment)
    lab.ecfs("key", "check", archive.path, "--code-file", code, env=environment)
    assert remains.read_text().split() == ["0"] * 3
    keeps = f"import ctypes; text = open({str(code)!r}, 'rb').read(); library = ctypes.CDLL(None); " \
            "library.strdup.restype = ctypes.c_void_p; library.strdup(text)"
    lab.run(sys.executable, "-c", keeps, env=environment)
    assert int(remains.read_text().split()[-1]) > 0, "it is found where it is"


def test_a_code_that_cannot_be_shown_is_no_success(place):
    archive = Kept(place, "file").init()
    full = ["sh", "-c", 'exec "$0" "$@" >/dev/full', lab.PROGRAM]
    done = lab.run(*full, "key", "add", archive.path, "--code", check=False)
    assert done.returncode == 1 and "nobody has it" in done.stderr, done
    done = lab.run(*full, "key", "rotate", archive.path, "--code", check=False)
    assert done.returncode == 1 and "nobody has it" in done.stderr, done
    open_archive = lab.Archive(place.path / "open", place.directories())
    open_archive.init("--key", "none")
    done = lab.run(*full, "key", "init", open_archive.path, "--code", check=False)
    assert done.returncode == 1 and "nothing has changed" in done.stderr, done
    assert "key" not in open_archive.json("status") and not (open_archive.path / "key").exists()


@pytest.mark.parametrize("how", ["file", "code"])
def test_the_program_at_endpoints_is_shown_by_its_digest(place, how):
    """Who has only a code, and copies of endpoints, can tell whether the program there is as it was left."""
    kept = Kept(place, how)
    said = kept.archive.init(*(["--key", "code"] if how == "code" else kept.make)).stdout
    programs = [endpoint.root / "salvage/ecfs-salvage" for endpoint in kept.archive.endpoints]
    (digest,) = {hashlib.sha256(path.read_bytes()).hexdigest() for path in programs}
    assert listed(kept.archive)["salvage_sha256"] == digest
    shown = lab.ecfs("key", "list", kept.archive.path).stdout
    assert digest in shown and "Compare it before you give a code" in shown
    if how == "code":
        assert digest in said and re.search(r"^  [A-Z2-7]{4}(-[A-Z2-7]{4}){7}$", said, re.M), said
        added = lab.ecfs("key", "add", kept.archive.path, "--code", "--code-file", place.path / "second").stdout
        assert digest in added


@pytest.mark.slow
def test_files_without_a_revision_open_and_get_one(place):
    """As they were written before there were other slots than split ones."""
    kept = Kept(place, "split")
    archive = kept.init()
    for path in [archive.path / "key-slots", *map(share_of, archive.endpoints)]:
        path.write_bytes(KeyFile(path.read_bytes()).as_first_version())
    assert check(archive).returncode == 0 and lab.run(FSCK, "-n", archive.path).returncode == 0
    code = place.path / "code"
    lab.ecfs("key", "add", archive.path, "--code", "--code-file", code)
    assert KeyFile(share_of(archive.endpoints[0]).read_bytes()).version == 2
    assert check(archive, "--code-file", code).returncode == 0
    before = lose_machine(place, archive)
    again, _ = recover(place, archive)
    lab.assert_same_tree(before, tree_of(place, again))
    assert kinds(again) == ["code", "split"]


def test_endpoints_come_and_go_where_nothing_is_shared(place):
    kept = Kept(place, "code")
    archive = kept.init()
    more = place.directories(["seventh"])[0]
    lab.ecfs("endpoint", "add", archive.path, more.endpoint())
    assert share_of(more).read_bytes() == share_of(archive.endpoints[0]).read_bytes()
    lab.ecfs("endpoint", "drain", archive.path, "amber")
    lab.ecfs("endpoint", "remove", archive.path, "amber")
    assert not list(archive["amber"].root.glob("keys/*"))
    (archive.path / "key-slots").unlink()
    done = lab.ecfs("put", archive.path, "/etc/hostname", "/", check=False)
    assert done.returncode != 0 and "key-slots is gone" in done.stderr


@pytest.mark.slow
def test_an_init_that_was_killed_is_made_again_with_the_passphrase_that_is_given_now(place):
    kept = Kept(place, "passphrase")
    archive = kept.init()
    (archive.path / "ecfs.conf").unlink()
    new = secret(place, "new", "another passphrase\n")
    archive.init("--key", "passphrase", "--passphrase-file", new)
    assert check(archive, "--passphrase-file", new).returncode == 0 and check(archive, *kept.opens).returncode == 1
    assert kinds(archive) == ["passphrase"]
    assert {len(list((endpoint.root / "keys").iterdir())) for endpoint in archive.endpoints} == {1}


@pytest.mark.slow
def test_keys_that_were_given_are_not_shared_where_a_passphrase_was_needed(place):
    kept = Kept(place, "passphrase")
    archive = kept.init()
    key = secret(place, "key", "")
    key.write_bytes((archive.path / "key").read_bytes())
    before = lose_machine(place, archive)
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root / "keys")
    again, told = recover(place, archive, "--key", key)
    assert "ecfs key add" in told.stderr
    lab.assert_same_tree(before, tree_of(place, again))
    lab.run(FSCK, "-y", again.path, check=False)
    assert not [path for endpoint in archive.endpoints for path in endpoint.root.glob("keys/*")]
    lab.ecfs("key", "add", again.path, "--passphrase", *kept.opens)
    assert check(again, *kept.opens).returncode == 0 and kinds(again) == ["passphrase"]


# Without ecfs


def salvage(archive, *words, check=True):
    roots = [endpoint.root for endpoint in archive.endpoints]
    return lab.run(sys.executable, lab.REPOSITORY / "tools/ecfs-salvage", *words, *roots, check=check)


@pytest.mark.parametrize("how", ["split", "passphrase", "alone", "code", "recipient"])
@pytest.mark.parametrize("aes", [[], ["--slow-aes"]], ids=["library", "slow"])
@pytest.mark.slow
def test_the_second_implementation_opens_it_too(place, how, aes):
    kept = Kept(place, how)
    archive = kept.init()
    source = place.path / "source"
    source.write_bytes(os.urandom(30_000))
    archive.put(source, "/")
    archive.await_stored()
    shutil.rmtree(archive.path)
    shutil.rmtree(archive.endpoints[0].root / "keys")
    file = KeyFile(share_of(archive.endpoints[1]).read_bytes())
    file.slots = [os.urandom(16) + struct.pack("<H", kind) + os.urandom(32) + bytes([30, 64, 16, 0])
                  + struct.pack("<I", 100) + os.urandom(100) for kind in (1, 2, 3, 4, 5)]
    share_of(archive.endpoints[1]).write_bytes(bytes(file))
    wrong = [kept.does_not, []] if kept.does_not else []
    for options in wrong:
        refused = salvage(archive, "--to", place.path / "none", *options, *aes, check=False)
        assert refused.returncode == 2 and "key" in refused.stderr and not (place.path / "none").exists(), refused.stderr
    salvage(archive, "--to", place.path / "restored", *kept.opens, *aes)
    assert (place.path / "restored/source").read_bytes() == source.read_bytes()
    if how in ("split", "passphrase"):
        few = lab.Archive(archive.path, archive.endpoints[:3])  # of which two have their shares
        refused = salvage(few, "--to", place.path / "none", *kept.opens, *aes, check=False)
        assert refused.returncode == 2 and "need more endpoints" in refused.stderr, refused.stderr


def test_x25519_of_the_standard():
    """RFC 7748, 5.2 and 6.1."""
    module = load()
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert module.x25519(scalar, point).hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert module.x25519(alice, bob).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
