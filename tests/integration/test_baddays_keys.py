"""Who is at the other end, and how to get there: a host key that changes, and what ssh_config says about the way."""
import os
import pwd
import sys

import lab
import pytest

pytestmark = pytest.mark.nightly

MIB = 1 << 20


def test_a_host_key_that_changed_between_two_mounts_is_refused(place):
    servers = {name: place.sshd(name) for name in lab.NAMES}
    archive = place.archive(list(servers.values()))
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 3 * MIB, 1)
    archive.await_stored()
    mount.umount()

    amber = servers["amber"]
    stripes = lab.stripe_files(amber)
    before = amber.host_key.with_suffix(".pub").read_text()
    amber.host_key.unlink()
    lab.make_key(amber.host_key)
    amber.restart()
    place.keys.know("127.0.0.1", amber.port, before)  # as it was: nobody told the user
    lines = place.keys.known_hosts.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if f":{amber.port} " in text)

    mount.start()
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected, "five of six are enough"
    (mount.path / "more").write_bytes(b"x" * MIB)
    assert os.getxattr(mount.path / "more", "user.ecfs.state").startswith(b"quorum 5/6")
    told = lab.until(lambda: [text for text in mount.text().splitlines() if "endpoint amber is down" in text], 60,
                     "it is said that amber is down")
    assert len(told) == 1 and "SHA256:" in told[0] and f"{place.keys.known_hosts} line {line}" in told[0], mount.text()
    assert "replace that line" in told[0], "it does not say what to do"
    reason = next(endpoint["reason"] for endpoint in archive.json("status")["endpoints"] if endpoint["name"] == "amber")
    assert "SHA256:" in reason
    assert lab.stripe_files(amber) == stripes, "it got another stripe"

    amber.know()
    archive.await_stored()  # amber is trusted and filled up
    assert os.getxattr(mount.path / "more", "user.ecfs.state").startswith(b"full 6/6")


RELAY = """
import os, socket, sys, threading
open(sys.argv[3], "a").write("x")
line = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def forth():
    while block := os.read(0, 65536):
        line.sendall(block)
    line.shutdown(socket.SHUT_WR)
threading.Thread(target=forth, daemon=True).start()
while block := line.recv(65536):
    os.write(1, block)
"""


@pytest.mark.parametrize("transport", ["libssh2", "openssh"])
def test_aliases_and_proxy_commands_of_ssh_config_are_used(place, transport):
    """Names that only this file knows, behind a command that is the only way there."""
    servers = [place.sshd(name) for name in lab.NAMES[:3]]
    relay, uses, config = place.path / "relay.py", place.path / "uses", place.path / "ssh_config"
    relay.write_text(RELAY)
    config.write_text("".join(
        f"Host far-{server.name}\n  HostName 127.0.0.1\n  Port {server.port}\n  User {pwd.getpwuid(os.geteuid()).pw_name}\n"
        f"  IdentityFile {place.keys.identity}\n  UserKnownHostsFile {place.keys.known_hosts}\n"
        f"  ProxyCommand {sys.executable} {relay} %h %p {uses}\n" for server in servers))
    endpoints = [word for server in servers for word in (
        "--endpoint", f"{server.name}=sftp://far-{server.name}{server.root},ssh_config={config},transport={transport}")]
    archive = lab.Archive(place.path / "archive", servers, "rs:2+1")
    lab.ecfs("init", archive.path, "--code", archive.code, *endpoints)
    assert uses.stat().st_size >= 3, "the command was not used"
    expected = lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put(place.path / "source", "/file")
    (place.path / "target").mkdir()
    archive.get("/file", place.path / "target")
    assert lab.digest(place.path / "target/file") == expected
    assert all(len(lab.stripe_files(server)) == 1 for server in servers)
    # whoever reads what a mount says is done when it is in the background, and what the command says is in its log
    relay.write_text("import sys\nprint('the relay speaks', file=sys.stderr, flush=True)\n" + RELAY)
    mountpoint, log = place.path / "in-background", place.path / "log"
    mountpoint.mkdir()
    lab.run(lab.PROGRAM, "mount", archive.path, mountpoint, "-o", f"log={log}", timeout=30)
    if transport == "libssh2":
        assert "the relay speaks" in log.read_text()
    lab.ecfs("umount", mountpoint)
