"""put, get and the verbs that tell facts, over six directories: bytes survive what rs:4+2 promises, and no more is claimed."""
import itertools
import json
import shutil

import lab
import pytest

MIB = 1 << 20
SIZES = [0, 1, 16 << 10, (16 << 10) + 1, 2 * MIB - 1, 2 * MIB, 5 * MIB + 77]
VERBS = ["init", "mount", "umount", "put", "get", "ls", "info", "status", "wait", "recode", "endpoint"]


@pytest.fixture
def source(place):
    """A file that spans several segments."""
    path = place.path / "source"
    lab.write_pattern(path, 5 * MIB + 77, 1)
    return path


def fetched(archive, place, path):
    """The digest of what `get` makes of a path."""
    target = place.path / "fetched"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    archive.get(path, target)
    return lab.digest(target / path.rpartition("/")[2])


def refused(archive, place, path):
    """What `get` says when it fails, having left nothing that looks like the file."""
    target = place.path / "refused"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    done = archive.get(path, target, check=False)
    assert done.returncode == 1, done
    assert not (target / path.rpartition("/")[2]).exists()
    return done.stderr


def listed(archive, *path):
    """Names that `ls --json` tells, with their sizes."""
    return {entry["name"]: entry.get("size") for entry in archive.json("ls", *path)}


@pytest.mark.parametrize("code", ["rs:4+2", "rs:2+1", "copies:3"])
@pytest.mark.slow
def test_files_of_all_sizes_come_back(place, code):
    archive = place.archive(place.directories(), code)
    for size in SIZES:
        source = place.path / f"size-{size}"
        expected = lab.write_pattern(source, size, size)
        archive.put(source, f"/size-{size}")
        assert fetched(archive, place, f"/size-{size}") == expected
    assert listed(archive, "/") == {f"size-{size}": size for size in SIZES}


@pytest.mark.several_objects
@pytest.mark.slow
def test_any_two_of_six_endpoints_may_vanish(place, archive, source):
    small = place.path / "small"
    lab.write_pattern(small, 1000, 2)
    archive.put_in_full(source, "/large")
    archive.put_in_full(small, "/small")
    for pair in itertools.combinations(archive.endpoints, 2):
        for endpoint in pair:
            endpoint.kill()
        assert fetched(archive, place, "/large") == lab.digest(source)
        assert fetched(archive, place, "/small") == lab.digest(small)
        for endpoint in pair:
            endpoint.start()


def test_three_gone_is_one_clear_failure(place, archive, source):
    archive.put_in_full(source, "/file")
    for name in ["amber", "cedar", "fjord"]:
        archive[name].kill()
    message = refused(archive, place, "/file")
    assert all(name in message for name in ["file", "amber", "cedar", "fjord"])
    for name in ["amber", "cedar", "fjord"]:
        archive[name].start()
    assert fetched(archive, place, "/file") == lab.digest(source)


@pytest.mark.parametrize("n_bad", [1, 2])
@pytest.mark.slow
def test_flipped_bytes_anywhere_in_stripes_do_not_reach_the_reader(place, archive, source, n_bad):
    archive.put_in_full(source, "/file")
    bad = [lab.stripe_files(endpoint)[0] for endpoint in archive.endpoints[:n_bad]]
    size = bad[0].stat().st_size
    places = [0, 5, 30, 100, 600, 4096, 32768, 33000, size // 3, size // 2, size - 2000, size - 300, size - 90,
              size - 40, size - 8, size - 1]
    for offset in places:
        for path in bad:
            lab.flip(path, offset)
        assert fetched(archive, place, "/file") == lab.digest(source), f"a byte at {offset} of {size} is flipped"
        for path in bad:
            lab.flip(path, offset)


