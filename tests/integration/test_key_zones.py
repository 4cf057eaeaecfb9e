"""Zones of several endpoints share a key: as many zones as files survive the loss of may vanish, and read nothing."""
import hashlib
import itertools
import os
import shutil
import sys

import lab
import pytest
from forge import xxh3_64
from keyed import keys_of, lose_machine, recover, share_of, tree_of, write_tree
from test_key import seen_at
from test_key_counts import SHARE_AT, check, forge, has_shares, lose, problems, sharing

FSCK = lab.BUILD / "tools/ecfs-fsck"
SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"
NAMES = ["a1", "a2", "b1", "b2", "c1", "c2"]


def words_for(endpoints):
    return [word for endpoint in endpoints for word in ("--endpoint", f"{endpoint.endpoint()},zone={endpoint.name[0]}")]


def make(place, *options, names=NAMES, code="rs:4+2"):
    """The first letter of an endpoint's name is its zone."""
    archive = lab.Archive(place.path / "archive", place.directories(list(names)), code)
    archive.said = lab.ecfs("init", archive.path, "--code", code, *words_for(archive.endpoints), *options, lab.AS_USERS).stdout
    return archive


@pytest.fixture
def archive(place):
    return make(place)


def recovered(place, endpoints, *options, **how):
    path = place.path / f"recovered-{next(place.numbers)}"
    done = lab.run(lab.PROGRAM, "recover", path, "--force", *words_for(endpoints), *options, **how)
    return lab.Archive(path, endpoints), done


def put_file(place, archive, name, *options, check=True):
    lab.write_pattern(place.path / "content", 300_003, 7)
    return lab.ecfs("put", archive.path, place.path / "content", f"/{name}", *options, check=check)


@pytest.mark.slow
def test_init_says_how_many_zones_bring_it_back(place, archive):
    assert "in 3 zones, of which any 1 may vanish" in archive.said, archive.said
    assert "Any 2 of the 3 zones bring it back" in archive.said, archive.said
    assert keys_of(archive)["threshold"] == 2
    assert share_of(archive["a1"]).read_bytes() == share_of(archive["a2"]).read_bytes()
    facts = sharing(archive)
    assert (facts["needed"], facts["tolerance"], facts["endpoint_tolerance"], facts["left"], facts["endpoints_left"]) == (
        2, 1, 2, 2, 2)
    assert problems(archive)[0] == [] and check(archive) == 0
    put_file(place, archive, "file")
    lab.ecfs("wait", "--unmounted", archive.path)
    assert "without any 1 of the 3 zones" in lab.ecfs("drill", archive.path).stdout


@pytest.mark.slow
def test_with_a_zone_and_the_machine_lost_all_comes_back(place, archive):
    before = lose_machine(place, archive)
    at_endpoints = {endpoint: place.path / f"kept-{endpoint.name}" for endpoint in archive.endpoints}
    for endpoint, copy in at_endpoints.items():
        shutil.copytree(endpoint.root, copy)
    for zone in "abc":
        again, _ = recovered(place, [endpoint for endpoint in archive.endpoints if endpoint.name[0] != zone])
        assert keys_of(again)["threshold"] == 2
        lab.assert_same_tree(before, tree_of(place, again))
        shutil.rmtree(again.path)
        for endpoint, copy in at_endpoints.items():
            shutil.rmtree(endpoint.root)
            shutil.copytree(copy, endpoint.root)


@pytest.mark.slow
def test_with_any_two_endpoints_lost_all_comes_back(place, archive):
    """As files do, wherever these are."""
    lose_machine(place, archive)
    for two in itertools.combinations(NAMES, 2):
        left = [endpoint for endpoint in archive.endpoints if endpoint.name not in two]
        again, done = recovered(place, left, "--dry-run", check=False)
        assert "too few of the endpoints" not in done.stderr and "0 files" not in done.stdout, (two, done)
        assert not again.path.exists()


