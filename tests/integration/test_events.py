"""`on_event`: a mount tells a command what happens, and so does `ecfs report` where there is no mount."""
import os
import re
import shutil
import stat

import lab
import pytest
from test_history_room import grow_old

MIB = 1 << 20


class Told:
    """What the command was told, as lists of event, archive, endpoint, text and the line that it read."""

    def __init__(self, archive, directory, after=""):
        self.path = directory / "told"
        command = directory / "on event"
        command.write_text(f'#!/bin/sh\nread -r line\nprintf "%s|" "$ECFS_EVENT" "$ECFS_ARCHIVE" "$ECFS_ENDPOINT" "$ECFS_TEXT" "$line"'
                           f' >> {self.path}\necho >> {self.path}\n{after}\n')
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
        archive.configure("archive", on_event=f"'{command}'")

    def all(self):
        return [line.split("|")[:-1] for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def of(self, event):
        return [told for told in self.all() if told[0] == event]

    def until(self, event, endpoint=""):
        # A look that took a second on a busy machine is followed by the next 100 seconds later.
        return lab.until(lambda: [told for told in self.of(event) if told[2] == endpoint], 300, f"{event} {endpoint} is told")[0]


def kill(archive, name):
    """And has the mount notice it, which an idle one does later."""
    archive[name].kill()
    archive.json("status")


@pytest.fixture
def filled(place, archive):
    lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    return archive


@pytest.mark.long
def test_a_mount_tells_what_happens_once(place, filled):
    """Endpoints die and come back; the metrics see the same."""
    told = Told(filled, place.path)
    mount = place.mount(filled)
    kill(filled, "birch")
    event, archive, endpoint, text, line = told.until("down", "birch")
    assert (archive, endpoint) == (str(filled.path), "birch") and text.endswith(f"ecfs endpoint test {filled.path} birch")
    assert line == f"ecfs {filled.path} down birch: {text}"
    assert 'ecfs_endpoint_up{archive="' + str(filled.path) + '",endpoint="birch",zone="birch"} 0' in lab.ecfs("metrics", filled.path).stdout
    assert not told.of("low-guarantee"), "one more may vanish"
    kill(filled, "cedar")
    low = told.until("low-guarantee")
    assert "no further endpoint may vanish" in low[3] and f"ecfs endpoint test {filled.path} " in low[3]
    told.until("down", "cedar")
    mount.umount()
    before = told.all()
    mount.start()
    filled["birch"].start()
    told.until("up", "birch")
    assert [line for line in told.all() if line not in before] == told.of("up"), "another mount tells nothing anew"
    assert len(told.of("down")) == 2 and len(told.of("low-guarantee")) == 1


def test_damage_that_a_reader_meets_is_told_with_the_command(place, filled):
    told = Told(filled, place.path)
    filled.configure("archive", repair="off")
    mount = place.mount(filled)
    first = filled.json("info", "/file")["stripes"][0]["endpoint"]
    lab.stripe_files(filled[first])[0].unlink()
    report = lab.ecfs("report", filled.path, check=False)
    assert report.returncode == 1
    assert told.until("damaged")[3].endswith(f"ecfs fsck -y {filled.path}")
    assert told.until("report")[3] == report.stdout.splitlines()[0]
    mount.umount()


@pytest.mark.slow
def test_without_a_mount_a_report_tells_and_only_once(place, filled):
    told = Told(filled, place.path)
    assert lab.ecfs("report", filled.path).returncode == 0 and not told.all(), "all is well"
    filled["birch"].kill()
    for _ in range(2):
        assert lab.ecfs("report", filled.path, check=False).returncode == 1
        assert sorted(line[0] for line in told.all()) == ["down", "report"]
    assert told.of("down")[0][2] == "birch"
    filled["birch"].start()
    assert lab.ecfs("report", filled.path).returncode == 0
    assert [line[0] for line in told.all()][2:] == ["up"]


@pytest.mark.slow
def test_a_mass_deletion_is_told_with_what_undoes_it(place, archive):
    told = Told(archive, place.path)
    source = place.path / "many"
    source.mkdir()
    for number in range(1100):
        (source / f"file{number}").write_bytes(b"x")
    mount = place.mount(archive)
    archive.put(source, "/")
    archive.await_stored()
    grow_old(mount)
    lab.ecfs("rm", archive.path, "--recursive", "/many")
    deletion = told.until("mass-deletion")
    assert "ecfs undelete --at " in deletion[3] and str(archive.path) in deletion[3]
    mount.umount()


@pytest.mark.slow
def test_a_command_that_fails_is_told_in_log_status_and_report(place, filled):
    told = Told(filled, place.path, after="exit 7")
    mount = place.mount(filled)
    kill(filled, "birch")
    told.until("down", "birch")
    lab.until(lambda: "failure" in filled.json("status")["events"], 30, "status knows that it failed")
    assert filled.json("status")["events"]["told"] == "down birch"
    text = lab.ecfs("status", filled.path).stdout
    assert "FAILED" in text and "the command ended with status 7" in text
    assert "on_event: the command ended with status 7" in mount.text()
    assert "the command on_event of ecfs.conf failed" in lab.ecfs("report", filled.path, check=False).stdout
    mount.umount()


def test_a_command_that_hangs_keeps_nobody_waiting(place, filled):
    told = Told(filled, place.path, after="sleep 1000 & echo $! > " + str(place.path / "child") + "; wait")
    mount = place.mount(filled)
    try:
        kill(filled, "birch")
        told.until("down", "birch")
        lab.write_pattern(mount.path / "more", MIB, 2)
        assert (mount.path / "more").stat().st_size == MIB
        mount.umount(timeout=60)
    finally:
        lab.end_all([int((place.path / "child").read_text())])


PAGE = (lab.REPOSITORY / "doc/events.md").read_text()


def blocks(kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def programs(tmp_path):
    """Programs of the recipes that note what they are told; where to look, and an environment that has them first."""
    for name in ["mail", "curl", "journalctl"]:
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s|" {name} "$@" >> {tmp_path}/said\n'
                                     + ('echo "the report"\n' if name == "journalctl" else f"cat >> {tmp_path}/said\n"))
        (tmp_path / name).chmod(0o755)
    return tmp_path / "said", {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.slow
def test_commands_of_the_recipes_do_what_they_say(place, filled, programs, tmp_path):
    said, environment = programs
    scripts = [script for script in blocks("sh") if script.startswith("#!")]
    commands = [line.partition(" = ")[2] for block in blocks("ini") for line in block.splitlines() if line.startswith("on_event = ")]
    assert len(scripts) == 2 and len(commands) == 2
    for number, script in enumerate(scripts):
        path = tmp_path / f"script{number}"
        path.write_text(script)
        path.chmod(0o755)
        commands.append(str(path))
    kill(filled, "birch")
    for command in commands:
        said.unlink(missing_ok=True)
        (filled.path / "events").unlink(missing_ok=True)
        filled.configure("archive", on_event=command)
        assert lab.ecfs("report", filled.path, "--scrub", "0", "--sample", "0", check=False, env=environment).returncode == 1
        text = said.read_text()
        assert text.startswith(("mail|-s|ecfs", "curl|-sS|")) and f"ecfs {filled.path} down birch: " in text
        assert f"ecfs endpoint test {filled.path} birch" in text


def test_the_mail_that_systemd_sends_has_the_report(programs, tmp_path):
    said, environment = programs
    (unit,) = [block for block in blocks("ini") if block.startswith("# /etc/systemd/system/ecfs-mail@.service")]
    path = tmp_path / "ecfs-mail@.service"
    path.write_text(unit)
    if shutil.which("systemd-analyze"):
        done = lab.run("systemd-analyze", "--system", "--man=no", "verify", path, check=False,
                       env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
        assert done.returncode == 0 and "ecfs" not in done.stderr, done.stderr
    command = re.search(r"^ExecStart=/bin/sh -c '(.*)' sh %i$", unit, re.M).group(1).replace("$$", "$")
    lab.run("/bin/sh", "-c", command, "sh", "photos", env={**environment, "MONITOR_INVOCATION_ID": "1234"})
    text = said.read_text()
    assert "journalctl|-o|cat|_SYSTEMD_INVOCATION_ID=1234|" in text and "mail|-s|ecfs: photos|root|" in text
    assert text.rstrip().endswith("the report")
