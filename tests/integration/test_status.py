"""`ecfs status` begins with what is wrong, since when, and what to type, whatever is wrong; scripts get it as exit codes."""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import stat
import time

import lab
import pytest
from test_lineage import forge

pytestmark = pytest.mark.long

MIB = 1 << 20


@pytest.fixture
def filled(place, archive):
    """Six directories, a file in the archive."""
    lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    return archive


def check(archive):
    """The exit code for scripts, the JSON object and the first screen, which agree."""
    done = lab.ecfs("status", archive.path, "--check", "--json", check=False)
    facts = json.loads(done.stdout)
    assert facts["check"] == done.returncode
    told = lab.ecfs("status", archive.path, check=False)
    return done.returncode, facts, told.stdout + told.stderr


def test_a_healthy_archive(place, filled):
    code, facts, text = check(filled)
    assert (code, facts["verdict"], facts["problems"]) == (0, "healthy", [])
    assert text.splitlines()[0] == "state      HEALTHY" and "not mounted" in text
    assert facts["free_bytes"] > 0 and "room       for 0 B" not in text, "room is asked for without a mount, too"
    place.mount(filled)
    assert check(filled)[0] == 0


@pytest.mark.slow
def test_room_that_nobody_has_told_yet_is_not_known(place, monkeypatch):
    """Six endpoints are needed, and one of these takes its time to say how much room it has."""
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    archive = place.archive(place.directories())
    lab.write_pattern(place.path / "source", MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    new = place.directories(["grove"])[0]
    flaws = place.path / "flaws"
    flaws.write_text("space 1+ delay 4000\n")
    lab.ecfs("endpoint", "readonly", archive.path, "amber")
    mount = place.mount(archive)
    lab.until(lambda: "room       for" in lab.ecfs("status", archive.path).stdout, 60, "five make do")
    lab.ecfs("endpoint", "add", archive.path, f"grove=flaw+file://{new.root},flaws={flaws}")
    texts = []
    def is_told():
        texts.append(lab.ecfs("status", archive.path).stdout)
        return len(texts) > 20 and "room       for" in texts[-1]
    lab.until(is_told, 180, "it has said how much room it has", pause=0.2)
    assert any("room       not known yet" in text for text in texts)
    assert not any("room       none" in text for text in texts)
    mount.umount()


@pytest.mark.slow
def test_an_endpoint_that_is_down_is_told_with_since_and_command(place, filled):
    began = time.time()
    mount = place.mount(filled)
    lab.until(lambda: filled.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    filled["birch"].kill()
    note = filled.path / "down-since"  # until that is there, each who asks is told when it was asked
    lab.until(lambda: filled.json("status")["verdict"] == "degraded" and note.exists(), 120, "it is noticed, and noted")
    code, facts, text = check(filled)
    assert code == 1 and "birch" in facts["reason"] and "any 1 more endpoint may vanish" in facts["meaning"]
    assert began - 1 <= facts["since"] <= time.time()
    assert text.startswith("state      DEGRADED since ")
    assert "fsck does nothing" in facts["advice"] and "endpoint replace" in facts["advice"]
    assert facts["action"] == f"ecfs endpoint test {filled.path} birch" and facts["action"] in text
    mount.umount()
    later = check(filled)[1]
    assert later["since"] == facts["since"], "since when it is down outlives the mount"
    note.write_text(note.read_text().replace(str(facts["since"]), str(facts["since"] - 40 * 86400)))
    assert check(filled)[1]["action"] == f"ecfs endpoint replace {filled.path} birch NEW=URL", "it is long gone"
    filled["birch"].start()
    mount.start()
    lab.until(lambda: str(facts["since"] - 40 * 86400) not in note.read_text(), 60, "it is back")
    lab.until(lambda: check(filled)[0] == 0, 60, "all is well")


def test_an_endpoint_that_was_emptied_is_told_the_way_back(filled):
    shutil.rmtree(filled["delta"].root)
    filled["delta"].root.mkdir()
    code, facts, text = check(filled)
    assert code == 1 and facts["action"] == f"ecfs endpoint replace {filled.path} delta" and facts["action"] in text


@pytest.mark.slow
def test_what_no_further_loss_leaves_readable_is_at_risk(filled):
    for name in ["amber", "birch"]:
        filled[name].kill()
    code, facts, _ = check(filled)
    assert (code, facts["verdict"]) == (2, "at risk")
    filled["cedar"].kill()
    code, facts, text = check(filled)
    assert (code, facts["verdict"]) == (2, "unreadable") and "3 of 6" in text
    for name in ["delta", "ember", "fjord"]:
        filled[name].kill()
    assert check(filled)[1]["meaning"] == "No file can be read until endpoints answer."


@pytest.mark.slow
def test_unreadable_and_at_risk_begin_when_that_was_lost_which_was_one_too_many(place, filled):
    """Not when the first endpoint went."""
    note = filled.path / "down-since"
    mount = place.mount(filled)
    lab.until(lambda: filled.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    for name in ["amber", "birch", "cedar"]:
        filled[name].kill()
    lab.until(lambda: note.exists() and note.read_text().count("=") == 3, 120, "all three are noted")
    mount.umount()
    uuids = {one["name"]: one["uuid"] for one in filled.json("status")["endpoints"]}
    first = int(time.time()) - 5000
    went = {"birch": first, "cedar": first + 1000, "amber": first + 3000}
    note.write_text("[down-since]\n" + "".join(f"{uuids[name]}={since}\n" for name, since in went.items()))
    code, facts, _ = check(filled)
    assert (code, facts["verdict"], facts["since"]) == (2, "unreadable", went["amber"])
    metrics = lab.ecfs("metrics", filled.path).stdout.splitlines()
    age, = [float(line.split()[-1]) for line in metrics if line.startswith(("ecfs_trouble_age_seconds{", "ecfs_trouble_age_seconds "))]
    assert 1990 < age < 2300
    filled["amber"].start()
    code, facts, _ = check(filled)
    assert (code, facts["verdict"], facts["since"]) == (2, "at risk", went["cedar"])
    filled["cedar"].start()
    code, facts, _ = check(filled)
    assert (code, facts["verdict"], facts["since"]) == (1, "degraded", went["birch"])


def waits(archive):
    return lab.ecfs("wait", "--unmounted", archive.path, check=False)


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_what_distrusted_endpoints_have_counts_as_lost_for_whoever_is_asked(place, filled, mounted):
    if mounted:
        place.mount(filled)
        lab.until(lambda: check(filled)[0] == 0, 60, "all is well")
    lab.ecfs("endpoint", "distrust", filled.path, "ember")
    code, facts, text = check(filled)
    assert (code, facts["verdict"], facts["objects"]["guarantee"]) == (1, "degraded", 1), text
    assert "ember is distrusted" in facts["reason"] and "any 1 more endpoint may vanish" in facts["meaning"]
    assert facts["action"] == f"ecfs endpoint add {filled.path} NAME=URL", "five endpoints cannot hold six stripes"
    waited = waits(filled)
    assert waited.returncode == 1 and "/file: 1 of its stripes" in waited.stderr and "ember is distrusted" in waited.stderr
    assert lab.ecfs("wait", "--unmounted", filled.path, "/file", check=False).returncode == 1
    assert lab.ecfs("drill", filled.path, check=False).returncode == 1
    problems = [line for line in lab.ecfs("metrics", filled.path).stdout.splitlines() if line.startswith("ecfs_problems{")]
    assert any('"degraded"' in line and line.endswith(" 1") for line in problems), problems
    lab.ecfs("endpoint", "distrust", filled.path, "fjord")
    code, facts, _ = check(filled)
    assert (code, facts["verdict"]) == (2, "at risk") and "no further endpoint may vanish" in facts["meaning"]
    page = place.path / "status.html"
    lab.ecfs("status", "--html", page, filled.path, check=False)
    assert "AT RISK" in page.read_text().upper() and "HEALTHY" not in page.read_text().upper()
    spares = place.directories(["gorse", "hazel"])
    lab.ecfs("endpoint", "add", filled.path, *(spare.endpoint() for spare in spares))
    action = check(filled)[1]["action"]
    assert action == f"ecfs fsck -y {filled.path}"
    lab.run(lab.PROGRAM, *action.split()[1:], check=False)
    lab.until(lambda: check(filled)[0] == 0, 60, "all is rebuilt elsewhere")
    assert waits(filled).returncode == 0 and lab.ecfs("drill", filled.path, check=False).returncode == 0
    for name in ["amber", "birch"]:
        filled[name].kill()
    lab.ecfs("get", filled.path, "/file", place.path / "back")
    assert (place.path / "back").read_bytes() == (place.path / "source").read_bytes()


@pytest.mark.parametrize("how", ["distrust", "readonly"])
@pytest.mark.slow
def test_what_no_endpoint_is_left_for_is_told(place, filled, how):
    mount = place.mount(filled)
    lab.until(lambda: check(filled)[0] == 0, 60, "all is well")
    (mount.path / "file").unlink()
    lab.ecfs("endpoint", how, filled.path, "birch")
    (mount.path / "new").write_bytes(b"bytes" * 300_000)
    lab.ecfs("wait", "--quorum", filled.path)
    code, facts, text = check(filled)
    assert code == 1 and "1 objects lack stripes that no endpoint is left for: birch is" in facts["reason"], text
    waited = waits(filled)
    word = "distrusted" if how == "distrust" else how
    assert waited.returncode == 1 and f"endpoint birch is {word}" in waited.stderr, waited.stderr
    spare, = place.directories(["gorse"])
    lab.run(lab.PROGRAM, *facts["action"].split()[1:-1], spare.endpoint())
    lab.until(lambda: check(filled)[0] == 0 and waits(filled).returncode == 0, 120, "it is full")
    mount.umount()


@pytest.mark.slow
def test_damage_is_told(filled):
    for stripe in lab.stripe_files(filled["cedar"]):
        lab.flip(stripe, stripe.stat().st_size // 2)
    lab.run(lab.BUILD / "tools/ecfs-fsck", "--deep", filled.path, check=False)
    code, facts, text = check(filled)
    assert code == 1 and "damaged" in facts["reason"] and facts["action"] in text
    lab.run(lab.PROGRAM, *facts["action"].split()[1:], check=False)
    assert check(filled)[0] == 0


@pytest.mark.slow
def test_what_waits_for_a_mount_is_told(place, archive):
    mount = place.mount(archive, "-o", "rw")
    for endpoint in archive.endpoints:
        endpoint.kill()
    lab.until(lambda: check(archive)[0] == 2, 60, "they are missed")
    fd = os.open(mount.path / "new", os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"x" * MIB)
    os.fsync(fd)
    mount.kill()
    with contextlib.suppress(OSError):  # the mount is gone
        os.close(fd)
    for endpoint in archive.endpoints:
        endpoint.start()
    code, facts, text = check(archive)
    assert (code, facts["verdict"]) == (1, "not stored") and "1 file is only on this machine" in text
    assert facts["action"] == f"ecfs mount {archive.path} MOUNTPOINT"


def test_an_old_copy_is_told_without_a_mount(place, filled):
    copy = place.path / "copy"
    shutil.copytree(filled.path, copy)
    lab.write_pattern(place.path / "source", 2 * MIB, 2)
    filled.put_in_full(place.path / "source", "/other")
    shutil.rmtree(filled.path)
    copy.rename(filled.path)
    code, facts, text = check(filled)
    assert (code, facts["verdict"]) == (2, "old copy") and "old copy" in text
    assert facts["action"] == f"ecfs takeover {filled.path}"


@pytest.mark.parametrize("damage", ["catalog", "no catalog", "no configuration"])
def test_a_broken_archive(filled, damage):
    catalog, config = filled.path / "catalog.sqlite", filled.path / "ecfs.conf"
    if damage == "catalog":
        sqlite3.connect(catalog).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        catalog.write_bytes(b"rubbish" * 1000)
    else:
        (catalog if damage == "no catalog" else config).unlink()
    code, facts, text = check(filled)
    assert (code, facts["verdict"]) == (2, "broken")
    assert facts["action"] == f"ecfs recover {filled.path}.new --endpoint URL..." and facts["action"] in text
    assert "BROKEN" in text and "ecfs init" not in text, "a new archive in its place would be the end of it"
    assert lab.ecfs("status", filled.path, check=False).returncode == 1


def test_the_directory_is_quoted_for_the_shell(place):
    archive = lab.Archive(place.path / "my archive's", place.directories())
    archive.init()
    archive["amber"].kill()
    action = check(archive)[1]["action"]
    assert lab.run("sh", "-c", f"set -- {action}; printf %s \"$4\"").stdout == str(archive.path)


def test_a_hook_is_told_what_happens_to_endpoints(place, archive):
    log, hook = place.path / "told", place.path / "hook with a blank"
    hook.write_text(f'#!/bin/sh\nprintf "%s|" "$@" "$ECFS_EVENT" "$ECFS_ENDPOINT" "$ECFS_REASON" >> {log}\necho >> {log}\n')
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    archive.configure("archive", hook=f"'{hook}' first")
    place.mount(archive)
    lab.until(lambda: archive.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    archive["birch"].kill()
    lab.until(log.exists, 60, "it is told")
    words = log.read_text().splitlines()[0].split("|")
    assert words[:6] == ["first", "down", str(archive.path), "birch", "down", "birch"] and "birch" in words[6]
    assert len(log.read_text().splitlines()) == 1, "once is enough"
    database = sqlite3.connect(f"file:{archive.path}/catalog.sqlite?mode=ro", uri=True)
    kept = {key for key, in database.execute("SELECT key FROM settings")}
    assert "repair" in kept and "hook" not in kept, "a command must not come back from what endpoints say"


def test_a_hook_is_told_of_damage(place, filled):
    log, hook = place.path / "told", place.path / "hook"
    hook.write_text(f'#!/bin/sh\nprintf "%s|" "$1" "$2" "$3" "$ECFS_REASON" >> {log}\n')
    hook.chmod(0o700)
    filled.configure("archive", hook=hook)
    first = next(stripe for stripe in filled.json("info", "/file")["stripes"] if stripe["index"] == 0)
    stripe = lab.stripe_files(filled[first["endpoint"]])[0]
    lab.flip(stripe, 4096 + 1000)
    # Else the mount repairs before it is seen; and before it is mounted, as what it has open it reads for a while.
    filled["ember" if first["endpoint"] != "ember" else "fjord"].kill()
    filled["delta" if first["endpoint"] != "delta" else "cedar"].kill()
    mount = place.mount(filled)

    def is_told():
        with contextlib.suppress(OSError):  # three of six: it cannot be read now, and what was met counts
            lab.digest(mount.path / "file")
        return log.exists() and "damaged" in log.read_text()
    lab.until(is_told, 60, "it is told")
    words = log.read_text().split("|")
    assert words[words.index("damaged") + 1] == str(filled.path)


@pytest.mark.parametrize("mounted", [True, False])
def test_what_vanished_a_moment_ago_is_told_at_the_first_look(place, filled, mounted):
    if mounted:
        place.mount(filled)
        lab.until(lambda: filled.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    filled["birch"].kill()
    code, facts, text = check(filled)
    assert (code, facts["verdict"]) == (1, "degraded") and "birch" in facts["reason"] and "birch" in text
    assert "any 1 more endpoint may vanish" in facts["meaning"]
    assert [one["name"] for one in facts["endpoints"] if one["state"] == "down"] == ["birch"]
    for name in ["amber", "cedar"]:
        filled[name].kill()
    assert check(filled)[1]["verdict"] == "unreadable"


@pytest.mark.parametrize("mounted", [True, False])
@pytest.mark.slow
def test_an_endpoint_that_hangs_is_told_and_not_waited_for(place, mounted):
    servers = [place.sshd(name) for name in ["gorse", "hazel"]]
    archive = place.archive([*place.directories(lab.NAMES[:4]), *servers])
    (place.path / "source").write_bytes(b"x" * 1000)
    archive.put_in_full(place.path / "source", "/file")
    if mounted:
        place.mount(archive)
        lab.until(lambda: archive.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    servers[1].suspend()
    began = time.monotonic()
    facts = archive.json("status")
    took = time.monotonic() - began
    servers[1].resume()
    assert facts["verdict"] == "degraded" and "hazel" in facts["reason"], facts["reason"]
    assert {one["name"]: one["state"] for one in facts["endpoints"]}["hazel"] in ["silent", "down"]
    assert took < 9, f"{took} s: a connection is waited for 10 s, and a stalled one longer"


def recover(place, archive, *options):
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    return lab.ecfs("recover", place.path / "new", "--force", *options, *words)


def test_a_fenced_copy_tells_who_took_over_and_when(place, filled):
    began = int(time.time())
    filled.configure("endpoint amber", zone="attic", stall_timeout="9s")
    recover(place, filled)
    code, facts, text = check(filled)
    host = os.uname().nodename
    assert (code, facts["verdict"]) == (2, "old copy")
    assert began <= facts["since"] <= time.time() and facts["reason"].startswith(f"the archive was recovered on {host}: ")
    successor = facts["successor"]
    assert (successor["epoch"], successor["host"], successor["since"]) == (facts["epoch"] + 1, host, facts["since"])
    assert text.startswith("state      OLD COPY since ") and f"Use the newer archive directory on {host}" in text
    assert facts["action"] == f"ecfs takeover {filled.path}" and facts["action"] in text
    assert "if it lies" not in text, "all say so"


@pytest.mark.slow
def test_what_an_old_copy_had_stored_is_not_told_as_lost(place, filled):
    mount = place.mount(filled)
    (mount.path / "names").mkdir()
    filled.await_stored()
    mount.umount()
    pending = filled.json("status")["recovery_point"]["pending"]
    recover(place, filled)
    facts = check(filled)[1]
    assert facts["verdict"] == "old copy" and facts["unstored"]["files"] == facts["unstored"]["changes"] == 0
    assert facts["recovery_point"]["pending"] == pending == 0 and facts["recovery_point"]["time"] > 0
    page = place.path / "page.html"
    lab.ecfs("status", "--html", page, filled.path)
    assert "no name would be lost with it" in page.read_text() and "nothing yet" not in page.read_text()


@pytest.mark.slow
def test_a_copy_for_reading_is_no_fault(place, filled):
    recover(place, filled, "--read-only")
    copy = lab.Archive(place.path / "new", filled.endpoints)
    code, facts, text = check(copy)
    assert (code, facts["verdict"]) == (0, "read only") and "recovered for reading only" in facts["reason"]
    assert facts["action"].startswith(f"ecfs recover {place.path}/new.new -e amber=") and facts["action"] in text
    assert facts["recovery_point"]["pending"] == 0 and "bytes" not in facts["past"]
    assert "came from the endpoints" in text and "only here" not in text and "it takes" not in text
    assert check(filled)[:1] == (0,)
    filled["birch"].kill()
    (filled["cedar"].root / "ecfs-endpoint").write_text("rubbish")
    code, facts, text = check(copy)
    assert code == 2 and facts["action"].startswith(f"ecfs endpoint test {copy.path} ")
    for command in ("endpoint replace", "fsck -y", "endpoint drain"):
        assert command not in "".join(problem["advice"] + problem.get("action", "") for problem in facts["problems"]), facts["problems"]
    assert "whoever writes the archive replaces it" in text


@pytest.mark.slow
def test_a_mount_that_was_stopped_is_named(place, filled):
    mount = place.mount(filled)
    os.kill(mount.process.pid, signal.SIGSTOP)
    try:
        words = [["status", mount.path, "--check", "--json"], ["metrics", filled.path],
                 ["put", filled.path, place.path / "source", "/other"], ["umount", mount.path], ["log", filled.path, "/file"]]
        with concurrent.futures.ThreadPoolExecutor() as pool:  # each is patient for 10 seconds
            told, metrics, put, umount, log = pool.map(lambda one: lab.ecfs(*one, check=False), words)
        facts = json.loads(told.stdout)
        assert (told.returncode, facts["check"], facts["verdict"], facts["mounted"]) == (2, 2, "unreadable", False)
        assert facts["silent_mount"] == {"pid": mount.process.pid, "mountpoint": str(mount.path), "stopped": True}
        assert f"the mount on {mount.path} does not answer" in facts["reason"] and facts["objects"]["full"] > 0
        assert re.search(r'^ecfs_problems\{.*verdict="unreadable"\} 1$', metrics.stdout, re.M)
        for done in (put, umount):
            assert done.returncode == 1 and f"its process, {mount.process.pid}, was stopped, or hangs" in done.stderr
        assert "appeared" in log.stdout and mount.mounted()
        assert facts["action"] == f"kill -CONT {mount.process.pid}"
    finally:
        os.kill(mount.process.pid, signal.SIGCONT)
    assert check(filled)[0] == 0


@pytest.mark.slow
def test_what_is_damaged_does_not_return_with_an_endpoint(place, filled):
    for endpoint in filled.endpoints[:3]:
        shutil.rmtree(endpoint.root / "stripes")
        (endpoint.root / "stripes").mkdir()
    assert filled.get("/file", place.path / "back", check=False).returncode == 1
    code, facts, text = check(filled)
    assert (code, facts["objects"]["guarantee"]) == (2, -1)
    assert "too many of their stripes are damaged or gone" in text and "before endpoints return" not in text
    for endpoint in filled.endpoints[3:]:
        endpoint.kill()
    assert "cannot be read before endpoints return" in check(filled)[2]


def test_what_is_in_the_cache_is_read_without_endpoints(place, filled):
    filled.configure("archive", cache_size="20M")
    lab.ecfs("warm", filled.path, "/file")
    for endpoint in filled.endpoints:
        endpoint.kill()
    code, facts, _ = check(filled)
    assert (code, facts["verdict"]) == (2, "unreadable") and "but for what is in the cache" in facts["meaning"]
    filled.get("/file", place.path / "back")
    assert lab.digest(place.path / "back") == lab.digest(place.path / "source")


@pytest.mark.parametrize("n_claimed", [6, 1])
def test_a_recovery_under_way_is_told(filled, n_claimed):
    for endpoint in filled.endpoints[:n_claimed]:
        with open(endpoint.root / "ecfs-endpoint", "a") as marker:
            marker.write("claim_epoch=9\nclaim_session=01234567-89ab-4cde-8f01-23456789abcd\nclaim_count=3\n"
                         "claim_since=1700000000\nclaim_host=elsewhere\n")
    code, facts, text = check(filled)
    assert (code, facts["verdict"], facts["since"]) == (1, "being recovered", 1700000000)
    assert facts["claim"] == {"epoch": 9, "host": "elsewhere", "since": 1700000000, "endpoints": n_claimed}
    assert ("held" in facts) == (n_claimed == 6)
    assert "ecfs recover runs for this archive on elsewhere" in text and facts["action"] in text


@pytest.mark.slow
def test_an_endpoint_that_contradicts_the_others_is_named_without_a_mount(filled):
    forge(filled["cedar"], epoch=4294967295)
    code, facts, text = check(filled)
    assert (code, facts["verdict"]) == (1, "degraded") and "endpoint cedar knows of epoch 4294967295" in facts["reason"]
    assert facts["action"] == f"ecfs endpoint distrust {filled.path} cedar" and facts["action"] in text
    lab.run(lab.PROGRAM, *facts["action"].split()[1:])
    code, facts, _ = check(filled)
    assert {one["name"]: one["state"] for one in facts["endpoints"]}["cedar"] == "distrusted"
    assert not any("disagrees" in one for one in facts["endpoints"])
    filled["birch"].root.joinpath("ecfs-endpoint").write_text("rubbish")
    assert "birch" in check(filled)[1]["reason"]


CHANGING = {
    "put": ["{archive}", "{file}", "/other"],
    "mkdir": ["{archive}", "/directory"],
    "mv": ["{archive}", "/file", "/moved"],
    "rm": ["{archive}", "/file"],
    "recode": ["{archive}", "--code", "rs:3+2", "/"],
    "fsck": ["-y", "{archive}"],
    "fsck --deep": ["-y", "{archive}"],
    "fsck --prune": ["-y", "{archive}"],
    "wait": ["--unmounted", "{archive}"],
    "destroy": ["{archive}", "--yes"],
    "endpoint add": ["{archive}", "new={url}"],
    "endpoint readonly": ["{archive}", "amber"],
    "endpoint active": ["{archive}", "amber"],
    "endpoint drain": ["{archive}", "amber"],
    "endpoint replace": ["{archive}", "amber", "new={url}"],
    "endpoint remove": ["{archive}", "amber"],
}


def stored(archive):
    return {str(path): path.read_bytes() for endpoint in archive.endpoints for path in lab.files_below(endpoint.root)}


@pytest.mark.slow
def test_verbs_that_change_something_fail_on_a_fenced_copy(place, filled):
    recover(place, filled)
    before, wrong = stored(filled), {}
    for verb, words in CHANGING.items():
        words = [word.format(archive=filled.path, file=__file__, url=f"file://{place.path}/fresh") for word in words]
        done = lab.ecfs(*verb.split(), *words, check=False)
        if done.returncode in (0, 2, 16) or "is an old copy" not in done.stderr or stored(filled) != before:
            wrong[verb] = (done.returncode, done.stdout, done.stderr)
        before = stored(filled)
    assert not wrong


@pytest.mark.parametrize("mounted", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_endpoints_that_were_put_back_are_named_until_all_stripes_were_looked_at(place, filled, mounted):
    """The mount closes the gap of their journal, and what else they lack it does not know."""
    put_back = [filled["amber"], filled["birch"]]
    mount = place.mount(filled)
    filled.await_stored()
    for endpoint in put_back:
        shutil.copytree(endpoint.root, place.path / f"earlier-{endpoint.name}")
    for number in range(3):
        lab.write_pattern(mount.path / f"later-{number}", 300_000, number)
    filled.await_stored()
    mount.umount()
    assert check(filled)[0] == 0
    for endpoint in put_back:
        shutil.rmtree(endpoint.root)
        shutil.copytree(place.path / f"earlier-{endpoint.name}", endpoint.root)
    mount.start()
    note = filled.path / "journal-gaps"
    lab.until(lambda: note.exists() and all(one in lab.ecfs("status", filled.path, check=False).stdout
                                            for one in ("amber, birch", "put back")), 150,
              "the mount has looked, which it does a minute after it began")
    if not mounted:
        mount.umount()
    code, facts, text = check(filled)
    assert (code, facts["verdict"], facts["action"]) == (1, "degraded", f"ecfs fsck -y {filled.path}"), facts["problems"]
    assert "amber, birch" in facts["reason"] and "journal has a gap" in facts["reason"] and facts["action"] in text
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", filled.path, check=False)
    assert note.exists(), "it was only looked at"
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", filled.path, check=False)
    assert done.returncode == 1, "stripes were missing, and were rebuilt: " + done.stdout
    assert not note.exists()
    lab.until(lambda: check(filled)[0] == 0, 60, "all is well")
