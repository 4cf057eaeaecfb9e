"""PostgreSQL's server crashes at each step of what a mount does: nothing that was answered is lost, nothing is half done.

A step is what the mount sends to it at once (tests/lab/postgresql_wire.py). Each operation is done again and again with
the server gone at its first step, its second and so on, until it has no more.
"""
import os

import lab
import postgresql
import postgresql_wire
import pytest
from test_many_mounts import is_clean

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")]

STEPS_MOST = 80  # of one operation; more than that are others' in the background
FILES_MOST = 30
LARGE = 700_000


class World:
    """A mount, and what it must show: path → content, or None for a directory."""

    def __init__(self, place, cluster, mounts):
        self.place, self.wire = place, postgresql_wire.Wire(cluster)
        self.archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={self.wire.location}",
                                     "--set", f"catalog_mounts={mounts}", "--set", "deletion_grace=0")
        self.mount = place.mount(self.archive)
        self.known, self.number, self.n_crashes, self.n_refused = {}, 0, 0, 0

    def path(self, name):
        return self.mount.path / name

    def name(self, what):
        self.number += 1
        return f"{what}-{self.number}"

    def shown(self):
        return {str(path.relative_to(self.mount.path)): None if path.is_dir() else path.read_bytes()
                for path in self.mount.path.rglob("*")}

    def keep_few(self):
        if len(self.known) > FILES_MOST:
            for name, content in self.known.items():
                self.path(name).rmdir() if content is None else self.path(name).unlink()
            self.known = {}

    def made(self, what, content=b"as it was\n"):
        """The name of what an operation needs, done before."""
        name = self.name(what)
        self.path(name).write_bytes(content)
        self.known[name] = content
        return name

    def do(self, what, after, at, moment):
        """@what, with what is there afterwards: all of it where it succeeded, else all or nothing. Whether the server crashed."""
        self.wire.arm(at, moment)
        try:
            what()
            done = True
        except OSError:
            done = False
            self.n_refused += 1
        crashed = self.wire.disarm()
        if done:
            self.known = after[-1]
            self.compare()
        else:
            found = lab.until(self.look, 60, "names can be read again")
            assert found in [self.known, *after], [name for name in {**found, **self.known} if found.get(name, "absent") != self.known.get(name, "absent")]
            self.known = found
        return crashed

    def look(self):
        try:
            return self.shown()
        except OSError:
            return None

    def compare(self):
        found = self.shown()
        assert found == self.known, [name for name in {**found, **self.known}
                                     if found.get(name, "absent") != self.known.get(name, "absent")]

    def remount(self):
        """All that was synced is durable."""
        lab.run("sync", self.mount.path)
        self.mount.kill()
        self.mount.start()
        self.compare()


# Operations: what is to be done, prepared, and what may be there afterwards; the last is what must be there where it succeeded.

def write(world, size=5000):
    name, content = world.name("written"), os.urandom(size)
    return lambda: world.path(name).write_bytes(content), [{**world.known, name: b""}, {**world.known, name: content}]


def write_large(world):
    return write(world, LARGE)


def replace(world):
    name, content = world.made("replaced"), os.urandom(9000)
    return lambda: world.path(name).write_bytes(content), [{**world.known, name: b""}, {**world.known, name: content}]


def change_synced(world):
    name = world.made("synced", b"0123456789")

    def change():
        with open(world.path(name), "r+b", buffering=0) as file:
            file.seek(5)
            file.write(b"XY")
            os.fsync(file.fileno())
    return change, [{**world.known, name: b"01234XY789"}]


def make_directory(world):
    name = world.name("directory")
    return world.path(name).mkdir, [{**world.known, name: None}]


def rename_over(world):
    old, new = world.made("old", b"new content\n"), world.made("new")
    after = {**world.known, new: b"new content\n"}
    del after[old]
    return lambda: world.path(old).rename(world.path(new)), [after]


def link(world):
    old, new = world.made("linked"), world.name("link")
    return lambda: os.link(world.path(old), world.path(new)), [{**world.known, new: world.known[old]}]


def unlink(world):
    name = world.made("removed")
    return world.path(name).unlink, [{other: content for other, content in world.known.items() if other != name}]


def set_attributes(world):
    path = world.path(world.made("attributes"))

    def change():
        path.chmod(0o640)
        os.setxattr(path, "user.note", b"of it")
        os.utime(path, ns=(1, 2_000_000_000))
        found = path.stat()
        assert (found.st_mode & 0o777, found.st_mtime_ns, os.getxattr(path, "user.note")) == (0o640, 2_000_000_000, b"of it")
    return change, [world.known]


def look(world):
    return world.compare, [world.known]


def wait(world):
    """The journal is sent, and what was closed is stored in full."""
    world.made("waited")
    return lambda: lab.ecfs("wait", world.mount.path, check=False), [world.known]


OPERATIONS = [write, write_large, replace, change_synced, make_directory, rename_over, link, unlink, set_attributes, look, wait]


def crash_everywhere(world, operation):
    for moment in postgresql_wire.MOMENTS:
        for step in range(1, STEPS_MOST):
            world.keep_few()
            what, after = operation(world)
            if not world.do(what, after, step, moment):
                break
            world.n_crashes += 1
            print(f"{operation.__name__}: {moment} step {step}", flush=True)
    world.remount()


@pytest.fixture
def cluster():
    with postgresql.Cluster("fsync = on") as made:
        lab.logs["PostgreSQL"] = made.directory / "log"
        yield made


@pytest.mark.parametrize("mounts", ["one", "many"])
def test_server_crashes_at_each_step(place, cluster, mounts):
    world = World(place, cluster, mounts)
    try:
        for operation in OPERATIONS:
            before = world.n_crashes
            crash_everywhere(world, operation)
            print(f"{operation.__name__}: {world.n_crashes - before} crashes, {world.n_refused} refused", flush=True)
        assert world.n_crashes > 100
        world.archive.await_stored()
        world.mount.umount()
        is_clean(world.archive)
        again = lab.Archive(place.path / "again", world.archive.endpoints)
        words = [word for endpoint in world.archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        lab.ecfs("recover", again.path, "--force", *words)
        world.mount = place.mount(again)
        world.compare()
        world.mount.umount()
    finally:
        for mount in place.mounts:
            mount.kill()
        world.wire.close()
