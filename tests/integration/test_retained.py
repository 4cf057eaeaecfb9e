"""Accounts that a stolen key cannot empty: who has the archive directory and every key of the client destroys nothing.

Six accounts of a real sshd that refuses to remove, rename and chmod, as doc/security.md has it. They are another user's
where we are root, whom no permission stops.
"""
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import lab
import pytest
from test_history import now
from test_logs import FSCK
from test_recover import recover

REFUSED = "remove,rename,posix-rename,rmdir,setstat,fsetstat,lsetstat,hardlink,symlink"
USER = pwd.getpwnam("nobody" if lab.ROOT else pwd.getpwuid(os.geteuid()).pw_name)


class Account(lab.Sshd):
    """One that only grows."""

    def __init__(self, directory, name, keys):
        super().__init__(directory, name, keys)
        self.subsystem = f"internal-sftp -P {REFUSED}"
        self.root.mkdir(exist_ok=True)
        os.chown(self.root, USER.pw_uid, USER.pw_gid)

    def url(self, path=None, port=None):
        return f"sftp://{USER.pw_name}@127.0.0.1:{port or self.port}{path or self.root}"

    def endpoint(self, path=None, port=None):
        return f"{super().endpoint(path, port)},delete=never"

    def files(self):
        return {path: lab.digest(path) for path in self.root.rglob("*") if path.is_file()}

    def attack(self, *lines):
        """What OpenSSH's own client says to these commands, with the stolen key."""
        return subprocess.run(
            ["sftp", "-q", "-b", "-", "-F", "/dev/null", "-i", self.keys.identity, "-P", str(self.port), "-o",
             f"UserKnownHostsFile={self.keys.known_hosts}", f"{USER.pw_name}@127.0.0.1"],
            input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True)


@pytest.fixture
def accounts(place):
    """In a directory that their user may enter."""
    base = Path(tempfile.mkdtemp(prefix="ecfs-accounts-", dir="/tmp"))
    base.chmod(0o755)
    place.keys = lab.Keys(place.path / "keys")
    servers = [Account(base / name, name, place.keys) for name in lab.NAMES]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.kill()
    shutil.rmtree(base)


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_a_thief_with_every_key_destroys_nothing(place, accounts):
    kept = place.archive(accounts, "rs:4+2")
    kept.configure("archive", deletion_grace="0s", history="0")
    mount = place.mount(kept)
    for i in range(12):
        lab.write_pattern(mount.path / f"letter {i}", 3_000 + i, seed=i)
    for i in range(2):
        lab.write_pattern(mount.path / f"film {i}", 700_000 + i, seed=100 + i)
    lab.ecfs("wait", kept.path)
    before, moment = contents(mount.path), now()
    stored = {server.name: server.files() for server in accounts}

    # The thief has the archive: through the mount everything is deleted, and other things come under the same names.
    for path in list(mount.path.iterdir()):
        path.unlink()
    for i in range(12):
        lab.write_pattern(mount.path / f"letter {i}", 2_000, seed=1_000 + i)
    lab.ecfs("wait", kept.path)
    rows = lab.until(lambda: [row for row in kept.json("status")["retained"] if row["stripes"] > 0], 30,
                     "what was deleted is retained")
    assert sum(row["stripes"] for row in rows) >= 12 and all(row["delete"] == "never" for row in rows)
    assert kept.json("status")["deletions"] == 0
    mount.umount()

    # And the thief has the accounts: with ecfs that was told to delete, and with another program.
    for server in accounts:
        kept.configure(f"endpoint {server.name}", delete="after 1s")
    mount.start()
    (mount.path / "letter 0").unlink()
    lab.ecfs("wait", kept.path)
    lab.until(lambda: "cannot delete" in mount.text(), 60, "the servers refuse to delete")
    mount.umount()
    for server in accounts:
        victims = list(stored[server.name])
        refused = [line for victim in victims for line in (
            f"rm {victim}", f"rename {victim} {victim}.gone", f"chmod 600 {victim}", f"put /etc/hostname {victim}")]
        server.attack(*[f"-{line}" for line in refused], f"-rmdir {server.root}/stripes",
                      f"put /etc/hostname {server.root}/journal/junk")
        there = server.files()
        assert (server.root / "journal/junk") in there, "the thief was in"
        assert {path: there.get(path) for path in victims} == stored[server.name]

    # The day before comes back on another machine, without a word that these accounts only grow.
    away = lab.Archive(place.path / "away", accounts)
    words = [word for server in accounts for word in ("--endpoint", server.endpoint().removesuffix(",delete=never"))]
    lab.ecfs("recover", away.path, "--read-only", "--at", moment, *words, timeout=300)
    assert contents(place.mount(away, "-o", "ro").path) == before


