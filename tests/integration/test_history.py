"""The archive as it was, and what was deleted or overwritten brought back: whatever was moved, repaired or lost since."""
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from datetime import datetime

import lab
import pytest
from test_logs import FSCK, LOG, contents, kinds, packing, uuids, write_files
from test_recover import recover, tree_of


def now():
    """A moment that lies between what was done and what comes."""
    time.sleep(0.02)
    moment = datetime.now().isoformat(sep=" ", timespec="microseconds")
    time.sleep(0.02)
    return moment


@pytest.fixture
def kept(place, archive):
    """An archive with a history, in which all that is not kept by that goes at once."""
    packing(archive, history="1d")
    archive.configure("archive", deletion_grace="0s")
    return archive


def tree_at(place, archive, moment):
    return tree_of(place, archive, "-o", f"at={moment}")


def undelete(archive, *arguments, check=True):
    return lab.ecfs("undelete", archive.path, *arguments, check=check)


class Writer:
    """Random changes of a tree, as they come."""

    def __init__(self, root, seed):
        self.root, self.random, self.n_made = root, random.Random(seed), 0

    def paths(self, wanted):
        return sorted(path for path in self.root.rglob("*") if wanted(path) and not path.is_symlink())

    def some(self, wanted):
        found = self.paths(wanted)
        return self.random.choice(found) if found else None

    def fresh(self):
        self.n_made += 1
        directories = [self.root, *self.paths(lambda path: path.is_dir())]
        return self.random.choice(directories) / f"name-{self.n_made}"

    def size(self):
        return self.random.choice([0, self.random.randrange(1, 9_000), self.random.randrange(1, 9_000), 70_000])

    def step(self):
        file, directory = self.some(os.path.isfile), self.some(os.path.isdir)
        what = self.random.randrange(13)
        if what < 4 or file is None:
            self.fresh().write_bytes(self.random.randbytes(self.size()))
        elif what == 4:
            file.write_bytes(self.random.randbytes(self.size()))
        elif what == 5:
            file.unlink()
        elif what == 6:
            file.rename(self.fresh())
        elif what == 7:
            with open(file, "r+b") as open_file:
                open_file.truncate(self.random.randrange(0, file.stat().st_size + 1))
        elif what == 8:
            os.link(file, self.fresh())
        elif what == 9:
            self.fresh().mkdir()
        elif what == 10:
            self.fresh().symlink_to(file.name)
        elif what == 11:
            os.setxattr(file, "user.note", self.random.randbytes(20))
            file.chmod(self.random.choice([0o600, 0o644, 0o755]))
        elif directory is not None and self.random.randrange(3) == 0:
            shutil.rmtree(directory)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, *([] if not os.environ.get("ECFS_SEED") else [int(os.environ["ECFS_SEED"])])])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.slow
def test_each_moment_is_shown_as_it_was(place, kept, seed, marked):
    """By its time, as history keeps it, or by its name, where nothing else does."""
    moments = []
    if marked:
        kept.configure("archive", history="0")
    mount = place.mount(kept)
    writer = Writer(mount.path, seed)
    for round_number in range(10):
        for _ in range(25):
            writer.step()
        kept.await_stored()  # what is rewritten again and again is stored a moment after the close
        moments.append((f"round-{round_number}" if marked else now(), lab.describe_tree(mount.path)))
        if marked:
            lab.ecfs("mark", kept.path, moments[-1][0])
        if round_number == 3:
            time.sleep(2.5)  # it is packed, and the logs go
        elif round_number == 5:
            lab.ecfs("recode", "--code", "rs:3+3", kept.path, "/")
        elif round_number == 6:
            for path in lab.stripe_files(kept.endpoints[0]):
                if "stripes" in path.parts:
                    path.unlink()
            lab.run(FSCK, "-y", kept.path, check=False)
        elif round_number == 7:
            mount.kill()
            mount.start()
    kept.await_stored()
    if marked:
        for name, _ in moments[1::2]:
            lab.ecfs("mark", "--remove", kept.path, name)
        del moments[1::2]
        time.sleep(2.5)  # what only these needed goes
    for moment, tree in moments:
        lab.assert_same_tree(tree, tree_at(place, kept, moment))
    mount.kill()
    if marked:
        return
    shutil.rmtree(kept.path)
    for endpoint in kept.endpoints[1:3]:  # what the first one lost of history was rebuilt
        endpoint.kill()
    left = [kept.endpoints[0], *kept.endpoints[3:]]
    for moment, tree in moments[::4]:
        past, _ = recover(place, left, "--read-only", "--at", moment)
        lab.assert_same_tree(tree, tree_of(place, past, "-o", "ro"))


