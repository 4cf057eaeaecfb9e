"""ecfs recover from fewer endpoints than the archive has, and no journal tells so: the others come back later."""
import os
import re
import shlex
import shutil
import subprocess

import lab
import pytest

from test_recover import facts, lose_journal, recover

NAMES = lab.NAMES
CODE, TOLERANCE = "rs:4+2", 2


def fill(place, archive, n_files=3):
    """Files of several stripes each; digests by name."""
    digests = {}
    for number in range(n_files):
        source = place.path / f"source-{number}"
        digests[f"/file{number}"] = lab.write_pattern(source, 300_000 + number, number)
        archive.put_in_full(source, f"/file{number}")
    return digests


def lose_all_but_stripes(place, endpoints, code=CODE, *words, n_files=3):
    """An archive that was lost in its first seconds: nothing but stripes and markers is at its endpoints."""
    archive = place.archive(endpoints, code, *words)
    digests = fill(place, archive, n_files)
    for endpoint in endpoints:
        lose_journal(endpoint)
    shutil.rmtree(archive.path)
    return digests


def add(archive, endpoint, **how):
    return lab.ecfs("endpoint", "add", archive.path, endpoint.endpoint(), **how)


def fsck(archive, *options):
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, *options, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done


def marker(endpoint):
    return (endpoint.root / "ecfs-endpoint").read_text()


def uuid_of(endpoint):
    return re.search(r"^endpoint=(.*)$", marker(endpoint), flags=re.M)[1]


def assert_reads(place, archive, digests):
    for name, digest in digests.items():
        target = place.path / f"fetched-{next(place.numbers)}"
        archive.get(name, target)
        assert lab.digest(target) == digest


def doubling(archive):
    return re.search(r"^allow_double = (\w+)$", (archive.path / "ecfs.conf").read_text(), flags=re.M)[1]


