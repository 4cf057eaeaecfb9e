"""Machines that read one archive get segments from each other: the right ones, and the endpoints give each once."""
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path

import lab
import pytest
from test_cache import hide, show
from test_follow import Follower

MIB = 1 << 20
SIZE = 24 * MIB + 4321
MOST = SIZE * 3 // 4  # comes from peers at least: where one is slow for once, an endpoint gives a segment

pytestmark = pytest.mark.as_users


class Swarm:
    """A writer and those that follow it, each with a cache of its own: as many machines."""

    def __init__(self, place, n, size=SIZE, endpoints=None, segment="1M", **settings):
        self.place, self.ports = place, [lab.free_port() for _ in range(n)]
        self.archive = place.archive(endpoints or place.directories(), "rs:4+2", "--set", f"segment_size={segment}", lab.AS_USERS)
        self.archive.configure("archive", **self.settings(0, **settings))
        self.writer = place.mount(self.archive)
        lab.write_pattern(self.writer.path / "file", size, 1)
        self.digest = lab.digest(self.writer.path / "file")
        lab.ecfs("wait", self.writer.path)
        self.followers = [Follower(place, self.endpoints_of(number)) for number in range(1, n)]
        for i, follower in enumerate(self.followers, 1):
            follower.mount.umount()
            follower.archive.configure("archive", **self.settings(i, **settings))
            follower.mount.start()
        lab.until(lambda: {peer["state"] for peer in self.state()["list"]} == {"up"}, 30, "all have met")
        self.mounts = [self.writer, *(follower.mount for follower in self.followers)]

    def endpoints_of(self, number):  # pylint: disable=unused-argument
        return self.archive.endpoints

    def settings(self, number, **more):
        peers = ", ".join(f"127.0.0.1:{each}" for each in self.ports)
        return {"cache_size": "200M", "peers": peers, "peer_listen": f"127.0.0.1:{self.ports[number]}"} | more

    def read(self, number):
        """Not from the kernel's memory."""
        lab.drop_caches()
        assert lab.digest(self.mounts[number].path / "file") == self.digest

    def warm(self, number):
        self.read(number)
        lab.until(lambda: self.is_warm(number), 30, "it is in the cache")

    def is_warm(self, number):
        return os.getxattr(self.mounts[number].path / "file", "user.ecfs.cached").endswith(b", 100%")

    def state(self):
        """Of the writer."""
        return self.archive.json("status")["peers"]

    def received(self):
        return self.archive.json("status")["reads"]["received_bytes"]


def cells(archive):
    return next((archive.path / "cache").glob("*/cells"))


@pytest.mark.slow
def test_what_one_has_another_gets(place):
    swarm = Swarm(place, 3)
    swarm.warm(1)
    swarm.read(0)
    assert swarm.state()["fetched_bytes"] >= MOST and swarm.received() < SIZE / 10
    assert {peer["state"] for peer in swarm.state()["list"]} == {"up"}
    assert "2 of 2 up" in lab.ecfs("status", swarm.archive.path).stdout
    hide(swarm.archive, but=1)  # which tells what is right, and has too little for anything else
    swarm.read(2)
    swarm.followers[0].mount.umount()
    swarm.followers[1].mount.umount()
    shutil.rmtree(swarm.followers[1].archive.path / "cache")
    show(swarm.archive, but=1)
    before = swarm.state()["served_bytes"]
    lab.ecfs("get", swarm.followers[1].archive.path, "/file", place.path / "fetched")  # as a verb does, without a mount
    assert lab.digest(place.path / "fetched") == swarm.digest
    assert swarm.state()["served_bytes"] > before


