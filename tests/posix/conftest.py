"""The directory that the conformance suite examines.

By default an ecfs mount over six directories that lets other users in. With ECFS_POSIX_DIR=DIRECTORY it is a fresh
directory below that one: on a local file system every case passes, which is how the suite itself is checked.
ECFS_POSIX_SETTINGS="commit=async small_file=0" sets keys of the archive's section [archive].
"""
import itertools
import os
import signal

import pytest
from excuses import DIRECTORY
from targets import Files, Local, Mounted

CASE_TIMEOUT_S = 300


@pytest.fixture(scope="session")
def target(request):
    """What is examined: its path, and remount()."""
    settings = dict(setting.split("=") for setting in os.environ.get("ECFS_POSIX_SETTINGS", "").split())
    made = Local() if DIRECTORY else Mounted(request.getfixturevalue("session_place"), **settings)
    made.path.chmod(0o755)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def ordinary_process():
    """The umask that cases expect, no working directory in the way, and an end to whatever hangs."""
    before = os.umask(0o022)
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(CASE_TIMEOUT_S)
    yield
    signal.alarm(0)
    os.umask(before)
    os.chdir("/")


def hangs(*_):
    pytest.fail(f"hangs for {CASE_TIMEOUT_S} s")


numbers = itertools.count()


@pytest.fixture
def d(target):
    """A fresh directory, 0755."""
    path = target.path / f"case-{next(numbers)}"
    path.mkdir()
    return path


@pytest.fixture(params=["staged", "stored"])
def files(request, d):
    """For every case about content: once with a file that is open for writing, once with one that is stored."""
    made = Files(d, request.param)
    yield made
    made.close()
