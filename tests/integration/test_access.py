"""Who may do what on a mount: other users, and nobody at all where it is mounted for reading only."""
import hashlib
import json
import os
import pwd
import stat
import subprocess
from pathlib import Path

import lab
import pytest
from namespace import MountNamespace

MIB = 1 << 20
OTHER = pwd.getpwnam("nobody").pw_uid  # a user who owns nothing
needs_root = pytest.mark.skipif(not lab.ROOT, reason="only root becomes other users")


def as_other(*command, uid=OTHER):
    """Runs a command as a user without any rights of root."""
    return lab.run("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all", *command,
                   check=False)


def open_up(path):
    """Lets others come as far as this directory."""
    for directory in [path, *path.parents]:
        if directory.stat().st_uid == os.geteuid() and not directory.stat().st_mode & 0o001:
            directory.chmod(0o711)


@needs_root
def test_others_are_kept_out_by_default(place, archive):
    mount = place.mount(archive)
    open_up(place.path)
    mount.path.chmod(0o777)
    (mount.path / "file").write_text("x")
    for command in [["ls", mount.path], ["cat", mount.path / "file"], ["touch", mount.path / "new"],
                    ["stat", mount.path]]:
        done = as_other(*command)
        assert done.returncode != 0 and "Permission denied" in done.stderr, command


@needs_root
def test_others_get_the_rights_that_modes_give(place, archive):
    mount = place.mount(archive, "-o", "allow_other")
    open_up(place.path)
    (mount.path / "public").write_text("public")
    (mount.path / "public").chmod(0o644)
    (mount.path / "private").write_text("private")
    (mount.path / "private").chmod(0o600)
    (mount.path / "closed").mkdir(mode=0o700)
    (mount.path / "shared").mkdir()
    (mount.path / "shared").chmod(0o1777)
    (mount.path / "shared/mine").write_text("x")
    (mount.path / "shared/mine").chmod(0o666)
    assert as_other("cat", mount.path / "public").stdout == "public"
    assert as_other("dd", f"of={mount.path / 'shared/theirs'}", "if=/dev/null").returncode == 0
    found = (mount.path / "shared/theirs").stat()
    assert (found.st_uid, found.st_gid) == (OTHER, OTHER)
    for command in [["cat", mount.path / "private"], ["ls", mount.path / "closed"], ["touch", mount.path / "new"],
                    ["rm", "-f", mount.path / "public"], ["rm", "-f", mount.path / "shared/mine"],
                    ["chmod", "777", mount.path / "public"], ["chown", str(OTHER), mount.path / "public"],
                    ["mv", mount.path / "public", mount.path / "shared/public"],
                    ["setfattr", "-n", "user.a", "-v", "b", mount.path / "public"],
                    ["truncate", "-s", "0", mount.path / "public"]]:
        done = as_other(*command)
        assert done.returncode != 0 and ("denied" in done.stderr or "not permitted" in done.stderr), (command, done.stderr)
    assert (mount.path / "public").read_text() == "public"


@pytest.fixture
def users(place):
    """A namespace where any user may use FUSE, and a place that belongs to OTHER."""
    space = MountNamespace(place.path / "namespace")
    (place.path / "device").mkdir()
    space.shell('mount -t tmpfs none "$1"; mknod -m 666 "$1/fuse" c 10 229; mount --bind "$1/fuse" /dev/fuse',
                place.path / "device")
    open_up(place.path)
    home = place.path / "home"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    space.home = home
    yield space
    space.close()


def as_user(space, *command, check=True, **options):
    return space.run("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "--inh-caps=-all", "env",
                     f"HOME={space.home}", *command, check=check, **options)


@pytest.fixture
def theirs(users):
    """An archive and a mountpoint of OTHER."""
    archive = lab.Archive(users.home / "archive", [lab.Directory(users.home / "endpoints", name) for name in lab.NAMES])
    lab.run("chown", "-R", f"{OTHER}:{OTHER}", users.home)
    arguments = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    as_user(users, users.program, "init", archive.path, "--code", "rs:4+2", *arguments)
    as_user(users, "mkdir", users.home / "mnt")
    return archive


