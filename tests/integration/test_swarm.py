"""What is shared with other machines is shown, stopped, begun again and dropped; and served without a mount."""
import json
import signal
import subprocess
import time

import lab
import pytest
from test_peers import SIZE, Swarm

pytestmark = pytest.mark.as_users


def swarm_of(archive, action="stats"):
    return json.loads(lab.ecfs("swarm", action, "--json", archive.path).stdout)


def forget(swarm, number):
    """What a mount has in its cache."""
    lab.ecfs("cache", "--drop", swarm.mounts[number].archive.path)


@pytest.mark.slow
def test_serving_is_seen_stopped_and_begun_again(place):
    swarm = Swarm(place, 2)
    here, there = swarm.archive, swarm.followers[0].archive
    swarm.warm(1)
    swarm.read(0)
    [taker] = swarm_of(there, "list")["takers"]
    assert taker["address"] == f"127.0.0.1:{swarm.ports[0]}" and taker["connections"] > 0
    assert taker["served_bytes"] == swarm_of(there)["served_bytes"] == swarm_of(here)["fetched_bytes"] >= SIZE
    assert f"taker  127.0.0.1:{swarm.ports[0]}" in lab.ecfs("swarm", "list", there.path).stdout
    assert "served     at 127.0.0.1" in lab.ecfs("swarm", "stats", swarm.mounts[1].path).stdout
    lab.ecfs("swarm", "stop", there.path)
    assert "listen" not in swarm_of(there) and swarm_of(there)["connections"] == 0
    forget(swarm, 0)
    swarm.read(0)  # from the endpoints
    assert swarm_of(there)["served_bytes"] == taker["served_bytes"]
    for _ in range(2):  # the second time it does already
        lab.ecfs("swarm", "start", there.path)
    lab.until(lambda: swarm_of(here, "list")["list"][0]["state"] == "up", 30, "it is back")
    forget(swarm, 0)
    swarm.read(0)
    assert swarm_of(there)["served_bytes"] >= taker["served_bytes"] + SIZE


@pytest.mark.slow
def test_one_that_was_dropped_gives_and_gets_nothing(place):
    swarm = Swarm(place, 2)
    here, there = swarm.archive, swarm.followers[0].archive
    swarm.warm(1)
    other = f"127.0.0.1:{swarm.ports[1]}"
    assert lab.ecfs("swarm", "drop", here.path, "127.0.0.1:1", check=False).returncode == 1
    lab.ecfs("swarm", "drop", here.path, other)
    assert swarm_of(here, "list")["list"][0]["state"] == "dropped"
    given = swarm_of(there)["served_bytes"], swarm_of(here)["served_bytes"]
    lab.until(lambda: swarm.is_warm(0) or swarm.read(0), 30, "what endpoints gave is in the cache")
    forget(swarm, 1)
    swarm.read(1)
    assert given == (swarm_of(there)["served_bytes"], swarm_of(here)["served_bytes"])


@pytest.mark.slow
def test_one_that_was_just_mounted_anew_is_dropped_as_well(place):
    """It has another name by then, and has asked before anybody here has greeted it."""
    swarm = Swarm(place, 2)
    swarm.warm(0)
    there = swarm.followers[0]
    there.mount.umount()
    there.mount.start()
    lab.until(lambda: swarm_of(there.archive, "list")["list"][0]["state"] == "up", 30, "it knows who gives")
    lab.ecfs("swarm", "drop", swarm.archive.path, f"127.0.0.1:{swarm.ports[1]}")
    time.sleep(2)
    given = swarm_of(swarm.archive)["served_bytes"]
    forget(swarm, 1)
    swarm.read(1)
    assert swarm_of(swarm.archive)["served_bytes"] == given


@pytest.mark.slow
def test_one_that_serves_no_more_is_dropped_as_well(place):
    """It does not answer a greeting, but still asks."""
    swarm = Swarm(place, 2)
    swarm.warm(0)
    lab.ecfs("swarm", "stop", swarm.followers[0].archive.path)
    lab.ecfs("swarm", "drop", swarm.archive.path, f"127.0.0.1:{swarm.ports[1]}")
    time.sleep(3)
    given = swarm_of(swarm.archive)["served_bytes"]
    forget(swarm, 1)
    swarm.read(1)
    assert swarm_of(swarm.archive)["served_bytes"] == given


@pytest.mark.slow
def test_one_that_only_takes_can_be_dropped(place):
    swarm = Swarm(place, 2)
    swarm.warm(0)
    follower = swarm.followers[0]
    follower.mount.umount()
    follower.archive.configure("archive", peer_listen="none")
    follower.mount.start()
    swarm.read(1)
    [taker] = [each for each in swarm_of(swarm.archive, "list")["takers"] if each["served_bytes"] >= SIZE]
    assert taker["address"] != f"127.0.0.1:{swarm.ports[1]}" and not taker["dropped"]
    lab.ecfs("swarm", "drop", swarm.archive.path, taker["address"])
    assert "dropped" in lab.ecfs("swarm", "list", swarm.archive.path).stdout
    given = swarm_of(swarm.archive)["served_bytes"]
    forget(swarm, 1)
    swarm.read(1)  # from the endpoints
    assert swarm_of(swarm.archive)["served_bytes"] == given


@pytest.mark.slow
def test_a_seeder_needs_no_mount(place):
    swarm = Swarm(place, 2)
    seeder = swarm.followers[0].archive
    refused = lab.ecfs("swarm", "serve", seeder.path, check=False)
    assert refused.returncode == 1 and "mount serves peers" in refused.stderr
    swarm.warm(1)
    swarm.mounts[1].umount()
    assert "not mounted" in lab.ecfs("swarm", "stop", seeder.path, check=False).stderr
    process = subprocess.Popen([lab.PROGRAM, "swarm", "serve", "--json", seeder.path], stdout=subprocess.PIPE, text=True)
    try:
        swarm.writer.umount()
        swarm.writer.start()  # who met the mount at that address knows that for half a minute
        lab.until(lambda: swarm.state()["list"][0]["seeder"], 30, "it serves")
        forget(swarm, 0)
        swarm.read(0)
    finally:
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=30)
    assert json.loads(told)["served_bytes"] >= SIZE and process.returncode == 0


def test_without_peers_that_is_said(place):
    archive = place.archive(place.directories(), "rs:4+2", lab.AS_USERS)
    place.mount(archive)
    for action in ("list", "stop"):
        done = lab.ecfs("swarm", action, archive.path, check=False)
        assert done.returncode == 1 and "set peers or peer_listen" in done.stderr
