"""Shares of an archive's key count as copies of its journal do: what too few zones have is lost with this machine."""
import shutil

import lab
import pytest
from forge import xxh3_64
from keyed import recover

FSCK = lab.BUILD / "tools/ecfs-fsck"
SHARE_AT = 8 + 2 + 16 + 16 + 2 + 255 * 32  # in its file: a number, and 32 bytes
MIB = 1 << 20


def share_of(endpoint):
    return next((endpoint.root / "keys").iterdir())


def number_of(endpoint):
    return share_of(endpoint).read_bytes()[SHARE_AT]


def forge(endpoint):
    """A share whose checksum fits, as only who runs the endpoint makes it."""
    data = bytearray(share_of(endpoint).read_bytes())[:-8]
    data[SHARE_AT + 1] ^= 1
    share_of(endpoint).write_bytes(bytes(data) + xxh3_64(data).to_bytes(8, "little"))
    return share_of(endpoint).read_bytes()


def lose(endpoints):
    for endpoint in endpoints:
        shutil.rmtree(endpoint.root / "keys")


def has_shares(endpoints):
    return all((endpoint.root / "keys").exists() and list((endpoint.root / "keys").iterdir()) for endpoint in endpoints)


def sharing(archive):
    return archive.json("status")["key_sharing"]


def problems(archive):
    """Of the key."""
    status = archive.json("status")
    return [problem for problem in status["problems"] if "archive's key" in problem["reason"]], status


def check(archive):
    return lab.ecfs("status", archive.path, "--check", check=False).returncode


def write_file(mount):
    path = mount.path / "file"
    lab.write_pattern(path, 3 * MIB + 5)
    return lab.digest(path)


def make(place, names=lab.NAMES, code="rs:4+2", zones=None):
    archive = lab.Archive(place.path / "archive", place.directories(list(names)), code)
    words = [word for endpoint in archive.endpoints for word in
             ("--endpoint", endpoint.endpoint() + (f",zone={zones[endpoint.name]}" if endpoint.name in (zones or {}) else ""))]
    lab.ecfs("init", archive.path, "--code", code, "--key", "split", *words)
    return archive


@pytest.fixture
def archive(place):
    return make(place)


