"""Orphans of an archive with a key: only what its key has made is removed, and what it is not proven for is listed."""
import os
import random
import struct
import uuid

import lab
import pytest
from test_fsck import CLEAN, LEFT, facts
from test_key_liars import rehash
from test_prune import OLD, orphaned

PUBLIC = 16 + 8  # where the payload of a header's first section begins
SEQUENCE = PUBLIC + 40


@pytest.fixture
def archive(place):
    return place.archive(place.directories(), "rs:4+2", "--key", "split")


def sections(data):
    """Type and payload (begin, end) of the header's sections."""
    at, (end,) = 16, struct.unpack_from("<I", data, 12)
    while at < end:
        kind, _, size = struct.unpack_from("<HHI", data, at)
        yield kind, at + 8, at + 8 + size
        at += size + 16


def bits(data):
    """One bit of each two bytes that say something, and of the MAC."""
    dice = random.Random(5)
    return [(at, 1 << dice.randrange(8)) for kind, begin, end in sections(data) if kind for at in range(begin, end, 2)]


def put_back(path, data):
    path.write_bytes(data)
    os.utime(path, (OLD, OLD))


def listed(findings):
    """Orphans, as endpoint and name; and endpoints of which some stay, with the first reason."""
    orphans = {(finding["endpoint"], finding["name"]) for finding in findings if finding["about"] == "orphan"}
    return orphans, [finding["text"] for finding in findings if finding["about"] == "prune"]


def assert_all_stay(archive, paths, reason):
    before = {path: path.read_bytes() for path in paths}
    status, findings, summary = facts(archive, "-y", "--prune")
    assert status == LEFT and summary["orphans_removed"] == 0 and summary["orphans_old"] == len(paths), summary
    orphans, told = listed(findings)
    assert len(orphans) == len(paths) and all(reason in text for text in told), told
    assert len(told) == len({path.parents[2] for path in paths}), "of each endpoint"
    assert {path: path.read_bytes() for path in paths} == before


@pytest.mark.slow
def test_one_changed_bit_of_a_header_keeps_it(place, archive):
    """Whichever it is: an endpoint has mended all that it can."""
    paths, bring_back = orphaned(place, archive)
    bring_back()
    true = {path: path.read_bytes() for path in paths}
    changes = bits(true[paths[0]])
    assert len(changes) > 50
    while changes:
        for path in paths:
            at, bit = changes.pop() if changes else (SEQUENCE, 1)
            data = bytearray(true[path])
            data[at] ^= bit
            put_back(path, rehash(data))
        status, findings, summary = facts(archive, "-y", "--prune")
        orphans, told = listed(findings)
        assert (status, summary["orphans_removed"], len(orphans)) == (LEFT, 0, len(paths)), (changes, summary, told)
        assert all(path.exists() for path in paths) and len(told) == len(paths)
    bring_back()
    assert facts(archive, "-y", "--prune")[2]["orphans_removed"] == len(paths), "those that are true are removed"


def strangers(place, archive, key, sequence):
    """Stripes of another archive, at the same endpoints, under the UUID of this one."""
    other = lab.Archive(place.path / "other", place.directories(lab.NAMES))
    other.init("--key", key)
    lab.write_pattern(place.path / "file", 300_000, 9)
    other.put_in_full(place.path / "file", "/file")
    mine, its = (uuid.UUID(one.json("status")["archive"]).bytes for one in (archive, other))
    paths = []
    for endpoint in other.endpoints:
        for path in lab.stripe_files(endpoint):
            data = bytearray(path.read_bytes().replace(its, mine))
            struct.pack_into("<Q", data, SEQUENCE, sequence)
            paths.append(archive[endpoint.name].root / path.relative_to(endpoint.root))
            paths[-1].parent.mkdir(exist_ok=True, parents=True)
            put_back(paths[-1], rehash(data))
    return paths


@pytest.mark.slow
def test_what_is_under_a_key_that_is_not_here_stays(place, archive):
    """It may be of a newer copy of the archive directory, or made up."""
    orphaned(place, archive)
    assert_all_stay(archive, strangers(place, archive, "split", 1), "key")


@pytest.mark.slow
def test_what_is_not_sealed_stays_unless_it_is_from_before_the_key(place):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none")
    paths, bring_back = orphaned(place, archive)
    kept = {}
    bring_back()
    for path in paths:
        kept[path] = path.read_bytes()
        path.unlink()
    lab.ecfs("key", "init", archive.path)
    lab.ecfs("recode", "--seal", archive.path)
    now = archive.json("status")["sequence"]
    for path, data in kept.items():
        data = bytearray(data)
        struct.pack_into("<Q", data, SEQUENCE, now)
        put_back(path, rehash(data))
    assert_all_stay(archive, paths, "it is not sealed")
    for path, data in kept.items():  # as they were
        put_back(path, data)
    status, _, summary = facts(archive, "-y", "--prune")
    assert (status, summary["orphans_removed"]) == (CLEAN, len(paths))


@pytest.mark.slow
def test_what_is_not_sealed_stays_where_there_always_was_a_key(place, archive):
    orphaned(place, archive)
    assert_all_stay(archive, strangers(place, archive, "none", 0), "it is not sealed")
