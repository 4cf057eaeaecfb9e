"""The Python package: archives without a mount and beside one, and fsspec's view of them."""
import concurrent.futures
import errno
import gc
import itertools
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import traceback

import lab
import pytest

os.environ.setdefault("ECFS_LIBRARY", str(lab.BUILD / "libecfs.so"))
sys.path.insert(0, str(lab.REPOSITORY / "python"))
import ecfs  # noqa: E402
import fsspec  # noqa: E402
from ecfs.fsspec import EcfsFileSystem  # noqa: E402

MIB = 1 << 20
numbers = itertools.count()


def content(size, seed=1):
    return (bytes(range(256)) * (size // 256 + 2))[seed:seed + size]


@pytest.fixture(scope="module")
def shared(module_place):
    """One archive for all tests that break nothing, and need no other; each has a directory of its own."""
    return module_place.archive(module_place.directories(), "rs:4+2", lab.AS_USERS)


@pytest.fixture
def folder():
    return f"/test-{next(numbers)}"


def test_files_come_back_whole_and_in_ranges(shared, folder):
    with ecfs.Archive(shared.path, writable=True) as archive:
        for size in (0, 1, 5 * MIB + 77):
            archive.write(f"{folder}/{size}", content(size))
            assert archive.read(f"{folder}/{size}") == content(size)
        expected = content(5 * MIB + 77)
        assert archive.read(f"{folder}/{size}", 1000, 2 * MIB) == expected[1000:1000 + 2 * MIB]
        assert archive.read(f"{folder}/{size}", size - 5, 100) == expected[-5:]
        with archive.open(f"{folder}/{size}") as file:
            assert file.seek(-10, os.SEEK_END) == size - 10 and file.read() == expected[-10:]
            assert file.seek(7) == 7 and file.read(3) == expected[7:10] and file.tell() == 10
        assert [(entry.name, entry.size) for entry in archive.list(folder)] == [
            ("0", 0), ("1", 1), (str(size), size)]
        archive.move(f"{folder}/1", f"{folder}/one")
        archive.remove(f"{folder}/0")
        archive.make_directory(f"{folder}/a/b", parents=True)
        assert [entry.path for entry in archive.list(folder, recursive=True)] == [
            f"{folder}/{size}", f"{folder}/a", f"{folder}/a/b", f"{folder}/one"]
    assert lab.ecfs("cat", shared.path, f"{folder}/one").stdout.encode("utf-8", "surrogateescape") == content(1)


def test_local_files_are_put_and_fetched(shared, folder, tmp_path):
    (tmp_path / "source").write_bytes(content(1000))
    with ecfs.Archive(shared.path, writable=True) as archive:
        archive.put([tmp_path / "source"], f"{folder}/file", code="copies:3")
        archive.get([f"{folder}/file"], tmp_path / "back")
        assert archive.info(f"{folder}/file")["code"] == "copies:3"
        assert archive.status()["verdict"]
    assert (tmp_path / "back").read_bytes() == content(1000)


def test_what_is_not_closed_well_is_not_stored(shared, folder):
    with ecfs.Archive(shared.path, writable=True) as archive:
        archive.write(f"{folder}/file", b"before")
        with pytest.raises(ZeroDivisionError), archive.open(f"{folder}/file", "wb") as file:
            file.write(b"half of ")
            raise ZeroDivisionError
        forgotten = archive.open(f"{folder}/file", "wb")
        forgotten.write(b"never closed")
        del forgotten
        left = archive.open(f"{folder}/new", "wb")
        left.write(b"open when the archive is closed")
        assert archive.read(f"{folder}/file") == b"before"
    assert left.closed
    with ecfs.Archive(shared.path) as archive:
        assert [entry.name for entry in archive.list(folder)] == ["file"]


def test_errors_have_errno_and_sentence(shared, folder, place):
    with ecfs.Archive(shared.path, writable=True) as archive:
        archive.make_directory(folder)
        with pytest.raises(FileNotFoundError, match="absent"):
            archive.open(f"{folder}/absent")
        with pytest.raises(IsADirectoryError):
            archive.open(folder, "wb")
        with pytest.raises(FileExistsError):
            archive.make_directory(folder)
        with pytest.raises(ValueError):
            archive.open(f"{folder}/file", "r+b")
        with pytest.raises(OSError) as caught:
            ecfs.Archive(shared.path, writable=True)
        assert caught.value.errno == errno.EBUSY
        with ecfs.Archive(shared.path) as reader, pytest.raises(OSError) as caught:
            reader.write(f"{folder}/file", b"")
        assert caught.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        archive.stat("/")
    with pytest.raises(FileNotFoundError):
        ecfs.Archive(place.path / "nowhere")
    with pytest.raises(OSError) as caught:
        ecfs.init(place.path / "new", ["file:///tmp/one"], "rs:4+2")
    assert caught.value.errno == errno.EINVAL and "needs 6 endpoints" in str(caught.value)


def test_a_new_archive_has_a_key_unless_told_otherwise(place):
    endpoints = [f"{name}=file://{place.path}/{name}" for name in ("one", "two", "three")]
    with pytest.raises(OSError) as caught:
        ecfs.init(place.path / "new", endpoints[:2], "rs:1+1")
    assert caught.value.errno == errno.EDOM and not (place.path / "new").exists() and not (place.path / "one").exists()
    ecfs.init(place.path / "none", endpoints[:2], "rs:1+1", key="none")
    assert not (place.path / "none/key").exists()
    ecfs.init(place.path / "new", [f"file://{place.path}/other-{i}" for i in range(3)], "rs:1+1")
    assert (place.path / "new/key").exists() and len(list(place.path.glob("other-*/keys/*"))) == 3


def test_threads_read_at_once(shared, folder):
    expected = content(3 * MIB)
    wrong = []
    with ecfs.Archive(shared.path, writable=True) as archive:
        archive.write(f"{folder}/file", expected)
        with ecfs.File(archive, f"{folder}/file") as file:
            def read(first):
                for offset in range(first, 3 * MIB, 4 * 100_000):
                    if file.pread(100_000, offset) != expected[offset:offset + 100_000]:
                        wrong.append(offset)
            threads = [threading.Thread(target=read, args=(i * 100_000,)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert not wrong


def in_child(function):
    """Whether it returned, in a child by fork(2) that ends without what ends a program."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            function()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_child_opens_archives_itself(shared, folder):
    with ecfs.Archive(shared.path, writable=True) as archive:
        archive.write(f"{folder}/file", b"content")
        reader, writer = archive.open(f"{folder}/file"), archive.open(f"{folder}/new", "wb")
        writer.write(b"new")

        def child():
            nonlocal archive, reader, writer
            for refused in (lambda: archive.stat("/"), lambda: archive.list("/"), reader.read, writer.flush):
                with pytest.raises(ValueError, match="fork"):
                    refused()
            with ecfs.Archive(shared.path) as own:
                assert own.read(f"{folder}/file") == b"content"
            archive.close()
            archive = reader = writer = None
            gc.collect()

        with archive._lock:  # which another thread may have at this time
            assert in_child(child)
        writer.close()
        assert reader.read() == b"content" and archive.read(f"{folder}/new") == b"new"


def test_missing_library_is_explained(place):
    for variable, hint in ((str(place.path / "nowhere.so"), "ECFS_LIBRARY names another file"),
                           (str(lab.BUILD / "tools/ecfs"), "ECFS_LIBRARY names another file"),
                           ("libglib-2.0.so.0", "older than this package"), ("", "set ECFS_LIBRARY")):
        environment = {**os.environ, "PYTHONPATH": str(lab.REPOSITORY / "python"), "ECFS_LIBRARY": variable}
        done = lab.run(sys.executable, "-c", "import ecfs", env=environment, check=False)
        if variable or done.returncode != 0:  # libecfs may be installed
            assert done.returncode == 1 and "OSError" not in done.stderr
            assert done.stderr.splitlines()[-1].startswith("ImportError: the library of ecfs") and hint in done.stderr


def test_beside_a_mount_the_mount_stores(place, archive, mount):
    with ecfs.Archive(archive.path, writable=True) as opened:
        opened.write("/from/python", content(MIB))
        assert (mount.path / "from/python").read_bytes() == content(MIB)
        (mount.path / "from/mount").write_bytes(b"mounted")
        assert opened.read("/from/mount") == b"mounted"
        (mount.path / "from/python").write_bytes(b"another")
        assert lab.until(lambda: opened.read("/from/python") == b"another", 10, "the mount's change is seen")
        with (mount.path / "from/open").open("wb") as unfinished:
            unfinished.write(b"on its way")
            unfinished.flush()
            lab.until(lambda: opened.exists("/from/open"), 10, "the name is seen")
            with pytest.raises(BlockingIOError):
                opened.open("/from/open")


# fsspec


@pytest.fixture
def files(shared):
    files = EcfsFileSystem(skip_instance_cache=True)
    yield files
    files.close()


def test_url_names_archive_and_file(shared, folder):
    url = f"ecfs://{shared.path}{folder}/table.csv"
    with fsspec.open(url, "w") as file:
        file.write("a,b\n1,2\n")
    with fsspec.open(url) as file:
        assert file.read() == b"a,b\n1,2\n"
    assert [os.path.basename(file.path) for file in fsspec.open_files(f"ecfs://{shared.path}{folder}/*.csv")] == ["table.csv"]
    files, path = fsspec.core.url_to_fs(url)
    assert files.unstrip_protocol(path) == url
    assert pickle.loads(pickle.dumps(files)).cat(path) == b"a,b\n1,2\n"
    lab.ecfs("ls", shared.path, folder)  # nobody has the lock
    files.close()


def test_mapper_is_what_zarr_needs(shared, folder, files):
    store = fsspec.mapping.FSMap(f"{shared.path}{folder}/array", files, create=True)
    store[".zgroup"] = b"{}"
    store.setitems({f"a/0.{i}": bytes([i]) * 1000 for i in range(4)})
    assert sorted(store) == [".zgroup", "a/0.0", "a/0.1", "a/0.2", "a/0.3"]
    assert store.getitems(["a/0.1", "a/0.3"]) == {"a/0.1": b"\1" * 1000, "a/0.3": b"\3" * 1000}
    assert "a/0.9" not in store
    del store["a/0.0"]
    assert sorted(store) == [".zgroup", "a/0.1", "a/0.2", "a/0.3"]
    store.clear()
    assert list(store) == []


def test_names_and_ranges(shared, folder, files, tmp_path):
    root = f"{shared.path}{folder}"
    files.makedirs(f"{root}/d/e", exist_ok=True)
    files.pipe(f"{root}/d/file", content(1000))
    assert files.info(f"{root}/d/file")["size"] == 1000 and files.isdir(f"{root}/d")
    assert files.cat_file(f"{root}/d/file", 10, 20) == content(1000)[10:20]
    assert files.cat_file(f"{root}/d/file", -10) == content(1000)[-10:]
    files.cp(f"{root}/d/file", f"{root}/copy")
    files.mv(f"{root}/copy", f"{root}/moved")
    (tmp_path / "in").write_bytes(b"put")
    files.put(str(tmp_path / "in"), f"{root}/put")
    files.get(f"{root}/put", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"put"
    assert sorted(files.find(root)) == [f"{root}/d/file", f"{root}/moved", f"{root}/put"]
    with pytest.raises(OSError):
        files.rmdir(f"{root}/d")
    files.rmdir(f"{root}/d/e")
    files.rm(f"{root}/d", recursive=True)
    files.rm_file(f"{root}/put")
    assert files.ls(root, detail=False) == [f"{root}/moved"]
    with pytest.raises(FileNotFoundError):
        files.info(f"{root}/absent")
    with pytest.raises(FileNotFoundError):
        files.ls("/tmp")


def test_directories_go_in_and_out(shared, folder, files, tmp_path):
    root = f"{shared.path}{folder}"
    names = ["a", "d/b", "d/e/c", "empty/"]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (tmp_path / "in" / name).mkdir()
        else:
            (tmp_path / "in" / name).write_bytes(name.encode())
    files.put(str(tmp_path / "in"), f"{root}/in", recursive=True)
    files.cp(f"{root}/in", f"{root}/copy", recursive=True)
    files.get(f"{root}/copy", str(tmp_path / "out"), recursive=True)
    assert lab.describe_tree(tmp_path / "out").keys() == lab.describe_tree(tmp_path / "in").keys()
    assert (tmp_path / "out/d/e/c").read_bytes() == b"d/e/c"
    assert files.glob(f"{root}/copy/d/*") == [f"{root}/copy/d/b", f"{root}/copy/d/e"]
    assert f"{root}/copy/d/e/c" in files.glob(f"{root}/copy/**")
    files.pipe(f"{root}/copy/d/e-f", b"sorts between e and what is in it")
    files.rm(f"{root}/copy/d/*", recursive=True)
    files.rm(f"{root}/in/**", recursive=True)
    assert files.find(root) == [f"{root}/copy/a"]


def test_files_move_one_by_one_and_many(shared, folder, files):
    root = f"{shared.path}{folder}"
    files.pipe({f"{root}/from/{name}": name.encode() for name in ("a.x", "b.x", "c.y")})
    files.mkdir(f"{root}/to")
    files.mv(f"{root}/from/*.x", f"{root}/to")
    files.mv([f"{root}/from/c.y"], [f"{root}/to/d.y"])
    files.mv(f"{root}/to/b.x", f"{root}/to/new/b.x")
    with pytest.raises(FileNotFoundError):
        files.mv(f"{root}/absent", f"{root}/other/absent")
    assert files.find(root) == [f"{root}/to/{name}" for name in ("a.x", "d.y", "new/b.x")]
    assert not files.exists(f"{root}/other")


def test_modes_that_cannot_be_are_refused(shared, folder, files):
    path = f"{shared.path}{folder}/file"
    files.pipe_file(path, b"before", mode="create")
    with pytest.raises(FileExistsError):
        files.pipe_file(path, b"after", mode="create")
    for mode in ("ab", "r+b", "xb"):
        with pytest.raises(NotImplementedError, match=re.escape(mode)), files.open(path, mode) as file:
            file.write(b"after")
    assert files.cat(path) == b"before"


def test_open_files_outlive_what_opened_them(shared, folder, files):
    path = f"{shared.path}{folder}/file"
    files.pipe(path, content(MIB))
    with files.open(path) as file:
        assert (file.size, file.path, file.read(1000)) == (MIB, path, content(MIB)[:1000])
        files.invalidate_cache()
        files.close()
        assert file.read(1000) == content(MIB)[1000:2000]
        with pickle.loads(pickle.dumps(file)) as other:
            assert other.read() == content(MIB)[2000:]


@pytest.mark.slow
def test_threads_share_the_lock(shared, folder):
    """fsspec makes a file system for each thread."""
    def write(i):
        url = f"ecfs://{shared.path}{folder}/{i}"
        with fsspec.open(url, "wb") as file:
            file.write(content(MIB, i))
        files = fsspec.filesystem("ecfs")
        for _ in range(20):  # what others still use stays open
            files.close()
            assert files.cat_file(url, 5, 1000) == content(MIB, i)[5:1000]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))
        files = EcfsFileSystem(skip_instance_cache=True)
        assert list(pool.map(lambda i: files.cat(f"{shared.path}{folder}/{i}"), range(16))) == [
            content(MIB, i) for i in range(16)]
    lab.ecfs("rm", shared.path, f"{folder}/0")  # nobody has the lock


def test_child_goes_on_with_the_file_system(shared, folder):
    files = EcfsFileSystem(keep_open=True, skip_instance_cache=True)
    path = f"{shared.path}{folder}/file"
    files.pipe(path, content(MIB))
    assert files.cat(path) == content(MIB)
    with files._own, ecfs.fsspec._archives._lock:  # which other threads may have at this time
        assert in_child(lambda: files.cat(path)[5:] == content(MIB)[5:] or sys.exit("wrong"))
    files.close()
    lab.ecfs("rm", shared.path, f"{folder}/file")


def test_transaction_is_all_or_nothing(shared, folder, files):
    root = f"{shared.path}{folder}"
    with files.transaction:
        with files.open(f"{root}/a", "wb") as file:
            file.write(b"a")
        assert not files.exists(f"{root}/a")
    assert files.cat(f"{root}/a") == b"a"
    with pytest.raises(ZeroDivisionError), files.transaction:
        with files.open(f"{root}/b", "wb") as file:
            file.write(b"b")
        raise ZeroDivisionError
    assert not files.exists(f"{root}/b")


def test_archive_is_kept_open_when_asked(shared, folder):
    files = EcfsFileSystem(keep_open=True, skip_instance_cache=True)
    files.pipe(f"{shared.path}{folder}/a", b"a")
    assert "EBUSY" not in lab.ecfs("ls", shared.path).stderr
    refused = lab.ecfs("rm", shared.path, f"{folder}/a", check=False)
    assert refused.returncode == 1
    # Another thread's, as zarr's, may have asked for it.
    EcfsFileSystem(skip_instance_cache=True).close()
    lab.ecfs("rm", shared.path, f"{folder}/a")
    files.pipe(f"{shared.path}{folder}/b", b"b")
    del files
    lab.ecfs("rm", shared.path, f"{folder}/b")


def test_package_says_what_it_is():
    """Without what is installed, and in the same words as `meson install` has it."""
    place = lab.REPOSITORY / "python"
    project, metadata = (place / "pyproject.toml").read_text(), (place / "METADATA.in").read_text()
    for key, field in (("name", "Name"), ("description", "Summary"), ("requires-python", "Requires-Python")):
        value = re.search(rf'^{key} = "(.+)"$', project, re.M)[1]
        assert re.search(rf"^{field}: (.+)$", metadata, re.M)[1].replace(" ", "") == value.replace(" ", "")
    assert re.search(r'^fsspec = \["fsspec >= ([\d.]+)"\]$', project, re.M)[1] == re.search(
        r'^Requires-Dist: fsspec>=([\d.]+); extra == "fsspec"$', metadata, re.M)[1]
    module, _, name = re.search(r"^ecfs = (.+)$", (place / "entry_points.txt").read_text(), re.M)[1].partition(":")
    assert getattr(__import__(module, fromlist=[name]), name) is EcfsFileSystem
    listed = re.findall(r"'ecfs/([\w.]+)'", (place / "meson.build").read_text())
    assert set(listed) == {path.name for path in (place / "ecfs").iterdir() if path.is_file()}
    # The package itself does without fsspec.
    code = "import sys; sys.modules['fsspec'] = None; import ecfs; print(ecfs.Archive)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(place)})


@pytest.mark.slow
def test_pip_gets_the_version_of_meson():
    pytest.importorskip("setuptools")
    version = re.search(r"version: '([^']+)'", (lab.REPOSITORY / "meson.build").read_text())[1]
    said = lab.run(sys.executable, "setup.py", "--version", cwd=lab.REPOSITORY / "python").stdout
    assert said.splitlines()[-1] == version