@pytest.mark.slow
def test_one_zone_opens_nothing(place, archive):
    lose_machine(place, archive)
    assert seen_at(archive.endpoints) == set()
    out = place.path / "salvaged"
    for zone in "abc":
        own = [endpoint for endpoint in archive.endpoints if endpoint.name[0] == zone]
        again, refused = recovered(place, own, check=False)
        assert refused.returncode == 1 and "the shares of 2 zones, and there are 1" in refused.stderr, refused.stderr
        assert not again.path.exists()
        lab.run(sys.executable, SALVAGE, "--to", out, *[endpoint.root for endpoint in own], check=False)
        files = lab.files_below(out)
        assert not [path for path in files if b"planted" in bytes(path) or b"planted" in path.read_bytes()]


def forge_list(place, archive):
    """What a zone has that would share another key with zones of its own, under the archive's UUID."""
    other = lab.Archive(place.path / "other", place.directories(["d1", "d2", "e1", "e2", "f1", "f2"]))
    lab.ecfs("init", other.path, "--code", "rs:4+2", *words_for(other.endpoints), lab.AS_USERS)
    data = bytearray(share_of(other["d1"]).read_bytes())
    data[10:26] = share_of(archive["a1"]).read_bytes()[10:26]
    number = data[SHARE_AT]
    digest = hashlib.sha256(data[10:42] + data[SHARE_AT:SHARE_AT + 33]).digest()
    data[44 + 32 * (number - 1):44 + 32 * number] = digest
    forged = bytes(data[:-8]) + xxh3_64(data[:-8]).to_bytes(8, "little")
    for endpoint in archive.endpoints[:2]:
        share_of(endpoint).write_bytes(forged)
        (endpoint.root / "keys" / share_of(other["d1"]).name).write_bytes(forged)


def forge_shares(_, archive):
    for endpoint in archive.endpoints[:2]:
        forge(endpoint)


@pytest.mark.parametrize("lie", [forge_list, forge_shares])
@pytest.mark.slow
def test_a_zone_that_lies_does_no_harm(place, archive, lie):
    """Both of its endpoints, alike."""
    before = lose_machine(place, archive)
    lie(place, archive)
    again, done = recovered(place, archive.endpoints)
    assert "a1" in done.stderr and "a2" in done.stderr, done.stderr
    lab.assert_same_tree(before, tree_of(place, again))
    assert lab.run(FSCK, "-n", again.path, check=False).stdout.count("its share of the archive's key") == 2
    lab.run(FSCK, "-y", again.path, check=False)
    assert lab.run(FSCK, "-n", again.path).returncode == 0


@pytest.mark.slow
def test_a_share_that_one_endpoint_has_left_is_lost_with_it(place, archive):
    """So that two endpoints in two zones take two shares of three."""
    put_file(place, archive, "file")
    lab.ecfs("wait", "--unmounted", archive.path)
    lose([archive["a2"], archive["b2"]])
    failed = lab.ecfs("wait", "--unmounted", archive.path, check=False)
    assert failed.returncode == 1 and "with this machine and 2 endpoints" in failed.stderr, failed.stderr
    (problem,), _ = problems(archive)
    assert problem["verdict"] == "degraded" and "and 2 more endpoints are lost" in problem["meaning"]
    drill = lab.ecfs("drill", archive.path, check=False)
    assert drill.returncode == 1 and "without 2 endpoints of them too few are left" in drill.stdout, drill.stdout
    lab.run(FSCK, "-y", archive.path, check=False)
    assert has_shares(archive.endpoints)
    lab.ecfs("wait", "--unmounted", archive.path)
    assert problems(archive)[0] == []


