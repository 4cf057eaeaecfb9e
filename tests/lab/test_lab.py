"""The lab can be believed: its servers serve, its network is as bad as ordered, its comparisons notice."""
import ctypes
import mmap
import os
import random
import socket
import socketserver
import subprocess
import threading
import time

import ca
import lab
import processors
import pytest
import switch


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while block := self.request.recv(65536):
            self.request.sendall(block)


@pytest.fixture
def echo():
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def proxy(place, echo):
    return place.proxy(echo)


def connect(proxy, timeout=60):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout)


def receive(connection, size):
    found = bytearray()
    while len(found) < size:
        block = connection.recv(size - len(found))
        if not block:
            break
        found += block
    return bytes(found)


def seconds(action):
    begin = time.monotonic()
    action()
    return time.monotonic() - begin


def exchange(connection, size):
    """Sends size random bytes and returns whether the same came back."""
    sent = random.randbytes(size)
    sender = threading.Thread(target=connection.sendall, args=(sent,))
    sender.start()
    found = receive(connection, size)
    sender.join()
    return found == sent


def test_proxy_forwards_bytes_and_the_end_of_a_connection(proxy):
    with connect(proxy) as connection:
        assert exchange(connection, 3_000_001)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert proxy.status()["up"] == proxy.status()["down"] == 3_000_001
    lab.until(lambda: proxy.status()["connections"] == 0, 60, "the connection is forgotten")


def test_delay_is_latency_and_not_a_throttle(proxy):
    proxy.tell("delay", 100)
    with connect(proxy) as connection:
        assert seconds(lambda: exchange(connection, 1)) > 0.19
        assert seconds(lambda: exchange(connection, 20_000_000)) < 30  # one chunk a round trip would be a minute


