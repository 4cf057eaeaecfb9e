"""Bad days: endpoints that take every byte and then fail, lie, or lose what they had."""
import errno
import os
from pathlib import Path

import lab
import pytest

pytestmark = pytest.mark.nightly

MIB = 1 << 20
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")


class World:
    """Six sshd whose sftp-server fails as it is told, and a mount."""

    def __init__(self, place):
        if not SFTP_SERVER.exists():
            pytest.skip(f"there is no {SFTP_SERVER}: install openssh-sftp-server")
        self.place, self.wanted = place, {}
        self.servers = {name: place.sshd(name) for name in lab.NAMES}
        for server in self.servers.values():
            server.subsystem = (f"/usr/bin/env LD_PRELOAD={lab.BUILD}/tests/lab/lab-fault.so "
                                f"ECFS_LAB_FAULT={self.fault_file(server.name)} {SFTP_SERVER}")
            server.restart()
        self.archive = place.archive(list(self.servers.values()))
        # Reading around damage is the subject: it is to stay.
        self.archive.configure("archive", deletion_grace="0", repair="off")
        self.mount = place.mount(self.archive)

    def fault_file(self, name):
        return self.place.path / f"fault-{name}"

    def fail(self, names, *words):
        for name in names:
            self.fault_file(name).write_text(" ".join(map(str, words)))

    def write(self, name, size):
        self.wanted[name] = os.urandom(size)
        (self.mount.path / name).write_bytes(self.wanted[name])

    def state(self, name):
        return os.getxattr(self.mount.path / name, "user.ecfs.state").decode()

    def stripe(self, endpoint, name):
        """The file at an endpoint that holds its stripe of a file."""
        info = self.archive.json("info", f"/{name}")
        instance = next(stripe["instance"] for stripe in info["stripes"] if stripe.get("endpoint") == endpoint)
        return next(path for path in lab.stripe_files(self.servers[endpoint]) if path.name.endswith(instance))

    def cut(self, good, endpoint, name):
        """Takes bytes away from a stripe, half unless the name of the file says more, and keeps the stripe in good."""
        stripe = self.stripe(endpoint, name)
        good[stripe] = stripe.read_bytes()
        size = len(good[stripe])
        os.truncate(stripe, {"later-all": 0, "later-end": size - 5000}.get(name, size // 2))

    def said_last(self, name):
        """What the mount last said about a file."""
        return next((line for line in reversed(self.mount.text().splitlines()) if f"/{name}" in line), "")

    def wait(self):
        return lab.ecfs("wait", self.archive.path, check=False, timeout=120)

    def check(self):
        """Everything is read from the endpoints as it was written."""
        lab.forget_mounts()
        for name, data in self.wanted.items():
            assert (self.mount.path / name).read_bytes() == data, name

    def has_no_more(self, endpoint):
        """Nothing lies at an endpoint but a stripe of each file, whatever its failures left there."""
        root = self.servers[endpoint].root
        return len(lab.stripe_files(self.servers[endpoint])) == len(self.wanted) and not lab.files_below(root / "incoming")


@pytest.fixture(scope="module")
def world(module_place):
    return World(module_place)


@pytest.fixture(autouse=True)
def good_servers_after(world):
    yield
    world.fail(lab.NAMES)
    lab.until(lambda: all(endpoint["state"] == "active" for endpoint in world.archive.json("status")["endpoints"]), 180,
              "all endpoints work again")


FAULTS = [("fsync", errno.EIO), ("fsync", errno.ENOSPC), ("link", errno.EIO), ("link", errno.EACCES), ("exit-before",),
          ("exit-after",)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "-".join(map(str, fault)))
def test_one_server_that_fails_at_the_end_is_named_and_made_up_for(world, fault):
    name = "-".join(map(str, fault))
    world.fail(["amber"], *fault)
    world.write(name, 3 * MIB)
    assert world.state(name).startswith("quorum 5/6")
    said = world.wait()
    assert said.returncode == 1 and "endpoint amber" in said.stderr and name in said.stderr, said
    assert "exists" not in said.stderr, "nothing did"
    world.check()
    world.fail(["amber"])
    world.archive.await_stored()
    assert world.state(name).startswith("full 6/6")
    world.check()
    with open(world.mount.path / name, "rb"):  # which reads other stripes
        lab.until(lambda: world.has_no_more("amber"), 60, "what the failures left is removed")


def test_close_fails_where_all_servers_fail_and_nothing_is_lost(world):
    world.fail(lab.NAMES, "fsync", errno.EIO)
    with pytest.raises(OSError) as caught:
        world.write("failed", 3 * MIB)
    assert caught.value.errno == errno.EIO
    last = lab.until(lambda: world.said_last("failed"), 30, "the mount says so")
    assert "cannot be stored" in last and sum(f"endpoint {name}: " in last for name in lab.NAMES) >= 2, last
    assert world.state("failed").startswith("staged")
    world.check()
    world.fail(lab.NAMES)
    world.archive.await_stored()
    assert world.state("failed").startswith("full 6/6")
    world.check()


@pytest.mark.parametrize("lie", ["truncate", "corrupt"])
def test_a_server_that_lies_is_found_out_by_readers(world, lie):
    """Where close did not notice: the bytes are right, and where they cannot be had it is named with the others."""
    world.fail(["birch"], lie)
    world.write(lie, 3 * MIB)
    world.fail(["birch"])
    world.archive.await_stored()
    world.check()
    good = {}
    for endpoint in ["ember", "fjord"]:
        world.cut(good, endpoint, lie)
    done = world.archive.get(f"/{lie}", world.place.path, check=False)
    if done.returncode == 0:
        assert (world.place.path / lie).read_bytes() == world.wanted[lie]
    else:
        assert all(f"endpoint {name}: " in done.stderr for name in ["birch", "ember", "fjord"]), done
    for stripe, data in good.items():
        stripe.write_bytes(data)
    world.check()


def test_stripes_that_lose_bytes_later_are_read_around(world):
    """All, half or the end of two stripes of a file each; with a third it is an error that names them, no wrong bytes."""
    names = ["later-all", "later-half", "later-end"]
    for name in names:
        world.write(name, 3 * MIB)
    world.archive.await_stored()
    good = {}
    for endpoint in ["cedar", "delta"]:
        for name in names:
            world.cut(good, endpoint, name)
    world.check()
    for name in names:
        world.cut(good, "fjord", name)
        done = world.archive.get(f"/{name}", world.place.path, check=False)
        assert done.returncode == 1 and name in done.stderr, done
        assert all(f"endpoint {endpoint}: " in done.stderr for endpoint in ["cedar", "delta", "fjord"]), done
        assert not (world.place.path / name).exists()
    for stripe, data in good.items():
        stripe.write_bytes(data)
    world.check()


def test_deleted_files_that_are_open_keep_only_their_own_stripes(place, archive):
    """More of them than maintenance takes at a time."""
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    data = os.urandom(20_000)
    paths = [mount.path / name for name in ["closed", *(f"open-{number}" for number in range(70))]]
    for path in paths:
        path.write_bytes(data)
    archive.await_stored()
    amber = archive["amber"]
    assert len(lab.stripe_files(amber)) == 71
    files = [open(path, "rb") for path in paths[1:]]
    for path in paths:
        path.unlink()
    lab.until(lambda: len(lab.stripe_files(amber)) == 70, 60, "the stripe of the closed file is gone")
    lab.forget_mounts()
    assert all(file.read() == data for file in files)
    for file in files:
        file.close()
    lab.until(lambda: not lab.stripe_files(amber), 60, "all stripes are gone")
