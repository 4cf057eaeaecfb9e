"""Listing directories, and finding one's way through them."""
import ctypes
import errno
import itertools
import os
import stat
import threading

import pytest
from calls import KINDS, all_entries, exists, fails, getdents, links_of, make, opened, read, write

ENTRIES = int(os.environ.get("ECFS_POSIX_ENTRIES", "20000"))
TYPES = {"file": 8, "directory": 4, "symlink": 10, "fifo": 1, "socket": 12, "char": 2, "block": 6}


def names_of(entries):
    return sorted(entry.name for entry in entries if entry.name not in (b".", b".."))


def fill(directory, count, prefix="entry"):
    for i in range(count):
        os.mknod(directory / f"{prefix}-{i:06d}", stat.S_IFREG | 0o644)
    return sorted(b"%s-%06d" % (prefix.encode(), i) for i in range(count))


def test_an_empty_directory_has_two_entries(d):
    with opened(d) as fd:
        found = {entry.name: entry for entry in all_entries(fd)}
    assert set(found) == {b".", b".."}
    assert found[b"."].ino == os.stat(d).st_ino and found[b".."].ino == os.stat(d.parent).st_ino
    assert found[b"."].type == found[b".."].type == 4


def test_entries_tell_inode_and_type(d):
    for kind in KINDS:
        make(kind, d / kind)
    with opened(d) as fd:
        found = {entry.name.decode(): entry for entry in all_entries(fd)}
    for kind in KINDS:
        assert found[kind].ino == os.lstat(d / kind).st_ino
        assert found[kind].type in (TYPES[kind], 0)


@pytest.mark.parametrize("size", [300, 1000, 4096, 1 << 20])
def test_every_entry_once_whatever_the_buffer(d, size):
    made = fill(d, 300)
    with opened(d) as fd:
        assert names_of(all_entries(fd, size)) == made
        assert getdents(fd) == []
        os.lseek(fd, 0, os.SEEK_SET)
        assert names_of(all_entries(fd, size)) == made


def test_a_buffer_that_is_too_small(d):
    write(d / ("n" * 255))
    with opened(d) as fd, fails(errno.EINVAL):
        for _ in range(4):
            getdents(fd, 60)


@pytest.mark.slow
def test_a_large_directory(target, d):
    """ECFS_POSIX_ENTRIES=100000 for more."""
    directory = d / "large"
    directory.mkdir()
    made = fill(directory, ENTRIES)
    with opened(directory) as fd:
        found = all_entries(fd)
    assert names_of(found) == made
    assert len({entry.ino for entry in found}) == ENTRIES + 2
    assert len({entry.next for entry in found}) == ENTRIES + 2
    assert not exists(directory / "entry") and exists(directory / "entry-000777")
    target.remount()
    assert sorted(os.listdir(os.fsencode(directory))) == made
    assert sum(1 for entry in os.scandir(directory) if entry.is_file()) == ENTRIES
    remove_while_listing(directory, 32768)
    os.rmdir(directory)


def remove_while_listing(directory, buffer):
    """As rm -r does it."""
    with opened(directory) as fd:
        while entries := getdents(fd, buffer):
            for entry in entries:
                if entry.name not in (b".", b".."):
                    os.unlink(entry.name, dir_fd=fd)


@pytest.mark.parametrize("buffer", [256, 4096, 32768])
def test_removing_all_while_listing(d, buffer):
    fill(d, 2000)
    remove_while_listing(d, buffer)
    assert os.listdir(d) == []


def test_what_stays_is_listed_once_while_others_come_and_go(d):
    fill(d, 500, "gone")
    kept = fill(d, 500, "kept")
    seen, numbers = [], itertools.count()
    with opened(d) as fd:
        while entries := getdents(fd, 512):
            seen += entries
            i = next(numbers)
            for name in f"gone-{i * 7 % 500:06d}", f"gone-{i * 13 % 500:06d}":
                if exists(d / name):
                    os.unlink(d / name)
            write(d / f"new-{i}")
            assert i < 2000, "the listing does not end"
    assert sorted(entry.name for entry in seen if entry.name.startswith(b"kept")) == kept
    for prefix in b"gone", b"new":
        names = [entry.name for entry in seen if entry.name.startswith(prefix)]
        assert len(names) == len(set(names))