@pytest.mark.slow
def test_an_endpoint_goes_though_its_snapshot_was_just_taken(place, accounts):
    """Nothing has changed since: a snapshot of the same name cannot take the place of the one that is there."""
    kept = place.archive(accounts, "rs:3+2")
    lab.write_pattern(place.path / "source", 300_000)
    kept.put_in_full(place.path / "source", "/file")
    leaving, other = accounts[:2]
    lab.ecfs("endpoint", "drain", kept.path, leaving.name)
    for path in (other.root / "journal").iterdir():  # so that the check stores a snapshot
        path.unlink()
    lab.run(FSCK, "-y", kept.path, check=False)
    before = {server.name: server.files() for server in accounts[1:]}
    assert any("snapshots" in str(path) for path in before[other.name])
    lab.ecfs("endpoint", "remove", kept.path, leaving.name)
    for server in accounts[1:]:
        assert before[server.name].items() <= server.files().items()
    kept.get("/file", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == lab.digest(place.path / "source")


@pytest.mark.slow
def test_a_login_that_may_delete_makes_room(place, accounts):
    kept = place.archive(accounts, "rs:4+2")
    mount = place.mount(kept)
    for name in ("stays", "goes"):
        lab.write_pattern(mount.path / name, 300_000, seed=len(name))
    (mount.path / "goes").unlink()
    lab.ecfs("wait", kept.path)
    wanted = contents(mount.path)
    mount.umount()
    n_before = sum(len(lab.stripe_files(server)) for server in accounts)

    # The server's owner has the directories themselves.
    master = lab.Archive(place.path / "master", accounts)
    words = [word for server in accounts
             for word in ("--endpoint", f"{server.name}=file://{server.root},delete=yes")]
    lab.ecfs("recover", master.path, "--force", *words)
    prune = (FSCK, master.path, "-y", "--prune", "--older-than", "1s")
    told = lab.until(lambda: re.search(r"--unrecovered (\d+)", lab.run(*prune, check=False).stdout), 30, "all are old")
    assert int(told[1]) >= 6
    lab.run(*prune, "--unrecovered", told[1], check=False)
    assert sum(len(lab.stripe_files(server)) for server in accounts) == n_before - int(told[1])
    assert contents(place.mount(master).path) == wanted


class Retaining:
    """A directory of which only this machine knows that it retains."""

    def __init__(self, inner):
        self.inner, self.name, self.root = inner, inner.name, inner.root

    def endpoint(self):
        return f"{self.inner.endpoint()},delete=never"


def test_a_machine_that_was_not_told_sees_who_took_over(place, archive):
    """Its root marker is as it was: the new epoch is in a file that it does not look for by itself."""
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"first")
    archive.await_stored()
    lab.ecfs("takeover", "--yes", place.path / "new",
             *(word for endpoint in archive.endpoints for word in ("--endpoint", Retaining(endpoint).endpoint())))
    (mount.path / "file").write_bytes(b"second")
    done = lab.ecfs("wait", archive.path, check=False)
    assert done.returncode != 0 and "recovered elsewhere" in done.stderr