@pytest.mark.slow
def test_verbs_that_read_show_the_past(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 5)
    before = lab.describe_tree(mount.path)
    kept.await_stored()
    moment = now()
    first = (mount.path / "d/file 0000").read_bytes()
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    listed = lab.ecfs("ls", "-R", "--at", moment, kept.path).stdout.splitlines()
    assert set(listed) == {"/d", *("/" + path for path in before if path != "d")}
    lab.ecfs("get", "--at", moment, kept.path, "/d/file 0000", place.path / "one")
    assert (place.path / "one").read_bytes() == first
    lab.ecfs("get", "--at", moment, kept.path, "/d", place.path / "got")
    assert contents(lab.describe_tree(place.path / "got")) == contents(before)
    assert f"({len(first)} bytes)" in lab.ecfs("info", "--at", moment, kept.path, "/d/file 0000").stdout
    assert not list(kept.path.glob("past-*"))
    assert lab.ecfs("cat", "--at", "0s", kept.path, "/d/file 0000", check=False).returncode == 1


@pytest.mark.slow
def test_a_past_that_a_killed_process_left_goes(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 5)
    kept.await_stored()
    moment = now()
    past = place.mount(kept, "-o", f"at={moment}")
    assert len(list(kept.path.glob("past-*"))) == 1
    past.kill()
    lab.ecfs("ls", "--at", moment, kept.path)
    assert not list(kept.path.glob("past-*"))


@pytest.mark.slow
def test_moments_of_which_nothing_is_kept(place, kept):
    mount = place.mount(kept)
    (mount.path / "file").write_bytes(b"content")
    kept.await_stored()
    early = lab.ecfs("ls", "--at", "2d", kept.path, check=False)
    assert early.returncode == 1 and "what is known of it begins at" in early.stderr
    for text in ("yesterday", "2026-13-01", "", "2200-01-01"):
        words = [word for endpoint in kept.endpoints for word in ("--endpoint", endpoint.endpoint())]
        assert lab.ecfs("recover", place.path / "no", "--at", text, *words, check=False).returncode == 2, text
        assert lab.ecfs("ls", "--at", text, kept.path, check=False).returncode == 2, text