@pytest.mark.slow
def test_codes_that_survive_more_are_refused_and_this_one_never_is(place, archive):
    put_file(place, archive, "file", "--code", "rs:5+1")
    put_file(place, archive, "same", "--code", "rs:3+2")
    for code in ("rs:3+3", "rs:2+4", "copies:4"):
        refused = put_file(place, archive, "more", "--code", code, check=False)
        assert refused.returncode != 0 and "choose one that survives fewer losses" in refused.stderr, refused.stderr
    mount = place.mount(archive)
    os.setxattr(mount.path, "user.ecfs.code", b"rs:4+2")
    with pytest.raises(OSError):
        os.setxattr(mount.path, "user.ecfs.code", b"rs:3+3")
    lab.ecfs("wait", mount.path)
    mount.umount()
    assert problems(archive)[0] == [], "a code that was refused does not count"


def test_a_code_that_is_refused_does_not_count_as_one_in_use(place, archive):
    """Else the key would have to survive what none of its files does."""
    put_file(place, archive, "file")
    mount = place.mount(archive)
    before = sharing(archive)
    for code in (b"rs:3+3", b"rs:2+4"):
        with pytest.raises(OSError):
            os.setxattr(mount.path, "user.ecfs.code", code)
    assert sharing(archive) == before
    lab.ecfs("wait", mount.path)
    mount.umount()


@pytest.mark.slow
def test_it_is_recovered_by_stripes_alone_and_goes_on(place, archive):
    """What the catalog had noted of the codes that are allowed is gone then."""
    lose_machine(place, archive)
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root / "journal", ignore_errors=True)
        shutil.rmtree(endpoint.root / "snapshots", ignore_errors=True)
    again, _ = recovered(place, archive.endpoints)
    again.configure("archive", code="rs:4+2")
    put_file(place, again, "file")
    lab.ecfs("wait", "--unmounted", again.path)
    refused = put_file(place, again, "more", "--code", "rs:2+4", check=False)
    assert refused.returncode != 0 and "fewer losses" in refused.stderr, refused.stderr
    assert problems(again)[0] == []


