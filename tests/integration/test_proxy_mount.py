"""Bad lines between the mount and its sshd: slow, stalled, cut and corrupting ones never give wrong bytes."""
import hashlib

import lab
import pytest

MIB = 1 << 20


class World:
    def __init__(self, place):
        endpoints = [place.behind_proxy(name) for name in lab.NAMES]
        self.proxies = {endpoint.name: endpoint.proxy for endpoint in endpoints}
        self.archive = place.archive(endpoints)
        self.mount = place.mount(self.archive)
        self.expected = lab.write_pattern(self.mount.path / "file", 40 * MIB, 1)
        self.archive.await_stored()

    def tell(self, names, *words):
        for name in names:
            self.proxies[name].tell(*words)

    def check(self):
        """The file is read from the endpoints as it was written."""
        lab.forget_mounts()
        assert lab.digest(self.mount.path / "file") == self.expected


@pytest.fixture(scope="module")
def world(module_place):
    return World(module_place)


@pytest.fixture(autouse=True)
def good_lines_after(world):
    yield
    for words in [("delay", 0), ("throttle", 0), ("resume",), ("accept",), ("corrupt", "up", "off"),
                  ("corrupt", "down", "off")]:
        world.tell(lab.NAMES, *words)


def test_distant_servers_deliver(world):
    world.tell(lab.NAMES, "delay", 50)
    world.check()


def test_two_stalled_lines_do_not_show(world):
    world.check()
    world.tell(["birch", "delta"], "stall")
    world.check()


def test_lines_cut_while_reading_do_no_harm(world):
    world.tell(lab.NAMES, "throttle", 4 * MIB)
    lab.forget_mounts()
    with open(world.mount.path / "file", "rb") as file:
        found = hashlib.blake2b(digest_size=16)
        for i in range(40):
            found.update(file.read(MIB))
            if i % 8 == 7:
                world.tell([lab.NAMES[i // 8]], "cut")
        assert found.hexdigest() == world.expected


def test_refused_connections_are_made_again_when_they_can(world):
    world.tell(["amber", "cedar"], "cut")
    world.tell(["amber", "cedar"], "refuse")
    world.check()
    world.tell(["amber", "cedar"], "accept")
    world.tell(["birch", "fjord"], "cut")
    world.tell(["birch", "fjord"], "refuse")
    lab.until(lambda: world.proxies["amber"].status()["connections"] > 0, 60, "amber is connected again")
    lab.until(lambda: world.proxies["cedar"].status()["connections"] > 0, 60, "cedar is connected again")
    world.check()


def test_bits_flipped_on_two_lines_do_not_reach_the_reader(world):
    for i, name in enumerate(["cedar", "ember"]):
        world.tell([name], "corrupt", "down", "at", 1_000_000 * (i + 1))
    world.check()
    world.tell(["cedar", "ember"], "corrupt", "down", "chance", 0.00001)
    world.check()


def test_slow_line_does_not_hold_up_ls(world):
    world.tell(lab.NAMES, "throttle", 20_000)
    lab.forget_mounts()
    with open(world.mount.path / "file", "rb", buffering=0) as file:
        lab.run("ls", "-l", world.mount.path, timeout=8)
        world.tell(lab.NAMES, "throttle", 0)
        assert len(file.read(MIB)) > 0
