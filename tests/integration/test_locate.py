"""Peers and published files in a distributed hash table of real nodes."""
import contextlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

import dht
import lab
import pytest
from test_cache import hide
from test_follow import Follower

MIB = 1 << 20
SIZE = 3 * MIB + 4321
SEEN_WITHIN_S = 10  # ecfs-locate(1)

pytestmark = [pytest.mark.as_users, pytest.mark.skipif(not dht.PROGRAM.exists(), reason="built without OpenDHT")]


def free_udp_port():
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def nodes():
    """A function that starts some; all of them end with the test."""
    started = []

    def start(network, n):
        started.extend(dht.start(network, n))
        return list(started)
    yield start
    for node in started:
        with contextlib.suppress(OSError):
            node.kill()


def settings(port, dht_port, bootstrap):
    return {"cache_size": "50M", "peers": "dht", "peer_listen": f"127.0.0.1:{port}", "dht_port": str(dht_port), "dht_bootstrap": bootstrap}


def state(archive):
    """Of its mount."""
    return json.loads(lab.ecfs("swarm", "list", "--json", archive.path).stdout)


@pytest.mark.slow
def test_peers_find_each_other(place, nodes):
    ports, node = [lab.free_port(), lab.free_port()], free_udp_port()
    archive = place.archive(place.directories(), "rs:4+2", "--set", "segment_size=1M", lab.AS_USERS)
    known = ", ".join(f"127.0.0.1:{each.port}" for each in nodes(dht.network_of(archive), 3))
    archive.configure("archive", **settings(ports[0], node, known))
    writer = place.mount(archive)
    lab.write_pattern(writer.path / "file", SIZE, 1)
    digest = lab.digest(writer.path / "file")
    lab.ecfs("wait", writer.path)
    follower = Follower(place, archive.endpoints)
    follower.mount.umount()
    follower.archive.configure("archive", **settings(ports[1], 0, known))
    follower.mount.start()
    for who, other in ((archive, ports[1]), (follower.archive, ports[0])):
        lab.until(lambda who=who, other=other: {"address": f"127.0.0.1:{other}", "state": "up"}.items() <=
                  next(iter(state(who)["list"]), {}).items(), 60, "the other is known")
    assert state(archive)["dht"]["announced"] == f"127.0.0.1:{ports[0]}" and state(archive)["dht"]["port"] == node
    lab.drop_caches()
    assert lab.digest(writer.path / "file") == digest
    lab.until(lambda: os.getxattr(writer.path / "file", "user.ecfs.cached").endswith(b", 100%"), 30, "it is in the cache")
    hide(archive, but=1)  # which tells what is right, and has too little for anything else
    lab.drop_caches()
    assert lab.digest(follower.path / "file") == digest
    assert state(follower.archive)["fetched_bytes"] >= SIZE
    # who ends says good-bye
    follower.mount.umount()
    lab.until(lambda: state(archive)["dht"]["found"] == 1, 60, "it is not found any more")


def test_who_talks_with_strangers_can_do_little_else(place, nodes):
    """tests/tools/test_locate_cage.c tries what it no longer can."""
    (node,) = nodes(0xcafe1, 2)[:1]
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert 0 not in map(int, [*status["Uid"].split(), *status["Gid"].split()])


def test_a_mount_lets_go_of_what_it_was_started_with(place, nodes):
    """Also the node of the hash table, which starts while the mount still has a terminal, or a pipe."""
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    node = nodes(dht.network_of(archive), 2)[0]
    archive.configure("archive", **settings(lab.free_port(), 0, f"127.0.0.1:{node.port}"))
    mountpoint = place.path / "in-background"
    mountpoint.mkdir()
    for _ in range(3):
        lab.run(lab.PROGRAM, "mount", archive.path, mountpoint, timeout=20)  # it ends when nobody has its pipes
        lab.ecfs("umount", mountpoint)


