"""recode: stored files change their code without changing anything else, whatever happens meanwhile."""
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time

import lab
import pytest

pytestmark = pytest.mark.long

NAMES = [f"e{number:02}" for number in range(9)]
MIB = 1 << 20


@pytest.fixture
def archive(place):
    made = place.archive(place.directories(NAMES))
    made.configure("archive", deletion_grace="0")
    return made


def recode(archive, path, code, *options, **settings):
    return lab.ecfs("recode", archive.path, path, "--code", code, *options, **settings)


def cost(archive, path, code):
    return archive.json("recode", path, "--dry-run", "--code", code)


AROUND = 8 * 700  # what is around the packets of stripes of a pack: what it shares with others is not foretold


def about(size, archive=None):
    """Stripes name a file by one of its names, which may be longer or shorter than the one that they had. Those of
    files of many tiny objects also name all the others, which is not foretold."""
    tiny = archive is not None and "object_max" in (archive.path / "ecfs.conf").read_text()
    return pytest.approx(size, rel=0.2 if tiny else 1e-4, abs=AROUND)


def tree(place):
    """Files of all kinds of content below a directory, and what they are to be like ever after."""
    top = place.path / "tree"
    (top / "below").mkdir(parents=True)
    for name, size in {"empty": 0, "small": 900, "odd": 300_001, "below/large": 5 * MIB + 77}.items():
        lab.write_pattern(top / name, size, size)
    with open(top / "below/sparse", "wb") as sparse:
        sparse.write(b"x" * 70_000)
        sparse.seek(3 * MIB)
        sparse.write(b"y" * 70_000)
    os.link(top / "odd", top / "below/again")
    os.symlink("odd", top / "link")
    return top


