"""Verbs beside a mount: what they change the mount does, what they tell is true, and who waits is told why."""
import contextlib
import errno
import json
import os
import pty
import signal
import socket
import subprocess
import time
from pathlib import Path

import lab
import pytest

MIB = 1 << 20


@pytest.fixture
def source(place):
    """A file that spans several segments."""
    path = place.path / "source"
    lab.write_pattern(path, 5 * MIB + 77, 1)
    return path


def begin(*arguments, **options):
    """The program, running."""
    env = os.environ | {"TERM": "xterm"}  # a dumb one is not told of progress
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": env} | options
    return subprocess.Popen([lab.BUILD / "tools/ecfs", *map(str, arguments)], **options)


def end(process, timeout=60):
    """Its exit status and messages."""
    _, messages = process.communicate(timeout=timeout)
    return process.returncode, (messages or b"").decode(errors="replace")


def sent_bytes(archive):
    """What lies on the endpoints, committed or on its way."""
    return sum(lab.size_of(path) for endpoint in archive.endpoints for path in lab.stripe_files(endpoint))


# put


@pytest.mark.slow
def test_what_is_put_beside_a_mount_is_seen_there_at_once(place, archive, mount, source):
    path = mount.path / "file"
    with pytest.raises(FileNotFoundError):  # the kernel keeps that it is not there
        path.stat()
    assert os.listdir(mount.path) == []  # and listings
    archive.put(source, "/file")
    assert lab.digest(path) == lab.digest(source)
    assert os.listdir(mount.path) == ["file"]
    assert path.stat().st_mtime_ns == source.stat().st_mtime_ns
    other = place.path / "other"
    lab.write_pattern(other, 2 * MIB, 2)
    archive.put(other, "/file")  # over what the page cache has
    assert lab.digest(path) == lab.digest(other)
    assert path.stat().st_size == 2 * MIB
    archive.put("--code", "copies:3", source, "/deep/down/")
    assert lab.digest(mount.path / "deep/down/source") == lab.digest(source)
    assert os.getxattr(mount.path / "deep/down/source", "user.ecfs.code") == b"copies:3"
    lab.forget_mounts()
    assert lab.digest(path) == lab.digest(other)


def test_readers_and_writers_keep_what_put_replaces(place, archive, mount, source):
    path = mount.path / "file"
    old = lab.write_pattern(path, 3 * MIB, 3)
    with open(path, "rb") as reader, open(path, "r+b", buffering=0) as writer:
        writer.write(b"changed")
        archive.put(source, "/file")
        assert lab.digest(path) == lab.digest(source)
        assert reader.read(7) == b"changed"
        writer.write(b" again")
        reader.seek(MIB)
        assert len(reader.read()) == 2 * MIB
    assert lab.digest(path) == lab.digest(source) != old
    archive.await_stored()
    lab.forget_mounts()
    assert lab.digest(path) == lab.digest(source)


@pytest.mark.slow
def test_a_tree_beside_a_mount_is_the_same_as_without(place, archive, mount):
    tree = place.path / "tree"
    lab.real_tree(tree, 150)
    lab.add_oddities(tree)
    os.mkfifo(tree / "odd/fifo")
    lab.settle(tree)
    list(mount.path.rglob("*"))
    archive.put(tree, "/")
    expected = lab.describe_tree(tree)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "tree"))
    (tree / "odd/size-1").write_text("changed")
    os.unlink(tree / "odd/link")
    (tree / "odd/link").write_text("no link any more")
    archive.put(tree, "/")  # over all of it
    expected = lab.describe_tree(tree)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "tree"))
    mount.umount()
    mount.start()
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "tree"))


