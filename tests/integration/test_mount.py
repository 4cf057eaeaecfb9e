"""The mount over six directories: what programs do with a file system, and what they see of it."""
import contextlib
import errno
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import sys
import threading
import time
import zipfile
from pathlib import Path

import lab
import pytest

MIB = 1 << 20


@pytest.fixture
def source(place):
    """A small tree of real and odd files."""
    path = place.path / "source"
    lab.real_tree(path, 150)
    lab.add_oddities(path)
    return path


def reread(mount, path):
    """The digest of a file from the endpoints, not from memory."""
    lab.forget_mounts()
    return lab.digest(mount.path / path)


def remount(mount):
    mount.umount()
    mount.start()


def rsync(*arguments):
    """Runs rsync -aHX; the numbers of files and bytes that it transferred."""
    text = lab.run("rsync", "-aHX", "--stats", *arguments).stdout
    number = {key: int(re.search(rf"{key}: ([\d,]+)", text)[1].replace(",", ""))
              for key in ["Number of regular files transferred", "Total transferred file size"]}
    return tuple(number.values())


def attribute(path, name):
    return os.getxattr(path, f"user.ecfs.{name}").decode().rstrip("\0")


@pytest.mark.as_users
@pytest.mark.slow
def test_cp_a_keeps_everything(mount, source):
    lab.run("cp", "-a", f"{source}/.", mount.path)
    expected = lab.describe_tree(source)
    lab.forget_mounts()
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    lab.run("diff", "-r", "--no-dereference", source, mount.path)
    remount(mount)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))


@pytest.mark.slow
def test_second_rsync_transfers_nothing(mount, source):
    files, size = rsync(f"{source}/", f"{mount.path}/copy/")
    assert files > 100 and size > 0
    assert rsync(f"{source}/", f"{mount.path}/copy/") == (0, 0)
    remount(mount)
    assert rsync(f"{source}/", f"{mount.path}/copy/") == (0, 0)
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "copy"))


@pytest.mark.slow
def test_rsync_brings_changes_deletes_and_keeps_attributes_of_users(mount, source):
    rsync(f"{source}/", f"{mount.path}/copy/")
    os.setxattr(mount.path / "copy/odd/size-1", "user.note", b"ours")
    assert os.listxattr(mount.path / "copy/odd/size-1") == ["user.note"]
    (source / "odd/size-1").write_text("changed")
    shutil.rmtree(source / "odd/directory")
    lab.settle(source)
    rsync("--delete", f"{source}/", f"{mount.path}/copy/")
    lab.forget_mounts()
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "copy"))


@pytest.mark.slow
def test_tar_in_and_out(mount, source, place):
    packed = place.path / "source.tar"
    lab.run("tar", "-C", source, "--format=posix", "--xattrs", "-cf", packed, ".")
    lab.run("tar", "-C", mount.path, "--xattrs", "-xpf", packed)
    lab.forget_mounts()
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path))
    back = place.path / "back.tar"
    lab.run("tar", "-C", mount.path, "-cf", back, ".")
    lab.run("tar", "-C", source, "--compare", "-f", back)


@pytest.mark.slow
def test_unzip(mount, place):
    packed = place.path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for i in range(40):
            file.writestr(f"folder/{i}", random.Random(i).randbytes(i * 5000))
    if not shutil.which("unzip"):
        pytest.skip("unzip is not installed")
    lab.run("unzip", "-q", packed, "-d", mount.path)
    lab.forget_mounts()
    for i in range(40):
        assert (mount.path / f"folder/{i}").read_bytes() == random.Random(i).randbytes(i * 5000)


@pytest.mark.slow
def test_mv_find_and_rm(mount, source):
    lab.run("cp", "-a", source, mount.path / "one")
    expected = lab.describe_tree(source)
    lab.run("mv", mount.path / "one", mount.path / "two")
    lab.assert_same_tree(expected, lab.describe_tree(mount.path / "two"))
    found = lab.run("find", mount.path / "two", "-type", "f", "-size", "+1000k").stdout.splitlines()
    wanted = lab.run("find", source, "-type", "f", "-size", "+1000k").stdout.splitlines()
    assert len(found) == len(wanted) > 0
    lab.run("rm", "-r", mount.path / "two")
    assert list(mount.path.iterdir()) == []
    remount(mount)
    assert list(mount.path.iterdir()) == []


