"""`ecfs top`: one look for pipes, and on a terminal of tmux; it shows what goes on, and costs the mount little."""
import json
import os
import re
import shutil
import socket
import time

import lab
import processors
import pytest

MIB = 1 << 20
MOST_COST = 0.01  # of a core


@pytest.fixture
def mount(place, archive):
    made = place.mount(archive)
    lab.write_pattern(made.path / "file", 3 * MIB, 1)
    archive.await_stored()
    return made


def once(archive, columns=80):
    done = lab.ecfs("top", "--once", archive.path, env={**os.environ, "COLUMNS": str(columns)})
    lines = done.stdout.splitlines()
    assert all(len(line) <= columns for line in lines) and "\033" not in done.stdout
    return lines


def row(lines, name):
    (found,) = [line.split() for line in lines if line.startswith(name + " ")]
    return found


def kill(archive, name):
    """And has an idle mount notice it, which asks endpoints for its status."""
    archive[name].kill()
    lab.until(lambda: archive.json("status")["verdict"] == "degraded", 60, "it is down")


def ask(archive, request):
    """What the mount answers on its socket."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(str(archive.path / "control.sock"))
        door.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(door.makefile().readline())


def processor_seconds(mount):
    return processors.used(mount.process.pid)


def test_one_look(archive, mount):
    lines = once(archive)
    assert lines[0].startswith(f"ecfs top  {archive.path}"[:70]) and re.search(r"\d\d:\d\d:\d\d$", lines[0])
    assert lines[1].startswith("6 endpoints, new files rs:4+2; from endpoints ")
    assert lines[2].split() == ["ENDPOINT", "STATE", "READ/s", "WRITE/s", "LATENCY", "95%", "QUEUE", "ERASED", "SAVED"]
    assert [line.split()[0] for line in lines[3:9]] == lab.NAMES
    assert "no file is on its way" in lines
    wide = once(archive, 120)
    assert wide[2].split()[-3:] == ["REQ/s", "FAILED", "ZONE"] and row(wide, "amber")[-1] == "amber"


@pytest.mark.slow
def test_an_endpoint_that_died_and_what_is_read_around_it(archive, mount):
    kill(archive, "birch")
    lab.until(lambda: row(once(archive), "birch")[1] == "down", 60, "it is seen")
    assert "1 of 6 endpoints away" in once(archive)[1]
    wide = once(archive, 140)
    assert any(line.startswith("  endpoint birch: ") for line in wide), "why"
    lab.forget_mounts()
    (mount.path / "file").read_bytes()
    assert not any(line.startswith("reads    0 segments") for line in once(archive))


def test_what_is_stored_meanwhile_is_seen(place, archive, mount):
    """While endpoints are stopped, a file stays on its way."""
    archive.configure("archive", commit="async")
    mount.umount()
    mount.start()
    for endpoint in archive.endpoints:
        endpoint.kill()
    lab.write_pattern(mount.path / "waiting", MIB, 2)
    lab.until(lambda: "in staging: 1 files" in "".join(once(archive)), 60, "it is told")
    for endpoint in archive.endpoints:
        endpoint.start()
    archive.await_stored()


def test_what_it_is_told(archive, mount):
    live = ask(archive, {"verb": "live"})["live"]
    assert {endpoint["name"] for endpoint in live["endpoints"]} == set(lab.NAMES) and live["files"] == 1
    page = (lab.REPOSITORY / "man/ecfs-top.1").read_text()
    explained = set(re.findall(r"\w+", page))
    assert live.keys() | live["endpoints"][0].keys() | live["repairs"].keys() <= explained


def test_without_a_mount_there_is_nothing_to_see(archive):
    done = lab.ecfs("top", "--once", archive.path, check=False)
    assert done.returncode == 1 and "is not mounted" in done.stderr and "ecfs status" in done.stderr
    assert lab.ecfs("top", archive.path, check=False).returncode == 2, "no terminal"


def test_it_costs_the_mount_less_than_a_hundredth_of_a_core(archive, mount):
    """A hundred questions, one after the other, cost less than a hundred seconds of looking may."""
    before = processor_seconds(mount)
    for _ in range(100):
        assert ask(archive, {"verb": "live"})["ok"]
    cost = (processor_seconds(mount) - before) / 100
    assert cost < MOST_COST, f"{cost:.4f} s of a processor for each look, of which there is one each second"


class Terminal:
    """A tmux of its own, with the program in it."""

    def __init__(self, directory, command, columns, lines):
        if not shutil.which("tmux"):
            pytest.skip("tmux is not installed")
        self.socket = directory / "tmux"
        self.tell("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines, "-s", "top", f"{command}; echo ended $?; sleep 60")

    def tell(self, *words):
        return lab.run("tmux", "-S", self.socket, *words, env={**os.environ, "TERM": "screen", "LC_ALL": "C.UTF-8"}).stdout

    def lines(self):
        return self.tell("capture-pane", "-p", "-t", "top").splitlines()

    def press(self, key):
        self.tell("send-keys", "-t", "top", key)

    def await_text(self, text):
        lab.until(lambda: any(text in line for line in self.lines()), 30, f"{text!r} is shown", pause=0.1)

    def end(self):
        self.tell("kill-server")


@pytest.fixture
def terminal(tmp_path):
    made = []

    def make(archive, columns, lines):
        made.append(Terminal(tmp_path, f"{lab.PROGRAM} top {archive.path}", columns, lines))
        return made[-1]
    yield make
    for one in made:
        one.end()


@pytest.mark.parametrize("columns,lines", [(80, 24), (132, 40)])
@pytest.mark.slow
def test_on_a_terminal(archive, mount, terminal, columns, lines):
    shown = terminal(archive, columns, lines)
    shown.await_text("q quit   p pause   s sorted by name   e explain what was erased")
    screen = shown.lines()
    assert len(screen) == lines and screen[-1].startswith("q quit")
    assert [line.split()[0] for line in screen[3:9]] == lab.NAMES
    assert ("ZONE" in screen[2]) == (columns > 110)
    shown.press("s")
    shown.await_text("s sorted by read")
    shown.press("e")
    shown.await_text("no endpoint was read around")
    shown.press("p")
    shown.await_text("PAUSED")
    clock = shown.lines()[0].split()[-1]
    time.sleep(2)  # for which a clock that is not paused would have moved
    assert shown.lines()[0].split()[-1] == clock
    shown.press("p")
    lab.until(lambda: shown.lines()[0].split()[-1] != clock, 30, "it goes on")
    kill(archive, "cedar")
    lab.until(lambda: any(line.split()[:2] == ["cedar", "down"] for line in shown.lines()), 60, "it is seen")
    shown.tell("resize-window", "-t", "top", "-x", "100", "-y", "20")
    lab.until(lambda: len(shown.lines()) == 20 and shown.lines()[-1].startswith("q quit"), 30, "it fits again")
    shown.press("q")
    shown.await_text("ended 0")
    assert not any("q quit" in line for line in shown.lines()), "the terminal is as it was"


def test_the_terminal_is_given_back_when_the_mount_ends(archive, mount, terminal):
    shown = terminal(archive, 80, 24)
    shown.await_text("q quit")
    mount.umount()
    shown.await_text("ended 1")
    assert any("is not mounted" in line for line in shown.lines())
