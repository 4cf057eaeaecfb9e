"""Many readers and writers at once while lines stall, are cut, crawl and flip bits: nothing wrong is read, nothing
closed is lost, memory stays within its bound, and all of it ends.

ECFS_SOAK_S says for how many seconds: 5, or minutes where there is time. ECFS_SEED chooses others of the troubles.
"""
import errno
import json
import os
import random
import threading
import time

import lab
import pytest

SECONDS = float(os.environ.get("ECFS_SOAK_S", 5))
SEED = int(os.environ.get("ECFS_SEED", 1))
MIB = 1 << 20
N_WRITERS = N_READERS = 16
SIZES = [1, 5000, 300_000, MIB, 3 * MIB, 9 * MIB]
N_FILES = 6  # of each writer, then it replaces and removes its own
TRANSFER_MIB = 32
REST_MIB = 160  # of the mount beside transfers: requests of the kernel, stacks, catalog, libraries
TROUBLES = {"stall": ["stall"], "cut": ["cut"], "crawl": ["throttle", 20_000], "far": ["delay", 150],
            "flip up": ["corrupt", "up", "chance", 1e-6], "flip down": ["corrupt", "down", "chance", 1e-6]}
GOOD_LINE = [["resume"], ["throttle", 0], ["delay", 0], ["corrupt", "up", "off"], ["corrupt", "down", "off"]]


class File:
    """A file and what is in it. Its lock is held while it is changed, and while it is read."""

    def __init__(self, path):
        self.path, self.lock, self.seed, self.size = path, threading.Lock(), 0, None

    def content(self):
        return random.Random(self.seed).randbytes(self.size)


class Soak:
    def __init__(self, place):
        endpoints = [place.behind_proxy(name) for name in lab.NAMES]
        self.proxies = [endpoint.proxy for endpoint in endpoints]
        self.archive = place.archive(endpoints, "rs:4+2", lab.AS_USERS)
        self.archive.configure("archive", transfer_memory=f"{TRANSFER_MIB}M")
        self.mount = place.mount(self.archive)
        self.files = [[File(self.mount.path / f"{writer}-{i}") for i in range(N_FILES)] for writer in range(N_WRITERS)]
        self.over = threading.Event()
        self.wrong = []  # list.append () needs no lock
        self.n_read = self.n_written = self.n_refused = 0

    def write(self, writer):
        choice = random.Random(SEED * 1000 + writer)
        while not self.over.is_set():
            file = choice.choice(self.files[writer])
            with file.lock:
                if file.size is not None and choice.random() < 0.2:
                    file.path.unlink()
                    file.size = None
                    continue
                file.seed, file.size = choice.getrandbits(32), choice.choice(SIZES)
                self.store(file)
            self.n_written += 1

    def store(self, file):
        """A close that fails for want of endpoints keeps what was written, and it is tried again behind."""
        try:
            with open(file.path, "wb", buffering=0) as stream:
                content = memoryview(file.content())
                while content:
                    content = content[stream.write(content[:MIB]):]
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.n_refused += 1

    def read(self, reader):
        choice = random.Random(-SEED * 1000 - reader - 1)
        while not self.over.is_set():
            file = choice.choice(choice.choice(self.files))
            if not file.lock.acquire(blocking=False):
                continue
            try:
                if file.size is not None:
                    self.check(file, choice)
            finally:
                file.lock.release()

    def check(self, file, choice):
        begin = choice.choice([0, choice.randrange(file.size)])
        with open(file.path, "rb", buffering=0) as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.lseek(stream.fileno(), begin, os.SEEK_SET)
            found = bytearray()
            while piece := stream.read(MIB):
                found += piece
        if found != file.content()[begin:]:
            self.wrong.append(f"{file.path.name} from {begin}: {len(found)} bytes that are not those written")
        self.n_read += 1

    def run(self, work, number):
        try:
            work(number)
        except Exception as error:  # whatever it is, the test has to tell it
            self.wrong.append(f"{work.__name__} {number}: {error!r}")
            self.over.set()

    def up(self):
        return all(each["connected"] and each["state"] == "active" for each in self.archive.json("status")["endpoints"])

    def trouble(self, seconds):
        """At most two lines have trouble at a time, which is what the code survives."""
        choice = random.Random(SEED)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over.is_set():
            chosen = choice.sample(self.proxies, 2)
            for proxy in chosen:
                proxy.tell(*TROUBLES[choice.choice(list(TROUBLES))])
            self.over.wait(choice.uniform(0.2, 3))
            for proxy in chosen:
                for words in GOOD_LINE:
                    proxy.tell(*words)
            lab.until(self.up, 120, "all endpoints are back", pause=0.2)


def is_sanitized():
    options = json.loads((lab.BUILD / "meson-info/intro-buildoptions.json").read_text())
    return next(option["value"] for option in options if option["name"] == "b_sanitize") != "none"


@pytest.mark.slow
def test_readers_and_writers_in_trouble(place):
    soak = Soak(place)
    threads = [threading.Thread(target=soak.run, args=(soak.write, i)) for i in range(N_WRITERS)]
    threads += [threading.Thread(target=soak.run, args=(soak.read, i)) for i in range(N_READERS)]
    with lab.Watch(soak.mount) as watch:
        for thread in threads:
            thread.start()
        try:
            soak.trouble(SECONDS)
        finally:
            soak.over.set()
            for thread in threads:
                thread.join(300)
    print(f"seed {SEED}: {soak.n_written} files written, {soak.n_refused} closes refused, {soak.n_read} read; "
          f"the mount had {watch.peak >> 20} MiB at most")
    assert not [thread for thread in threads if thread.is_alive()], "somebody waits for ever"
    assert not soak.wrong, "\n".join(soak.wrong)
    assert is_sanitized() or watch.peak < (TRANSFER_MIB + REST_MIB) * MIB
    soak.archive.await_stored()
    lab.forget_mounts()
    choice = random.Random(0)
    for file in (file for files in soak.files for file in files if file.size is not None):
        soak.check(file, choice)
    assert not soak.wrong, "\n".join(soak.wrong)
    assert soak.n_written > N_WRITERS and soak.n_read > N_READERS
    soak.mount.umount()
