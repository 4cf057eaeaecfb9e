"""What programs cost on the lines to the endpoints, and what they do not wait for."""
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
EXPANSION = 6 / 4  # of rs:4+2
COPIES = 3  # that small files are stored as with the same tolerance


class World:
    """A mount of sshd processes behind proxies, which count what goes up and slow it down."""

    def __init__(self, place):
        endpoints = [place.behind_proxy(name) for name in lab.NAMES]
        self.proxies = [endpoint.proxy for endpoint in endpoints]
        self.archive = place.archive(endpoints)
        # Every upload is a file of its own, and with this they all stay.
        self.archive.configure("archive", deletion_grace="365d")
        self.mount = place.mount(self.archive)

    def tell(self, *words):
        for proxy in self.proxies:
            proxy.tell(*words)

    def sent(self):
        """Bytes on the lines to the servers, the SSH protocol's own included."""
        return sum(proxy.status()["up"] for proxy in self.proxies)

    def stripes(self):
        """Sizes of all that was ever stored."""
        return [lab.size_of(path) for endpoint in self.archive.endpoints for path in lab.stripe_files(endpoint)]

    def store(self):
        self.archive.await_stored()


@pytest.fixture(scope="module")
def world(module_place):
    return World(module_place)


@pytest.fixture
def here(world):
    """An empty directory on the mount, and lines without limits."""
    yield Path(tempfile.mkdtemp(dir=world.mount.path))
    world.tell("throttle", 0)


def write(world, here, script):
    """Runs a script; how many bytes went to the endpoints until all was stored, and in how many of stripes."""
    sent, stripes = world.sent(), sum(world.stripes())
    lab.run("bash", "-euc", script, cwd=here, timeout=300)
    world.store()
    return world.sent() - sent, sum(world.stripes()) - stripes


@pytest.mark.slow
def test_lines_of_a_thousand_processes_cost_twice_their_bytes_at_most(world, here):
    """Small files are stored as copies, in records of whole KiB; what a stripe has beside its content is told apart by a
    file of one byte."""
    write(world, here, "printf x > one")
    overhead, known = max(world.stripes()), len(world.stripes())
    _, stripes = write(world, here, "{ for i in $(seq 1000); do /bin/echo $i; done; } > file")
    lab.forget_mounts()
    assert (here / "file").read_text() == "".join(f"{i}\n" for i in range(1, 1001))
    n_stripes = len(world.stripes()) - known
    assert n_stripes <= 10 * COPIES
    n_uploads = 10
    assert stripes - n_stripes * overhead <= (2 * os.stat(here / "file").st_size + n_uploads * 1100) * COPIES


PIECE = "head -c 64K /dev/urandom | tee -a"


@pytest.mark.parametrize("script, n_pieces", [
    (f"{{ for i in $(seq 1000); do {PIECE} $PLAIN; done; }} > file", 1000),
    (f"for i in $(seq 300); do {PIECE} $PLAIN >> file; done", 300)], ids=["one-opening", "each-opens"])
@pytest.mark.slow
def test_appending_processes_cost_twice_their_bytes_at_most(world, here, tmp_path, script, n_pieces):
    plain = tmp_path / "plain"
    sent, _ = write(world, here, script.replace("$PLAIN", str(plain)))
    lab.forget_mounts()
    assert lab.digest(here / "file") == lab.digest(plain)
    size = n_pieces * 64 * KIB
    print(f"{sent / size / EXPANSION:.2f} times its bytes")
    assert os.stat(here / "file").st_size == size
    assert sent <= 2 * size * EXPANSION * 1.04  # headers and tags of stripes, and those of SSH


ISLANDS = [3 * MIB, 500 * MIB + 12_288, 700 * MIB, 1024 * MIB - 256 * KIB]
SPARSE_COPIES = ["cp --sparse=auto {} sparse", "rsync -S {} sparse", "tar -C $(dirname {}) -Scf - sparse | tar -xf -"]


@pytest.mark.parametrize("command", SPARSE_COPIES)
@pytest.mark.slow
def test_sparse_file_of_a_gigabyte_costs_what_it_holds(world, here, tmp_path, command):
    plain, path, out = tmp_path / "sparse", here / "sparse", tmp_path / "out"
    with open(plain, "wb") as file:
        file.truncate(1024 * MIB)
        for i, offset in enumerate(ISLANDS):
            os.pwrite(file.fileno(), bytes([i + 1]) * 256 * KIB, offset)
    sent, stripes = write(world, here, command.format(plain))
    assert stripes < MIB * EXPANSION * 1.1
    assert sent < MIB * EXPANSION * 1.25
    lab.forget_mounts()
    assert data_of(path) == [(offset, 256 * KIB) for offset in ISLANDS]
    lab.run("cp", path, out)
    assert data_of(out) == data_of(path)
    lab.run("cmp", out, plain)


def data_of(path):
    """Where a file has data, and how much."""
    found, end = [], 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while end < size:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            found.append((start, end - start))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_killed_cp_returns_at_once_and_nothing_closed_is_lost(world, here, tmp_path, number):
    expected = {name: lab.write_pattern(tmp_path / name, size, size) for name, size in [("one", 8 * MIB), ("two", 64 * MIB)]}
    lab.run("cp", tmp_path / "one", here)
    world.tell("throttle", 100 * KIB)
    before = world.sent()
    process = subprocess.Popen(["cp", tmp_path / "two", here])
    lab.until(lambda: world.sent() > before + MIB, 60, "cp waits for its upload")
    process.send_signal(number)
    assert process.wait(60) == -number
    lab.run("ls", "-l", here)
    assert os.getxattr(here / "two", "user.ecfs.state").startswith(b"staged"), "cp waited until all was sent, which takes minutes"
    world.tell("throttle", 0)
    world.store()
    lab.forget_mounts()
    assert {name: lab.digest(here / name) for name in expected} == expected
