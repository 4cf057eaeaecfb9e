"""Damaged stripes were repaired, and the machine is lost before or after the journal tells of that."""
import json
import shutil

import forge
import lab
import pytest

KIB = 1 << 10
REPAIRED = 1


def fsck(archive, *arguments):
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, *arguments, check=False)
    return done.returncode, done.stdout + done.stderr


def filled(place):
    """An archive over directories, and its source, all stored and in the journal: each file an object of its own, as
    logs are packed when it suits them, and leave copies that wait for their deletion."""
    archive = place.archive(place.directories())
    archive.configure("archive", small_file="0")
    source = place.path / "source"
    source.mkdir()
    for number in range(6):
        lab.write_pattern(source / f"file{number}", 10 + number * 70 * KIB, number)
    archive.put_in_full(source, "/")
    lab.ecfs("wait", "--unmounted", archive.path)
    return archive, source


def damage(endpoint):
    """One bit in the packets of each stripe."""
    paths = lab.stripe_files(endpoint)
    for path in paths:
        lab.flip(path, int.from_bytes(path.read_bytes()[12:16], "little"))  # behind the header
    return len(paths)


def keep_journal(place, endpoints):
    for endpoint in endpoints:
        for kind in ("journal", "snapshots"):
            if (endpoint.root / kind).exists():
                shutil.copytree(endpoint.root / kind, place.path / "kept" / endpoint.name / kind)


def put_back(place, endpoints):
    """As if the machine had been lost before the next journal was stored."""
    for endpoint in endpoints:
        for kind in ("journal", "snapshots"):
            shutil.rmtree(endpoint.root / kind, ignore_errors=True)
            if (place.path / "kept" / endpoint.name / kind).exists():
                shutil.copytree(place.path / "kept" / endpoint.name / kind, endpoint.root / kind)


def lose_machine_and_two(archive, damaged):
    shutil.rmtree(archive.path)
    others = [endpoint for endpoint in archive.endpoints if endpoint is not damaged]
    for endpoint in others[:2]:
        endpoint.kill()
    return [damaged, *others[2:]]


def recovered(place, endpoints):
    """The new archive, and what was told."""
    path = place.path / f"recovered-{next(place.numbers)}"
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", path, "--force", "--json", *words)
    return lab.Archive(path, endpoints), json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("tells", ["of the objects", "of nothing"])
@pytest.mark.slow
def test_what_was_repaired_is_taken_where_the_journal_names_what_was_damaged(place, tells):
    archive, source = filled(place)
    damaged = archive.endpoints[3]
    keep_journal(place, archive.endpoints if tells == "of the objects" else [])
    n_damaged = damage(damaged)
    status, text = fsck(archive, "--deep", "-y")
    assert status == REPAIRED, text
    put_back(place, archive.endpoints)
    again, told, text = recovered(place, lose_machine_and_two(archive, damaged))
    assert told["lost"] == 0
    assert (f"{n_damaged} stripes that the journal names" in text) == (tells == "of the objects"), text
    assert place.fetched(again, "/source") == lab.describe_tree(source)


@pytest.mark.slow
def test_fsck_stores_the_journal_before_it_says_repaired(place):
    """The machine is lost the moment after, with as many endpoints as may vanish: nothing has to be guessed."""
    archive, source = filled(place)
    mount = place.mount(archive)
    damaged = archive.endpoints[0]
    damage(damaged)
    status, text = fsck(archive, "--deep", "-y")
    assert status == REPAIRED, text
    mount.kill()
    again, told, text = recovered(place, lose_machine_and_two(archive, damaged))
    assert told["lost"] == 0 and "that the journal names" not in text, text
    assert place.fetched(again, "/source") == lab.describe_tree(source)


@pytest.mark.slow
def test_a_mount_stores_the_journal_before_it_says_repaired(place):
    archive = place.archive(place.directories())
    archive.configure("archive", read_policy="data-first")
    content = place.path / "file"
    lab.write_pattern(content, 300 * KIB, 7)
    archive.put_in_full(content, "/")
    lab.ecfs("wait", "--unmounted", archive.path)
    mount = place.mount(archive)
    where = {path.name.split("-")[1]: (endpoint, path) for endpoint in archive.endpoints
             for path in lab.stripe_files(endpoint)}
    damaged, path = where["00"]
    lab.flip(path, path.stat().st_size // 2)

    def repaired():
        lab.forget_mounts()
        assert (mount.path / "file").read_bytes() == content.read_bytes()
        repairs = archive.json("status")["repairs"]
        return repairs["rebuilt"] == 1
    lab.until(repaired, 60, "what was met is repaired", pause=0.2)
    mount.kill()
    again, told, text = recovered(place, lose_machine_and_two(archive, damaged))
    assert told["lost"] == 0 and "that the journal names" not in text, text
    again.get("/file", place.path / "got")
    assert lab.digest(place.path / "got") == lab.digest(content)


@lab.unkeyed
@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_fsck_takes_good_stripes_that_nothing_knows_for_damaged_ones(place, mounted):
    """As after a recovery that took the damaged ones: nothing else is left to rebuild them from."""
    archive, source = filled(place)
    damaged, *others = archive.endpoints
    good = {}
    for path in lab.stripe_files(damaged):
        uuid, index, instance = path.name.split("-")
        other = int(instance, 16) ^ 1
        good[path.with_name(f"{uuid}-{index}-{other:016x}")] = forge.renamed(path.read_bytes(), other)
    damage(damaged)
    for path, data in good.items():
        path.write_bytes(data)
    for endpoint in others[:2]:
        shutil.rmtree(endpoint.root / "stripes")
    mount = place.mount(archive) if mounted else None
    status, text = fsck(archive, "--deep", "-y")
    assert status == REPAIRED, text
    assert place.fetched(archive, "/source") == lab.describe_tree(source)
    if mount is not None:
        mount.umount()
    assert fsck(archive, "--deep", "-n")[0] == 0
