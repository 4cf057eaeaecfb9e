"""Programs that are no part of the tree, with what `meson install` leaves: header, ecfs.pc, library, Python package."""
import importlib.metadata
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
            "PYTHONPATH": ":".join(str(package.parent) for package in staged.rglob("ecfs-*.dist-info")),
            "ECFS_LIBRARY": ""}


@pytest.fixture
def package(installed):
    """The environment, where the build installs the package."""
    if not installed["PYTHONPATH"]:
        pytest.skip("this build is without the Python package (-Dpython)")
    return installed


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


def test_python_program(package, archive):
    lines = lab.run(sys.executable, EXAMPLES / "archive.py", archive.path, env=package).stdout.splitlines()
    assert lines[:3] == ["/letters 0", "/letters/hallo.txt 15", "Archiv"] and len(lines) == 4
    assert lab.ecfs("cat", archive.path, "/letters/hallo.txt").stdout == "Hallo, Archiv!\n"


FSSPEC_PROGRAM = """
import fsspec, sys
url = "ecfs://" + sys.argv[1] + "/letters/salut.txt"
assert "ecfs" not in sys.modules
with fsspec.open(url, "w") as file:
    file.write("Salut, archive!")
with fsspec.open(url) as file:
    assert file.read() == b"Salut, archive!"
import importlib.metadata
print(sys.modules["ecfs"].__file__)
print(importlib.metadata.version("ecfs"))
"""


def test_fsspec_finds_the_package(package, archive):
    place, version = lab.run(sys.executable, "-c", FSSPEC_PROGRAM, archive.path, env=package,
                             cwd=archive.path).stdout.splitlines()
    assert place == package["PYTHONPATH"] + "/ecfs/__init__.py"
    assert version in lab.ecfs("--version").stdout


def test_package_describes_itself(package):
    (found,) = importlib.metadata.distributions(path=[package["PYTHONPATH"]])
    assert found.metadata["Name"] == "ecfs" and found.version == found.metadata["Version"]
    assert found.requires == ['fsspec>=2022.11; extra == "fsspec"']
    assert [(entry.group, entry.name, entry.value) for entry in found.entry_points] == [
        ("fsspec.specs", "ecfs", "ecfs.fsspec:EcfsFileSystem")]
    assert (found.read_text("INSTALLER"), found.files) == ("meson\n", None)  # so that pip removes nothing