def test_put_takes_standard_input_and_refuses_what_it_cannot_do(place, archive, mount, source):
    (mount.path / "directory").mkdir()
    with open(source, "rb") as file:
        process = begin("put", archive.path, "-", "/from/stdin", stdin=file)
        assert end(process) == (0, "")
    assert lab.digest(mount.path / "from/stdin") == lab.digest(source)
    done = archive.put(source, "/directory/../x", check=False)
    assert done.returncode == 1 and '".."' in done.stderr
    done = archive.put("--code", "rs:8+3", source, "/x", check=False)
    assert done.returncode == 1 and "rs:8+3" in done.stderr
    (source.parent / "directory").write_text("a file in place of a directory")
    done = archive.put(source.parent / "directory", "/", check=False)
    assert done.returncode == 1 and "directory" in done.stderr
    assert sorted(os.listdir(mount.path)) == ["directory", "from"]


@pytest.mark.slow
def test_put_tells_progress_on_a_terminal(place, archive, mount):
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    master, slave = pty.openpty()
    process = begin("put", archive.path, big, "/big", stderr=slave)
    os.close(slave)
    lab.until(lambda: sent_bytes(archive) > 0, 60, "something is sent")
    os.kill(mount.process.pid, signal.SIGSTOP)  # until there is something to tell
    if process.poll() is not None:
        pytest.skip("this machine stores 300 MiB before there is anything to tell")
    told = bytearray()

    def has_told():
        with contextlib.suppress(BlockingIOError):
            told.extend(os.read(master, 1000))
        return b"0 of 1 files, " in told and b" of 300 MiB" in told
    os.set_blocking(master, False)
    try:
        lab.until(has_told, 60, "progress is told")
    finally:
        os.kill(mount.process.pid, signal.SIGCONT)
    assert process.wait(120) == 0
    os.close(master)
    assert lab.digest(mount.path / "big") == lab.digest(big)


def test_wait_tells_on_a_terminal_what_is_left(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    hide(archive, 3)
    for number in range(2):
        lab.write_pattern(mount.path / f"file{number}", MIB, number)
    lab.until(lambda: archive.json("status")["staging"]["files"] == 2, 60, "they cannot be stored")
    os.kill(mount.process.pid, signal.SIGSTOP)  # else it fails soon, with the reason
    master, slave = pty.openpty()
    process = begin("wait", mount.path, stderr=slave)
    os.close(slave)
    os.set_blocking(master, False)
    told = bytearray()

    def has_told():
        with contextlib.suppress(OSError):
            told.extend(os.read(master, 1000))
        return b"storing: 0 of 2 files" in told or process.poll() is not None
    try:
        lab.until(has_told, 60, "it is told")
    finally:
        os.kill(mount.process.pid, signal.SIGCONT)
    show(archive)
    process.wait(120)
    os.close(master)
    assert b"storing: 0 of 2 files" in told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_put_is_ended_by_a_signal_and_leaves_nothing(place, archive, mount, number):
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    before = sent_bytes(archive)
    process = begin("put", archive.path, big, "/big")
    lab.until(lambda: sent_bytes(archive) > before + MIB or process.poll() is not None, 60, "something is sent")
    if process.poll() is not None:
        pytest.skip("this machine stores 300 MiB before anybody can say no")
    process.send_signal(number)
    status, messages = end(process)
    if status == 0:
        pytest.skip("this machine is too busy: put ended before the signal came")
    assert status == (1 if number == signal.SIGINT else -number), messages
    assert os.listdir(mount.path) == []
    lab.until(lambda: sent_bytes(archive) == before, 60, "what was sent is deleted")
    archive.put(big, "/big")
    assert lab.digest(mount.path / "big") == lab.digest(big)


@pytest.mark.slow
def test_put_ends_with_the_mount_and_half_a_file_is_nowhere(place, archive, mount, source):
    archive.put(source, "/file")
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    before = sent_bytes(archive)
    process = begin("put", archive.path, big, big, "/file", "/directory/")
    lab.until(lambda: sent_bytes(archive) > before + MIB or process.poll() is not None, 60, "something is sent")
    if process.poll() is not None:
        pytest.skip("this machine stores 600 MiB before the mount can be killed")
    mount.kill()
    status, messages = end(process)
    assert status == 1 and "mount" in messages
    mount.start()
    assert lab.digest(mount.path / "file") == lab.digest(source)
    whole = list((mount.path / "directory").iterdir())  # the first, where the test was slow to look
    assert all(lab.digest(path) == lab.digest(big) for path in whole)
    lab.until(lambda: whole or sent_bytes(archive) == before, 60, "what was sent is deleted")


def test_put_beside_a_mount_tells_what_is_not_full(archive, mount, source):
    archive["birch"].kill()
    done = archive.put(source, "/file")
    assert "1 of 1 files" in done.stderr and "fewer stripes" in done.stderr
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"quorum 5/6")
    archive["cedar"].kill()
    done = archive.put(source, "/other", check=False)
    assert done.returncode == 1 and "birch" in done.stderr and "cedar" in done.stderr
    assert os.listdir(mount.path) == ["file"]


