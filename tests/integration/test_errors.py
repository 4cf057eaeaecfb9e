"""What goes wrong is told in one message that names it and says what to do; nothing is lost, and it works again after."""
import contextlib
import os
import pty
import re
import shutil
import socket
import subprocess
from pathlib import Path

import lab
import pytest

pytestmark = pytest.mark.long

MIB = 1 << 20


@pytest.fixture
def loaded(place):
    """Six sshd, a file in the archive."""
    archive = place.archive([place.sshd(name) for name in lab.NAMES])
    source = place.path / "source"
    lab.write_pattern(source, 3 * MIB, 1)
    archive.put(source, "/file")
    return archive


@pytest.fixture
def local(place, archive):
    """Six directories, a file in the archive."""
    source = place.path / "source"
    lab.write_pattern(source, 3 * MIB, 1)
    archive.put(source, "/file")
    return archive


def assert_whole(place, archive, path="/file"):
    target = place.path / "whole"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    archive.get(path, target)
    assert lab.digest(target / path[1:]) == lab.digest(place.path / "source")


REMEDY = re.compile(r"\b(check|run|replace|install|restore|make|mounted|remove|chmod|chown|add|is it|recover)\b")


def assert_says_what_to_do(text):
    assert REMEDY.search(text.partition(": ")[2]), f"this tells nobody what to do: {text}"


def examine(archive):
    """`endpoint test`, which must fail; its one message about amber."""
    done = lab.ecfs("endpoint", "test", archive.path, check=False, timeout=90)
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and "endpoint amber: " in lines[0], done.stderr
    assert_says_what_to_do(lines[0])
    return lines[0]


def one_message(done, *words):
    """The program failed and said why in a line or two."""
    assert done.returncode == 1, done
    assert 1 <= len(done.stderr.strip().splitlines()) <= 3, done.stderr
    if "catalog" in words:
        assert_says_what_to_do(done.stderr)
    missing = [word for word in words if str(word) not in done.stderr]
    assert not missing, f"{missing} not in: {done.stderr}"


@pytest.mark.slow
def test_wrong_host_key(place, loaded):
    amber, birch = loaded["amber"], loaded["birch"]
    place.keys.know("127.0.0.1", amber.port, birch.host_key.with_suffix(".pub").read_text())
    message = examine(loaded)
    assert all(word in message for word in ["SHA256:", f"{place.keys.known_hosts} line "]), message
    assert_whole(place, loaded)
    amber.know()
    lab.ecfs("endpoint", "test", loaded.path)


