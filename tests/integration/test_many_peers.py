"""Machines that share a catalog in PostgreSQL find each other there, and read from each other's caches."""
import json
import os
import re
import shutil

import lab
import postgresql
import pytest
from test_cache import hide
from test_many_mounts import cluster, is_clean, join, make  # pylint: disable=unused-import

MIB = 1 << 20
SIZE = 3 * MIB + 4321

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")


def configured(archive):
    """With peers, and not an address but its own."""
    port = lab.free_port()
    archive.configure("archive", cache_size="50M", peers="catalog", peer_listen=f"127.0.0.1:{port}")
    return port


def state(archive):
    """Of its mount."""
    return json.loads(lab.ecfs("swarm", "list", "--json", archive.path).stdout)


def knows(archive, port):
    return any({"address": f"127.0.0.1:{port}", "state": "up"}.items() <= peer.items() for peer in state(archive)["list"])


def written(mount, name, seed):
    """A file that nobody has read, and its digest."""
    source = mount.archive.path.parent / f"source{seed}"
    lab.write_pattern(source, SIZE, seed)
    shutil.copy(source, mount.path / name)
    lab.ecfs("wait", mount.path)
    return lab.digest(source)


def cache(mount, name):
    """Has all of a file in the mount's cache, as others are told who ask for it."""
    lab.drop_caches()
    lab.digest(mount.path / name)
    lab.until(lambda: os.getxattr(mount.path / name, "user.ecfs.cached").endswith(b", 100%"), 30, "it is in the cache")


@pytest.fixture
def pair(place, cluster):  # pylint: disable=redefined-outer-name
    """Two that write, and the ports at which they serve."""
    archive = make(place, cluster, lab.AS_USERS, "--set", "segment_size=1M")
    other = join(place, archive, "other")
    return archive, other, configured(archive), configured(other)


@pytest.mark.slow
def test_mounts_find_each_other(place, pair):
    archive, other, *ports = pair
    first = place.mount(archive)
    digest = written(first, "file", 1)
    second = place.mount(other)
    lab.until(lambda: knows(archive, ports[1]) and knows(other, ports[0]), 20, "they have found each other")
    assert state(archive)["catalog"] == {"found": 2, "announced": f"127.0.0.1:{ports[0]}"}
    assert re.search(r"^catalog +2 found$", lab.ecfs("swarm", "stats", other.path).stdout, re.M)
    assert archive.json("status")["peers"]["catalog"]["found"] == 2
    cache(first, "file")
    hide(archive, but=1)  # which tells what is right, and has too little for anything else
    lab.drop_caches()
    assert lab.digest(second.path / "file") == digest
    assert state(other)["fetched_bytes"] >= SIZE
    # who serves nobody any more, and who ends, is forgotten
    lab.ecfs("swarm", "stop", archive.path)
    lab.until(lambda: state(other)["catalog"]["found"] == 1, 10, "who stops is not found")
    lab.ecfs("swarm", "start", archive.path)
    lab.until(lambda: state(other)["catalog"]["found"] == 2, 10, "who starts again is")


def test_reader_finds_writers(place, pair):
    """That mounts the shared catalog for reading only, and serves nobody."""
    archive, other, *_ = pair
    other.configure("archive", peer_listen="none")
    first = place.mount(archive)
    digest = written(first, "file", 1)
    second = place.mount(other, "-o", "ro")
    cache(first, "file")
    os.stat(second.path / "file")
    lab.until(lambda: state(archive)["connections"], 30, "it has come")
    hide(archive, but=1)
    lab.drop_caches()
    assert lab.digest(second.path / "file") == digest
    lab.until(lambda: state(archive)["served_bytes"] >= SIZE, 10, "it came from the writer")


@pytest.mark.slow
def test_one_dies(place, pair):
    """The other reads on, from endpoints, and writes."""
    archive, other, *ports = pair
    first, second = place.mount(archive), place.mount(other)
    digests = [written(first, f"file{seed}", seed) for seed in range(2)]
    lab.until(lambda: knows(archive, ports[1]) and knows(other, ports[0]), 20, "they have found each other")
    cache(first, "file0")
    lab.drop_caches()
    assert lab.digest(second.path / "file0") == digests[0]
    assert state(other)["fetched_bytes"] >= MIB  # endpoints that are faster give the rest
    first.kill()
    lab.drop_caches()
    assert [lab.digest(second.path / f"file{seed}") for seed in range(2)] == digests
    (second.path / "new").write_text("of the second\n")
    first.start()
    assert (first.path / "new").read_text() == "of the second\n"
    lab.until(lambda: knows(other, ports[0]), 60, "it is found again")
    first.umount()
    second.umount()
    is_clean(archive)


@pytest.mark.nightly
def test_the_dead_are_forgotten(place, pair):
    archive, other, *ports = pair
    first, second = place.mount(archive), place.mount(other)
    lab.until(lambda: knows(other, ports[0]), 20, "it is found")
    first.kill()
    lab.until(lambda: state(other)["catalog"]["found"] == 1, 120, "it is not found any more")
    second.umount()


@pytest.mark.slow
def test_any_address(place):
    """The database knows from where it is reached over a network, and else nobody does."""
    tcp = lab.free_port()
    with postgresql.Cluster(port=tcp) as reached:
        host = f"postgresql://ecfs@127.0.0.1:{tcp}/postgres?sslmode=disable"
        for location, expected in ((host, "announced"), (reached.location, "problem")):
            archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS, "--set", f"catalog={location}")
            port = configured(archive)
            archive.configure("archive", peer_listen=f"0.0.0.0:{port}")
            mount = place.mount(archive)
            lab.until(lambda archive=archive, expected=expected: expected in state(archive)["catalog"], 10, "it is told")
            assert state(archive)["catalog"].get("announced") == (f"127.0.0.1:{port}" if expected == "announced" else None)
            mount.umount()


def test_a_file_is_nobody_elses(place):
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    configured(archive)
    mount = place.mount(archive)
    lab.until(lambda: "is a file of this machine" in state(archive)["catalog"].get("problem", ""), 10, "it says so")
    mount.umount()