def test_two_puts_without_a_mount_do_not_meet(archive, source):
    first = begin("put", archive.path, "-", "/first", stdin=subprocess.PIPE)
    holder = archive.path / "lock"
    lab.until(lambda: holder.exists() and holder.read_text().startswith(f"{first.pid}\n"), 60, "the first has the archive")
    done = archive.put(source, "/second", check=False)
    assert done.returncode == 1 and str(first.pid) in done.stderr
    first.stdin.write(b"content")
    assert end(first) == (0, "")
    assert {entry["name"]: entry["size"] for entry in archive.json("ls", "/")}["first"] == 7


# endpoint add


@pytest.mark.slow
def test_an_endpoint_that_is_added_is_used_at_once(place, archive, mount):
    config = archive.path / "ecfs.conf"
    config.write_text(config.read_text() + "\n# ours, and to stay\n")
    extra = lab.Directory(place.path / "more", "grove")
    lab.ecfs("endpoint", "add", archive.path, extra.endpoint())
    text = config.read_text()
    assert "# ours, and to stay" in text and "[endpoint grove]" in text
    names = [entry["name"] for entry in archive.json("status")["endpoints"]]
    assert names == [*lab.NAMES, "grove"]
    archive["birch"].kill()
    expected = lab.write_pattern(mount.path / "file", 3 * MIB, 5)
    archive.await_stored()
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"full 6/6")
    assert lab.stripe_files(extra)
    lab.ecfs("endpoint", "add", archive.path, extra.endpoint())  # is there already, which is what was asked for
    for bad in [f"{extra.endpoint()},zone=other", "amber=file:///nowhere", "gopher://x", "x=file:///nowhere/at/all"]:
        done = lab.ecfs("endpoint", "add", archive.path, bad, check=False)
        assert done.returncode == 1 and done.stderr, bad
    assert config.read_text() == text
    mount.umount()
    mount.start()
    assert lab.digest(mount.path / "file") == expected


# Verbs that tell


@pytest.mark.slow
def test_what_is_told_beside_a_mount_is_as_of_now(place, archive, mount):
    target = place.path / "target"
    for i in range(20):  # each within the time that changes may take to be written down
        path = mount.path / f"file-{i}"
        expected = lab.write_pattern(path, 100_000 + i, i)
        os.utime(path, ns=(i, 10**18 + i))
        archive.get(f"/file-{i}", f"{target}/")
        assert lab.digest(target / f"file-{i}") == expected
        assert (target / f"file-{i}").stat().st_mtime_ns == 10**18 + i
    os.rename(mount.path / "file-0", mount.path / "moved")
    os.unlink(mount.path / "file-1")
    told = {entry["name"]: entry for entry in archive.json("ls", "/")}
    assert "moved" in told and "file-0" not in told and "file-1" not in told
    assert told["file-19"]["size"] == 100_019 and told["file-19"]["mtime_ns"] == 10**18 + 19


