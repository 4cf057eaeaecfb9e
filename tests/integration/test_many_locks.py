"""Locks of flock and fcntl between mounts of one archive."""
import os
import signal
import sqlite3
import subprocess
import sys
import time

import lab
import postgresql
import pytest
from test_many_mounts import cluster, is_clean, join, make  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")

# A process with one file open. It does what lines say, and answers "ok", "blocked", or with an errno's name.
PROGRAM = r"""
import errno, fcntl, os, signal, sys
signal.signal(signal.SIGINT, lambda *_: (_ for _ in ()).throw(InterruptedError(errno.EINTR, "interrupted")))
fd = os.open(sys.argv[1], os.O_RDWR if "w" in sys.argv[2] else os.O_RDONLY)
for line in sys.stdin:
    what, *words = line.split()
    answer = "ok"
    try:
        if what == "flock":
            fcntl.flock(fd, {"un": fcntl.LOCK_UN, "sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX}[words[0]] |
                        (fcntl.LOCK_NB if "try" in words else 0))
        elif what == "fcntl":
            kind = {"un": fcntl.LOCK_UN, "sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX}[words[0]]
            fcntl.lockf(fd, kind | (fcntl.LOCK_NB if "try" in words and kind != fcntl.LOCK_UN else 0), int(words[2]), int(words[1]))
        elif what == "read":
            answer = os.pread(fd, 1000, 0).decode().strip() or "nothing"
        elif what == "write":
            os.pwrite(fd, words[0].encode(), 0)
        elif what == "close":
            os.close(os.open(sys.argv[1], os.O_RDONLY))
    except OSError as error:
        answer = "blocked" if error.errno in (errno.EAGAIN, errno.EACCES) else errno.errorcode[error.errno]
    print(answer, flush=True)
"""


