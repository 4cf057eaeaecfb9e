"""Real globus-gridftp-server processes with a certificate authority of the test's own; start() and kill() as lab.Sshd."""
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess

import ca
import lab
import pytest
from daemon import Daemon

PROGRAM = "globus-gridftp-server"


class Grid:
    """An authority, a user with a proxy, and whom servers take the user for."""

    def __init__(self, directory):
        if not shutil.which(PROGRAM):
            pytest.skip(f"there is no {PROGRAM}: install globus-gridftp-server-progs")
        if "gsiftp" in lab.schemes()[1]:
            pytest.skip("ecfs was built without GridFTP: install libglobus-ftp-client-dev, and set the build up again")
        directory.mkdir(parents=True)
        self.directory = directory
        self.authority = ca.Ca(directory / "ca")
        self.user = self.authority.user(directory / "user")
        self.host = self.authority.host(directory / "host")
        self.proxy = ca.make_proxy(directory / "proxy", self.user)
        self.gridmap = directory / "gridmap"
        self.gridmap.write_text(f'"{self.user.subject}" {pwd.getpwuid(os.geteuid()).pw_name}\n')


class Server(Daemon):
    """One server with its own port and root directory, run by whoever runs the tests."""

    def __init__(self, directory, name, grid, scheme="gsiftp"):
        self.name, self.grid, self.scheme, self.directory = name, grid, scheme, directory
        self.title = f"gridftp {name}"
        directory.mkdir(parents=True)
        self.root = directory / "root"
        self.root.mkdir()
        self.log = directory / "log"
        self.host = grid.host  # the certificate of the next start
        self.process, self.port = None, 0
        lab.logs[self.title] = self.log

    def endpoint(self, port=None, **options):
        """As `ecfs init --endpoint` takes it; port: of a proxy in front; options beside those it needs, None: without."""
        options = {"connect_timeout": "60s", "stall_timeout": "60s", **options}  # for busy machines: a key for each login
        if self.scheme == "gsiftp":
            options = {"user_proxy": self.grid.proxy, "certificates": self.grid.authority.certificates, **options}
        words = "".join(f",{key}={value}" for key, value in options.items() if value is not None)
        return f"{self.name}={self.scheme}://localhost:{port or self.port}{self.root}{words}"

    def _spawn(self, port):
        variables = {"X509_CERT_DIR": self.grid.authority.certificates, "X509_USER_CERT": self.host.certificate,
                     "X509_USER_KEY": self.host.key, "GRIDMAP": self.grid.gridmap}
        command = [PROGRAM, "-p", port, "-c", "none", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1",
                   "-d", "ERROR,WARN,INFO,TRANSFER", "-l", self.log, "-aa", "-allow-root",  # the last two are for root
                   "-anonymous-user", pwd.getpwuid(os.geteuid()).pw_name]
        with open(self.log, "ab") as log:
            return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=os.environ | {key: str(value) for key, value in variables.items()})

    @staticmethod
    def _answers(port):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            return connection.recv(3) == b"220"
        return False

    def kill(self):
        """Ends its sessions too, as if the machine were gone."""
        if self.process is None:
            return
        os.kill(self.process.pid, signal.SIGSTOP)  # no new session while we look for the old ones
        lab.end_all([self.process.pid, *lab.descendants(self.process.pid)])
        self.process.wait()
        self.process = None
