"""Pruning accounts that only grow, from another machine: only what nobody needs goes, and nothing that a thief wants."""
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import time

import lab
import pytest
from steps import Steps
from test_history import now
from test_recover import recover
from test_retained import Retaining, accounts, contents  # noqa: F401 (a fixture)


class Master:
    """The machine that may delete: a directory of its own, and logins of its own."""

    def __init__(self, place, endpoints):
        self.path = place.path / "master"
        self.words = [word for endpoint in endpoints for word in ("-e", f"{endpoint.name}=file://{endpoint.root}")]

    def prune(self, *options, keep="1s", **how):
        return lab.ecfs("prune", self.path, *self.words, "--keep", keep, "--yes", *options, **how)

    def facts(self, *options, **how):
        done = self.prune("--json", *options, check=False, **how)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def await_old(self, n, *options, **how):
        lab.until(lambda: sum(row["files"] for row in self.facts("--dry-run", *options, **how)["endpoints"]) >= n, 60,
                  f"{n} files have been dead for long enough", pause=0.3)

    def accept(self):
        """That what was lost until now was meant to be, as it tells to."""
        refused = self.facts("--dry-run")["refused"]
        self.prune("--accept", re.search(r'--accept "([^"]+)"', refused)[1], "--keep", "1d")


def stripe_names(endpoints):
    return {path for endpoint in endpoints for path in lab.files_below(endpoint.root / "stripes")}


def at(place, archive, moment):
    """The content of then, without the kernel's caches."""
    lab.forget_mounts()
    mount = place.mount(archive, "--at", moment)
    found = contents(mount.path)
    mount.umount()
    return found


def ecfs_past(archive, moment):
    """A directory of the past, as `ecfs undelete` makes one."""
    library = ctypes.CDLL(str(lab.BUILD / "libecfs.so"))
    library.ecfs_past_open.restype = ctypes.c_char_p
    path = library.ecfs_past_open(str(archive.path).encode(), moment.encode(), None)
    assert path
    return path.decode()


def ask(archive, request):
    """What the mount answers on its control socket, up to the last line."""
    with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(archive.path):
        door.settimeout(30)
        door.connect("control.sock")
        door.sendall(json.dumps(request).encode() + b"\n")
        text = b""
        while b"another machine" not in text and (more := door.recv(4096)):
            text += more
    return text.decode()


def store(archive, mount, numbers, size=50_000, seed=0):
    """The files of these numbers, to the end."""
    for i in numbers:
        lab.write_pattern(mount.path / f"file {i}", size, seed=seed + i)
    archive.await_stored()


def remove(archive, mount, numbers):
    for i in numbers:
        (mount.path / f"file {i}").unlink()
    archive.await_stored()


@pytest.fixture
def grown(place):
    """A writer at accounts that only grow."""
    endpoints = place.directories()
    archive = place.archive([Retaining(endpoint) for endpoint in endpoints], "rs:4+2", "--key", "split")
    archive.configure("archive", history="0", deletion_grace="0s", small_file="0", journal_interval="1s")
    return archive


@pytest.mark.slow
def test_what_is_dead_goes_and_all_else_stays(place, grown):
    mount = place.mount(grown)
    store(grown, mount, range(20))
    for i in range(3):
        (mount.path / f"file {i}").unlink()
    lab.write_pattern(mount.path / "file 3", 40_000, seed=33)
    grown.await_stored()
    master = Master(place, grown.endpoints)
    before = stripe_names(grown.endpoints)
    master.await_old(24, "--max-share", "50", keep="6s")
    assert stripe_names(grown.endpoints) == before, "nothing goes with --dry-run"

    # What dies now has not been dead for long, and can come back.
    moment, wanted = now(), contents(mount.path)
    (mount.path / "file 4").unlink()
    lab.write_pattern(mount.path / "file 5", 70_000, seed=55)
    grown.await_stored()
    report = master.facts("--max-share", "50", keep="6s")
    assert report["done"] and sum(row["removed"] for row in report["endpoints"]) == 24
    assert len(stripe_names(grown.endpoints)) == len(before) - 24 + 6
    assert at(place, grown, moment) == wanted
    lab.ecfs("undelete", grown.path, "--at", moment, "/file 4", "/file 5")
    assert contents(mount.path) == wanted
    grown.await_stored()
    mount.umount()
    assert master.facts("--max-share", "50", keep="1h")["done"]

    # And any two accounts may vanish with the machine, as ever.
    rest, _ = recover(place, grown.endpoints[2:])
    assert contents(place.mount(rest).path) == wanted


