"""nginx and Apache httpd with WebDAV, each with a port and a root of its own; tests/lab/web-server writes what they read."""
import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import ca
import lab
import pytest
from daemon import Daemon

SERVER = lab.REPOSITORY / "tests/lab/web-server"
MODULE = Path("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so")


class Web(Daemon):
    """A server of a kind, nginx or apache, with features of web-server; endpoint() is as Sshd's.

    kill() ends it as if the machine were gone; start() brings it back on the same port.
    """

    def __init__(self, directory, name, kind, *features, authority=None):
        if kind == "nginx" and not (shutil.which("nginx") and MODULE.exists()):
            pytest.skip("there is no nginx with PROPFIND: install nginx-light and libnginx-mod-http-dav-ext")
        if kind == "apache" and not Path("/usr/sbin/apache2").exists():
            pytest.skip("there is no Apache httpd: install apache2-bin")
        if "davs" in lab.schemes()[1]:
            pytest.skip("ecfs was built without WebDAV: install libcurl4-openssl-dev and libxml2-dev, and set the build up again")
        self.name, self.kind, self.features, self.directory = name, kind, features, directory
        self.title = f"{kind} {name}"
        self.root = directory / "root"
        self.port, self.process, self.options = 0, None, {}
        directory.mkdir(parents=True)
        lab.logs[self.title] = directory / "log"
        if "tls" in features:
            authority = authority or ca.Ca(directory / "authority")
            authority.host(directory / "host")
            shutil.copy(authority.certificate, directory / "ca.pem")
            self.options["ca_file"] = directory / "ca.pem"

    def url(self, path="/ecfs", port=None, scheme=None, user=""):
        scheme = scheme or ("davs" if "tls" in self.features else "dav")
        return f"{scheme}://{user}127.0.0.1:{port or self.port}{path}"

    def endpoint(self, path="/ecfs", port=None, **more):
        user = more.pop("user", "")
        options = "".join(f",{key}={value}" for key, value in (self.options | more).items())
        return f"{self.name}={self.url(path, port, user=user)}{options}"

    def _spawn(self, port):
        (self.directory / "pid").unlink(missing_ok=True)
        return subprocess.Popen([SERVER, self.kind, self.directory, str(port), *self.features],
                                stdin=subprocess.DEVNULL, start_new_session=True)

    def _listens(self):
        """Whether it says so: both write their number when they have the port; else it may be another one that answers."""
        with contextlib.suppress(OSError):
            return (self.directory / "pid").read_text().strip() == str(self.process.pid)
        return False

    def kill(self):
        if self.process is None:
            return
        # Apache begins no new workers while we look for the old ones: not before it has stopped.
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        lab.end_all([self.process.pid, *lab.descendants(self.process.pid)])
        self.process.wait()
        self.process = None
        # The first thread of a process is dead before the others have let the port go.
        lab.until(lambda: not self._answers(self.port), 30, f"port {self.port} is free")

    def tokens(self, *tokens):
        """Lets in who bears one of these, and nobody else."""
        for path in (self.directory / "tokens").iterdir():
            path.unlink()
        for token in tokens:
            (self.directory / "tokens" / token).touch()