@pytest.mark.parametrize("repaired", [False, True], ids=["at once", "after a repair"])
@pytest.mark.slow
def test_an_endpoint_that_was_not_named_comes_back(place, repaired):
    endpoints = place.directories()
    digests = lose_all_but_stripes(place, endpoints)
    missing = endpoints[-1]
    uuid = uuid_of(missing)
    before = {path: lab.digest(path) for path in lab.stripe_files(missing)}
    again, done = recover(place, endpoints[:-1])
    assert "from 5 of 6 endpoints" in done.stdout
    assert "the archive has 6 endpoints by their markers, and 1 of them is not given" in done.stderr
    assert "stripes of 3 objects are at none of the endpoints that are given" in done.stderr
    assert "allow_double = temporary is set" in done.stderr
    assert doubling(again) == "temporary"
    assert again.json("status")["verdict"] == "degraded"
    if repaired:
        fsck(again, "-y")
        status = again.json("status")
        assert status["objects"]["degraded"] == 0 and status["objects"]["guarantee"] < TOLERANCE
        assert status["objects"]["doubled"] == 3 and status["objects"]["endpoints_lacking"] == 1
        assert status["verdict"] == "degraded" and "endpoint add" in status["action"]
        assert_reads(place, again, digests)

    add(again, missing)
    assert uuid_of(missing) == uuid
    assert doubling(again) == "no"
    assert {path: lab.digest(path) for path in before} == before  # they may be needed
    fsck(again, "-y")
    status = again.json("status")
    assert status["verdict"] == "healthy" and status["objects"]["guarantee"] == TOLERANCE
    assert "epoch=2\n" in marker(missing)
    again.endpoints = endpoints
    for endpoint in endpoints[:TOLERANCE]:
        endpoint.kill()
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_a_mount_takes_it_in_as_well(place):
    """It may have rebuilt its stripes elsewhere by then."""
    endpoints = place.directories()
    digests = lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    mount = place.mount(again)
    add(again, endpoints[-1])
    again.endpoints = endpoints
    for name, digest in digests.items():
        assert lab.digest(mount.path / name[1:]) == digest
    lab.write_pattern(mount.path / "later", 200_000, 7)
    lab.until(lambda: again.json("status")["objects"]["missing_stripes"] == 0, 120, "it is completed")
    fsck(again, "-y")
    lab.until(lambda: again.json("status")["verdict"] == "healthy", 120, "the journal tells of what was moved")
    assert again.json("status")["objects"]["guarantee"] == TOLERANCE
    mount.umount()
    _, told = facts(place, endpoints)  # and all of them are known from now on
    assert told["endpoints_known"] == told["endpoints_given"] == 6 and told["lost"] == 0


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.slow
def test_with_a_key_it_must_be_authentic_and_keeps_its_share(place, number):
    endpoints = place.directories()
    archive = place.archive(endpoints, CODE, "--key", "split", lab.AS_USERS)
    digests = fill(place, archive)
    for endpoint in endpoints:
        lose_journal(endpoint)
    shutil.rmtree(archive.path)
    missing, others = endpoints[number], endpoints[:number] + endpoints[number + 1:]
    share = {path: path.read_bytes() for path in (missing.root / "keys").iterdir()}
    again, _ = recover(place, others)
    genuine = marker(missing)
    (missing.root / "ecfs-endpoint").write_text(genuine.replace("sequence=", "sequence=1"))
    failed = add(again, missing, check=False)
    assert failed.returncode == 1 and "its marker is damaged or forged" in failed.stderr
    (missing.root / "ecfs-endpoint").write_text(re.sub(r"^(key|mac)=.*\n", "", genuine, flags=re.M))
    failed = add(again, missing, check=False)
    assert failed.returncode == 1 and "not authenticated by the archive's key" in failed.stderr
    assert missing.name not in (again.path / "ecfs.conf").read_text()
    (missing.root / "ecfs-endpoint").write_text(genuine)
    add(again, missing)
    assert {path: path.read_bytes() for path in (missing.root / "keys").iterdir()} == share
    stripes = lab.stripe_files(missing)
    done = fsck(again, "-y")
    assert lab.stripe_files(missing) == stripes, done.stdout
    assert "orphan" not in fsck(again, "-n", "--deep").stdout
    status = again.json("status")
    assert status["verdict"] == "healthy" and status["objects"]["guarantee"] == TOLERANCE
    assert_reads(place, again, digests)


@lab.unkeyed
@pytest.mark.parametrize("change, told", [
    (lambda text: text.replace("epoch=1\n", "epoch=7\n"), "in use by another copy"),
    (lambda text: text + "claim_epoch=3\nclaim_session=11111111-2222-4333-8444-555555555555\nclaim_count=4\n"
     "claim_host=elsewhere\n", "a recovery of this archive on elsewhere has claimed it"),
], ids=["newer", "claimed"])
@pytest.mark.slow
def test_what_another_copy_uses_is_refused(place, change, told):
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    missing = endpoints[-1]
    changed = change(marker(missing))
    assert changed != marker(missing)
    (missing.root / "ecfs-endpoint").write_text(changed)
    before = lab.files_below(missing.root)
    failed = add(again, missing, check=False)
    assert failed.returncode == 1 and told in failed.stderr and "'ecfs recover'" in failed.stderr
    assert f"endpoint {missing.name}: " in failed.stderr
    assert marker(missing) == changed and lab.files_below(missing.root) == before
    assert missing.name not in (again.path / "ecfs.conf").read_text()


@lab.unkeyed  # one endpoint alone does not open it
@pytest.mark.slow
def test_what_another_recovery_has_taken_is_refused(place):
    """Of the same epoch, and of another session."""
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    recover(place, endpoints[-1:])
    assert "epoch=2\n" in marker(endpoints[0]) and "epoch=2\n" in marker(endpoints[-1])
    before = marker(endpoints[-1])
    failed = add(again, endpoints[-1], check=False)
    assert failed.returncode == 1 and "in use by another copy" in failed.stderr
    assert marker(endpoints[-1]) == before


