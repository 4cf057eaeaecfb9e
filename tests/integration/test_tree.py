"""Whole trees through put and get: everything about files comes back, and a killed put leaves nothing half done."""
import os
import shutil
import signal
import subprocess

import lab
import pytest

N_FILES = int(os.environ.get("ECFS_TREE_FILES", 300))

pytestmark = pytest.mark.as_users


@pytest.fixture
def tree(place):
    path = place.path / "tree"
    lab.real_tree(path, N_FILES)
    lab.add_oddities(path)
    os.mkfifo(path / "odd/pipe", 0o666)
    lab.settle(path)
    return path


@pytest.mark.several_objects
@pytest.mark.slow
def test_tree_comes_back_as_it_was_with_two_endpoints_gone(place, archive, tree):
    expected = lab.describe_tree(tree)
    archive.put_in_full(tree, "/")
    archive["birch"].kill()
    archive["ember"].kill()
    archive.get("/tree", place.path / "fetched")
    lab.assert_same_tree(expected, lab.describe_tree(place.path / "fetched/tree"))


@pytest.mark.several_objects
@pytest.mark.slow
def test_tree_put_again_replaces_and_merges(place, archive, tree):
    archive.put(tree, "/")
    lab.write_pattern(tree / "odd/size-1", 50_000, 7)
    (tree / "odd/link").unlink()
    (tree / "odd/link").write_text("a file now")
    (tree / "odd/new").write_text("new")
    lab.settle(tree)
    archive.put(f"{tree}/.", "/tree")
    archive.get("/", place.path / "fetched")
    expected = lab.describe_tree(tree)
    lab.assert_same_tree(expected, lab.describe_tree(place.path / "fetched/tree"))
    assert {entry["path"] for entry in archive.json("ls", "-R")} == {"/tree"} | {
        "/tree/" + name.encode(errors="surrogateescape").decode(errors="replace") for name in expected}


@pytest.mark.slow
def test_get_replaces_files_and_goes_through_no_link(place, archive, tree):
    archive.put(tree, "/")
    target, outside = place.path / "target", place.path / "outside"
    (target / "tree").mkdir(parents=True)
    outside.mkdir()
    (target / "tree/odd").symlink_to(outside)
    done = archive.get("/tree", target, check=False)
    assert done.returncode == 1 and "odd" in done.stderr
    assert not any(outside.iterdir())
    (target / "tree/odd").unlink()
    (target / "tree/odd").mkdir()
    (target / "tree/odd/size-16384").symlink_to(outside / "file")
    archive.get("/tree", target)
    assert not any(outside.iterdir())
    lab.assert_same_tree(lab.describe_tree(tree), lab.describe_tree(target / "tree"))


@pytest.mark.several_objects
@pytest.mark.slow
def test_standard_input_and_output(place, archive):
    source = place.path / "source"
    lab.write_pattern(source, 5_000_000, 3)
    program = lab.BUILD / "tools/ecfs"
    with open(source, "rb") as stdin, open(place.path / "out", "wb") as stdout:
        subprocess.run([program, "put", archive.path, "-", "/deep/in/here"], check=True, stdin=stdin)
        subprocess.run([program, "get", archive.path, "/deep/in/here", "-"], check=True, stdout=stdout)
    assert lab.digest(place.path / "out") == lab.digest(source)
    assert archive.put("-", "/deep/", check=False).returncode == 1


def test_one_bad_file_does_not_keep_others_out(place, archive, tree):
    done = archive.put(tree / "odd/size-1", tree / "absent", tree / "odd/size-16385", "/into", check=False)
    assert done.returncode == 1
    assert "absent" in done.stderr and "size" not in done.stderr
    assert {entry["name"] for entry in archive.json("ls", "/into")} == {"size-1", "size-16385"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_put_that_is_ended_leaves_no_file_that_is_not_whole(place, number):
    archive = place.archive([place.sshd(name) for name in lab.NAMES])  # into directories it would be too quick to be ended
    source = place.path / "source"
    source.mkdir()
    expected = {f"file-{i}": lab.write_pattern(source / f"file-{i}", 100_000, i) for i in range(1000)}
    process = subprocess.Popen([lab.BUILD / "tools/ecfs", "put", archive.path, f"{source}/.", "/"])
    lab.until(lambda: len(lab.stripe_files(archive["amber"])) > 150, 60, "some files are stored")
    process.send_signal(number)
    status = process.wait(60)
    if status == 0:
        pytest.skip("this machine is too busy: put ended before the signal came")
    assert status == (-number if number == signal.SIGKILL else 1)
    mount = place.mount(archive)
    found = os.listdir(mount.path)
    assert 10 < len(found) < 1000
    assert {name: lab.digest(mount.path / name) for name in found} == {name: expected[name] for name in found}
    mount.umount()
    archive.put(f"{source}/.", "/")
    shutil.rmtree(source)
    archive.get("/", source)
    assert {name: lab.digest(source / name) for name in os.listdir(source)} == expected
