"""statfs tells what fits: against filling real file systems of a fixed size."""
import errno
import os
import subprocess

import lab
import pytest

MIB = 1 << 20
FILE = 2 * MIB
PATIENCE = 120  # seconds; the mount asks for room every 15


def on_disks(place, sizes):
    """file:// endpoints disk0, disk1, …, each below a small disk of so many MiB."""
    made = []
    for number, mib in enumerate(sizes):
        disk = place.disk(place.path / f"small{number}", mib * MIB)
        made.append(lab.Directory(disk.path, f"disk{number}"))
    return made


def free_bytes(mount):
    found = os.statvfs(mount.path)
    return found.f_bavail * found.f_frsize


def known_free_bytes(mount, about):
    """What statfs says once all endpoints have told their room: about so much."""
    lab.until(lambda: abs(free_bytes(mount) - about) < 0.03 * about + MIB, PATIENCE, f"statfs tells about {about >> 20} MiB")
    return free_bytes(mount)


def is_full(mount, path):
    """Whether it can be stored in full; on a busy machine some of that may come after close."""
    def stored():
        return os.getxattr(path, "user.ecfs.state").startswith(b"full")

    def decided():
        waited = stored() or lab.ecfs("wait", mount.archive.path, check=False)
        return stored() or (waited and any(facts["state"] == "full" for facts in mount.archive.json("status")["endpoints"]))
    lab.until(decided, PATIENCE, f"{path.name} is stored, or there is no room for it", pause=0.2)
    return stored()


def fill(mount):
    """Writes files until one is not stored in full; the bytes of those that were."""
    for number in range(10_000):
        path = mount.path / f"file-{number}"
        try:
            lab.write_pattern(path, FILE, number)
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO), error
            return number * FILE
        if not is_full(mount, path):
            return number * FILE
    raise AssertionError("it never becomes full")


