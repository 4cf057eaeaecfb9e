"""libecfs by ctypes: the functions of ecfs/ecfs.h that this package needs, and errors as OSError."""
from __future__ import annotations

import ctypes
import os
from ctypes import (POINTER, Structure, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Optional

OPEN_WRITE = 1  # ECFS_OPEN_WRITE
FILE_WRITE = 1  # ECFS_FILE_WRITE
WAIT_QUORUM = 1  # ECFS_WAIT_QUORUM
WAIT_UNMOUNTED = 2  # ECFS_WAIT_UNMOUNTED


class GError(Structure):
    _fields_ = [("domain", c_uint32), ("code", c_int), ("message", c_char_p)]


class CEntry(Structure):
    """EcfsEntry"""

    _fields_ = [
        ("path", c_char_p), ("name", c_char_p), ("target", c_char_p), ("inode", c_uint64), ("mode", c_uint32),
        ("nlink", c_uint32), ("uid", c_uint32), ("gid", c_uint32), ("size", c_uint64), ("mtime_ns", c_int64),
        ("staged", c_bool),
    ]


class CFileOptions(Structure):
    """EcfsFileOptions"""

    _fields_ = [("code", c_char_p), ("mode", c_uint32)]


PROGRESS = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p)
PROBLEM = ctypes.CFUNCTYPE(None, c_void_p, POINTER(GError), c_bool)
EACH = ctypes.CFUNCTYPE(None, c_void_p, POINTER(CEntry))


class CTransferOptions(Structure):
    """EcfsTransferOptions"""

    _fields_ = [("code", c_char_p), ("update", c_bool), ("progress", PROGRESS), ("problem", PROBLEM), ("user", c_void_p)]


def _load() -> ctypes.CDLL:
    named = os.environ.get("ECFS_LIBRARY")
    try:
        return ctypes.CDLL(named or "libecfs.so.0")
    except OSError as error:
        raise ImportError(
            f"the library of ecfs cannot be loaded: {error}. "
            + ("ECFS_LIBRARY names another file than libecfs.so.0, or one that does not fit" if named else
               "This package needs ecfs itself, which `meson install` installs. Where it is in a place that the dynamic "
               "linker does not search, run ldconfig, or set ECFS_LIBRARY to the path of libecfs.so.0")) from None


_ecfs = _load()
_glib = ctypes.CDLL("libglib-2.0.so.0")
_glib.g_free.argtypes = [c_void_p]
_glib.g_free.restype = None
_glib.g_error_free.argtypes = [POINTER(GError)]
_glib.g_error_free.restype = None

_ERROR = POINTER(POINTER(GError))
_STRINGS = POINTER(c_char_p)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {  # what is returned, then the arguments but the last, which is the error
    "ecfs_init": (c_bool, c_char_p, c_char_p, _STRINGS, _STRINGS, c_char_p),
    "ecfs_open": (c_void_p, c_char_p, c_uint),
    "ecfs_put": (c_bool, c_void_p, _STRINGS, c_char_p, POINTER(CTransferOptions)),
    "ecfs_get": (c_bool, c_void_p, _STRINGS, c_char_p, POINTER(CTransferOptions)),
    "ecfs_file_open": (c_void_p, c_void_p, c_char_p, c_uint, POINTER(CFileOptions)),
    "ecfs_file_pread": (c_bool, c_void_p, c_void_p, c_size_t, c_uint64, POINTER(c_size_t)),
    "ecfs_file_write": (c_bool, c_void_p, c_void_p, c_size_t),
    "ecfs_file_close": (c_bool, c_void_p, POINTER(c_bool)),
    "ecfs_remove": (c_bool, c_void_p, c_char_p, c_bool),
    "ecfs_move": (c_bool, c_void_p, c_char_p, c_char_p, c_bool),
    "ecfs_make_directory": (c_bool, c_void_p, c_char_p, c_uint32, c_bool),
    "ecfs_list": (c_bool, c_void_p, c_char_p, c_bool, EACH, c_void_p),
    "ecfs_stat": (c_bool, c_void_p, c_char_p, POINTER(CEntry)),
    "ecfs_info": (c_void_p, c_void_p, c_char_p),
    "ecfs_status": (c_void_p, c_void_p),
    "ecfs_wait": (c_bool, c_void_p, _STRINGS, c_uint),
}
for _name, (_result, *_arguments) in _PROTOTYPES.items():
    try:
        _function = getattr(_ecfs, _name)
    except AttributeError as error:
        raise ImportError(f"the library of ecfs is older than this package: {error}") from None
    _function.restype, _function.argtypes = _result, [*_arguments, _ERROR]
for _name in ("ecfs_close", "ecfs_file_discard"):
    getattr(_ecfs, _name).restype, getattr(_ecfs, _name).argtypes = None, [c_void_p]
_ecfs.ecfs_file_size.restype, _ecfs.ecfs_file_size.argtypes = c_uint64, [c_void_p]

close = _ecfs.ecfs_close
file_discard = _ecfs.ecfs_file_discard
file_size = _ecfs.ecfs_file_size


def error_of(error: Any) -> OSError:
    """The exception for a GError, whose code is an errno: FileNotFoundError for ENOENT, and so on."""
    return OSError(error.contents.code, error.contents.message.decode("utf-8", "surrogateescape"))


def call(name: str, *arguments: Any) -> Any:
    """Calls ecfs_NAME; a failure is an OSError with the library's errno and sentence."""
    error = POINTER(GError)()
    result = getattr(_ecfs, "ecfs_" + name)(*arguments, byref(error))
    if not error:
        return result
    exception = error_of(error)
    _glib.g_error_free(error)
    raise exception


def take_text(pointer: int) -> str:
    """A text that is the caller's."""
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        _glib.g_free(pointer)


def strings(values: Optional[list[bytes]]) -> Any:
    """A NULL-terminated array."""
    return None if values is None else (c_char_p * (len(values) + 1))(*values, None)
