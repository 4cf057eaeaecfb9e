"""The tree keeps to its own rules: includes, headers, names, layout, manuals."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lab
import pytest

TOP = lab.REPOSITORY
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def sources(*patterns):
    return sorted(path for pattern in patterns for path in TOP.glob(pattern))


def name(path):
    return str(path.relative_to(TOP)) if isinstance(path, Path) else "none"  # pytest asks even where there are none


@pytest.fixture(scope="module")
def compiling():
    """How this build compiles a file of the mount, which sees most libraries; without the file and what is made of it."""
    commands = json.loads((lab.BUILD / "compile_commands.json").read_text())
    command = next(entry["command"] for entry in commands if entry["file"].endswith("src/fs/mount.c"))
    words = re.sub(r" -(MQ|MF|o|c) \S+| -MD\b| -fdiagnostics-color=\w+", "", command)
    return ["env", "CCACHE_DISABLE=1", *shlex.split(words), "-Werror", "-fsyntax-only"]  # always new paths


@pytest.mark.parametrize("path", sources("tools/**/*.[ch]"), ids=name)
def test_tools_include_no_private_header(path):
    private = [included for included in INCLUDE.findall(path.read_text()) if included.endswith("_priv.h")]
    assert not private


# main () also does to its process what no library may; helpers speak for a room, in another process.
MORE = {"ecfs.c": {"program/program.h"}, "ecfs-fsck.c": {"program/program.h"},
        "gridftp_helper.c": {"endpoint/gridftp/gridftp_wire.h"}, "locate_helper.c": {"locate/locate_text.h"}}


@pytest.mark.parametrize("path", sources("tools/*.[ch]"), ids=name)
def test_verbs_are_built_on_the_public_header_alone(path):
    inside = {included for included in INCLUDE.findall(path.read_text()) if (TOP / "src" / included).exists()}
    assert inside <= MORE.get(path.name, set())


@pytest.mark.parametrize("path", sources("src/**/*.h", "include/ecfs/*.h"), ids=name)
@pytest.mark.slow  # together
def test_header_compiles_alone(path, compiling, tmp_path):
    alone = tmp_path / "alone.c"
    alone.write_text(f'#include "{path}"\n')
    done = lab.run(*compiling, alone, check=False, cwd=lab.BUILD)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("archive", ["libecfs-parts.a", "libecfs-program.a", "libecfs-fs.a", "libecfs-sim.a"])
def test_library_defines_names_of_its_own_only(archive):
    symbols = lab.run("nm", "--defined-only", "--extern-only", lab.BUILD / archive).stdout
    foreign = {line.split()[2] for line in symbols.splitlines()
               if re.match(r"[0-9a-f]+ [A-TV-Z] ", line) and not line.split()[2].startswith("ecfs_")}
    assert not foreign


def declared():
    """The functions of the public header."""
    text = re.sub(r"/\*.*?\*/", "", (TOP / "include/ecfs/ecfs.h").read_text(), flags=re.S)
    return set(re.findall(r"\b(ecfs_\w+) \(", text))


def test_shared_library_exports_exactly_what_its_header_declares():
    symbols = lab.run("nm", "--dynamic", "--defined-only", lab.BUILD / "libecfs.so").stdout
    linkers = {"__bss_start", "_edata", "_end"}  # what some of them add
    assert {line.split()[2] for line in symbols.splitlines()} - linkers == declared()


def test_shared_library_has_neither_file_system_nor_simulator_inside():
    dynamic = lab.run("readelf", "--dynamic", "--wide", lab.BUILD / "libecfs.so").stdout
    assert "soname: [libecfs.so.0]" in dynamic
    assert not re.search(r"\[lib(fuse|mount)", dynamic)
    symbols = lab.run("nm", "--defined-only", lab.BUILD / "libecfs.so").stdout
    assert not re.findall(r"\becfs_(?:fs|sim)_\w+", symbols)


def test_layout_is_what_clang_format_makes_of_it():
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if not program or not re.search(r"version 14\.", lab.run(program, "--version").stdout):
        pytest.skip("clang-format 14 is not here, and others lay out differently")
    files = sources("src/**/*.[ch]", "include/ecfs/*.h", "tools/**/*.[ch]", "tests/*/*.[ch]", "examples/*.[ch]")
    done = lab.run(program, "--dry-run", "-Werror", *files, check=False, timeout=600)  # builds may run beside
    assert done.returncode == 0, "\n".join(done.stderr.splitlines()[:20])


def test_what_differs_is_not_compared_line_by_line(tmp_path):
    """Which pytest does in CI, for hours if it is the content of a file."""
    (tmp_path / "test_bytes.py").write_text("def test_bytes():\n    assert bytes(40_000) == bytes(39_999) + b'1'\n")
    there = os.environ | {"CI": "1", "BUILD_NUMBER": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": str(TOP / "tests")}
    done = lab.run(sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", tmp_path, check=False,
                   cwd=tmp_path, env=there)
    assert "At index 39999 diff" in done.stdout and len(done.stdout) < 4000, done.stdout[:4000] + done.stderr


def test_slow_tests_take_turns(tmp_path):
    """Each day some of each file, other ones the next day, and all when nobody asks for a sample."""
    for file in ("one", "other"):
        (tmp_path / f"test_{file}.py").write_text("import pytest\n\n@pytest.mark.slow\n"
                                                  "@pytest.mark.parametrize('n', range(20))\ndef test_slow(n):\n    pass\n\n"
                                                  "def test_short():\n    pass\n")

    def chosen(*words, **more):
        there = os.environ | {"PYTEST_ADDOPTS": "", "PYTHONPATH": str(TOP / "tests"), "ECFS_SEED": "1"} | more
        done = lab.run(sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "--collect-only", *words,
                       cwd=tmp_path, env=there)
        return set(re.findall(r"^\S+::\S+$", done.stdout, re.M))

    every = chosen()
    assert len(every) == 2 * 21
    today = chosen("-m", "not nightly", ECFS_SAMPLE="5")
    assert {"test_one.py::test_short", "test_other.py::test_short"} < today < every and len(today) < len(every) // 2
    assert today != chosen("-m", "not nightly", ECFS_SAMPLE="5", ECFS_SEED="2")
    assert chosen("-m", "nightly", ECFS_SAMPLE="5") == every - today
    hardly = chosen("-m", "not nightly", ECFS_SAMPLE="1000000")
    assert sorted(re.sub(r"\[.*", "", test) for test in hardly) == [
        f"test_{file}.py::test_{which}" for file in ("one", "other") for which in ("short", "slow")]


@pytest.mark.parametrize("path", sources("man/*.[1-8]"), ids=name)
def test_manual_page_is_well_formed(path):
    done = lab.run("mandoc", "-T", "lint", "-W", "warning", path, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sources("tools/check", "tools/builds", "tools/quickstart", "tools/install-packages",
                                         "tools/package", "tests/lab/bare-debian", "tests/lab/packages", "tests/lab/make-ca", "tests/lab/other-server"), ids=name)
def test_script_parses(path):
    lab.run("bash", "-n", path)


def test_packages_file_has_nothing_but_purposes_and_names():
    for line in (TOP / "tools/packages").read_text().splitlines():
        text = line.partition("#")[0].strip()
        assert not text or re.fullmatch(r"(build|package|check|site|nightly)\s+[a-z0-9.+|-]+", text), line


def test_clone_is_all_that_is_needed():
    """Everything git tracks is enough to configure a build: no file of this working tree only."""
    if not (TOP / ".git").exists():
        pytest.skip("this is no git clone")
    tracked = subprocess.run(["git", "-c", f"safe.directory={TOP}", "-C", TOP, "ls-files", "-z"], check=True,
                             stdout=subprocess.PIPE).stdout.decode().rstrip("\0").split("\0")
    with tempfile.TemporaryDirectory() as directory:
        for relative in tracked:
            target = Path(directory) / "clone" / relative
            if (TOP / relative).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TOP / relative, target)
        lab.run("meson", "setup", Path(directory) / "build", Path(directory) / "clone")