def test_rename_over_a_file_replaces_it_and_open_readers_keep_the_old_one(mount):
    lab.write_pattern(mount.path / "old", MIB, 1)
    expected = lab.write_pattern(mount.path / "new", 2 * MIB, 2)
    old = lab.digest(mount.path / "old")
    with open(mount.path / "old", "rb") as reader:
        os.rename(mount.path / "new", mount.path / "old")
        assert hashlib.blake2b(reader.read(), digest_size=16).hexdigest() == old
    assert reread(mount, "old") == expected
    assert not (mount.path / "new").exists()


def test_ln_makes_one_file_of_two_names(mount):
    expected = lab.write_pattern(mount.path / "first", 100_000, 4)
    lab.run("ln", mount.path / "first", mount.path / "second")
    lab.run("ln", "-s", "first", mount.path / "soft")
    assert os.stat(mount.path / "first").st_nlink == 2
    assert os.path.samefile(mount.path / "first", mount.path / "second")
    os.unlink(mount.path / "first")
    assert reread(mount, "second") == expected
    assert os.stat(mount.path / "second").st_nlink == 1
    assert os.readlink(mount.path / "soft") == "first"


def test_touch_chmod_and_chown_survive_a_remount(mount):
    path = mount.path / "file"
    lab.run("touch", "-d", "2001-02-03 04:05:06.789012345 UTC", path)
    lab.run("chmod", "2750", path)
    if lab.ROOT:
        lab.run("chown", "12:34", path)
        lab.run("chmod", "2750", path)
        lab.run("touch", "-d", "2001-02-03 04:05:06.789012345 UTC", path)
    before = lab.describe(path)
    assert before["mtime_ns"] == 981173106789012345
    assert before["mode"] == "0o2750"
    remount(mount)
    assert lab.describe(path) == before


def test_dd_in_odd_pieces_with_holes_and_truncation(mount, place):
    plain = place.path / "plain"
    lab.write_pattern(plain, 3 * MIB + 5, 6)
    lab.run("dd", f"if={plain}", f"of={mount.path}/copy", "bs=7777", "status=none")
    assert reread(mount, "copy") == lab.digest(plain)
    lab.run("dd", f"if={plain}", f"of={mount.path}/sparse", "bs=1M", "seek=40", "status=none")
    assert os.stat(mount.path / "sparse").st_size == 43 * MIB + 5
    lab.forget_mounts()
    with open(mount.path / "sparse", "rb") as file:
        assert file.read(40 * MIB) == bytes(40 * MIB)
        assert file.read() == plain.read_bytes()
    os.truncate(mount.path / "copy", 1000)
    assert reread(mount, "copy") == hashlib.blake2b(plain.read_bytes()[:1000], digest_size=16).hexdigest()


def test_holes_take_no_room_at_the_endpoints(mount, archive):
    with open(mount.path / "hole", "wb") as file:
        file.truncate(200 * MIB)
        file.seek(100 * MIB)
        file.write(b"island")
    assert sum(lab.size_of(path) for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)) < 20 * MIB
    lab.forget_mounts()
    with open(mount.path / "hole", "rb") as file:
        file.seek(100 * MIB)
        assert file.read(8) == b"island\0\0"


def test_writing_within_a_committed_file_and_appending_to_it(mount):
    path = mount.path / "file"
    lab.write_pattern(path, 3 * MIB, 8)
    expected = bytearray(path.read_bytes())
    with open(path, "r+b") as file:
        file.seek(1_234_567)
        file.write(b"in the middle")
    expected[1_234_567:1_234_580] = b"in the middle"
    with open(path, "ab") as file:
        file.write(b"and behind")
    expected += b"and behind"
    lab.forget_mounts()
    assert path.read_bytes() == expected
    remount(mount)
    assert path.read_bytes() == expected


def test_shell_redirection_with_several_writers_keeps_all_lines(mount):
    lab.run("sh", "-c", f"{{ echo a; (echo b); /bin/echo c; }} > {mount.path}/log; echo d >> {mount.path}/log")
    lab.forget_mounts()
    assert (mount.path / "log").read_text() == "a\nb\nc\nd\n"