CASES = {  # code, MiB of each disk, zones, MiB of content that this gives
    "equal": ("rs:4+2", [64] * 6, {}, 256),
    "one is small": ("rs:4+2", [64, 64, 24, 64, 64, 64], {}, 96),
    "spares of different sizes": ("rs:2+1", [96, 16, 48, 24, 80], {}, 168),
    "zones": ("rs:2+1", [32, 32, 64, 48, 48], {"disk0": "a", "disk1": "a", "disk2": "b", "disk3": "c", "disk4": "c"}, 128),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_statfs_foretells_what_fits(place, case):
    code, sizes, zones, mib = CASES[case]
    archive = place.archive(on_disks(place, sizes), code)
    for name, zone in zones.items():
        archive.configure(f"endpoint {name}", zone=zone)
    mount = place.mount(archive)
    foretold = known_free_bytes(mount, mib * MIB)
    written = fill(mount)
    print(f"{case}: foretold {foretold / MIB:.0f} MiB, found {written / MIB:.0f} MiB")
    assert abs(written - foretold) <= 0.04 * foretold + 2 * FILE, (written / MIB, foretold / MIB)
    lab.until(lambda: free_bytes(mount) <= 0.04 * foretold + 2 * FILE, PATIENCE, "statfs tells that it is full")


@pytest.mark.slow
def test_figures_follow_what_is_written_and_removed(place):
    archive = place.archive(on_disks(place, [64] * 6))
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    before = known_free_bytes(mount, 256 * MIB)
    total = os.statvfs(mount.path).f_blocks * 4096
    for number in range(20):
        lab.write_pattern(mount.path / f"file-{number}", FILE, number)
    lab.until(lambda: abs(before - free_bytes(mount) - 20 * FILE) < 8 * MIB, PATIENCE, "there is less room")
    found = os.statvfs(mount.path)
    assert abs((found.f_blocks - found.f_bfree) * 4096 - 20 * FILE) < 4096, "used is what is stored"
    assert abs(found.f_blocks * 4096 - total) < 8 * MIB
    assert found.f_files - found.f_ffree == 21 and found.f_ffree > 1000 and found.f_namemax == 255
    for number in range(20):
        (mount.path / f"file-{number}").unlink()
    lab.until(lambda: free_bytes(mount) > before - 4 * MIB, PATIENCE, "room is given back")


def test_endpoints_on_one_file_system_are_counted_once(place):
    disk = place.disk(place.path / "small", 120 * MIB)
    archive = place.archive([lab.Directory(disk.path, name) for name in lab.NAMES])
    mount = place.mount(archive)
    known_free_bytes(mount, 80 * MIB)


@pytest.mark.slow
def test_sftp_accounts_on_one_file_system_are_counted_once(place):
    disk = place.disk(place.path / "small", 120 * MIB)
    servers = [place.sshd(name) for name in lab.NAMES]
    for server in servers:
        server.root = disk.path / server.name
    mount = place.mount(place.archive(servers))
    found = os.statvfs(disk.path)
    if found.f_fsid == 0:
        pytest.skip("tmpfs has no identity here, and SFTP tells nothing else")
    known_free_bytes(mount, 80 * MIB)


@pytest.mark.slow
def test_accounts_that_cannot_tell_count_as_large(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    for server in servers:
        server.subsystem = "internal-sftp -P statvfs"
        server.restart()
    mount = place.mount(place.archive(servers))
    lab.until(lambda: free_bytes(mount) > 3 << 50, PATIENCE, "they count as a PiB each, of which four of six are content")
    lab.write_pattern(mount.path / "file", FILE, 1)


def bytes_of_stripes(endpoint):
    return sum(path.stat().st_size for path in lab.stripe_files(endpoint))


@pytest.mark.slow
def test_no_more_than_the_capacity_is_stored(place):
    """It is full then, and others take what comes; what was deleted gives room."""
    archive = place.archive(place.directories([*lab.NAMES, "spare"]))
    for name in [*lab.NAMES, "spare"]:  # rooms decide by lot who gets how much
        archive.configure(f"endpoint {name}", capacity="8M" if name == "spare" else "34M")
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    paths = [mount.path / f"file-{number}" for number in range(32)]
    lab.until(lambda: 0 < facts_of(archive, "spare").get("free_bytes", 0) <= 8 * MIB, PATIENCE, "its room is known")
    digests = [lab.write_pattern(path, 2 * FILE, number) for number, path in enumerate(paths)]
    archive.await_stored()
    stored = bytes_of_stripes(archive["spare"])
    assert 3 * MIB < stored <= 8 * MIB, stored
    assert facts_of(archive, "spare")["capacity_bytes"] == 8 * MIB
    for path, digest in zip(paths, digests):
        assert lab.digest(path) == digest
        path.unlink()
    lab.until(lambda: facts_of(archive, "spare")["free_bytes"] > 7 * MIB, PATIENCE, "its room is given back")
    lab.write_pattern(mount.path / "later", 2 * FILE, 1)
    archive.await_stored()


def facts_of(archive, name):
    return next(facts for facts in archive.json("status")["endpoints"] if facts["name"] == name)


@pytest.mark.slow
def test_capacities_foretell_what_fits(place):
    archive = place.archive(place.directories(lab.NAMES))
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", capacity="30M")
    mount = place.mount(archive)
    known_free_bytes(mount, 120 * MIB)
    assert abs(fill(mount) - 120 * MIB) < 10 * MIB
    assert max(bytes_of_stripes(archive[name]) for name in lab.NAMES) <= 30 * MIB


def test_who_cannot_take_stripes_does_not_count(place):
    archive = place.archive(on_disks(place, [64] * 6))
    mount = place.mount(archive)
    whole = known_free_bytes(mount, 256 * MIB)
    archive["disk1"].kill()
    lab.write_pattern(mount.path / "file", FILE, 1)  # five of six are enough for a commit
    lab.until(lambda: whole - 8 * MIB < free_bytes(mount) < whole, PATIENCE, "five of six take files as well")
    archive["disk2"].kill()
    with pytest.raises(OSError):
        lab.write_pattern(mount.path / "refused", FILE, 2)
    lab.until(lambda: free_bytes(mount) == 0, PATIENCE, "with four no file is taken")
    for name in ["disk1", "disk2"]:
        archive[name].start()
    archive.await_stored()
    lab.until(lambda: free_bytes(mount) > whole - 12 * MIB, PATIENCE, "they are back")


def test_reading_only_has_figures_too(place, archive):
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", FILE, 1)
    mount.umount()
    mount.options = ("-o", "ro")
    mount.start()
    lab.until(lambda: free_bytes(mount) > 0, PATIENCE, "endpoints have told their room")
    found = os.statvfs(mount.path)
    assert (found.f_blocks - found.f_bfree) * 4096 == FILE


@pytest.mark.slow
def test_endpoint_that_hangs_holds_up_no_statfs(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    archive = place.archive(servers)
    archive.configure(f"endpoint {servers[0].name}", stall_timeout="10m")
    mount = place.mount(archive)
    lab.until(lambda: free_bytes(mount) > 0, PATIENCE, "endpoints have told their room")
    servers[0].suspend()
    try:
        for _ in range(20):
            done = subprocess.run(["stat", "-f", mount.path], capture_output=True, timeout=8)
            assert done.returncode == 0
    finally:
        servers[0].resume()