def test_listing_goes_on_while_entries_are_renamed(d):
    kept = fill(d, 400, "kept")
    write(d / "moving-0")
    seen, i = [], 0
    with opened(d) as fd:
        while entries := getdents(fd, 512):
            seen += [entry.name for entry in entries]
            os.rename(d / f"moving-{i}", d / f"moving-{i + 1}")
            i += 1
            assert i < 1000
    assert sorted(name for name in seen if name.startswith(b"kept")) == kept


def test_offsets_lead_back(d):
    """telldir and seekdir: behind the offset of any entry the rest follows, in the same order, whatever was deleted."""
    fill(d, 200)
    with opened(d) as fd:
        entries = all_entries(fd, 512)
        for at in (0, 1, 50, 123, len(entries) - 2, len(entries) - 1):
            os.lseek(fd, entries[at].next, os.SEEK_SET)
            assert [entry.name for entry in all_entries(fd)] == [entry.name for entry in entries[at + 1:]]
        plain = [entry for entry in entries if entry.name not in (b".", b"..")]
        for entry in plain[:100] + plain[101:150:2]:
            os.unlink(entry.name, dir_fd=fd)
        os.lseek(fd, plain[99].next, os.SEEK_SET)
        rest = [entry.name for entry in all_entries(fd) if entry.name not in (b".", b"..")]
        left = [plain[100].name, *(entry.name for entry in plain[102:150:2]), *(entry.name for entry in plain[150:])]
        gone = {entry.name for entry in plain[101:150:2]}  # may be listed until the directory is opened again
        assert [name for name in rest if name not in gone] == left


def test_rewinding_shows_what_is_new(d):
    fill(d, 10)
    with opened(d) as fd:
        assert len(all_entries(fd)) == 12
        write(d / "new")
        os.unlink(d / "entry-000003")
        os.lseek(fd, 0, os.SEEK_SET)
        names = names_of(all_entries(fd))
    assert b"new" in names and b"entry-000003" not in names and len(names) == 10


def test_two_handles_list_independently(d):
    made = fill(d, 300)
    with opened(d) as first, opened(d) as second:
        start = getdents(first, 1024)
        assert names_of(all_entries(second, 700)) == made
        assert names_of(start + all_entries(first, 1024)) == made


def test_a_listing_sees_a_change_made_before_it(d):
    for i in range(50):
        write(d / f"file-{i}")
        assert f"file-{i}" in os.listdir(d)
    for i in range(50):
        os.unlink(d / f"file-{i}")
        assert f"file-{i}" not in os.listdir(d)


def test_readdir_of_libc_with_seekdir(d):
    fill(d, 100)
    c = ctypes.CDLL(None)
    c.opendir.restype = c.readdir.restype = ctypes.c_void_p
    c.telldir.restype = ctypes.c_long
    stream = ctypes.c_void_p(c.opendir(os.fsencode(d)))
    places = []
    while True:
        at = c.telldir(stream)
        entry = c.readdir(stream)
        if not entry:
            break
        places.append((at, ctypes.string_at(entry + 19)))
    assert len(places) == 102
    for at, expected in places[::-7]:
        c.seekdir(stream, ctypes.c_long(at))
        assert ctypes.string_at(c.readdir(stream) + 19) == expected
    c.closedir(stream)


def test_links_of_a_directory_count_its_subdirectories(d):
    """Or not at all: 1 means that nobody counts."""
    if links_of(d) == 1:
        pytest.skip("directories have no link counts here")
    for i in range(5):
        os.mkdir(d / f"{i}")
        write(d / f"file-{i}")
    assert links_of(d) == 7
    os.rename(d / "0", d / "1/0")
    os.rmdir(d / "2")
    assert links_of(d) == 5 and links_of(d / "1") == 3