def test_mmap_reads_and_writes(mount):
    path = mount.path / "file"
    lab.write_pattern(path, 5 * MIB, 3)
    expected = path.read_bytes()
    lab.forget_mounts()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        for offset in random.Random(1).sample(range(len(expected)), 200):
            assert mapped[offset] == expected[offset]
        assert mapped[:] == expected
    fresh = mount.path / "fresh"
    with open(fresh, "w+b") as file:
        file.truncate(MIB)
        with mmap.mmap(file.fileno(), MIB) as mapped:
            mapped[500_000:500_004] = b"here"
    lab.forget_mounts()
    assert fresh.read_bytes()[499_999:500_005] == b"\0here\0"


def test_random_reads_are_right_at_every_edge(mount):
    path = mount.path / "file"
    lab.write_pattern(path, 6 * MIB + 1, 5)
    expected = path.read_bytes()
    lab.forget_mounts()
    numbers = random.Random(7)
    with open(path, "rb", buffering=0) as file:
        for edge in [0, 2 * MIB, 4 * MIB, 6 * MIB, 6 * MIB + 1]:
            for delta in [-65_537, -1, 0, 1, 65_536]:
                offset = max(0, edge + delta)
                size = numbers.randrange(1, 300_000)
                assert os.pread(file.fileno(), size, offset) == expected[offset:offset + size]


def test_file_is_readable_while_it_is_written_and_after_it_is_unlinked(mount):
    with open(mount.path / "file", "w+b", buffering=0) as file:
        file.write(b"x" * 100_000)
        with open(mount.path / "file", "rb") as reader:
            assert reader.read() == b"x" * 100_000
        os.unlink(mount.path / "file")
        file.write(b"y")
        file.seek(99_999)
        assert file.read() == b"xy"
    assert list(mount.path.iterdir()) == []


def test_exec_closes_what_it_has_open(mount):
    """The kernel locks what /proc tells of a process meanwhile, so a mount that asks there would wait for itself."""
    lab.run(sys.executable, "-c", "import os, sys\n"
            "file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n"
            "os.write(file, b'x' * 3_000_000)\n"
            "os.execvp('true', ['true'])", mount.path / "file")
    lab.forget_mounts()
    assert (mount.path / "file").read_bytes() == b"x" * 3_000_000


@pytest.mark.slow
def test_many_writers_at_once(mount):
    digests, errors = {}, []

    def write(number):
        try:
            for i in range(10):
                digests[f"{number}-{i}"] = lab.write_pattern(mount.path / f"{number}-{i}", number * 40_000 + i, i)
        except OSError as error:
            errors.append(error)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    lab.forget_mounts()
    for name, expected in digests.items():
        assert lab.digest(mount.path / name) == expected


def test_second_mount_is_refused_and_the_first_stays(mount, place):
    other = place.path / "other"
    other.mkdir()
    try:
        done = lab.ecfs("mount", mount.archive.path, other, "-f", check=False, timeout=60)
    finally:
        lab.detach(other)
    assert done.returncode == 1
    assert str(mount.archive.path) in done.stderr and str(mount.process.pid) in done.stderr
    assert list(mount.path.iterdir()) == []


def test_verbs_work_beside_the_mount(mount, place):
    expected = lab.write_pattern(mount.path / "file", 300_000, 1)
    archive = mount.archive
    assert [entry["name"] for entry in archive.json("ls", "/")] == ["file"]
    archive.await_stored()
    info = archive.json("info", "/file")
    info = info[0] if isinstance(info, list) else info
    assert info["guarantee"] == 2
    archive.get("/file", place.path)
    assert lab.digest(place.path / "file") == expected
    lab.ecfs("status", archive.path)