@pytest.mark.slow
def test_what_a_thief_deletes_stays_until_somebody_says_so(place, grown):
    mount = place.mount(grown)
    store(grown, mount, range(10))
    moment, wanted = now(), contents(mount.path)
    remove(grown, mount, range(5))
    mount.umount()
    master = Master(place, grown.endpoints)
    master.await_old(30)
    before = stripe_names(grown.endpoints)
    done = master.prune(check=False)
    assert done.returncode == 1 and "a thief would want" in done.stderr and "--accept" in done.stderr
    assert master.facts("--dry-run")["refused"] and stripe_names(grown.endpoints) == before
    shown = lab.ecfs("ls", "--at", re.search(r'ls --at "([^"]+)"', done.stderr)[1], master.path).stdout
    assert "file 0" in shown, "what it tells to type shows what there was before"
    assert at(place, grown, moment) == wanted

    master.accept()
    assert stripe_names(grown.endpoints) == before, "to accept it makes nothing older"
    assert sum(row["removed"] for row in master.facts()["endpoints"]) == 30

    # What is lost from then on is looked at anew.
    mount.start()
    remove(grown, mount, range(5, 8))
    lab.until(lambda: "a thief" in master.prune(check=False).stderr, 30, "it is refused again", pause=0.3)


@pytest.mark.slow
def test_times_that_a_thief_or_a_server_makes_up_make_nothing_old(place, grown):
    """Who has the key writes any time into a journal, and a server tells any time of its files; not both of both."""
    mount = place.mount(grown)
    store(grown, mount, range(10))
    remove(grown, mount, [0])
    mount.umount()
    for endpoint in grown.endpoints[:2]:
        for path in lab.files_below(endpoint.root):
            os.utime(path, (1_000_000_000, 1_000_000_000))
    master = Master(place, grown.endpoints)
    assert sum(row["files"] for row in master.facts("--dry-run", keep="1h")["endpoints"]) == 0


@pytest.mark.slow
def test_what_no_record_mentions_stays(place, grown):
    mount = place.mount(grown)
    lab.write_pattern(mount.path / "file", 50_000)
    grown.await_stored()
    amber = grown.endpoints[0]
    stripe = lab.files_below(amber.root / "stripes")[0]
    stranger = stripe.parent.parent / "000" / ("0" * 32 + stripe.name[32:])
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(stripe.read_bytes())
    lab.write_pattern(mount.path / "stays", 40_000)
    grown.await_stored()
    living = (set(lab.files_below(amber.root / "stripes")) - {stripe, stranger}).pop()
    another = living.with_name(living.name[:-1] + ("0" if living.name[-1] != "0" else "1"))
    another.write_bytes(living.read_bytes())
    (mount.path / "file").unlink()
    grown.await_stored()
    renamed = lab.files_below(amber.root / "stripes")
    master = Master(place, grown.endpoints)
    master.await_old(6)
    master.accept()
    report = master.facts("--unproven", "amber")
    assert report["done"] and report["endpoints"][0]["unknown"] == 2
    assert {path for path in renamed if path.exists()} == {stranger, living, another}


@pytest.mark.slow
def test_what_is_not_what_its_name_says_stays_until_it_is_asked_for(place, grown):
    mount = place.mount(grown)
    lab.write_pattern(mount.path / "file", 50_000)
    grown.await_stored()
    stripe = lab.files_below(grown.endpoints[0].root / "stripes")[0]
    stripe.chmod(0o600)
    stripe.write_bytes(b"what nobody sealed")
    (mount.path / "file").unlink()
    grown.await_stored()
    master = Master(place, grown.endpoints)
    master.await_old(5)
    master.accept()
    report = master.facts()
    assert report["endpoints"][0]["unproven"] == 1 and stripe_names(grown.endpoints) == {stripe}
    assert "--unproven amber" in master.prune().stdout
    master.prune("--unproven", "amber")
    assert not stripe_names(grown.endpoints)