@needs_root
@pytest.mark.slow
def test_mount_of_a_user_is_closed_to_root_and_unmounted_by_umount(users, theirs):
    mnt = users.home / "mnt"
    as_user(users, users.program, "mount", theirs.path, mnt)
    as_user(users, "sh", "-c", f"echo x > {mnt}/file")
    done = users.run("ls", mnt, check=False)
    assert done.returncode != 0 and "Permission denied" in done.stderr
    fields = users.mounted(mnt)
    assert fields[2] == "fuse.ecfs" and {"nosuid", "nodev", f"user_id={OTHER}"} <= set(fields[3].split(","))
    assert as_user(users, "umount", "-v", mnt).stdout == f"umount.fuse.ecfs: {mnt} is unmounted\n"
    told = json.loads(as_user(users, users.program, "status", theirs.path, "--json").stdout)
    assert users.mounted(mnt) is None and told["staging"]["files"] == 0


@needs_root
@pytest.mark.slow
def test_other_programs_of_the_user_cannot_look_into_a_mount(users, theirs):
    """Which has the archive's key. It does its work all the same, and what others need of it is to be seen."""
    mnt = users.home / "mnt"
    as_user(users, users.program, "mount", theirs.path, mnt)
    (mount,) = [pid for pid in users.inside() if b"mount" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    other = subprocess.Popen(users.command("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "sleep", "60"))
    try:
        lab.until(lambda: os.stat(f"/proc/{other.pid}").st_uid == OTHER, 10, "it is theirs")
        closed = [["cat", "{}/environ"], ["cat", "{}/maps"], ["dd", "if={}/mem", "count=0"], ["ls", "{}/fd/"],
                  ["readlink", "{}/exe"], ["readlink", "{}/cwd"]]
        for command in closed:
            looks = {pid: as_user(users, *[word.format(f"/proc/{pid}") for word in command], check=False) for pid in (mount, other.pid)}
            assert looks[other.pid].returncode == 0, (command, looks)
            assert looks[mount].returncode != 0, (command, looks)
        for name in ("cmdline", "status", "stat"):
            assert as_user(users, "cat", f"/proc/{mount}/{name}").stdout
        as_user(users, "sh", "-c", f"echo content > {mnt}/file")
        as_user(users, users.program, "wait", mnt)
        as_user(users, users.program, "get", theirs.path, "/file", users.home / "got")
        as_user(users, users.program, "export", theirs.path, "/file", "--output", users.home / "descriptor")
        assert (users.home / "got").read_text() == "content\n" and (users.home / "descriptor").stat().st_mode & 0o777 == 0o600
        assert json.loads(as_user(users, users.program, "status", theirs.path, "--json").stdout)["mounted"]
        as_user(users, users.program, "umount", mnt)
    finally:
        other.kill()
        other.wait()


@needs_root
@pytest.mark.slow
def test_allow_other_is_not_for_every_user(users, theirs):
    mnt = users.home / "mnt"
    done = as_user(users, users.program, "mount", "-o", "allow_other", theirs.path, mnt, check=False)
    assert done.returncode == 1 and "user_allow_other" in done.stderr and users.mounted(mnt) is None
    users.cover("/etc/fuse.conf", "user_allow_other\n")
    as_user(users, users.program, "mount", "-o", "allow_other", theirs.path, mnt)
    assert users.run("ls", mnt).stdout == ""


@needs_root
@pytest.mark.slow
def test_fstab_lets_a_user_mount(users, theirs):
    mnt = users.home / "mnt"
    users.cover("/etc/fstab", f"{theirs.path} {mnt} ecfs noauto,user,_netdev 0 0\n")
    as_user(users, "mount", mnt)
    assert {"nosuid", "nodev", "noexec", f"user_id={OTHER}"} <= set(users.mounted(mnt)[3].split(","))
    as_user(users, "sh", "-c", f"echo x > {mnt}/file")
    as_user(users, "umount", mnt)
    assert users.mounted(mnt) is None


# For reading only


def checksum(root, ignored=()):
    """What is below a directory: names, contents, modes, times; a change of any of it changes the result."""
    found = hashlib.blake2b()
    for path in sorted(root.rglob("*")):
        relative = str(path.relative_to(root))
        if relative in ignored:
            continue
        status = path.lstat()
        facts = (relative, status.st_mode, status.st_uid, status.st_ino, status.st_nlink)
        if not path.is_dir():
            facts += (status.st_size, status.st_mtime_ns)
        found.update(repr(facts).encode())
        if stat.S_ISREG(status.st_mode):
            found.update(path.read_bytes())
    return found.hexdigest()


def checksums(archive):
    ignored = ("catalog.sqlite-wal", "catalog.sqlite-shm", "lock")
    return [checksum(archive.path, ignored), *(checksum(endpoint.root) for endpoint in archive.endpoints)]


CHANGES = {
    "write": lambda at: (at / "file").write_bytes(b"new"),
    "append": lambda at: open(at / "file", "ab").close(),
    "create": lambda at: (at / "new").touch(),
    "truncate": lambda at: os.truncate(at / "file", 1),
    "unlink": lambda at: (at / "file").unlink(),
    "rename": lambda at: (at / "file").rename(at / "new"),
    "link": lambda at: (at / "new").hardlink_to(at / "file"),
    "symlink": lambda at: (at / "new").symlink_to("file"),
    "mkdir": lambda at: (at / "new").mkdir(),
    "rmdir": lambda at: (at / "directory").rmdir(),
    "mknod": lambda at: os.mkfifo(at / "new"),
    "chmod": lambda at: (at / "file").chmod(0o600),
    "chown": lambda at: os.chown(at / "file", 0, 0),
    "utime": lambda at: os.utime(at / "file", (1, 1)),
    "setxattr": lambda at: os.setxattr(at / "file", "user.a", b"b"),
    "removexattr": lambda at: os.removexattr(at / "file", "user.kept"),
    "code": lambda at: os.setxattr(at / "directory", "user.ecfs.code", b"copies:3"),
}


def make_content(mount):
    (mount.path / "directory").mkdir()
    digest = lab.write_pattern(mount.path / "file", 3 * MIB, 1)
    os.setxattr(mount.path / "file", "user.kept", b"x")
    mount.archive.await_stored()
    return digest


def assert_every_change_is_refused(mount):
    for name, change in CHANGES.items():
        with pytest.raises(OSError) as caught:
            change(mount.path)
        assert caught.value.strerror == "Read-only file system", name


@pytest.mark.slow
def test_reading_only_changes_nothing_anywhere(place, archive):
    mount = place.mount(archive)
    expected = make_content(mount)
    mount.umount()
    before = checksums(archive)
    mount.options = ("-o", "ro")
    mount.start()
    assert_every_change_is_refused(mount)
    assert lab.digest(mount.path / "file") == expected
    assert sorted(os.listdir(mount.path)) == ["directory", "file"]
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"full 6/6")
    assert os.statvfs(mount.path).f_flag & os.ST_RDONLY
    lab.ecfs("status", archive.path)
    archive.await_stored()
    assert checksums(archive) == before
    lab.ecfs("umount", mount.path)
    assert mount.process.wait(60) == 0
    mount.process = None
    assert checksums(archive) == before


@needs_root
def test_daemon_refuses_what_the_kernel_lets_through(place, archive):
    mount = place.mount(archive)
    make_content(mount)
    mount.umount()
    before = checksums(archive)
    mount.options = ("-o", "ro")
    mount.start()
    lab.run("mount", "-i", "-o", "remount,rw", mount.path)
    assert_every_change_is_refused(mount)
    assert checksums(archive) == before


@pytest.mark.slow
def test_what_is_staged_is_left_alone_by_a_mount_for_reading_only(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    archive = place.archive(servers)
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    (mount.path / "file").write_text("old")
    archive.await_stored()
    for server in servers:
        server.suspend()
    (mount.path / "file").write_text("newer")
    (mount.path / "fresh").write_text("fresh")
    mount.kill()
    for server in servers:
        server.resume()
    ignored = ("catalog.sqlite-wal", "catalog.sqlite-shm", "lock")
    mount.options = ("-o", "ro")
    before = checksum(archive.path, ignored)
    mount.start()
    lab.until(lambda: "2 files" in mount.text() and "staging" in mount.text(), 60, "it says what it leaves alone")
    assert (mount.path / "file").read_text() == "old"
    assert checksum(archive.path, ignored) == before
    status = archive.json("status")
    assert status["staging"]["files"] == 2 and not status["mounted"]
    done = lab.ecfs("wait", archive.path, check=False)
    assert done.returncode == 1 and "2 files" in done.stderr and "not mounted for writing" in done.stderr
    mount.umount()
    mount.options = ()
    mount.start()
    archive.await_stored()
    assert (mount.path / "file").read_text() == "newer" and (mount.path / "fresh").read_text() == "fresh"


def test_mount_for_reading_only_beside_another(place, archive):
    mount = place.mount(archive)
    make_content(mount)
    reader = place.mount(archive, "-o", "ro")
    assert lab.digest(reader.path / "file") == lab.digest(mount.path / "file")
    (mount.path / "later").write_text("later")
    lab.until(lambda: (reader.path / "later").exists() and (reader.path / "later").read_text() == "later", 60,
              "it is seen")
    lab.ecfs("umount", reader.path)
    assert reader.process.wait(60) == 0 and mount.process.poll() is None and mount.mounted()
    reader.process = None
    (mount.path / "still").write_text("x")


STRANGE = "belongs to user nobody"


def refused(words, *command, runs=lab.ecfs):
    done = runs(*command, check=False)
    assert done.returncode != 0 and words in done.stderr, (command, done.stderr)


@needs_root
@pytest.mark.slow
def test_an_archive_directory_of_another_user_is_not_used(place, archive):
    """Its configuration would have the caller's ssh run commands of that user."""
    source = place.path / "source"
    source.write_text("x")
    archive.put(source, "/file")
    ran, mnt = place.path / "ran", place.path / "mnt"
    mnt.mkdir()
    (archive.path / "ssh_config").write_text(f"Host *\n ProxyCommand touch {ran}; exit 1\n")
    archive.configure("endpoint " + archive.endpoints[0].name, url="sftp://127.0.0.1/x",
                      ssh_config=archive.path / "ssh_config")
    for whose in [archive.path, archive.path / "ecfs.conf", archive.path / "catalog.sqlite", archive.path / "lock"]:
        os.chown(whose, OTHER, OTHER)
        for command in [["status", archive.path], ["ls", archive.path], ["get", archive.path, "/file", place.path / "to"],
                        ["put", archive.path, source, "/other"], ["endpoint", "list", archive.path],
                        ["endpoint", "test", archive.path], ["mount", archive.path, mnt]]:
            refused(STRANGE, *command)
        refused(STRANGE, archive.path, runs=lambda *rest, **more: lab.run(lab.BUILD / "tools/ecfs-fsck", *rest, **more))
        os.chown(whose, 0, 0)
    assert not ran.exists()


@pytest.mark.parametrize("whose", ["", "ecfs.conf"])
def test_an_archive_directory_that_others_may_write_to_is_not_used(place, archive, whose):
    path = archive.path / whose
    path.chmod(path.stat().st_mode | 0o020)
    refused("can be written by others", "status", archive.path)
    path.chmod(path.stat().st_mode & ~0o022)
    lab.ecfs("status", archive.path)


def test_a_link_called_lock_is_not_followed(place, archive):
    precious = place.path / "precious"
    precious.write_text("precious")
    source = place.path / "source"
    source.write_text("x")
    (archive.path / "lock").unlink(missing_ok=True)
    (archive.path / "lock").symlink_to(precious)
    refused("symbolic link", "put", archive.path, source, "/file")
    assert precious.read_text() == "precious"


def test_an_archive_begins_in_a_directory_that_only_its_owner_writes_to(place):
    directory = place.path / "roomy"
    directory.mkdir()
    directory.chmod(0o775)
    endpoints = [word for endpoint in place.directories() for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("init", directory, "--code", "rs:4+2", *endpoints)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    lab.ecfs("status", directory)
    if lab.ROOT:
        theirs = place.path / "theirs"
        theirs.mkdir()
        os.chown(theirs, OTHER, OTHER)
        refused(STRANGE, "init", theirs, "--code", "rs:4+2", *endpoints)
        assert not list(theirs.iterdir())


@pytest.mark.parametrize("kind", ["directories", "sshd"])
@pytest.mark.slow
def test_what_is_stored_is_for_its_owner_alone_unless_it_is_shared(place, kind):
    """A small file lies in its stripes as it is, and the journal has all names."""
    servers = [place.sshd(name) for name in ["amber", "birch", "cedar"]] if kind == "sshd" else place.directories(["amber", "birch", "cedar"])
    archive = place.archive(servers, code="rs:2+1")
    small, large = place.path / "small", place.path / "large"
    small.write_text("secret")
    lab.write_pattern(large, 3 * MIB)
    archive.put_in_full(small, "/small")
    archive.put_in_full(large, "/large")
    for server in servers:
        below = [path for path in server.root.rglob("*") if path.parent != server.root or path.name != "secret"]
        stored = [path for path in below if path.is_file() and path.parent.name != "etc"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in stored} == {0o600}
        assert {stat.S_IMODE(path.stat().st_mode) for path in below if path.is_dir()} == {0o700}
    shared = place.path / "shared"
    lab.ecfs("endpoint", "test", f"x=file://{shared},share=group", check=False)
    archive.configure("endpoint amber", share="group")
    archive.put_in_full(large, "/again")
    new = {stat.S_IMODE(path.stat().st_mode) for path in servers[0].root.rglob("*") if path.is_file()}
    assert new == {0o600, 0o640}