@pytest.mark.parametrize("n_deleted, n_over", [(300, 60), pytest.param(10_000, 1_000, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_what_was_deleted_and_overwritten_comes_back_twice(place, kept, n_deleted, n_over):
    mount = place.mount(kept)
    write_files(mount.path / "d", n_deleted)
    write_files(mount.path / "over", n_over, seed=1)
    lab.write_pattern(mount.path / "d/large", 3_000_000)
    (mount.path / "d/e/f").mkdir(parents=True)
    (mount.path / "d/e/f/empty").touch()
    os.link(mount.path / "d/file 0000", mount.path / "d/e/hard link")
    (mount.path / "d/e/link").symlink_to("../large")
    os.setxattr(mount.path / "d/large", "user.note", b"kept")
    (mount.path / "d/e").chmod(0o711)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    n_files = sum(not os.path.isdir(mount.path / path) for path in before)
    for round_number in range(2):
        shutil.rmtree(mount.path / "d")
        write_files(mount.path / "over", n_over, seed=2 + round_number)
        (mount.path / f"new {round_number}").write_bytes(b"new")
        kept.await_stored()
        time.sleep(2.5 * (1 - round_number))  # once what is there is packed, and the logs are gone
        told = undelete(kept, "/", "--at", moment)
        assert f"{n_files} files brought back" in told.stdout
        expected = before | {f"new {number}": lab.describe(mount.path / f"new {number}") for number in range(round_number + 1)}
        lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    assert undelete(kept, "/", "--at", moment).stdout == f"0 files brought back, {n_files} were as they had been\n"
    kept.await_stored()
    mount.umount()
    assert lab.run(FSCK, "--deep", kept.path, check=False).returncode == 0
    for endpoint in kept.endpoints[2:4]:
        endpoint.kill()
    shutil.rmtree(kept.path)
    recovered, _ = recover(place, [*kept.endpoints[:2], *kept.endpoints[4:]])
    lab.assert_same_tree(expected, tree_of(place, recovered))


@pytest.mark.slow
def test_undelete_without_a_mount_and_one_file(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 10)
    before, moment = lab.describe_tree(mount.path), now()
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    mount.umount()
    undelete(kept, "/d/file 0003", "--at", moment)
    assert contents(tree_of(place, kept)).keys() == {"d/file 0003"}
    undelete(kept, "/d/file 0004")
    assert contents(tree_of(place, kept)).keys() == {"d/file 0003", "d/file 0004"}
    assert undelete(kept, "/never", "--at", moment, check=False).returncode == 1
    undelete(kept, "/d", "--at", moment)
    lab.assert_same_tree(before, tree_of(place, kept))


def versions(archive, path):
    return json.loads(lab.ecfs("log", archive.path, path, "--json", timeout=60).stdout)


@pytest.mark.slow
def test_the_log_of_a_file_tells_moments_that_show_it(place, kept):
    mount = place.mount(kept)
    file = mount.path / "d/file"
    file.parent.mkdir()
    written = []
    for number in range(4):
        written.append(f"version {number}".encode() * (number + 1))
        (mount.path / "temporary").write_bytes(written[-1])
        (mount.path / "temporary").rename(file)
        if number == 1:
            kept.await_stored()
    file.chmod(0o600)
    file.unlink()
    told = versions(kept, "/d/file")
    assert [entry["change"] for entry in told] == ["appeared", "replaced", "replaced", "replaced", "changed", "went"]
    assert [entry["size"] for entry in told[:4]] == [len(content) for content in written]
    times = [line[:26] for line in lab.ecfs("log", kept.path, "/d/file").stdout.splitlines()]
    assert times == sorted(times)
    for content, time_of in zip(written, times):
        lab.ecfs("get", "--at", time_of, kept.path, "/d/file", place.path / "got")
        assert (place.path / "got").read_bytes() == content
        (place.path / "got").unlink()
    undelete(kept, "/d/file")
    assert file.read_bytes() == written[-1] and file.stat().st_mode & 0o777 == 0o600
    failed = undelete(kept, "/d/file", check=False)
    assert failed.returncode == 1 and "'ecfs log'" in failed.stderr
    shutil.rmtree(mount.path / "d")
    failed = undelete(kept, "/d", check=False)
    assert failed.returncode == 1 and "was a directory" in failed.stderr
    assert lab.ecfs("log", kept.path, "/never", check=False).returncode == 1


@pytest.mark.slow
def test_the_log_goes_on_over_a_recovery(place, kept):
    mount = place.mount(kept)
    (mount.path / "file").write_bytes(b"before")
    kept.await_stored()
    mount.kill()
    shutil.rmtree(kept.path)
    recovered, _ = recover(place, kept.endpoints)
    mount = place.mount(recovered)
    (mount.path / "new").write_bytes(b"after it")
    (mount.path / "new").rename(mount.path / "file")
    (mount.path / "file").unlink()
    told = versions(recovered, "/file")
    assert [entry["change"] for entry in told][-2:] == ["replaced", "went"] and told[0]["change"] == "appeared"
    undelete(recovered, "/file")
    assert (mount.path / "file").read_bytes() == b"after it"


def test_what_is_there_now_can_be_kept(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 4)
    moment = now()
    (mount.path / "d/file 0000").write_bytes(b"of now")
    (mount.path / "d/file 0001").unlink()
    undelete(kept, "/d", "--at", moment, "--keep")
    assert (mount.path / "d/file 0000").read_bytes() == b"of now"
    assert (mount.path / "d/file 0001").exists()
    (mount.path / "d/file 0002").unlink()
    (mount.path / "d/file 0002").mkdir()
    told = undelete(kept, "/d", "--at", moment, check=False)
    assert told.returncode == 1 and "/d/file 0002" in told.stderr and "directory" in told.stderr
    assert (mount.path / "d/file 0000").read_bytes() != b"of now"


@pytest.mark.slow
def test_a_moment_survives_that_what_came_back_is_moved_again(place, kept):
    """A stranger lost small files of the past so: their log went when it was packed once more."""
    mount = place.mount(kept)
    write_files(mount.path / "d", 5)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    for pause in (2.5, 0):
        (mount.path / "d/file 0000").unlink()
        time.sleep(pause)
        undelete(kept, "/d/file 0000", "--at", moment)
        kept.await_stored()
        time.sleep(2.5)  # it is packed again, and what is superfluous goes
        mount.umount()
        mount = place.mount(kept)
        time.sleep(2)
        lab.assert_same_tree(before, tree_at(place, kept, moment))
    lab.ecfs("recode", "--code", "rs:3+2", kept.path, "/")
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    mount.umount()
    mount = place.mount(kept)
    time.sleep(2)
    lab.assert_same_tree(before, tree_at(place, kept, moment))


def test_several_paths_come_back_at_once(place, kept):
    """With their links, and one that never was keeps no other from it."""
    mount = place.mount(kept)
    write_files(mount.path / "d", 3)
    os.link(mount.path / "d/file 0000", mount.path / "link")
    before, moment = lab.describe_tree(mount.path), now()
    shutil.rmtree(mount.path / "d")
    (mount.path / "link").unlink()
    told = undelete(kept, "/link", "/never", "/d/file 0000", "/d/file 0001", "--at", moment, check=False)
    assert told.returncode == 1 and "/never" in told.stderr and told.stdout.startswith("3 files brought back")
    undelete(kept, "/d", "--at", moment)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


@pytest.mark.slow
def test_links_that_come_back_one_by_one_are_links_again(place, kept):
    """As after an undelete that was killed."""
    mount = place.mount(kept)
    for name in "abc":
        (mount.path / name).mkdir()
    (mount.path / "a/f").write_bytes(b"one")
    for name in "bc":
        os.link(mount.path / "a/f", mount.path / name / "f")
    kept.await_stored()
    moment = now()
    for name in "abc":
        shutil.rmtree(mount.path / name)
    for paths in (["/c/f"], ["/a"], ["/"]):
        undelete(kept, "--at", moment, *paths)
    lab.forget_mounts()
    assert [os.stat(mount.path / name / "f").st_nlink for name in "abc"] == [3, 3, 3]
    assert (mount.path / "b/f").read_bytes() == b"one"

    # Who changed one since has that changed: the others are as they were.
    shutil.rmtree(mount.path / "b")
    (mount.path / "a/f").write_bytes(b"two")
    undelete(kept, "--at", moment, "/b")
    assert (mount.path / "a/f").read_bytes() == b"two" and (mount.path / "b/f").read_bytes() == b"one"


def test_what_marks_keep_is_beside_what_history_takes(place, kept):
    place.mount(kept)
    assert "marks" not in lab.ecfs("history", kept.path).stdout
    lab.ecfs("mark", kept.path, "now")
    assert "at the endpoints, beside what marks keep" in lab.ecfs("history", kept.path).stdout


def test_extended_attributes_come_back(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 3)
    os.setxattr(mount.path / "d/file 0000", "user.a", b"1")
    os.setxattr(mount.path / "d/file 0001", "user.a", b"1")
    before, moment = lab.describe_tree(mount.path), now()
    os.setxattr(mount.path / "d/file 0000", "user.a", b"2")
    os.removexattr(mount.path / "d/file 0001", "user.a")
    os.setxattr(mount.path / "d/file 0002", "user.b", b"new")
    assert undelete(kept, "/d", "--at", moment).stdout.startswith("3 files brought back")
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


@pytest.mark.slow
def test_an_undelete_can_be_undone(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 10)
    first = now()
    write_files(mount.path / "d", 10, seed=1)
    second, after = now(), lab.describe_tree(mount.path)
    undelete(kept, "/d", "--at", first)
    undelete(kept, "/d", "--at", second)
    assert contents(lab.describe_tree(mount.path)) == contents(after)


@pytest.mark.slow
def test_stripes_that_were_taken_back_are_never_deleted(place, kept):
    """The mount deletes what is just old enough while it comes back: each file is whole, or is said to be gone."""
    kept.configure("archive", history="2s", small_file="0")
    mount = place.mount(kept)
    write_files(mount.path / "d", 60)
    kept.await_stored()
    before = contents(lab.describe_tree(mount.path))
    pause, n_came = 1.2, 0
    for _ in range(12):
        moment = now()
        for path in (mount.path / "d").iterdir():
            path.unlink()
            time.sleep(0.01)
        kept.await_stored()
        time.sleep(pause)
        undelete(kept, "/d", "--at", moment, check=False)
        lab.forget_mounts()
        found = contents(lab.describe_tree(mount.path))  # which reads all of them
        assert found.items() <= before.items()
        time.sleep(2)
        lab.forget_mounts()
        assert contents(lab.describe_tree(mount.path)) == found
        n_came += len(found) > 0
        if n_came == 4:
            break
        if not found:  # it was too late for all of them, on a busy machine
            pause = max(pause - 0.4, 0)
            write_files(mount.path / "d", 60)
            kept.await_stored()
        before = contents(lab.describe_tree(mount.path))
    assert n_came > 0
    mount.umount()
    assert lab.run(FSCK, "--deep", kept.path, check=False).returncode in (0, 1)


@pytest.mark.slow
def test_a_mount_that_is_killed_while_things_come_back(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 200)
    kept.await_stored()
    before, moment = contents(lab.describe_tree(mount.path)), now()
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    for pause in (0.02, 0.06, 0.15):
        thread = threading.Thread(target=undelete, args=(kept, "/d", "--at", moment), kwargs={"check": False})
        thread.start()
        time.sleep(pause)
        mount.kill()
        thread.join()
        mount.start()
        found = contents(lab.describe_tree(mount.path))
        assert found.items() <= before.items()
    undelete(kept, "/d", "--at", moment)
    assert contents(lab.describe_tree(mount.path)) == before
    mount.umount()
    assert lab.run(FSCK, "--deep", kept.path, check=False).returncode == 0


class Interrupted:
    """An undelete of many files without a mount, stopped when some are back."""

    def __init__(self, place, archive, n_files):
        mount = place.mount(archive)
        write_files(mount.path / "d", n_files)
        archive.await_stored()
        self.archive, self.moment, self.n_files = archive, now(), n_files
        shutil.rmtree(mount.path / "d")
        archive.await_stored()
        mount.umount()
        self.process = subprocess.Popen([lab.PROGRAM, "undelete", archive.path, "--at", self.moment, "/"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lab.until(self.is_begun, 60, "some are back", pause=0.002)
        self.signal(signal.SIGSTOP)

    def is_told(self):
        """Whether the journal tells of some, and not just of what was before; else it goes on for a moment."""
        if self.told() >= self.sequence:
            return True
        self.signal(signal.SIGCONT)
        time.sleep(0.005)
        self.signal(signal.SIGSTOP)
        return False

    def told(self):
        """The last change that the journal at endpoints has."""
        return max(int(path.name.rpartition("-")[2], 16)
                   for endpoint in self.archive.endpoints for path in lab.files_below(endpoint.root / "journal"))

    def is_begun(self):
        n_back, self.sequence = self.look()
        return n_back > 0

    def n_back(self):
        return self.look()[0]

    def look(self):
        """How many are back, and the last change of that moment."""
        with contextlib.closing(sqlite3.connect(self.archive.path / "catalog.sqlite")) as catalog:
            return catalog.execute("SELECT (SELECT count (*) FROM extents), sequence FROM counters").fetchone()

    def signal(self, which):
        self.process.send_signal(which)


@pytest.mark.slow
def test_what_a_killed_undelete_brought_back_is_known_to_others(place, kept):
    undelete_ = Interrupted(place, kept, 600)
    lab.until(undelete_.is_told, 60, "the journal tells of some", pause=0)
    undelete_.signal(signal.SIGKILL)
    undelete_.process.wait()
    assert 0 < undelete_.n_back() < undelete_.n_files
    rest, _ = recover(place, kept.endpoints)
    assert 0 < len(contents(lab.describe_tree(place.mount(rest).path))) <= undelete_.n_back()


def remove_all(archive):
    """As `ecfs prune` does, elsewhere."""
    for endpoint in archive.endpoints:
        note = endpoint.root / "scratch/pruned"
        note.parent.mkdir(exist_ok=True)
        note.write_text("elsewhere\n")
        for path in lab.stripe_files(endpoint):
            path.unlink()


@pytest.mark.slow
def test_what_is_removed_while_it_comes_back_is_told(place, kept):
    undelete_ = Interrupted(place, kept, 600)
    remove_all(kept)
    undelete_.signal(signal.SIGCONT)
    said, _ = undelete_.process.communicate(timeout=120)
    assert undelete_.process.returncode == 1 and "another machine removed" in said and "too few of its stripes" in said
    assert 0 < undelete_.n_back() < undelete_.n_files, "it ends"
    assert kept.json("status")["verdict"] == "unreadable"


@pytest.mark.slow
def test_what_a_killed_undelete_left_is_looked_at_by_the_next(place, kept):
    kept.configure("archive", small_file="0")
    mount = place.mount(kept)
    for name in ("lost", "whole"):
        lab.write_pattern(mount.path / name, 50_000)
    kept.await_stored()
    moment = now()
    (mount.path / "lost").unlink()
    kept.await_stored()
    undelete(kept, "--at", moment, "/lost")
    mount.umount()
    remove_all(kept)
    done = undelete(kept, "--at", moment, "/", check=False)
    assert done.returncode == 1 and "/lost: it had come back, and too few of its stripes are left" in done.stderr
    assert "/whole" not in done.stderr, "it never was away"
    status = kept.json("status")
    assert status["verdict"] == "unreadable" and status["repairs"]["queued"] == 6


@pytest.mark.slow
def test_endpoints_that_are_away_are_left_out(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 20)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    for endpoint in kept.endpoints[:2]:
        endpoint.kill()
    lab.assert_same_tree(before, tree_at(place, kept, moment))
    undelete(kept, "/d", "--at", moment)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


@pytest.mark.slow
def test_the_past_outlives_the_machine(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 20)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    shutil.rmtree(mount.path / "d")
    write_files(mount.path / "e", 20, seed=1)
    kept.await_stored()
    mount.kill()
    shutil.rmtree(kept.path)
    recovered, _ = recover(place, kept.endpoints)
    lab.assert_same_tree(before, tree_at(place, recovered, moment))
    mount = place.mount(recovered)
    undelete(recovered, "/d", "--at", moment)
    lab.assert_same_tree(before, {path: facts for path, facts in lab.describe_tree(mount.path).items() if path.startswith("d")})
    recovered.await_stored()
    mount.umount()
    assert lab.run(FSCK, "--deep", recovered.path, check=False).returncode == 0


@pytest.mark.slow
def test_what_was_moved_since_a_recovery_is_found(place, kept):
    mount = place.mount(kept)
    kept.configure("archive", pack_after="1h")
    mount.umount()
    mount = place.mount(kept)
    write_files(mount.path / "d", 20)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    (mount.path / "d/file 0000").unlink()
    kept.await_stored()
    mount.kill()
    shutil.rmtree(kept.path)
    recovered, _ = recover(place, kept.endpoints, "--set", "pack_after=1s", "--set", "deletion_grace=0")
    mount = place.mount(recovered)
    lab.until(lambda: LOG not in kinds(recovered), 60, "all is packed")
    recovered.await_stored()
    lab.assert_same_tree(before, tree_at(place, recovered, moment))
    for path in lab.stripe_files(kept.endpoints[0]):
        if "stripes" in path.parts:
            path.unlink()
    lab.run(FSCK, "-y", recovered.path, check=False)
    kept.endpoints[1].kill()
    kept.endpoints[2].kill()
    lab.assert_same_tree(before, tree_at(place, recovered, moment))


@pytest.mark.slow
def test_what_was_written_in_vain_is_no_past(place, kept):
    """Endpoints lost the newest changes, the archive was recovered without them, and then they turned up again."""
    mount = place.mount(kept)
    write_files(mount.path / "d", 5)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    mount.umount()
    backups = [place.path / f"backup-{endpoint.name}" for endpoint in kept.endpoints]
    for endpoint, backup in zip(kept.endpoints, backups):
        shutil.copytree(endpoint.root, backup)
    mount = place.mount(kept)
    for number in range(4):  # a segment of the journal each
        write_files(mount.path / f"vain {number}", 3, seed=number)
        kept.await_stored()
    mount.umount()
    shutil.rmtree(kept.path)
    later = [place.path / f"later-{endpoint.name}" for endpoint in kept.endpoints]
    for endpoint, backup, newer in zip(kept.endpoints, backups, later):
        endpoint.root.rename(newer)
        backup.rename(endpoint.root)
    recovered, _ = recover(place, kept.endpoints)
    mount = place.mount(recovered)
    write_files(mount.path / "since", 5, seed=9)
    recovered.await_stored()
    since = now()
    for endpoint, newer in zip(kept.endpoints, later):
        vain = [path for path in sorted((newer / "journal").iterdir()) if not (endpoint.root / "journal" / path.name).exists()]
        assert len(vain) >= 3
        for path in vain[1:]:  # and not that which comes next
            shutil.copy2(path, endpoint.root / "journal" / path.name)
    lab.assert_same_tree(before, tree_at(place, recovered, moment))
    assert {path.split("/")[0] for path in tree_at(place, recovered, since)} == {"d", "since"}
    assert versions(recovered, "/vain 3/file 0000") == []


@pytest.mark.slow
def test_without_a_history_the_time_of_grace_is_enough(place, archive):
    """As the README says of an archive with nothing set."""
    mount = place.mount(archive)
    write_files(mount.path / "d", 5)
    lab.write_pattern(mount.path / "large", 300_000)
    before, moment = lab.describe_tree(mount.path), now()
    shutil.rmtree(mount.path / "d")
    (mount.path / "large").unlink()
    archive.await_stored()
    undelete(archive, "/large")
    undelete(archive, "/d", "--at", moment)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))


def test_a_past_that_is_mounted_goes_with_the_mount(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 3)
    kept.await_stored()
    (place.path / "past").mkdir()
    lab.run(lab.BUILD / "tools/ecfs", "mount", "--at", "0s", kept.path.name, place.path / "past", cwd=kept.path.parent)
    assert len(list(kept.path.glob("past-*"))) == 1
    lab.ecfs("umount", place.path / "past")
    lab.until(lambda: not list(kept.path.glob("past-*")), 10, "the directory is gone")


@pytest.mark.slow
def test_the_archive_becomes_what_it_was(place, kept):
    """After a thief was there."""
    mount = place.mount(kept)
    write_files(mount.path / "d", 50)
    kept.await_stored()
    before, moment = lab.describe_tree(mount.path), now()
    for path in (mount.path / "d").iterdir():
        path.write_bytes(b"give me money")
    write_files(mount.path / "more", 20, seed=1)
    kept.await_stored()
    mount.kill()
    shutil.rmtree(kept.path)
    recovered, _ = recover(place, kept.endpoints, "--at", moment)
    mount = place.mount(recovered)
    lab.assert_same_tree(before, lab.describe_tree(mount.path))
    write_files(mount.path / "since", 5, seed=2)
    after = lab.describe_tree(mount.path)
    recovered.await_stored()
    mount.kill()
    shutil.rmtree(recovered.path)
    again, _ = recover(place, kept.endpoints)
    lab.assert_same_tree(after, tree_of(place, again))


@pytest.mark.slow
def test_without_a_history_what_is_old_goes(place, kept):
    mount = place.mount(kept)
    write_files(mount.path / "d", 10)
    kept.await_stored()
    moment, before = now(), uuids(kept)
    shutil.rmtree(mount.path / "d")
    kept.await_stored()
    time.sleep(3)
    assert any(path for endpoint in kept.endpoints for path in lab.stripe_files(endpoint)
               if any(path.name.startswith(uuid.hex()) for uuid in before))
    mount.umount()
    kept.configure("archive", history="0")
    mount = place.mount(kept)
    lab.until(lambda: not any(path for endpoint in kept.endpoints for path in lab.stripe_files(endpoint)
                              if "stripes" in path.parts), 30, "all stripes are gone")
    told = undelete(kept, "/d", "--at", moment, check=False)
    assert told.returncode == 1 and "too few of its stripes are left" in told.stderr
    assert list(mount.path.rglob("*")) in ([], [mount.path / "d"])
