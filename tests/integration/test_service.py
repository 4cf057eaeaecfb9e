"""A mount under a service manager, and how a mount ends."""
import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import lab
import pytest

MIB = 1 << 20


class Manager:
    """What systemd is to a service: a datagram socket. heard() is all that was said so far."""

    def __init__(self, name):
        self.name = name
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name[1:] if name.startswith("@") else name)
        self.socket.setblocking(False)
        self.lines = []

    def heard(self):
        while True:
            try:
                self.lines += self.socket.recv(65536).decode().split("\n")
            except BlockingIOError:
                return self.lines

    def says(self, pattern):
        return [line for line in self.heard() if re.search(pattern, line)]

    def environment(self):
        return {**os.environ, "NOTIFY_SOCKET": self.name}


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@ecfs/{tmp_path}")
    yield made
    made.socket.close()


def start(manager, archive, mnt, log):
    mnt.mkdir(exist_ok=True)
    with open(log, "wb") as output:
        journal = os.fstat(output.fileno())
        return subprocess.Popen([lab.BUILD / "tools/ecfs", "mount", "-f", archive.path, mnt], stdout=output,
                                stderr=output, env={**manager.environment(),
                                                    "JOURNAL_STREAM": f"{journal.st_dev}:{journal.st_ino}"})


@pytest.fixture
def service(manager, archive, place):
    """A mount that the manager started and that is ready."""
    log, mnt = place.path / "log", place.path / "mnt"
    lab.logs["service"] = log
    process = start(manager, archive, mnt, log)
    process.mnt = mnt
    lab.until(lambda: manager.says("^READY=1$") or process.poll() is not None, 60, "READY=1")
    yield process
    process.kill()
    process.wait()
    lab.detach(mnt)
    del lab.logs["service"]


def test_ready_means_that_it_serves(manager, archive, service):
    assert lab.is_mounted(service.mnt)
    assert os.listdir(service.mnt) == []
    assert len(manager.says("^READY=1$")) == 1 and not manager.says("STOPPING")
    lab.until(lambda: manager.says("^STATUS=.*all 6 endpoints are up"), 60, "its status")
    said = (service.mnt.parent / "log").read_text().splitlines()  # the journal: with priorities, and times of its own
    assert said[0] == f"<5>{archive.path} is mounted on {service.mnt}"
    assert all(re.match("<[3-6]>", line) for line in said), said


def test_what_does_not_start_is_never_ready(manager, archive, place):
    archive.configure("archive", frobnicate="1")
    process = start(manager, archive, place.path / "mnt", place.path / "log")
    assert process.wait(60) == 1
    assert not manager.says("READY|STOPPING")


@pytest.mark.parametrize("manager", ["path"], indirect=True)
def test_degraded_state_is_told_and_taken_back(manager, archive, service):
    archive["birch"].kill()
    (service.mnt / "file").write_bytes(b"x" * MIB)
    lab.until(lambda: manager.says("^STATUS=.*degraded: 1 of 6 endpoints is down: birch; 1 file is staged; "
                                   "1 object lacks stripes$"), 60, "it tells what is missing")
    archive["birch"].start()
    archive.await_stored()
    lab.until(lambda: manager.says("^STATUS=")[-1].endswith("all 6 endpoints are up"), 60, "all is well again")


@pytest.mark.slow
def test_sigterm_stores_what_is_staged_and_tells_it(manager, archive, service, place):
    archive.configure("archive", commit="async")
    expected = lab.write_pattern(service.mnt / "file", 20 * MIB, 1)
    service.terminate()
    assert service.wait(120) == 0
    assert manager.heard()[-1].startswith("STATUS=") or manager.says("STOPPING=1")
    assert len(manager.says("^STOPPING=1$")) == 1
    assert not lab.is_mounted(service.mnt)
    archive.get("/file", place.path)
    assert lab.digest(place.path / "file") == expected


def test_background_mount_says_nothing_to_a_manager(manager, archive, place):
    mnt = place.path / "mnt"
    mnt.mkdir()
    lab.ecfs("mount", archive.path, mnt, env=manager.environment())
    try:
        lab.ecfs("umount", mnt)
    finally:
        lab.detach(mnt)
    assert manager.heard() == []


# Units


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    """The units of the build, with the program of the build in them; by manager."""
    found = {}
    for manager in ["system", "user"]:
        text = (lab.BUILD / f"systemd/ecfs-{manager}@.service").read_text()
        path = tmp_path_factory.mktemp(manager) / "ecfs@.service"
        path.write_text(re.sub(r"=/\S+/bin/ecfs ", f"={lab.BUILD}/tools/ecfs ", text))
        found[manager] = path
    return found


