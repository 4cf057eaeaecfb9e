"""Mounts that follow what another machine writes, from the endpoints alone."""
import collections
import contextlib
import errno
import json
import os
import re
import shutil
import threading
import time

import lab
import pytest
from test_logs import FSCK, packing, write_files
from test_recover import recover

INTERVAL_S = 2  # of the writer's journal
LAG_S = INTERVAL_S + 5


@pytest.fixture
def written(archive):
    archive.configure("archive", journal_interval=f"{INTERVAL_S}s")
    return archive


class Follower:
    """What another machine would have: a directory of its own, and a mount."""

    count = 0

    def __init__(self, place, endpoints):
        Follower.count += 1
        self.archive = lab.Archive(place.path / f"follower-{Follower.count}", endpoints)
        words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
        self.mount = place.mount(self.archive, "--follow", *words)
        self.path = self.mount.path

    def state(self):
        return json.loads(lab.ecfs("status", "--json", self.archive.path).stdout)["follow"]


def tree(path):
    return lab.describe_tree(path)


def await_tree(expected, follower, timeout=LAG_S):
    """The last look is the one that is compared."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(OSError):  # what was listed may have gone
            if tree(follower.path) == expected:
                break
        time.sleep(0.2)
    lab.assert_same_tree(expected, tree(follower.path))


def test_a_follower_that_reaches_nobody_tells_how_old_its_files_are(place, written):
    writer = place.mount(written)
    (writer.path / "file").write_text("kept")
    lab.ecfs("wait", writer.path)
    writer.umount()
    follower = Follower(place, written.endpoints)
    before = follower.state()
    assert before["sequence"] > 0 and before["endpoints_asked"] == before["endpoints"] > 0
    follower.mount.umount()
    for endpoint in written.endpoints:
        endpoint.kill()
    follower.mount.start()
    assert [each.name for each in follower.path.iterdir()] == ["file"]
    state = follower.state()
    assert {key: state[key] for key in ("epoch", "sequence", "changed_ns", "endpoints")} == {
        key: before[key] for key in ("epoch", "sequence", "changed_ns", "endpoints")}
    assert state["endpoints_asked"] == 0 and not state["sure"]
    assert f"(change {before['sequence']}); 0 of 6 endpoints" in lab.ecfs("status", follower.archive.path, check=False).stdout


@pytest.mark.slow
def test_what_another_machine_writes_is_seen(place, written):
    writer = place.mount(written)
    write_files(writer.path / "d", 20)
    lab.write_pattern(writer.path / "big", 3 << 20)
    written.await_stored()
    follower = Follower(place, written.endpoints)
    lab.assert_same_tree(tree(writer.path), tree(follower.path))
    with pytest.raises(OSError):
        (follower.path / "mine").write_text("no")

    (writer.path / "d").rename(writer.path / "e")
    os.link(writer.path / "big", writer.path / "e/link")
    lab.write_pattern(writer.path / "big", 1 << 20, seed=1)
    os.chmod(writer.path / "e", 0o700)
    os.symlink("big", writer.path / "soft")
    os.setxattr(writer.path / "big", "user.colour", b"blue")
    written.await_stored()
    await_tree(tree(writer.path), follower)
    assert os.getxattr(follower.path / "big", "user.colour") == b"blue"
    state = follower.state()
    assert state["endpoints_asked"] == state["endpoints"] == 6 and state["sure"]
    assert time.time() - state["looked_s"] < 10
    assert "follows" in lab.ecfs("status", follower.archive.path, check=False).stdout
    # The directory's own verbs read the same, and it is there the next time.
    follower.archive.get("/big", place.path / "fetched")
    assert lab.digest(place.path / "fetched") == lab.digest(writer.path / "big")
    assert "soft" in lab.ecfs("ls", follower.archive.path).stdout
    follower.mount.umount()
    shutil.rmtree(writer.path / "e")
    written.await_stored()
    follower.mount = place.mount(follower.archive, "-o", "follow")
    follower.path = follower.mount.path
    lab.assert_same_tree(tree(writer.path), tree(follower.path))


@pytest.mark.slow
def test_a_follower_claims_nothing_of_its_own(place, written):
    """What it shows came from the endpoints, and what is wrong is for who writes."""
    written.configure("archive", history="1h")
    writer = place.mount(written)
    lab.write_pattern(writer.path / "big", 3 << 20)
    lab.write_pattern(writer.path / "gone", 3 << 20, seed=1)
    written.await_stored()
    (writer.path / "gone").unlink()
    written.await_stored()
    follower = Follower(place, written.endpoints)
    assert lab.digest(follower.path / "big") == lab.digest(writer.path / "big")
    archive = follower.archive
    lab.until(lambda: follower.state()["reads"]["segments"] > 0, 30, "it has noted what was read")
    facts = archive.json("status")
    assert facts["recovery_point"]["pending"] == 0 and facts["reads"] == follower.state()["reads"]
    assert "bytes" not in facts["past"]
    told = lab.ecfs("metrics", archive.path).stdout
    values = dict(re.findall(r"^(ecfs_\w+)\{[^,}]*\} (\S+)$", told, re.M))
    assert values["ecfs_mounted"] == "1" and values["ecfs_recovery_point_pending"] == "0"
    assert values["ecfs_recovery_point_age_seconds"] == "0" and float(values["ecfs_read_segments_total"]) > 0
    assert "ecfs_history_bytes" not in values
    page = place.path / "page.html"
    lab.ecfs("status", "--html", page, archive.path)
    html = page.read_text()
    assert "mounted, following" in html and "no name would be lost with it" in html and "Reading, since" in html
    assert "mounted, following" in lab.ecfs("status", "--explain", archive.path).stdout
    written.endpoints[0].kill()
    done = lab.ecfs("status", archive.path, check=False).stdout
    assert "ecfs endpoint test" in done and "endpoint replace" not in done


@pytest.mark.slow
def test_a_follower_of_an_archive_that_got_another_key_says_so(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--key", "split")
    archive.configure("archive", journal_interval=f"{INTERVAL_S}s")
    lab.write_pattern(place.path / "source", 1 << 20)
    archive.put_in_full(place.path / "source", "/file")
    writer = place.mount(archive)
    archive.await_stored()
    follower = Follower(place, archive.endpoints)
    writer.umount()
    lab.ecfs("key", "rotate", archive.path)
    writer.start()
    (writer.path / "new").write_text("new")
    archive.await_stored()
    lab.until(lambda: "trouble" in follower.state(), 60, "it cannot follow")
    facts = follower.archive.json("status")
    text = lab.ecfs("status", follower.archive.path, check=False).stdout
    assert "interrupted" not in text and "recode --seal" not in text
    assert (facts["verdict"], facts["check"]) == ("degraded", 1), facts["problems"]
    assert "cannot be followed" in facts["reason"] and "make the directory anew" in facts["advice"]
    assert not any("fsck" in problem.get("action", "") for problem in facts["problems"])


def test_a_directory_that_is_for_writing_does_not_follow(place, written):
    (place.path / "there").mkdir()
    done = lab.ecfs("mount", "--follow", written.path, place.path / "there", check=False)
    assert done.returncode == 1 and "recover --read-only" in done.stderr


def test_what_does_not_go_together_is_said(place, written):
    (place.path / "there").mkdir()
    for words, said in ((["--follow"], "name the archive's endpoints"), (["--follow", "--at", "1h"], "choose one"),
                        (["--endpoint", written.endpoints[0].endpoint()], "is for --follow")):
        done = lab.ecfs("mount", *words, place.path / "none", place.path / "there", check=False)
        assert done.returncode == 2 and said in done.stderr


@pytest.mark.slow
def test_a_directory_that_was_not_finished_is_made_again(place, written):
    """What a mount leaves that is killed while it makes one; and it is none to take the archive over with."""
    half = place.path / f"follower-{Follower.count + 1}"
    half.mkdir()
    (half / "recovering").write_text("")
    (half / "catalog.sqlite").write_bytes(b"half")
    follower = Follower(place, written.endpoints)
    assert follower.archive.path == half
    follower.mount.umount()
    done = lab.ecfs("takeover", half, "--yes", check=False)
    assert done.returncode != 0 and "in another place" in done.stderr


@pytest.mark.slow
def test_two_mounts_do_not_follow_with_one_directory(place, written):
    follower = Follower(place, written.endpoints)
    other = place.path / "other"
    other.mkdir()
    done = lab.ecfs("mount", "--follow", follower.archive.path, other, check=False)
    assert done.returncode == 1 and "mounted already" in done.stderr


class Numbered(threading.Thread):
    """A writer whose history is a number: files N-99 to N are there, and `last` says N or the one before."""

    KEPT = 100

    def __init__(self, path):
        super().__init__()
        self.path, self.over, self.n, self.begun, self.error = path, threading.Event(), 0, {}, None
        (path / "numbers").mkdir(exist_ok=True)

    def run(self):
        try:
            while not self.over.is_set():
                self.step()
        except OSError as error:  # its mount is gone, or may not write any more
            self.error = error

    def step(self):
        number = self.n + 1
        self.begun[number] = time.monotonic()
        (self.path / f"numbers/{number}").write_text(f"{number}")
        (self.path / "next").write_text(f"{number}")
        os.rename(self.path / "next", self.path / "last")
        if number > self.KEPT:
            (self.path / f"numbers/{number - self.KEPT}").unlink()
        self.n = number

    def end(self):
        self.over.set()
        self.join()


def look(path, retries=20):
    """The first and the last number that are there, without a hole, each with its bytes; and what `last` says."""
    for _ in range(retries):  # a listing may take several requests, between which the mount goes on
        before = (path / "last").read_text()
        there = sorted(map(int, os.listdir(path / "numbers")))
        if there and there == list(range(there[0], there[-1] + 1)) and len(there) <= Numbered.KEPT + 1:
            return there[0], there[-1], int(before)
        time.sleep(0.05)
    raise AssertionError(f"holes in {there}")


class Checker(threading.Thread):
    """Looks all the time: what the follower shows is what the writer's was a while ago, and never goes back."""

    def __init__(self, follower, numbers):
        super().__init__()
        self.follower, self.numbers, self.over = follower, numbers, threading.Event()
        self.problems, self.lags, self.at = [], [], 0

    def run(self):
        while not self.over.wait(0.1):
            try:
                self.look()
            except (OSError, ValueError, AssertionError) as error:
                # Replaced while the kernel looked it up, and again while it looked it up once more.
                if not isinstance(error, OSError) or error.errno != errno.ESTALE:
                    self.problems.append(repr(error))

    def look(self):
        began, numbers = time.monotonic(), self.numbers
        first, last, said = look(self.follower.path)
        if not (said - 1 <= last and last - first <= numbers.KEPT):
            self.problems.append(f"{first} to {last} are there, and the last is said to be {said}")
        if last < self.at:
            self.problems.append(f"it went back from {self.at} to {last}")
        self.at = last
        late = numbers.begun.get(last + 1)
        if late is not None and numbers.n > last + 1:
            self.lags.append(began - late)
        for number in (first, last):
            try:
                text = (self.follower.path / f"numbers/{number}").read_text()
            except FileNotFoundError:
                continue  # it went meanwhile
            if text not in ("", f"{number}"):  # it may have been made, and not stored yet
                self.problems.append(f"{number} has {text!r}")

    def end(self):
        self.over.set()
        self.join()
        assert not self.problems, self.problems[:10]
        return max(self.lags, default=0)