@pytest.mark.slow
def test_what_is_staged_is_told_and_not_taken_for_stored(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    old = lab.write_pattern(mount.path / "old", MIB, 1)
    archive.await_stored()
    hide(archive, 3)
    lab.write_pattern(mount.path / "fresh", MIB, 2)
    lab.write_pattern(mount.path / "old", 2 * MIB, 3)
    told = {entry["name"]: entry for entry in archive.json("ls", "/")}
    assert told["fresh"]["staged"] and told["old"]["staged"] and told["fresh"]["size"] == MIB
    info = archive.json("info", "/old")  # what is promised is of the former content, and so it is told
    assert info["state"] == "staged" and info["staged"] and info["size"] == 2 * MIB and "guarantee" not in info
    assert info["former"]["size"] == MIB and "guarantee" in info["former"]
    assert "staged, not stored yet" in lab.ecfs("info", archive.path, "/old").stdout
    assert "former" not in archive.json("info", "/fresh")
    done = lab.ecfs("export", archive.path, "/old")
    assert "newer content is in staging" in done.stderr and done.stdout
    done = lab.ecfs("export", archive.path, "/fresh", check=False)
    assert done.returncode == 1 and "not stored yet" in done.stderr
    done = archive.get("/fresh", f"{place.path}/target/", check=False)
    assert done.returncode == 1 and "staging" in done.stderr and "ecfs wait" in done.stderr
    assert not (place.path / "target/fresh").exists()
    assert archive.json("status")["staging"]["files"] == 2
    show(archive)
    done = archive.get("/old", f"{place.path}/target/", check=False)
    if done.stderr:  # it was not stored meanwhile
        assert "newer content is in staging" in done.stderr
        assert lab.digest(place.path / "target/old") == old
    archive.await_stored()
    assert archive.get("/old", f"{place.path}/target/").stderr == ""
    assert lab.digest(place.path / "target/old") == lab.digest(mount.path / "old")


# wait


def hide(archive, count):
    for endpoint in archive.endpoints[:count]:
        endpoint.kill()


def show(archive):
    for endpoint in archive.endpoints:
        endpoint.start()


@pytest.mark.parametrize("commit", ["sync", "async"])
@pytest.mark.slow
def test_wait_is_for_all_that_was_closed_and_for_nothing_else(place, archive, commit):
    archive.configure("archive", commit=commit)
    mount = place.mount(archive)
    for i in range(30):
        lab.write_pattern(mount.path / f"file-{i}", i * 50_000, i)
    program = "import os, sys; f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); os.write(f, b'x' * 100000); input()"
    writer = subprocess.Popen(["python3", "-c", program, mount.path / "open"], stdin=subprocess.PIPE)
    lab.until(lambda: (mount.path / "open").exists() and (mount.path / "open").stat().st_size, 60, "it is written to")
    archive.await_stored()
    for i in range(1, 30):
        assert os.getxattr(mount.path / f"file-{i}", "user.ecfs.state").startswith(b"full")
    assert os.getxattr(mount.path / "open", "user.ecfs.state") == b"staged"
    done = lab.ecfs("wait", archive.path, "/open", check=False, timeout=60)
    assert done.returncode == 1 and "/open" in done.stderr  # who names it wants it stored
    writer.communicate(b"\n")
    archive.await_stored("/open", "/file-3")
    done = lab.ecfs("wait", archive.path, "/absent", check=False, timeout=60)
    assert done.returncode == 1 and "absent" in done.stderr
    archive["amber"].kill()
    archive["fjord"].kill()
    lab.forget_mounts()
    for i in range(30):
        expected = lab.write_pattern(place.path / "plain", i * 50_000, i)
        assert lab.digest(mount.path / f"file-{i}") == expected


def test_wait_names_the_files_and_the_endpoint_that_they_lack(archive, mount):
    name = os.fsdecode(b"odd \xe9 % name")
    archive["cedar"].kill()
    lab.write_pattern(mount.path / name, MIB, 1)
    lab.write_pattern(mount.path / "other", MIB, 2)
    archive.await_stored("--quorum")
    done = lab.ecfs("wait", archive.path, check=False, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2, done.stderr
    assert all(word in done.stderr for word in ["/other", "odd ", "endpoint cedar"])
    done = lab.ecfs("wait", archive.path, f"/{name}", check=False, timeout=60)
    assert done.returncode == 1 and "endpoint cedar" in done.stderr and "/other" not in done.stderr
    archive["cedar"].start()
    archive.await_stored()


def is_connected(process):
    with contextlib.suppress(OSError):  # a descriptor that it closed meanwhile
        return any(os.readlink(path).startswith("socket:") for path in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


@pytest.mark.slow
def test_wait_is_ended_by_a_signal(place):
    servers = place.archive([place.sshd(name) for name in lab.NAMES])
    servers.configure("archive", commit="async")
    for name in lab.NAMES:
        servers.configure(f"endpoint {name}", stall_timeout="10m")
    mount = place.mount(servers)
    for endpoint in servers.endpoints[:3]:
        endpoint.suspend()
    lab.write_pattern(mount.path / "file", MIB, 1)
    process = begin("wait", servers.path)
    lab.until(lambda: is_connected(process), 60, "it waits")
    process.terminate()
    assert end(process)[0] == -signal.SIGTERM
    for endpoint in servers.endpoints[:3]:
        endpoint.resume()
    servers.await_stored()


def test_wait_without_a_mount_tells_what_waits_for_one(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "stored", MIB, 1)
    archive.await_stored()
    hide(archive, 3)
    lab.write_pattern(mount.path / "staged", MIB, 2)
    mount.kill()
    done = lab.ecfs("wait", archive.path, check=False, timeout=60)
    assert done.returncode == 1 and "1 file" in done.stderr and "mount" in done.stderr
    done = lab.ecfs("wait", archive.path, "/stored", check=False, timeout=60)  # the other's name is only here
    assert done.returncode == 1 and "not in the journal" in done.stderr and "mount" in done.stderr
    assert lab.ecfs("wait", archive.path, "/staged", check=False, timeout=60).returncode == 1
    show(archive)
    mount.start()
    archive.await_stored()
    assert os.getxattr(mount.path / "staged", "user.ecfs.state").startswith(b"full")


def test_wait_fails_where_nothing_is_mounted(place, archive):
    """`rsync -a source/ mnt/ && ecfs wait mnt && rm -r source` must not get to its end."""
    mount = place.mount(archive)
    assert lab.ecfs("wait", mount.path).returncode == 0, "the mountpoint stands for the archive"
    (mount.path / "file").write_text("x")
    assert lab.ecfs("wait", mount.path, "/file").returncode == 0
    mount.umount()
    (mount.path / "file").write_text("only on the local disk")
    for name in [mount.path, archive.path]:
        done = lab.ecfs("wait", name, check=False)
        assert done.returncode == 1 and "mounted" in done.stderr
    assert lab.ecfs("wait", "--unmounted", archive.path).returncode == 0
    done = lab.ecfs("mount", archive.path, mount.path, check=False)
    assert done.returncode == 1 and "not empty" in done.stderr and "nonempty" in done.stderr
    mount.options = ("-o", "nonempty")
    mount.start()
    assert (mount.path / "file").read_text() == "x"


# umount


def test_umount_without_a_door_names_the_process_to_end(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 3 * MIB, 1)
    (archive.path / "control.sock").unlink()
    for name in [mount.path, archive.path]:
        status, text = end(begin("umount", name))
        assert status == 1 and f'"kill {mount.process.pid}"' in text and "fusermount3" not in text, text
    assert mount.mounted() and mount.process.poll() is None
    os.kill(mount.process.pid, signal.SIGTERM)  # as it says
    assert mount.process.wait(60) == 0 and not mount.mounted(), mount.text()
    archive.get("/file", place.path)
    assert lab.digest(place.path / "file") == expected


def test_umount_of_a_dead_mount_names_no_process(place, archive):
    """Also while another mount has the archive."""
    dead = place.mount(archive)
    dead.process.kill()
    dead.process.wait()

    def refuse():
        status, text = end(begin("umount", dead.path))
        assert status == 1 and f"fusermount3 -u -z {dead.path}" in text and '"kill' not in text, text

    refuse()
    living = place.mount(archive)
    refuse()
    lab.detach(dead.path)
    living.umount()


POLL = {"7", "73"}  # x86-64; ppoll, by which others do it


def awaits_process(process):
    """Whether it has no connection any more and waits for something else."""
    try:
        links = [os.readlink(path) for path in Path(f"/proc/{process.pid}/fd").iterdir()]
        call = Path(f"/proc/{process.pid}/syscall").read_text().split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return call in POLL and not any(link.startswith("socket:") for link in links)


def test_umount_waits_for_a_mount_that_ends_meanwhile(place, archive):
    """It is gone from its place when its answer is due, and its process has not ended."""
    mount = place.mount(archive)
    (archive.path / "control.sock").unlink()
    with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(archive.path):
        door.bind("control.sock")
        door.listen()
        door.settimeout(60)
        os.kill(mount.process.pid, signal.SIGSTOP)
        try:
            umount = begin("umount", mount.path)
            client, _ = door.accept()
            with client, client.makefile("rw") as lines:
                assert json.loads(lines.readline())["verb"] == "ping"
                lines.write(json.dumps({"ok": True}) + "\n")
            client, _ = door.accept()
            lab.detach(mount.path)
            with client, client.makefile("rw") as lines:
                assert json.loads(lines.readline())["verb"] == "umount"
                lines.write(json.dumps({"error": "it ends", "errno": errno.ENOTCONN}) + "\n")
            lab.until(lambda: awaits_process(umount) or umount.poll() is not None, 60, "umount waits")
            assert umount.poll() is None, "it did not wait for the process"
        finally:
            os.kill(mount.process.pid, signal.SIGCONT)
    status, text = end(umount)
    assert status == 0, text
    assert mount.process.poll() == 0, mount.text()


# commit = async


@pytest.mark.slow
def test_queue_of_closed_files_survives_kill_9(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    source = place.path / "source"
    lab.real_tree(source, 80)
    lab.settle(source)
    hide(archive, 6)  # so that all of it waits
    lab.run("cp", "-a", source, mount.path / "cp")
    lab.run("rsync", "-aHX", f"{source}/", f"{mount.path}/rsync/")
    fsync_directory(mount.path)
    mount.kill()
    mount.start()
    expected = lab.describe_tree(source)
    for copy in ["cp", "rsync"]:  # from staging, with the times that came behind close
        lab.assert_same_tree(expected, lab.describe_tree(mount.path / copy))
    show(archive)
    archive.await_stored()
    archive["delta"].kill()
    archive["ember"].kill()
    lab.forget_mounts()
    for copy in ["cp", "rsync"]:
        lab.assert_same_tree(expected, lab.describe_tree(mount.path / copy))
    assert os.listdir(archive.path / "interrupted") == []
    assert rsync_finds_nothing_to_do(source, mount.path / "rsync")


def fsync_directory(path):
    """The last times that were set are durable then."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def rsync_finds_nothing_to_do(source, copy):
    text = lab.run("rsync", "-aHX", "--stats", f"{source}/", f"{copy}/").stdout
    return "Number of regular files transferred: 0\n" in text


def test_what_a_rename_replaces_stays_until_the_new_content_is_stored(place, archive):
    archive.configure("archive", commit="async", deletion_grace="0")
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", MIB, 1)
    lab.write_pattern(mount.path / "other", MIB, 2)
    archive.await_stored()
    hide(archive, 3)
    lab.write_pattern(mount.path / "new", MIB, 3)
    os.rename(mount.path / "new", mount.path / "file")
    os.unlink(mount.path / "other")  # queued behind what was replaced
    lab.until(lambda: all(len(lab.stripe_files(endpoint)) == 1 for endpoint in archive.endpoints[3:]), 60,
              "what can be deleted is")
    mount.kill()
    staging = archive.path / "staging"
    for path in staging.iterdir():  # it is gone with its disk
        path.unlink()
    show(archive)
    with pytest.raises(AssertionError, match="not the staging directory of this archive"):
        mount.start()
    (staging / ".ecfs-staging").touch()  # as the message says for what is lost for good
    mount.start()
    assert lab.digest(mount.path / "file") == expected
    assert "its former content stays" in mount.text()


def change(path):
    """A little in its middle, as is safe on this machine first."""
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"0123456789")
    return lab.digest(path)


def test_what_was_changed_is_stored_before_it_takes_the_place_of_another(place):
    archive = place.archive([place.behind_proxy(name) for name in lab.NAMES], "rs:4+2")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "changed", 2 * MIB, 1)
    lab.write_pattern(mount.path / "file", MIB, 2)
    archive.await_stored()
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", 250_000)
    expected = change(mount.path / "changed")
    os.rename(mount.path / "changed", mount.path / "file")
    fd = os.open(mount.path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)
    mount.kill()
    for path in (archive.path / "staging").iterdir():  # it is gone with its disk
        path.unlink()
    (archive.path / "staging/.ecfs-staging").touch()
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", 0)
    mount.start()
    assert lab.digest(mount.path / "file") == expected


@pytest.mark.slow
def test_a_rename_waits_for_ten_seconds_at_most(place):
    """The kernel keeps both directories locked meanwhile."""
    archive = place.archive([place.behind_proxy(name) for name in lab.NAMES], "rs:4+2")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "changed", 4 * MIB, 1)
    lab.write_pattern(mount.path / "file", MIB, 2)
    archive.await_stored()
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", 20_000)
    expected = change(mount.path / "changed")
    begun = time.monotonic()
    os.rename(mount.path / "changed", mount.path / "file")
    assert time.monotonic() - begun < 25
    assert lab.digest(mount.path / "file") == expected
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", 0)
    archive.await_stored()
    assert lab.digest(mount.path / "file") == expected


def test_a_rename_does_not_fail_where_nothing_can_be_stored(place, archive):
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "changed", 2 * MIB, 1)
    lab.write_pattern(mount.path / "file", MIB, 2)
    archive.await_stored()
    hide(archive, 3)
    expected = change(mount.path / "changed")
    os.rename(mount.path / "changed", mount.path / "file")
    assert lab.digest(mount.path / "file") == expected
    show(archive)
    archive.await_stored()
    assert lab.digest(mount.path / "file") == expected


def test_a_staging_directory_that_is_another_is_not_taken_for_an_empty_one(place, archive):
    """As where it is a file system of its own that is not mounted today."""
    archive.configure("archive", commit="async")
    staging, away = archive.path / "staging", archive.path / "away"
    mount = place.mount(archive)
    hide(archive, 3)
    expected = lab.write_pattern(mount.path / "file", MIB, 1)
    mount.kill()
    show(archive)

    def refused():
        with pytest.raises(AssertionError, match="not the staging directory of this archive"):
            mount.start()
        assert "mount it there" in mount.text()
    staging.rename(away)
    refused()
    (staging / ".ecfs-staging").write_text("01234567-89ab-4cde-8f01-23456789abcd\n")  # another archive's
    refused()
    (archive.path / "staging-id").unlink()  # an archive from before there was any, and what is staged is not there
    (staging / ".ecfs-staging").unlink()
    refused()
    staging.rmdir()
    away.rename(staging)
    (staging / ".ecfs-staging").unlink()  # now it is there
    mount.start()
    assert lab.digest(mount.path / "file") == expected
    archive.await_stored()
    assert (staging / ".ecfs-staging").read_bytes() == (archive.path / "staging-id").read_bytes()
    mount.umount()


def test_writers_wait_for_room_and_go_on(place, archive):
    archive.configure("archive", commit="async", staging_max="8M")
    mount = place.mount(archive)
    hide(archive, 3)
    lab.write_pattern(mount.path / "first", 7 * MIB, 1)
    plain, size = place.path / "plain", 600_000  # all of them do not fit beside the first
    expected = lab.write_pattern(plain, size, 2)
    copies = [mount.path / f"copy-{i}" for i in range(12)]  # more than FUSE has workers
    writers = {copy: subprocess.Popen(["dd", f"if={plain}", f"of={copy}", "bs=64K", "status=none"]) for copy in copies}
    lab.until(lambda: staged_bytes(archive) > 8 * MIB, 60, "the limit is reached")
    lab.until(lambda: len(os.listdir(mount.path)) == 13, 60, "names are made all the same")
    assert (mount.path / "first").read_bytes()[:8] == plain.read_bytes()[:8]  # reading goes on
    stuck = [copy for copy in copies if copy.stat().st_size <= size - 3 * 65536]  # with more to come than is under way
    assert len(stuck) > 2
    killed = {stuck[0]: signal.SIGTERM, stuck[1]: signal.SIGKILL}
    for copy, number in killed.items():
        writers[copy].send_signal(number)
        assert writers[copy].wait(60) == -number
    assert staged_bytes(archive) <= (8 + 12) * MIB
    show(archive)
    assert all(writer.wait(120) == 0 for copy, writer in writers.items() if copy not in killed)
    archive.await_stored()
    assert all(lab.digest(copy) == expected for copy in copies if copy not in killed)


def staged_bytes(archive):
    return sum(lab.size_of(path) for path in lab.files_below(archive.path / "staging"))


# fsync = remote


def test_fsync_remote_returns_when_content_is_stored(place, archive):
    archive.configure("archive", fsync="remote")
    mount = place.mount(archive)
    with open(mount.path / "file", "wb", buffering=0) as file:
        file.write(b"first" * 20_000)
        os.fsync(file.fileno())
        archive.get("/file", place.path)
        assert (place.path / "file").read_bytes() == b"first" * 20_000
        file.write(b"x")  # which close alone would leave to the last one
        os.fdatasync(file.fileno())
        archive.get("/file", place.path)
        assert (place.path / "file").stat().st_size == 100_001
        hide(archive, 3)
        file.write(b"second" * 20_000)
        with pytest.raises(OSError):
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):  # closing tries once more
            file.close()
    show(archive)
    archive.await_stored()
    assert (mount.path / "file").read_bytes() == b"first" * 20_000 + b"x" + b"second" * 20_000


@pytest.mark.slow
def test_fsync_remote_holds_no_worker(place):
    archive = place.archive([place.sshd(name) for name in lab.NAMES])
    archive.configure("archive", fsync="remote")
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", stall_timeout="60s")
    mount = place.mount(archive)
    program = ("import os, sys; f = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY); os.write(f, b'y' * 200000); "
               "os.fsync(f); os._exit(0)")
    for endpoint in archive.endpoints[:3]:
        endpoint.suspend()
    callers = [subprocess.Popen(["python3", "-c", program, mount.path / f"file-{i}"]) for i in range(15)]
    lab.until(lambda: len(os.listdir(mount.path)) == 15, 60, "all have begun")
    lab.run("mkdir", mount.path / "directory", timeout=30)
    assert len(lab.run("ls", mount.path, timeout=30).stdout.split()) == 16
    assert all(caller.poll() is None for caller in callers)
    callers[0].kill()  # not held up either
    callers[0].wait(60)
    for endpoint in archive.endpoints[:3]:
        endpoint.resume()
    assert [caller.wait(90) for caller in callers[1:]] == [0] * 14
