"""Verbs beside a mount: what they change the mount does, what they tell is true, and who waits is told why."""
import os
import pty
import signal
import subprocess

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
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([lab.BUILD / "tools/ecfs", *map(str, arguments)], **options)


def end(process, timeout=60):
    """Its exit status and messages."""
    _, messages = process.communicate(timeout=timeout)
    return process.returncode, (messages or b"").decode(errors="replace")


def wait_until_stored(archive):
    """Endpoints that come back are found out about within a while."""
    lab.until(lambda: lab.ecfs("wait", archive.path, timeout=60, check=False).returncode == 0, 60, "all is stored")


def sent_bytes(archive):
    """What lies on the endpoints, committed or on its way."""
    return sum(path.stat().st_size for endpoint in archive.endpoints for path in lab.stripe_files(endpoint))


# put


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
    lab.drop_caches()
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
    assert lab.ecfs("wait", archive.path, timeout=60).returncode == 0
    lab.drop_caches()
    assert lab.digest(path) == lab.digest(source)


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


def test_put_tells_progress_on_a_terminal(place, archive, mount):
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    master, slave = pty.openpty()
    process = begin("put", archive.path, big, "/big", stderr=slave)
    os.close(slave)
    lab.until(lambda: sent_bytes(archive) > 0, 30, "something is sent")
    os.kill(mount.process.pid, signal.SIGSTOP)  # until there is something to tell
    if process.poll() is not None:
        pytest.skip("this machine stores 300 MiB before there is anything to tell")
    told = os.read(master, 1000)
    os.kill(mount.process.pid, signal.SIGCONT)
    assert b"0 of 1 files" in told and b"on the wire" in told
    assert process.wait(60) == 0
    os.close(master)
    assert lab.digest(mount.path / "big") == lab.digest(big)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_put_is_ended_by_a_signal_and_leaves_nothing(place, archive, mount, number):
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    before = sent_bytes(archive)
    process = begin("put", archive.path, big, "/big")
    lab.until(lambda: sent_bytes(archive) > before + MIB or process.poll() is not None, 30, "something is sent")
    if process.poll() is not None:
        pytest.skip("this machine stores 300 MiB before anybody can say no")
    process.send_signal(number)
    status, messages = end(process)
    assert status == (1 if number == signal.SIGINT else -number), messages
    assert os.listdir(mount.path) == []
    lab.until(lambda: sent_bytes(archive) == before, 60, "what was sent is deleted")
    archive.put(big, "/big")
    assert lab.digest(mount.path / "big") == lab.digest(big)


def test_put_ends_with_the_mount_and_half_a_file_is_nowhere(place, archive, mount, source):
    archive.put(source, "/file")
    big = place.path / "big"
    lab.write_pattern(big, 300 * MIB)
    before = sent_bytes(archive)
    process = begin("put", archive.path, big, big, "/file", "/directory/")
    lab.until(lambda: sent_bytes(archive) > before + MIB or process.poll() is not None, 30, "something is sent")
    mount.kill()
    status, messages = end(process)
    assert status == 1 and "mount" in messages
    mount.start()
    assert lab.digest(mount.path / "file") == lab.digest(source)
    assert os.listdir(mount.path / "directory") == []
    lab.until(lambda: sent_bytes(archive) == before, 60, "what was sent is deleted")


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
    lab.until(lambda: holder.exists() and holder.read_text().startswith(f"{first.pid}\n"), 30, "the first has the archive")
    done = archive.put(source, "/second", check=False)
    assert done.returncode == 1 and str(first.pid) in done.stderr
    first.stdin.write(b"content")
    assert end(first) == (0, "")
    assert {entry["name"]: entry["size"] for entry in archive.json("ls", "/")}["first"] == 7


# endpoint add


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
    wait_until_stored(archive)
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"full 6/6")
    assert lab.stripe_files(extra)
    for bad in [extra.endpoint(), "amber=file:///nowhere", "gopher://x", "x=file:///nowhere/at/all"]:
        done = lab.ecfs("endpoint", "add", archive.path, bad, check=False)
        assert done.returncode == 1 and done.stderr, bad
    assert config.read_text() == text
    mount.umount()
    mount.start()
    assert lab.digest(mount.path / "file") == expected
