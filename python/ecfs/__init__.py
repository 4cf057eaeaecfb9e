"""Archives of ecfs from Python, without a mount.

    import ecfs

    with ecfs.Archive("/srv/photos", writable=True) as archive:
        with archive.open("/2024/notes.txt", "wb") as file:
            file.write(b"...")

Errors are OSErrors with the errno and the sentence of libecfs. Any thread may use an archive; only reading from open
files goes on in several at once. After fork(2) the child must open archives and files itself: those of its parent raise
ValueError there, and are left alone when they are closed or forgotten.
"""
from __future__ import annotations

import ctypes
import io
import json
import os
import stat as _stat
import threading
import weakref
from typing import Any, Callable, Iterable, Literal, NamedTuple, Optional, Union, overload

from . import _library as _lib

__all__ = ["Archive", "Entry", "File", "Writer", "init"]

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

_BUFFER_BYTES = 256 * 1024


class Entry(NamedTuple):
    """A name in an archive."""

    path: str  # from the root, "/a/b"
    name: str  # its last part
    target: Optional[str]  # of a symbolic link
    inode: int
    mode: int  # as st_mode
    nlink: int
    uid: int
    gid: int
    size: int  # bytes
    mtime_ns: int
    staged: bool  # newer content waits in the staging area of a mount

    @property
    def is_dir(self) -> bool:
        return _stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return _stat.S_ISREG(self.mode)


def _entry_of(entry: Any) -> Entry:
    target = None if entry.target is None else os.fsdecode(entry.target)
    return Entry(os.fsdecode(entry.path), os.fsdecode(entry.name), target, entry.inode, entry.mode, entry.nlink, entry.uid,
                 entry.gid, entry.size, entry.mtime_ns, entry.staged)


def init(directory: Path, endpoints: Iterable[str], code: Optional[str] = None, settings: Iterable[str] = (),
         key: Optional[str] = None) -> None:
    """Makes an archive.

    endpoints: "[NAME=]URL[,KEY=VALUE...]"; settings: "KEY=VALUE" of the section [archive] of ecfs.conf(5); key: None
    or "split" for an archive with a key that its endpoints share, OSError with EDOM if these are in too few zones for
    that; "file" for one that is the file "key" in its directory alone; "none" for none.
    """
    _lib.call("init", os.fsencode(directory), None if code is None else code.encode(),
              _lib.strings([os.fsencode(text) for text in endpoints]),
              _lib.strings([os.fsencode(text) for text in settings]), None if key is None else key.encode())