@pytest.mark.slow
def test_with_more_zones_another_key_is_advised_and_needs_more_of_them(place, archive):
    """Any two of six zones may vanish, and two of the three that there were could read."""
    put_file(place, archive, "file")
    more = place.directories(["d1", "e1", "f1"])
    for endpoint in more:
        lab.ecfs("endpoint", "add", archive.path, f"{endpoint.endpoint()},zone={endpoint.name[0]}")
    (problem,), status = problems(archive)
    assert (problem["verdict"], problem["action"]) == ("exposed", f"ecfs key rotate {archive.path}"), problem
    assert (status["key_sharing"]["needed"], status["key_sharing"]["would_need"]) == (2, 3)
    put_file(place, archive, "goes on")
    lab.ecfs("wait", "--unmounted", archive.path)
    lab.ecfs("key", "rotate", archive.path)
    assert keys_of(archive)["threshold"] == 3
    assert not [problem for problem in problems(archive)[0] if "bring the archive's key back" in problem["reason"]]
    put_file(place, archive, "still")
    lab.ecfs("wait", "--unmounted", archive.path)
    shutil.rmtree(archive.path)
    left = [endpoint for endpoint in [*archive.endpoints, *more] if endpoint.name[0] not in "ae"]
    again, _ = recovered(place, left)
    again.get("/still", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(place.path / "content")


@pytest.mark.slow
def test_the_key_can_be_shared_rotated_and_given_later_too(place):
    archive = make(place, "--key", "file")
    lab.ecfs("key", "add", archive.path, "--split")
    assert keys_of(archive)["threshold"] == 2
    lab.ecfs("key", "rotate", archive.path)
    assert keys_of(archive)["threshold"] == 2
    assert put_file(place, archive, "more", "--code", "rs:3+3", check=False).returncode != 0
    put_file(place, archive, "file")
    lab.ecfs("wait", "--unmounted", archive.path)
    shutil.rmtree(archive.path)
    again, _ = recovered(place, archive.endpoints[2:])
    again.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(place.path / "content")


@pytest.mark.slow
def test_an_archive_without_a_key_gets_one_by_its_zones(place):
    archive = make(place, "--key", "none")
    put_file(place, archive, "file")
    lab.ecfs("key", "init", archive.path)
    assert keys_of(archive)["threshold"] == 2
    put_file(place, archive, "other")
    lab.ecfs("wait", "--unmounted", archive.path)
    shutil.rmtree(archive.path)
    again, _ = recovered(place, archive.endpoints[:4])
    again.get("/other", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(place.path / "content")


@pytest.mark.slow
def test_endpoints_come_and_go_within_zones(place):
    archive = make(place, names=[*NAMES, "a3"])
    put_file(place, archive, "file")
    for name in ("a3",):
        lab.ecfs("endpoint", "drain", archive.path, name)
        lab.ecfs("endpoint", "remove", archive.path, name)
    archive.configure("archive", allow_double="yes")
    for name in ("a2", "a1"):
        lab.ecfs("endpoint", "drain", archive.path, name)
        removed = lab.ecfs("endpoint", "remove", archive.path, name, check=False)
    assert removed.returncode != 0 and "key is shared" in removed.stderr, "with it a zone would go"
    new = place.directories(["a4"])[0]
    lab.ecfs("endpoint", "replace", archive.path, "a1", f"{new.endpoint()},zone=a")
    assert share_of(new).exists()
    lab.ecfs("wait", "--unmounted", archive.path)
    assert problems(archive)[0] == []


@pytest.mark.slow
def test_few_endpoints_with_two_stripes_each_share_it(place):
    archive = make(place, "--set", "allow_double=yes", names=["a1", "b1", "c1"])
    assert "Any 2 of the 3 endpoints bring it back" in archive.said, archive.said
    before = lose_machine(place, archive)
    again, _ = recovered(place, archive.endpoints[1:])
    lab.assert_same_tree(before, tree_of(place, again))


@pytest.mark.slow
def test_recover_takes_the_code_that_zones_share_the_key_for(place):
    """With two stripes in each of three zones two zones bring the key back: fewer than stripes that may be lost."""
    archive = make(place, names=["a1", "a2", "b1", "b2", "c1", "c2"], code="rs:4+2")
    before = lose_machine(place, archive)
    again, refused = recovered(place, archive.endpoints, "--code", "rs:3+3", check=False)
    assert refused.returncode != 0 and "would bring it back" in refused.stderr, refused.stderr
    assert not again.path.exists()
    again, _ = recovered(place, archive.endpoints, "--code", "rs:4+2")
    assert again.json("status")["code"] == "rs:4+2"
    lab.assert_same_tree(before, tree_of(place, again))


def test_a_code_word_comes_back_where_zones_are_fewer_than_stripes_that_may_be_lost(place):
    """Of two zones one may vanish, although a file survives the loss of three stripes."""
    archive = make(place, "--key", "code", "--code-file", place.path / "code", names=["a1", "a2", "a3", "b1", "b2", "b3"],
                   code="rs:3+3")
    put_file(place, archive, "file")
    lab.ecfs("wait", "--unmounted", archive.path)
    assert problems(archive)[0] == []
    shutil.rmtree(archive.path)
    again, _ = recovered(place, archive.endpoints[3:], "--code-file", place.path / "code")
    again.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(place.path / "content")


def test_where_no_zone_may_vanish_it_cannot_be_shared(place):
    for names in (["a1", "a2", "a3", "b1", "b2", "b3"], ["a1", "a2", "a3", "a4", "a5", "a6"]):
        endpoints = place.directories(names)
        refused = lab.ecfs("init", place.path / "archive", "--code", "rs:4+2", *words_for(endpoints), lab.AS_USERS, check=False)
        assert refused.returncode == 2 and "do not survive the loss of one" in refused.stderr, refused.stderr
