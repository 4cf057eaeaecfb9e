"""Content under a key that is stored once more from its staged copy: in full again, and under another key."""
import contextlib
import os
import shutil
import sqlite3
import threading

import lab
import pytest
from keeper import LAGS_AFTER, Keeper, assert_one_content
from steps import CRASHES, dice_of_the_day

MIB = 1 << 20


@pytest.fixture
def archive(place):
    made = lab.Archive(place.path / "archive", place.directories())
    made.init("--key", "file")
    made.configure("archive", write_quorum="4")
    return made


def lose_stripes_of(endpoint):
    files = lab.stripe_files(endpoint)
    assert files
    for path in files:
        path.unlink()
    return files


def staged(archive):
    return [path for path in lab.files_below(archive.path / "staging") if path.name != ".ecfs-staging"]


def objects(archive):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog:
        return catalog.execute("SELECT uuid FROM objects").fetchall()


def n_down(archive):
    return sum(endpoint["state"] == "down" for endpoint in archive.json("status")["endpoints"])


def await_full(mount):
    lab.until(lambda: lab.ecfs("wait", mount.path, check=False).returncode == 0, 60, "all stripes are there")


@pytest.mark.parametrize("restarts", ["no", "umount", "kill"])
@pytest.mark.parametrize("object_max", ["1GiB", "4MiB"], ids=["one", "many"])
@pytest.mark.slow
def test_with_too_few_stripes_left_it_is_stored_anew(place, archive, object_max, restarts):
    archive.configure("archive", object_max=object_max)
    mount = place.mount(archive)
    away = archive.endpoints[4:]
    for endpoint in away:
        endpoint.kill()
    expected = lab.write_pattern(mount.path / "file", 9 * MIB + 77, 1)
    lab.ecfs("wait", "--quorum", mount.path)
    if restarts == "umount":
        mount.umount()
    elif restarts == "kill":
        mount.kill()
    lose_stripes_of(archive["amber"])
    for endpoint in away:
        endpoint.start()
    if restarts != "no":
        mount.start()
    await_full(mount)
    mount.umount()
    assert staged(archive) == [] and "stored anew" in mount.text(), mount.text()
    mount.start()
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected
    mount.umount()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0


def test_what_is_not_what_was_stored_does_not_take_its_place(place, archive):
    mount = place.mount(archive)
    away = archive.endpoints[4:]
    for endpoint in away:
        endpoint.kill()
    lab.write_pattern(mount.path / "file", 2 * MIB, 1)
    lab.ecfs("wait", "--quorum", mount.path)
    copy, = staged(archive)
    lab.flip(copy, MIB)
    lost = lose_stripes_of(archive["amber"])
    for endpoint in away:
        endpoint.start()
    lab.until(lambda: "the staged file is damaged" in lab.ecfs("wait", mount.path, check=False).stderr, 60, "it is refused")
    assert staged(archive) == [copy]
    lab.flip(copy, MIB)
    await_full(mount)
    assert not any(path.exists() for path in lost)


@pytest.mark.slow
def test_what_may_come_back_is_not_given_up_for_less(place):
    archive = lab.Archive(place.path / "archive", place.directories([*lab.NAMES, "grove", "haven"]))
    archive.init("--key", "file")
    archive.configure("archive", write_quorum="4")
    first, kept, later = archive.endpoints[:2], archive.endpoints[2:5], archive.endpoints[5:]
    mount = place.mount(archive)
    for endpoint in later:
        endpoint.kill()
    lab.until(lambda: n_down(archive) == 3, 60, "they are missed")
    expected = lab.write_pattern(mount.path / "file", 2 * MIB, 1)
    lab.ecfs("wait", mount.path, check=False)  # else what is late comes after all
    old = objects(archive)
    for endpoint in first:
        endpoint.kill()
    lab.until(lambda: n_down(archive) == 5, 60, "they are missed")
    later[0].start()
    told = "stored anew from staging: too few endpoints"
    lab.until(lambda: told in lab.ecfs("wait", mount.path, check=False).stderr, 60, "four are fewer than the five it has")
    for endpoint in archive.endpoints:
        endpoint.start()
    await_full(mount)
    mount.umount()
    assert objects(archive) == old
    mount.start()
    assert lab.digest(mount.path / "file") == expected


# With endpoints that keep all they ever got


SIZE = 24 * MIB + 77


@pytest.fixture
def kept(place):
    made = lab.Archive(place.path / "archive", [Keeper(name) for name in lab.NAMES])
    place.servers += made.endpoints
    made.init("--key", "file")
    made.configure("archive", write_quorum="4", close_at="quorum", small_file="0")
    yield made
    for endpoint in made.endpoints:
        endpoint.flows.set()