def keys(path):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read_string(path.read_text())
    return parser


@pytest.mark.parametrize("manager", ["system", "user"])
def test_unit_says_what_it_must(units, manager):
    unit = keys(units[manager])
    service = unit["Service"]
    assert service["Type"] == "notify" and service["KillMode"] == "mixed"
    assert service["ExecStart"] == f"{lab.BUILD}/tools/ecfs mount -f -o ${{OPTIONS}} -- ${{ARCHIVE}} ${{MOUNTPOINT}}"
    assert service["ExecStop"] == f"{lab.BUILD}/tools/ecfs umount -- ${{MOUNTPOINT}}"
    assert service["EnvironmentFile"] == "%E/ecfs/%i.env"
    assert re.fullmatch(r"\d+min", service["TimeoutStopSec"])
    assert unit["Install"]["WantedBy"] == {"system": "multi-user.target", "user": "default.target"}[manager]
    private = re.compile(r"^(Protect|Private|ReadOnly|ReadWrite|Inaccessible|Temporary|Bind|Root|MountFlags|DynamicUser)")
    assert not [key for key in service if private.match(key)], "the mount would be seen by nobody"


@pytest.mark.parametrize("manager", ["system", "user"])
def test_systemd_accepts_the_unit(units, manager, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    done = lab.run("systemd-analyze", f"--{manager}", "--man=no", "verify", units[manager], check=False,
                   env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert done.returncode == 0 and "ecfs" not in done.stderr, done.stderr


def expand(command, environment):
    """As systemd does it: a word that is ${NAME} becomes the value, as one word."""
    return [environment.get(word[2:-1], "") if word.startswith("${") else word for word in command.split()]


def test_commands_of_the_unit_mount_and_unmount(units, archive, place, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    service = keys(units["system"])["Service"]
    mnt = place.path / "mount point"
    mnt.mkdir()
    environment = {"ARCHIVE": str(archive.path), "MOUNTPOINT": str(mnt),
                   **dict([service["Environment"].split("=", 1)])}
    process = subprocess.Popen(expand(service["ExecStart"], environment), env=manager.environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        lab.until(lambda: manager.says("^READY=1$") or process.poll() is not None, 60, "READY=1")
        (mnt / "file").write_text("x")
        lab.run(*expand(service["ExecStop"], environment))
        assert process.poll() == 0  # umount waits for it
        assert manager.says("^STOPPING=1$")
    finally:
        process.kill()
        process.wait()
        lab.run("umount", "-l", mnt, check=False)
        manager.socket.close()


@pytest.mark.parametrize("manager", ["system", "user"])
def test_the_check_that_the_timer_starts_finds_and_repairs(archive, place, manager, tmp_path):
    unit = tmp_path / "ecfs-scrub@.service"
    unit.write_text((lab.BUILD / f"systemd/ecfs-scrub-{manager}@.service").read_text())
    service, timer = keys(unit)["Service"], keys(lab.REPOSITORY / "systemd/ecfs-scrub@.timer")
    assert timer["Timer"]["OnCalendar"] == "monthly" and timer["Install"]["WantedBy"] == "timers.target"
    lab.write_pattern(place.path / "file", 1 << 20, 1)
    archive.put_in_full(place.path / "file", "/file")
    stripe = lab.stripe_files(archive["cedar"])[0]
    lab.flip(stripe, stripe.stat().st_size // 2)
    options = service["Environment"].strip('"').split("=", 1)[1].split()
    words = expand(service["ExecStart"], {"ARCHIVE": str(archive.path)})
    command = [part for word in words for part in (options if word == "$SCRUB_OPTIONS" else [word])]
    done = lab.run(lab.BUILD / "tools" / command[0].rpartition("/")[2], *command[1:], check=False)
    assert str(done.returncode) == service["SuccessExitStatus"], done.stdout + done.stderr
    assert lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", "--deep", archive.path).returncode == 0


def example_units(path):
    """Units that ecfs-key(1) shows, written below @path; by their names."""
    page = (lab.REPOSITORY / "man/ecfs-key.1").read_text()
    found = dict(re.findall(r"^\.Bd -literal[^\n]*\n# /etc/systemd/system/(\S+)\n(.*?)^\.Ed$", page, re.M | re.S))
    for name, text in found.items():
        (path / name).write_text(re.sub(r"^ExecStart=ecfs ", f"ExecStart={lab.BUILD}/tools/ecfs ", text, flags=re.M))
    return {name: path / name for name in found}


def test_the_check_of_a_key_that_the_manual_shows(place, tmp_path):
    """With a code as a credential; the mount beside it has none."""
    shown = example_units(tmp_path)
    assert sorted(shown) == ["ecfs-key-check.service", "ecfs-key-check.timer"]
    if shutil.which("systemd-analyze"):
        done = lab.run("systemd-analyze", "--system", "--man=no", "verify", *shown.values(), check=False,
                       env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
        assert done.returncode == 0 and "ecfs" not in done.stderr, done.stderr
    service = keys(shown["ecfs-key-check.service"])["Service"]
    name, _, path = service["LoadCredential"].partition(":")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    archive = place.archive(place.directories(), "rs:4+2", "--key", "code", "--code-file", credentials / name)
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 300_000)
    command = [str(archive.path) if word == "/srv/archive" else word for word in service["ExecStart"].split()]
    environment = {"PATH": os.environ["PATH"], "CREDENTIALS_DIRECTORY": str(credentials)}
    assert "come back" in lab.run(*command, env=environment).stdout
    (credentials / name).write_text("AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH\n")
    done = lab.run(*command, env=environment, check=False)
    assert done.returncode == 1 and "the code is wrong" in done.stderr, done
    mount.umount()


def test_messages_of_a_mount_go_to_a_file_that_may_be_renamed(archive, place):
    log, old = place.path / "log", place.path / "log.1"
    mnt = place.path / "mnt"
    mnt.mkdir()
    try:
        lab.ecfs("mount", "-o", "log=log", archive.path, mnt, cwd=place.path)
        assert "is mounted on" in log.read_text() and log.stat().st_mode & 0o777 == 0o600
        log.rename(old)
        archive["birch"].kill()
        lab.until(lambda: log.exists() and "birch is down" in log.read_text(), 60, "it is told in a new file")
        lab.ecfs("umount", mnt)
    finally:
        lab.detach(mnt)
    done = lab.ecfs("mount", "-o", f"log={place.path}/no/such", archive.path, mnt, check=False)
    assert done.returncode == 1 and "no/such" in done.stderr


# How a mount ends


@pytest.fixture
def distant(place):
    """Six servers whose lines can be stalled, and an archive that takes long to give up on them."""
    servers = [place.sshd(name) for name in lab.NAMES]
    archive = place.archive(servers)
    archive.servers = servers
    return archive


@pytest.mark.slow
def test_second_sigterm_leaves_what_is_staged_to_the_next_mount(place, distant):
    distant.configure("archive", commit="async")
    mount = place.mount(distant)
    (mount.path / "first").write_bytes(b"x")
    distant.await_stored()
    for server in distant.servers:
        server.suspend()
    try:
        expected = lab.write_pattern(mount.path / "file", 3 * MIB, 1)
        mount.process.terminate()
        lab.until(lambda: not mount.mounted(), 60, "the mount leaves its directory")
        assert mount.process.poll() is None, "it does not wait for what is staged"
        mount.process.terminate()
        assert mount.process.wait(60) == 1
        assert "second signal" in mount.text()
        mount.process = None
    finally:
        for server in distant.servers:
            server.resume()
    assert distant.json("status")["staging"]["files"] == 1
    mount.start()
    distant.await_stored()
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected


@pytest.mark.slow
def test_close_answers_after_close_timeout_and_the_upload_goes_on(place, distant):
    distant.configure("archive", close_timeout="2s")
    for name in lab.NAMES:
        distant.configure(f"endpoint {name}", stall_timeout="60s")
    mount = place.mount(distant)
    (mount.path / "first").write_bytes(b"x")
    for server in distant.servers:
        server.suspend()
    try:
        begin = time.monotonic()
        with pytest.raises(OSError) as caught:
            lab.write_pattern(mount.path / "file", 3 * MIB, 1)
        assert time.monotonic() - begin > 1.5
        assert caught.value.errno in (5, 110) and "close_timeout" in mount.text()
        (mount.path / "file").stat()  # nothing else waits
    finally:
        for server in distant.servers:
            server.resume()
    distant.await_stored()
    assert lab.digest(mount.path / "file") == lab.write_pattern(place.path / "same", 3 * MIB, 1)
    assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"full 6/6")


def test_sigterm_takes_a_busy_mount_away_and_keeps_what_was_written(place, archive):
    mount = place.mount(archive)
    file = os.open(mount.path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(file, b"written")
        mount.process.terminate()
        lab.until(lambda: not mount.mounted(), 60, "the mount leaves its directory")
        with pytest.raises(OSError):
            os.write(file, b"more")
    finally:
        with pytest.raises(OSError):
            os.close(file)
    assert mount.process.wait(60) == 1  # this much was not stored
    mount.process = None
    mount.start()
    kept = [path.read_bytes() for path in (archive.path / "interrupted").iterdir()]
    assert kept == [b"written"] and os.listdir(mount.path) == []