def test_dot_and_dotdot(target, d):
    os.makedirs(d / "a/b")
    path = os.fspath(d)
    assert os.path.samestat(os.stat(path + "/a/b/.."), os.stat(path + "/a"))
    assert os.path.samestat(os.stat(path + "/a/./b/../.."), os.stat(path))
    assert os.path.samestat(os.stat(path + "//a///b//"), os.stat(path + "/a/b"))
    root = os.fspath(target.path)
    assert not os.path.samestat(os.stat(root + "/.."), os.stat(root)) or root == "/"


def test_a_deep_tree(d):
    os.chdir(d)
    for i in range(300):
        os.mkdir("deep-directory")
        os.chdir("deep-directory")
    write("file", b"at the bottom")
    assert read("file") == b"at the bottom"
    os.unlink("file")
    for i in range(300):
        os.chdir("..")
        os.rmdir("deep-directory")
    assert os.path.samestat(os.stat("."), os.stat(d))


def test_handles_of_directories_serve_as_starting_points(d):
    os.makedirs(d / "a/b")
    with opened(d / "a", os.O_RDONLY | os.O_DIRECTORY) as fd:
        with opened("b/file", os.O_CREAT | os.O_RDWR, dir_fd=fd) as file:
            os.write(file, b"x")
        os.rename(d / "a", d / "moved")
        os.mkdir("c", dir_fd=fd)
        os.symlink("b/file", "link", dir_fd=fd)
        os.link("b/file", "hard", src_dir_fd=fd, dst_dir_fd=fd)
        os.rename("hard", "c/hard", src_dir_fd=fd, dst_dir_fd=fd)
        assert os.stat("link", dir_fd=fd).st_nlink == 2
        os.mkfifo("fifo", dir_fd=fd)
        os.fsync(fd)
        assert sorted(os.listdir(fd)) == ["b", "c", "fifo", "link"]
        os.unlink("fifo", dir_fd=fd)
        os.unlink("c/hard", dir_fd=fd)
        os.rmdir("c", dir_fd=fd)
    assert sorted(os.listdir(d / "moved")) == ["b", "link"]
    with opened(d / "moved/b/file") as fd, fails(errno.ENOTDIR):
        os.stat("x", dir_fd=fd)


def test_concurrent_makers_and_removers(d):
    """Threads make, rename and remove in one directory; what is left is what should be."""
    problems = []

    def work(number):
        try:
            for i in range(60):
                name = d / f"{number}-{i}"
                write(name, b"x" * i)
                os.rename(name, d / f"{number}-{i}-renamed")
                if i % 2:
                    os.unlink(d / f"{number}-{i}-renamed")
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert sorted(os.listdir(d)) == sorted(f"{n}-{i}-renamed" for n in range(4) for i in range(0, 60, 2))


def test_one_of_many_creates_and_one_of_many_removes(d):
    """O_EXCL, mkdir, link, rename and unlink are atomic: one caller wins."""
    def race(function):
        won, barrier = [], threading.Barrier(6)

        def run(i):
            barrier.wait()
            try:
                function(i)
                won.append(i)
            except OSError:
                pass

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(won)

    for i in range(6):
        write(d / f"source-{i}")
    for _ in range(10):
        assert race(lambda i: os.close(os.open(d / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY))) == 1
        assert race(lambda i: os.unlink(d / "file")) == 1
        assert race(lambda i: os.mkdir(d / "directory")) == 1
        assert race(lambda i: os.rmdir(d / "directory")) == 1
        assert race(lambda i: os.link(d / f"source-{i}", d / "link")) == 1
        assert race(lambda i: os.rename(d / "link", d / f"renamed-{i}")) == 1
        assert race(lambda i: os.symlink("x", d / "symlink")) == 1
        os.unlink(d / "symlink")
        for i in range(6):
            if exists(d / f"renamed-{i}"):
                os.unlink(d / f"renamed-{i}")


@pytest.mark.slow
def test_a_name_is_always_there_while_it_is_replaced(d):
    write(d / "file", b"0" * 10)
    stop, problems = threading.Event(), []

    def replace():
        for i in range(100):
            write(d / "new", b"%d" % (i % 10) * 10)
            os.rename(d / "new", d / "file")
        stop.set()

    def look():
        try:
            while not stop.is_set():
                data = read(d / "file")
                assert len(data) == 10 and len(set(data)) == 1
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=replace), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
