"""What an account allows in a month, and what it costs: limits that are reached in the middle, and another month."""
import datetime
import fcntl
import json
import os

import lab
import pytest

MIB = 1 << 20
FILE = 4 * MIB


def facts_of(archive, name="amber"):
    return next(facts for facts in archive.json("status")["endpoints"] if facts["name"] == name)


def month_of(archive, name="amber"):
    return facts_of(archive, name)["month"]


def this_month():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m")


def stripes_at(endpoint):
    return {path.name for path in lab.stripe_files(endpoint)}


def read_bytes(archive, name):
    return facts_of(archive, name)["read_bytes"]


@pytest.mark.slow
def test_egress_is_used_up_in_the_middle_of_reading(place):
    archive = place.archive(place.directories(lab.NAMES))
    archive.configure("endpoint amber", egress_per_month="1M")
    mount = place.mount(archive)
    digests = {i: lab.write_pattern(mount.path / f"file-{i}", FILE, i) for i in range(20)}
    archive.await_stored()
    mount.umount()
    mount.start()
    for i, digest in digests.items():  # far more than what is allowed would come from it
        assert lab.digest(mount.path / f"file-{i}") == digest
    facts = facts_of(archive)
    month = facts["month"]
    assert month["egress_spent"] and not month["requests_spent"] and not month["read_anyway"], month
    assert MIB <= month["egress_bytes"] < 4 * MIB, month  # what was under way comes
    assert month["month"] == this_month() and month["egress_limit_bytes"] == MIB
    assert facts["state"] == "spent" and "egress of this month is used up" in facts["reason"]
    problem = next(row for row in archive.json("status")["problems"] if row["kind"] == "spent")
    assert problem["endpoint"] == "amber" and problem["check"] == 1
    told = lab.ecfs("status", archive.path).stdout
    assert "USED UP" in told and "amber: " in told
    lab.ecfs("status", "--html", place.path / "page.html", archive.path)
    assert "this month: " in (place.path / "page.html").read_text()
    metrics = lab.ecfs("metrics", archive.path).stdout
    assert 'ecfs_endpoint_month_egress_spent{' in metrics and 'endpoint="amber",state="spent"' in metrics
    lab.write_pattern(mount.path / "later", FILE, 99)  # stripes still go there
    archive.await_stored()
    before = month_of(archive)["egress_bytes"]
    for name in ["birch", "cedar"]:
        archive[name].kill()
    mount.umount()
    mount.start()
    for i, digest in digests.items():  # nothing else has what is needed
        assert lab.digest(mount.path / f"file-{i}") == digest
    after = month_of(archive)
    assert after["read_anyway"] and after["egress_bytes"] > before + 2 * MIB
    assert "is read although its month is used up" in mount.text()