@pytest.mark.slow
def test_a_mark_keeps_what_it_needs(place, grown):
    mount = place.mount(grown)
    for i in range(4):
        lab.write_pattern(mount.path / f"file {i}", 50_000, seed=i)
    remove(grown, mount, [0])
    lab.ecfs("mark", grown.path, "here")
    wanted = contents(mount.path)
    remove(grown, mount, range(1, 4))
    master = Master(place, grown.endpoints)
    master.await_old(6)
    master.accept()
    assert sum(row["removed"] for row in master.facts()["endpoints"]) == 6
    assert at(place, grown, "here") == wanted
    lab.ecfs("mark", "--remove", grown.path, "here")
    grown.await_stored()
    master.await_old(18)
    master.prune()
    assert not stripe_names(grown.endpoints)


@pytest.mark.slow
def test_what_was_overwritten_is_lost_as_well(place, grown):
    """Also where that is little beside what stays."""
    mount = place.mount(grown)
    lab.write_pattern(mount.path / "large", 4_000_000)
    store(grown, mount, range(10), 5_000)
    for round in range(2):
        for i in range(3):
            lab.write_pattern(mount.path / f"file {i}", 5_000, seed=100 + 10 * round + i)
        grown.await_stored()
    master = Master(place, grown.endpoints)
    master.await_old(36)
    done = master.prune(check=False)
    assert done.returncode == 1 and "3 of 11 files were deleted or overwritten" in done.stderr
    master.accept()

    # What was accepted hides nothing that comes behind it.
    store(grown, mount, range(3), 5_000, seed=200)
    lab.until(lambda: "3 of 11 files" in master.prune(check=False).stderr, 30, "it is refused again", pause=0.3)


@pytest.mark.slow
def test_a_name_that_somebody_made_up_leaves_no_gap(place, grown):
    mount = place.mount(grown)
    store(grown, mount, range(20))
    lab.ecfs("mark", grown.path, "here")
    remove(grown, mount, [0])
    master = Master(place, grown.endpoints)
    epoch = lab.files_below(grown.endpoints[0].root / "journal")[0].name.split("-")[0]
    false = grown.endpoints[0].root / "snapshots" / f"{epoch}-{0xffff:016x}-{0:08x}-end"
    false.parent.mkdir(exist_ok=True)
    false.write_bytes(b"torn")
    assert master.facts()["done"], "the mark is from before no gap"
    lab.ecfs("mark", "--remove", grown.path, "here")
    grown.await_stored()
    master.await_old(6)
    assert sum(row["removed"] for row in master.facts()["endpoints"]) == 6


@pytest.mark.slow
def test_too_few_endpoints_are_not_enough(place, grown):
    mount = place.mount(grown)
    lab.write_pattern(mount.path / "file", 50_000)
    (mount.path / "file").unlink()
    grown.await_stored()
    mount.umount()
    master = Master(place, grown.endpoints)
    master.await_old(6)
    master.accept()
    away = grown.endpoints[0].root.with_name("away")
    grown.endpoints[0].root.rename(away)
    done = master.prune(check=False)
    assert done.returncode == 1 and "amber" in done.stdout, "one that is missing is said"
    assert len(stripe_names(grown.endpoints[1:])) == 0
    for endpoint in grown.endpoints[1:3]:
        endpoint.root.rename(endpoint.root.with_name("away"))
    done = master.prune(check=False)
    assert done.returncode == 1 and "bring endpoints back" in done.stderr
    away.rename(grown.endpoints[0].root)
    for endpoint in grown.endpoints[1:3]:
        endpoint.root.with_name("away").rename(endpoint.root)
    assert master.prune().returncode == 0 and not stripe_names(grown.endpoints)