@pytest.mark.slow
def test_umount_drains_what_is_staged(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    digests = {f"file-{i}": lab.write_pattern(mount.path / f"file-{i}", 3 * MIB, i) for i in range(20)}
    mount.umount()
    for name, expected in digests.items():
        archive.get(f"/{name}", place.path)
        assert lab.digest(place.path / name) == expected
    mount.start()
    for name, expected in digests.items():
        assert attribute(mount.path / name, "state").startswith("full 6/6")
        assert lab.digest(mount.path / name) == expected


def test_who_sees_a_mount_can_ask_it(place, monkeypatch):
    """However long endpoints take to tell what a mount asks them at its beginning."""
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    endpoints, words = place.directories(), []
    (place.path / "flaws").write_text("space 1+ delay 900\n")
    for endpoint in endpoints:
        words += ["--endpoint", f"{endpoint.name}=flaw+file://{endpoint.root},flaws={place.path / 'flaws'}"]
    lab.ecfs("init", place.path / "slow", *words)
    mount = place.mount(lab.Archive(place.path / "slow", endpoints))
    mount.umount()


@pytest.mark.as_users
@pytest.mark.slow
def test_sigterm_drains_too(place, archive):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 20 * MIB, 2)
    mount.process.terminate()
    assert mount.process.wait(60) == 0, mount.text()
    assert not mount.mounted()
    mount.process = None
    archive.get("/file", place.path)
    assert lab.digest(place.path / "file") == expected


@pytest.mark.as_users
def test_mount_goes_to_the_background_without_f(place, archive):
    target = place.path / "background"
    target.mkdir()
    try:
        lab.ecfs("mount", archive.path, target, timeout=60)
        assert lab.is_mounted(target)
        (target / "file").write_text("x")
        lab.ecfs("umount", target)
        assert not lab.is_mounted(target)
    finally:
        lab.detach(target)
    assert [entry["name"] for entry in archive.json("ls", "/")] == ["file"]


@lab.unkeyed
def test_state_and_digest_tell_about_a_file(mount, archive):
    lab.write_pattern(mount.path / "file", 5 * MIB, 1)
    archive.await_stored()
    state = attribute(mount.path / "file", "state")
    assert state.startswith("full 6/6") and "2" in state.partition("/6")[2]
    lab.write_pattern(mount.path / "same", 5 * MIB, 1)
    lab.write_pattern(mount.path / "different", 5 * MIB, 2)
    digest = attribute(mount.path / "file", "digest")
    assert digest and digest == attribute(mount.path / "same", "digest")
    assert digest != attribute(mount.path / "different", "digest")
    assert os.listxattr(mount.path / "file") == []
    with open(mount.path / "open", "wb", buffering=0) as file:
        file.write(b"x")
        assert attribute(mount.path / "open", "state").startswith("staged")


def test_code_of_a_directory_is_for_new_files_below_it(mount):
    (mount.path / "safe").mkdir()
    (mount.path / "safe/earlier").mkdir()
    os.setxattr(mount.path / "safe", "user.ecfs.code", b"copies:3")
    (mount.path / "safe/below").mkdir()
    for name in ["safe/below/file", "safe/earlier/file", "other"]:
        lab.write_pattern(mount.path / name, 100_000)
    assert attribute(mount.path / "safe/below/file", "code") == "copies:3"
    assert attribute(mount.path / "safe/earlier/file", "code") == "copies:3"
    assert attribute(mount.path / "safe/earlier", "code") == "copies:3"
    assert attribute(mount.path / "other", "code") == "rs:4+2"
    assert os.listxattr(mount.path / "safe") == []
    remount(mount)
    assert attribute(mount.path / "safe", "code") == "copies:3"
    lab.write_pattern(mount.path / "safe/more", 100_000)
    assert attribute(mount.path / "safe/more", "code") == "copies:3"
    os.removexattr(mount.path / "safe", "user.ecfs.code")
    lab.write_pattern(mount.path / "safe/most", 100_000)
    assert attribute(mount.path / "safe/most", "code") == "rs:4+2"
    assert attribute(mount.path / "safe/more", "code") == "copies:3"  # what is stored keeps its code
    mount.archive.await_stored()
    assert mount.archive.json("info", "/safe/most")["code"] == "rs:4+2"
    assert mount.archive.json("info", "/safe/earlier/file")["code"] == "copies:3"


@pytest.mark.parametrize("code, reason", [
    (b"rs:nonsense", "is not a code"), (b"", "is not a code"), (b"rs:0+3", "at least one data stripe"),
    (b"basic:7+7", "even number"), (b"rs:6+6", "12 stripes"), (b"copies:7", "7 stripes"),
    (b"ldpc:4+2\0", "NUL"), (b"rs:4+2\nrs:4+2", "is not a code"), (b"x" * 60_000, "is not a code")])