@pytest.mark.slow
def test_requests_are_used_up_in_the_middle_of_writing(place):
    archive = place.archive(place.directories([*lab.NAMES, "spare"]))
    archive.configure("archive", on_event=str(place.path / "told"))
    script = place.path / "told"
    script.write_text(f'#!/bin/sh\necho "$ECFS_EVENT $ECFS_ENDPOINT $ECFS_TEXT" >> {place.path}/events\n')
    script.chmod(0o755)
    archive.configure("endpoint amber", requests_per_month="60")
    mount = place.mount(archive)
    digests = {}
    for i in range(60):
        digests[i] = lab.write_pattern(mount.path / f"file-{i}", 256 * 1024, i)
    archive.await_stored()
    month = month_of(archive)
    assert month["requests_spent"] and month["requests"] >= 60, month
    there = stripes_at(archive["amber"])
    assert 0 < len(there) < 60
    for i in range(60, 66):
        digests[i] = lab.write_pattern(mount.path / f"file-{i}", 256 * 1024, i)
    archive.await_stored()  # in full: by the others
    assert stripes_at(archive["amber"]) == there
    assert archive.json("status")["objects"]["missing_stripes"] == 0
    lab.until(lambda: "spent amber" in (place.path / "events").read_text() if (place.path / "events").exists() else False,
              120, "the command is told")
    mount.umount()
    mount.start()
    for i, digest in digests.items():
        assert lab.digest(mount.path / f"file-{i}") == digest
    # another month, for the mount that goes on
    lab.until(lambda: "requests of this month are used up" in mount.text(), 60, "the mount tells")
    book = archive.path / "month"
    assert this_month() in book.read_text()
    with open(archive.path / "month.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book.write_text(book.read_text().replace(this_month(), "2020-01"))
    lab.until(lambda: "endpoint amber is used as before" in mount.text(), 60, "the mount sees that another month has begun")
    month = month_of(archive)
    assert not month["requests_spent"] and month["requests"] < 60
    assert facts_of(archive)["state"] == "active"
    for i in range(70, 90):
        lab.write_pattern(mount.path / f"file-{i}", 256 * 1024, i)
    archive.await_stored()
    assert stripes_at(archive["amber"]) > there


@pytest.mark.slow
def test_processes_add_up_and_what_makes_no_sense_is_told(place):
    archive = place.archive(place.directories(lab.NAMES))
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", price_storage="10", price_requests="0.5", price_egress="90.125")
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", FILE, 1)
    archive.await_stored()
    mount.umount()
    first = month_of(archive)
    for number in range(3):
        archive.get("/file", place.path / f"back-{number}")
        assert lab.digest(place.path / f"back-{number}") == digest
    months = [month_of(archive, name) for name in lab.NAMES]
    egress = sum(month["egress_bytes"] for month in months)
    assert egress >= 3 * FILE, egress  # nothing from a cache
    assert months[0]["requests"] > first["requests"]
    for month in months:
        costs = month["cost_millionths"]
        assert costs["egress"] == month["egress_bytes"] // 1000 * 90_125_000 // 1_000_000
        assert costs["requests"] == month["requests"] * 500_000 // 1000
        assert costs["storage"] > 0 and costs["total"] == costs["egress"] + costs["requests"] + costs["storage"]
    status = archive.json("status")
    assert status["month_cost_millionths"] == sum(facts["month"]["cost_millionths"]["total"] for facts in status["endpoints"])
    for hostile in ["garbage", "[month]\nname=" + this_month() + "\n[" + facts_of(archive)["uuid"] + "]\nrequests=-5\n", "\0\xff" * 100, "x" * (2 << 20)]:
        (archive.path / "month").write_text(hostile, encoding="latin-1")
        status = archive.json("status")
        assert "month" in status["month_error"], status["month_error"]
        damaged = archive.path / "month.damaged"
        assert damaged.read_text(encoding="latin-1") == hostile and this_month() in (archive.path / "month").read_text()
        archive.get("/file", place.path / "again")
        (place.path / "again").unlink()
        assert month_of(archive)["egress_bytes"] > 0, "it counts again"
        damaged.unlink()
    # who keeps the lock is named, and keeps nobody
    with open(archive.path / "month.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mount.start()
        error = archive.json("status")["month_error"]
        assert str(archive.path / "month.lock") in error and f"process {os.getpid()}" in error
        mount.umount(timeout=30)
    (archive.path / "month.damaged").write_text("")
    assert str(archive.path / "month.damaged") in archive.json("status")["month_error"]
    (archive.path / "month.damaged").unlink()
    assert "month_error" not in archive.json("status")
    assert lab.ecfs("destroy", "--yes", archive.path, check=False).returncode == 0
    assert not archive.path.exists()


@pytest.mark.slow
def test_a_cheaper_one_is_read_if_it_is_fast_enough(place):
    archive = place.archive(place.directories(lab.NAMES))
    for name, price in zip(lab.NAMES, ["90", "90", "0", "0", "0", "0"]):
        archive.configure(f"endpoint {name}", price_egress=price)
    mount = place.mount(archive)
    digests = {i: lab.write_pattern(mount.path / f"file-{i}", FILE, i) for i in range(6)}
    archive.await_stored()
    mount.umount()

    def read_all():
        mount.start()
        before = {name: month_of(archive, name)["egress_bytes"] for name in lab.NAMES}
        for i, digest in digests.items():
            assert lab.digest(mount.path / f"file-{i}") == digest
        came = {name: month_of(archive, name)["egress_bytes"] - before[name] for name in lab.NAMES}
        mount.umount()
        return came
    fast = read_all()
    archive.configure("archive", read_preference="cheap")
    cheap = read_all()
    print(fast, cheap)
    dear = ["amber", "birch"]
    assert sum(fast[name] for name in dear) > 4 * MIB, fast
    assert sum(cheap[name] for name in dear) < MIB, cheap


@pytest.mark.slow
def test_what_a_step_costs_is_told_before(place):
    archive = place.archive(place.directories([*lab.NAMES, "spare"]))
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", price_requests="0.5", price_egress="90")
    lab.write_pattern(place.path / "source", FILE, 1)
    for i in range(4):
        archive.put_in_full(place.path / "source", f"/file-{i}")
    plan = json.loads(lab.ecfs("endpoint", "drain", archive.path, "amber", "--dry-run", "--json").stdout)
    n_stripes = plan["stripes"]
    assert n_stripes == len(stripes_at(archive["amber"])) > 0
    assert plan["requests"] == 4 * n_stripes  # read by two segments, stored, deleted
    least = plan["bytes"] // 1000 * 90_000_000 // 1_000_000 + 3 * n_stripes * 500  # the spare takes them for nothing, …
    assert least - 1000 <= plan["cost_millionths"] <= least + n_stripes * 500  # … or others do
    told = lab.ecfs("endpoint", "drain", archive.path, "amber", "--dry-run").stdout
    assert "cost     about 0." in told
    cost = json.loads(lab.ecfs("recode", archive.path, "/", "--code", "rs:3+3", "--dry-run", "--json").stdout)
    assert cost["requests"] == 4 * (2 * 4 + 6 + 6), cost  # read by two segments, stored, deleted later
    assert cost["cost_millionths"] > 0
    report = json.loads(lab.ecfs("drill", archive.path, "--without", "amber,birch", "--sample", "100%", "--json").stdout)
    assert report["requests"] > 0 and report["cost_millionths"] > 0, report
    for name in lab.NAMES:
        config = archive.path / "ecfs.conf"
        config.write_text("\n".join(line for line in config.read_text().splitlines() if not line.startswith("price_")) + "\n")
    plan = json.loads(lab.ecfs("endpoint", "drain", archive.path, "amber", "--dry-run", "--json").stdout)
    assert plan["requests"] == 4 * n_stripes and "cost_millionths" not in plan


@pytest.mark.slow
def test_a_drill_says_before_it_reads_what_that_costs(place):
    archive = place.archive(place.directories([*lab.NAMES, "spare"]), "rs:4+2", "--key", "split")
    for name in lab.NAMES:
        archive.configure(f"endpoint {name}", price_requests="0.5", price_egress="90")
    lab.write_pattern(place.path / "source", FILE, 1)
    for i in range(8):
        archive.put_in_full(place.path / "source", f"/file-{i}")
    archive.configure("endpoint cedar", requests_per_month="100000", egress_per_month="1M")
    arguments = ["drill", archive.path, "--without", "amber,birch", "--sample", "50%", "--seed", "7"]
    before = {name: read_bytes(archive, name) for name in lab.NAMES}
    plan = json.loads(lab.ecfs(*arguments, "--dry-run", "--json").stdout)
    assert {name: read_bytes(archive, name) for name in lab.NAMES} == before, "nothing is read"
    assert (plan["sampled"], plan["objects"], plan["bytes"]) == (4, 8, 4 * FILE)
    assert 2 * plan["bytes"] < plan["read_bytes"] < 2.05 * plan["bytes"], "twice, with checksums; and a share of the key from each"
    assert plan["requests"] == 4 * 2 * (4 + 4) + 2 * 5 == sum(facts["requests"] for facts in plan["endpoints"])
    assert plan["cost_millionths"] == sum(facts.get("cost_millionths", 0) for facts in plan["endpoints"])
    cedar = next(facts for facts in plan["endpoints"] if facts["name"] == "cedar")
    assert cedar["cost_millionths"] == cedar["read_bytes"] // 1000 * 90_000_000 // 1_000_000 + cedar["requests"] * 500
    assert 0.9 * MIB < cedar["egress_left_bytes"] <= MIB and 99000 < cedar["requests_left"] < 100000 and cedar["exceeds_month"]
    told = lab.ecfs(*arguments, "--dry-run").stdout
    assert told.startswith("would read 4 of 8 objects twice") and "--seed 7" in told and "NOT ENOUGH" in told
    archive.configure("endpoint cedar", egress_per_month="1G")
    report = json.loads(lab.ecfs(*arguments, "--json").stdout)
    assert report["planned"]["cost_millionths"] == plan["cost_millionths"]
    assert report["bytes"] == plan["bytes"] and report["sampled"] == 4
    assert plan["requests"] <= report["requests"] < 2 * plan["requests"], "with what is asked twice"
    # the spare costs nothing, and which stripes come first nobody knows
    assert 0.6 * plan["cost_millionths"] < report["cost_millionths"] < 1.6 * plan["cost_millionths"], report
    lines = lab.ecfs(*arguments).stdout.splitlines()
    assert lines[0].startswith("will read 4 of 8 objects twice") and any("  cedar: " in line for line in lines), lines
    for wrong in [["--dry-run"], ["--dry-run", "--without", "amber", "--html", place.path / "page"]]:
        assert lab.ecfs("drill", archive.path, *wrong, check=False).returncode == 2