def test_a_port_that_is_taken_is_taken_for_both(place, nodes):
    """By IPv4 alone, as a node on the other half would be looked for in vain."""
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    node = nodes(dht.network_of(archive), 2)[0]
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", 0))
        taken = other.getsockname()[1]
        archive.configure("archive", **settings(lab.free_port(), taken, f"127.0.0.1:{node.port}"))
        mount = place.mount(archive)
        lab.until(lambda: state(archive)["dht"]["port"] not in (0, taken), 30, "another port is used")
        lab.until(lambda: f"UDP port {taken} is taken" in mount.text(), 10, "the log says so")


def published(archive, path="/file", *more, check=True):
    return lab.ecfs("export", "--publish", "run-17", *more, archive.path, path, check=check)


def put_file(place, archive, seed):
    """SHA-256 of what is stored as /file then."""
    lab.write_pattern(place.path / "file", SIZE, seed)
    archive.put(place.path / "file", "/file")
    return lab.digest(place.path / "file")


def fetched(place, capability, *more):
    lab.ecfs("fetch", "--dht", capability, *more, place.path / "fetched")
    return lab.digest(place.path / "fetched")


@pytest.mark.slow
def test_names_are_found_replaced_and_survive_a_third_of_the_nodes(place, nodes):
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS, "--set", "dht_port=0")
    digest = put_file(place, archive, 1)
    first = published(archive, check=False)
    assert first.returncode == 1 and "set dht_bootstrap" in first.stderr
    assert "whoever has this text can read the file" in first.stderr
    crowd = nodes(dht.network_of(archive), 9)
    ports = [node.port for node in crowd]
    archive.configure("archive", dht_bootstrap=", ".join(f"127.0.0.1:{port}" for port in ports[:3]))
    capability = published(archive).stdout.strip()
    assert archive.json("status")["published"] == ["run-17"] and "published  run-17\n" in lab.ecfs("status", archive.path).stdout
    assert capability.split("/")[:3] == first.stdout.strip().split("/")[:3]  # its key stays
    assert fetched(place, capability) == digest
    # what opens a file is not for the list of processes
    subprocess.run([lab.PROGRAM, "fetch", "--dht", "-", place.path / "by-stdin"], input=capability + "\n", text=True, check=True, timeout=60)
    assert lab.digest(place.path / "by-stdin") == digest
    located = json.loads(lab.ecfs("locate", "--json", capability).stdout)
    assert located["size"] == SIZE and located["has_keys"] and located["name"] == "run-17"
    for stripe in located["objects"][0]["stripes"]:
        assert os.path.getsize(stripe["url"].removeprefix("file://")) == stripe["size"]
    assert f"{SIZE} bytes" in lab.ecfs("locate", capability).stdout
    # another version takes its place, and everybody sees it
    newer = put_file(place, archive, 2)
    published(archive, "/file", "--output", place.path / "descriptor")
    begun = time.monotonic()
    assert all(fetched(place, capability, "--node", f"127.0.0.1:{port}") == newer for port in ports[::4])
    assert json.loads(lab.ecfs("locate", "--json", capability).stdout)["counter"] > located["counter"]
    assert time.monotonic() - begun < SEEN_WITHIN_S
    lab.ecfs("fetch", place.path / "descriptor", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == newer
    for node in crowd[::3]:
        node.kill()
    assert fetched(place, capability) == newer
    for endpoint in archive.endpoints:
        (endpoint.root / "stripes").rename(endpoint.root / "elsewhere")
    gone = lab.ecfs("fetch", "--dht", capability, place.path / "fetched", check=False)
    assert gone.returncode == 1 and "replaced or removed the file" in gone.stderr
    lab.ecfs("export", "--withdraw", "run-17", archive.path)
    assert archive.json("status")["published"] == [] and "published" not in lab.ecfs("status", archive.path).stdout
    gone = lab.ecfs("fetch", "--dht", capability, place.path / "fetched", check=False)
    assert gone.returncode == 1 and "withdrawn" in gone.stderr


def test_what_a_stranger_tells_makes_no_line_of_its_own(place, nodes):
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS, "--set", "dht_port=0")
    node = nodes(dht.network_of(archive), 2)[0]
    archive.configure("archive", dht_bootstrap=f"127.0.0.1:{node.port}")
    lab.write_pattern(place.path / "file", SIZE, 1)
    archive.put(place.path / "file", "/a\nkeys       \x1b[31mnone")
    capability = published(archive, "/a\nkeys       \x1b[31mnone").stdout.strip()
    told = lab.ecfs("locate", capability).stdout
    assert "\x1b" not in told and sum(line.startswith("keys") for line in told.splitlines()) == 1 and "[31mnone" in told


