"""kill -9 of the mount at random moments of a copy: what was closed without error is there and whole.

ECFS_CRASHES says how often; ECFS_SEED=N for other files and moments than those of the day.
"""
import os
import random
import threading
import time

import lab
import pytest
from steps import dice_of_the_day

pytestmark = pytest.mark.long

CRASHES = int(os.environ.get("ECFS_CRASHES", 12))
MIB = 1 << 20


def content(number, size):
    return random.Random(number).randbytes(size)


def file_of(numbers):
    """Sizes around all that is special: nothing, small files, a few segments."""
    return numbers.choice([0, 100, 16_384, 16_385, 200_000, 2 * MIB, 3 * MIB + 1, 7 * MIB])


class Copy(threading.Thread):
    """Writes files until the mount is gone; knows which were closed without error, and what each was to hold."""

    def __init__(self, directory, numbers, first):
        super().__init__()
        self.directory, self.numbers, self.next = directory, numbers, first
        self.wanted, self.closed = {}, []

    def run(self):
        try:
            while True:
                self.copy_one(f"file-{self.next}", self.next)
                self.next += 1
        except OSError:
            pass  # the mount has been killed

    def copy_one(self, name, number):
        data = memoryview(content(number, file_of(self.numbers)))
        self.wanted[name] = bytes(data)
        file = os.open(self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for offset in range(0, len(data), 300_000):
                os.write(file, data[offset:offset + 300_000])
        finally:
            os.close(file)  # raises where the commit failed
        self.closed.append(name)


def check(mount, wanted, closed):
    """Every closed file is whole; no other file is visible with anything but all its bytes."""
    visible = set(os.listdir(mount.path / "copy"))
    missing = [name for name in closed if name not in visible]
    assert not missing, f"closed without error and gone: {missing}"
    damaged = [name for name in sorted(visible) if (mount.path / "copy" / name).read_bytes() != wanted[name]]
    assert not damaged, f"visible and not whole: {damaged}, of these closed: {set(damaged) & set(closed)}"


@pytest.mark.as_users
@pytest.mark.parametrize("commit", ["sync", "async"])
@pytest.mark.slow
def test_killed_mount_loses_nothing_that_was_closed(place, archive, commit):
    archive.configure("archive", commit=commit)
    numbers = dice_of_the_day()
    mount = place.mount(archive)
    (mount.path / "copy").mkdir()
    (mount.path / "copy/first").write_bytes(b"")  # closed, so that the directory is durable too
    wanted, closed, first = {"first": b""}, ["first"], 0
    for _ in range((CRASHES + 1) // 2):
        copy = Copy(mount.path / "copy", numbers, first)
        copy.start()
        time.sleep(numbers.uniform(0, 1))  # the random moment, no wait for anything
        mount.kill()
        copy.join(120)
        assert not copy.is_alive()
        wanted |= copy.wanted
        closed += copy.closed
        first = copy.next + 1
        mount.start()
        check(mount, wanted, closed)
    lab.forget_mounts()
    check(mount, wanted, closed)
    archive.await_stored()
    archive["amber"].kill()
    archive["fjord"].kill()
    lab.forget_mounts()
    check(mount, wanted, closed)


@pytest.mark.as_users
@pytest.mark.slow
def test_replaced_content_is_old_or_new_after_a_crash(place, archive):
    numbers = dice_of_the_day()
    mount = place.mount(archive)
    path = mount.path / "file"
    generation, size = 0, 3 * MIB
    path.write_bytes(content(generation, size))
    for _ in range(max(CRASHES // 4, 2)):
        reached = [generation]

        def replace(number=generation, reached=reached):
            try:
                while True:
                    number += 1
                    with open(path, "wb", buffering=0) as file:
                        file.write(content(number, size))
                    reached.append(number)
            except OSError:
                pass
        writer = threading.Thread(target=replace)
        writer.start()
        time.sleep(numbers.uniform(0.05, 1))
        mount.kill()
        writer.join(120)
        mount.start()
        found = path.read_bytes()
        allowed = {number: content(number, size) for number in (reached[-1], reached[-1] + 1)}
        assert found in allowed.values(), f"neither generation {reached[-1]} nor the next"
        generation = next(number for number, data in allowed.items() if data == found)
