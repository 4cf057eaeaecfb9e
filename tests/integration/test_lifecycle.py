"""Endpoints come and go: readonly, drain, replace, remove, over real sshd, in all codes, whatever ends them."""
import concurrent.futures
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
from pathlib import Path

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
CODES = ["rs:4+2", "ldpc:4+4", "basic:4+4", "copies:3"]
FSCK = lab.BUILD / "tools/ecfs-fsck"


@pytest.fixture
def archive(place):
    """Nine sshd: room for the eight stripes of some codes, and one more."""
    return place.archive([place.sshd(f"s{number}") for number in range(9)])


def fill(place, archive):
    """Some dozens of files in all codes, as they are to be ever after."""
    top = place.path / "tree"
    for number, code in enumerate(CODES):
        below = top / f"below{number}"
        below.mkdir(parents=True)
        for file in range(7):
            lab.write_pattern(below / f"file{file}", (file * 61_717 + number * 977) % (300 * KIB), file * 10 + number)
        if number == 0:
            lab.write_pattern(below / "large", 7 * MIB + 13, 77)
        archive.put_in_full("--code", code, below, f"/below{number}")
    return top


def endpoint(archive, verb, *arguments, **options):
    return lab.ecfs("endpoint", verb, archive.path, *arguments, **options)


def until_done(archive, verb, *arguments):
    """Again, where an endpoint was thought down for once: what is left to do is what the next one does."""
    done = []
    lab.until(lambda: done.append(endpoint(archive, verb, *arguments, check=False)) or done[-1].returncode == 0, 180,
              f"endpoint {verb}: {arguments}", pause=0.2)
    return done[-1]


def states(archive):
    listed = json.loads(lab.ecfs("endpoint", "list", "--json", archive.path).stdout)
    return {entry["name"]: entry["state"] for entry in listed}


def plan(archive, name):
    return json.loads(endpoint(archive, "drain", name, "--dry-run", "--json").stdout)


def held(archive, name):
    """Stripes that the catalog knows at an endpoint."""
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as connection:
        return connection.execute("SELECT count(*) FROM stripes s JOIN endpoints e ON e.id = s.endpoint WHERE e.name = ?",
                                  [name]).fetchone()[0]


def fetched(place, archive, path):
    (place.path / "fetched").mkdir()
    archive.get(path, place.path / "fetched")
    return place.path / "fetched" / path[1:]


def is_connected(mount, endpoint):
    """Whether a mount holds an endpoint's root, which is what connects it to a directory."""
    held = Path(f"/proc/{mount.process.pid}/fd")
    for name in os.listdir(held):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(held / name) == str(endpoint.root):
                return True
    return False


