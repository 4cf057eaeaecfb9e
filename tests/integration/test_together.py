"""Small files where endpoints keep no logs and nobody waits: packs straight from staging."""
import os
import threading

import lab
import pytest
from test_logs import LOG, PACK, WHOLE, contents, kinds, lose_machine, write_files
from test_recover import recover, tree_of
from web import Web


@pytest.fixture
def archive(place):
    """Four WebDAV servers and two directories: a log needs three endpoints that keep one."""
    servers = []
    for name, kind in zip(lab.NAMES, ["nginx", "apache", "nginx", "apache"]):
        server = Web(place.path / "web" / name, name, kind)
        place.servers.append(server)
        server.start()
        servers.append(server)
    made = place.archive([*servers, *place.directories(lab.NAMES[4:6])], "rs:4+2")
    made.configure("archive", commit="async", deletion_grace="1s")
    return made


def assert_together(archive, n_files, most=0.2):
    found = kinds(archive)
    assert LOG not in found and PACK in found
    assert len(found) <= n_files * most, f"{n_files} files are {len(found)} objects"


@pytest.mark.slow
def test_small_files_become_packs(place, archive):
    mount = place.mount(archive)
    write_files(mount.path / "d", 200)
    write_files(mount.path / "e", 100, seed=1)
    (mount.path / "large").write_bytes(os.urandom(40_000))
    (mount.path / "empty").write_bytes(b"")
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    assert_together(archive, 300)
    assert kinds(archive).count(WHOLE) <= 1 + 3  # a file that comes alone is an object of its own
    assert archive.json("status")["staging"]["files"] == 0
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "--deep", archive.path, check=False).returncode == 0
    for name in ("amber", "fjord"):
        archive[name].kill()
    lab.assert_same_tree(before, tree_of(place, archive))


@pytest.mark.slow
def test_they_come_back_without_the_machine(place, archive):
    mount = place.mount(archive)
    write_files(mount.path / "d", 150)
    for number in range(0, 150, 3):
        (mount.path / "d" / f"file {number:04}").unlink()
    write_files(mount.path / "e", 50, seed=2)
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    assert_together(archive, 150)
    lose_machine(archive, mount)
    recovered, _ = recover(place, archive.endpoints)
    assert contents(tree_of(place, recovered)) == contents(before)


@pytest.mark.slow
def test_a_killed_mount_stores_them_when_it_is_back(place, archive):
    mount = place.mount(archive)
    write_files(mount.path / "d", 80)
    mount.kill()
    mount.start()
    write_files(mount.path / "e", 20, seed=3)
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    assert_together(archive, 100, 0.3)
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()


@pytest.mark.slow
def test_an_endpoint_that_is_gone_makes_objects_of_them(place, archive):
    """A pack is stored in full or not at all; what its files were promised needs less."""
    mount = place.mount(archive)
    archive["birch"].kill()
    write_files(mount.path / "d", 30)
    before = lab.describe_tree(mount.path)
    lab.until(lambda: len(kinds(archive)) == 30, 60, "all has its quorum")
    assert set(kinds(archive)) == {WHOLE}
    archive["birch"].start()
    archive.await_stored()
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", archive.path, check=False).returncode == 0


@pytest.mark.slow
def test_files_that_change_meanwhile_are_what_they_became(place, archive):
    mount = place.mount(archive)
    write_files(mount.path / "d", 60)

    def change(numbers, seed):
        for number in numbers:
            path = mount.path / "d" / f"file {number:04}"
            if number % 4 == 0:
                path.write_bytes(os.urandom(seed + 50))
            elif number % 4 == 1:
                path.rename(mount.path / "d" / f"moved {number}")
            elif number % 4 == 2:
                path.unlink()
            else:
                with path.open("ab") as file:
                    file.write(b"more")
    threads = [threading.Thread(target=change, args=(range(first, 60, 2), first)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    before = lab.describe_tree(mount.path)
    archive.await_stored()
    lab.forget_mounts()
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    mount.umount()
    lab.assert_same_tree(before, tree_of(place, archive))


@pytest.mark.slow
def test_files_of_other_codes_are_in_packs_of_their_own(place, archive):
    mount = place.mount(archive)
    (mount.path / "copies").mkdir()
    os.setxattr(mount.path / "copies", "user.ecfs.code", b"copies:3")
    threads = [threading.Thread(target=write_files, args=(mount.path / name, 40, seed))
               for seed, name in enumerate(["copies", "d"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    archive.await_stored()
    assert_together(archive, 80, 0.3)
    for name, code in (("copies", b"copies:3"), ("d", b"rs:4+2")):
        for path in (mount.path / name).iterdir():
            assert os.getxattr(path, "user.ecfs.code") == code
    mount.umount()
