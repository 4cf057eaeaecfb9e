"""A PostgreSQL server of a test's own: in a temporary directory, with a socket and no port."""
import os
import shutil
import signal
import subprocess
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


class Cluster:
    """A server that runs; settings are lines of postgresql.conf. It refuses to be root's, so it is nobody's there."""

    def __init__(self, *settings, port=None):
        """Of TCP there is a port where it is given, at 127.0.0.1 and without TLS."""
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-pg-"))
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        if self.user:
            os.chown(self.directory, NOBODY, NOBODY)
        os.chmod(self.directory, 0o755)
        self.data = self.directory / "data"
        self.process = None
        self._run(_tool("initdb"), "-D", self.data, "-U", "ecfs", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write((f"listen_addresses = '127.0.0.1'\nport = {port}\n" if port else "listen_addresses = ''\n") +
                       f"unix_socket_directories = '{self.directory}'\n"
                       "fsync = off\nshared_buffers = 32MB\nlogging_collector = off\n" + "".join(f"{line}\n" for line in settings))
        self.location = f"postgresql://ecfs@/postgres?host={urllib.parse.quote(str(self.directory), safe='')}"
        self.location += f"&port={port}" if port else ""
        self.start()

    def _run(self, *command):
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, cwd="/", **self.user)

    def start(self):
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen([_tool("postgres"), "-D", str(self.data)], stdout=log, stderr=log, cwd="/", **self.user)
        until = time.monotonic() + UP_S
        while self.psql("SELECT 1", check=False).returncode != 0:
            if time.monotonic() > until or self.process.poll() is not None:
                self.process.kill()
                raise RuntimeError((self.directory / "log").read_text())
            time.sleep(0.05)

    def stop(self, sign=signal.SIGINT):
        """SIGINT: connections are cut and what is committed is kept; SIGQUIT: as if the server had crashed."""
        self.process.send_signal(sign)
        self.process.wait(UP_S)

    def psql(self, sql, check=True):
        return subprocess.run(["psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.location, "-c", sql],
                              check=check, capture_output=True, text=True)

    def dump(self, schema):
        """Its rows as they are, for restore ()."""
        return subprocess.run([_tool("pg_dump"), "-n", schema, "-d", self.location], check=True, capture_output=True).stdout

    def restore(self, dump):
        subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.location], input=dump, check=True, capture_output=True)

    def close(self):
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Standby(Cluster):
    """A server that follows another, and says to nobody how far it is: the other waits for nothing."""

    def __init__(self, primary):  # pylint: disable=super-init-not-called
        self.directory = Path(tempfile.mkdtemp(prefix="ecfs-pg-"))
        self.user = primary.user
        if self.user:
            os.chown(self.directory, NOBODY, NOBODY)
        os.chmod(self.directory, 0o755)
        self.data = self.directory / "data"
        self._run(_tool("pg_basebackup"), "-D", self.data, "-d", primary.location, "-R", "-c", "fast")
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"unix_socket_directories = '{self.directory}'\n")
        self.location = primary.location.replace(primary.directory.name, self.directory.name)
        self.process = None
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
