"""A real tree over six sshd with rs:4+2, while servers die and come back under a mount that stays.

ECFS_TREE_FILES says how many real files there are at least. The tests share one mount and run in this order.
"""
import concurrent.futures
import errno
import hashlib
import os
import re

import lab
import pytest

pytestmark = pytest.mark.long

FILES = int(os.environ.get("ECFS_TREE_FILES", 1200))
DEADLINE = 60  # seconds until a read that cannot be had has failed, also on a busy machine


class World:
    """Six sshd, an archive over them, its mount, and the tree that goes in."""

    def __init__(self, place):
        self.source = place.path / "source"
        lab.real_tree(self.source, FILES)
        lab.add_oddities(self.source)
        self.servers = {name: place.sshd(name) for name in lab.NAMES}
        self.archive = place.archive(list(self.servers.values()), "rs:4+2", lab.AS_USERS)
        self.mount = place.mount(self.archive)
        self.facts = lab.describe_tree(self.source)

    def kill(self, *names):
        for name in names:
            self.servers[name].kill()

    def start(self, *names):
        for name in names:
            self.servers[name].start()

    def all_active(self):
        return all(endpoint["state"] == "active" for endpoint in self.archive.json("status")["endpoints"])

    def check(self, directory):
        """Everything is right in a copy, read from the endpoints."""
        lab.forget_mounts()
        lab.run("diff", "-r", "--no-dereference", self.source, self.mount.path / directory, timeout=900)
        lab.assert_same_tree(self.facts, lab.describe_tree(self.mount.path / directory))


@pytest.fixture(scope="module")
def world(module_place):
    return World(module_place)


@pytest.fixture(autouse=True)
def all_servers_back(world):
    yield
    world.start(*(name for name, server in world.servers.items() if server.process is None))
    lab.until(world.all_active, 180, "the mount has found out that all servers are back")


def transferred(text):
    return int(re.search(r"Number of regular files transferred: ([\d,]+)", text)[1].replace(",", ""))


def rsync(world, timeout=900):
    return transferred(lab.run("rsync", "-aHX", "--stats", f"{world.source}/", f"{world.mount.path}/rsync/",
                               timeout=timeout).stdout)


def readable(path):
    try:
        lab.digest(path)
        return True
    except OSError:
        return False


def test_cp_a_brings_the_tree_in(world):
    assert sum(facts.get("size") is not None for facts in world.facts.values()) >= FILES
    lab.run("cp", "-a", world.source, world.mount.path / "cp", timeout=900)
    world.check("cp")


def test_rsync_brings_the_tree_in_and_a_second_one_transfers_nothing(world):
    assert rsync(world) >= FILES
    assert rsync(world) == 0
    world.check("rsync")


@pytest.mark.parametrize("pair", [("amber", "birch"), ("cedar", "fjord"), ("delta", "ember")], ids="+".join)
@pytest.mark.slow
def test_two_killed_servers_do_not_show(world, pair):
    world.kill(*pair)
    world.check("cp")
    assert rsync(world) == 0


def test_servers_killed_while_reading_do_not_show(world):
    """One in the middle of a file, with others being read at the same time, and one in the middle of the tree."""
    lab.forget_mounts()
    big = "odd/size-9000001"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        reading = pool.submit(lab.describe_tree, world.mount.path / "rsync")
        with open(world.mount.path / "cp" / big, "rb") as file:
            found = hashlib.blake2b(file.read(3_000_000), digest_size=16)
            world.kill("birch")
            found.update(file.read())
        assert found.hexdigest() == world.facts[big]["digest"]
        world.kill("ember")
        lab.assert_same_tree(world.facts, reading.result(900))


def test_servers_suspended_while_reading_do_not_show(world):
    """They keep their connections and never answer again: what a cut cable looks like."""
    lab.forget_mounts()
    world.servers["amber"].suspend()
    world.servers["delta"].suspend()
    try:
        lab.run("cmp", world.source / "odd/size-9000001", world.mount.path / "cp/odd/size-9000001", timeout=DEADLINE)
    finally:
        world.servers["amber"].resume()
        world.servers["delta"].resume()


def test_three_killed_servers_give_eio_in_time_and_names_still_work(world):
    dead = ["amber", "cedar", "ember"]
    world.kill(*dead)
    lab.forget_mounts()
    path = world.mount.path / "cp/odd/size-9000001"
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        readings = [pool.submit(lab.digest, path) for _ in range(20)]
        names = lab.run("ls", "-lR", world.mount.path / "cp/odd", timeout=DEADLINE).stdout
        assert "size-9000001" in names
        for reading in readings:
            with pytest.raises(OSError) as caught:
                reading.result(DEADLINE)
            assert caught.value.errno == errno.EIO
    lab.until(lambda: all(name in world.mount.text() for name in dead), 60, "the mount names them")
    world.start(*dead)
    lab.until(lambda: readable(path), 120, "reads work again without remounting")
    world.check("cp")


def test_three_servers_killed_while_reading_never_give_wrong_bytes(world):
    lab.forget_mounts()
    wrong, failed = [], 0
    world.kill("birch", "cedar")
    for number, (relative, facts) in enumerate(sorted(world.facts.items())):
        if number == 200:
            world.kill("delta")
        if number > 260:
            break
        if "digest" in facts:
            try:
                if lab.digest(world.mount.path / "cp" / relative) != facts["digest"]:
                    wrong.append(relative)
            except OSError as error:
                assert error.errno == errno.EIO
                failed += 1
    assert not wrong


def test_writing_goes_on_with_one_server_gone(world):
    world.kill("fjord")
    expected = lab.write_pattern(world.mount.path / "written", 10 << 20, 3)
    world.start("fjord")
    lab.until(world.all_active, 180, "fjord is back")
    world.kill("amber")
    lab.forget_mounts()
    assert lab.digest(world.mount.path / "written") == expected
    world.start("amber")
    world.archive.await_stored()
    lab.until(world.all_active, 180, "amber is back")
    assert os.getxattr(world.mount.path / "written", "user.ecfs.state").startswith(b"full 6/6")


def test_rm_r_and_umount_end_well(world):
    lab.run("rm", "-r", world.mount.path / "rsync", timeout=300)
    assert sorted(os.listdir(world.mount.path)) == ["cp", "written"]
    world.mount.umount()
    world.mount.start()
    world.check("cp")
