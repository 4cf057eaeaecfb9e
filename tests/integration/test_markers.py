"""Markers of an archive with a key: endpoints that show others than the archive wrote stop nothing and free nothing."""
import re
import shutil
import uuid

import lab
import pytest

TOLERATED = 2  # by rs:4+2, of six


@pytest.fixture
def archive(place):
    made = lab.Archive(place.path / "archive", place.directories())
    made.init("--key", "split")
    return made


def marker(endpoint):
    return endpoint.root / "ecfs-endpoint"


def forge(endpoint, **values):
    text = marker(endpoint).read_text()
    for key, value in values.items():
        text = re.sub(rf"^{key}=.*$", f"{key}={value}", text, flags=re.M)
    marker(endpoint).write_text(text)


def forge_epoch(endpoint):
    forge(endpoint, epoch=4294967295)


def forge_without_mac(endpoint):
    lines = [line for line in marker(endpoint).read_text().splitlines() if not line.startswith(("key=", "mac="))]
    marker(endpoint).write_text("\n".join(lines) + "\n")
    forge_epoch(endpoint)


def name_unknown_key(endpoint):
    forge(endpoint, key=uuid.uuid4())


def tear(endpoint):
    marker(endpoint).write_bytes(marker(endpoint).read_bytes()[:40])


def disagreeing(archive):
    told = archive.json("status")["endpoints"]
    return {facts["name"] for facts in told if "disagrees" in facts or "false_marker" in facts}


def names(endpoints):
    return {endpoint.name for endpoint in endpoints}


def recover(place, archive, *options, **how):
    path = place.path / "recovered"
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.run(lab.PROGRAM, "recover", path, "--force", *words, *options, **how)
    return lab.Archive(path, archive.endpoints), done


def assert_reads(place, archive, before):
    mount = place.mount(archive)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()


def fill(place, archive):
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 300_000, 1)
    lab.write_pattern(mount.path / "small", 500, 2)
    lab.ecfs("wait", mount.path)
    before = lab.describe_tree(mount.path)
    mount.umount()
    return before


@pytest.mark.parametrize("lie", [forge_epoch, forge_without_mac, name_unknown_key])
@pytest.mark.slow
def test_as_many_may_lie_as_may_be_lost(place, archive, lie):
    before = fill(place, archive)
    liars = archive.endpoints[1:1 + TOLERATED]
    for endpoint in liars:
        lie(endpoint)
    mount = place.mount(archive)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    lab.write_pattern(mount.path / "behind", 50_000, 3)
    lab.ecfs("wait", mount.path)
    assert disagreeing(archive) == names(liars)
    told = lab.ecfs("fsck", archive.path, check=False)
    assert told.returncode == 4 and told.stdout.count("its marker is") == TOLERATED
    (mount.path / "small").unlink()
    status = archive.json("status")
    assert "old_copy" not in status and "held" not in status and "deletions_wait" in status
    before = lab.describe_tree(mount.path)
    lab.ecfs("wait", mount.path)
    mount.umount()
    recovered, told = recover(place, archive)
    assert all(f"endpoint {endpoint.name}: its marker is" in told.stdout + told.stderr for endpoint in liars)
    assert_reads(place, recovered, before)


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_fsck_writes_a_marker_again_but_none_under_an_unknown_key(place, archive, mounted):
    fill(place, archive)
    forge_epoch(archive.endpoints[1])
    name_unknown_key(archive.endpoints[2])
    unknown = marker(archive.endpoints[2]).read_bytes()
    mount = place.mount(archive) if mounted else None
    told = lab.ecfs("fsck", "-y", archive.path, check=False).stdout
    assert "its marker is damaged or forged - STORED ANEW" in told and "is left alone - LEFT" in told
    assert "epoch=1\n" in marker(archive.endpoints[1]).read_text()
    assert marker(archive.endpoints[2]).read_bytes() == unknown
    told = lab.ecfs("fsck", archive.path, check=False).stdout
    assert "damaged or forged" not in told
    if mounted:
        assert disagreeing(archive) == names([archive.endpoints[2]])
        mount.umount()


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_fsck_writes_a_torn_marker_again_where_the_stripes_show_whose_it_is(place, archive, mounted):
    before = fill(place, archive)
    tear(archive.endpoints[1])
    copied = marker(archive.endpoints[0]).read_bytes()
    marker(archive.endpoints[2]).write_bytes(copied)
    mount = place.mount(archive) if mounted else None
    told = lab.ecfs("fsck", "-y", archive.path, check=False).stdout
    assert "what is there is no marker - STORED ANEW" in told and "is left alone - LEFT" in told
    assert "epoch=1\n" in marker(archive.endpoints[1]).read_text()
    assert marker(archive.endpoints[2]).read_bytes() == copied
    if mounted:
        lab.assert_same_tree(before, lab.describe_tree(mount.path))
        mount.umount()
    tear(archive.endpoints[1])
    shutil.rmtree(archive.endpoints[1].root / "stripes")
    torn = marker(archive.endpoints[1]).read_bytes()
    told = lab.ecfs("fsck", "-y", archive.path, check=False).stdout
    assert "nothing there shows" in told and marker(archive.endpoints[1]).read_bytes() == torn