@pytest.mark.slow
def test_a_pack_gets_back_what_it_lacks(place):
    """Its stripes have footers that are not read at once."""
    endpoints = place.directories()
    archive = place.archive(endpoints, CODE, "--key", "split", lab.AS_USERS)
    archive.configure("archive", pack_after="1s", deletion_grace="0")
    tree = place.path / "tree"
    tree.mkdir()
    for number in range(150):
        lab.write_pattern(tree / f"a-file-with-quite-a-long-name-{number:04}", 5_000 + number, number)
    archive.put_in_full(tree, "/")
    mount = place.mount(archive)
    lab.until(lambda: [len(lab.stripe_files(endpoint)) for endpoint in endpoints] == [1] * 6, 60, "a pack is all there is")
    archive.await_stored()
    expected = lab.describe_tree(mount.path, content=True)
    mount.umount()
    for endpoint in endpoints:
        lose_journal(endpoint)
    shutil.rmtree(archive.path)
    again, _ = recover(place, endpoints[:-1])
    add(again, endpoints[-1])
    before = lab.stripe_files(endpoints[-1])
    done = fsck(again, "-y")
    assert "rebuilt  1 stripes of 1 objects: they were found among the orphans" in done.stdout
    assert lab.stripe_files(endpoints[-1]) == before
    assert "0 damaged" in fsck(again, "-n", "--deep").stdout
    mount = place.mount(again)
    found = lab.describe_tree(mount.path, content=True)
    mount.umount()
    digests = {name: facts["digest"] for name, facts in expected.items() if "digest" in facts}
    assert len(digests) == 150 and digests == {
        name: facts["digest"] for name, facts in found.items() if "digest" in facts}


@pytest.mark.slow
def test_what_only_it_has_counts_again(place):
    """Too much of the others was lost meanwhile to rebuild its stripes."""
    endpoints = place.directories()
    digests = lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    for endpoint in endpoints[:TOLERANCE]:
        endpoint.kill()
    assert again.json("status")["objects"]["unreadable"] == 3
    add(again, endpoints[-1])
    lab.run(lab.BUILD / "tools/ecfs-fsck", again.path, "-y", check=False)
    assert again.json("status")["objects"]["unreadable"] == 0
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_what_an_object_lacks_is_never_pruned(place):
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    add(again, endpoints[-1])
    before = lab.stripe_files(endpoints[-1])
    for path in before:
        os.utime(path, (1_500_000_000, 1_500_000_000))
    command = [lab.BUILD / "tools/ecfs-fsck", again.path, "--prune"]
    typed = subprocess.run(["script", "-qec", shlex.join(map(str, command)), "/dev/null"], input="n\ny\n", text=True,
                           capture_output=True)
    assert "Remove 3 orphans" in typed.stdout and "its object lacks this stripe" in typed.stdout
    assert lab.stripe_files(endpoints[-1]) == before


@pytest.mark.slow
def test_one_that_is_known_is_not_taken_twice(place):
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints)
    assert doubling(again) == "no"
    failed = lab.ecfs("endpoint", "add", again.path, f"twin=file://{endpoints[0].root}", check=False)
    assert failed.returncode == 1