def change(path, seed):
    """A byte of each block of 256 KiB, in place."""
    with open(path, "r+b") as file:
        for at in range(seed, SIZE, MIB // 4):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0x55]))


def objects_of(archive):
    return {upload.rpartition("/")[2].partition("-")[0] for endpoint in archive.endpoints for upload in endpoint.stripes()}


def lags(endpoint, n_before):
    """Whether an upload waits there that began after the first so many."""
    return any(len(body) > LAGS_AFTER for body in endpoint.kept[n_before:])


@pytest.mark.parametrize("ends", ["lives on", "killed"])
@pytest.mark.slow
def test_no_key_sees_two_contents_of_a_file_that_changes_while_stripes_lag(place, kept, ends):
    mount, late = place.mount(kept), kept.endpoints[4:]
    path = mount.path / "file"
    for round_ in range(3):
        for endpoint in late:
            endpoint.flows.clear()
        if round_ == 0:
            lab.write_pattern(path, SIZE, 1)
        else:
            change(path, 3 * round_)
        lab.ecfs("wait", "--quorum", mount.path)
        if ends == "killed":
            mount.kill()
            before = [len(endpoint.kept) for endpoint in late]
            mount.start()
            lab.until(lambda: all(lags(endpoint, n) for endpoint, n in zip(late, before)), 60, "what is left is on its way")
        lagging = [threading.Timer(pause, endpoint.flows.set) for pause, endpoint in zip([0, 0.02], late)]
        for timer in lagging:
            timer.start()
        with contextlib.suppress(OSError):
            change(path, 3 * round_ + 1)
        if ends == "killed":
            mount.kill()
            mount.start()
        for timer in lagging:
            timer.join()
        change(path, 3 * round_ + 2)
        await_full(mount)
    expected = lab.digest(path)
    n_objects, n_uploads = assert_one_content(kept.endpoints, SIZE)
    assert n_objects >= 6 and n_uploads >= 6 * n_objects - 12, (n_objects, n_uploads)
    mount.umount()
    mount.start()
    lab.forget_mounts()
    assert lab.digest(path) == expected


class Killer:
    """Kills the mount at the n-th change of stripes on endpoints; only counts them, where that is None."""

    def __init__(self, mount, step):
        self.mount, self.step, self.n, self.lock = mount, step, 0, threading.Lock()

    def __call__(self):
        with self.lock:
            self.n += 1
            if self.n == self.step:
                self.mount.process.kill()

    def has_killed(self):
        return self.step is not None and self.n >= self.step


@pytest.mark.long
@pytest.mark.slow
def test_killed_at_each_step_of_being_stored_anew_it_is_whole(place, kept):
    size = 3 * MIB + 77
    mount, late, backup = place.mount(kept), kept.endpoints[4:], place.path / "backup"
    for endpoint in late:
        endpoint.is_up = False
    expected = lab.write_pattern(mount.path / "file", size, 1)
    lab.ecfs("wait", "--quorum", mount.path)
    mount.kill()
    for endpoint in kept.endpoints:
        endpoint.is_up = True
    for path in kept.endpoints[0].stripes():
        del kept.endpoints[0].files[path]
    shutil.copytree(kept.path, backup, ignore=shutil.ignore_patterns("control.sock", "in-use"))
    files = [dict(endpoint.files) for endpoint in kept.endpoints]
    old = objects_of(kept)

    def store_anew(step):
        """The mount killed at that step, and what comes after it; how many steps there were."""
        killer = Killer(mount, step)
        for endpoint in kept.endpoints:
            endpoint.counts = killer
        with contextlib.suppress(AssertionError):  # it does not even begin to serve
            mount.start()
            lab.until(lambda: killer.has_killed() or lab.ecfs("wait", mount.path, check=False).returncode == 0, 60, "its end")
        mount.kill()
        for endpoint in kept.endpoints:
            endpoint.counts = None
        mount.start()
        await_full(mount)
        mount.umount()
        assert staged(kept) == [] and not old >= objects_of(kept)
        kept.get("/file", place.path / "got")
        assert lab.digest(place.path / "got") == expected
        os.remove(place.path / "got")
        shutil.rmtree(kept.path)
        shutil.copytree(backup, kept.path)
        for endpoint, before in zip(kept.endpoints, files):
            endpoint.files = dict(before)
        return killer.n

    n_steps = store_anew(None)
    assert n_steps >= 12, n_steps
    chosen = sorted({1, n_steps, *dice_of_the_day().sample(range(2, n_steps), min(CRASHES // 2, n_steps - 2))})
    for step in chosen:
        store_anew(step)
    n_objects, _ = assert_one_content(kept.endpoints, size)
    assert n_objects > len(chosen)