def accept_host_key(message):
    """Types the command that the message ends with, and "yes" where it asks."""
    command = re.search(r": (ssh -.*)$", message).group(1)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", f"{command} true"])
    said = b""
    with contextlib.suppress(OSError):  # it has ended
        while block := os.read(terminal, 4096):
            said += block
            if said.endswith(b"(yes/no/[fingerprint])? "):
                os.write(terminal, b"yes\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and b"(yes/no" in said, (command, said)


@pytest.mark.slow
def test_unknown_host_key(place, loaded):
    place.keys.known_hosts.write_text("".join(
        line for line in place.keys.known_hosts.read_text().splitlines(True) if f":{loaded['amber'].port} " not in line))
    message = examine(loaded)
    assert_whole(place, loaded)
    accept_host_key(message)
    lab.ecfs("endpoint", "test", loaded.path)


@pytest.mark.slow
def test_unknown_host_key_of_an_alias(place, loaded):
    """What is added to known_hosts has to be under the name that is looked up there."""
    amber, config = loaded["amber"], place.path / "ssh config"
    config.write_text(f"Host box\n HostName 127.0.0.1\n Port {amber.port}\n HostKeyAlias the-box\n")
    loaded.configure("endpoint amber", url=amber.url().replace(f"127.0.0.1:{amber.port}", "box"), ssh_config=config)
    accept_host_key(examine(loaded))
    assert "the-box " in place.keys.known_hosts.read_text()
    lab.ecfs("endpoint", "test", loaded.path)


@pytest.mark.slow
def test_wrong_host_key_at_init_leaves_nothing(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    place.keys.know("127.0.0.1", servers[0].port, servers[1].host_key.with_suffix(".pub").read_text())
    archive = lab.Archive(place.path / "archive", servers)
    one_message(archive.init(check=False), "amber", "SHA256:", place.keys.known_hosts)
    assert not archive.path.exists() or not any(archive.path.iterdir())
    assert not any(server.root.exists() and any(server.root.iterdir()) for server in servers)
    servers[0].know()
    archive.init()


@pytest.mark.slow
def test_host_that_refuses_connections(place, loaded):
    loaded["amber"].kill()
    message = examine(loaded)
    assert str(loaded["amber"].port) in message and "refused" in message
    assert_whole(place, loaded)


@pytest.mark.slow
def test_host_that_does_not_exist(place, loaded):
    loaded.configure("endpoint amber", url="sftp://nobody@no-such-host.invalid/srv")
    message = examine(loaded)
    assert "no-such-host.invalid" in message
    assert_whole(place, loaded)


@pytest.mark.slow
def test_host_that_never_answers(place, loaded):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        loaded["amber"].know(port)
        loaded.configure("endpoint amber", url=loaded["amber"].url(port=port))
        message = examine(loaded)
        assert "127.0.0.1" in message
        assert_whole(place, loaded)


@pytest.mark.slow
def test_key_that_the_server_does_not_take(place, loaded):
    (loaded["amber"].directory / "authorized_keys").write_text("")
    message = examine(loaded)
    assert "id_ed25519" in message or "key" in message
    assert_whole(place, loaded)


def test_server_that_forbids_writing_is_refused_at_init(place):
    servers = [place.sshd(name) for name in lab.NAMES]
    servers[0].subsystem = "internal-sftp -R"  # read-only: also for root, whom the modes of files do not stop
    servers[0].restart()
    archive = lab.Archive(place.path / "archive", servers)
    one_message(archive.init(check=False), "amber", "ermission", servers[0].root)
    assert not archive.path.exists() or not any(archive.path.iterdir())
    assert not any(server.root.exists() and any(server.root.iterdir()) for server in servers)


@pytest.mark.slow
def test_root_that_may_not_be_read(place, loaded):
    if lab.ROOT:
        pytest.skip("modes of files do not stop root")
    loaded["amber"].root.chmod(0)
    try:
        assert "ermission" in examine(loaded)
        assert_whole(place, loaded)
    finally:
        loaded["amber"].root.chmod(0o700)


@pytest.mark.slow
def test_root_that_is_not_there(place, loaded):
    loaded.configure("endpoint amber", url=loaded["amber"].url("/proc/1/ecfs"))
    assert "/proc/1/ecfs" in examine(loaded)
    assert_whole(place, loaded)


def test_missing_marker_means_unavailable_and_not_empty(place, local):
    marker = local["amber"].root / "ecfs-endpoint"
    marker.rename(place.path / "marker")
    message = examine(local)
    assert "ecfs-endpoint" in message or "marker" in message
    assert_whole(place, local)
    assert not marker.exists(), "nothing may be made anew"
    (place.path / "marker").rename(marker)
    lab.ecfs("endpoint", "test", local.path)


def test_directory_that_is_not_mounted_gets_no_stripes(place, local):
    local["amber"].kill()
    local["amber"].root.mkdir()
    local.put(place.path / "source", "/second")
    assert list(local["amber"].root.iterdir()) == []
    assert_whole(place, local, "/second")


def test_foreign_marker_is_refused(place, local):
    other = lab.Archive(place.path / "other", place.directories())
    other.init()
    shutil.copy(other["amber"].root / "ecfs-endpoint", local["amber"].root / "ecfs-endpoint")
    message = examine(local)
    assert "another" in message or "archive" in message
    assert_whole(place, local)


def test_endpoints_that_changed_places_are_noticed(place, local):
    config = (local.path / "ecfs.conf").read_text()
    amber, birch = f"file://{local['amber'].root}", f"file://{local['birch'].root}"
    (local.path / "ecfs.conf").write_text(config.replace(amber, "@").replace(birch, amber).replace("@", birch))
    done = lab.ecfs("endpoint", "test", local.path, check=False)
    assert done.returncode == 1 and "amber" in done.stdout + done.stderr and "birch" in done.stdout + done.stderr
    assert_whole(place, local)


@pytest.mark.slow
def test_garbage_as_marker(place, local):
    for garbage in [b"", b"\0" * 100, os.urandom(3000), b"[ecfs]\nversion = 999\n", b"x" * 1_000_000]:
        (local["amber"].root / "ecfs-endpoint").write_bytes(garbage)
        examine(local)
        assert_whole(place, local)


@pytest.mark.parametrize("verb", ["status", "mount", "put", "ls"])
@pytest.mark.slow
def test_unknown_key_in_the_configuration_is_told_with_its_line(place, local, verb):
    config = local.path / "ecfs.conf"
    good = config.read_text()
    config.write_text(good.replace("[archive]", "[archive]\nno_such_key = 7", 1))
    line = config.read_text().splitlines().index("no_such_key = 7") + 1
    arguments = {"mount": [place.path, "-f"], "put": [place.path / "source", "/again"]}.get(verb, [])
    done = lab.ecfs(verb, local.path, *arguments, check=False, timeout=120)
    one_message(done, "no_such_key", f":{line}", "ecfs.conf")
    config.write_text(good)
    assert_whole(place, local)


def test_all_problems_of_the_configuration_are_told_at_once(local):
    config = local.path / "ecfs.conf"
    config.write_text(config.read_text().replace("[archive]", "[archive]\nsegment_size = big\nfoo = 1", 1)
                      + "\n[endpoint amber]\nurl = gopher://x\n[what]\n")
    done = lab.ecfs("status", local.path, check=False)
    assert done.returncode == 1
    assert all(word in done.stderr for word in ["segment_size", "foo", "what"])


def catalog(archive):
    return archive.path / "catalog.sqlite"


def remove_log_files(archive):
    for suffix in ["-wal", "-shm"]:
        catalog(archive).with_name(catalog(archive).name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", ["garbage", "emptied", "truncated", "page"])
@pytest.mark.slow
def test_damaged_catalog_is_refused_and_left_alone(place, local, damage):
    remove_log_files(local)
    good = catalog(local).read_bytes()
    bad = {"garbage": os.urandom(len(good)), "emptied": b"", "truncated": good[:len(good) // 2],
           "page": good[:4096] + os.urandom(len(good) - 4096)}[damage]
    catalog(local).write_bytes(bad)
    one_message(lab.ecfs("mount", local.path, place.path, "-f", check=False, timeout=120), "catalog")
    one_message(local.put(place.path / "source", "/again", check=False), "catalog")
    assert catalog(local).read_bytes() == bad
    remove_log_files(local)
    catalog(local).write_bytes(good)
    assert_whole(place, local)


def test_missing_catalog_is_not_replaced_by_an_empty_one(place, local):
    remove_log_files(local)
    catalog(local).rename(place.path / "catalog")
    one_message(lab.ecfs("status", local.path, check=False), "catalog")
    one_message(local.put(place.path / "source", "/again", check=False), "catalog")
    assert not catalog(local).exists()
    (place.path / "catalog").rename(catalog(local))
    assert_whole(place, local)


def test_catalog_of_a_later_version_is_refused(place, local):
    sqlite3 = pytest.importorskip("sqlite3")
    database = sqlite3.connect(catalog(local))
    version, = database.execute("PRAGMA user_version").fetchone()
    database.execute(f"PRAGMA user_version = {version + 1000}")
    database.close()
    one_message(lab.ecfs("status", local.path, check=False), "catalog", "later ecfs")
    database = sqlite3.connect(catalog(local))
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    assert_whole(place, local)


@pytest.mark.parametrize("part", ["header", "footer", "tail"])
@pytest.mark.slow
def test_garbage_in_three_stripes_is_an_error_that_names_them(place, local, part):
    for count, endpoint in enumerate(local.endpoints[:3], 1):
        path = lab.stripe_files(endpoint)[0]
        good = path.read_bytes()
        (place.path / f"good-{endpoint.name}").write_bytes(good)
        at = {"header": 0, "footer": len(good) - 200, "tail": len(good) - 16}[part]
        path.write_bytes(good[:at] + os.urandom(min(64, len(good) - at)) + good[at + 64:])
        if count < 3:
            assert_whole(place, local)
    done = local.get("/file", place.path, check=False)
    # Where every byte of the content still proves itself, the file may be given out; never anything else.
    if done.returncode == 0:
        assert lab.digest(place.path / "file") == lab.digest(place.path / "source")
    else:
        one_message(done, "file", *lab.NAMES[:3])
    for endpoint in local.endpoints[:3]:
        lab.stripe_files(endpoint)[0].write_bytes((place.path / f"good-{endpoint.name}").read_bytes())
    assert_whole(place, local)


def test_archive_directory_that_is_none(place):
    one_message(lab.ecfs("mount", place.path / "nothing", place.path, "-f", check=False, timeout=120), "nothing")
    (place.path / "empty").mkdir()
    one_message(lab.ecfs("status", place.path / "empty", check=False), "empty", "ecfs init")


def test_mountpoint_that_is_none(place, local):
    one_message(lab.ecfs("mount", local.path, place.path / "absent", "-f", check=False, timeout=120), "absent")
    assert_whole(place, local)


def test_umount_of_what_is_no_mount(place):
    one_message(lab.ecfs("umount", place.path, check=False, timeout=120), place.path)


def test_mount_comes_up_without_endpoints_and_says_so(place, local):
    for endpoint in local.endpoints:
        endpoint.kill()
    mount = place.mount(local)
    assert os.listdir(mount.path) == ["file"]
    with pytest.raises(OSError):
        (mount.path / "file").read_bytes()
    for endpoint in local.endpoints:
        endpoint.start()
    lab.until(lambda: readable(mount.path / "file"), 60, "it is readable")
    assert lab.digest(mount.path / "file") == lab.digest(place.path / "source")


def readable(path):
    try:
        path.read_bytes()
        return True
    except OSError:
        return False


def test_a_place_that_is_given_twice_is_named(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    birch = archive["birch"].root
    (place.path / "link").symlink_to(birch)
    birch.mkdir(parents=True)
    archive.endpoints[2].root = place.path / "link"
    one_message(archive.init(check=False), "is the same place as endpoint birch")


def test_init_warns_of_endpoints_that_may_vanish_together(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    done = archive.init()
    assert "amber, birch, cedar, delta, ember, fjord are all on disk" in done.stderr and "zone" in done.stderr
    zones = [f"{endpoint.endpoint()},zone=here" for endpoint in place.directories()]
    words = [word for endpoint in zones for word in ("--endpoint", endpoint)]
    assert lab.ecfs("init", place.path / "second", *words).stderr == "", "who says so knows"


def test_a_lost_configuration_is_no_reason_to_begin_anew(place, local):
    (local.path / "ecfs.conf").unlink()
    for verb, arguments in [("status", []), ("ls", ["/"]), ("put", [place.path / "source", "/x"]),
                            ("mount", [place.path, "-f"])]:
        done = lab.ecfs(verb, local.path, *arguments, check=False)
        assert done.returncode == 1 and "recover" in done.stderr and "ecfs init" not in done.stderr


@pytest.mark.slow
def test_dead_mounts_are_cleared_away_although_the_kernel_remembers_them(place, local):
    mount = place.mount(local)
    for _ in range(2):
        (mount.path / "file").write_text("known")
        os.stat(mount.path)  # the kernel answers this from its cache when the process is gone
        process, mount.process = mount.process, None
        process.kill()
        process.wait()
        process = subprocess.Popen([lab.PROGRAM, "mount", local.path, mount.path, "-f"])
        lab.until(lambda: local.json("status")["mounted"], 60, "the next mount serves")
        mount.process = process
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        assert len([line for line in lines if line.split()[4] == str(mount.path)]) == 1
    mount.umount()


def test_the_socket_of_a_dead_mount_goes_with_the_next_change(place, local):
    mount = place.mount(local)
    socket_path = local.path / "control.sock"
    lab.until(socket_path.exists, 20, "the mount answers")
    mount.kill()
    local.put(place.path / "source", "/again")
    assert not socket_path.exists()
    mount.start()
    mount.umount()
    assert not socket_path.exists()
