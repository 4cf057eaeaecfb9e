"""What a mount lacks and may lack: ecfs-mount(1) lists it, and whatever is not listed there is a failure."""
import os
from pathlib import Path

import pytest

MANUAL = Path(__file__).parents[2] / "man/ecfs-mount.1"
DIRECTORY = os.environ.get("ECFS_POSIX_DIR")

# What cases ask for → the head of the item in "Differences from a local file system".
EXCUSES = {
    "O_TMPFILE": ".It Unnamed files",
    "birth times": ".It Birth times",
    "POSIX ACLs": ".It Access control lists",
    "atime": ".It Times of access",
    "deadlocks of locks": ".It Deadlocks of locks",
    "fallocate with mode 16": ".It Rare modes of Xr fallocate 2",
    "fallocate with mode 17": ".It Rare modes of Xr fallocate 2",
}


def lacks(what):
    """Skips a case for what does not exist here; on a mount only if the manual says so."""
    if DIRECTORY:
        pytest.skip(f"no {what} here")
    assert what in EXCUSES and EXCUSES[what] in MANUAL.read_text().splitlines(), f"no {what}, and no word of it in the manual"
    pytest.skip(f"no {what}, as ecfs-mount(1) says")
