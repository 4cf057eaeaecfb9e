"""Remotes of rclone in an archive: what is killed in the middle of uploads, remotes that go, and what is told of those that
will not have us."""
import contextlib
import os
import signal
import stat

import lab
import pytest
import rclone
import s3
from test_recover import recover

LARGE = 48_000_000  # a stripe of rs:4+2 is more than is collected before it is sent
OURS = ("stripes/", "journal/", "snapshots/", "keys/", "markers/", "salvage/", "ecfs-")


@pytest.fixture
def remotes(place):
    return rclone.Remotes(place.path / "rclone")


@pytest.fixture
def store(place):
    server = s3.S3(place.path / "s3")
    place.servers.append(server)
    server.start()
    return server


def contents(root):
    return {str(path.relative_to(root)): lab.digest(path) for path in root.rglob("*") if path.is_file()}


def servers(remotes):
    return {pid: words for pid, words in rclone.processes(remotes).items() if "restic" in words}


def is_torn(endpoint):
    """Whether a stripe is there in part, as it is while it is sent."""
    return any(lab.size_of(path) > 1_000_000 for name, path in endpoint.files().items() if name.startswith("stripes/"))


@pytest.mark.slow
def test_what_is_killed_in_the_middle_of_uploads_costs_no_byte(place, remotes, store):
    endpoints = [remotes.disk("amber"), remotes.disk("birch"), remotes.box(place.sshd("cedar")), remotes.box(place.sshd("delta")),
                 remotes.bucket(store, "ember"), remotes.bucket(store, "fjord")]
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    for i in range(12):
        lab.write_pattern(mount.path / f"small {i}", 3000 * i, seed=i)
    archive.await_stored()
    with contextlib.suppress(OSError), open(mount.path / "torn", "wb") as file:
        file.write(bytes(LARGE))
        lab.until(lambda: is_torn(endpoints[0]) and is_torn(endpoints[2]), 60, "stripes of a file that is written are sent")
        mount.kill()
    lab.until(lambda: not rclone.processes(remotes), 30, "no rclone outlives the mount")
    mount.start()
    with open(mount.path / "large", "wb") as file:
        file.write(os.urandom(LARGE))
        lab.until(lambda: is_torn(endpoints[1]), 60, "stripes of a file that is written are sent")
        for pid in [*servers(remotes)][:2]:  # as many as may be lost
            os.kill(pid, signal.SIGKILL)
    archive.await_stored()
    expected = contents(mount.path)
    assert len(expected) >= 13
    lab.forget_mounts()
    assert contents(mount.path) == expected
    lab.until(lambda: lab.ecfs("fsck", "-n", archive.path, check=False).returncode == 0, 120,
              "what the killed have left is removed, and what they had not stored is stored", pause=1)
    mount.umount()
    lab.until(lambda: not rclone.processes(remotes), 30, "no rclone outlives the mount")
    for endpoint in endpoints:
        assert all(name.startswith(OURS) for name in endpoint.files()), endpoint.files()
    for endpoint in endpoints[1:3]:
        endpoint.kill()
    again, _ = recover(place, [endpoints[0], *endpoints[3:]])
    mount = place.mount(again, "-o", "ro")
    assert contents(mount.path) == expected
    mount.umount()


@pytest.mark.slow
def test_a_remote_that_goes_is_down_and_nothing_is_made_in_its_place(place, remotes):
    endpoints = [*(remotes.disk(name) for name in ["amber", "birch", "cedar"]), *place.directories(["delta"])]
    archive = place.archive(endpoints, "rs:2+2")
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", 3_000_000)
    archive.await_stored()
    endpoints[0].kill()
    lab.write_pattern(mount.path / "other", 3_000_000, seed=1)
    lab.until(lambda: {one["name"]: one["state"] for one in archive.json("status")["endpoints"]}["amber"] == "down", 60,
              "the remote is down")
    assert not endpoints[0].root.exists()
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == digest
    endpoints[0].start()
    archive.await_stored()
    mount.umount()


