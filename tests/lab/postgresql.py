"""A PostgreSQL server of a test's own: in a temporary directory, with a socket and no port."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

NOBODY = 65534
UP_S = 60  # for the server to take connections


def _tool(name):
    """Its newest version here that ecfs takes; None: there is none."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]), reverse=True)
    path = str(versions[0]) if versions and int(versions[0].parts[4]) >= 15 else shutil.which(name)
    return path


def have_postgresql():
    """Whether a server can be made here."""
    return _tool("initdb") is not None and _tool("postgres") is not None


def _user():
    """Of a server, for subprocess."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


class Cluster:
    """A server that runs; settings are lines of postgresql.conf. It refuses to be root's, so it is nobody's there."""

    def __init__(self, *settings, port=None, address="127.0.0.1"):
        """Of TCP there is a port where it is given, without TLS and for whoever gets there."""
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-pg-"))
        self.user = _user()
        if self.user:
            os.chown(self.directory, NOBODY, NOBODY)
        os.chmod(self.directory, 0o755)
        self.data = self.directory / "data"
        self.keeper = None
        self._run(_tool("initdb"), "-D", self.data, "-U", "ecfs", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write((f"listen_addresses = '{address}'\nport = {port}\n" if port else "listen_addresses = ''\n") +
                       f"unix_socket_directories = '{self.directory}'\n"
                       "fsync = off\nshared_buffers = 32MB\nlogging_collector = off\n" + "".join(f"{line}\n" for line in settings))
        with open(self.data / "pg_hba.conf", "a", encoding="utf-8") as rules:
            rules.write("host all,replication ecfs 0.0.0.0/0 trust\n")
        self.location = f"postgresql://ecfs@/postgres?host={urllib.parse.quote(str(self.directory), safe='')}"
        self.location += f"&port={port}" if port else ""
        self.port, self.address = port, address
        self.start()

    def _run(self, *command):
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, cwd="/", **self.user)

    def start(self):
        self._tell("start")

    def stop(self, sign=signal.SIGINT):
        """SIGINT: connections are cut and what is committed is kept; SIGQUIT: as if the server had crashed."""
        self._tell(f"stop {int(sign)}")

    def _tell(self, words):
        """To the process that starts and ends the server. It has nothing open that tests have open: a child of theirs would
        close files on mounts, and wait for what waits for the server."""
        if self.keeper is None:
            command = [sys.executable, "-c", Path(__file__).read_text(), _tool("postgres"), self.data, self.directory, self.port or 5432]
            self.keeper = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                           cwd="/", start_new_session=True)
        self.keeper.stdin.write(f"{words}\n")
        self.keeper.stdin.flush()
        if self.keeper.stdout.readline() != "done\n":
            raise RuntimeError(f"{words}: {(self.directory / 'log').read_text()}")

    def psql(self, sql, check=True):
        return subprocess.run(["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.location, "-c", sql],
                              check=check, capture_output=True, text=True)

    def dump(self, schema):
        """Its rows as they are, for restore ()."""
        return subprocess.run([_tool("pg_dump"), "-n", schema, "-d", self.location], check=True, capture_output=True).stdout

    def restore(self, dump):
        subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.location], input=dump, check=True, capture_output=True)

    def close(self):
        """It may be stopped already."""
        self.keeper.stdin.close()
        self.keeper.wait(UP_S)
        self.keeper.stdout.close()
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Standby(Cluster):
    """A server that follows another, and says to nobody how far it is: the other waits for nothing."""

    def __init__(self, primary, address="127.0.0.1"):  # pylint: disable=super-init-not-called
        """Where the other has a port, with the same at an address of its own."""
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-pg-"))
        self.user = primary.user
        if self.user:
            os.chown(self.directory, NOBODY, NOBODY)
        os.chmod(self.directory, 0o755)
        self.data = self.directory / "data"
        self._run(_tool("pg_basebackup"), "-D", self.data, "-d", primary.location, "-R", "-c", "fast")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"unix_socket_directories = '{self.directory}'\nlisten_addresses = '{address if primary.port else ''}'\n")
        self.location = primary.location.replace(primary.directory.name, self.directory.name)
        self.port, self.address = primary.port, address
        self.keeper = None
        self.start()

    def stop_following(self):
        """What is changed from now on does not get there; it returns when nothing more can."""
        self.psql("ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")
        self.psql("SELECT pg_reload_conf ()")
        until = time.monotonic() + UP_S
        while self.psql("SELECT count (*) FROM pg_stat_wal_receiver WHERE status = 'streaming'").stdout.strip() != "0":
            if time.monotonic() > until:
                raise RuntimeError("it goes on following")
            time.sleep(0.05)

    def promote(self):
        self.psql("SELECT pg_promote ()")


def _is_up(directory, port):
    return subprocess.run(["psql", "-X", "-q", "-h", directory, "-p", port, "-U", "ecfs", "-d", "postgres", "-c", "SELECT 1"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _start(program, data, directory, port):
    """The process, or None: it has ended, or takes no connections."""
    with open(f"{directory}/log", "ab") as log:
        process = subprocess.Popen([program, "-D", data], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **_user())
    until = time.monotonic() + UP_S
    while not _is_up(directory, port):
        if time.monotonic() > until or process.poll() is not None:
            process.kill()
            process.wait()
            return None
        time.sleep(0.05)
    return process


def _keep(*where):
    """Starts and stops a server as its input says, and ends it with that."""
    process = None
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == "start":
            process = _start(*where)
        elif process is not None and process.poll() is None:
            process.send_signal(int(numbers[0]))
            process.wait(UP_S)
        print("done" if word == "stop" or process is not None else "failed", flush=True)
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(UP_S)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
