"""Deep checks: what was verified is kept, so that a scrub goes on where another stopped, and says what it proves."""
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import lab
import pytest
from test_fsck import CLEAN, LEFT, PROGRAM, REPAIRED, USAGE, everything, facts, fsck, lose, rows, stored, tree

MIB = 1 << 20
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")


def scrub(archive):
    """What `ecfs status` tells."""
    return json.loads(lab.ecfs("status", archive.path, "--json").stdout)["scrub"]


def change_notes(archive, statement):
    with contextlib.closing(sqlite3.connect(archive.path / "scrub.sqlite")) as notes, notes:
        notes.execute(statement)


def filled(place, archive):
    """What a deep check reads: bytes and stripes of files of one size, so that each second brings some."""
    (place.path / "tree").mkdir()
    for number in range(30):
        lab.write_pattern(place.path / f"tree/file{number}", 100_000, number)
    archive.put_in_full(place.path / "tree", "/")
    status, _, summary = facts(archive, "-n", "--deep")
    assert status == CLEAN and "began" not in scrub(archive), "-n keeps nothing"
    return summary["checked_bytes"], summary["stripes"]


@pytest.mark.slow
def test_killed_it_goes_on_where_it_was(place, archive):
    all_bytes, n_stripes = filled(place, archive)
    running = subprocess.Popen([PROGRAM, archive.path, "--deep", "--bwlimit", str(all_bytes // 40)], stdout=subprocess.DEVNULL)
    lab.until(lambda: scrub(archive).get("verified", 0) > 0, 60, "some is verified")
    running.send_signal(signal.SIGKILL)
    running.wait(60)
    begun = scrub(archive)
    assert begun["open"] and "full_ended" not in begun and 0 < begun["verified"] < 1, begun
    status, _, summary = facts(archive, "--deep")
    assert status == CLEAN and summary["deep"]["whole"] and summary["deep"]["stripes"] < n_stripes
    assert summary["checked_bytes"] < all_bytes and summary["deep"]["began"] == begun["began"]
    share = begun["verified"] + summary["checked_bytes"] / all_bytes
    assert 0.9 < share < 1.1, f"{share:.2f}: few objects are counted as they are, and not as if UUIDs were spread evenly"
    ended = scrub(archive)
    assert ended["full_ended"] >= ended["full_began"] == begun["began"] and ended["verified"] == 1 and not ended["open"]
    change_notes(archive, "UPDATE ranges SET pass = pass + 100")
    assert scrub(archive)["verified"] == 0, "no pass was that"
    assert facts(archive, "--deep")[2]["deep"]["stripes"] == n_stripes, "the next begins anew, whatever its rows claim"


@pytest.mark.slow
def test_in_short_runs_it_goes_round(place, archive):
    all_bytes, n_stripes = filled(place, archive)
    n_read, n_runs, whole = 0, 0, False
    while not whole:
        status, _, summary = facts(archive, "--deep", "--max-time", f"{500 * (n_runs + 1)}ms", "--bwlimit", str(all_bytes // 2))
        deep = summary["deep"]
        assert status == CLEAN and (summary["out_of_time"] or deep["whole"])
        assert deep["left_bytes"] == 0 or not deep["whole"]  # an estimate: what is left may round to none
        n_read, n_runs, whole = n_read + deep["stripes"], n_runs + 1, deep["whole"]
        assert n_runs < 40
    assert n_runs > 1 and n_read >= n_stripes
    assert "of the last" not in fsck(archive)[1] and "full_ended" in scrub(archive)


@pytest.mark.slow
def test_time_that_is_over_at_once_leaves_all(place, archive):
    filled(place, archive)
    status, text = fsck(archive, "--deep", "--max-time", "1ms")
    assert status == CLEAN and "--max-time" in text and "are left" in text


@pytest.mark.slow
def test_damage_that_was_left_is_told_again(place, archive):
    filled(place, archive)
    damaged = stored(archive, "file7")[1][1]
    lab.flip(damaged, damaged.stat().st_size // 2)
    status, findings, summary = facts(archive, "--deep")
    assert status == LEFT and summary["stripes_damaged"] == 1 and summary["deep"]["whole"]
    assert scrub(archive)["damaged"] == 1
    change_notes(archive, "UPDATE state SET open = 1")
    status, again, summary = facts(archive, "--deep")
    assert status == LEFT and again == findings and summary["deep"]["stripes"] == 1, "only what is known to be damaged"
    assert fsck(archive, "--deep", "-y")[0] == REPAIRED
    assert scrub(archive)["damaged"] == 0 and fsck(archive, "--deep")[0] == CLEAN


@pytest.mark.slow
def test_what_did_not_answer_is_not_verified(place, archive):
    _, n_stripes = filled(place, archive)
    assert fsck(archive, "--deep")[0] == CLEAN
    full = scrub(archive)["full_ended"]
    archive["birch"].kill()
    status, text = fsck(archive, "--deep")
    assert status == LEFT and "could not be read" in text
    assert scrub(archive)["full_ended"] == full and 5 / 6 <= scrub(archive)["verified"] < 1
    archive["birch"].start()
    assert facts(archive, "--deep")[2]["deep"]["stripes"] == n_stripes and scrub(archive)["verified"] == 1


@pytest.mark.slow
def test_what_cannot_be_noted_is_read_all_the_same(place, archive):
    _, n_stripes = filled(place, archive)
    (archive.path / "scrub.sqlite").mkdir()
    for _ in range(2):
        status, _, summary = facts(archive, "--deep")
        assert status == CLEAN and summary["deep"]["stripes"] == n_stripes and not summary["deep"]["kept"]
    done = lab.run(PROGRAM, archive.path, "--deep", check=False)
    assert "scrub.sqlite" in done.stderr and "not noted" in done.stderr


@pytest.mark.slow
def test_what_cannot_be_noted_any_more_is_read_all_the_same(place, archive):
    _, n_stripes = filled(place, archive)
    assert fsck(archive, "--deep")[0] == CLEAN
    for table in ["ranges", "state"]:
        change_notes(archive, f"CREATE TRIGGER full BEFORE INSERT ON {table} "
                              "WHEN NEW.pass > 1 BEGIN SELECT RAISE (FAIL, 'the disk is full'); END")
        done = lab.run(PROGRAM, archive.path, "--deep", "--json", check=False)
        summary = json.loads(done.stdout.splitlines()[-1])
        assert done.returncode == CLEAN and summary["deep"]["stripes"] == n_stripes, done.stderr
        assert not summary["deep"]["kept"] and summary["deep"]["whole"]
        assert "scrub.sqlite" in done.stderr and done.stderr.count("is not noted") == 1
        change_notes(archive, "DROP TRIGGER full")


@pytest.mark.slow
def test_damage_is_not_forgotten_for_a_row_that_cannot_be_read(place, archive):
    filled(place, archive)
    damaged = stored(archive, "file7")[1][1]
    lab.flip(damaged, damaged.stat().st_size // 2)
    assert fsck(archive, "--deep")[0] == LEFT
    def where(value):
        return (f"UPDATE objects SET digest = {value} WHERE id = (SELECT x.object FROM extents x JOIN entries n "
                "ON n.ino = x.ino WHERE n.name = CAST ('file7' AS BLOB))")
    [[digest]] = rows(archive, "SELECT hex (digest) FROM objects WHERE id = (SELECT x.object FROM extents x "
                               "JOIN entries n ON n.ino = x.ino WHERE n.name = CAST ('file7' AS BLOB))")
    rows(archive, where("zeroblob (3)"))
    change_notes(archive, "UPDATE state SET open = 1")
    assert fsck(archive, "--deep")[0] == LEFT
    rows(archive, where(f"x'{digest}'"))
    assert scrub(archive)["damaged"] == 1
    assert fsck(archive, "--deep", "-y")[0] == REPAIRED and scrub(archive)["damaged"] == 0


@pytest.mark.slow
def test_a_sample_tells_what_it_proves(place, archive):
    all_bytes, n_stripes = filled(place, archive)
    status, findings, first = facts(archive, "--deep", "--sample", "30%", "--seed", "7")
    sample = first["deep"]["sample"]
    assert status == CLEAN and sample["population"] == n_stripes and 0 < sample["read"] < n_stripes
    assert sample["bad"] == 0 < sample["at_most_bad"] <= n_stripes - sample["read"]
    assert facts(archive, "--deep", "--sample", "30", "--seed", "7")[2]["deep"] == first["deep"]
    assert facts(archive, "--deep", "--sample", "30", "--seed", "8")[2]["checked_bytes"] != first["checked_bytes"]
    assert "began" not in scrub(archive), "a sample is not kept"
    for endpoint, path in stored(archive):
        lab.flip(path, path.stat().st_size // 2)
    status, findings, summary = facts(archive, "--deep", "--sample", "30%", "--seed", "7")
    sample = summary["deep"]["sample"]
    assert status == LEFT and sample["bad"] == sample["read"] == summary["stripes_damaged"]
    assert sample["at_most_bad"] == n_stripes
    for wrong in [("--sample", "0"), ("--sample", "101%"), ("--sample", "x"), ("--seed", "-1"), ("--max-time", "soon")]:
        assert fsck(archive, "--deep", *wrong)[0] == 16


@pytest.mark.slow
def test_rows_that_cannot_be_are_findings(place, archive):
    """The others are checked and repaired."""
    archive.put_in_full(tree(place), "/")
    lose(archive["cedar"])
    for name, change in [("file4", "digest = zeroblob (3)"), ("file5", "segment_bytes = -5"), ("file8", "uuid = zeroblob (7)"),
                         ("file10", "uuid = zeroblob (20)"), ("file7", "uuid = x'ffffffffffffffffffffffffffffffff00'")]:
        rows(archive, f"UPDATE objects SET {change} WHERE id = (SELECT x.object FROM extents x JOIN entries n "
                      f"ON n.ino = x.ino WHERE n.name = CAST ('{name}' AS BLOB))")
    status, findings, summary = facts(archive, "-y", "--deep")
    told = [finding for finding in findings if finding["about"] == "catalog"]
    assert status == LEFT + REPAIRED
    assert {finding.get("path") for finding in told} == {f"/tree/{name}" for name in ["file4", "below/file5", "file8", "file10", "below/file7"]}
    assert summary["catalog_problems"] == len(told) == 5 and summary["objects_repaired"] > 0
    assert summary["objects_left"] == 0


@pytest.mark.slow
def test_a_page_of_garbage_is_a_finding(place, archive):
    archive.put_in_full(tree(place), "/")
    page, root = rows(archive, "PRAGMA page_size")[0][0], rows(archive, "SELECT rootpage FROM sqlite_schema WHERE name = 'stripes'")[0][0]
    rows(archive, "PRAGMA wal_checkpoint (TRUNCATE)")
    with open(archive.path / "catalog.sqlite", "r+b") as database:
        database.seek((root - 1) * page + 200)
        database.write(os.urandom(page - 200))
    before = everything(archive)
    status, findings, summary = facts(archive, "-y")
    assert status == LEFT and summary["catalog_problems"] > 0 and summary["stripes_rebuilt"] == 0
    assert everything(archive) == before
    assert not facts(archive, "--deep")[2]["deep"]["whole"], "nobody knows what was not read"
    with contextlib.closing(sqlite3.connect(archive.path / "scrub.sqlite")) as notes:
        assert notes.execute("SELECT count (*) FROM ranges WHERE pass > 0").fetchone() == (0,)


@pytest.mark.slow
def test_endpoints_that_hash_move_only_what_changed(place):
    """The other has a shell for nobody: that is told, and its stripes are moved as ever."""
    servers = [place.sshd(name) for name in lab.NAMES[:2]]
    servers[1].kill()
    servers[1].subsystem = "internal-sftp\nForceCommand internal-sftp"
    servers[1].start()
    archive = place.archive(servers, "copies:2")
    (place.path / "tree").mkdir()
    for number in range(4):
        lab.write_pattern(place.path / f"tree/file{number}", 300_000, number)
    archive.put_in_full(place.path / "tree", "/")
    assert fsck(archive, "--deep", "--remote-hash", "/tree")[0] == USAGE

    def scrubbed(*words, expected=CLEAN):
        done = lab.run(PROGRAM, archive.path, "--json", "--deep", "--remote-hash", *words, check=False)
        summary = json.loads(done.stdout.splitlines()[-1])
        assert done.returncode == expected and summary["deep"]["stripes"] == 8 and summary["deep"]["whole"], summary
        told = [line for line in done.stderr.splitlines() if "its stripes are read" in line]
        assert len(told) == 1 and servers[1].name in told[0], done.stderr
        return summary["checked_bytes"], summary["deep"]["unchanged"]

    all_bytes, unchanged = scrubbed()
    assert unchanged == 0, "nothing was known"
    assert scrubbed("--bwlimit", "100M", "--max-time", "1h") == (all_bytes // 2, 4)
    lab.flip(next(path for endpoint, path in stored(archive) if endpoint is servers[0]), 70_000)
    moved, unchanged = scrubbed("-y", expected=REPAIRED)
    assert unchanged == 3 and moved < all_bytes * 3 // 4
    assert scrubbed()[1] == 3, "the new stripe's packets were verified"
    assert scrubbed()[1] == 4, "and it was learned"


class Liar:
    """An SSH server whose hash tool says for ever what it said first of a file, and notes that it was asked."""

    def __init__(self, server):
        if not SFTP_SERVER.exists():
            pytest.skip(f"there is no {SFTP_SERVER}: install openssh-sftp-server")
        self.asked, tools = server.directory / "asked", server.directory / "tools"
        tools.mkdir()
        (tools / "head").symlink_to(shutil.which("head"))
        (tools / "sha256sum").write_text(
            f"#!/bin/sh\nPATH=/usr/bin:/bin\necho asked >>{self.asked}\n"
            f"said={server.directory}/said-$(basename $(readlink /proc/self/fd/0))\n"
            "[ -e $said ] || sha256sum >$said\ncat $said\n")
        forced = server.directory / "forced"
        forced.write_text(f"#!/bin/sh\ncase $SSH_ORIGINAL_COMMAND in exec*) PATH={tools} exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\";;\n"
                          f"*) exec {SFTP_SERVER};; esac\n")
        for program in (forced, tools / "sha256sum"):
            program.chmod(0o755)
        server.subsystem = f"{SFTP_SERVER}\nForceCommand {forced}"
        server.restart()

    def n_asked(self):
        return self.asked.read_text().count("\n") if self.asked.exists() else 0


@pytest.mark.slow
def test_with_a_key_no_endpoint_is_asked_for_digests(place):
    """One that has seen the bytes could tell their digest for ever. What it said before there was a key counts no more."""
    servers = [place.sshd(name) for name in lab.NAMES[:2]]
    liar = Liar(servers[0])
    archive = place.archive(servers, "copies:2", "--key", "none")
    for number in range(6):
        lab.write_pattern(place.path / f"file{number}", 300_000, number)
        archive.put_in_full(place.path / f"file{number}", "/")

    def scrubbed(*words):
        done = lab.run(PROGRAM, archive.path, "--json", "--deep", "--remote-hash", *words, check=False)
        summary = json.loads(done.stdout.splitlines()[-1])
        return done, summary

    done, summary = scrubbed()
    all_bytes = summary["checked_bytes"]
    assert liar.n_asked() > 0, done.stderr
    assert scrubbed()[1]["deep"]["unchanged"] == 12
    damaged = next(path for endpoint, path in stored(archive) if endpoint is servers[0])
    lab.flip(damaged, 70_000)
    done, summary = scrubbed()
    assert done.returncode == CLEAN and summary["stripes_damaged"] == 0, "without a key it is believed"
    n_asked = liar.n_asked()
    lab.ecfs("key", "init", archive.path, "--code", "--code-file", place.path / "code")
    done, summary = scrubbed("-y")
    assert "no endpoint is asked for digests" in done.stderr and liar.n_asked() == n_asked
    assert done.returncode == REPAIRED and summary["stripes_damaged"] == 1 and summary["deep"]["unchanged"] == 0, summary
    assert summary["checked_bytes"] >= all_bytes
    lab.ecfs("recode", "--seal", archive.path)
    for _ in range(2):
        assert scrubbed("-y")[1]["deep"]["unchanged"] == 0
    lab.flip(next(path for endpoint, path in stored(archive) if endpoint is servers[0]), 70_000)
    done, summary = scrubbed()
    assert done.returncode == LEFT and summary["stripes_damaged"] == 1 and liar.n_asked() == n_asked