class Archive:
    """An archive that is open: for reading, also beside a mount; or writable.

    Where it is mounted, the mount stores what is written. Otherwise a writable archive is locked until close():
    BlockingIOError or another OSError with EBUSY where somebody else has the lock.
    """

    def __init__(self, directory: Path, writable: bool = False) -> None:
        self.directory = os.fsdecode(directory)
        self.writable = writable
        self._of_pid = os.getpid()
        self._lock = threading.RLock()  # one call at a time, but for pread; again where a callback frees a file
        self._files: "weakref.WeakSet[File]" = weakref.WeakSet()
        self._handle: Optional[int] = _lib.call("open", os.fsencode(directory), _lib.OPEN_WRITE if writable else 0)

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<ecfs.Archive {self.directory!r}{' writable' if self.writable else ''}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Closes it. What is open for writing is discarded: close files first."""
        if self._is_inherited():
            self._handle = None
            return
        for file in list(self._files):
            file.discard()
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                _lib.close(handle)

    def _is_inherited(self) -> bool:
        """By fork(2). Another thread of the parent may have held the locks, so that they are held forever."""
        return os.getpid() != self._of_pid

    def _check_process(self) -> None:
        if self._is_inherited():
            raise ValueError(f"{self.directory}: the archive was opened before fork(2): open it again in this process")

    def _call(self, name: str, *arguments: Any) -> Any:
        self._check_process()
        with self._lock:
            if self._handle is None:
                raise ValueError(f"{self.directory}: the archive is closed")
            return _lib.call(name, self._handle, *arguments)

    # Files

    @overload
    def open(self, path: Path, mode: Literal["rb"] = "rb") -> io.BufferedReader: ...

    @overload
    def open(self, path: Path, mode: Literal["wb"], code: Optional[str] = None, permissions: int = 0) -> Writer: ...

    def open(self, path: Path, mode: str = "rb", code: Optional[str] = None,
             permissions: int = 0) -> Union[io.BufferedReader, Writer]:
        """A binary file object: "rb" to read and seek, "wb" to write new content from its first byte on.

        Written content becomes the file's when it is closed, with close() as the promise; where a `with` block ends by
        an exception, or nobody closes the file, it is discarded. Directories on the way are made. code: how it is made
        redundant; permissions: 0 is 0o644.
        """
        if mode == "rb":
            return io.BufferedReader(File(self, path, mode), _BUFFER_BYTES)
        return Writer(File(self, path, mode, code, permissions), _BUFFER_BYTES)

    def read(self, path: Path, offset: int = 0, size: int = -1) -> bytes:
        """The bytes of a file, or a range of them."""
        with File(self, path) as file:
            end = file.size if size < 0 else min(file.size, offset + size)
            return file.pread(max(end - offset, 0), offset)

    def write(self, path: Path, content: Union[bytes, bytearray, memoryview], code: Optional[str] = None) -> None:
        """Stores a file with this content."""
        with self.open(path, "wb", code) as file:
            file.write(content)

    def put(self, sources: Iterable[Path], path: Path, code: Optional[str] = None, update: bool = False) -> None:
        """Stores local files and directories, as `ecfs put` does. update: not those that did not change."""
        options = _lib.CTransferOptions(code=None if code is None else code.encode(), update=update)
        self._call("put", _lib.strings([os.fsencode(source) for source in sources]), os.fsencode(path),
                   ctypes.byref(options))

    def get(self, paths: Iterable[Path], directory: Path) -> None:
        """Fetches files and directories into a local directory, as `ecfs get` does."""
        self._call("get", _lib.strings([os.fsencode(path) for path in paths]), os.fsencode(directory), None)

    # Names

    def list(self, path: Path = "/", recursive: bool = False) -> "list[Entry]":
        """The entries of a directory in order of names, with all below them when recursive; of a file, itself."""
        entries: "list[Entry]" = []
        each = _lib.EACH(lambda _, entry: entries.append(_entry_of(entry.contents)))
        self._call("list", os.fsencode(path), recursive, each, None)
        return entries

    def stat(self, path: Path) -> Entry:
        entry = _lib.CEntry()
        self._check_process()
        with self._lock:
            if self._handle is None:
                raise ValueError(f"{self.directory}: the archive is closed")
            _lib.call("stat", self._handle, os.fsencode(path), ctypes.byref(entry))
            return _entry_of(entry)  # before the next call, which takes its texts back

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def remove(self, path: Path, recursive: bool = False) -> None:
        self._call("remove", os.fsencode(path), recursive)

    def move(self, old: Path, new: Path, keep: bool = False) -> None:
        """Renames; into new, when that is a directory. keep: FileExistsError in place of replacing."""
        self._call("move", os.fsencode(old), os.fsencode(new), keep)

    def make_directory(self, path: Path, permissions: int = 0o755, parents: bool = False) -> None:
        """With parents, those on the way are made too, and it may be there already."""
        self._call("make_directory", os.fsencode(path), permissions, parents)

    # Facts

    def status(self) -> "dict[str, Any]":
        """Health and figures; ecfs-status(1) lists the members."""
        return json.loads(_lib.take_text(self._call("status")))  # type: ignore[no-any-return]

    def info(self, path: Path) -> "dict[str, Any]":
        """What is stored of a file; ecfs-info(1) lists the members."""
        return json.loads(_lib.take_text(self._call("info", os.fsencode(path))))  # type: ignore[no-any-return]

    def wait(self, paths: Optional[Iterable[Path]] = None, quorum: bool = False, unmounted: bool = False) -> None:
        """Waits until all that is staged, or these files, is stored; as `ecfs wait` does."""
        flags = (_lib.WAIT_QUORUM if quorum else 0) | (_lib.WAIT_UNMOUNTED if unmounted else 0)
        self._call("wait", _lib.strings(None if paths is None else [os.fsencode(path) for path in paths]), flags)


class File(io.RawIOBase):
    """An unbuffered file of an archive; Archive.open() makes buffered ones."""

    def __init__(self, archive: Archive, path: Path, mode: str = "rb", code: Optional[str] = None,
                 permissions: int = 0) -> None:
        if mode not in ("rb", "wb"):
            raise ValueError(f"{mode!r} is neither 'rb' nor 'wb'")
        super().__init__()
        self.archive, self.mode, self.name = archive, mode, os.fsdecode(path)
        self.full: Optional[bool] = None  # once written and closed: whether all stripes are stored
        self._writing = mode == "wb"
        self._at = 0
        self._is_kept = False  # close() leaves it to commit() or discard()
        self._ended: "list[Callable[[], None]]" = []
        self._idle = threading.Condition()
        self._n_users = 0  # threads that use the handle
        self._handle: Optional[int] = None
        options = _lib.CFileOptions(code=None if code is None else code.encode(), mode=permissions)
        self._handle = archive._call(
            "file_open", os.fsencode(path), _lib.FILE_WRITE if self._writing else 0, ctypes.byref(options))
        archive._files.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.discard()

    # Whoever uses the handle keeps others from ending it meanwhile.
    def _begin(self) -> int:
        self.archive._check_process()
        with self._idle:
            if self._handle is None or self.closed:
                raise ValueError(f"{self.name}: the file is closed")
            self._n_users += 1
            return self._handle

    def _end(self) -> None:
        with self._idle:
            self._n_users -= 1
            self._idle.notify_all()

    def _take(self) -> Optional[int]:
        if self.archive._is_inherited():
            self._handle = None
            return None
        with self._idle:
            handle, self._handle = self._handle, None
            self._idle.wait_for(lambda: self._n_users == 0)
        self.archive._files.discard(self)
        return handle

    @property
    def size(self) -> int:
        handle = self._begin()
        try:
            return int(_lib.file_size(handle))
        finally:
            self._end()

    def readable(self) -> bool:
        return not self._writing

    def writable(self) -> bool:
        return self._writing

    def seekable(self) -> bool:
        return not self._writing

    def tell(self) -> int:
        return self.size if self._writing else self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self._writing:
            raise io.UnsupportedOperation("what is written is written in order")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the first byte")
        self._at = base + offset
        return self._at

    def _pread_into(self, address: Any, size: int, offset: int) -> int:
        n_bytes = ctypes.c_size_t()
        handle = self._begin()
        try:
            _lib.call("file_pread", handle, address, size, offset, ctypes.byref(n_bytes))
        finally:
            self._end()
        return n_bytes.value

    def pread(self, size: int, offset: int) -> bytes:
        """A range of the file; any number of threads at once."""
        buffer = bytearray(size)
        n_bytes = self._pread_into((ctypes.c_char * size).from_buffer(buffer), size, offset)
        return bytes(buffer if n_bytes == size else buffer[:n_bytes])

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._writing:
            raise io.UnsupportedOperation("it is open for writing")
        if len(view) == 0:
            return 0
        n_bytes = self._pread_into((ctypes.c_char * len(view)).from_buffer(view), len(view), self._at)
        self._at += n_bytes
        return n_bytes

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        if not self._writing:
            raise io.UnsupportedOperation("it is open for reading")
        handle = self._begin()
        try:
            with self.archive._lock:
                _lib.call("file_write", handle, view.tobytes() if view.readonly else
                          (ctypes.c_char * len(view)).from_buffer(view), len(view))
        finally:
            self._end()
        return len(view)

    def close(self) -> None:
        """Ends it; what was written is stored when this returns. After an exception the file is what it was before."""
        if self.closed:
            return
        super().close()
        if not self._is_kept:
            self.commit()

    def commit(self) -> None:
        handle = self._take()
        try:
            if handle is not None:
                full = ctypes.c_bool()
                with self.archive._lock:
                    _lib.call("file_close", handle, ctypes.byref(full))
                self.full = full.value if self._writing else None
        finally:
            self._tell_ended()

    def discard(self) -> None:
        """Ends it without storing what was written."""
        handle = self._take()
        if not self.closed:
            super().close()
        if handle is not None:
            with self.archive._lock:
                _lib.file_discard(handle)
        self._tell_ended()

    def _tell_ended(self) -> None:
        while self._ended:
            self._ended.pop()()


class Writer(io.BufferedWriter):
    """A file that is written; what is written halfway is not stored."""

    raw: File

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        self.discard()

    def close(self) -> None:
        if self.raw.closed:
            return
        try:
            self.flush()
        except BaseException:
            self.discard()
            raise
        self.raw.close()

    def commit(self) -> None:
        self.raw.commit()

    def discard(self) -> None:
        self.raw.discard()
