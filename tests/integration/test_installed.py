"""Programs that are no part of the tree, made with what `meson install` leaves: header, ecfs.pc and shared library."""
import json
import os
import sys

import lab
import pytest

EXAMPLES = lab.REPOSITORY / "examples"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment in which compilers and programs find it."""
    staged = tmp_path_factory.mktemp("installed")
    lab.run("meson", "install", "-C", lab.BUILD, "--no-rebuild", "--quiet", "--destdir", staged)
    (description,) = staged.rglob("ecfs.pc")
    prefix = next(line for line in description.read_text().splitlines() if line.startswith("prefix="))[len("prefix="):]
    # What it says is true once this is moved to the place that it is for.
    description.write_text(description.read_text().replace(f"prefix={prefix}", f"prefix={staged}{prefix}", 1))
    (library,) = staged.rglob("libecfs.so.0")
    return {**os.environ, "PKG_CONFIG_PATH": str(description.parent), "LD_LIBRARY_PATH": str(library.parent),
            "PYTHONPATH": str(lab.REPOSITORY / "python"), "ECFS_LIBRARY": ""}


@pytest.fixture
def program(installed, tmp_path):
    flags = lab.run("pkg-config", "--cflags", "--libs", "ecfs", env=installed).stdout.split()
    lab.run("gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", EXAMPLES / "archive.c", "-o",
            tmp_path / "archive", *flags)
    return tmp_path / "archive"


def test_c_program(installed, program, archive):
    lines = lab.run(program, archive.path, env=installed).stdout.split("\n", 3)
    assert lines[:3] == ["/letters 0", "/letters/hello.txt 16", "archive"]
    assert json.loads(lines[3])["verdict"]
    assert lab.ecfs("cat", archive.path, "/letters/hello.txt").stdout == "Hello, archive!\n"


def test_c_program_tells_what_is_wrong(installed, program, place):
    done = lab.run(program, place.path / "nowhere", env=installed, check=False)
    assert done.returncode == 1 and "nowhere" in done.stderr


def test_python_program(installed, archive):
    lines = lab.run(sys.executable, EXAMPLES / "archive.py", archive.path, env=installed).stdout.splitlines()
    assert lines[:3] == ["/letters 0", "/letters/hallo.txt 15", "Archiv"] and len(lines) == 4
    assert lab.ecfs("cat", archive.path, "/letters/hallo.txt").stdout == "Hallo, Archiv!\n"
