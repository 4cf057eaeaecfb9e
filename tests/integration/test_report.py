"""`ecfs report`: what it says is so, its first line and its exit status tell whether somebody has to do something."""
import configparser
import fcntl
import json
import os
import re
import shutil
import time

import lab
import pytest
from test_pages import Page
from test_service import expand

MIB = 1 << 20
WELL = "all is well: every file can be read, and any 2 of 6 endpoints may vanish"


def report(archive, *words, status=0):
    """The lines that it prints."""
    done = lab.ecfs("report", archive.path, *words, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout.splitlines()


def facts(archive, *words):
    return json.loads(lab.ecfs("report", archive.path, *words, "--json", check=False).stdout)


@pytest.fixture
def filled(place, archive):
    lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    return archive


def holder(archive):
    """An endpoint that has a stripe of /file, and that stripe."""
    first = archive.json("info", "/file")["stripes"][0]["endpoint"]
    return first, max(lab.stripe_files(archive[first]), key=lambda path: path.stat().st_size)


@pytest.mark.slow
def test_a_healthy_archive(place, filled):
    lines = report(filled, "--html", place.path / "page.html")
    assert lines[0] == WELL and lines[1] == "" and str(filled.path) in lines[2]
    assert all(len(line) <= 78 for line in lines[3:])
    text = " ".join(" ".join(lines).split())
    assert "6 of 6 answer" in text and "1 file with 3.0 MiB: any 2 more endpoints may vanish" in text
    assert "all 6 stripes are in their places; 6 with 4.5 MiB were read and verified" in text
    assert "1 object with 3.0 MiB were read without" in text and "every byte was as it was stored" in text
    page = Page(place.path / "page.html")
    page.check()
    assert "REPORT" in page.text and WELL in page.text and "HEALTHY" in page.text
    told = facts(filled)
    assert (told["headline"], told["check"], told["findings"]) == (WELL, 0, [])
    assert told["scrub"]["checked_bytes"] > 0 and len(told["drill"]["without"]) == 2 and told["status"]["verdict"] == "healthy"


def test_a_check_that_is_at_work_is_no_finding(filled):
    assert report(filled)[0] == WELL
    with open(filled.path / "scrub.sqlite", "rb") as notes:
        fcntl.flock(notes, fcntl.LOCK_EX)  # as ecfs-fsck --deep has it
        lines = report(filled)
        assert lines[0] == WELL.replace("be read", "be read by the catalog alone")
        assert "nothing, as another check is at work" in " ".join(" ".join(lines).split())


@pytest.mark.slow
def test_an_endpoint_that_is_away_has_the_command_in_the_first_line(filled):
    filled["birch"].kill()
    lines = report(filled, status=1)
    assert lines[0] == f"1 file would not survive the loss of 2 more of 6 endpoints: ecfs endpoint test {filled.path} birch"
    assert any("5 of 6 answer; away: birch" in line for line in lines)
    told = facts(filled)
    assert told["findings"][0]["kind"] == "down" and "birch" in told["drill"]["without"] and told["drill"]["unreadable"] == 0
    filled["cedar"].kill()
    assert report(filled, status=3)[0].startswith("1 file would not survive the loss of 2 more of 6 endpoints: ")
    filled["delta"].kill()
    assert report(filled, status=3)[0].startswith("1 file cannot be read: ")


@pytest.mark.slow
def test_beside_a_mount_an_endpoint_may_be_away_for_a_while(place, filled):
    place.mount(filled)
    filled["birch"].kill()
    lab.until(lambda: filled.json("status")["verdict"] == "degraded", 60, "it is down")
    lines = report(filled)
    assert lines[0].startswith("all is well: every file can be read, and any 1 of 6 endpoints may vanish; ") and "birch" in lines[0]
    assert report(filled, "--away", "0", status=1)[0].endswith(f": ecfs endpoint test {filled.path} birch")
    filled["cedar"].kill()
    lab.until(lambda: filled.json("status")["verdict"] == "at risk", 60, "two are down")
    assert "2 of 6 endpoints do not answer" in "".join(report(filled, status=3)), "whatever the limit is"


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.slow
def test_damage_lowers_what_is_promised_until_it_is_repaired(place, filled, mounted):
    filled.configure("archive", repair="off")
    name, stripe = holder(filled)
    if mounted:
        place.mount(filled)
    lab.flip(stripe, stripe.stat().st_size // 2)
    lines = report(filled, "--scrub", "100%", status=1)
    assert lines[0] == f"1 file would not survive the loss of 2 more of 6 endpoints: ecfs fsck -y {filled.path}"
    assert any(f"damaged or gone at {name}" in line for line in lines)
    assert filled.json("status")["objects"]["guarantee"] == 1, "others know it now"
    lines = report(filled, "--scrub", "100%", "--repair", status=1)
    assert lines[0].startswith(f"the check found 1 stripe damaged or gone at {name}; 1 was rebuilt: ")
    assert report(filled, "--scrub", "100%")[0] == WELL


def test_an_endpoint_that_is_not_believed_counts_as_lost(filled):
    """Nothing waits for it, and the status finds nothing wrong."""
    lab.ecfs("endpoint", "distrust", filled.path, "cedar")
    assert report(filled, status=1)[0].startswith("1 file would not survive the loss of 2 more of 6 endpoints: ecfs ")


def test_so_much_damage_as_is_allowed_is_only_noted(filled):
    _, stripe = holder(filled)
    lab.flip(stripe, stripe.stat().st_size // 2)
    lines = report(filled, "--scrub", "100%", "--repair", "--damaged", "1")
    assert lines[0].startswith(f"{WELL}; the check found 1 stripe damaged or gone at ") and lines[0].endswith("1 was rebuilt")


@pytest.mark.slow
def test_a_share_is_verified_each_time_until_all_is(place, archive):
    for number in range(24):
        lab.write_pattern(place.path / "source", 8 * MIB, number)
        archive.put_in_full(place.path / "source", f"/file{number}")
    all_bytes = archive.json("status")["stripe_bytes"]
    first = facts(archive, "--scrub", "20%", "--sample", "0")
    assert 0.2 * all_bytes <= first["scrub"]["checked_bytes"] < 0.9 * all_bytes and not first["scrub"]["out_of_time"]
    assert first["check"] == 0 and "Not everything was verified yet" in first["done"][2]["text"]
    nights = 1
    while "full_ended" not in facts(archive, "--scrub", "20%", "--sample", "0")["status"]["scrub"]:
        nights += 1
        assert nights < 6, "the next resumes"
    for words in [["--share", "20%"], ["--deep", "--share", "0"], ["--deep", "--share", "20%", "--sample", "1%"]]:
        assert lab.run(lab.BUILD / "tools/ecfs-fsck", *words, archive.path, check=False).returncode == 16


@pytest.mark.slow
def test_limits(filled):
    assert report(filled, "--verified", "0", "--scrub", "0")[0].endswith("; stored bytes were never verified so far")
    assert report(filled, "--guarantee", "3", status=1)[0].startswith("1 file would not survive the loss of 3 more endpoints: ")
    assert report(filled, "--full", "0%", status=1)[0].startswith("endpoint amber is ")
    time.sleep(1.1)  # what is asked for is younger than a second
    assert report(filled, "--verified", "0", "--scrub", "0", status=1)[0].startswith("not everything was verified since ")
    for words in [["--scrub", "101%"], ["--away", "x"], ["--full", "-1"], ["--bwlimit", "0"], ["--damaged", "-1"]]:
        assert lab.ecfs("report", filled.path, *words, check=False).returncode == 2


def test_what_is_not_looked_at_is_not_said_to_be_so(filled):
    lines = report(filled, "--scrub", "0", "--sample", "0")
    assert lines[0].startswith("all is well: every file can be read by the catalog alone, and any 2 of 6 endpoints may vanish")
    assert any(re.match(r"checked +nothing: what is said of files is what the catalog says", line) for line in lines)
    assert any(re.match(r"rehearsed +nothing", line) for line in lines)


def test_what_only_this_machine_has(place, filled):
    mount = place.mount(filled)
    for endpoint in filled.endpoints:
        endpoint.kill()
    (mount.path / "directory").mkdir()
    told = facts(filled, "--recovery-age", "0", "--scrub", "0")
    assert told["check"] == 2 and "recovery-point-old" in [finding["kind"] for finding in told["findings"]]
    assert told["headline"].startswith("1 file cannot be read: ")


def test_an_archive_that_cannot_be_used(place, filled):
    (filled.path / "ecfs.conf").unlink()
    lines = report(filled, "--html", place.path / "page.html", status=3)
    assert lines[0].startswith("the archive cannot be used: ") and lines[0].endswith("--endpoint URL...")
    assert "BROKEN" in Page(place.path / "page.html").text


@pytest.mark.parametrize("manager", ["system", "user"])
def test_the_units(place, filled, manager, tmp_path):
    unit, timer = configparser.ConfigParser(interpolation=None, strict=False), configparser.ConfigParser(interpolation=None)
    unit.optionxform = timer.optionxform = str
    unit.read(lab.BUILD / f"systemd/ecfs-report-{manager}@.service")
    timer.read(lab.REPOSITORY / "systemd/ecfs-report@.timer")
    assert timer["Timer"]["OnCalendar"] == "daily" and timer["Install"]["WantedBy"] == "timers.target"
    service = unit["Service"]
    page = tmp_path / "report-photos.html"
    command = service["ExecStart"].replace("%S/ecfs", str(tmp_path)).replace("%i", "photos")
    options = service["Environment"].strip('"').split("=", 1)[1].split()
    words = [part for word in expand(command, {"ARCHIVE": str(filled.path)})
             for part in (options if word == "$REPORT_OPTIONS" else [word])]
    filled["amber"].kill()
    done = lab.run(lab.BUILD / "tools/ecfs", *words[1:], check=False)
    assert done.returncode == 1, "so systemd sees that it failed: " + done.stdout + done.stderr
    assert done.stdout.startswith("1 file would not survive ") and f"ecfs endpoint test {filled.path} amber\n" in done.stdout
    assert "amber" in Page(page).text
    if shutil.which("systemd-analyze"):
        shown = tmp_path / "ecfs-report@.service"
        text = (lab.BUILD / f"systemd/ecfs-report-{manager}@.service").read_text()
        shown.write_text(re.sub(r"=/\S+/bin/ecfs ", f"={lab.BUILD}/tools/ecfs ", text))
        done = lab.run("systemd-analyze", f"--{manager}", "--man=no", "verify", shown, check=False,
                       env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
        assert done.returncode == 0 and "ecfs" not in done.stderr, done.stderr
