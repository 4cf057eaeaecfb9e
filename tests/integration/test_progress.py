"""How far a verb is: on a terminal, for who asked for lines or JSON, for nobody else; and what Ctrl-C leaves is resumed."""
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time

import lab
import pytest

MIB = 1 << 20
COLUMNS = 50
RATE = 1_500_000  # bytes per second at each endpoint
N_FILES = 12
FSCK = lab.BUILD / "tools/ecfs-fsck"


@pytest.fixture
def archive(place):
    """Behind lines that can be slow."""
    return place.archive([place.behind_proxy(name) for name in lab.NAMES[:4]], "rs:2+1")


@pytest.fixture
def source(place):
    directory = place.path / "source"
    directory.mkdir()
    for number in range(N_FILES):
        lab.write_pattern(directory / f"file{number:02}", (number + 1) * MIB // 3 + number, number)  # they do not end together
    return directory


def slow(archive, rate=RATE):
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("throttle", rate)


def digests(directory):
    return {path.name: lab.digest(path) for path in directory.iterdir()}


def on_terminal(*command, columns=COLUMNS):
    """The exit status of a command, and what it writes to a terminal, with the times of writing."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=slave, env={**os.environ, "TERM": "xterm"})
    os.close(slave)
    told, deadline = [], time.monotonic() + 120
    with contextlib.suppress(OSError):  # EIO: nobody has it open any more
        while select.select([master], [], [], deadline - time.monotonic())[0] and (piece := os.read(master, 65536)):
            told.append((time.monotonic(), piece.decode()))
    os.close(master)
    return process.wait(120), told


def asking(form, *command, **options):
    return lab.run(*command, env={**os.environ, "ECFS_PROGRESS": form}, **options)


def events(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def interrupt(*command, when=lambda event: event["done"] > 0):
    """Ctrl-C as soon as an event is so; what was told, and the command that resumes it."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "ECFS_PROGRESS": "json:100ms"})
    told = []
    for line in process.stderr:
        told.append(line)
        if line.startswith("{") and json.loads(line)["event"] == "progress" and when(json.loads(line)):
            process.send_signal(signal.SIGINT)
            break
    told += process.stderr.readlines()
    assert process.wait(120) == 1, told
    (again,) = re.findall(r": (ecfs .*)\n", "".join(told))
    return "".join(told), [lab.PROGRAM, *shlex.split(again)[1:]]


@pytest.mark.slow
def test_terminal_has_one_line_that_fits_and_goes(archive, source):
    slow(archive)
    status, told = on_terminal(lab.PROGRAM, "put", archive.path, source, "/")
    text = "".join(piece for _, piece in told)
    drawn = text.split("\r\033[K")
    assert status == 0 and drawn[0] == drawn[-1] == ""  # cleared at the end, and nothing behind it
    lines = drawn[1:-1]
    assert lines and all(len(line) < COLUMNS and "\n" not in line for line in lines), lines
    assert all(re.match(rf"\d+ of {N_FILES} files", line) for line in lines), lines
    assert any(re.search(r", [\d.]+ .iB/s, [\d.]+ (s|min) left", line) for line in lines), lines
    assert len(lines) <= 5 * (told[-1][0] - told[0][0] + 1)


@pytest.mark.slow
def test_terminal_has_nothing_of_what_is_quick(archive, source):
    status, told = on_terminal(lab.PROGRAM, "put", archive.path, source / "file00", "/")
    assert status == 0
    took_long = any("\r\033[K" in piece for _, piece in told)
    assert not told or took_long  # on a machine so busy that this took a second


@pytest.mark.slow
def test_pipes_have_what_was_asked_for(archive, source):
    slow(archive)
    put = [lab.PROGRAM, "put", archive.path, source, "/"]
    assert lab.run(*put).stderr == ""
    lines = asking("lines:1s", *put).stderr.splitlines()
    assert len(lines) > 1 and all(line.startswith("ecfs put: ") and "\033" not in line for line in lines)
    assert f"{N_FILES} of {N_FILES} files" in lines[-1]
    assert asking("none", *put).stderr == ""
    assert "is ignored" in asking("loud", *put, "--update").stderr


@pytest.mark.slow
def test_events_are_json(archive, source):
    slow(archive)
    told = asking("json:500ms", lab.PROGRAM, "put", archive.path, source, "/").stderr
    found = events(told)
    size = sum(path.stat().st_size for path in source.iterdir())
    assert len(found) == len(told.splitlines()) > 2
    assert [event["event"] for event in found] == ["progress"] * (len(found) - 1) + ["end"]
    assert all(event["verb"] == "put" and event["things"] == "files" and event["all"] == N_FILES for event in found)
    assert all(event["bytes_done"] <= event["bytes_all"] == size for event in found)
    done = [event["bytes_done"] for event in found]
    assert done == sorted(done) and found[-1]["done"] == N_FILES and done[-1] == size
    assert any(0 < event.get("seconds_left", 0) < 100 for event in found)
    assert all("seconds_left" not in event for event in found if event["seconds"] < 3)


@pytest.mark.slow
def test_events_leave_facts_alone(archive, source):
    archive.put(source, "/")
    done = asking("json:100ms", FSCK, "--deep", "-n", "--json", archive.path)
    assert all("event" not in json.loads(line) for line in done.stdout.splitlines())
    found = events(done.stderr)
    assert found[-1]["event"] == "end" and found[-1]["verb"] == "fsck" and "phase" in found[-1]


@pytest.mark.slow
def test_put_and_get_resume(place, archive, source):
    slow(archive)
    told, again = interrupt(lab.PROGRAM, "put", archive.path, source, "/")
    assert "cancelled; " in told and "--update" in again
    assert 0 < len(archive.json("ls", "/source")) < N_FILES
    lab.run(*again)
    told, again = interrupt(lab.PROGRAM, "get", archive.path, "/source", place.path / "back")
    there = {path.name: path.stat().st_ino for path in (place.path / "back/source").iterdir()}
    assert "cancelled; " in told and "--update" in again
    lab.run(*again)
    assert digests(place.path / "back/source") == digests(source)
    kept = {path.name: path.stat().st_ino for path in (place.path / "back/source").iterdir()}
    assert there and there.items() <= kept.items()  # they were not fetched again


@pytest.mark.slow
def test_put_resumes_what_gets_a_new_name(archive, source):
    """The same command again would put it into the directory that the first run has made."""
    slow(archive)
    _, again = interrupt(lab.PROGRAM, "put", archive.path, source, "/new")
    lab.run(*again)
    assert [entry["path"] for entry in archive.json("ls", "/new")] == sorted(f"/new/{path.name}" for path in source.iterdir())
    _, again = interrupt(lab.PROGRAM, "put", archive.path, source, "/new")  # it is there now
    assert again[-2:] == [str(source), "/new"]


@pytest.mark.slow
def test_get_is_done_when_it_is_on_the_disk(place, archive, source):
    """Else a power cut leaves a name, a size and a time, and no bytes: the next --update takes that for complete."""
    archive.put_in_full(source, "/")
    (place.path / "fault").write_text(f"fsync {errno.EIO}")
    broken = {"LD_PRELOAD": f"{lab.BUILD}/tests/lab/lab-fault.so", "ECFS_LAB_FAULT": str(place.path / "fault")}
    done = lab.run(lab.PROGRAM, "get", archive.path, "/source", place.path / "back", env={**os.environ, **broken}, check=False)
    assert done.returncode == 1 and "Input/output error" in done.stderr
    assert not [path for path in (place.path / "back").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_get_passes_what_another_has_left(place, archive, source):
    archive.put_in_full(source, "/")
    target = place.path / "back/source"
    target.mkdir(parents=True)
    lab.run("bash", "-c", 'touch "$1/.ecfs-get-$$-0" "$1/.ecfs-get-$$-1"; exec "$2" get "$3" /source "$1/.."', "bash", target,
            lab.PROGRAM, archive.path)
    assert digests(source).items() <= digests(target).items()


@pytest.mark.slow
def test_get_is_not_deceived_by_a_time_beyond_measure(place, archive, source):
    archive.put_in_full(source, "/")
    lab.run(lab.PROGRAM, "get", archive.path, "/source", place.path / "back")
    path = place.path / "back/source/file01"
    before = path.stat()
    path.write_bytes(bytes(before.st_size))
    with contextlib.suppress(OSError, OverflowError):  # where a file system has no such time there is nothing to see
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns + (10**9 << 55)))
    lab.run(lab.PROGRAM, "get", "--update", archive.path, "/source", place.path / "back")
    assert digests(place.path / "back/source") == digests(source)