@pytest.mark.slow
def test_a_marker_that_was_replaced_in_part_is_read_from_its_spare(place, remotes):
    endpoints = [remotes.disk(name) for name in ["amber", "birch"]]
    archive = place.archive(endpoints, "copies:2")
    archive.put(place.path / "rclone" / "rclone.conf", "/file")
    marker = endpoints[0].root / "ecfs-endpoint"
    text = marker.read_text()
    assert text.endswith("# whole\n") and not (endpoints[0].root / "incoming/ecfs-endpoint.next").exists()
    marker.write_text(text[:40])
    assert lab.ecfs("endpoint", "test", archive.path, "amber", check=False).returncode == 1
    spare = endpoints[0].root / "incoming/ecfs-endpoint.next"
    spare.parent.mkdir(exist_ok=True)
    spare.write_text(text.replace("format", "other"))  # of another time
    assert lab.ecfs("endpoint", "test", archive.path, "amber", check=False).returncode == 1
    spare.write_text(text)
    assert lab.ecfs("endpoint", "test", archive.path, "amber").returncode == 0
    mount = place.mount(archive)
    lab.until(lambda: marker.read_text().endswith("# whole\n") and not spare.exists(), 60, "the marker is whole again")
    mount.umount()


def refused(endpoint, *words, **options):
    done = lab.ecfs("endpoint", "test", endpoint, check=False, **options)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ecfs endpoint test: ")]
    assert done.returncode == 1 and len(lines) == 1 and all(word in lines[0] for word in words), done.stderr
    return done


@pytest.mark.slow
def test_what_is_wrong_is_told(place, remotes, store):
    disk = remotes.disk("amber")
    refused(disk.endpoint(), "does not exist", "rclone mkdir")
    disk.root.mkdir()
    told = lab.ecfs("endpoint", "test", disk.endpoint()).stdout
    assert "rclone/v" in told and f"remote amber:{disk.root}" in told and "marker     none" in told
    (disk.root / "file").touch()
    refused(f"x=rclone://amber/{disk.root}/file,config={remotes.config}", "is a file")
    refused(f"x=rclone://nobody/x,config={remotes.config}", "does not know the remote nobody", "rclone config")
    refused(disk.endpoint(rclone="/nowhere/rclone"), "no program /nowhere/rclone", "install rclone")
    locked = remotes.directory / "locked.conf"
    locked.write_text("# Encrypted rclone configuration File\n\nRCLONE_ENCRYPT_V0:\n" + "A" * 96 + "\n")
    refused(f"x=rclone://amber/x,config={locked}", "is encrypted", "RCLONE_CONFIG_PASS")
    refused(disk.endpoint(rclone="cat"), "cat")
    bucket = remotes.bucket(store, "ember")
    bucket.root.mkdir()
    remotes.config.write_text(remotes.config.read_text().replace("access_key_id = AKIA", "access_key_id = AKIB"))
    done = refused(bucket.endpoint(), "ember")
    assert "secret/of" not in done.stdout + done.stderr


def test_a_version_that_is_too_old_says_so(remotes):
    disk = remotes.disk("amber")
    disk.root.mkdir(parents=True)
    old = remotes.directory / "old"
    old.write_text('#!/bin/sh\necho "Error: unknown flag: --cache-objects" >&2\necho "Usage:" >&2\necho \'Use "rclone [command] --help"\' >&2\nexit 1\n')
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    refused(disk.endpoint(rclone=old), "too old", "1.60")


@pytest.mark.slow
def test_the_users_settings_are_respected_but_not_those_that_would_lie(remotes):
    disk = remotes.disk("amber")
    disk.root.mkdir(parents=True)
    url = f"x=rclone://amber/{disk.root}"
    clean = {"HOME": str(remotes.directory / "home"), "PATH": os.environ["PATH"]}
    refused(url, "does not know the remote amber", env=clean)
    env = clean | {"RCLONE_CONFIG": str(remotes.config), "RCLONE_DRY_RUN": "true", "RCLONE_VERBOSE": "2", "RCLONE_EXCLUDE": "*",
                   "RCLONE_LOG_FILE": "/dev/null"}
    assert lab.ecfs("endpoint", "test", url, env=env).returncode == 0
    home = remotes.directory / "home/.config/rclone"
    home.mkdir(parents=True, exist_ok=True)
    (home / "rclone.conf").write_text(remotes.config.read_text())
    assert lab.ecfs("endpoint", "test", url, env=clean).returncode == 0
