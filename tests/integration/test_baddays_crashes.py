"""Bad days: the real programs killed at counted steps; the same command again must do what the first was to do.

A step is a call that changes what is below the archive directory or its endpoints (tests/crash/steps.h). ECFS_CRASHES
says at how many of them each script is killed, 20 unless told; with more than there are, at each, before and half-way;
ECFS_SEED=N, at others than usual.
"""
import json
import os
import signal
import subprocess
import threading

import catalogs
import lab
import pytest
from steps import Steps, points

pytestmark = pytest.mark.nightly


class Script:
    """A command on an archive of its own each time: three directories, or four where one is added."""

    def __init__(self, place):
        self.place = place
        self.number = 0

    def begin(self, n_endpoints=3):
        self.number += 1
        directory = self.place.path / f"run-{self.number}"
        directory.mkdir()
        endpoints = [lab.Directory(directory, name) for name in lab.NAMES[:n_endpoints]]
        self.archive = lab.Archive(directory / "archive", endpoints, "rs:2+1")
        self.steps = Steps(self.place, [directory])
        (directory / "source").write_bytes(os.urandom(100_000))
        self.source = directory / "source"

    def run(self, command, at=0, moment="before"):
        """The command with its steps counted; dies at one of them."""
        words = list(map(str, command()))
        done = lab.run(lab.BUILD / "tools/ecfs", *words, *catalogs.words(words), check=False,
                       env=self.steps.environment(at, moment))
        if self.steps.where() is None:
            assert done.returncode == 0, done
        else:
            assert done.returncode == -signal.SIGKILL, done

    def check_endpoints(self, names):
        """All are there, have their markers, and a file goes in and comes out."""
        done = lab.ecfs("endpoint", "test", self.archive.path)
        assert all(name in done.stdout for name in names), done
        self.archive.put(self.source, "/new")
        target = self.archive.path.parent / "target"
        target.mkdir()
        self.archive.get("/new", target)
        assert (target / "new").read_bytes() == self.source.read_bytes()
        for name in names:
            assert len([1 for endpoint in self.archive.endpoints if endpoint.name == name
                        and (endpoint.root / "ecfs-endpoint").exists()]) == 1


def kill_everywhere(script, prepare, command, check, done=None):
    """prepare, the command killed at a step, the command again, check: for many steps.

    done: what the second command may say, which fails because the first had done all.
    """
    script.begin()
    prepare()
    script.run(command)
    n_steps = script.steps.count()
    assert n_steps > 3, "the steps are not counted"
    for at, moment in points(n_steps):
        script.begin()
        prepare()
        script.run(command, at, moment)
        where = script.steps.where()
        try:
            again = lab.ecfs(*command(), lab.AS_USERS, check=False)
            assert again.returncode == 0 or (done and done in again.stderr), again
            check()
        except AssertionError as error:
            raise AssertionError(f"killed {where}: {error}") from error


def key_opens(script, *options):
    return lab.ecfs("key", "check", script.archive.path, *options, check=False).returncode == 0


@pytest.fixture
def script(place):
    return Script(place)