@pytest.mark.slow
def test_impossible_code_of_a_directory_is_refused_and_logged(mount, code, reason):
    (mount.path / "directory").mkdir()
    with pytest.raises(OSError) as refused:
        os.setxattr(mount.path / "directory", "user.ecfs.code", code)
    assert refused.value.errno == errno.EINVAL
    lines = [line for line in mount.text().splitlines() if reason in line]
    assert len(lines) == 1 and "directory" in lines[0] and len(lines[0]) < 1000
    assert attribute(mount.path / "directory", "code") == "rs:4+2"


def test_attributes_of_users_are_set_listed_and_removed(mount):
    path = mount.path / "file"
    path.write_text("x")
    os.setxattr(path, "user.one", b"\0\xff")
    os.setxattr(path, "user.two", b"")
    assert sorted(os.listxattr(path)) == ["user.one", "user.two"]
    with pytest.raises(FileExistsError):
        os.setxattr(path, "user.one", b"", os.XATTR_CREATE)
    with pytest.raises(OSError):
        os.setxattr(path, "user.three", b"", os.XATTR_REPLACE)
    os.removexattr(path, "user.two")
    remount(mount)
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == {"user.one": b"\0\xff"}


def test_attributes_of_no_known_kind_are_refused(mount):
    path = mount.path / "file"
    path.write_text("x")
    for name, error in [("nowhere.x", errno.ENOTSUP), ("user.", errno.EINVAL), ("system.x", errno.ENOTSUP)]:
        for action in [lambda: os.setxattr(path, name, b"x"), lambda: os.getxattr(path, name),
                       lambda: os.removexattr(path, name)]:
            with pytest.raises(OSError) as caught:
                action()
            assert caught.value.errno == error, name
    assert os.listxattr(path) == []


@pytest.mark.skipif(not lab.ROOT, reason="only root can act as somebody else")
@pytest.mark.slow
def test_truncation_by_others_clears_set_user_id_bits(place, archive):
    mount = place.mount(archive, "-o", "allow_other")
    path = mount.path / "file"
    place.path.chmod(0o711)
    for way in ["open(sys.argv[1], 'wb')", "os.truncate(sys.argv[1], 1)"]:
        path.write_text("program")
        path.chmod(0o6777)
        lab.run("python3", "-c", f"import os, sys; os.setuid(4001); {way}", path)
        assert os.stat(path).st_mode & 0o7777 == 0o777, way


def test_what_libfuse_is_told_for_measuring(place, archive):
    mount = place.mount(archive, "-o", "max_read=65536,max_write=65536,max_background=2,max_readahead=65536,"
                                       "no_splice_read,no_splice_write,clone_fd,max_threads=2")
    content = os.urandom(300_000)
    (mount.path / "file").write_bytes(content)
    lab.forget_mounts()
    assert (mount.path / "file").read_bytes() == content
    told = next(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(mount.path) in line)
    assert "max_read=65536" in told.split(" - ")[1].split()[2].split(",")


def test_names_that_do_not_fit_and_directories_that_are_not_empty_are_refused(mount):
    (mount.path / "full").mkdir()
    (mount.path / "full/file").touch()
    for action, error in [(lambda: os.rmdir(mount.path / "full"), "ENOTEMPTY"),
                          (lambda: (mount.path / ("n" * 256)).touch(), "ENAMETOOLONG"),
                          (lambda: os.rename(mount.path / "full", mount.path / "full/below"), "EINVAL"),
                          (lambda: os.mkdir(mount.path / "full"), "EEXIST"),
                          (lambda: os.unlink(mount.path / "absent"), "ENOENT")]:
        with pytest.raises(OSError) as caught:
            action()
        assert caught.value.errno == getattr(errno, error)


def test_write_once_archive_refuses_changes_of_committed_bytes(place, archive):
    archive.configure("archive", rewrite="deny")
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 100_000)
    with pytest.raises(PermissionError):
        open(mount.path / "file", "r+b")
    os.chmod(mount.path / "file", 0o600)
    assert reread(mount, "file") == expected


def test_statfs_tells_room(mount):
    lab.until(lambda: os.statvfs(mount.path).f_bavail > 0, 60, "the directories have told their room")
    room = os.statvfs(mount.path)
    assert room.f_bavail <= room.f_blocks and room.f_namemax == 255