class Process:
    def __init__(self, path, mode="r"):
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), mode], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def begin(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self):
        return self.process.stdout.readline().strip()

    def do(self, line):
        self.begin(line)
        return self.end()

    def is_waiting(self):
        """In the kernel, for an answer of the mount."""
        name = {"x86_64": "72 73", "aarch64": "25 32"}[os.uname().machine].split()  # fcntl, flock
        try:
            return open(f"/proc/{self.process.pid}/syscall", encoding="ascii").read().split()[0] in name
        except OSError:
            return False

    def stop(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(30)


@pytest.fixture
def processes():
    made = []

    def make_one(*words):
        made.append(Process(*words))
        return made[-1]
    yield make_one
    for process in made:
        process.process.kill()
        process.process.wait()
        process.process.stdin.close()
        process.process.stdout.close()


@pytest.fixture
def mounts(place, cluster):  # noqa: F811
    archive = make(place, cluster)
    both = place.mount(archive), place.mount(join(place, archive, "other"))
    (both[0].path / "file").write_text("before\n")
    yield both
    for mount in both:
        if mount.process is not None:
            mount.umount()
    is_clean(archive)


@pytest.mark.slow
def test_flock(mounts, processes):
    """One at a time, or many that share, on one machine and between two."""
    paths = [mount.path / "file" for mount in mounts]
    here, too, there = processes(paths[0]), processes(paths[0]), processes(paths[1])
    assert here.do("flock ex try") == "ok"
    assert (too.do("flock ex try"), too.do("flock sh try"), there.do("flock sh try")) == ("blocked",) * 3
    assert here.do("flock sh try") == "ok"
    assert (too.do("flock sh try"), there.do("flock sh try"), there.do("flock ex try")) == ("ok", "ok", "blocked")
    assert there.do("flock sh try") == "ok"
    there.begin("flock ex")
    lab.until(there.is_waiting, 20, "it waits")
    assert here.do("flock un") == "ok"
    too.stop()  # with what it had
    assert there.end() == "ok"
    assert here.do("flock sh try") == "blocked"
    here.begin("flock sh")
    lab.until(here.is_waiting, 20, "it waits")
    here.process.send_signal(signal.SIGINT)
    assert here.end() == "EINTR"
    here.begin("flock ex")
    lab.until(here.is_waiting, 20, "it waits")
    here.stop()
    assert there.do("flock un") == "ok"
    assert processes(paths[0]).do("flock ex try") == "ok"
    # What else is done with the mount goes on while somebody waits.
    waiting = [processes(paths[1]) for _ in range(15)]
    for process in waiting:
        process.begin("flock ex")
    (mounts[1].path / "another").write_text("meanwhile\n")


def test_fcntl(mounts, processes):
    """Ranges are split and joined, end with any descriptor of their process, and wait where they are not free."""
    paths = [mount.path / "file" for mount in mounts]
    here, too, there = processes(paths[0], "w"), processes(paths[0], "w"), processes(paths[1])
    assert here.do("fcntl ex 0 100 try") == "ok"
    assert (too.do("fcntl ex 99 1 try"), there.do("fcntl sh 0 1 try")) == ("blocked", "blocked")
    assert (too.do("fcntl ex 100 0 try"), here.do("fcntl un 40 20 try")) == ("ok", "ok")
    assert (there.do("fcntl sh 40 20 try"), there.do("fcntl sh 39 2 try"), there.do("fcntl sh 60 1 try")) == ("ok", "blocked", "blocked")
    assert here.do("fcntl ex 40 1 try") == "blocked"
    there.begin("fcntl sh 0 100")
    lab.until(there.is_waiting, 20, "it waits")
    assert here.do("close") == "ok"
    assert there.end() == "ok"
    assert here.do("fcntl ex 50 1 try") == "blocked"
    there.begin("fcntl sh 0 0")
    lab.until(there.is_waiting, 20, "it waits")
    too.stop()
    assert there.end() == "ok"
    there.stop()
    lab.until(lambda: here.do("fcntl ex 0 0 try") == "ok", 20, "what it had is free")


def test_lock_shows_what_was_written(mounts, processes):
    """Before it was given back, while the file stays open there and here."""
    writer, reader = processes(mounts[0].path / "file", "w"), processes(mounts[1].path / "file")
    assert (reader.do("read"), writer.do("read")) == ("before", "before")
    for turn in range(5):
        assert writer.do("flock ex") == "ok"
        assert writer.do(f"write turn-{turn}") == "ok"
        reader.begin("flock sh")
        lab.until(reader.is_waiting, 20, "it waits")
        assert writer.do("flock un") == "ok"
        assert reader.end() == "ok"
        assert reader.do("read").startswith(f"turn-{turn}")
        assert reader.do("flock un") == "ok"


def test_both_have_it_open_for_writing(mounts, processes):
    """And write it in turns; who only has it open keeps nobody from that."""
    idle = [processes(mount.path / "file", "w") for mount in mounts]
    assert [process.do("read") for process in idle] == ["before"] * 2
    lab.until(lambda: not any(list((mount.archive.path / "staging").glob("[0-9]*")) for mount in mounts), 20, "neither has it alone")
    writers = [processes(mount.path / "file", "w") for mount in mounts]
    for turn in range(6):
        writer, reader = writers[turn % 2], writers[1 - turn % 2]
        assert writer.do("fcntl ex 0 0") == "ok"
        assert turn == 0 or writer.do("read").startswith(f"turn-{turn - 1}")
        assert writer.do(f"write turn-{turn}") == "ok"
        reader.begin("fcntl sh 0 0")
        lab.until(reader.is_waiting, 20, "it waits")
        assert writer.do("fcntl un 0 0") == "ok"
        assert reader.end() == "ok"
        assert reader.do("read").startswith(f"turn-{turn}")
        assert reader.do("fcntl un 0 0") == "ok"
    assert idle[0].do("flock ex") == "ok"
    assert (idle[0].do("write last-1"), idle[0].do("flock un")) == ("ok", "ok")
    assert idle[1].do("flock ex") == "ok"
    assert (idle[1].do("read"), idle[1].do("flock un")) == ("last-1", "ok")


def test_file_that_shells_empty_to_lock_it(mounts):
    """exec 9>FILE; flock 9: the other machine finds it locked, and not busy."""
    script = 'exec 9>"$1"; flock $2 9 || exit 7; echo locked; read go'
    paths = [str(mount.path / "lock") for mount in mounts]
    command = ["sh", "-c", script, "-", paths[0]]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "locked\n"
    second = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def try_elsewhere():
        return subprocess.run(["sh", "-c", script, "-", paths[1], "-n"], stdin=subprocess.DEVNULL, check=False, timeout=60).returncode
    assert try_elsewhere() == 7
    for process in (first, second):
        process.communicate("go\n", timeout=60)
    # The kernel tells of the end of a process's lock when that is gone already. 1 is of read, behind the lock.
    lab.until(lambda: try_elsewhere() == 1, 10, "it is free elsewhere")


SQL = r"""
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
for _ in range(int(sys.argv[2])):
    base.execute("BEGIN IMMEDIATE")
    number = base.execute("SELECT number FROM counter").fetchone()[0]
    base.execute("UPDATE counter SET number = ?", (number + 1,))
    base.execute("COMMIT")
base.close()
"""


@pytest.mark.slow
def test_sqlite(mounts):
    """A database that processes of two machines have open and count in."""
    with sqlite3.connect(mounts[0].path / "base") as base:
        base.execute("CREATE TABLE counter (number)")
        base.execute("INSERT INTO counter VALUES (0)")
    base.close()
    each = 6
    counting = [subprocess.Popen([sys.executable, "-c", SQL, str(mount.path / "base"), str(each)])
                for mount in mounts for _ in range(2)]
    assert [process.wait(240) for process in counting] == [0] * 4
    for mount in mounts:
        base = sqlite3.connect(mount.path / "base")
        assert base.execute("SELECT number FROM counter").fetchone() == (4 * each,)
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        base.close()


COUNT = r"""
import fcntl, os, sys
lock = os.open(sys.argv[1] + ".lock", os.O_RDONLY)
for _ in range(int(sys.argv[2])):
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(sys.argv[1], encoding="ascii") as file:
        number = int(file.read())
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write(str(number + 1))
    fcntl.flock(lock, fcntl.LOCK_UN)
"""


def test_counter(mounts):
    """Two processes on each of two machines count in a file, under the lock of another."""
    (mounts[0].path / "count").write_text("0")
    (mounts[0].path / "count.lock").write_text("")
    each = 15
    counting = [subprocess.Popen([sys.executable, "-c", COUNT, str(mount.path / "count"), str(each)])
                for mount in mounts for _ in range(2)]
    assert [process.wait(120) for process in counting] == [0] * 4
    assert [(mount.path / "count").read_text() for mount in mounts] == [str(4 * each)] * 2


APPEND = r"""
import fcntl, os, sys
lock = os.open(sys.argv[1] + ".lock", os.O_RDONLY)
for i in range(int(sys.argv[2])):
    fcntl.flock(lock, fcntl.LOCK_EX)
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    os.write(log, f"{sys.argv[3]}-{i}\n".encode())
    os.close(log)
    fcntl.flock(lock, fcntl.LOCK_UN)
"""


@pytest.mark.slow
def test_append(mounts):
    """What is appended under a lock takes the place of nothing that another machine has appended."""
    (mounts[0].path / "log").write_text("")
    (mounts[0].path / "log.lock").write_text("")
    appending = [subprocess.Popen([sys.executable, "-c", APPEND, str(mount.path / "log"), "25", str(number)])
                 for number, mount in enumerate(mounts * 2)]
    assert [process.wait(120) for process in appending] == [0] * 4
    expected = sorted(f"{number}-{i}" for number in range(4) for i in range(25))
    for mount in mounts:
        assert sorted((mount.path / "log").read_text().split()) == expected


@pytest.mark.nightly
def test_killed_mount_holds_nothing(mounts, processes):
    """When it is known to be dead."""
    dead, waiting = processes(mounts[0].path / "file"), processes(mounts[1].path / "file")
    assert dead.do("flock ex try") == "ok"
    assert waiting.do("flock ex try") == "blocked"
    waiting.begin("flock ex")
    lab.until(waiting.is_waiting, 20, "it waits")
    mounts[0].kill()
    begun = time.monotonic()
    assert waiting.end() == "ok"
    assert 45 < time.monotonic() - begun < 120
    mounts[0].start()
    again = processes(mounts[0].path / "file")
    assert again.do("flock sh try") == "blocked"


@pytest.mark.nightly
def test_who_slept_has_lost_its_locks(mounts, processes):
    """And is told so, at whatever it does with the file."""
    asleep, too, awake = processes(mounts[0].path / "file", "w"), processes(mounts[0].path / "file"), processes(mounts[1].path / "file")
    assert (asleep.do("flock ex try"), too.do("read")) == ("ok", "before")
    os.kill(mounts[0].process.pid, signal.SIGSTOP)
    assert awake.do("flock ex") == "ok"
    os.kill(mounts[0].process.pid, signal.SIGCONT)
    lab.until(lambda: "has lost its locks" in mounts[0].text(), 60, "it is told")
    lab.until(lambda: asleep.do("read") == "EIO", 10, "it cannot read")
    assert (asleep.do("write x"), asleep.do("flock un"), asleep.do("flock ex")) == ("EIO",) * 3
    assert too.do("flock sh try") == "EIO"
    assert awake.do("read") == "before"
    for process in (asleep, too):
        process.stop()
    mounts[0].kill()
    mounts[0].start()


@pytest.mark.nightly
def test_database_that_restarts_keeps_locks(mounts, processes, cluster):  # noqa: F811
    here, there, waiting = [processes(mount.path / "file") for mount in (mounts[0], mounts[1], mounts[1])]
    for number in (signal.SIGINT, signal.SIGQUIT):
        assert here.do("flock ex") == "ok"
        waiting.begin("flock ex")
        lab.until(waiting.is_waiting, 20, "it waits")
        cluster.stop(number)
        cluster.start()
        assert there.do("flock sh try") == "blocked"
        assert here.do("flock un") == "ok"
        assert waiting.end() == "ok"
        assert here.do("flock sh try") == "blocked"
        assert waiting.do("flock un") == "ok"
