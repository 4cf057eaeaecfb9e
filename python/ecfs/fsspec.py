"""ecfs://ARCHIVE/path for fsspec, and so for pandas, Dask, xarray and zarr.

ARCHIVE is the archive's directory: ecfs:///srv/photos/2024/a.csv is the file /2024/a.csv of the archive in /srv/photos.
The package says so to fsspec when it is installed; otherwise importing this module does.

Reading locks nothing. Where the archive is mounted, the mount stores what is written, and any number of processes may
write. Otherwise writing takes the archive's lock, which one process can have; its threads share it. It is taken for each
operation, or with keep_open=True from the first one until close() of any such file system in the process.
"""
from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
from typing import Any, Iterator, Optional

import fsspec
from fsspec.spec import AbstractFileSystem

from . import Archive, Entry, File

__all__ = ["EcfsFileSystem"]

_PIECE_BYTES = 1 << 20
_BUFFER_BYTES = 256 * 1024
_MAGIC = set("*?[")


def _is_archive(directory: str) -> bool:
    return os.path.isfile(os.path.join(directory, "ecfs.conf")) or os.path.isfile(os.path.join(directory, "catalog.sqlite"))


class _Archives:
    """Those that are open in this process, for all file systems in it: fsspec makes one for each thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After fork(2), which archives do not live through."""
        self._lock = threading.RLock()  # guards what follows
        self._readers: "dict[str, Archive]" = {}
        self._writers: "dict[str, Archive]" = {}
        self._n_users: "dict[str, int]" = {}  # of writers
        self._kept: "list[str]" = []  # writers that keep() counts as a user of

    def reader(self, directory: str) -> Archive:
        with self._lock:
            if directory not in self._readers:
                self._readers[directory] = Archive(directory)
            return self._readers[directory]

    def forget_readers(self) -> None:
        """Whoever has one, or a file of it, may go on; it is closed when nobody has it any more."""
        with self._lock:
            readers, self._readers = self._readers, {}
        readers.clear()

    def take_writer(self, directory: str) -> Archive:
        """For give_back()."""
        with self._lock:
            if directory not in self._writers:
                self._writers[directory] = Archive(directory, writable=True)
            self._n_users[directory] = self._n_users.get(directory, 0) + 1
            return self._writers[directory]

    def give_back(self, directory: str) -> None:
        with self._lock:
            if directory not in self._n_users:
                return  # taken before fork(2)
            self._n_users[directory] -= 1
            if self._n_users[directory] == 0:
                del self._n_users[directory]
                self._writers.pop(directory).close()

    def keep(self, directory: str) -> None:
        """Until release(). Which file system asked is forgotten: zarr makes its own, which nobody else can close."""
        with self._lock:
            if directory not in self._kept:
                self.take_writer(directory)
                self._kept.append(directory)

    def release(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
            for directory in kept:
                self.give_back(directory)


_archives = _Archives()
os.register_at_fork(after_in_child=_archives.forget)


class _Reader(io.BufferedReader):
    """A file that is read. Another process that gets it by pickle opens it itself."""

    def __init__(self, files: "EcfsFileSystem", path: str, file: File) -> None:
        super().__init__(file, _BUFFER_BYTES)
        self.fs, self.path, self.size = files, path, file.size

    def __reduce_ex__(self, _: Any) -> Any:
        return _open_at, (self.fs, self.path, self.tell())

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


def _open_at(files: "EcfsFileSystem", path: str, offset: int) -> Any:
    file = files.open(path, "rb")
    file.seek(offset)
    return file


class EcfsFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Paths are those of archive directories, with the path in the archive behind: /srv/photos/2024/a.csv."""

    protocol = "ecfs"
    root_marker = "/"

    def __init__(self, keep_open: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_open = keep_open
        self._own = threading.RLock()  # guards what follows
        self._forget()

    def _forget(self) -> None:
        self._of_pid = os.getpid()
        self._own = threading.RLock()  # guards what follows
        self._held: "list[str]" = []  # writers that stay open until the outermost _holding() ends
        self._n_holding = 0

    def __del__(self) -> None:
        if getattr(self, "keep_open", False):
            _archives.release()

    def _mine(self) -> contextlib.AbstractContextManager[Any]:
        if os.getpid() != self._of_pid:  # archives do not live through fork(2), nor does a lock that a thread had
            self._forget()
        return self._own

    # Paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if path.startswith("ecfs://"):
            path = path[len("ecfs://"):]
        return os.path.abspath(path) if path else cls.root_marker

    def unstrip_protocol(self, name: str) -> str:
        return name if name.startswith("ecfs://") else f"ecfs://{self._strip_protocol(name)}"

    @staticmethod
    def _split(path: str) -> "tuple[str, str]":
        """The archive's directory and the path in it."""
        parts = path.split("/")
        for n_parts in range(2, len(parts) + 1):
            directory = "/".join(parts[:n_parts])
            if _is_archive(directory):
                return directory, "/" + "/".join(parts[n_parts:])
        raise FileNotFoundError(errno.ENOENT, "it is in no archive of ecfs", path)

    # Archives

    def _take_writer(self, directory: str) -> Archive:
        with self._mine():
            archive = _archives.take_writer(directory)
            if self.keep_open:
                _archives.keep(directory)
            if self._n_holding > 0 and directory not in self._held:
                self._held.append(directory)
                _archives.take_writer(directory)
            return archive

    @contextlib.contextmanager
    def _writer(self, directory: str) -> Iterator[Archive]:
        archive = self._take_writer(directory)
        try:
            yield archive
        finally:
            _archives.give_back(directory)

    @contextlib.contextmanager
    def _holding(self) -> Iterator[None]:
        """Several operations with the archive opened for writing once."""
        with self._mine():
            self._n_holding += 1
        try:
            yield
        finally:
            with self._mine():
                self._n_holding -= 1
                held, self._held = (self._held, []) if self._n_holding == 0 else ([], self._held)
            for directory in held:
                _archives.give_back(directory)

    def close(self) -> None:
        """Closes all archives that this process has by ecfs://, once files that are open in them are closed."""
        _archives.forget_readers()
        _archives.release()

    def invalidate_cache(self, path: Optional[str] = None) -> None:
        """Opens archives anew: who reads sees endpoints that were added since."""
        _archives.forget_readers()
        super().invalidate_cache(path)

    # Reading

    @staticmethod
    def _facts(directory: str, entry: Entry) -> "dict[str, Any]":
        facts: "dict[str, Any]" = {
            "name": directory + entry.path.rstrip("/"),
            "size": entry.size if entry.is_file else 0,
            "type": "directory" if entry.is_dir else "file" if entry.is_file else "other",
            "mode": entry.mode,
            "uid": entry.uid,
            "gid": entry.gid,
            "nlink": entry.nlink,
            "ino": entry.inode,
            "mtime": entry.mtime_ns / 1e9,
            "islink": entry.target is not None,
        }
        if entry.target is not None:
            facts["destination"] = entry.target
        return facts

    def info(self, path: str, **_: Any) -> "dict[str, Any]":
        directory, inner = self._split(self._strip_protocol(path))
        return self._facts(directory, _archives.reader(directory).stat(inner))

    def ls(self, path: str, detail: bool = True, **_: Any) -> "list[Any]":
        directory, inner = self._split(self._strip_protocol(path))
        found = [self._facts(directory, entry) for entry in _archives.reader(directory).list(inner)]
        return found if detail else [facts["name"] for facts in found]

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], datetime.timezone.utc)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        directory, inner = self._split(self._strip_protocol(path))
        with File(_archives.reader(directory), inner) as file:
            begin, stop, _step = slice(start, end).indices(file.size)
            return file.pread(max(stop - begin, 0), begin)

    def get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        if hasattr(lpath, "write"):
            super().get_file(rpath, lpath, **kwargs)
            return
        directory, inner = self._split(self._strip_protocol(rpath))
        archive = _archives.reader(directory)
        if archive.stat(inner).is_dir:
            os.makedirs(lpath, exist_ok=True)
        else:
            archive.get([inner], lpath)

    # Writing

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, code: Optional[str] = None,
              **_: Any) -> Any:
        directory, inner = self._split(path)
        if mode == "rb":
            return _Reader(self, path, File(_archives.reader(directory), inner))
        if mode != "wb":
            raise NotImplementedError(
                f"{path} cannot be opened with {mode!r}: files are read, or written from their first byte on")
        archive = self._take_writer(directory)
        try:
            file = archive.open(inner, "wb", code)
        except BaseException:
            _archives.give_back(directory)
            raise
        file.raw._ended.append(lambda: _archives.give_back(directory))
        file.raw._is_kept = not autocommit
        return file

    def _check_absent(self, path: str, mode: str) -> None:
        """What a mode of fsspec demands."""
        if mode == "create" and self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        directory, inner = self._split(self._strip_protocol(path))
        with self._writer(directory) as archive:
            self._check_absent(path, mode)
            archive.write(inner, value, kwargs.get("code"))

    def put_file(self, lpath: Any, rpath: str, callback: Any = None, mode: str = "overwrite", **kwargs: Any) -> None:
        directory, inner = self._split(self._strip_protocol(rpath))
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with self._writer(directory) as archive:
            self._check_absent(rpath, mode)
            archive.put([lpath], inner, kwargs.get("code"))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        with self.open(path1, "rb") as source, self.open(path2, "wb", **kwargs) as target:
            while piece := source.read(_PIECE_BYTES):
                target.write(piece)

    def pipe(self, *args: Any, **kwargs: Any) -> None:
        with self._holding():
            super().pipe(*args, **kwargs)

    def put(self, *args: Any, **kwargs: Any) -> None:
        with self._holding():
            super().put(*args, **kwargs)

    def copy(self, *args: Any, **kwargs: Any) -> None:
        with self._holding():
            super().copy(*args, **kwargs)

    # Names

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        directory, inner = self._split(self._strip_protocol(path))
        with self._writer(directory) as archive:
            if create_parents and inner.count("/") > 1:
                archive.make_directory(inner.rpartition("/")[0], parents=True)
            archive.make_directory(inner)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok:
            self.mkdir(path)
            return
        directory, inner = self._split(self._strip_protocol(path))
        with self._writer(directory) as archive:
            archive.make_directory(inner, parents=True)

    def rmdir(self, path: str) -> None:
        directory, inner = self._split(self._strip_protocol(path))
        with self._writer(directory) as archive:
            archive.list(inner)  # ENOENT
            if not archive.stat(inner).is_dir:
                raise NotADirectoryError(errno.ENOTDIR, "it is no directory", path)
            archive.remove(inner)

    def rm_file(self, path: str) -> None:
        directory, inner = self._split(self._strip_protocol(path))
        with self._writer(directory) as archive:
            archive.remove(inner)

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        with self._holding():
            if maxdepth is not None or isinstance(path, list) or not recursive:
                super().rm(path, recursive=recursive, maxdepth=maxdepth)
                return
            removed = None
            for one in sorted(self.expand_path(path), key=lambda found: found.split("/")):
                if removed is not None and one.startswith(removed + "/"):
                    continue  # with its directory
                removed = one
                directory, inner = self._split(one)
                with self._writer(directory) as archive:
                    archive.remove(inner, recursive=True)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: Optional[int] = None, **kwargs: Any) -> None:
        if isinstance(path1, str) and isinstance(path2, str) and maxdepth is None and not set(path1) & _MAGIC:
            old, new = (self._split(self._strip_protocol(path)) for path in (path1, path2))
            if old[0] == new[0]:
                with self._writer(old[0]) as archive:
                    archive.stat(old[1])  # ENOENT before directories are made, as they are for a file that is written
                    archive.make_directory(new[1].rpartition("/")[0], parents=True)
                    archive.move(old[1], new[1])
                return
        with self._holding():
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    move = rename = mv


fsspec.register_implementation("ecfs", EcfsFileSystem, clobber=True)
