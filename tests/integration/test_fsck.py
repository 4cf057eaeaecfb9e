"""ecfs-fsck: what is lost or damaged on endpoints is found, told by its file, and stored once more."""
import contextlib
import errno
import itertools
import json
import os
import pty
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
from pathlib import Path

import lab
import pytest

KIB, MIB = 1 << 10, 1 << 20
CLEAN, REPAIRED, LEFT, FAILED, USAGE = 0, 1, 4, 8, 16
TOLERANCE = {"rs:4+2": 2, "ldpc:4+4": 3, "basic:4+4": 2, "copies:3": 2}
PROGRAM = lab.BUILD / "tools/ecfs-fsck"


def fsck(archive, *arguments, **options):
    """The exit status and what was printed."""
    done = lab.run(PROGRAM, archive.path, *arguments, check=False, **options)
    return done.returncode, done.stdout + done.stderr


def facts(archive, *arguments):
    """The exit status, findings and the summary."""
    done = lab.run(PROGRAM, archive.path, "--json", *arguments, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and lines[-1]["about"] == "summary", done.stderr
    return done.returncode, lines[:-1], lines[-1]


def lose(endpoint):
    """All stripes of an endpoint, not its marker: without that it is taken for not mounted."""
    shutil.rmtree(endpoint.root / "stripes")


def serving(place, archive):
    """A mount that has answered: its door is open by then."""
    mount = place.mount(archive)
    os.listdir(mount.path)
    return mount


def tree(place, n_files=24, largest=700 * KIB):
    top = place.path / "tree"
    (top / "below").mkdir(parents=True)
    for number in range(n_files):
        size = (number * 37_717) % largest if number % 3 else number * 211
        lab.write_pattern(top / ("below" if number % 2 else ".") / f"file{number}", size, number)
    lab.write_pattern(top / "large", 5 * MIB + 77, 99)
    with open(top / "sparse", "wb") as sparse:
        sparse.write(b"x" * 70_000)
        sparse.seek(3 * MIB)
        sparse.write(b"y" * 70_000)
    os.link(top / "large", top / "below/again")
    return top


def everything(archive):
    """Digests of the archive directory and of all endpoints, without what SQLite keeps beside a database for readers."""
    roots = [archive.path, *(endpoint.root for endpoint in archive.endpoints)]
    return {str(path): lab.digest(path) for root in roots for path in sorted(root.rglob("*"))
            if path.is_file() and not path.name.endswith(".sqlite-shm")
            and not (path.name.endswith(".sqlite-wal") and path.stat().st_size == 0)}


def catalog(archive):
    return contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite", isolation_level=None))


def rows(archive, query, *values):
    with catalog(archive) as connection:
        return connection.execute(query, values).fetchall()


def stored(archive, path=None):
    """(endpoint, file) of every stripe that the catalog names, or of those of a file in the root directory."""
    query = ("SELECT p.name, o.uuid, s.idx, s.instance FROM stripes s JOIN objects o ON o.id = s.object "
             "JOIN endpoints p ON p.id = s.endpoint")
    if path:
        query += (" WHERE o.id IN (SELECT x.object FROM extents x JOIN entries n ON n.ino = x.ino "
                  f"WHERE n.name = CAST ('{path}' AS BLOB)) ORDER BY s.idx")
    return [(archive[name], archive[name].root / "stripes" / uuid.hex()[:3] / f"{uuid.hex()}-{index:02x}-{instance:016x}")
            for name, uuid, index, instance in rows(archive, query)]


def assert_no_leak(place, archive):
    """What the endpoints hold is what the catalog names, once maintenance has been there."""
    archive.configure("archive", deletion_grace="0")
    mount = place.mount(archive)
    lab.until(lambda: {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
              == {path for _, path in stored(archive)}, 60, "old stripes are deleted")
    mount.umount()


@pytest.mark.parametrize("code", TOLERANCE)
@pytest.mark.slow
def test_any_tolerance_endpoints_come_back(place, code):
    top, tolerance = tree(place, 200, 200 * KIB), TOLERANCE[code]
    n = sum(int(word) for word in code.partition(":")[2].split("+"))
    archive = place.archive(place.directories([f"e{i:02}" for i in range(max(n, 2 * tolerance))]), code)
    archive.put_in_full(top, "/")
    expected = lab.describe_tree(top)
    assert fsck(archive)[0] == CLEAN
    chosen = random.Random(code)
    for lost in chosen.sample(list(itertools.combinations(archive.endpoints, tolerance)), 2):
        for endpoint in lost:
            lose(endpoint)
        status, findings, summary = facts(archive, "-y")
        assert status == REPAIRED, findings
        assert summary["objects_left"] == 0 and summary["stripes_rebuilt"] == summary["stripes_gone"] > 0
        assert all(finding["result"] == "repaired" for finding in findings)
        assert fsck(archive, "--deep")[0] == CLEAN
        others = chosen.sample([endpoint for endpoint in archive.endpoints if endpoint not in lost], tolerance)
        for endpoint in others:
            endpoint.kill()
        assert place.fetched(archive, "/tree") == expected
        for endpoint in others:
            endpoint.start()


@pytest.mark.slow
def test_over_sftp_beside_a_mount(place):
    archive = place.archive([place.sshd(name) for name in lab.NAMES])
    top = tree(place)
    archive.put_in_full(top, "/")
    mount = serving(place, archive)
    reading = open(mount.path / "tree/large", "rb")
    assert fsck(archive)[0] == CLEAN
    for name in ["birch", "ember"]:
        lose(archive[name])
    status, findings, summary = facts(archive, "-n")
    assert status == LEFT and summary["objects_found"] == len(findings) > 0
    assert fsck(archive, "-y")[0] == REPAIRED
    assert fsck(archive, "--deep")[0] == CLEAN
    assert reading.read() == (top / "large").read_bytes()
    reading.close()
    mount.umount()
    for name in ["amber", "fjord"]:
        archive[name].kill()
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.as_users
@pytest.mark.slow
def test_a_clean_archive_is_not_written_to(place, archive):
    archive.put_in_full(tree(place), "/")
    rows(archive, "INSERT INTO intents (object, ino, epoch, sequence, begun_ns) VALUES (zeroblob (16), 0, 1, 1, 0)")
    before = everything(archive)
    assert fsck(archive, "-y")[0] == CLEAN and everything(archive) == before


@pytest.mark.slow
def test_without_yes_nothing_changes(place, archive):
    archive.put_in_full(tree(place), "/")
    lose(archive["cedar"])
    before = everything(archive)
    for arguments in [("-n",), (), ("-n", "--deep"), ("-n", "--json", "/tree/below")]:
        assert fsck(archive, *arguments)[0] == LEFT
        assert everything(archive) == before


@pytest.mark.as_users
@pytest.mark.slow
def test_damage_is_found_by_reading(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    size = (top / "large").stat().st_size
    files = [path for _, path in stored(archive, "large")]
    lab.flip(files[0], 40)                                  # header
    lab.flip(files[1], files[1].stat().st_size // 2)        # packet
    small = [path for _, path in stored(archive, "file10")]
    lab.flip(small[2], small[2].stat().st_size - 100)       # footer
    middle = [path for _, path in stored(archive, "file11")]
    lab.flip(middle[3], middle[3].stat().st_size - 5)       # tail
    assert fsck(archive)[0] == CLEAN, "sizes are what they were"
    status, findings, summary = facts(archive, "--deep")
    assert status == LEFT and summary["stripes_damaged"] == 4 and summary["checked_bytes"] > size
    assert {finding["path"] for finding in findings} <= {"/tree/large", "/tree/below/again", "/tree/file10", "/tree/below/file11"}
    assert sorted(stripe["index"] for finding in findings for stripe in finding["stripes"]) == [0, 1, 2, 3]
    assert fsck(archive, "--deep", "-y")[0] == REPAIRED
    assert fsck(archive, "--deep")[0] == CLEAN
    assert_no_leak(place, archive)
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.as_users
@pytest.mark.slow
def test_every_stripe_damaged_at_another_place_is_made_whole(place, archive):
    """More stripes than the tolerance, but no segment has lost more."""
    top = tree(place)
    archive.put_in_full(top, "/")
    files = [path for _, path in stored(archive, "large")]
    for number, path in enumerate(files):
        lab.flip(path, path.stat().st_size * [1, 2, 5, 6, 85, 95][number] // [10, 10, 10, 10, 100, 100][number])
    status, findings, summary = facts(archive, "--deep", "-y")
    assert status == REPAIRED and summary["stripes_rebuilt"] == 6 and findings[0]["guarantee"] == -1
    assert fsck(archive, "--deep")[0] == CLEAN
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.as_users
@pytest.mark.slow
def test_truncated_and_lost_stripes_are_found_by_listing(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    files = [path for _, path in stored(archive, "large")]
    os.truncate(files[2], 12345)
    os.truncate(files[3], 0)
    status, findings, summary = facts(archive, "-y", "/tree/large")
    assert status == REPAIRED and summary["objects"] == 1 and summary["stripes_damaged"] == 2
    assert fsck(archive, "--deep")[0] == CLEAN
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.slow
def test_only_what_is_named_is_repaired(place, archive):
    archive.put_in_full(tree(place), "/")
    lose(archive["delta"])
    assert fsck(archive, "-y", "/tree/below")[0] == REPAIRED
    assert fsck(archive, "/tree/below")[0] == CLEAN
    assert fsck(archive, "/tree/below", "/tree/file2")[0] == LEFT


@pytest.mark.slow
def test_what_cannot_be_repaired_is_told_by_its_path(place, archive):
    archive.put_in_full(tree(place), "/")
    for _, path in stored(archive, "large")[1:4]:
        path.unlink()
    before = {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
    status, text = fsck(archive, "-y")
    assert status == LEFT and ("/tree/large" in text or "/tree/below/again" in text) and "CANNOT BE READ" in text
    assert {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)} == before
    stored(archive, "file16")[0][1].unlink()
    assert fsck(archive, "-y")[0] == REPAIRED + LEFT


def test_objects_that_are_rebuilt_in_part_count(place, archive):
    lab.write_pattern(place.path / "file", 2 * MIB, 1)
    archive.put_in_full(place.path / "file", "/")
    lab.ecfs("endpoint", "readonly", archive.path, "amber")  # its stripe has no place to go
    for name in ("amber", "birch"):
        os.unlink(lab.stripe_files(archive[name])[0])
    status, text = fsck(archive, "-y")
    assert status == REPAIRED + LEFT and "rebuilt  1 stripes of 1 objects" in text
    lab.ecfs("endpoint", "active", archive.path, "amber")
    status, _, summary = facts(archive, "-y")
    assert status == REPAIRED and summary["stripes_rebuilt"] == summary["objects_rebuilt"] == 1


@pytest.mark.slow
def test_what_can_be_read_is_exported(place, archive):
    """The same packet of three stripes is damaged: one segment is gone, the others are not."""
    top = tree(place)
    archive.put_in_full(top, "/")
    before = (top / "large").read_bytes()
    for _, path in stored(archive, "large")[1:4]:
        lab.flip(path, path.stat().st_size // 10)
    out = place.path / "out"
    status, findings, _ = facts(archive, "-y", "--deep", "--export", out)
    exported = [finding for finding in findings if finding["about"] == "export"]
    damaged = [finding for finding in findings if finding["about"] == "file"]
    assert status & ~REPAIRED == LEFT and len(exported) == 1 and damaged[0]["guarantee"] == -1
    assert sum(stripe.get("helps", False) for stripe in damaged[0]["stripes"]) == len(damaged[0]["stripes"]) == 3
    (start, length), = exported[0]["unreadable"]
    assert exported[0]["path"] in ["/tree/large", "/tree/below/again"] and exported[0]["bytes"] + length == len(before)
    assert 0 < length <= 2 * MIB
    found = (out / exported[0]["path"].lstrip("/")).read_bytes()
    assert found == before[:start] + bytes(length) + before[start + length:]
    assert (out / "unreadable.txt").read_text() == f"{exported[0]['path']}\t{start}\t{length}\n"
    for _, path in stored(archive, "file16"):
        path.unlink()
    status, text = fsck(archive, "-n", "--deep", "--export", place.path / "again")
    assert status == LEFT and "holes" in text and "would make it readable" in text and "more than one" in text
    status, findings, _ = facts(archive, "-n", "--deep", "--export", out)
    again = {finding["path"]: finding for finding in findings if finding["about"] == "export"}
    assert status == LEFT and "file" not in again[exported[0]["path"]] and "file" in again["/tree/file16"]
    assert found == (out / exported[0]["path"].lstrip("/")).read_bytes(), "nothing is written over"
    names_lead_nowhere_else(place, archive)


def names_lead_nowhere_else(place, archive):
    """Whatever a damaged catalog calls files."""
    for name in ["large", "again"]:
        rows(archive, f"UPDATE entries SET name = CAST ('../../escaped' AS BLOB) WHERE name = CAST ('{name}' AS BLOB)")
    out = place.path / "a/b/c/out"
    findings = facts(archive, "-n", "--deep", "--export", out)[1]
    told = {finding["path"]: finding for finding in findings if finding["about"] == "export"}
    assert any("no name" in path and finding["file"] == str(out / path) for path, finding in told.items())
    assert not list(place.path.rglob("escaped")) and (out / "tree/file16").exists()


@pytest.mark.slow
def test_an_endpoint_that_does_not_answer_is_no_loss(place):
    """Seven endpoints, so there would be a place for what it has."""
    archive = place.archive(place.directories([*lab.NAMES, "grove"]))
    archive.put_in_full(tree(place), "/")
    archive["birch"].kill()
    before = {path for _, path in stored(archive)}
    status, findings, summary = facts(archive, "-y", "--deep")
    assert status == LEFT and summary["stripes_unknown"] > 0 and summary["stripes_rebuilt"] == 0
    assert [finding["name"] for finding in findings] == ["birch"]
    assert {path for _, path in stored(archive)} == before
    archive["birch"].start()
    assert fsck(archive, "--deep")[0] == CLEAN


@pytest.mark.slow
def test_what_a_failed_endpoint_had_goes_elsewhere(place):
    archive = place.archive(place.directories([*lab.NAMES, "grove"]))
    top = tree(place)
    archive.put_in_full(top, "/")
    archive["birch"].kill()
    rows(archive, "UPDATE endpoints SET state = 3 WHERE name = 'birch'")
    assert fsck(archive, "-y")[0] == REPAIRED
    assert not any(endpoint.name == "birch" for endpoint, _ in stored(archive))
    assert fsck(archive, "--deep")[0] == CLEAN
    for name in ["grove", "amber"]:
        archive[name].kill()
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.slow
def test_a_mount_reads_what_was_repaired_instead_of_what_was_lost(place):
    archive = place.archive(place.directories(["e0", "e1", "e2"]), code="rs:2+1")
    archive.configure("archive", repair="off")  # what it reads would be repaired before fsck comes
    mount = serving(place, archive)
    expected = lab.write_pattern(mount.path / "file", 9 * MIB, 4)
    archive.await_stored()
    lab.forget_mounts()
    with open(mount.path / "file", "rb") as held:
        held.read(10)
        for name in ["e0", "e1", "e2"]:  # in the end no stripe is what it was
            for path in lab.stripe_files(archive[name]):
                os.truncate(path, 100)  # who has it open is not spared
            assert fsck(archive, "-y")[0] == REPAIRED
        lab.forget_mounts()
        assert lab.digest(mount.path / "file") == expected
        lab.forget_mounts()
        held.seek(5 * MIB)
        with open(mount.path / "file", "rb") as opened:
            opened.seek(5 * MIB)
            assert held.read(MIB) == opened.read(MIB)
    mount.umount()


@pytest.mark.parametrize("code, expected", [("rs:8+8", 8), ("basic:8+8", 4)])
@pytest.mark.slow
def test_a_lost_stripe_costs_what_its_code_takes(place, code, expected):
    archive = place.archive(place.directories([f"e{i:02}" for i in range(16)]), code)
    for number in range(4):
        lab.write_pattern(place.path / f"file{number}", 3 * MIB + number, number)
        archive.put_in_full(place.path / f"file{number}", "/")
    lose(archive["e05"])
    status, findings, summary = facts(archive, "-y")
    assert status == REPAIRED and summary["stripes_rebuilt"] == 4
    assert summary["read_bytes"] / summary["written_bytes"] == pytest.approx(expected, rel=0.01)


@pytest.mark.as_users
@pytest.mark.several_objects
@pytest.mark.slow
def test_files_that_change_meanwhile_are_no_harm(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    mount = serving(place, archive)
    lose(archive["delta"])
    running = subprocess.Popen([PROGRAM, archive.path, "-y", "--json"], stdout=subprocess.PIPE, text=True)
    for number in range(2, 24, 4):
        if number % 8 == 2:
            os.unlink(mount.path / f"tree/file{number}")
            os.unlink(top / f"file{number}")
        else:
            for where in [mount.path / "tree", top]:
                (where / f"file{number}").write_bytes(b"new" * 40_000)
    output, _ = running.communicate(timeout=120)
    results = {json.loads(line).get("result") for line in output.splitlines()} - {None}
    assert running.returncode in [REPAIRED, CLEAN] and results <= {"repaired", "changed"}, output
    expected = {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    assert {path: (mount.path / "tree" / path).read_bytes() for path in expected} == expected
    mount.umount()
    assert fsck(archive, "-y")[0] in [CLEAN, REPAIRED]
    assert fsck(archive, "--deep")[0] == CLEAN
    assert_no_leak(place, archive)


@pytest.mark.as_users
@pytest.mark.slow
def test_killed_it_leaves_nothing_behind(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    for name in ["amber", "delta"]:
        lose(archive[name])
    running = subprocess.Popen([PROGRAM, archive.path, "-y", "--json"], stdout=subprocess.PIPE, text=True)
    running.stdout.readline()
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    assert fsck(archive, "-y")[0] in [REPAIRED, CLEAN]
    assert fsck(archive, "--deep")[0] == CLEAN
    assert_no_leak(place, archive)
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.slow
def test_a_catalog_that_cannot_be_is_told(place, archive):
    archive.put_in_full(tree(place), "/")
    rows(archive, "UPDATE extents SET length = length + 1 WHERE ino = (SELECT ino FROM entries WHERE name = CAST ('large' AS BLOB))")
    status, text = fsck(archive, "-y")
    assert status == LEFT and "catalog: /tree/" in text and "extent" in text


def test_usage(place, archive):
    assert fsck(archive, "-y", "-n")[0] == USAGE
    assert fsck(archive, "--nonsense")[0] == USAGE
    assert fsck(archive, "--bwlimit", "fast")[0] == USAGE
    assert lab.run(PROGRAM, check=False).returncode == USAGE
    assert lab.run(PROGRAM, place.path, check=False).returncode == FAILED
    status, text = fsck(archive, "/nowhere")
    assert status == FAILED and "nowhere" in text
    assert fsck(archive, "--help")[0] == CLEAN


@pytest.mark.slow
def test_what_is_rebuilt_to_other_bytes_is_left(place, archive):
    archive.put(tree(place), "/")
    endpoint, path = stored(archive, "large")[4]
    path.unlink()
    rows(archive, "UPDATE stripes SET digest = zeroblob (16) WHERE instance = ?", int(path.name[-16:], 16))
    status, findings, summary = facts(archive, "-y")
    assert status == LEFT and [finding["result"] for finding in findings] == ["left"]
    assert "digest" in findings[0]["reason"] and stored(archive, "large")[4] == (endpoint, path)
    mount = place.mount(archive)
    lab.until(lambda: {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
              == {path for _, path in stored(archive)} - {path}, 60, "what was rebuilt is deleted")
    mount.umount()


def ask(archive, *requests):
    """The lines that a mount answers."""
    with socket.socket(socket.AF_UNIX) as door, contextlib.chdir(archive.path):
        door.connect("control.sock")
        door.sendall((json.dumps({"verb": "repair", **dict(requests)}) + "\n").encode())
        with door.makefile() as lines:
            return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_the_mount_repairs_only_what_is_still_so(place, archive):
    archive.put(tree(place), "/")
    before = stored(archive, "large")
    mount = serving(place, archive)
    number = rows(archive, "SELECT object FROM stripes WHERE instance = ?", int(before[0][1].name[-16:], 16))[0][0]
    told, last = ask(archive, ("objects", [{"object": number, "stripes": [0, 12345, 1]}]))
    assert told["stored"] == told["read"] == 0 and "error" not in told and last == {"ok": True}
    told, last = ask(archive, ("objects", [{"object": 987654, "stripes": []}]))
    assert told["errno"] == errno.ESTALE and last == {"ok": True}
    for wrong in [None, 7, [7], [{}], [{"object": number}], [{"object": number, "stripes": [1, 2]}],
                  [{"object": number, "stripes": [256, 1, 1]}], [{"object": number, "stripes": ["a", "b", "c"]}]]:
        assert len(ask(archive, ("objects", wrong))) <= 1
    assert stored(archive, "large") == before
    told, last = ask(archive, ("objects", [{"object": number, "stripes": [0, int(before[0][1].name[-16:], 16), 0]}]))
    assert told["stored"] == 1 and stored(archive, "large")[0] != before[0] and stored(archive, "large")[1:] == before[1:]
    assert last == {"ok": True} and mount.mounted()


def on_terminal(archive, *arguments, answer=b""):
    """What a terminal shows, and the exit status."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen([PROGRAM, archive.path, *arguments], stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    os.write(ours, answer)
    shown = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    return running.wait(60), shown.decode()


@pytest.mark.slow
def test_on_a_terminal_it_asks_and_tells_how_far_it_is(place, archive):
    archive.put(tree(place), "/")
    lose(archive["amber"])
    status, shown = on_terminal(archive, answer=b"n\n")
    assert status == LEFT and "Repair " in shown
    status, shown = on_terminal(archive, answer=b"y\n")
    assert status == REPAIRED
    status, shown = on_terminal(archive, "-n", "--deep", "--bwlimit", "8M")  # which takes more than a second
    assert status == CLEAN and "deep: " in shown and " MiB of " in shown and "/s" in shown and "Repair" not in shown


@pytest.mark.slow
def test_stripes_that_the_catalog_does_not_know_are_told_and_stay(place, archive):
    top = tree(place)
    archive.put(top, "/")
    endpoint, path = stored(archive, "large")[2]
    other = path.with_name(path.name[:-16] + "0123456789abcdef")
    unknown = endpoint.root / "stripes/fff/ffffffffffffffffffffffffffffffff-00-0123456789abcdef"
    unknown.parent.mkdir(exist_ok=True)
    for copy in [other, unknown]:
        shutil.copy(path, copy)
    for arguments in [("-n",), ("-y", "--deep")]:
        status, findings, summary = facts(archive, *arguments)
        assert status == CLEAN and summary["orphans"] == 2 and summary["orphan_bytes"] == 2 * path.stat().st_size
        assert {(finding["endpoint"], finding["name"]) for finding in findings} == {
            (endpoint.name, str(copy.relative_to(endpoint.root))) for copy in [other, unknown]}
    assert other.exists() and unknown.exists()
    assert facts(archive, "/tree")[2]["orphans"] == 0, "only where all is checked"


@pytest.mark.slow
def test_what_is_written_and_deleted_meanwhile_is_neither_lost_nor_unknown(place, archive):
    """The grace for what was deleted is longer than the test."""
    top = tree(place)
    archive.put(top, "/")
    mount = serving(place, archive)
    for number in range(2, 24, 2):
        running = subprocess.Popen([PROGRAM, archive.path, "--deep", "--json"], stdout=subprocess.PIPE, text=True)
        os.unlink(mount.path / f"tree/file{number}")
        for copy in range(3):
            shutil.copy(top / "file16", mount.path / f"new{copy}")
        output, _ = running.communicate(timeout=120)
        summary = json.loads(output.splitlines()[-1])
        assert summary["orphans"] == summary["stripes_gone"] == summary["stripes_damaged"] == 0, output
    mount.umount()


@pytest.mark.as_users
@pytest.mark.slow
def test_an_endpoint_that_lost_all_is_given_up_and_replaced(place, archive):
    """Its marker is gone, too, so it is no endpoint of the archive any more."""
    top = tree(place)
    archive.put(top, "/")
    shutil.rmtree(archive["cedar"].root)
    archive["cedar"].root.mkdir()
    status, findings, summary = facts(archive, "-y")
    assert status == LEFT and summary["stripes_unknown"] > 0 and summary["stripes_rebuilt"] == 0
    config = (archive.path / "ecfs.conf").read_text()
    start = config.index("[endpoint cedar]")
    end = config.find("[", start + 1)
    (archive.path / "ecfs.conf").write_text(config[:start] + (config[end:] if end > 0 else ""))
    # Five places are enough for small files only, and one time in a hundred none of those was at this one.
    assert fsck(archive, "-y")[0] & ~REPAIRED == LEFT
    lab.ecfs("endpoint", "add", archive.path, f"cedar2=file://{archive['cedar'].root}")
    status, text = fsck(archive, "-y")
    assert status == REPAIRED, text
    assert not any(name == "cedar" for name, in rows(
        archive, "SELECT p.name FROM stripes s JOIN endpoints p ON p.id = s.endpoint"))
    assert fsck(archive, "--deep")[0] == CLEAN
    for name in ["amber", "fjord"]:
        archive[name].kill()
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


@pytest.mark.slow
def test_nonsense_about_one_object_is_told_and_the_others_are_repaired(place, archive):
    archive.put_in_full(tree(place), "/")
    lose(archive["cedar"])
    rows(archive, "UPDATE objects SET code = 'rs:99+99' WHERE id = "
                  "(SELECT x.object FROM extents x JOIN entries n ON n.ino = x.ino WHERE n.name = CAST ('file4' AS BLOB))")
    status, findings, summary = facts(archive, "-y", "--deep")
    told = [finding for finding in findings if finding["about"] == "catalog"]
    assert status == LEFT + REPAIRED and [finding["path"] for finding in told] == ["/tree/file4"]
    assert "99" in told[0]["text"]
    assert summary["objects_repaired"] > 0 and summary["objects_left"] == 0
    status, findings, summary = facts(archive)
    assert status == LEFT and [finding["about"] for finding in findings] == ["catalog"]


@pytest.mark.slow
def test_nothing_is_repaired_by_a_catalog_that_is_damaged(place, archive):
    """An index that lacks what its table has."""
    archive.put(tree(place), "/")
    schema = "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'extents_by_object'"
    with catalog(archive) as connection:
        index = connection.execute(schema).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'extents_by_object'")
    with catalog(archive) as connection:
        connection.execute("UPDATE extents SET object = (SELECT max (object) FROM extents) "
                           "WHERE object = (SELECT min (object) FROM extents)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", index)
    lose(archive["ember"])
    queue_deletions(archive)
    before = everything(archive)
    status, text = fsck(archive, "-y")
    assert status == LEFT and "SQLite finds" in text and "deal with the catalog first" in text
    assert everything(archive) == before, "nothing is written before the catalog is known to be sound"


def queue_deletions(archive):
    """Has the catalog say of every stripe that it is to be deleted at once."""
    rows(archive, "INSERT INTO deletions (object, idx, instance, endpoint, queued_age_ns, at_once, sequence) "
                  "SELECT o.uuid, s.idx, s.instance, s.endpoint, 0, 1, 0 FROM stripes s JOIN objects o ON o.id = s.object")
    rows(archive, "UPDATE counters SET n_deletions = (SELECT count (*) FROM deletions)")


@pytest.mark.slow
def test_what_an_object_has_is_not_deleted(place, archive):
    top = tree(place)
    archive.put_in_full(top, "/")
    queue_deletions(archive)
    rows(archive, "INSERT INTO intents (id, object, ino, epoch, sequence, begun_ns) "
                  "SELECT 1000, uuid, 0, epoch, sequence, 0 FROM objects ORDER BY id LIMIT 1")
    rows(archive, "INSERT INTO intent_stripes (intent, idx, instance, endpoint) SELECT 1000, idx, instance, endpoint "
                  "FROM stripes WHERE object = (SELECT min (id) FROM objects)")
    before = {path for _, path in stored(archive)}
    status, findings, _ = facts(archive, "-y")
    texts = [finding["text"] for finding in findings if finding["about"] == "catalog"]
    assert status == LEFT and any("queued for deletion" in text for text in texts)
    assert any("announced" in text for text in texts)
    mount = place.mount(archive)
    lab.until(lambda: rows(archive, "SELECT count (*) FROM deletions") == [(0,)], 60, "the queue is worked off")
    mount.umount()
    assert {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)} == before
    assert fsck(archive, "--deep")[0] == CLEAN
    assert place.fetched(archive, "/tree") == lab.describe_tree(top)


def journal_of(endpoint):
    return [path for kind in ("journal", "snapshots") for path in (endpoint.root / kind).glob("*") if path.is_file()]


def flip(path):
    lab.flip(path, path.stat().st_size // 2)


@pytest.mark.parametrize("is_mounted, damage", [(False, Path.unlink), (True, Path.unlink), (False, flip)])
@pytest.mark.slow
def test_a_lost_journal_is_found_and_stored_anew(place, is_mounted, damage):
    """Endpoints lose journal and snapshots one at a time, and are repaired in between; then the machine is lost."""
    depth = ["--deep"] if damage == flip else []
    names = ["amber", "birch", "cedar", "dogwood", "elm", "fir"]
    archive = place.archive(place.directories(names), code="rs:4+2")
    source = place.path / "source"
    digest = lab.write_pattern(source, 100 * KIB)
    for number in range(4):
        archive.put_in_full(source, f"/file{number}")
    lab.ecfs("wait", archive.path, "--unmounted")
    mount = serving(place, archive) if is_mounted else None
    assert fsck(archive, "-y")[0] in (CLEAN, REPAIRED)  # the first snapshot may not have been due
    assert fsck(archive, "-n")[0] == CLEAN
    for name in names:
        assert journal_of(archive[name]), name
        for path in journal_of(archive[name]):
            damage(path)
        status, findings, summary = facts(archive, "-n", *depth)
        assert status == LEFT and summary["journals_left"] == 1, (name, findings)
        assert [(found["about"], found["name"], found["result"]) for found in findings] == [("journal", name, "left")]
        status, findings, summary = facts(archive, "-y", *depth)
        assert status == REPAIRED and summary["journals_repaired"] == 1, (name, findings)
        assert journal_of(archive[name]), name
        status, findings, _ = facts(archive, "-n", *depth)
        assert status == CLEAN, (name, findings)
    if mount is not None:
        mount.umount()
    for name in names[:2]:
        archive[name].kill()
    recovered = place.path / "recovered"
    lab.ecfs("recover", recovered, "--force", *[word for name in names[2:] for word in ("-e", archive[name].endpoint())])
    for number in range(4):
        lab.ecfs("get", recovered, f"/file{number}", place.path)
        assert lab.digest(place.path / f"file{number}") == digest


@pytest.mark.slow
def test_few_open_files_are_no_reason_to_lose_any(place):
    """The usual limit of 1,024 is less than 14 directories may have open; a program may raise its own."""
    archive = place.archive(place.directories([f"e{i:02}" for i in range(14)]), "ldpc:8+6")
    source = place.path / "source"
    lab.write_pattern(source, 3 * MIB, 1)
    archive.put_in_full(source, "/file")
    for path in lab.stripes_of_one_object(archive.endpoints[:3]):
        path.unlink()
    few = lab.run("prlimit", "--nofile=200:200", lab.PROGRAM.with_name("ecfs-fsck"), archive.path, "-y", check=False)
    assert few.returncode > 0 and "Too many open files" in few.stdout + few.stderr
    lab.run("prlimit", "--nofile=48:", lab.PROGRAM.with_name("ecfs-fsck"), archive.path, "-y", check=False)  # 1: repaired
    lab.run(lab.PROGRAM.with_name("ecfs-fsck"), archive.path, "-n", "--deep")