@pytest.mark.parametrize("n_followers", [2])
@pytest.mark.slow
def test_followers_show_a_prefix_while_endpoints_come_and_go(place, written, n_followers):
    packing(written, journal_interval=f"{INTERVAL_S}s")
    written.configure("archive", deletion_grace="1m")
    writer = place.mount(written)
    numbers = Numbered(writer.path)
    for _ in range(3):
        numbers.step()
    written.await_stored()
    followers = [Follower(place, written.endpoints) for _ in range(n_followers)]
    checkers = [Checker(follower, numbers) for follower in followers]
    for thread in (numbers, *checkers):
        thread.start()
    for endpoint in written.endpoints[:2]:
        time.sleep(2)
        endpoint.kill()
        time.sleep(3)
        endpoint.start()
    time.sleep(2)
    numbers.end()
    written.await_stored()
    for follower in followers:
        lab.until(lambda follower=follower: look(follower.path)[1] == numbers.n, LAG_S, "the follower has all")
    lags = [checker.end() for checker in checkers]
    assert numbers.error is None and numbers.n > 100
    assert max(lags) < LAG_S + 3  # the machine that runs this is busy


@pytest.mark.nightly
def test_eight_followers_of_servers_that_fail_and_a_writer_that_is_taken_over(place):
    """10,000 operations; each of six servers is killed or hangs in turn."""
    servers = [place.sshd(f"s{number}") for number in range(6)]
    written = place.archive(servers, "rs:4+2")
    packing(written, journal_interval=f"{INTERVAL_S}s")
    written.configure("archive", deletion_grace="1m")
    writer = place.mount(written)
    numbers = Numbered(writer.path)
    numbers.step()
    written.await_stored()
    followers = [Follower(place, servers) for _ in range(8)]
    checkers = [Checker(follower, numbers) for follower in followers]
    for thread in (numbers, *checkers):
        thread.start()
    for turn in range(12):
        time.sleep(4)
        server = servers[turn % 6]
        server.kill() if turn % 2 == 0 else server.suspend()
        time.sleep(4)
        server.start() if turn % 2 == 0 else server.resume()
    lab.until(lambda: 3 * numbers.n > 10000 or numbers.error, 600, "10,000 operations")
    numbers.end()
    written.await_stored()
    lags = [checker.end() for checker in checkers]
    print(f"\n{3 * numbers.n} operations, the furthest behind: {max(lags):.1f} s")
    writer.kill()
    taken, _ = recover(place, servers)
    taken.configure("archive", journal_interval=f"{INTERVAL_S}s")
    writer = place.mount(taken)
    (writer.path / "after").write_text("the other machine")
    taken.await_stored()
    for follower in followers:
        await_tree(tree(writer.path), follower, 60)
    assert max(lags) < LAG_S + 3