def stripes_of(archive):
    """Stripe files at all endpoints: what would show that one was touched."""
    found = {}
    for endpoint in archive.endpoints:
        for path in lab.stripe_files(endpoint):
            with contextlib.suppress(FileNotFoundError):  # maintenance deletes it right now
                stat = path.stat()
                found[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def named_stripes(archive, paths):
    """How many stripes the catalog knows of these files."""
    return sum(len([stripe for stripe in archive.json("info", path)["stripes"] if stripe["state"] != "missing"])
               for path in paths)


def assert_no_leak(place, archive, paths):
    """Beyond what maintenance removes nothing is stored that no file needs."""
    mount = place.mount(archive)
    lab.until(lambda: len(stripes_of(archive)) == named_stripes(archive, paths), 180, "old stripes are deleted")
    mount.umount()


FILES = ["/tree/small", "/tree/odd", "/tree/below/large", "/tree/below/sparse"]


@pytest.mark.slow
def test_more_parity_leaves_all_stored_stripes_untouched(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    before, expected = stripes_of(archive), lab.describe_tree(top)
    foretold = cost(archive, "/tree", "rs:4+3")
    recode(archive, "/tree", "rs:4+3")
    after = stripes_of(archive)
    assert all(after.get(path) == stat for path, stat in before.items())
    added = {path: stat[1] for path, stat in after.items() if path not in before}
    assert len(added) == len(FILES) - 1 + 4  # the small one shares what it is in, and goes into a pack of 4 copies
    assert sum(added.values()) == about(foretold["written_bytes"]) and foretold["freed_bytes"] == 0
    large = archive.json("info", "/tree/below/large")
    assert large["code"] == "rs:4+3" and large["tolerance"] == 3 and large["state"].startswith("full 7/7")
    assert archive.json("info", "/tree/small")["code"] == "copies:4"
    for gone in itertools.islice(itertools.combinations(archive.endpoints, 3), 0, None, 9):
        for endpoint in gone:
            endpoint.kill()
        assert place.fetched(archive, "/tree") == expected
        for endpoint in gone:
            endpoint.start()
    # And back: nothing is read or written for it but what the small one shares with others.
    foretold = cost(archive, "/tree", "rs:4+1")
    assert (foretold["read_bytes"], foretold["written_bytes"]) == (900, 2 * 900) and foretold["freed_bytes"] > 0
    recode(archive, "/tree", "rs:4+1")
    assert len(set(stripes_of(archive)) - set(after)) == 2
    assert_no_leak(place, archive, FILES)
    assert place.fetched(archive, "/tree") == expected


@pytest.mark.several_objects
@pytest.mark.slow
def test_files_go_through_every_kind_of_code(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    expected = lab.describe_tree(top)
    for code in ["ldpc:4+4", "basic:4+4", "copies:3", "copies:2", "rs:6+3"]:
        before = stripes_of(archive)
        foretold = cost(archive, "/tree", code)
        recode(archive, "/tree", code)
        added = {path: stat[1] for path, stat in stripes_of(archive).items() if path not in before}
        assert sum(added.values()) == about(foretold["written_bytes"], archive)
        assert sum(endpoint["freed_bytes"] for endpoint in foretold["endpoints"]) == foretold["freed_bytes"]
        assert archive.json("info", "/tree/below/large")["code"] == code
        assert place.fetched(archive, "/tree") == expected
        again = cost(archive, "/tree", code)
        assert again["files_recoded"] == again["objects"] == again["written_bytes"] == 0
    assert_no_leak(place, archive, FILES)


def test_only_what_is_named_changes(place, archive):
    archive.put(tree(place), "/")
    recode(archive, "/tree/odd", "copies:2")
    assert archive.json("info", "/tree/below/again")["code"] == "copies:2"
    assert archive.json("info", "/tree/below/large")["code"] == "rs:4+2"


@pytest.mark.several_objects
@pytest.mark.slow
def test_a_degraded_object_becomes_full(place, archive):
    source = place.path / "source"
    expected = lab.write_pattern(source, 2 * MIB, 3)
    archive.put_in_full(source, "/file")
    for stripe in archive.json("info", "/file")["stripes"][:2]:
        next(path for path in lab.stripe_files(archive[stripe["endpoint"]])).unlink()
    recode(archive, "/file", "ldpc:4+4")
    assert archive.json("info", "/file")["state"].startswith("full 8/8")
    target = place.path / "got"
    target.mkdir()
    archive.get("/file", target)
    assert lab.digest(target / "file") == expected


@lab.unkeyed
@pytest.mark.slow
def test_what_cannot_be_stored_in_full_stays_as_it_was(place, archive):
    top = tree(place)
    archive.put(top, "/")
    before = archive.json("info", "/tree/below/large")
    archive["e08"].kill()
    done = recode(archive, "/tree", "ldpc:5+4", check=False)
    assert done.returncode == 1 and "/tree/below/large" in done.stderr and "e08" in done.stderr
    after = archive.json("info", "/tree/below/large")
    assert after["code"] == "rs:4+2" and after["digest"] == before["digest"]
    archive["e08"].start()
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)
    recode(archive, "/tree", "ldpc:5+4")
    assert archive.json("info", "/tree/below/large")["code"] == "ldpc:5+4"
    assert_no_leak(place, archive, FILES)


@pytest.mark.slow
def test_less_parity_drops_nothing_while_what_would_stay_is_not_there(place, archive):
    source = place.path / "source"
    expected = lab.write_pattern(source, 2 * MIB, 3)
    archive.put_in_full(source, "/file")
    data = [archive[stripe["endpoint"]] for stripe in archive.json("info", "/file")["stripes"][:2]]
    next(iter(lab.stripe_files(data[0]))).unlink()  # gone for good, with its endpoint in good health
    data[1].kill()
    done = recode(archive, "/file", "rs:4+1", check=False)
    assert done.returncode == 1 and "/file" in done.stderr and "no stripe is dropped" in done.stderr
    assert archive.json("info", "/file")["code"] == "rs:4+2"
    target = place.path / "got"
    target.mkdir()
    archive.get("/file", target)
    assert lab.digest(target / "file") == expected


@pytest.mark.slow
def test_no_room_on_the_way_is_told_and_harms_nothing(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    before = stripes_of(archive)
    archive.configure("archive", staging_reserve="1000T")
    done = recode(archive, "/tree/odd", "ldpc:4+4", check=False)
    assert done.returncode == 1 and all(word in done.stderr for word in ["/tree/odd", "/staging", "staging_reserve"])
    assert stripes_of(archive) == before
    recode(archive, "/tree/odd", "rs:4+1")  # which takes no room
    archive.configure("archive", staging_reserve="1M")
    recode(archive, "/tree/odd", "ldpc:4+4")
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.parametrize("path, code, reason", [
    ("/tree", "rs:9+9", "18 stripes"), ("/tree", "nonsense", "not a code"), ("/nowhere", "rs:4+3", "nowhere"),
    ("/tree/link", "rs:4+3", "neither a file nor a directory")])
@pytest.mark.slow
def test_what_is_impossible_is_refused_in_a_sentence(place, archive, path, code, reason):
    archive.put(tree(place), "/")
    before = stripes_of(archive)
    for options in [(), ("--dry-run",)]:
        done = recode(archive, path, code, *options, check=False)
        assert done.returncode == 1 and reason in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert stripes_of(archive) == before


def test_usage(archive):
    for arguments in [("/",), ("/", "--code", "rs:4+3", "--json"), ()]:
        assert lab.ecfs("recode", archive.path, *arguments, check=False).returncode == 2


@pytest.mark.several_objects
@pytest.mark.slow
def test_killed_at_any_moment_and_repeated(place, archive):
    """Every step is killed at by tests/crash; here the program as a whole, with all that it has in flight."""
    top = tree(place)
    for number in range(12):
        lab.write_pattern(top / f"file-{number}", 200_000 + number, number)
    archive.put(top, "/")
    expected = lab.describe_tree(top)
    files = FILES + [f"/tree/file-{number}" for number in range(12)]
    choose = random.Random(11)
    for attempt in range(12):
        code = ["ldpc:4+4", "rs:4+2", "rs:4+4", "copies:2"][attempt % 4]
        running = subprocess.Popen([lab.BUILD / "tools/ecfs", "recode", archive.path, "/tree", "--code", code])
        try:
            running.wait(choose.uniform(0, 0.3))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
        if attempt % 4 == 3:
            assert place.fetched(archive, "/tree") == expected
    recode(archive, "/tree", "ldpc:4+4")
    assert {archive.json("info", path)["code"] for path in files if path != "/tree/small"} == {"ldpc:4+4"}
    assert place.fetched(archive, "/tree") == expected
    assert_no_leak(place, archive, files)


@contextlib.contextmanager
def being_written(path):
    """By a process that hands its descriptor to no other: closing that would flush the file."""
    program = "import sys; file = open(sys.argv[1], 'wb', 0); file.write(b'x'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline()
        yield


@pytest.mark.slow
def test_beside_a_mount(place, archive):
    archive.configure("archive", pack_after="1s")  # else a log stays for a while of which files have nothing any more
    mount = place.mount(archive)
    top = tree(place)
    archive.put(top, "/")
    expected = lab.describe_tree(top)
    with open(mount.path / "tree/below/large", "rb") as reading, being_written(mount.path / "tree/new"):
        start = reading.read(MIB)
        done = recode(archive, "/tree", "ldpc:4+4", check=False)
        assert done.returncode == 1 and "/tree/new" in done.stderr and "left alone" in done.stderr
        rest = reading.read()
    assert start + rest == (top / "below/large").read_bytes()
    (mount.path / "tree/new").unlink()
    assert os.getxattr(mount.path / "tree/below/large", "user.ecfs.code") == b"ldpc:4+4"
    assert archive.json("info", "/tree/below/large")["code"] == "ldpc:4+4"
    recode(archive, "/tree", "rs:4+3")
    lab.forget_mounts()
    assert lab.describe_tree(mount.path / "tree") == expected
    lab.until(lambda: len(stripes_of(archive)) == named_stripes(archive, FILES), 180, "old stripes are deleted")
    # What is written into a file from now on has its new code.
    with open(mount.path / "tree/odd", "wb") as file:
        file.write(b"z" * 100_000)
    archive.await_stored()
    assert archive.json("info", "/tree/odd")["code"] == "rs:4+3"
    mount.umount()


def code_of(path):
    return os.getxattr(path, "user.ecfs.code")


def sends_nothing(proxy):
    """For a while in which a line that is throttled would always be seen to send something."""
    before = proxy.status()["up"]
    time.sleep(2)
    return proxy.status()["up"] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_who_asks_a_mount_and_goes_ends_it_there_too(place, number):
    """One endpoint is so slow that all files take half a minute, and the first is waited for."""
    far = place.behind_proxy(NAMES[8])
    proxy = far.proxy
    archive = place.archive([*place.directories(NAMES[:8]), far])
    archive.configure("archive", deletion_grace="0")
    archive.configure(f"endpoint {NAMES[8]}", stall_timeout="10m", connections="1")
    mount = place.mount(archive)
    paths = [mount.path / f"file-{i:02}" for i in range(60)]
    expected = {path: lab.write_pattern(path, 1_000_000, i) for i, path in enumerate(paths)}
    archive.await_stored()
    proxy.tell("throttle", 500_000)
    running = []

    def first_is_done():
        if not running or running[-1].poll() is not None:  # again, where the slow one was thought down
            running.append(subprocess.Popen([lab.BUILD / "tools/ecfs", "recode", archive.path, "/", "--code", "ldpc:5+4"]))
        return code_of(paths[0]) == b"ldpc:5+4"
    lab.until(first_is_done, 180, "the first has its code")
    running[-1].send_signal(number)
    running[-1].wait(60)
    lab.until(lambda: sends_nothing(proxy), 180, "the mount stops")
    assert code_of(paths[-1]) == b"rs:4+2", "it went on when nobody asked any more"
    proxy.tell("throttle", 0)
    lab.until(lambda: recode(archive, "/", "rs:4+3", check=False).returncode == 0, 180, "what was under way is over")
    lab.forget_mounts()
    assert {path: lab.digest(path) for path in paths} == expected
    assert {code_of(path) for path in paths} == {b"rs:4+3"}
    lab.until(lambda: len(stripes_of(archive)) == 7 * len(paths), 180, "old stripes are deleted")
    mount.umount()


@pytest.mark.several_objects
@pytest.mark.slow
def test_files_replaced_meanwhile_keep_what_replaced_them(place, archive):
    mount = place.mount(archive)
    for number in range(40):
        lab.write_pattern(mount.path / f"file-{number:02}", 400_000, number)
    archive.await_stored()
    running = subprocess.Popen([lab.BUILD / "tools/ecfs", "recode", archive.path, "/", "--code", "ldpc:4+4"],
                               stderr=subprocess.PIPE, text=True)
    expected = {}
    for number in reversed(range(40)):
        name = f"file-{number:02}"
        expected[name] = lab.write_pattern(mount.path / name, 300_000, 100 + number)
    told = running.communicate(timeout=120)[1]
    assert running.returncode == (1 if told else 0)
    assert all("left alone" in line or "files were not recoded" in line for line in told.splitlines()), told
    archive.await_stored()
    recode(archive, "/", "ldpc:4+4")
    lab.forget_mounts()
    assert {name: lab.digest(mount.path / name) for name in expected} == expected
    assert {archive.json("info", f"/{name}")["code"] for name in expected} == {"ldpc:4+4"}
    lab.until(lambda: len(stripes_of(archive)) == named_stripes(archive, [f"/{name}" for name in expected]), 180,
              "old stripes are deleted")
    mount.umount()