@pytest.mark.slow
def test_a_run_that_was_killed_is_resumed(place, grown):
    mount = place.mount(grown)
    store(grown, mount, range(100), 20_000)
    wanted = {name: content for name, content in contents(mount.path).items() if int(name.split()[1]) >= 90}
    remove(grown, mount, range(90))
    master = Master(place, grown.endpoints)
    master.await_old(540)
    master.accept()
    n_before = len(stripe_names(grown.endpoints))
    steps = Steps(place, [endpoint.root / "stripes" for endpoint in grown.endpoints])
    run = master.prune(check=False, env=steps.environment(270, "before"))
    assert run.returncode == -signal.SIGKILL and steps.where()
    assert n_before - 540 < len(stripe_names(grown.endpoints)) < n_before, "some are gone, and some are not"
    assert master.prune().returncode == 0
    assert len(stripe_names(grown.endpoints)) == 60
    lab.forget_mounts()
    assert contents(mount.path) == wanted
    assert not [path for endpoint in grown.endpoints for path in lab.files_below(endpoint.root / "scratch")
                if path.name == "prune"]

    # Also where nothing is left to be removed.
    note = grown.endpoints[0].root / "scratch/prune"
    note.write_text("elsewhere\n")
    assert sum(row["files"] for row in master.facts()["endpoints"]) == 0
    assert not note.exists()


def test_it_is_for_a_directory_that_only_reads(place, grown):
    done = lab.ecfs("prune", grown.path, "--yes", check=False)
    assert done.returncode == 2 and "for writing" in done.stderr
    done = lab.ecfs("prune", place.path / "none", check=False)
    assert done.returncode == 2 and "name the archive's endpoints" in done.stderr


@pytest.mark.slow
def test_real_accounts_are_pruned_by_another_login_only(place, accounts):  # noqa: F811
    kept = place.archive(accounts, "rs:4+2")
    kept.configure("archive", history="0", deletion_grace="0s")
    mount = place.mount(kept)
    for name in ("stays", "goes"):
        lab.write_pattern(mount.path / name, 300_000, seed=len(name))
    (mount.path / "goes").unlink()
    kept.await_stored()
    wanted = contents(mount.path)
    n_before = len(stripe_names(accounts))
    thief = Master(place, accounts)
    master_words, thief.words = thief.words, [
        word for server in accounts for word in ("-e", server.endpoint().removesuffix(",delete=never"))]
    thief.await_old(6)
    thief.accept()
    done = thief.prune(check=False)
    assert done.returncode == 1 and "a login that may delete" in done.stderr
    assert len(stripe_names(accounts)) == n_before
    master = Master(place, accounts)
    master.path, master.words = place.path / "owner", master_words
    master.await_old(6)
    master.accept()
    assert master.facts()["done"] and len(stripe_names(accounts)) == n_before - 6
    lab.forget_mounts()
    assert contents(mount.path) == wanted


@pytest.mark.slow
def test_who_brings_things_back_and_who_removes_them_see_each_other(place, grown):
    mount = place.mount(grown)
    store(grown, mount, range(3))
    moment, wanted = now(), contents(mount.path)
    remove(grown, mount, range(3))
    note = grown.endpoints[0].root / "scratch/prune"
    note.parent.mkdir(exist_ok=True)
    note.write_text("elsewhere\n")
    undelete = ["undelete", grown.path, "--at", moment]
    done = lab.ecfs(*undelete, "/file 0", check=False)
    assert done.returncode == 1 and "another machine" in done.stderr and "--beside-prune" in done.stderr
    lab.ecfs(*undelete, "--beside-prune", "/file 0")
    master = Master(place, grown.endpoints)
    master.await_old(12)
    assert note.exists()
    assert "a thief" in master.prune(check=False).stderr
    assert not note.exists(), "a run that was killed is over with the next, whatever becomes of that"
    assert contents(mount.path) == {"file 0": wanted["file 0"]}
    lab.ecfs(*undelete, "/file 1")
    grown.await_stored()

    # A past that was looked at before something was removed, and that is asked for behind that.
    past = ecfs_past(grown, moment)
    look = "".join(f"{endpoint.name} scratch/pruned {int(path.stat().st_mtime)}\n" for endpoint in grown.endpoints
                   for path in (endpoint.root / "scratch").glob("pruned"))
    master.await_old(6)
    master.accept()
    lab.until(lambda: time.time() > note.with_name("pruned").stat().st_mtime + 1, 5, "its time differs")
    master.prune()
    answer = ask(grown, {"verb": "undelete", "past": past, "paths": ["/file 2"], "at_ns": 0, "prune_notes": look})
    assert "another machine removed" in answer
    shutil.rmtree(past)
    done = lab.ecfs(*undelete, "/file 2", check=False)
    assert done.returncode == 1 and "too few of its stripes" in done.stderr and "'ecfs prune' removed them" in done.stderr
    assert contents(mount.path) == {name: wanted[name] for name in ("file 0", "file 1")}