def test_one_more_under_an_unknown_key_make_the_directory_an_old_copy(place, archive):
    before = fill(place, archive)
    for endpoint in archive.endpoints[:TOLERATED + 1]:
        name_unknown_key(endpoint)
    kept = [marker(endpoint).read_bytes() for endpoint in archive.endpoints]
    mount = place.mount(archive)
    assert "is an old copy" in mount.text() and "ecfs takeover" in mount.text()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    with pytest.raises(OSError):
        (mount.path / "other").write_bytes(b"x")
    mount.umount()
    assert [marker(endpoint).read_bytes() for endpoint in archive.endpoints] == kept


@pytest.mark.slow
def test_markers_that_are_replayed_are_outvoted(place, archive):
    fill(place, archive)
    old = [marker(endpoint).read_bytes() for endpoint in archive.endpoints[:TOLERATED]]
    shutil.copytree(archive.path, place.path / "backup")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "behind", 50_000, 3)
    lab.ecfs("wait", mount.path)
    for endpoint, text in zip(archive.endpoints, old):
        marker(endpoint).write_bytes(text)
    lab.write_pattern(mount.path / "again", 50_000, 4)
    lab.ecfs("wait", mount.path)
    before = lab.describe_tree(mount.path)
    mount.umount()
    for endpoint, text in zip(archive.endpoints, old):
        marker(endpoint).write_bytes(text)
    mount = place.mount(lab.Archive(place.path / "backup", archive.endpoints))
    assert "is an old copy" in mount.text()
    mount.umount()
    for endpoint, text in zip(archive.endpoints, old):
        marker(endpoint).write_bytes(text)
    recovered, _ = recover(place, archive)
    assert_reads(place, recovered, before)


@pytest.mark.slow
def test_deletions_wait_until_so_many_answer_that_none_can_be_hidden(place, archive):
    archive.configure("archive", deletion_grace="0s")
    fill(place, archive)
    for endpoint in archive.endpoints[:TOLERATED]:
        endpoint.kill()
    mount = place.mount(archive)
    (mount.path / "file").unlink()
    lab.ecfs("wait", mount.path)
    status = archive.json("status")
    assert status["deletions"] > 0 and "too few endpoints" in status["deletions_wait"]
    assert "too few endpoints" in lab.ecfs("status", archive.path, check=False).stdout
    archive.endpoints[0].start()
    lab.until(lambda: "deletions_wait" not in archive.json("status"), 120, "enough answer")
    lab.until(lambda: archive.json("status")["deletions"] <= 1, 120, "what is there is deleted")
    mount.umount()


@pytest.mark.parametrize("options", [[], ["--key"]])
@pytest.mark.slow
def test_recover_is_stopped_by_no_marker_that_is_torn_or_of_another(place, archive, options):
    before = fill(place, archive)
    tear(archive.endpoints[0])
    forge(archive.endpoints[3], archive=uuid.uuid4())
    recovered, told = recover(place, archive, *(options and [*options, archive.path / "key"]))
    assert "left alone" in told.stdout + told.stderr
    assert_reads(place, recovered, before)


@pytest.mark.slow
def test_recover_lets_nobody_choose_the_archive_or_stop_it_by_a_claim(place, archive):
    before = fill(place, archive)
    forge_epoch(archive.endpoints[0])
    with marker(archive.endpoints[5]).open("a") as file:
        file.write(f"claim_epoch=2\nclaim_session={uuid.uuid4()}\nclaim_count=1\nclaim_host=nowhere\n")
    recovered, told = recover(place, archive)
    assert "another recovery" not in told.stdout + told.stderr
    assert_reads(place, recovered, before)
    assert "claim_epoch=2" in marker(archive.endpoints[5]).read_text()
    told = lab.ecfs("fsck", "-y", recovered.path, check=False).stdout
    assert told.count("damaged or forged - STORED ANEW") == 2
    assert "epoch=2\n" in marker(archive.endpoints[0]).read_text()
    assert "claim_epoch" not in marker(archive.endpoints[5]).read_text()


@pytest.mark.slow
def test_who_makes_up_a_name_becomes_no_endpoint(place, archive):
    """Recovered with it, the archive has those that its journal names, and not one more."""
    before = fill(place, archive)
    liar = archive.endpoints[2]
    marker(liar).write_text(re.sub(r"^endpoint=.*$", f"endpoint={uuid.uuid4()}", marker(liar).read_text(), flags=re.M))
    said = marker(liar).read_bytes()
    recovered, told = recover(place, archive)
    assert f"endpoint {liar.name} is none that the archive knows: it is left alone" in told.stdout + told.stderr
    assert "from 5 of 6 endpoints" in told.stdout, told.stdout
    assert {facts["name"] for facts in recovered.json("status")["endpoints"]} == names(archive.endpoints)
    assert_reads(place, recovered, before)
    assert marker(liar).read_bytes() == said
