"""A file much larger than memory for transfers goes in and out, and the mount stays small.

ECFS_BIG_SIZE says how large it is, in bytes.
"""
import os
import shutil

import lab
import pytest

pytestmark = pytest.mark.nightly

SIZE = int(os.environ.get("ECFS_BIG_SIZE", 4 << 30))
RESIDENT_MAX = 400 << 20


def test_file_of_many_gigabytes_needs_little_memory(disk_place):
    needed = SIZE * 15 // 4  # its stripes are 1.5 times its size, and staging holds it once; the rest is reserve
    free = shutil.disk_usage(disk_place.path).free
    if free < needed:
        pytest.skip(f"{free >> 30} GiB are free below {disk_place.path}, and {needed >> 30} are needed")
    archive = disk_place.archive(disk_place.directories())
    mount = disk_place.mount(archive)
    path = mount.path / "big"
    with lab.Watch(mount) as watch:
        expected = lab.write_pattern(path, SIZE)
        print(f"written: the mount had {watch.peak >> 20} MiB at most")
        lab.forget_mounts()
        assert lab.digest(path) == expected
        archive.await_stored()
        archive["birch"].kill()
        archive["cedar"].kill()
        lab.forget_mounts()
        assert lab.digest(path) == expected
    print(f"in all {watch.peak >> 20} MiB")
    assert watch.peak < RESIDENT_MAX
    assert os.stat(path).st_size == SIZE