@pytest.mark.slow
def test_a_mount_keeps_what_is_published(place, nodes):
    """Who publishes may go, and so may all others who kept it."""
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS, "--set", f"dht_port={free_udp_port()}")
    crowd = nodes(dht.network_of(archive), 2)
    archive.configure("archive", dht_bootstrap=", ".join(f"127.0.0.1:{node.port}" for node in crowd))
    digest = put_file(place, archive, 1)
    mount = place.mount(archive)
    assert "peers" not in archive.json("status")
    capability = published(archive).stdout.strip()
    crowd[0].kill()
    assert fetched(place, capability) == digest
    mount.umount()
    mount.start()
    crowd[1].kill()
    crowd = nodes(dht.network_of(archive), 2)[2:]
    archive.configure("archive", dht_bootstrap=", ".join(f"127.0.0.1:{node.port}" for node in crowd))
    mount.umount()
    mount.start()  # it puts there again what is published, for those who know nothing of it
    lab.until(lambda: lab.ecfs("locate", "--node", f"127.0.0.1:{crowd[1].port}", capability, check=False).returncode == 0, 30, "it is there again")


@pytest.mark.slow
def test_a_mount_alone_publishes_when_somebody_looks(place):
    port = free_udp_port()
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    archive.configure("archive", **settings(lab.free_port(), port, "none"))
    digest = put_file(place, archive, 1)
    place.mount(archive)
    done = published(archive, check=False)
    assert done.returncode == 1 and "no other node" in done.stderr
    assert fetched(place, done.stdout.strip()) == digest


def test_many_names_do_not_keep_peers_waiting(place, monkeypatch):
    """A slow table: so many names take five seconds, in which others are looked for, too."""
    helper, log = place.path / "helper", place.path / "asked"
    helper.write_text(f"#!/bin/sh\necho ready 1\nwhile read -r word number rest; do echo $word >> {log}; [ $word = get ] || sleep 0.1; echo done $number yes; done\n")
    helper.chmod(0o700)
    monkeypatch.setenv("ECFS_LOCATE_HELPER", str(helper))
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    archive.configure("archive", **settings(lab.free_port(), 0, "127.0.0.1:9"))
    put_file(place, archive, 1)
    published(archive)
    first = archive.path / "published/run-17"
    for i in range(25):
        (archive.path / f"published/name-{i}").write_text(first.read_text().replace("dht:run-17/", f"dht:name-{i}/"))
    log.unlink()
    place.mount(archive)
    lab.until(lambda: log.exists() and log.read_text().count("get") >= 9, 30, "others were looked for, and again")
    assert log.read_text().count("put") < 45
    lab.until(lambda: log.read_text().count("put") > 50, 30, "all are in the table")


def test_names_that_are_none_are_refused(place):
    done = lab.ecfs("fetch", "--dht", "run-17", place.path / "fetched", check=False)
    assert done.returncode == 2 and "dht:NAME/KEY/NETWORK/NODES" in done.stderr
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none")
    for name in ("a/b", ".a", ""):
        assert lab.ecfs("export", "--publish", name, archive.path, "/file", check=False).returncode == 2


def test_without_the_program_it_is_said(place):
    env = {**os.environ, "ECFS_LOCATE_HELPER": "/nonexistent/ecfs-locate"}
    capability = "dht:a/" + 42 * "A" + "A/00000001/127.0.0.1:1"
    done = lab.ecfs("locate", capability, check=False, env=env)
    assert done.returncode == 1 and "install it (package ecfs-locate)" in done.stderr