@pytest.mark.slow
def test_what_retains_retains_after_a_recovery_that_was_not_told(place):
    endpoints = place.directories()
    archive = place.archive([Retaining(endpoint) for endpoint in endpoints])
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"content" * 10_000)
    archive.await_stored()
    mount.umount()
    shutil.rmtree(archive.path)
    recovered, _ = recover(place, endpoints)
    assert (recovered.path / "ecfs.conf").read_text().count("\ndelete = never\n") == len(endpoints)
    there = {path: lab.digest(path) for endpoint in endpoints for path in lab.files_below(endpoint.root)}
    recovered.configure("archive", deletion_grace="0s")
    mount = place.mount(recovered)
    (mount.path / "file").unlink()
    recovered.await_stored()
    mount.umount()
    assert there.items() <= {path: lab.digest(path) for endpoint in endpoints
                             for path in lab.files_below(endpoint.root)}.items()


@pytest.mark.slow
def test_a_segment_that_broke_off_everywhere_holds_nothing_up(place):
    """What has its name stays there: the next ends elsewhere."""
    endpoints = place.directories()
    archive = place.archive([Retaining(endpoint) for endpoint in endpoints])
    mount = place.mount(archive)

    def write(name):
        (mount.path / name).write_bytes(name.encode())
        archive.await_stored()
        return max(path.name for path in (endpoints[0].root / "journal").iterdir())

    first, last = (int(part, 16) for part in write("a").split("-")[1:])
    first, last = (int(part, 16) for part in write("b").split("-")[1:])
    for endpoint in endpoints:
        (endpoint.root / "journal" / f"00000001-{last + 1:016x}-{2 * last - first + 1:016x}").write_bytes(b"")
    write("c")
    mount.umount()
    shutil.rmtree(archive.path)
    recovered, _ = recover(place, archive.endpoints)
    assert {path.name for path in place.mount(recovered).path.iterdir()} == {"a", "b", "c"}


def test_what_cannot_be_read_in_the_place_of_a_marker_is_none(place):
    """As somebody leaves it who has the login and not the key."""
    endpoints = place.directories()
    archive = place.archive([Retaining(endpoint) for endpoint in endpoints])
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"content")
    archive.await_stored()
    mount.umount()
    for endpoint in endpoints:
        last = max(path for path in (endpoint.root / "markers").iterdir())
        blocked = last.with_name(f"{int(last.name, 16) + 1:08x}")
        blocked.write_text("no marker\n")
        blocked.chmod(0)
    mount = place.mount(archive)
    assert (mount.path / "file").read_bytes() == b"content"
    (mount.path / "more").write_bytes(b"more")
    archive.await_stored()


@pytest.mark.slow
def test_what_stays_by_design_is_no_finding(place):
    """And nothing is destroyed half."""
    endpoints = place.directories()
    archive = place.archive([Retaining(endpoint) for endpoint in endpoints], "rs:4+2", "--key", "split")
    mount = place.mount(archive)
    (mount.path / "file").write_bytes(b"content")
    archive.await_stored()
    mount.umount()
    lab.ecfs("key", "add", "--code", archive.path)
    assert lab.run(FSCK, "-y", archive.path, check=False).returncode == 0
    tested = lab.ecfs("endpoint", "test", archive.path, check=False)
    assert tested.returncode == 0 and "what this test wrote stays there" in tested.stdout
    there = {path for endpoint in endpoints for path in lab.files_below(endpoint.root)}
    done = lab.ecfs("destroy", archive.path, "--yes", check=False)
    assert done.returncode != 0 and "a login that may delete" in done.stderr
    assert there <= {path for endpoint in endpoints for path in lab.files_below(endpoint.root)}
    for endpoint in endpoints:
        archive.configure(f"endpoint {endpoint.name}", delete="yes")
    lab.ecfs("destroy", archive.path, "--yes")
    assert not [path for endpoint in endpoints for path in lab.files_below(endpoint.root)]
