"""`ecfs status` begins with what is wrong, since when, and what to type, whatever is wrong; scripts get it as exit codes."""
import contextlib
import json
import os
import shutil
import sqlite3
import stat
import time

import lab
import pytest

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


def test_an_endpoint_that_is_down_is_told_with_since_and_command(place, filled):
    began = time.time()
    mount = place.mount(filled)
    lab.until(lambda: filled.json("status")["verdict"] == "healthy", 60, "all endpoints are there")
    filled["birch"].kill()
    lab.until(lambda: filled.json("status")["verdict"] == "degraded", 120, "it is noticed")
    code, facts, text = check(filled)
    assert code == 1 and "birch" in facts["reason"] and "any 1 more endpoint may vanish" in facts["meaning"]
    assert began - 1 <= facts["since"] <= time.time()
    assert text.startswith("state      DEGRADED since ")
    assert "fsck does nothing" in facts["advice"] and "endpoint replace" in facts["advice"]
    assert facts["action"] == f"ecfs endpoint test {filled.path} birch" and facts["action"] in text
    note = filled.path / "down-since"
    lab.until(note.exists, 30, "it is noted")
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
    assert check(filled)[1]["meaning"] == "No file can be read before endpoints answer."


def test_damage_is_told(filled):
    for stripe in lab.stripe_files(filled["cedar"]):
        lab.flip(stripe, stripe.stat().st_size // 2)
    lab.run(lab.BUILD / "tools/ecfs-fsck", "--deep", filled.path, check=False)
    code, facts, text = check(filled)
    assert code == 1 and "damaged" in facts["reason"] and facts["action"] in text
    lab.run(lab.PROGRAM, *facts["action"].split()[1:], check=False)
    assert check(filled)[0] == 0


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
    assert facts["action"].startswith(f"ecfs recover {filled.path}.new -e amber=file://")


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
    mount = place.mount(filled)
    filled["ember" if first["endpoint"] != "ember" else "fjord"].kill()  # else the mount repairs before it is seen
    filled["delta" if first["endpoint"] != "delta" else "cedar"].kill()

    def is_told():
        with contextlib.suppress(OSError):  # three of six: it cannot be read now, and what was met counts
            lab.digest(mount.path / "file")
        return log.exists() and "damaged" in log.read_text()
    lab.until(is_told, 60, "it is told")
    words = log.read_text().split("|")
    assert words[words.index("damaged") + 1] == str(filled.path)