def stored(place, archive):
    """Content, and no mount."""
    mount = place.mount(archive)
    digest = write_file(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    return digest


@pytest.mark.slow
def test_status_tells_how_many_zones_have_theirs(place, archive):
    stored(place, archive)
    facts = sharing(archive)
    assert (facts["zones"], facts["needed"], facts["tolerance"], facts["here"], facts["left"]) == (6, 3, 2, 6, 4)
    assert (facts["merged"], facts["lacking"]) == ([], [])
    text = lab.ecfs("status", archive.path).stdout
    assert "shared by 6 zones, any 3 of which bring it back and fewer read nothing; here now: 6" in text
    shares = [endpoint["key_share"] for endpoint in archive.json("status")["endpoints"]]
    assert shares == [number_of(endpoint) for endpoint in archive.endpoints]
    lose(archive.endpoints[:1])
    assert problems(archive)[0] == [] and check(archive) == 0
    assert "amber: its share of the archive's key is missing" in lab.ecfs("status", archive.path).stdout
    lab.ecfs("wait", "--unmounted", archive.path)


@pytest.mark.slow
def test_too_few_are_a_warning_and_wait_fails_until_they_are_stored_again(place, archive):
    stored(place, archive)
    lose(archive.endpoints[:2])
    (problem,), status = problems(archive)
    assert (problem["verdict"], problem["check"], status["check"]) == ("degraded", 1, 1)
    assert "amber, birch" in problem["reason"] and problem["action"] == f"ecfs fsck -y {archive.path}"
    assert check(archive) == 1
    failed = lab.ecfs("wait", "--unmounted", archive.path, check=False)
    assert failed.returncode == 1 and "ecfs fsck -y" in failed.stderr and "endpoint birch: its share" in failed.stderr
    lose(archive.endpoints[2:4])
    (problem,), _ = problems(archive)
    assert (problem["verdict"], problem["check"]) == ("at risk", 2) and check(archive) == 2
    assert lab.run(FSCK, "-y", archive.path, check=False).returncode == 1
    lab.ecfs("wait", "--unmounted", archive.path)
    assert problems(archive)[0] == [] and check(archive) == 0


@pytest.mark.slow
def test_a_mount_stores_lost_shares_again_and_wait_means_that_the_key_survives(place, archive):
    lose(archive.endpoints[:4])
    data = bytearray(share_of(archive.endpoints[4]).read_bytes())
    share_of(archive.endpoints[4]).write_bytes(data[:1000])  # torn
    mount = place.mount(archive)
    digest = write_file(mount)
    lab.ecfs("wait", mount.path)
    lab.until(lambda: sharing(archive)["here"] == 6, 60, "all shares are there again")
    assert share_of(archive.endpoints[4]).read_bytes() == data
    lose(archive.endpoints[1:5])  # behind its back
    lab.until(lambda: sharing(archive)["here"] < 6, 60, "it is noticed")
    lab.until(lambda: sharing(archive)["here"] == 6, 100, "they are there again")
    lab.ecfs("wait", mount.path)
    mount.umount()
    shutil.rmtree(archive.path)
    recovered = lab.Archive(place.path / "recovered", archive.endpoints[2:])
    words = [word for endpoint in recovered.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", recovered.path, "--force", *words)
    recovered.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == digest


@pytest.mark.slow
def test_an_endpoint_that_comes_back_without_its_share_gets_it_again(place):
    server = place.sshd("fjord")
    archive = lab.Archive(place.path / "archive", [*place.directories(lab.NAMES[:5]), server])
    archive.init("--key", "split")
    mount = place.mount(archive)
    lab.until(lambda: sharing(archive)["here"] == 6, 60, "all have been asked")
    server.kill()
    lab.until(lambda: archive.json("status")["endpoints"][5]["state"] == "down", 60, "it is down")
    shutil.rmtree(server.root / "keys")
    server.start()
    lab.until(lambda: has_shares([server]), 120, "its share is there again")
    mount.umount()


@pytest.mark.slow
def test_forged_shares_are_told_and_left_as_they_are(place, archive):
    stored(place, archive)
    forged = [forge(endpoint) for endpoint in archive.endpoints[:2]]
    mount = place.mount(archive)
    write_file(mount)
    failed = lab.ecfs("wait", mount.path, check=False)
    assert failed.returncode == 1 and "endpoint amber: what it has as its share" in failed.stderr, failed.stderr
    (problem,), _ = problems(archive)
    assert problem["check"] == 1
    assert [share_of(endpoint).read_bytes() for endpoint in archive.endpoints[:2]] == forged
    assert lab.run(FSCK, "-y", archive.path, check=False).returncode == 1
    lab.ecfs("wait", mount.path)
    mount.umount()
    assert "endpoint birch: what it has as its share of the archive's key is not what was stored there" in mount.text()


def test_an_endpoint_that_is_down_has_what_it_had(place, archive):
    stored(place, archive)
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    lab.ecfs("wait", "--unmounted", archive.path)
    (problem,), _ = problems(archive)  # now it has to be with this machine
    assert problem["check"] == 1 and "ecfs status" in problem["action"]
    archive.endpoints[0].start()
    archive.endpoints[1].start()


@pytest.mark.slow
def test_what_a_mount_saw_lost_counts_as_lost_when_it_is_down(place, archive):
    stored(place, archive)
    for endpoint in archive.endpoints[:2]:
        forge(endpoint)
    mount = place.mount(archive)
    lab.until(lambda: sharing(archive)["here"] == 4, 60, "it is seen")
    mount.umount()
    for endpoint in archive.endpoints[:2]:
        endpoint.kill()
    failed = lab.ecfs("wait", "--unmounted", archive.path, check=False)
    assert failed.returncode == 1 and "archive's key" in failed.stderr, failed.stderr


@pytest.mark.slow
def test_zones_that_became_one_are_told_and_give_what_they_have(place):
    archive = make(place, [*lab.NAMES, "grove"])
    for name in ("amber", "birch"):
        archive.configure(f"endpoint {name}", zone="hill")
    (problem,), status = problems(archive)
    assert (problem["verdict"], problem["check"]) == ("exposed", 1) and "hill" in problem["reason"]
    assert (status["key_sharing"]["merged"], status["key_sharing"]["readers"]) == (["hill"], 2)
    assert status["key_sharing"]["left"] == 4  # of 7, without hill and another
    more = place.directories(["haven"])[0]
    lab.ecfs("endpoint", "add", archive.path, f"{more.endpoint()},zone=hill")
    assert number_of(more) == number_of(archive["amber"])
    mount = place.mount(archive)
    other = place.directories(["inlet"])[0]
    lab.ecfs("endpoint", "add", archive.path, f"{other.endpoint()},zone=hill")
    assert number_of(other) == number_of(archive["amber"])
    lose([archive["birch"]])
    lab.until(lambda: sharing(archive)["merged"] == [], 60, "it is seen")
    lab.until(lambda: has_shares([archive["birch"]]), 60, "it has one again")
    assert number_of(archive["birch"]) == number_of(archive["amber"])  # and hill no more than one
    lab.until(lambda: problems(archive)[0] == [], 60, "the mount has seen it")
    mount.umount()


def test_a_zone_that_became_two_counts_once(place):
    archive = make(place, [*lab.NAMES, "grove"], "rs:3+2", {"amber": "hill", "birch": "hill"})
    assert number_of(archive["amber"]) == number_of(archive["birch"])
    archive.configure("endpoint amber", zone="north")
    archive.configure("endpoint birch", zone="south")
    facts = sharing(archive)
    assert (facts["zones"], facts["here"], facts["left"], facts["merged"]) == (7, 6, 4, [])
    more = place.directories(["haven"])[0]
    lab.ecfs("endpoint", "add", archive.path, f"{more.endpoint()},zone=south")
    assert number_of(more) == number_of(archive["birch"])


@pytest.mark.slow
def test_shares_that_were_copied_are_named(place, archive):
    stored(place, archive)
    shutil.rmtree(archive.path)
    copied = share_of(archive["cedar"])
    for name in "amber", "birch":
        share_of(archive[name]).unlink()
        shutil.copy2(copied, archive[name].root / "keys")
    again, _ = recover(place, archive)
    assert (sharing(again)["here"], sharing(again)["twins"]) == (4, ["amber", "birch", "cedar"])
    found, _ = problems(again)
    assert [problem["verdict"] for problem in found] == ["degraded"]
    assert "have one share between them" in found[0]["advice"] and found[0]["action"].startswith("ecfs endpoint drain")
    mount = place.mount(again)
    failed = lab.ecfs("wait", mount.path, check=False)
    assert failed.returncode != 0 and "zone amber: another zone has the same share" in failed.stderr, failed
    mount.umount()


def test_a_share_that_cannot_be_told_keeps_new_endpoints_away(place, archive):
    archive.configure("endpoint amber", zone="hill")
    archive.endpoints[0].kill()
    more = place.directories(["haven"])[0]
    refused = lab.ecfs("endpoint", "add", archive.path, f"{more.endpoint()},zone=hill", check=False)
    assert refused.returncode != 0 and "bring it back first" in refused.stderr, refused.stderr
    assert not (more.root / ".ecfs").exists() and not (more.root / "keys").exists()
    archive.endpoints[0].start()


@pytest.mark.slow
def test_recover_holds_a_code_against_the_shares_before_it_claims(place, archive):
    stored(place, archive)
    key = place.path / "copy of the key"
    shutil.copy2(archive.path / "key", key)
    shutil.rmtree(archive.path)
    before = {path: path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)}
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    path = place.path / "recovered"
    for options in ((), ("--key", key)):
        refused = lab.ecfs("recover", path, "--force", "--code", "rs:3+3", *options, *words, check=False)
        assert refused.returncode != 0 and "would bring it back" in refused.stderr, refused.stderr
        assert not path.exists()
    assert {path: path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)} == before
    lab.ecfs("recover", path, "--force", "--code", "rs:3+2", *words)
    assert lab.Archive(path, archive.endpoints).json("status")["code"] == "rs:3+2"


