"""What was read once is read from the local disk, is always right, and is in nobody's way."""
import itertools
import json
import os
import re
import subprocess
import threading
import time

import lab
import pytest
from forge import forge
from test_follow import INTERVAL_S, LAG_S, Follower

MIB = 1 << 20


@pytest.fixture
def cached(place, request):
    """An archive with a cache, sealed where the test says so."""
    marked = request.node.get_closest_marker("as_users")
    return place.archive(place.directories(), "rs:4+2", "--set", "cache_size=200M", *([lab.AS_USERS] if marked else []))


def files_in(archive):
    return [path for path in (archive.path / "cache").rglob("cells/*/*") if path.is_file()]


def cached_bytes(archive):
    return archive.json("cache")["bytes"]


def reads(archive):
    return archive.json("status")["reads"]


def fill(place, archive, mount):
    """A large file and some small ones, stored; returns their digests by name."""
    digests = {}
    for name, size in [("large", 9 * MIB + 4321), *((f"small-{i}", 3000 + 700 * i) for i in range(12))]:
        lab.write_pattern(mount.path / name, size, len(digests))
        digests[name] = lab.digest(mount.path / name)
    lab.ecfs("wait", mount.path)
    return digests


def read_all(mount, digests):
    """From the archive and not from the kernel's memory."""
    lab.drop_caches()
    for name, digest in digests.items():
        assert lab.digest(mount.path / name) == digest, name


def hide(archive, but=0):
    """Also from who has the directories open, and goes on with them for a while. @but: so many are left."""
    for endpoint in archive.endpoints[but:]:
        paths = list(endpoint.root.iterdir())
        (endpoint.root / "hidden").mkdir()
        for path in paths:
            path.rename(path.parent / "hidden" / path.name)
        endpoint.kill()


def show(archive, but=0):
    for endpoint in archive.endpoints[but:]:
        for path in (endpoint.away / "hidden").iterdir():
            path.rename(endpoint.away / path.name)
        (endpoint.away / "hidden").rmdir()
        endpoint.start()


def is_filled(archive, mount, name="large"):
    return lambda: os.getxattr(mount.path / name, "user.ecfs.cached").endswith(b", 100%")


