"""statfs tells what fits: against filling real file systems of a fixed size."""
import errno
import os
import subprocess

import lab
import pytest

MIB = 1 << 20
FILE = 2 * MIB


class Disk(lab.Directory):
    """A file:// endpoint on a tmpfs of its own."""

    def __init__(self, directory, name, mib):
        super().__init__(directory / name, "root")
        self.name, self.mount = name, directory / name
        done = lab.run("mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", self.mount, check=False)
        if done.returncode != 0:
            pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")


@pytest.fixture
def disks(place):
    """Makes endpoints of these sizes in MiB; their file systems are taken away at the end."""
    made = []

    def make(*sizes):
        for number, mib in enumerate(sizes):
            made.append(Disk(place.path / "disks", f"disk{number}", mib))
        return made
    if not lab.ROOT:
        pytest.skip("only root mounts file systems of a fixed size")
    yield make
    for mount in place.mounts:
        mount.kill()
    for disk in made:
        lab.run("umount", "-l", disk.mount, check=False)


def free_bytes(mount):
    found = os.statvfs(mount.path)
    return found.f_bavail * found.f_frsize


def known_free_bytes(mount):
    """What statfs says once all endpoints have told their room."""
    last = [0, 0]

    def steady():
        last.append(free_bytes(mount))
        return last[-1] > 0 and last[-1] == last[-6 if len(last) > 6 else 0]
    lab.until(steady, 20, "statfs tells how much is free")
    return last[-1]


def is_full(mount, path):
    """Whether it is stored in full; on a busy machine some of that may come after close."""
    def told():
        return os.getxattr(path, "user.ecfs.state").startswith(b"full")
    if not told():
        lab.ecfs("wait", mount.archive.path, check=False, timeout=60)
    return told()


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


CASES = {
    "equal": ("rs:4+2", [64] * 6, {}),
    "one is small": ("rs:4+2", [64, 64, 24, 64, 64, 64], {}),
    "spares of different sizes": ("rs:2+1", [96, 16, 48, 24, 80], {}),
    "zones": ("rs:2+1", [32, 32, 64, 48, 48], {"disk0": "a", "disk1": "a", "disk2": "b", "disk3": "c", "disk4": "c"}),
}


@pytest.mark.parametrize("case", CASES)
def test_statfs_foretells_what_fits(place, disks, case):
    code, sizes, zones = CASES[case]
    archive = place.archive(disks(*sizes), code)
    for name, zone in zones.items():
        archive.configure(f"endpoint {name}", zone=zone)
    mount = place.mount(archive)
    foretold = known_free_bytes(mount)
    written = fill(mount)
    print(f"{case}: foretold {foretold / MIB:.0f} MiB, found {written / MIB:.0f} MiB")
    assert abs(written - foretold) <= 0.04 * foretold + 2 * FILE, (written / MIB, foretold / MIB)
    assert free_bytes(mount) <= 0.04 * foretold + 2 * FILE


def test_figures_follow_what_is_written_and_removed(place, disks):
    archive = place.archive(disks(*[64] * 6))
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    before = known_free_bytes(mount)
    total = os.statvfs(mount.path).f_blocks * 4096
    for number in range(20):
        lab.write_pattern(mount.path / f"file-{number}", FILE, number)
    found = os.statvfs(mount.path)  # at once, without asking anybody
    assert abs(before - free_bytes(mount) - 20 * FILE) < 8 * MIB
    assert abs((found.f_blocks - found.f_bfree) * 4096 - 20 * FILE) < 4096, "used is what is stored"
    assert abs(found.f_blocks * 4096 - total) < 8 * MIB
    assert found.f_files - found.f_ffree == 21 and found.f_ffree > 1000 and found.f_namemax == 255
    for number in range(20):
        (mount.path / f"file-{number}").unlink()
    lab.until(lambda: free_bytes(mount) > before - 4 * MIB, 60, "room is given back")


def test_endpoints_on_one_file_system_are_counted_once(place, disks):
    disk = disks(120)[0]
    archive = place.archive([lab.Directory(disk.mount / "shared", name) for name in lab.NAMES])
    mount = place.mount(archive)
    assert abs(known_free_bytes(mount) - 120 * MIB * 4 / 6) < 4 * MIB


def test_sftp_accounts_on_one_file_system_are_counted_once(place, disks):
    disk = disks(120)[0]
    servers = [place.sshd(name) for name in lab.NAMES]
    for server in servers:
        server.root = disk.mount / server.name
    mount = place.mount(place.archive(servers))
    found = os.statvfs(disk.mount)
    if found.f_fsid == 0:
        pytest.skip("tmpfs has no identity here, and SFTP tells nothing else")
    assert abs(known_free_bytes(mount) - 120 * MIB * 4 / 6) < 4 * MIB


def test_accounts_that_cannot_tell_count_as_large(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    for server in servers:
        server.subsystem = "internal-sftp -P statvfs"
        server.restart()
    mount = place.mount(place.archive(servers))
    assert known_free_bytes(mount) > 3 << 50  # a PiB each, of which four of six are content
    lab.write_pattern(mount.path / "file", FILE, 1)


def test_who_cannot_take_stripes_does_not_count(place, disks):
    archive = place.archive(disks(*[64] * 6))
    mount = place.mount(archive)
    whole = known_free_bytes(mount)
    archive["disk1"].kill()
    lab.write_pattern(mount.path / "file", FILE, 1)  # five of six are enough for a commit
    lab.until(lambda: whole - 8 * MIB < free_bytes(mount) < whole, 30, "five of six take files as well")
    archive["disk2"].kill()
    with pytest.raises(OSError):
        lab.write_pattern(mount.path / "refused", FILE, 2)
    lab.until(lambda: free_bytes(mount) == 0, 30, "with four no file is taken")
    for name in ["disk1", "disk2"]:
        archive[name].start()
    lab.until(lambda: lab.ecfs("wait", archive.path, check=False).returncode == 0, 90, "what lacked stripes is stored")
    lab.until(lambda: free_bytes(mount) > whole - 12 * MIB, 60, "they are back")


def test_reading_only_has_figures_too(place, archive):
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", FILE, 1)
    mount.umount()
    mount.options = ("-o", "ro")
    mount.start()
    assert known_free_bytes(mount) > 0
    found = os.statvfs(mount.path)
    assert (found.f_blocks - found.f_bfree) * 4096 == FILE


def test_endpoint_that_hangs_holds_up_no_statfs(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    archive = place.archive(servers)
    mount = place.mount(archive)
    known_free_bytes(mount)
    servers[0].suspend()
    try:
        for _ in range(20):
            done = subprocess.run(["stat", "-f", mount.path], capture_output=True, timeout=2)
            assert done.returncode == 0
    finally:
        servers[0].resume()
