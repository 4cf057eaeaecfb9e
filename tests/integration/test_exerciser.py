"""Random reads, writes, truncates, mappings and more on one file agree with a model after every operation.

ECFS_OPERATIONS says how many on file endpoints (over sshd a tenth); ECFS_SEED=N for others than usual.
"""
import os
import subprocess

import lab
import pytest

pytestmark = pytest.mark.long

OPERATIONS = int(os.environ.get("ECFS_OPERATIONS", 3000))
SEED = int(os.environ.get("ECFS_SEED", 1))
KIB = 1 << 10
SEGMENT = 128 * KIB
EACH = 0.2  # seconds that an operation may take on average, on a busy machine


def exercise(directory, operations, *options):
    """Runs the program; its output is part of a failure."""
    command = [lab.BUILD / "tests/integration/exerciser", directory, f"--operations={operations}", f"--seed={SEED}",
               f"--segment={SEGMENT}", *options]
    print(*command)
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=120 + operations * EACH)


def only_file(mount):
    name, = os.listdir(mount.path)
    return mount.path / name


def exercise_mount(place, archive, operations, *options):
    """On a mount; what the file must hold in the end is there from the endpoints too, with two of them gone."""
    archive.configure("archive", segment_size="128K")
    mount = place.mount(archive)
    model = place.path / "model"
    forget = ["--forget"] if lab.ROOT else []
    exercise(mount.path, operations, "--direct", f"--save={model}", *forget, *options)
    expected = lab.digest(model)
    assert lab.digest(only_file(mount)) == expected
    archive.await_stored()
    mount.umount()
    mount.start()
    archive.endpoints[1].kill()
    archive.endpoints[4].kill()
    assert lab.digest(only_file(mount)) == expected


@pytest.mark.slow
def test_exerciser_agrees_with_a_plain_directory(tmp_path):
    exercise(tmp_path, OPERATIONS)


@pytest.mark.as_users
@pytest.mark.slow
def test_random_operations_agree_over_directories(place, archive):
    exercise_mount(place, archive, OPERATIONS)


@pytest.mark.slow
def test_random_operations_agree_over_sshd(place):
    archive = place.archive([place.sshd(name) for name in lab.NAMES])
    exercise_mount(place, archive, OPERATIONS // 10)


@pytest.mark.parametrize("commit, object_max", [("sync", "40K"), ("async", "16G")])
@pytest.mark.slow
def test_random_operations_agree_around_rewrite_max(place, archive, commit, object_max):
    archive.configure("archive", rewrite_max="200K", small_file="4K", commit=commit, object_max=object_max)
    exercise_mount(place, archive, OPERATIONS // 4, f"--largest={300 * KIB}", f"--rewrite-max={200 * KIB}")