@pytest.mark.slow
def test_a_follower_goes_on_when_the_writer_is_taken_over(place, written):
    writer = place.mount(written)
    numbers = Numbered(writer.path)
    for _ in range(5):
        numbers.step()
    written.await_stored()
    follower = Follower(place, written.endpoints)
    for _ in range(5):
        numbers.step()
    writer.kill()  # of these nothing may have been stored
    taken, _ = recover(place, written.endpoints)
    taken.configure("archive", journal_interval=f"{INTERVAL_S}s")
    writer = place.mount(taken)
    (writer.path / "after").write_text("the other machine")
    shutil.rmtree(writer.path / "numbers")
    taken.await_stored()
    with open(follower.path / "last", encoding="ascii") as file:
        assert int(file.read()) >= 5
    await_tree(tree(writer.path), follower)
    assert follower.state()["epoch"] == 2
    (writer.path / "more").write_text("and more")
    taken.await_stored()
    await_tree(tree(writer.path), follower)
    assert "mounted" in follower.mount.text()


@pytest.mark.slow
def test_a_follower_that_slept_too_long_begins_anew(place, written):
    writer = place.mount(written)
    write_files(writer.path / "d", 10)
    written.await_stored()
    follower = Follower(place, written.endpoints)
    os.kill(follower.mount.process.pid, 19)
    write_files(writer.path / "e", 10, seed=1)
    written.await_stored()
    for endpoint in written.endpoints:  # as if snapshots had taken their place long ago
        for path in (endpoint.root / "journal").rglob("*"):
            path.unlink() if path.is_file() else None
    lab.run(FSCK, "-y", written.path, check=False)  # a new snapshot
    write_files(writer.path / "f", 10, seed=2)
    written.await_stored()
    os.kill(follower.mount.process.pid, 18)
    await_tree(tree(writer.path), follower, LAG_S + 10)