@pytest.mark.slow
def test_a_follower_tells_of_its_peers(place):
    """Its status is asked for without a word to its mount."""
    swarm = Swarm(place, 2)
    swarm.warm(0)
    swarm.read(1)
    follower = swarm.followers[0].archive
    lab.until(lambda: follower.json("status")["peers"]["fetched_bytes"] >= MOST, 30, "it is told what came from them")
    [peer] = follower.json("status")["peers"]["list"]  # itself is none
    assert peer["state"] == "up" and peer["address"].endswith(f":{swarm.ports[0]}")
    assert "1 of 1 up" in lab.ecfs("status", follower.path).stdout


@pytest.mark.slow
def test_one_that_lies_is_named_and_not_asked_again(place):
    swarm = Swarm(place, 2)
    swarm.warm(1)
    for path in (swarm.followers[0].archive.path / "cache").rglob("cells/*/*"):
        if path.is_file():
            with open(path, "r+b") as cell:
                cell.seek(100)
                byte = cell.read(1)
                cell.seek(100)
                cell.write(bytes([byte[0] ^ 1]))
    swarm.read(0)
    [peer] = swarm.state()["list"]
    assert peer["state"] == "lies" and peer["fetched_bytes"] == 0
    assert swarm.writer.text().count(f"peer {peer['address']}: segment") == 1
    assert f"{peer['address']}: it gave wrong bytes" in lab.ecfs("status", swarm.archive.path).stdout
    lab.until(lambda: swarm.is_warm(0), 30, "what endpoints gave is in the cache")
    swarm.followers[0].mount.umount()
    swarm.read(0)  # and it is right


