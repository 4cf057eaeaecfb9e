"""Every fuzz target survives its corpus and a few seconds of its own ideas.

A target is an executable fuzz_NAME in tests/fuzz of the build that ECFS_FUZZ_BUILD names; seeds lie in corpus/NAME.
ECFS_FUZZ_SECONDS says how long each runs.
"""
import os
import shutil
from pathlib import Path

import lab
import pytest

BUILD = Path(os.environ.get("ECFS_FUZZ_BUILD", lab.REPOSITORY / "build-fuzz"))
TARGETS = sorted(path for path in BUILD.glob("tests/fuzz/fuzz_*") if path.is_file() and os.access(path, os.X_OK))


@pytest.mark.parametrize("target", TARGETS, ids=lambda path: getattr(path, "name", "none"))
def test_target_meets_hostile_bytes_without_a_crash(target, tmp_path):
    seconds = int(os.environ.get("ECFS_FUZZ_SECONDS", 2))
    seeds = Path(__file__).parent / "corpus" / target.name.removeprefix("fuzz_")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command = [target, f"-max_total_time={seconds}", "-rss_limit_mb=1024", "-timeout=10", "-print_final_stats=1",
               f"-artifact_prefix={tmp_path}/", corpus, *([seeds] if seeds.is_dir() else [])]
    if shutil.which("setarch") and lab.run("setarch", os.uname().machine, "-R", "true", check=False).returncode == 0:
        command = ["setarch", os.uname().machine, "-R", *command]
    done = lab.run(*command, timeout=seconds * 10 + 120, check=False)
    found = {path.name: path.read_bytes()[:64].hex() for path in tmp_path.glob("*-*")}
    assert done.returncode == 0, f"{found}\n{done.stderr[-6000:]}"
    assert "stat::number_of_executed_units" in done.stderr