@pytest.mark.slow
def test_what_cannot_be_recovered_without_the_others_is_not_left_out(place):
    endpoints = place.directories()
    digests = lose_all_but_stripes(place, endpoints)
    words = [word for endpoint in endpoints[:3] for word in ("--endpoint", endpoint.endpoint())]
    path = place.path / "too few"
    failed = lab.ecfs("recover", path, *words, check=False)
    assert failed.returncode == 1 and "3 objects have too few stripes" in failed.stderr
    assert "give the others too" in failed.stderr and not path.exists()
    assert "claim" not in "".join(marker(endpoint) for endpoint in endpoints)
    again, told = facts(place, endpoints)
    assert told["incomplete_objects"] == 0 and told["endpoints_known"] == 6
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_stripes_tell_of_an_endpoint_where_there_are_enough_without_it(place):
    """As many endpoints as the code makes stripes are named, and one more had some."""
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints, "rs:3+2", n_files=12)  # so that none is left out by all of them
    n_there = sum(bool(lab.stripe_files(endpoint)) for endpoint in endpoints)
    assert n_there == 6
    again, done = recover(place, endpoints[:-1])
    n_lacking = len(lab.stripe_files(endpoints[-1]))
    assert f"stripes of {n_lacking} objects are at none of the endpoints that are given" in done.stderr
    assert doubling(again) == "no" and "allow_double" not in done.stderr
    assert "code = rs:3+2 is set" in done.stderr  # the default would have to double
    assert again.json("status")["code"] == "rs:3+2"


@pytest.mark.slow
def test_a_journal_names_those_that_are_not_given(place):
    endpoints = place.directories()
    archive = place.archive(endpoints)
    digests = fill(place, archive)
    archive.await_stored()
    shutil.rmtree(archive.path)
    again, done = recover(place, endpoints[:-1])
    assert f"endpoints of the archive are not given ({endpoints[-1].name}): 'ecfs endpoint add" in done.stderr
    assert doubling(again) == "no" and "allow_double" not in done.stderr
    add(again, endpoints[-1])
    assert again.json("status")["verdict"] == "healthy"
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_wait_does_not_promise_what_nobody_can_look_for(place):
    """Once the endpoints are back all is there."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    digests = fill(place, archive)
    archive.await_stored()
    shutil.rmtree(archive.path)
    again, _ = recover(place, endpoints[:-2])
    mount = place.mount(again)
    missing = [endpoint.name for endpoint in endpoints[-2:]]
    done = lab.ecfs("wait", mount.path, check=False)
    assert done.returncode == 1 and "/file0: nobody can tell from here" in done.stderr, done.stderr
    assert all(f"{name} is not in ecfs.conf" in done.stderr for name in missing), done.stderr
    for endpoint in endpoints[-2:]:
        add(again, endpoint)
    lab.ecfs("wait", mount.path)
    mount.umount()
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_who_has_chosen_to_double_is_not_told_of_it(place):
    endpoints = place.directories()[:5]
    digests = lose_all_but_stripes(place, endpoints, CODE, "--set", "allow_double=yes")
    again, done = recover(place, endpoints)
    assert "allow_double = yes is set, as it was" in done.stderr and doubling(again) == "yes"
    status = again.json("status")
    assert status["verdict"] == "healthy" and status["objects"]["guarantee"] == 1 and "doubled" not in status["objects"]
    assert_reads(place, again, digests)


@pytest.mark.slow
def test_what_recover_allows_for_now_may_be_chosen(place):
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    fsck(again, "-y")
    assert again.json("status")["verdict"] == "degraded"
    again.configure("archive", allow_double="yes")
    assert again.json("status")["verdict"] == "healthy"

    shutil.rmtree(again.path)
    chosen, done = recover(place, endpoints[:-1], "--set", "allow_double=yes")
    assert doubling(chosen) == "yes" and "allow_double" not in done.stderr
    assert chosen.json("status")["verdict"] == "healthy"


@pytest.mark.slow
def test_a_recovery_with_all_endpoints_ends_what_one_with_fewer_began(place):
    endpoints = place.directories()
    lose_all_but_stripes(place, endpoints)
    again, _ = recover(place, endpoints[:-1])
    fsck(again, "-y")
    lab.ecfs("wait", "--unmounted", again.path)
    shutil.rmtree(again.path)
    third, done = recover(place, endpoints)
    assert doubling(third) == "no" and "allow_double = no is set" in done.stderr
    assert third.json("status")["verdict"] == "degraded"
    fsck(third, "-y")
    status = third.json("status")
    assert status["verdict"] == "healthy" and status["objects"]["guarantee"] == TOLERANCE