@pytest.mark.slow
def test_two_lost_directories_do_not_show(mount, archive, source):
    lab.run("cp", "-a", source, mount.path / "copy")
    unread = lab.write_pattern(mount.path / "unread", 9 * MIB, 12)
    archive.await_stored()
    archive["amber"].kill()
    archive["ember"].kill()
    lab.forget_mounts()
    lab.assert_same_tree(lab.describe_tree(source), lab.describe_tree(mount.path / "copy"))
    archive["fjord"].kill()
    # A directory that was moved may serve for a second more, until its endpoint looks.
    lab.until(lambda: lab.forget_mounts() or not readable(mount.path / "unread"), 60, "three losses are noticed")
    with pytest.raises(OSError) as caught:
        lab.digest(mount.path / "unread")
    assert caught.value.errno == errno.EIO
    for name in ["amber", "ember", "fjord"]:
        assert name in mount.text()
        archive[name].start()
    lab.until(lambda: readable(mount.path / "unread"), 60, "it is readable again")
    assert lab.digest(mount.path / "unread") == unread


def readable(path):
    try:
        lab.digest(path)
        return True
    except OSError:
        return False


def test_failed_commit_is_an_error_of_close_and_the_bytes_are_kept(mount, archive):
    for name in ["amber", "birch", "cedar"]:
        archive[name].kill()
    with pytest.raises(OSError) as caught:
        lab.write_pattern(mount.path / "file", MIB, 4)
    assert caught.value.errno in (errno.EIO, errno.ENOSPC)
    for name in ["amber", "birch", "cedar"]:
        archive[name].start()
    archive.await_stored()
    assert attribute(mount.path / "file", "state").startswith("full 6/6")
    remount(mount)
    expected = lab.write_pattern(archive.path.parent / "plain", MIB, 4)
    assert lab.digest(mount.path / "file") == expected


def test_status_of_a_mounted_archive_tells_the_backlog(mount, archive):
    with open(mount.path / "open", "wb", buffering=0) as file:
        file.write(b"x" * 100_000)
        status = archive.json("status")
        assert {endpoint["name"] for endpoint in status["endpoints"]} == set(lab.NAMES)
        assert "staging" in status


@lab.unkeyed
@pytest.mark.slow
def test_verbs_take_paths_in_the_mount(place, mount, archive):
    (mount.path / "dir").mkdir()
    for name in ["a", "b"]:
        (mount.path / "dir" / name).write_bytes(name.encode() * 70_000)
    archive.await_stored()
    directory, out = mount.path / "dir", place.path / "out"
    link = place.path / "link"
    link.symlink_to(directory)
    assert lab.ecfs("ls", directory).stdout == lab.ecfs("ls", link).stdout == lab.ecfs("ls", archive.path, "/dir").stdout == "a\nb\n"
    assert lab.ecfs("ls", mount.path).stdout == lab.ecfs("ls", mount.path, "/").stdout == "dir\n"
    assert lab.ecfs("ls", "-R", "dir/a", "dir/b", cwd=mount.path).stdout == "/dir/a\n/dir/b\n"
    assert lab.ecfs("ls", mount.path, "/dir", directory / "a").stdout == "a\nb\na\n"
    infos = json.loads(lab.ecfs("info", "--json", directory / "a", directory / "b").stdout)
    assert [info["path"] for info in infos] == ["/dir/a", "/dir/b"]
    assert lab.ecfs("cat", directory / "a", directory / "b").stdout == "a" * 70_000 + "b" * 70_000
    lab.ecfs("get", directory / "b", out)
    assert out.read_bytes() == b"b" * 70_000
    assert lab.ecfs("export", directory / "a").stdout == lab.ecfs("export", archive.path, "/dir/a").stdout
    assert "/dir/a" in lab.ecfs("info", "dir/a", cwd=mount.path).stdout
    lab.ecfs("wait", directory / "a")
    assert json.loads(lab.ecfs("status", "--json", mount.path).stdout)["directory"] == str(archive.path)
    for words in [["ls", directory, place.path], ["info", mount.path / "dir", "/dir"]]:
        refused = lab.ecfs(*words, check=False)
        assert refused.returncode == 2 and "not in the same archive" in refused.stderr
    missing = lab.ecfs("ls", directory / "none", check=False)
    assert missing.returncode == 1 and "/dir/none" in missing.stderr
    assert lab.ecfs("ls", place.path, check=False).returncode == 1, "there is neither an archive nor a mount"