def test_a_killed_init_is_made_again(script):
    def command():
        given = [word for endpoint in script.archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        return ["init", script.archive.path, "--code", script.archive.code, *given]
    kill_everywhere(script, lambda: None, command, lambda: script.check_endpoints(lab.NAMES[:3]),
                    "is an archive already")


def test_a_killed_endpoint_add_is_made_again(script):
    def added():
        return lab.Directory(script.archive.path.parent, "delta")

    def check():
        script.archive.endpoints.append(added())
        script.check_endpoints(lab.NAMES[:4])
    kill_everywhere(script, lambda: script.archive.init(),
                    lambda: ["endpoint", "add", script.archive.path, added().endpoint()], check)


def test_a_killed_put_is_made_again(script):
    def prepare():
        script.archive.init()
        script.archive.configure("archive", deletion_grace="0")
        script.old = os.urandom(50_000)
        (script.archive.path.parent / "old").write_bytes(script.old)
        script.archive.put(script.archive.path.parent / "old", "/file")
        script.archive.put(script.archive.path.parent / "old", "/old")

    def check():
        target = script.archive.path.parent / "target"
        target.mkdir()
        script.archive.get("/file", "/old", target)
        assert (target / "file").read_bytes() == script.source.read_bytes()
        assert (target / "old").read_bytes() == script.old
        status = script.archive.json("status")
        assert status["staging"]["files"] == 0 and not status["interrupted"], status
    kill_everywhere(script, prepare, lambda: ["put", script.archive.path, script.source, "/file"], check)


class Load(threading.Thread):
    """Writes and replaces files until the mount is gone; knows what each closed file holds."""

    def __init__(self, directory, n_files):
        super().__init__()
        self.directory, self.n_files = directory, n_files
        self.closed, self.tried = {}, {}

    def run(self):
        try:
            for number in range(self.n_files):
                name = f"file-{number % 7}"
                self.tried[name] = os.urandom([300, 20_000, 200_000][number % 3])
                with open(self.directory / name, "wb", buffering=0) as file:
                    file.write(self.tried[name])
                self.closed[name] = self.tried[name]
        except OSError:
            pass  # the mount has been killed

    def check(self, mount):
        for name, data in self.closed.items():
            assert (mount.path / name).read_bytes() in (data, self.tried[name]), f"{name} is not what was closed"


def work_and_umount(script, place, monkeypatch, at, moment):
    """A mount under load that is unmounted; ends at a step of the mount. What was closed must be there afterwards."""
    script.begin()
    script.archive.init()
    script.archive.configure("archive", commit="async" if script.number % 2 else "sync")
    mount = lab.Mount(script.archive, script.archive.path.parent / "mnt")
    place.mounts.append(mount)
    with monkeypatch.context() as context:
        for name, value in script.steps.environment(at, moment).items():
            context.setenv(name, value)
        try:
            mount.start()
        except AssertionError:
            assert script.steps.where(), "the mount did not start, and was not killed"
    load = Load(mount.path, 20)
    if mount.mounted():  # as a dead one is, too
        load.start()
        load.join(120)
        assert not load.is_alive()
    if script.steps.where() is None:
        lab.ecfs("umount", mount.path, check=False)  # fails where the mount ends meanwhile
        lab.until(lambda: mount.process.poll() is not None, 120, "the mount has ended")
    where = script.steps.where()
    mount.kill()
    mount.start()
    try:
        load.check(mount)
        script.archive.await_stored()
        lab.detach(mount.path)
        mount.process.wait(120)
        mount.start()
        load.check(mount)
        mount.umount()
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        raise AssertionError(f"killed {where}: {error}") from error


def test_a_killed_mount_under_load_loses_nothing(script, place, monkeypatch):
    """Also where it is about to unmount."""
    work_and_umount(script, place, monkeypatch, 0, "before")
    n_steps = script.steps.count()
    for at, moment in points(n_steps):
        work_and_umount(script, place, monkeypatch, at, moment)


def test_a_killed_change_of_key_slots_loses_no_way_in(script):
    """Without its directory: what opened the key before opens it after each step, and the archive goes on."""
    def prepare():
        script.archive.init("--key", "split")
        script.archive.put(script.source, "/file")
        script.first = script.archive.path.parent / "first"
        script.new = script.archive.path.parent / "new-code"
        lab.ecfs("key", "add", script.archive.path, "--code", "--code-file", script.first)
        script.slot = slots(script)["code"]

    def check(*removed):
        assert key_opens(script) and (removed or key_opens(script, "--code-file", script.first))
        lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", script.archive.path, check=False)
        assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", script.archive.path, check=False).returncode == 0
        words = [word for endpoint in script.archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
        options = [] if removed else ["--code-file", script.first]
        again = script.archive.path.parent / "again"
        lab.ecfs("recover", again, "--force", *options, *words)
        assert lab.ecfs("cat", again, "/file", check=False).returncode == 0

    def add():
        """Also what the killed one has left opens, as it is."""
        assert key_opens(script) and key_opens(script, "--code-file", script.first)
        script.new.unlink(missing_ok=True)
        return ["key", "add", script.archive.path, "--code", "--code-file", script.new]

    def check_added():
        assert key_opens(script, "--code-file", script.new)
        check()

    def remove():
        assert key_opens(script)
        return ["key", "remove", script.archive.path, script.slot]
    kill_everywhere(script, prepare, add, check_added)
    kill_everywhere(script, prepare, remove, lambda: check("removed"), "there is no key slot")


def slots(script):
    listed = json.loads(lab.ecfs("key", "list", "--json", script.archive.path).stdout)["slots"]
    return {slot["kind"]: slot["id"] for slot in listed}
