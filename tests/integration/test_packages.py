"""Packages on a bare Debian: made, installed, upgraded over an archive that the ones before have made, and purged."""
import os
import shutil
import subprocess

import lab
import pytest

BACK = 40  # commits, to the one that is upgraded from
MOST_S = 5400  # two builds on a slow machine, one with its tests

pytestmark = pytest.mark.nightly


def earlier_commit():
    """One that can make packages, some time ago."""
    listed = lab.run("git", "-C", lab.REPOSITORY, "log", "--format=%H", "--full-history", "--", "debian/control").stdout.split()
    able = lab.run("git", "-C", lab.REPOSITORY, "log", "--format=%H", f"{listed[-1]}..HEAD").stdout.split() + [listed[-1]]
    return able[min(BACK, len(able) - 1)]


@pytest.mark.skipif(not lab.ROOT, reason="a system of its own needs root")
@pytest.mark.skipif(not shutil.which("debootstrap"), reason="debootstrap is not installed")
@pytest.mark.skipif(not (lab.REPOSITORY / ".git").exists(), reason="this is no git clone, and has no earlier commit")
def test_packages_on_a_bare_system(tmp_path):
    log = tmp_path / "log"
    lab.logs["packages"] = log
    with open(log, "wb") as output:
        done = subprocess.run(["timeout", "--kill-after=60", str(MOST_S), lab.REPOSITORY / "tests/lab/bare-debian",
                               "tests/lab/packages", earlier_commit()], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                              env={**os.environ, "BARE_DIR": str(tmp_path)}, check=False)
    assert done.returncode == 0 and "#### all is there" in log.read_text()