@pytest.mark.as_users
@pytest.mark.slow
def test_a_second_read_needs_no_endpoint(place, cached):
    mount = place.mount(cached)
    digests = fill(place, cached, mount)
    read_all(mount, digests)
    for name in digests:
        lab.until(is_filled(cached, mount, name), 30, f"{name} is in the cache")
    received = reads(cached)["received_bytes"]
    hide(cached)
    read_all(mount, digests)
    assert reads(cached)["received_bytes"] == received
    assert reads(cached)["cached_bytes"] > 9 * MIB
    # verbs beside the mount share it, and so does a mount that comes later
    lab.ecfs("get", cached.path, "/large", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == digests["large"]
    mount.kill()
    show(cached)
    again = place.mount(cached)
    read_all(again, digests)
    assert reads(cached)["received_bytes"] == 0
    assert "came from it" in lab.ecfs("status", cached.path).stdout


@pytest.mark.slow
def test_nothing_is_cached_unless_it_is_wanted(place, archive):
    mount = place.mount(archive)
    read_all(mount, fill(place, archive, mount))
    mount.umount()
    assert not (archive.path / "cache").exists()
    done = lab.ecfs("warm", archive.path, "/", check=False)
    assert done.returncode == 1 and "cache_size" in done.stderr


@pytest.mark.as_users
@pytest.mark.slow
def test_of_what_is_sealed_nothing_is_plain_in_the_cache(place, cached):
    mount = place.mount(cached)
    secret = b"the quick brown fox jumps over the lazy dog\n"
    (mount.path / "file").write_bytes(secret * 100_000)
    lab.ecfs("wait", mount.path)
    lab.drop_caches()
    assert (mount.path / "file").read_bytes() == secret * 100_000
    lab.until(is_filled(cached, mount, "file"), 30, "it is in the cache")
    files = files_in(cached)
    assert sum(path.stat().st_blocks * 512 for path in files) > 4_000_000
    assert not any(secret[:16] in path.read_bytes() for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)


@pytest.mark.slow
def test_other_content_never_meets_old_bytes(place, cached):
    mount = place.mount(cached)
    file, other = mount.path / "file", mount.path / "other"
    for seed in range(3):
        lab.write_pattern(file, 3 * MIB + seed, seed)
        lab.write_pattern(other, 3 * MIB + seed, 100 + seed)
        wanted = lab.digest(file), lab.digest(other)
        lab.ecfs("wait", mount.path)
        read_all(mount, {"file": wanted[0], "other": wanted[1]})
        for name in ["file", "other"]:
            lab.until(is_filled(cached, mount, name), 30, f"{name} is in the cache")
        os.replace(other, file)
        hide(cached)
        read_all(mount, {"file": wanted[1]})
        show(cached)
        assert not other.exists()


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.slow
def test_damage_in_the_cache_is_read_around(place, sealed):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=200M", *([lab.AS_USERS] if sealed else []))
    mount = place.mount(archive)
    digests = fill(place, archive, mount)
    read_all(mount, digests)
    lab.until(is_filled(archive, mount), 30, "it is in the cache")
    files = sorted(files_in(archive), key=lambda path: path.stat().st_size)
    big = [path for path in files if path.stat().st_size > MIB]
    assert len(big) >= 4
    for path in files:
        if path not in big:
            lab.flip(path, path.stat().st_size - 20)
    lab.flip(big[0], 5000)
    os.truncate(big[1], 700_001)
    swapped = big[2].read_bytes(), big[3].read_bytes()
    big[2].write_bytes(swapped[1])
    big[3].write_bytes(swapped[0])
    read_all(mount, digests)
    lab.until(is_filled(archive, mount), 30, "it is in the cache again")
    hide(archive)
    read_all(mount, {"large": digests["large"]})
    show(archive)
    read_all(mount, digests)
    mount.umount()
    state = archive.json("cache")
    assert state["segments"] == len(files_in(archive))
    assert state["bytes"] == sum(path.stat().st_blocks * 512 for path in files_in(archive))


def read_forged(archive, mount):
    """Stores a file, of which an endpoint returns other bytes than it got, and reads it into the cache."""
    for seed in range(20):  # until it is one that is read
        before = {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
        digest = lab.write_pattern(mount.path / "file", 3 * MIB, seed)
        lab.ecfs("wait", mount.path)
        new = [(at, path) for at, endpoint in enumerate(archive.endpoints) for path in lab.stripe_files(endpoint)]
        at, stripe = next((at, path) for at, path in new if path not in before and path.name.split("-")[1].strip("0") == "")
        truth = stripe.read_bytes()
        forge(stripe)
        lab.drop_caches()
        if lab.digest(mount.path / "file") != digest:
            break
        (mount.path / "file").unlink()
    else:
        pytest.fail("nobody asks who lies")
    lab.until(is_filled(archive, mount, "file"), 30, "it is in the cache")
    return digest, at, stripe, truth


@lab.unkeyed
@pytest.mark.parametrize("how", ["repaired", "distrusted"])
@pytest.mark.slow
def test_what_a_liar_made_of_the_cache_goes_with_its_stripe(place, cached, how):
    mount = place.mount(cached)
    digest, at, *_ = read_forged(cached, mount)
    if how == "distrusted":
        lab.ecfs("endpoint", "distrust", cached.path, cached.endpoints[at].name)
    else:
        with open(mount.path / "file", "rb", buffering=0) as beside:  # whose reader is older than the repair
            beside.read(4096)
            done = lab.run(lab.BUILD / "tools/ecfs-fsck", cached.path, "--deep", "-y", check=False)
            assert done.returncode == 1 and "file" in done.stdout, (done.stdout, done.stderr)
            lab.drop_caches()
            beside.read()
    for _ in range(2):
        lab.drop_caches()
        assert lab.digest(mount.path / "file") == digest
        lab.until(is_filled(cached, mount, "file"), 30, "it is in the cache again")


@lab.unkeyed
@pytest.mark.parametrize("how", ["repaired", "distrusted"])
@pytest.mark.slow
def test_what_the_kernel_has_from_a_liar_goes_with_its_stripe(place, cached, how):
    mount = place.mount(cached)
    digest, at, *_ = read_forged(cached, mount)
    assert lab.digest(mount.path / "file") != digest
    if how == "distrusted":
        lab.ecfs("endpoint", "distrust", cached.path, cached.endpoints[at].name)
    else:
        lab.run(lab.BUILD / "tools/ecfs-fsck", cached.path, "--deep", "-y", check=False)
    assert lab.digest(mount.path / "file") == digest


@lab.unkeyed
@pytest.mark.parametrize("how", ["repaired", "distrusted", "repaired while away", "distrusted while away"])
@pytest.mark.slow
def test_what_a_liar_made_of_a_followers_cache_goes_with_its_stripe(place, cached, how):
    cached.configure("archive", journal_interval=f"{INTERVAL_S}s")
    writer = place.mount(cached)
    digest, at, *_ = read_forged(cached, writer)
    kept = lab.write_pattern(writer.path / "kept", 2 * MIB, 77)
    lab.ecfs("wait", writer.path)
    follower = Follower(place, cached.endpoints)
    follower.mount.umount()
    follower.archive.configure("archive", cache_size="200M")
    follower.mount = place.mount(follower.archive, "-o", "follow")
    follower.path = follower.mount.path
    assert lab.digest(follower.path / "file") != digest
    assert lab.digest(follower.path / "kept") == kept
    for name in ("file", "kept"):
        lab.until(is_filled(follower.archive, follower.mount, name), 30, "it is in the cache")
    if how.endswith("away"):
        follower.mount.umount()
    if how.startswith("distrusted"):
        lab.ecfs("endpoint", "distrust", cached.path, cached.endpoints[at].name)
    else:
        lab.run(lab.BUILD / "tools/ecfs-fsck", cached.path, "--deep", "-y", check=False)
    lab.ecfs("wait", writer.path, check=False)
    if how.endswith("away"):
        follower.mount = place.mount(follower.archive, "-o", "follow")
        follower.path = follower.mount.path
    lab.until(lambda: lab.digest(follower.path / "file") == digest, LAG_S + 5, "the follower reads what was stored")
    assert lab.digest(follower.path / "kept") == kept
    if how.startswith("repaired"):  # nothing else goes
        assert is_filled(follower.archive, follower.mount, "kept")()


@lab.unkeyed
@pytest.mark.slow
def test_nobody_is_accused_of_what_only_the_cache_has(place, cached):
    mount = place.mount(cached)
    digest, at, stripe, truth = read_forged(cached, mount)
    stripe.write_bytes(truth)
    done = lab.ecfs("get", cached.path, "/file", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == digest
    assert "endpoint" not in done.stderr, done.stderr
    assert stripe in lab.stripe_files(cached.endpoints[at])
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", cached.path, "--deep", "-n").returncode == 0


@pytest.mark.slow
def test_warm_and_drop(place, cached):
    lab.write_pattern(place.path / "source", 5 * MIB, 1)
    cached.put_in_full(place.path / "source", "/a/large")
    for i in range(30):
        lab.write_pattern(place.path / "small", 2000 + i, i)
        cached.put_in_full(place.path / "small", f"/a/small-{i}")
    done = json.loads(lab.ecfs("warm", cached.path, "/a", "--json").stdout)
    assert (done["done"], done["files"], done["failed"]) == (True, 31, 0)
    assert 5 * MIB < cached_bytes(cached) < 200 * MIB
    mount = place.mount(cached)
    hide(cached)
    read_all(mount, {"a/large": lab.digest(place.path / "source")})
    show(cached)
    assert json.loads(lab.ecfs("warm", mount.path / "a" / "large", "--json").stdout)["wire_bytes"] == 0
    assert json.loads(lab.ecfs("cache", mount.path, "--drop", "--json").stdout)["freed_bytes"] > 5 * MIB
    assert cached_bytes(cached) == 0 and not files_in(cached)
    read_all(mount, {"a/large": lab.digest(place.path / "source")})
    lab.until(lambda: cached_bytes(cached) > 5 * MIB, 30, "it is in the cache")
    mount.umount()
    cached.configure("archive", cache_size="0")
    assert json.loads(lab.ecfs("cache", cached.path, "--drop", "--json").stdout)["freed_bytes"] > 5 * MIB
    assert not files_in(cached)
    cached.configure("archive", cache_size="1G")
    lab.ecfs("destroy", cached.path, "--yes")
    assert not cached.path.exists()


@pytest.mark.slow
def test_warm_says_what_went_again_for_what_came_later(place):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=12M")
    mount = place.mount(archive)
    for i in range(8):
        lab.write_pattern(mount.path / f"file-{i}", 3_000_000, i)
    lab.ecfs("wait", mount.path)
    mount.umount()
    for _ in range(3):
        lab.ecfs("cache", archive.path, "--drop")
        warmed = lab.ecfs("warm", archive.path, "/", "--json", check=False)
        assert warmed.returncode == 1 and json.loads(warmed.stdout)["done"] is False
        missing = int(re.search(r"(\d+) bytes of these files are not in the cache", warmed.stderr)[1])
        reader = place.mount(archive, "-o", "ro")
        told = [os.getxattr(reader.path / f"file-{i}", "user.ecfs.cached").split() for i in range(8)]
        reader.umount()
        assert missing == sum(int(words[2]) - int(words[0]) for words in told) > 10_000_000
    lab.ecfs("cache", archive.path, "--drop")
    lab.ecfs("warm", archive.path, "/file-1", "/file-2")


@pytest.mark.slow
def test_warm_gets_what_took_the_place_of_what_it_found(place, cached):
    """Beside a mount that replaces and removes files all the time."""
    mount = place.mount(cached)
    (mount.path / "d").mkdir()
    stop = threading.Event()

    def replace():
        for i in itertools.count():
            if stop.is_set():
                return
            (mount.path / "new").write_bytes(os.urandom(500))
            (mount.path / "new").rename(mount.path / "d" / f"file-{i % 4}")
            (mount.path / "d" / f"brief-{i}").write_bytes(b"gone soon")
            (mount.path / "d" / f"brief-{i}").unlink()

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        lab.until(lambda: (mount.path / "d" / "file-3").exists(), 10, "there is something")
        done = [lab.ecfs("warm", cached.path, "/d", "--json", check=False) for _ in range(25)]
    finally:
        stop.set()
        writer.join()
    assert not [warmed.stderr for warmed in done if json.loads(warmed.stdout)["failed"] > 0]


@pytest.mark.slow
def test_what_is_pinned_stays(place):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=16M")
    mount = place.mount(archive)
    (mount.path / "kept").mkdir()
    os.setxattr(mount.path / "kept", "user.ecfs.pin", b"yes")
    lab.write_pattern(mount.path / "kept" / "file", 3 * MIB, 1)
    digest = lab.digest(mount.path / "kept" / "file")
    assert os.getxattr(mount.path / "kept" / "file", "user.ecfs.pin") == b"yes"
    for i in range(4):
        lab.write_pattern(mount.path / f"other-{i}", 8 * MIB, 10 + i)
    lab.ecfs("wait", mount.path)
    os.setxattr(mount.path / "kept", "user.ecfs.pin", b"yes")  # hurries
    lab.until(lambda: archive.json("cache")["pinned_bytes"] > 3 * MIB, 60, "it is fetched and pinned")
    for i in range(4):
        lab.drop_caches()
        (mount.path / f"other-{i}").read_bytes()
    lab.until(lambda: 12 * MIB < cached_bytes(archive) <= 16 * MIB, 30, "the cache is full")
    hide(archive)
    read_all(mount, {"kept/file": digest})
    show(archive)
    os.removexattr(mount.path / "kept", "user.ecfs.pin")
    lab.until(lambda: archive.json("cache")["pinned_bytes"] == 0, 60, "it may go again")
    with pytest.raises(OSError):
        os.setxattr(mount.path / "kept", "user.ecfs.pin", b"perhaps")


@pytest.mark.slow
def test_what_is_pinned_and_does_not_fit_is_not_fetched_again_and_again(place):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=16M")
    mount = place.mount(archive)
    for name in ["first", "second"]:
        lab.write_pattern(mount.path / name, 12 * MIB, len(name))
    lab.ecfs("wait", mount.path)
    os.setxattr(mount.path / "first", "user.ecfs.pin", b"yes")
    lab.until(lambda: archive.json("cache")["pinned_bytes"] > 12 * MIB, 60, "it is fetched and pinned")
    os.setxattr(mount.path / "second", "user.ecfs.pin", b"yes")
    lab.until(lambda: "bytes of pinned files do not fit" in mount.text(), 60, "it is told")
    received = reads(archive)["received_bytes"]
    os.setxattr(mount.path / "second", "user.ecfs.pin", b"yes")  # hurries
    lab.write_pattern(mount.path / "first", 1000, 3)
    lab.ecfs("wait", mount.path)
    assert reads(archive)["received_bytes"] == received
    second = is_filled(archive, mount, "second")
    lab.until(lambda: os.setxattr(mount.path / "second", "user.ecfs.pin", b"yes") or second(), 60, "there is room for it")


@pytest.mark.slow
def test_the_past_shares_it(place):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=200M", "--set", "history=1d")
    mount = place.mount(archive)
    digests = fill(place, archive, mount)
    read_all(mount, digests)
    lab.until(is_filled(archive, mount), 30, "it is in the cache")
    lab.ecfs("mark", archive.path, "then")
    (mount.path / "large").unlink()
    past = place.mount(archive, "--at", "then")
    hide(archive)
    read_all(past, {"large": digests["large"]})
    show(archive)


@pytest.mark.slow
def test_a_follower_has_its_own_and_is_not_kept_behind_by_it(place, cached):
    cached.configure("archive", journal_interval=f"{INTERVAL_S}s")
    writer = place.mount(cached)
    digests = [lab.write_pattern(writer.path / "file", 3 * MIB, 0)]
    lab.write_pattern(writer.path / "never read", 3 * MIB, 100)
    lab.ecfs("wait", writer.path)
    follower = Follower(place, cached.endpoints)
    follower.mount.umount()
    follower.archive.configure("archive", cache_size="200M")
    mount = place.mount(follower.archive, "-o", "follow")
    for seed in range(1, 4):
        read_all(mount, {"file": digests[-1]})
        lab.until(is_filled(follower.archive, mount, "file"), 30, "it is in the cache")
        digests.append(lab.write_pattern(writer.path / "file", 3 * MIB + seed, seed))
        lab.ecfs("wait", writer.path)
        end, seen = time.monotonic() + LAG_S, None
        while seen != digests[-1] and time.monotonic() < end:
            lab.drop_caches()
            seen = lab.digest(mount.path / "file")
            assert seen in digests[-2:], "all of the old bytes, or all of the new ones"
        read_all(mount, {"file": digests[-1]})
    lab.until(is_filled(follower.archive, mount, "file"), 30, "it is in the cache")
    hide(cached)
    read_all(mount, {"file": digests[-1]})
    with pytest.raises(OSError):
        (mount.path / "never read").read_bytes()
    show(cached)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_in_nobodys_way(place, archive):
    blocked = place.path / "blocked"
    blocked.write_text("this is no directory")
    archive.configure("archive", cache_size="1G", cache=blocked / "cache")
    mount = place.mount(archive)
    digests = fill(place, archive, mount)
    read_all(mount, digests)
    read_all(mount, digests)
    lab.until(lambda: "nothing is cached" in mount.text(), 30, "it is told")
    assert mount.text().count("nothing is cached") == 1
    assert "blocked" in lab.ecfs("warm", archive.path, "/large", check=False).stderr
    assert "nothing is added to it for now" in lab.ecfs("status", archive.path).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.slow
def test_it_gives_way_to_what_is_written(place):
    archive = place.archive(place.directories(), "rs:4+2", "--set", "cache_size=1G", "--set", "staging_reserve=8M")
    disk = place.path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", disk], check=True)
    try:
        moved = lab.Archive(disk / "archive", archive.endpoints)
        subprocess.run(["cp", "-a", archive.path, moved.path], check=True)
        lab.ecfs("takeover", moved.path, "--yes", check=False)
        mount = place.mount(moved)
        for i in range(4):
            lab.write_pattern(mount.path / f"file-{i}", 20 * MIB, i)
            lab.ecfs("wait", mount.path)
            lab.drop_caches()
            (mount.path / f"file-{i}").read_bytes()
        lab.until(lambda: cached_bytes(moved) > 20 * MIB, 30, "something is in the cache")
        lab.write_pattern(mount.path / "new", 50 * MIB, 9)
        lab.ecfs("wait", mount.path)
        mount.umount()
    finally:
        lab.forget_mounts()
        subprocess.run(["umount", "-l", disk], check=True)