@pytest.mark.slow
def test_who_is_to_ignore_ctrl_c_does(archive, source):
    process = subprocess.Popen(["bash", "-c", 'trap "" INT; exec "$@"', "bash", lab.PROGRAM, "put", archive.path, source, "/"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "ECFS_PROGRESS": "json:100ms"})
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) and process.returncode == 0


@pytest.mark.parametrize("verb", ["drain", "recode"])
@pytest.mark.slow
def test_drain_and_recode_resume(place, archive, source, verb):
    archive.put_in_full(source, "/")
    fullest = max(archive.endpoints, key=lambda endpoint: len(lab.stripe_files(endpoint)))  # one that was busy may have none
    slow(archive)
    drain = ["endpoint", "drain", archive.path, fullest.name]
    told, again = interrupt(lab.PROGRAM, *(drain if verb == "drain" else ["recode", archive.path, "/", "-c", "rs:3+1"]))
    left = events(told)[-1]
    assert 0 < left["done"] < left["all"]
    slow(archive, 0)
    resumed = events(asking("json", *again).stderr)[-1]
    assert resumed["done"] == left["all"] - (left["done"] if verb == "drain" else 0)  # recode counts what has the code
    archive.get("/source", place.path / "back")
    assert digests(place.path / "back/source") == digests(source)


@pytest.mark.slow
def test_recovery_begins_again(place, archive, source):
    archive.put_in_full(source, "/")
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("delay", 100)
    endpoints = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    new = place.path / "new"
    _, again = interrupt(lab.PROGRAM, "recover", new, "--yes", *endpoints, when=lambda event: True)
    for endpoint in archive.endpoints:
        endpoint.proxy.tell("delay", 0)
    lab.run(*again)
    lab.ecfs("get", new, "/source", place.path / "back")
    assert digests(place.path / "back/source") == digests(source)


@pytest.mark.slow
def test_wait_says_who_continues(place, archive, source):
    archive.configure("archive", commit="async")
    mount = place.mount(archive)
    slow(archive, 200_000)
    lab.run("cp", "-r", source, mount.path)
    process = subprocess.Popen([lab.PROGRAM, "wait", mount.path], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "ECFS_PROGRESS": "json:1s"})
    first = json.loads(process.stderr.readline())
    assert first["verb"] == "wait" and first["all"] > 0
    process.send_signal(signal.SIGINT)
    told = process.stderr.read()
    assert process.wait(60) == -signal.SIGINT and "the mount continues to store" in told
    slow(archive, 0)
    archive.await_stored()
    assert digests(mount.path / "source") == digests(source)