@pytest.mark.slow
def test_a_drill_joins_the_key(place, archive):
    stored(place, archive)
    report = archive.json("drill", "--without", "amber,birch")
    assert report["key"]["comes_back"] and (report["key"]["zones"], report["key"]["needed"]) == (4, 3)
    assert "without any 2 of the 6 zones" in lab.ecfs("drill", archive.path).stdout
    lose(archive.endpoints[2:4])
    done = lab.ecfs("drill", archive.path, "--without", "amber,birch", check=False)
    assert done.returncode == 1 and "does not come back: the key needs the shares of 3 zones" in done.stdout
    done = lab.ecfs("drill", archive.path, check=False)
    assert done.returncode == 1 and "does not come back" in done.stdout
    lab.ecfs("drill", archive.path, "--without", "cedar,delta")


@pytest.mark.parametrize("lost", [["key"], ["key", "key-slots"], ["key-slots"]])
@pytest.mark.slow
def test_destroy_needs_no_key(place, archive, lost):
    stored(place, archive)
    for name in lost:
        (archive.path / name).unlink()
    lab.ecfs("destroy", archive.path, "--yes")
    assert not archive.path.exists()
    assert [path for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)] == []


@pytest.mark.slow
def test_destroy_without_the_key_leaves_a_newer_copy_alone(place, archive):
    digest = stored(place, archive)
    (archive.path / "key").unlink()
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    newer = lab.Archive(place.path / "newer", archive.endpoints)
    lab.ecfs("recover", newer.path, "--force", *words)
    refused = lab.ecfs("destroy", archive.path, "--yes", check=False)
    assert refused.returncode != 0 and "old copy" in refused.stderr, refused.stderr
    newer.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == digest