def test_umount_takes_the_archive_as_well(place, mount, archive):
    (mount.path / "file").write_bytes(b"x" * 1000)
    second = place.mount(archive, "-o", "ro")
    failed = lab.ecfs("umount", archive.path, check=False)
    assert failed.returncode == 1 and str(mount.path) in failed.stderr and str(second.path) in failed.stderr
    second.umount()
    lab.ecfs("umount", archive.path)
    assert mount.process.wait(60) == 0
    mount.process = None
    assert not mount.mounted() and archive.json("status")["staging"]["files"] == 0
    failed = lab.ecfs("umount", archive.path, check=False)
    assert failed.returncode == 1 and f"{archive.path} is not mounted" in failed.stderr
    failed = lab.ecfs("umount", place.path, check=False)
    assert failed.returncode == 1 and "no archive is mounted there" in failed.stderr


def read_as_programs_do(path, to):
    """By the size that is shown, in a mapping, and by cp(1)."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        mapped = bytes(mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)) if size > 0 else b""
        assert file.seek(0, os.SEEK_END) == size
    lab.run("cp", path, to)
    assert path.read_bytes() == to.read_bytes() == mapped
    return mapped


@pytest.mark.parametrize("alive", [True, False])
def test_a_mount_for_reading_shows_the_size_of_what_it_reads(place, mount, archive, alive):
    """Which is what is stored, whatever a mount that writes has in staging, or left there."""
    content, stored_ns = os.urandom(300_000), 10**18
    paths = longer, shorter, new = [mount.path / name for name in ("longer", "shorter", "new")]
    for path in paths[:2]:
        path.write_bytes(content)
        os.utime(path, ns=(stored_ns, stored_ns))
    archive.await_stored()
    with contextlib.suppress(OSError), open(longer, "ab") as file:
        file.write(os.urandom(50_000))
        file.flush()  # which reads what there is, as long as that can be done
        for name in ["amber", "birch", "cedar"]:
            archive[name].kill()
        lab.until(lambda: sum(endpoint["state"] == "down" for endpoint in archive.json("status")["endpoints"]) == 3, 60,
                  "they are known to be gone")
    with contextlib.suppress(OSError), open(shorter, "wb") as file:
        file.write(os.urandom(200_000))
    with contextlib.suppress(OSError):
        new.write_bytes(os.urandom(700_000))
    assert [path.stat().st_size for path in paths] == [350_000, 200_000, 700_000]
    if not alive:
        mount.kill()
        for name in ["amber", "birch", "cedar"]:
            archive[name].start()
    reader = place.mount(archive, "-o", "ro")
    shown = [reader.path / path.name for path in paths]
    assert {entry.name: entry.stat().st_size for entry in os.scandir(reader.path)} == \
        {"longer": 300_000, "shorter": 300_000, "new": 0}
    assert [path.stat().st_size for path in shown] == [300_000, 300_000, 0]
    assert [path.stat().st_mtime_ns for path in shown[:2]] == [stored_ns] * 2
    if not alive:
        assert [read_as_programs_do(path, place.path / "to") for path in shown] == [content, content, b""]


def test_a_name_that_is_replaced_is_there_all_the_time_beside_the_writer(place, mount, archive):
    """Whatever a mount for reading knew of it: what is open stays what it was, and who opens gets one or the other."""
    def replace(content):
        (mount.path / ".name").write_bytes(content)
        (mount.path / ".name").rename(mount.path / "name")

    versions = [os.urandom(20_000 + 1000 * i) for i in range(5)]
    replace(versions[0])
    reader = place.mount(archive, "-o", "ro")
    name = reader.path / "name"
    for old, new in zip(versions, versions[1:]):
        lab.until(lambda old=old: name.read_bytes() == old, 10, "it has become known")
        with open(name, "rb") as opened:
            replace(new)
            end = time.monotonic() + 0.5  # less than what the kernel knows a name for
            while time.monotonic() < end:
                assert name.read_bytes() in (old, new)
                assert name.stat().st_size in (len(old), len(new))
            assert os.fstat(opened.fileno()).st_size == len(old)
            assert opened.read() == old
    (mount.path / "name").unlink()
    with pytest.raises(FileNotFoundError):
        lab.until(lambda: name.read_bytes() != versions[-1], 10, "it is gone")