def test_who_brings_things_back_also_looks_where_nothing_is_retained(place):
    """The machine that prunes removes there, too."""
    endpoints = place.directories()
    archive = place.archive([*map(Retaining, endpoints[:5]), endpoints[5]], "rs:4+2", "--key", "split")
    archive.configure("archive", small_file="0", journal_interval="1s")
    mount = place.mount(archive)
    store(archive, mount, range(1))
    moment, wanted = now(), contents(mount.path)
    remove(archive, mount, range(1))
    note = endpoints[5].root / "scratch/prune"
    note.parent.mkdir(exist_ok=True)
    note.write_text("elsewhere\n")
    undelete = ["undelete", archive.path, "--at", moment, "/file 0"]
    done = lab.ecfs(*undelete, check=False)
    assert done.returncode == 1 and "another machine" in done.stderr
    assert not contents(mount.path)
    note.unlink()
    lab.ecfs(*undelete)
    assert contents(mount.path) == wanted


@pytest.mark.parametrize("change, said", [(lambda record: record + b"\x70\0\0\0\0", "later ecfs"),
                                          (lambda record: record + record[1:], "cannot be applied")],
                         ids=["later", "unfit"])
@pytest.mark.slow
def test_records_that_are_not_understood_may_keep_what_seems_dead(place, grown, change, said):
    """One with an item of a kind that there is not yet, and one that removes a name that is gone."""
    mount = place.mount(grown)
    store(grown, mount, range(4))
    remove(grown, mount, [0])
    master = Master(place, grown.endpoints)
    master.await_old(6)
    master.accept()
    for endpoint in grown.endpoints:
        endpoint.inner.kill()
    (mount.path / "file 1").unlink()
    directory = os.open(mount.path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    mount.kill()
    with sqlite3.connect(grown.path / "catalog.sqlite") as catalog:
        last, record = catalog.execute("SELECT seq, record FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
        catalog.execute("UPDATE journal SET record = ? WHERE seq = ?", (change(record), last))
    catalog.close()
    for endpoint in grown.endpoints:
        endpoint.inner.start()
    mount.start()
    grown.await_stored()
    before = stripe_names(grown.endpoints)
    done = master.prune(check=False)
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert stripe_names(grown.endpoints) == before


@pytest.mark.slow
def test_what_died_before_a_recovery_goes_as_well(place, grown):
    """The new machine's catalog knows nothing of it."""
    mount = place.mount(grown)
    for i in range(6):
        lab.write_pattern(mount.path / f"file {i}", 50_000, seed=i)
    remove(grown, mount, [0])
    wanted = contents(mount.path)
    mount.umount()
    shutil.rmtree(grown.path)
    recovered, _ = recover(place, grown.endpoints)
    recovered.configure("archive", history="0", deletion_grace="0s", small_file="0")
    mount = place.mount(recovered)
    (mount.path / "file 1").unlink()
    recovered.await_stored()
    del wanted["file 1"]
    master = Master(place, grown.endpoints)
    master.await_old(12)
    master.accept()
    assert master.facts()["done"] and len(stripe_names(grown.endpoints)) == 24
    lab.forget_mounts()
    assert contents(mount.path) == wanted