def assert_whole(place, archive, top):
    """Bit-exact, and nothing for a check to find."""
    for below in sorted(top.iterdir()):
        lab.assert_same_tree(lab.describe_tree(below), place.fetched(archive, f"/{below.name}"))
    done = lab.run(FSCK, archive.path, "-n", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_endpoint_that_is_readonly_gives_stripes_and_takes_none(place):
    archive = place.archive(place.directories([f"s{number}" for number in range(10)]))
    top = fill(place, archive)
    endpoint(archive, "readonly", "s3")
    before = held(archive, "s3")
    assert before > 0 and states(archive)["s3"] == "readonly"
    archive.put_in_full(top / "below2", "/below9")
    assert held(archive, "s3") == before
    assert {entry["name"]: entry["state"] for entry in archive.json("status")["endpoints"]}["s3"] == "readonly"
    for other in ["s0", "s1"]:
        archive[other].kill()
    for below in sorted(top.iterdir()):
        lab.assert_same_tree(lab.describe_tree(below), place.fetched(archive, f"/{below.name}"))
    for other in ["s0", "s1"]:
        archive[other].start()
    endpoint(archive, "active", "s3")
    archive.put_in_full(top / "below2", "/belowA")
    assert states(archive)["s3"] == "active" and held(archive, "s3") > before
    done = endpoint(archive, "readonly", "nobody", check=False)
    assert done.returncode == 1 and "no endpoint nobody" in done.stderr


@pytest.mark.several_objects
@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_all_is_moved_off_an_endpoint_which_then_can_be_removed(place, mounted):
    archive = place.archive(place.directories([f"s{number}" for number in range(9)]))
    top = fill(place, archive)
    mount = place.mount(archive) if mounted else None
    told = plan(archive, "s4")
    assert told["stripes"] == held(archive, "s4") > 0 and told["reachable"] and told["unplaced_objects"] == 0
    assert sum(target["written_bytes"] for target in told["targets"]) == told["bytes"]
    assert states(archive)["s4"] == "active"  # a plan changes nothing
    refused = endpoint(archive, "remove", "s4", check=False)
    assert refused.returncode == 1 and "ecfs endpoint drain" in refused.stderr and states(archive)["s4"] == "active"
    done = until_done(archive, "drain", "s4")
    assert "  objects  " in done.stdout and held(archive, "s4") == 0 and states(archive)["s4"] == "draining"
    if mounted:
        expected = lab.write_pattern(mount.path / "new", 3 * MIB, 5)
        archive.await_stored()
    assert held(archive, "s4") == 0
    assert not mounted or is_connected(mount, archive["s4"])
    until_done(archive, "remove", "s4")
    assert "s4" not in states(archive) and "[endpoint s4]" not in (archive.path / "ecfs.conf").read_text()
    assert not (archive["s4"].root / "ecfs-endpoint").exists()
    assert not list((archive["s4"].root / "journal").iterdir())
    if mounted:
        lab.until(lambda: not is_connected(mount, archive["s4"]), 60, "the mount lets go of it")
    archive["s4"].kill()
    assert_whole(place, archive, top)
    if mounted:
        assert lab.digest(mount.path / "new") == expected
        mount.umount()
        mount.start()
        assert lab.digest(mount.path / "new") == expected
        mount.umount()


@pytest.mark.long
@pytest.mark.several_objects
@pytest.mark.slow
def test_a_dead_endpoint_is_replaced(place, archive):
    top = fill(place, archive)
    archive["s2"].kill()
    told = plan(archive, "s2")
    assert not told["reachable"] and told["rebuilt_bytes"] == told["bytes"] > 0
    assert told["endangered_objects"] == told["objects"]
    new = place.sshd("new")
    done = until_done(archive, "replace", "s2", new.endpoint())
    assert "its marker" in done.stderr  # which nobody could take away
    assert "s2" not in states(archive) and held(archive, "new") > 0
    assert_whole(place, archive, top)
    again = endpoint(archive, "replace", "s2", new.endpoint())  # as after a kill that came too late
    assert "already taken out" in again.stderr
    archive["s2"].start()
    again = endpoint(archive, "add", archive["s2"].endpoint(), check=False)
    assert again.returncode == 1 and "empty its directory" in again.stderr and "s2" not in states(archive)
    for path in archive["s2"].root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    endpoint(archive, "add", archive["s2"].endpoint())
    assert states(archive)["s2"] == "active"
    again = endpoint(archive, "replace", "nobody", new.endpoint(), check=False)
    assert again.returncode == 1 and "no endpoint nobody" in again.stderr
    assert_whole(place, archive, top)


@pytest.mark.parametrize("mounted", [False, True], ids=["without-mount", "mounted"])
@pytest.mark.slow
def test_an_emptied_place_is_replaced_by_naming_it(place, mounted):
    """Six endpoints for six stripes: no other can take over, and nothing but the place itself is there."""
    archive = place.archive(place.directories())
    lab.write_pattern(place.path / "file", 3 * MIB, 5)
    archive.put_in_full(place.path / "file", "/file")
    mount = place.mount(archive) if mounted else None
    root = archive["birch"].root
    refused = endpoint(archive, "replace", "birch", check=False)
    assert refused.returncode == 1 and "not emptied" in refused.stderr and len(states(archive)) == 6
    (root / "ecfs-endpoint").rename(place.path / "marker")
    refused = endpoint(archive, "replace", "birch", check=False)
    assert refused.returncode == 1 and "stripes" in refused.stderr and len(states(archive)) == 6
    kept = place.path / "kept"
    root.rename(kept)
    (place.path / "marker").rename(kept / "ecfs-endpoint")
    root.mkdir()
    action = f"ecfs endpoint replace {archive.path} birch"
    lab.until(lambda: archive.json("status").get("action") == action, 60, "it is missed, and was looked at")
    refused = endpoint(archive, "add", archive["birch"].endpoint(), check=False)
    assert refused.returncode == 1 and "endpoint replace" in refused.stderr
    until_done(archive, "replace", "birch")
    assert states(archive) == dict.fromkeys(lab.NAMES, "active")
    assert len(lab.stripe_files(archive["birch"])) == 1
    assert (root / "ecfs-endpoint").read_bytes() != (kept / "ecfs-endpoint").read_bytes()
    lab.until(lambda: archive.json("status")["verdict"] == "healthy", 60, "all is well")
    uuids = {one["uuid"] for one in archive.json("status")["endpoints"]}
    for _ in range(2):
        assert "was replaced already" in endpoint(archive, "replace", "birch").stderr, "all was done"
        assert states(archive) == dict.fromkeys(lab.NAMES, "active")
    refused = endpoint(archive, "replace", "amber", check=False)
    assert refused.returncode == 1 and "not emptied" in refused.stderr, "another one was not replaced"
    assert {one["uuid"] for one in archive.json("status")["endpoints"]} == uuids, "nothing was begun"
    assert lab.run(FSCK, "-n", archive.path, check=False).returncode == 0
    for name in ["amber", "fjord"]:
        archive[name].kill()
    assert lab.digest(mount.path / "file" if mounted else fetched(place, archive, "/file")) == \
        lab.digest(place.path / "file"), "what is in the new place is good for something"
    for name in ["amber", "fjord"]:
        archive[name].start()
    root.rename(place.path / "new")
    kept.rename(root)
    assert "another endpoint" in endpoint(archive, "test", "birch", check=False).stderr, "the old disk comes back"


@pytest.mark.slow
def test_replacing_in_the_same_place_goes_on_after_a_kill(place):
    archive = place.archive(place.directories())
    for number in range(40):
        lab.write_pattern(place.path / f"file{number}", 100_000, number)
    archive.put_in_full(*[place.path / f"file{number}" for number in range(40)], "/")
    shutil.rmtree(archive["delta"].root)
    archive["delta"].root.mkdir()
    with subprocess.Popen([lab.PROGRAM, "endpoint", "replace", archive.path, "delta"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        lab.until(lambda: len(lab.stripe_files(archive["delta"])) > 3 or process.poll() is not None, 60, "it is at work")
        process.kill()
    assert "endpoint replace" in archive.json("status").get("action", "endpoint replace")
    until_done(archive, "replace", "delta")
    assert states(archive) == dict.fromkeys(lab.NAMES, "active")
    assert lab.run(FSCK, "-n", archive.path, check=False).returncode == 0


def test_what_is_found_again_under_a_mount_is_used_at_once(place):
    """Sections were lost from ecfs.conf: the catalog knows the endpoints, and the mount that runs has no way to them."""
    archive = place.archive(place.directories())
    config = archive.path / "ecfs.conf"
    whole = config.read_text()
    sections = whole.split("\n[endpoint ")
    config.write_text("\n[endpoint ".join(part for part in sections if not part.startswith(("birch]", "fjord]"))))
    mount = place.mount(archive)
    with pytest.raises(OSError):
        lab.write_pattern(mount.path / "early", 100_000, 1)
    for name in ["birch", "fjord"]:
        endpoint(archive, "add", archive[name].endpoint())
    assert states(archive) == dict.fromkeys(lab.NAMES, "active")
    lab.write_pattern(mount.path / "file", 300_000, 2)
    lab.until(lambda: os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"full 6/6"), 60, "all six are used")
    archive.await_stored()
    assert all(lab.stripe_files(archive[name]) for name in ["birch", "fjord"])
    mount.umount()
    assert "next mount" not in mount.text()
    assert lab.run(FSCK, archive.path, "-n", "--deep", check=False).returncode == 0


@pytest.mark.slow
def test_what_has_no_other_place_is_told_and_stays(place):
    archive = place.archive(place.directories())
    lab.write_pattern(place.path / "wide", 300_000, 1)
    lab.write_pattern(place.path / "broad", 200_000, 3)
    lab.write_pattern(place.path / "narrow", 3000, 2)
    archive.put_in_full(place.path / "wide", place.path / "broad", place.path / "narrow", "/")
    told = plan(archive, "amber")
    assert told["unplaced_objects"] == 2 and sorted(told["unplaced_paths"]) == ["/broad", "/wide"]
    done = endpoint(archive, "drain", "amber", check=False)
    assert done.returncode == 1 and "/wide" in done.stderr and "/narrow" not in done.stderr
    assert "2 objects could not be moved" in done.stderr and "add an endpoint" in done.stderr and held(archive, "amber") == 2
    assert lab.run(FSCK, archive.path, "-n", check=False).returncode == 0
    spare = lab.Directory(place.path / "spare", "spare")
    endpoint(archive, "add", spare.endpoint())
    endpoint(archive, "drain", "amber")
    endpoint(archive, "remove", "amber")
    done = endpoint(archive, "remove", "birch", check=False)
    assert done.returncode == 1 and "6 stripes" in done.stderr  # the archive could not be opened without it
    assert lab.run(FSCK, archive.path, "-n", "--deep", check=False).returncode == 0


def test_an_endpoint_stays_that_the_code_of_a_directory_needs(place):
    archive = place.archive(place.directories([f"s{number}" for number in range(7)]))
    mount = place.mount(archive)
    (mount.path / "top" / "wide").mkdir(parents=True)
    os.setxattr(mount.path / "top" / "wide", "user.ecfs.code", b"rs:4+3")
    until_done(archive, "drain", "s4")
    refused = endpoint(archive, "remove", "s4", check=False)
    assert refused.returncode == 1 and "/top/wide" in refused.stderr and "7 stripes" in refused.stderr
    assert "s4" in states(archive)
    os.setxattr(mount.path / "top" / "wide", "user.ecfs.code", b"rs:4+2")
    until_done(archive, "remove", "s4")
    assert "s4" not in states(archive)


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_a_drain_that_is_killed_goes_on(place, mounted):
    """SIGKILL of who moves, once some is moved: what is left to do is in the catalog."""
    archive = place.archive(place.directories([f"s{number}" for number in range(9)]))
    top = fill(place, archive)
    mount = place.mount(archive) if mounted else None
    slow = place.behind_proxy("slow")
    endpoint(archive, "add", slow.endpoint())
    for number in [0, 1, 2, 3, 4, 6, 7, 8]:
        endpoint(archive, "readonly", f"s{number}")
    slow.proxy.tell("throttle", "500000")
    before = held(archive, "s5")
    asking = subprocess.Popen([lab.PROGRAM, "endpoint", "drain", archive.path, "s5"], stdout=subprocess.DEVNULL)
    lab.until(lambda: 0 < held(archive, "slow") < before, 60, "some is moved")
    if mounted:
        mount.kill()
        asking.wait(60)
    else:
        asking.send_signal(signal.SIGKILL)
        asking.wait()
    assert states(archive)["s5"] == "draining" and held(archive, "s5") > 0
    slow.proxy.tell("throttle", "0")
    if mounted:
        mount.start()
    until_done(archive, "drain", "s5")
    until_done(archive, "remove", "s5")
    if mounted:
        mount.umount()
    assert "s5" not in states(archive)
    assert_whole(place, archive, top)


@pytest.mark.several_objects
@pytest.mark.slow
def test_a_drain_goes_on_while_files_are_replaced_and_deleted(place):
    archive = place.archive(place.directories([f"s{number}" for number in range(9)]))
    top = fill(place, archive)
    mount = place.mount(archive)
    over, changed = threading.Event(), []

    def change():
        while not over.is_set():
            number = len(changed)
            name = f"below{number % 4}/file{number * 5 % 11}"
            for tree in [top, mount.path]:
                if number % 3 == 2:
                    (tree / name).unlink(missing_ok=True)
                else:
                    lab.write_pattern(tree / name, number * 40_009 % (200 * KIB), number + 1000)
                    os.utime(tree / name, (number, number))
            changed.append(name)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        changing = pool.submit(change)
        try:
            lab.until(lambda: len(changed) > 3 or changing.done(), 60, "files change")
            until_done(archive, "drain", "s4")
            at_end = len(changed)
            lab.until(lambda: len(changed) > at_end + 3 or changing.done(), 60, "files change still")
        finally:
            over.set()
        changing.result(60)
    archive.await_stored()
    assert held(archive, "s4") == 0
    until_done(archive, "remove", "s4")
    assert_whole(place, archive, top)
    mount.umount()
    assert_whole(place, archive, top)


@pytest.mark.slow
def test_a_removed_endpoint_is_none_for_recover(place):
    archive = place.archive(place.directories([f"e{number}" for number in range(8)]))
    top = place.path / "tree"
    top.mkdir()
    for number in range(6):
        lab.write_pattern(top / f"file{number}", number * 30_011, number)
    archive.put_in_full(top, "/tree")
    marker = (archive["e3"].root / "ecfs-endpoint").read_bytes()
    endpoint(archive, "drain", "e3")
    endpoint(archive, "remove", "e3")
    (archive["e3"].root / "ecfs-endpoint").write_bytes(marker)  # as if it had been away
    shutil.rmtree(archive.path)
    words = [word for one in archive.endpoints for word in ("--endpoint", one.endpoint())]
    done = lab.ecfs("recover", archive.path, "--force", *words)
    assert "e3" in done.stdout + done.stderr and "e3" not in states(archive)
    lab.assert_same_tree(lab.describe_tree(top), place.fetched(archive, "/tree"))
    assert lab.run(FSCK, archive.path, "-n", check=False).returncode == 0


@pytest.mark.parametrize("kind", ["directory", "sshd"])
def test_what_a_test_of_a_place_made_there_goes_again(place, kind):
    endpoint = place.sshd("gorse") if kind == "sshd" else place.directories(["gorse"])[0]
    endpoint.root.mkdir(exist_ok=True)
    lab.ecfs("endpoint", "test", endpoint.endpoint())
    assert not list(endpoint.root.iterdir())
    (endpoint.root / "scratch").mkdir()
    (endpoint.root / "scratch/mine").write_bytes(b"mine")
    lab.ecfs("endpoint", "test", endpoint.endpoint())
    assert [path.name for path in endpoint.root.rglob("*")] == ["scratch", "mine"]


def test_an_init_that_fails_leaves_no_directories(place):
    endpoints = place.directories()
    for endpoint in endpoints[:4]:
        endpoint.root.mkdir()
    used = place.path / "used"
    used.mkdir()
    (used / "ecfs-endpoint").write_text("somebody's")
    (used / "incoming").mkdir()
    words = [word for endpoint in endpoints[:5] for word in ("-e", endpoint.endpoint())]
    failed = lab.ecfs("init", place.path / "archive", "--code", "rs:4+2", *words, "-e", f"fjord=file://{used}", check=False)
    assert failed.returncode == 1 and "fjord" in failed.stderr
    assert [list(endpoint.root.rglob("*")) for endpoint in endpoints[:5]] == [[]] * 5
    assert sorted(path.name for path in used.iterdir()) == ["ecfs-endpoint", "incoming"], "it is somebody else's"