def test_throttle_limits_each_direction_of_all_connections_together(proxy):
    proxy.tell("throttle", 1_000_000)
    with connect(proxy) as one, connect(proxy) as other:
        def both():
            threads = [threading.Thread(target=exchange, args=(each, 500_000)) for each in (one, other)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert seconds(both) > 0.8
    proxy.tell("throttle", 0)
    with connect(proxy) as connection:
        assert seconds(lambda: exchange(connection, 50_000_000)) < 40  # and throttled 50


def test_stall_keeps_connections_and_resume_loses_nothing(proxy):
    with connect(proxy) as connection:
        assert exchange(connection, 10)
        proxy.tell("stall")
        connection.sendall(b"later")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        with connect(proxy) as fresh:
            fresh.sendall(b"too")
            proxy.tell("resume")
            connection.settimeout(60)
            assert receive(connection, 5) == b"later"
            assert receive(fresh, 3) == b"too"


def test_stalled_proxy_does_not_burn_a_processor(proxy):
    with connect(proxy) as connection:
        assert exchange(connection, 10)
        proxy.tell("stall")
        connection.sendall(b"x" * 100)
        connection.close()
        before = processors.used(proxy.process.pid)
        time.sleep(0.5)
        assert processors.used(proxy.process.pid) - before < 0.1
    proxy.tell("resume")
    lab.until(lambda: proxy.status()["connections"] == 0, 60, "the connection is forgotten")


def test_cut_ends_connections_and_refuse_new_ones(proxy):
    with connect(proxy) as connection:
        assert exchange(connection, 10)
        proxy.tell("cut")
        with pytest.raises((ConnectionError, AssertionError)):
            connection.sendall(b"x")
            assert connection.recv(1) != b""
    proxy.tell("refuse")
    with connect(proxy) as connection, pytest.raises((ConnectionError, AssertionError)):
        assert connection.recv(1) != b""
    proxy.tell("accept")
    with connect(proxy) as connection:
        assert exchange(connection, 10)


def test_corrupt_flips_one_bit_of_the_byte_asked_for(proxy):
    proxy.tell("corrupt", "down", "at", 70_000)
    with connect(proxy) as connection:
        connection.sendall(bytes(100_000))
        found = receive(connection, 100_000)
        assert [i for i, byte in enumerate(found) if byte] == [70_000]
        assert exchange(connection, 100_000)


def test_corrupt_by_chance_until_it_is_off(proxy):
    proxy.tell("corrupt", "up", "chance", 0.01)
    with connect(proxy) as connection:
        connection.sendall(bytes(100_000))
        assert 500 < sum(byte != 0 for byte in receive(connection, 100_000)) < 2000
        proxy.tell("corrupt", "up", "off")
        assert exchange(connection, 100_000)


def test_proxy_refuses_what_it_does_not_know(proxy):
    for words in ["delay", "delay x", "throttle -1", "corrupt down", "corrupt down at x", "corrupt up chance 2", "fly"]:
        with pytest.raises(AssertionError):
            proxy.tell(words)


def sftp(server, *lines, port=None, timeout=60):
    """Runs lines in the sftp program."""
    batch = server.directory / "batch"
    batch.write_text("\n".join(lines) + "\n")
    return lab.run("sftp", "-b", batch, "-P", port or server.port, "-F", "none", "-i", server.keys.identity,
                   "-o", f"UserKnownHostsFile={server.keys.known_hosts}", "-o", "StrictHostKeyChecking=yes",
                   "-o", "IdentitiesOnly=yes", "127.0.0.1", check=False, timeout=timeout)


def test_sshd_serves_sftp_and_comes_back_on_its_port(place):
    server = place.sshd("amber")
    server.root.mkdir()
    source = place.path / "source"
    lab.write_pattern(source, 300_000)
    done = sftp(server, f"put {source} {server.root}/there")
    assert done.returncode == 0, done.stderr
    assert lab.digest(server.root / "there") == lab.digest(source)
    port = server.port
    server.kill()
    assert sftp(server, "ls").returncode != 0
    server.start()
    assert server.port == port
    assert sftp(server, f"ls {server.root}").returncode == 0


def test_sshd_is_refused_when_known_hosts_has_another_key(place):
    server, other = place.sshd("amber"), place.sshd("birch")
    assert sftp(server, "ls").returncode == 0
    place.keys.know("127.0.0.1", server.port, other.host_key.with_suffix(".pub").read_text())
    done = sftp(server, "ls")
    assert done.returncode != 0 and "HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_suspended_sshd_hangs_and_resumes(place):
    server = place.sshd("amber")
    server.suspend()
    with pytest.raises(subprocess.TimeoutExpired):
        sftp(server, "ls", timeout=1)
    server.resume()
    assert sftp(server, "ls").returncode == 0


def test_killed_sshd_takes_its_sessions_with_it(place):
    server = place.sshd("amber")
    proxy = place.proxy(server.port)
    server.know(proxy.port)
    client = subprocess.Popen(
        ["sftp", "-q", "-P", str(proxy.port), "-F", "none", "-i", server.keys.identity, "-o", "IdentitiesOnly=yes",
         "-o", f"UserKnownHostsFile={server.keys.known_hosts}", "127.0.0.1"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lab.until(lambda: "Accepted publickey" in server.log.read_text(), 60, "the client is in")
    lab.until(lambda: "sftp" in server.log.read_text(), 60, "the session runs")
    server.kill()
    lab.until(lambda: proxy.status()["connections"] == 0, 60, "the session is gone")
    client.stdin.close()
    client.wait(60)


def test_six_sshd_have_ports_keys_and_roots_of_their_own(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    assert len({server.port for server in servers}) == 6
    assert len({server.host_key.read_text() for server in servers}) == 6
    assert all(sftp(server, "ls").returncode == 0 for server in servers)


def flip_keeping_time(path, offset):
    found = os.stat(path)
    lab.flip(path, offset)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_tree_comparison_notices_every_kind_of_difference(tmp_path):
    one = tmp_path / "one"
    lab.add_oddities(one)
    lab.real_tree(one, 60)
    facts = lab.describe_tree(one)
    lab.run("cp", "-a", one, tmp_path / "two")
    two = tmp_path / "two"
    lab.assert_same_tree(facts, lab.describe_tree(two))
    odd = two / "odd"
    changes = {
        "content": lambda: flip_keeping_time(odd / "size-2097153", 70_000),
        "mode": lambda: os.chmod(odd / "size-1", 0o755),
        "mtime": lambda: os.utime(odd / "link", ns=(0, 987_654_322), follow_symlinks=False),
        "target": lambda: lab.run("ln", "-sfn", "elsewhere", odd / "dangling"),
        "missing": lambda: (odd / "empty directory").rmdir(),
        "unexpected": lambda: (odd / "more").touch(),
        "hard links": lambda: lab.run("cp", "--remove-destination", "-p", odd / "size-16385", odd / "hard link"),
    }
    for kind, change in changes.items():
        lab.run("rm", "-rf", two)
        lab.run("cp", "-a", one, two)
        change()
        with pytest.raises(AssertionError):
            lab.assert_same_tree(facts, lab.describe_tree(two))
            print("not noticed:", kind)


def test_real_tree_has_the_number_of_files_asked_for(tmp_path):
    lab.real_tree(tmp_path / "tree", 400)
    assert sum(len(files) for _, _, files in os.walk(tmp_path / "tree")) >= 400


def test_configure_changes_one_section_only(tmp_path):
    archive = lab.Archive(tmp_path, [])
    config = tmp_path / "ecfs.conf"
    config.write_text("[archive]\ncode = rs:4+2\n[endpoint a]\nurl = file:///a\n")
    archive.configure("archive", code="rs:2+1", commit="async")
    assert config.read_text() == "[archive]\ncode = rs:2+1\ncommit = async\n[endpoint a]\nurl = file:///a\n"


def test_a_tree_is_filled_up_where_links_abound(tmp_path, monkeypatch):
    tops = [tmp_path / "include", tmp_path / "doc"]
    for top in tops:
        (top / "real").mkdir(parents=True)
        (top / "real/file").write_text("x")
        (top / "real/link").symlink_to("file")
        (top / "zz-linked").symlink_to("real")
    monkeypatch.setattr(lab, "REAL_TREES", list(map(str, tops)))
    lab.real_tree(tmp_path / "tree", 20)
    found = [path for path in (tmp_path / "tree").rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(found) == 20


def verify(authority, path, *options):
    """What openssl finds wrong with the first certificate of a file; "" is nothing."""
    done = lab.run("openssl", "verify", "-CAfile", authority.certificate, *options, path, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_certificates_are_good_unless_ordered_otherwise(tmp_path):
    authority, other = ca.Ca(tmp_path / "ca"), ca.Ca(tmp_path / "other", "other CA")
    host, user = authority.host(tmp_path / "host"), authority.user(tmp_path / "user")
    assert user.subject == "/O=ecfs lab/CN=Ada Lovelace"
    assert verify(authority, host.certificate, "-verify_hostname", "localhost") == ""
    assert verify(authority, host.certificate, "-verify_ip", "127.0.0.1") == ""
    assert "hostname mismatch" in verify(authority, host.certificate, "-verify_hostname", "elsewhere.example")
    assert "unable to get local issuer certificate" in verify(other, host.certificate)
    proxy = ["-allow_proxy_certs", "-untrusted", user.certificate]
    assert verify(authority, ca.make_proxy(tmp_path / "proxy", user), *proxy) == ""
    assert "has expired" in verify(authority, ca.make_proxy(tmp_path / "expired", user, -1), *proxy)
    authority.revoke(host)
    revoked = next(authority.certificates.glob("*.r0"))
    assert "revoked" in verify(authority, host.certificate, "-crl_check", "-CRLfile", revoked)


@pytest.mark.parametrize("kind", ["nginx", "apache"])
def test_a_web_server_that_comes_back_is_the_new_one(place, kind):
    """Nothing of the old one answers when it is killed, and the new one does when it has begun."""
    server = place.web("amber", kind)
    port = server.port
    for _ in range(3):
        old = [server.process.pid, *lab.descendants(server.process.pid)]
        server.kill()
        assert not any(map(lab.lives, old)) and not server._answers(port)
        server.start()
        assert server.port == port and (server.directory / "pid").read_text().strip() == str(server.process.pid)


def test_a_web_server_is_not_taken_for_another_on_its_port(place):
    server = place.web("amber", "nginx")
    other = place.web("birch", "nginx")
    other.kill()
    other.port = server.port
    assert other._start_on(server.port) is None and server.process.poll() is None
    other.port = 0
    other.start()
    assert other.port not in (0, server.port)


def resident_pages(path):
    """How many pages of a file the kernel has in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapping:
        size = len(mapping)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapping)))
        assert libc.mincore(start, ctypes.c_size_t(size), pages) == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages)


def test_what_was_read_from_a_mount_is_forgotten(place):
    mount = place.mount(place.archive(place.directories(lab.NAMES)))
    paths = [mount.path / "closed", mount.path / "open"]
    for path in paths:
        path.write_bytes(bytes(range(256)) * 1000)
    with open(paths[1], "rb") as file:
        assert file.read() == paths[0].read_bytes()
        assert all(resident_pages(path) > 60 for path in paths)
        lab.forget_mounts()
        assert [resident_pages(path) for path in paths] == [0, 0]
        assert os.pread(file.fileno(), 256_001, 0) == paths[0].read_bytes()


def test_what_is_put_again_as_some_of_it_was_missing_is_there_once(place):
    """The first time an endpoint is away."""
    archive = place.archive(place.directories(), "rs:4+2")
    top = place.path / "tree"
    (top / "below").mkdir(parents=True)
    for path in (top / "file", top / "below/file"):
        lab.write_pattern(path, 70_000)
    put, n_puts = archive.put, []

    def put_and_mend(*arguments):
        done = put(*arguments)
        archive.endpoints[0].start()
        n_puts.append(arguments)
        return done

    archive.endpoints[0].kill()
    archive.put = put_and_mend
    archive.put_in_full("--code", "rs:4+2", top, "/as")
    assert len(n_puts) > 1
    lab.assert_same_tree(lab.describe_tree(top), place.fetched(archive, "/as"))


def test_machines_on_a_switch_have_addresses_and_lines_of_their_own(request):
    net = switch.Switch()
    request.addfinalizer(net.close)
    server, *clients = (net.machine() for _ in range(3))
    with server:
        listener = socket.create_server((server.address, 7000))

    def fetch(client, size):
        """Seconds, and who asked."""
        begun = time.monotonic()
        with client, socket.create_connection((server.address, 7000), timeout=30) as connection:
            peer, (address, _) = listener.accept()
            threading.Thread(target=lambda: (peer.sendall(bytes(size)), peer.close()), daemon=True).start()
            left = size
            while left > 0 and (got := len(connection.recv(1 << 20))):
                left -= got
        assert left == 0
        return time.monotonic() - begun, address

    with listener:
        assert [fetch(client, 1000)[1] for client in clients] == [client.address for client in clients]
        server.hold(1_000_000)
        assert fetch(clients[0], 1_500_000)[0] > 1
        server.hold(0)
        server.hold_to_each(clients[:1], 1_000_000)
        assert fetch(clients[0], 1_500_000)[0] > 1 > fetch(clients[1], 1_500_000)[0]
        assert server.moved()[0] > 4_500_000