@pytest.mark.several_objects
@pytest.mark.parametrize("damage", ["truncated", "emptied", "lengthened", "garbage", "deleted"])
@pytest.mark.slow
def test_two_damaged_stripe_files_do_no_harm(place, archive, source, damage):
    archive.put_in_full(source, "/file")
    for endpoint in archive.endpoints[1:3]:
        path = lab.stripe_files(endpoint)[0]
        stored = path.read_bytes()
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes({"truncated": stored[:len(stored) // 2], "emptied": b"", "lengthened": stored + b"x" * 999,
                              "garbage": b"\xa5" * len(stored)}[damage])
    assert fetched(archive, place, "/file") == lab.digest(source)


@pytest.mark.several_objects
def test_three_damaged_stripes_give_no_bytes_rather_than_wrong_ones(place, archive, source):
    archive.put_in_full(source, "/file")
    for path in lab.stripes_of_one_object(archive.endpoints[:3]):
        lab.flip(path, path.stat().st_size // 2)
    message = refused(archive, place, "/file")
    assert all(endpoint.name in message for endpoint in archive.endpoints[:3])


def test_put_with_one_endpoint_gone_succeeds_and_says_how_safe_it_is(place, archive, source):
    archive["birch"].kill()
    archive.put(source, "/file")
    assert fetched(archive, place, "/file") == lab.digest(source)
    info = archive.json("info", "/file")
    info = info[0] if isinstance(info, list) else info
    assert info["guarantee"] == 1
    archive["cedar"].kill()
    assert fetched(archive, place, "/file") == lab.digest(source)


@pytest.mark.several_objects
@pytest.mark.slow
def test_put_below_the_write_quorum_fails_and_leaves_nothing(place, archive, source):
    archive["birch"].kill()
    archive["cedar"].kill()
    done = archive.put(source, "/file", check=False)
    assert done.returncode == 1
    assert all(word in done.stderr for word in ["file", "birch", "cedar"])
    assert listed(archive, "/") == {}
    archive["birch"].start()
    archive["cedar"].start()
    archive.put(source, "/file")
    assert fetched(archive, place, "/file") == lab.digest(source)


@pytest.mark.several_objects
@pytest.mark.slow
def test_put_replaces_a_file_whole(place, archive, source):
    other = place.path / "other"
    lab.write_pattern(other, 3 * MIB, 9)
    archive.put(source, "/file")
    archive.put(other, "/file")
    assert fetched(archive, place, "/file") == lab.digest(other)
    for endpoint in archive.endpoints[:3]:
        endpoint.kill()
    assert archive.put(source, "/file", check=False).returncode == 1
    for endpoint in archive.endpoints[:3]:
        endpoint.start()
    assert fetched(archive, place, "/file") == lab.digest(other)


def test_several_files_go_into_a_directory_and_come_back_together(place, archive, source):
    other = place.path / "other"
    lab.write_pattern(other, 70_000, 3)
    archive.put(source, other, "/")
    target = place.path / "target"
    target.mkdir()
    archive.get("/source", "/other", target)
    assert lab.digest(target / "source") == lab.digest(source)
    assert lab.digest(target / "other") == lab.digest(other)


def test_put_takes_a_code_of_its_own(place, archive, source):
    archive.put_in_full("--code", "copies:3", source, "/file")
    info = archive.json("info", "/file")
    info = info[0] if isinstance(info, list) else info
    assert info["code"] == "copies:3" and info["tolerance"] == 2
    assert len(info["stripes"]) == 3


@lab.unkeyed
def test_info_tells_code_tolerance_guarantee_digest_and_stripes(archive, source):
    archive.put_in_full(source, "/file")
    info = archive.json("info", "/file")
    info = info[0] if isinstance(info, list) else info
    assert info["code"] == "rs:4+2" and info["tolerance"] == 2 and info["guarantee"] == 2
    assert info["digest"]
    assert {stripe["endpoint"] for stripe in info["stripes"]} == set(lab.NAMES)
    text = lab.ecfs("info", archive.path, "/file").stdout
    assert "rs:4+2" in text and all(name in text for name in lab.NAMES)


def test_status_tells_every_endpoint_and_which_is_missing(archive):
    states = {endpoint["name"]: endpoint for endpoint in archive.json("status")["endpoints"]}
    assert states.keys() == set(lab.NAMES)
    archive["delta"].kill()
    text = lab.ecfs("status", archive.path).stdout
    assert "delta" in text and all(name in text for name in lab.NAMES)


@pytest.mark.slow
def test_endpoint_list_add_and_test(place, archive, source):
    names = [entry["name"] for entry in json.loads(lab.ecfs("endpoint", "list", archive.path, "--json").stdout)]
    assert names == lab.NAMES
    extra = lab.Directory(place.path / "more", "grove")
    lab.ecfs("endpoint", "add", archive.path, extra.endpoint())
    names = [entry["name"] for entry in json.loads(lab.ecfs("endpoint", "list", archive.path, "--json").stdout)]
    assert names == [*lab.NAMES, "grove"]
    tested = json.loads(lab.ecfs("endpoint", "test", archive.path, "--json").stdout)
    assert all("logs" in facts["can"] and facts["append_ms"] > 0 for facts in tested), tested
    extra.kill()
    done = lab.ecfs("endpoint", "test", archive.path, check=False)
    assert done.returncode == 1 and "grove" in done.stdout + done.stderr
    archive.put(source, "/file")
    assert fetched(archive, place, "/file") == lab.digest(source)


def test_wait_returns_when_everything_is_stored(archive, source):
    archive.put_in_full(source, "/file")
    assert lab.ecfs("wait", "-u", archive.path, timeout=120).returncode == 0


def test_wait_fails_while_a_file_lacks_stripes_that_nothing_fills_up(place, archive, source):
    archive["birch"].kill()
    archive.put(source, "/file")
    archive["birch"].start()
    assert lab.ecfs("wait", "-u", "--quorum", archive.path, timeout=120).returncode == 0
    done = lab.ecfs("wait", archive.path, timeout=120, check=False)
    assert done.returncode == 1 and "stripes" in done.stderr
    archive.configure("archive", repair="off")
    place.mount(archive)
    for paths in [[], ["/file"]]:
        done = lab.ecfs("wait", archive.path, *paths, timeout=120, check=False)
        assert done.returncode == 1 and "stripes" in done.stderr
    assert lab.ecfs("wait", "--quorum", archive.path, "/file", timeout=120).returncode == 0


def test_stripes_take_little_more_than_their_share(archive, source):
    archive.put_in_full(source, "/file")
    size = source.stat().st_size
    for endpoint in archive.endpoints:
        paths = lab.stripe_files(endpoint)
        assert len(paths) == 1
        assert size / 4 <= paths[0].stat().st_size <= size / 4 * 1.001 + 3 * 4096


def test_exit_codes_tell_failure_from_wrong_usage(place, archive):
    assert lab.ecfs(check=False).returncode == 2
    assert lab.ecfs("fly", archive.path, check=False).returncode == 2
    assert lab.ecfs("get", archive.path, check=False).returncode == 2
    assert lab.ecfs("ls", "--no-such-option", archive.path, check=False).returncode == 2
    assert lab.ecfs("init", place.path / "new", "--code", "rs:99+2", "-e", f"file://{place.path}/e", check=False).returncode == 2
    assert lab.ecfs("ls", place.path / "nothing", check=False).returncode == 1
    done = lab.ecfs("get", archive.path, "/absent", place.path, check=False)
    assert done.returncode == 1 and "absent" in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb):
    done = lab.ecfs(verb, "--help")
    assert "Usage" in done.stdout or "usage" in done.stdout
    assert done.stderr == ""


def test_init_refuses_an_archive_that_exists_and_endpoints_that_are_taken(place, archive):
    done = archive.init(check=False)
    assert done.returncode == 1 and str(archive.path) in done.stderr
    other = lab.Archive(place.path / "other", archive.endpoints)
    done = other.init(check=False)
    assert done.returncode == 1 and "amber" in done.stderr
    assert not (other.path / "ecfs.conf").exists()
    archive.json("status")


def test_an_endpoint_and_the_archive_directory_are_apart(place, archive):
    """The key would lie at an account."""
    (place.path / "link").symlink_to(place.path)
    for root in (place.path / "new", place.path / "new/below", place.path, place.path / "link/new"):
        done = lab.ecfs("init", place.path / "new", "-e", f"a=file://{root}", "--code", "copies:1", check=False)
        assert done.returncode == 2 and "not apart" in done.stderr, root
        assert not (place.path / "new").exists() and not (place.path / ".ecfs").exists()
    done = lab.ecfs("endpoint", "add", archive.path, f"x=file://{archive.path}/x", check=False)
    assert done.returncode == 1 and "not apart" in done.stderr
    mount = place.mount(archive)
    done = lab.ecfs("endpoint", "replace", archive.path, archive.endpoints[0].name, f"x=file://{archive.path}", check=False)
    assert done.returncode == 1 and "not apart" in done.stderr
    mount.umount()
    ends = [word for endpoint in archive.endpoints for word in ("-e", endpoint.endpoint())]
    done = lab.ecfs("recover", *ends, archive.endpoints[0].root / "again", check=False)
    assert done.returncode == 2 and "not apart" in done.stderr


def test_init_refuses_a_code_that_needs_more_endpoints(place):
    few = lab.Archive(place.path / "few", place.directories(["amber", "birch"]))
    done = few.init(check=False)
    assert done.returncode in (1, 2) and "rs:4+2" in done.stderr and "6" in done.stderr