@pytest.mark.slow
def test_stripes_that_go_under_a_reader_are_found_elsewhere(place, written):
    written.configure("archive", deletion_grace="0s")
    writer = place.mount(written)
    lab.write_pattern(writer.path / "big", 1 << 20)
    written.await_stored()
    follower = Follower(place, written.endpoints)
    expected = (writer.path / "big").read_bytes()
    with open(follower.path / "big", "rb", buffering=0) as file:
        for code in ("rs:3+3", "copies:3", "rs:4+2", "copies:2"):
            lab.ecfs("recode", "--code", code, written.path, "/big")
            written.await_stored()
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                lab.forget_mounts()
                file.seek(0)
                assert file.read(1 << 20) == expected
    assert not re.search(r"\bread\b.*(EIO|Input/output)", follower.mount.text())


@pytest.mark.slow
def test_a_file_that_is_open_is_read_as_it_was_opened(place, written):
    writer = place.mount(written)
    for name in ("removed", "replaced", "overwritten"):
        (writer.path / name).write_bytes(name.encode() * 30_000)
    written.await_stored()
    follower = Follower(place, written.endpoints)
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(follower.path / name, "rb", buffering=0))
                 for name in ("removed", "replaced", "overwritten")}
        (writer.path / "removed").unlink()
        (writer.path / "new").write_bytes(b"new")
        (writer.path / "new").rename(writer.path / "replaced")
        (writer.path / "overwritten").write_bytes(b"short")
        written.await_stored()
        await_tree(tree(writer.path), follower)
        for name, file in files.items():
            assert file.read(1 << 20) == name.encode() * 30_000 and os.fstat(file.fileno()).st_mode


@pytest.mark.slow
def test_a_reader_gets_one_version_or_another(place, written):
    """Whatever size the kernel believes a file to have: nothing is cut to it, or filled up with zeros."""
    writer = place.mount(written)
    versions = {b"A" * 200_000, b"B" * 70}
    (writer.path / "file").write_bytes(b"B" * 70)
    written.await_stored()
    follower = Follower(place, written.endpoints)
    over, seen = threading.Event(), collections.Counter()

    def read():
        while not over.is_set():
            with open(follower.path / "file", "rb", buffering=0) as file:
                seen[b"".join(iter(lambda: file.read(1 << 16), b""))] += 1

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(12):
        content = sorted(versions)[number % 2]
        before = seen[content]
        (writer.path / "file").write_bytes(content)
        written.await_stored()
        if number < 8:
            time.sleep(0.5)
        else:  # the follower's looks may fall between any others
            lab.until(lambda: seen[content] > before, 60, "the follower shows it")
    over.set()
    reader.join()
    assert set(seen) == versions, {content[:20]: len(content) for content in seen}