@pytest.mark.slow
@pytest.mark.parametrize("size", [SIZE, MIB])
def test_one_that_forges_with_the_key_deceives_nobody(place, size):
    """Its tags fit, and what the writer left of each segment does not; of a single one that is its SHA-256."""
    swarm = Swarm(place, 2, size=size)
    swarm.warm(1)
    forger = swarm.followers[0]
    lab.run(lab.BUILD / "tests/lab/lab-forge-cell", forger.archive.path, "/file", cells(forger.archive))
    swarm.read(0)
    [peer] = swarm.state()["list"]
    assert peer["state"] == "lies" and peer["fetched_bytes"] == 0
    assert swarm.writer.text().count(f"peer {peer['address']}: segment") == 1
    lab.until(lambda: swarm.is_warm(0), 30, "what endpoints gave is in the cache")
    forger.mount.umount()
    done = lab.ecfs("get", swarm.archive.path, "/file", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == swarm.digest and "forges them" not in done.stderr


@pytest.mark.slow
def test_what_is_forged_in_the_cache_does_not_deceive_get(place):
    """Where somebody with the key could write: mounts believe tags there, and the SHA-256 does not."""
    swarm = Swarm(place, 2)
    swarm.warm(0)
    swarm.writer.umount()
    lab.run(lab.BUILD / "tests/lab/lab-forge-cell", swarm.archive.path, "/file", cells(swarm.archive))
    swarm.writer.start()
    lab.forget_mounts()
    assert lab.digest(swarm.writer.path / "file") != swarm.digest
    done = lab.ecfs("get", swarm.archive.path, "/file", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == swarm.digest
    assert "forges them" in done.stderr
    cat = subprocess.run([lab.PROGRAM, "cat", swarm.archive.path, "/file"], capture_output=True, check=True, timeout=60).stdout
    assert hashlib.blake2b(cat, digest_size=16).hexdigest() == swarm.digest
    lab.forget_mounts()
    assert lab.digest(swarm.writer.path / "file") == swarm.digest


@pytest.mark.slow
@pytest.mark.parametrize("segment", ["1M", "2M"])
def test_what_one_had_when_it_was_started_is_found(place, segment):
    """Nobody knows that it has it: who cannot get it from endpoints asks all, also for what is but part of a segment."""
    swarm = Swarm(place, 3, segment=segment)
    swarm.warm(1)
    for mount in swarm.mounts:
        mount.umount()
        mount.start()
    lab.until(lambda: {peer["state"] for peer in swarm.state()["list"]} == {"up"}, 40, "all have met again")
    hide(swarm.archive, but=1)
    swarm.read(2)


@pytest.mark.slow
def test_one_server_that_answers_is_enough_where_peers_have_the_file(place):
    """It tells what is right, and not as soon as it is known that the others have nothing."""
    swarm = Swarm(place, 3, endpoints=[place.behind_proxy(name) for name in lab.NAMES])
    swarm.warm(1)
    swarm.archive.endpoints[0].proxy.tell("delay", 2000)
    for server in swarm.archive.endpoints[1:]:
        server.proxy.tell("refuse")
        server.proxy.tell("cut")
    swarm.read(2)


@pytest.mark.slow
def test_without_an_endpoint_they_are_not_believed(place):
    """One that answers tells what is right; that there is none is no reason to take what cannot be told."""
    swarm = Swarm(place, 2)
    swarm.warm(0)
    hide(swarm.archive)
    with pytest.raises(OSError):
        swarm.read(1)  # which has never read it
    assert swarm.state()["served_bytes"] == 0
    show(swarm.archive)
    lab.until(lambda: comes_back(swarm, 1), 60, "endpoints answer again")


def comes_back(swarm, number):
    with contextlib.suppress(OSError):
        swarm.read(number)
        return True
    return False


@pytest.mark.slow
def test_one_that_stalls_or_dies_keeps_nobody(place):
    swarm = Swarm(place, 3)
    swarm.warm(1)
    swarm.warm(2)
    stalled, dead = swarm.mounts[1:]
    stalled.process.send_signal(signal.SIGSTOP)
    dead.process.kill()
    begun = time.monotonic()
    swarm.read(0)
    assert time.monotonic() - begun < 15
    lab.until(lambda: {peer["state"] for peer in swarm.state()["list"]} == {"down"}, 10, "that is known of both")
    stalled.process.send_signal(signal.SIGCONT)
    dead.kill()
    lab.until(lambda: "up" in {peer["state"] for peer in swarm.state()["list"]}, 30, "one is back")


@pytest.mark.slow
def test_one_that_is_slow_keeps_nobody(place):
    swarm = Swarm(place, 2, peer_rate="100K")
    swarm.warm(1)
    begun = time.monotonic()
    swarm.read(0)
    assert time.monotonic() - begun < 20  # at its pace it takes four minutes
    assert swarm.state()["list"][0]["state"] == "up"


def test_one_that_is_slow_is_waited_for_where_endpoints_have_nothing(place):
    """It is late, so endpoints are asked, too: that these fail is not the end."""
    swarm = Swarm(place, 2, size=2 * MIB, peer_rate="250K")
    swarm.warm(1)
    hide(swarm.archive, but=1)
    swarm.read(0)
    assert swarm.state()["fetched_bytes"] >= 2 * MIB


def test_where_the_own_cache_hangs_they_are_asked(place):
    """By the kernel, in open(2): before the endpoints, which all have to share."""
    swarm = Swarm(place, 2)
    swarm.warm(1)
    theirs, ours = cells(swarm.followers[0].archive), cells(swarm.archive)
    hanging = [ours / path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file()]
    assert len(hanging) > SIZE // MIB
    for path in hanging:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
    try:
        swarm.read(0)
        assert swarm.state()["fetched_bytes"] > SIZE / 4  # those that have begun with it wait for it first
    finally:
        fds = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in hanging if path.exists()]  # who fills has let others go
        swarm.writer.umount()
        for fd in fds:
            os.close(fd)


def test_who_pretends_to_be_one_is_told_nothing(place):
    """A stranger at the address of a peer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own_certificate(place))
    said = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = server.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                        said.append(connection.recv(4096))
        threading.Thread(target=serve, daemon=True).start()
        archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=10M", "--set",
                                f"peers=127.0.0.1:{server.getsockname()[1]}", lab.AS_USERS)
        place.mount(archive)
        lab.until(lambda: "ecfs key rotate" in archive.json("status")["peers"]["list"][0].get("problem", ""), 30, "it is refused")
        server.shutdown(socket.SHUT_RDWR)
    assert not any(said)


def endpoint_bytes(swarm):
    return sum(endpoint.proxy.status()["down"] for endpoint in swarm.archive.endpoints)


def read_at_once(swarm, numbers):
    """Seconds until the last has all."""
    digests = {}
    lab.drop_caches()
    threads = [threading.Thread(target=lambda i=i: digests.update({i: lab.digest(swarm.mounts[i].path / "file")})) for i in numbers]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert digests == dict.fromkeys(numbers, swarm.digest)
    return time.monotonic() - begun


@pytest.mark.slow
def test_four_that_read_at_once_cost_the_endpoints_one(place):
    swarm = Swarm(place, 4, endpoints=[place.behind_proxy(name) for name in lab.NAMES])
    for endpoint in swarm.archive.endpoints:
        endpoint.proxy.tell("throttle", 2 * MIB)
    before = endpoint_bytes(swarm)
    read_at_once(swarm, range(4))
    cost = (endpoint_bytes(swarm) - before) / SIZE
    assert cost < 1.3, f"{cost:.2f} copies came from the endpoints"


class Lines(Swarm):
    """Each has a line of its own to the endpoints: proxies that nobody else uses."""

    def __init__(self, place, n, **settings):
        servers = [place.sshd(name) for name in lab.NAMES]
        self.lines = [[self.behind(place, server) for server in servers] for _ in range(n)]
        super().__init__(place, n, endpoints=self.lines[0], **settings)

    @staticmethod
    def behind(place, server):
        proxy = place.proxy(server.port)
        server.know(proxy.port)
        return lab.Behind(server, proxy)

    def endpoints_of(self, number):
        return self.lines[number]

    def moved(self):
        return [sum(endpoint.proxy.status()["down"] for endpoint in line) for line in self.lines]


@pytest.mark.slow
def test_the_lines_of_all_that_read_at_once_are_used(place):
    """Each fetches a share, and not whoever is first all of it."""
    swarm = Lines(place, 4)
    for endpoint in sum(swarm.lines, []):
        endpoint.proxy.tell("throttle", MIB // 8)
    before = swarm.moved()
    read_at_once(swarm, range(4))
    shares = [(after - earlier) / SIZE for earlier, after in zip(before, swarm.moved())]
    # on a busy machine one may come when the others have claimed all
    assert sum(shares) < 1.5 and sorted(shares)[1] > 0.1, f"shares of {shares}"


@pytest.mark.nightly
def test_who_stops_amid_its_share_keeps_nobody(place):
    """What it claimed is fetched by others, who have waited for it once and not for each segment."""
    swarm = Lines(place, 4)
    for endpoint in sum(swarm.lines, []):
        endpoint.proxy.tell("throttle", MIB // 8)
    stopped, dead = (swarm.mounts[number].process for number in (2, 3))
    readers = [subprocess.Popen(["cat", swarm.mounts[number].path / "file"], stdout=subprocess.DEVNULL) for number in (2, 3)]
    timer = threading.Timer(2, lambda: (stopped.send_signal(signal.SIGSTOP), dead.kill()))
    timer.start()
    try:
        took = read_at_once(swarm, range(2))
    finally:
        timer.join()
        stopped.send_signal(signal.SIGCONT)
        swarm.mounts[3].kill()
        for reader in readers:
            reader.wait(60)
    assert took < 60, f"{took:.0f} s"  # alone each takes more than 32


def own_certificate(place):
    """Of somebody who has not the archive's key, and says that he has."""
    key, certificate = place.path / "stranger.key", place.path / "stranger.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=ecfs archive", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


def say(port, context, text=b"GET /v1/hello HTTP/1.1\r\n\r\n"):
    """What comes back; b"": nothing but the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        try:
            with context.wrap_socket(plain) as connection:
                connection.sendall(text)
                return connection.recv(4096)
        except OSError:  # the end tells why it hangs up, or just does
            return b""


@pytest.mark.slow
def test_a_stranger_gets_nothing_and_takes_nothing(place):
    swarm = Swarm(place, 2)
    swarm.warm(1)
    port = swarm.ports[1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert say(port, context) == b""
    context.load_cert_chain(*own_certificate(place))
    assert say(port, context) == b""
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET /v1/hello HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP" not in plain.recv(4096)  # an alert at most
    # many that say one byte now and then, or nothing
    resident, threads = swarm.mounts[1].resident_bytes(), n_threads(swarm.mounts[1])
    strangers = []
    for number in range(2000):
        stranger = socket.create_connection(("127.0.0.1", port), 10)
        strangers.append(stranger)
        if number % 2:
            with contextlib.suppress(OSError):
                stranger.sendall(b"\x16")
        if len(strangers) > 400:
            strangers.pop(0).close()
    assert n_threads(swarm.mounts[1]) - threads <= 128 + 32  # as the manual says, and those of reading
    lab.until(lambda: comes_from_peers(swarm), 60, "it comes from the peer, and at once where the machine has time for both")
    assert swarm.mounts[1].resident_bytes() - resident < 32 * MIB
    lab.until(lambda: all(hung_up(stranger) for stranger in strangers), 30, "they are gone")


def comes_from_peers(swarm):
    """Whether the writer gets the file from them."""
    lab.ecfs("cache", "--drop", swarm.writer.path)
    before = swarm.state()["fetched_bytes"]
    swarm.read(0)
    return swarm.state()["fetched_bytes"] - before >= MOST


def n_threads(mount):
    return len(list(Path(f"/proc/{mount.process.pid}/task").iterdir()))


def hung_up(stranger):
    stranger.setblocking(False)
    try:
        return stranger.recv(4096) == b"" or hung_up(stranger)
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_follower_has_ended_when_it_is_unmounted(place, archive):
    """Or the next mount finds the directory and the port taken: what it asks of peers ends with a second's delay."""
    follower = Follower(place, archive.endpoints)
    with contextlib.ExitStack() as ends:
        silent = [ends.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        follower.mount.umount()
        peers = ", ".join(f"127.0.0.1:{each.getsockname()[1]}" for each in silent)
        follower.archive.configure("archive", cache_size="64M", peers=peers, peer_listen=f"127.0.0.1:{lab.free_port()}")
        for pause_s in (0.2, 0.6, 1):
            follower.mount.start()
            time.sleep(pause_s)  # the peers are asked who they are meanwhile
            lab.ecfs("umount", follower.path)
            assert not is_held(follower.archive.path)


def is_held(directory):
    with open(directory / "lock", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_peers_want_a_key_and_a_cache(place):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", "cache_size=10M", "--set", "peer_listen=127.0.0.1:1")
    mount = place.mount(archive)
    assert "peers need an archive with a key" in mount.text()
    assert "peers" not in archive.json("status")


@pytest.mark.slow
def test_many_that_say_nothing_keep_nobody_for_long(place):
    """Machines whose port takes a connection and never answers, before one in the list that does."""
    with contextlib.ExitStack() as open_sockets:
        silent = []
        for _ in range(12):
            listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
            silent.append(f"127.0.0.1:{listener.getsockname()[1]}")
        swarm = Swarm(place, 2)
        swarm.warm(1)
        swarm.writer.umount()
        live = f"127.0.0.1:{swarm.ports[1]}"
        swarm.archive.configure("archive", peers=", ".join([*silent, live]))
        before = time.monotonic()
        swarm.writer.start()
        lab.until(lambda: "up" in {peer["state"] for peer in swarm.state()["list"]}, 60, "the one that answers is known")
        met = time.monotonic() - before
        begun = time.monotonic()
        swarm.read(0)
        took = time.monotonic() - begun
        assert met < 5 and took < 5, (met, took)
