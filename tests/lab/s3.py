"""tests/lab/s3-server on a port of its own, and its buckets as endpoints."""
import subprocess

import lab
import pytest
from daemon import Daemon

SERVER = lab.REPOSITORY / "tests/lab/s3-server"
PYTHON = "/usr/bin/python3"


class Bucket:
    """An endpoint; kill() takes the bucket away, start() brings it back."""

    def __init__(self, server, name, prefix=""):
        self.server, self.name, self.prefix = server, name, prefix
        self.bucket = server.root / f"ecfs-{name}"
        self.away = server.root.parent / f"away-{name}"
        self.root = self.bucket / prefix
        if prefix:
            self.bucket.mkdir()

    def endpoint(self, port=None, **more):
        options = "".join(f",{key}={value}" for key, value in more.items())
        return (f"{self.name}=s3://ecfs-{self.name}{'/' if self.prefix else ''}{self.prefix},"
                f"endpoint_url=http://127.0.0.1:{port or self.server.port},key_file={self.server.credentials}{options}")

    def kill(self):
        if self.bucket.exists():
            self.bucket.rename(self.away)

    def start(self):
        if self.away.exists():
            self.away.rename(self.bucket)

    def keys(self):
        """Of all objects; directories are none."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


class S3(Daemon):
    """A server with features of s3-server."""

    title = "the S3 server"

    def __init__(self, directory, *features):
        if subprocess.run([PYTHON, "-c", "import botocore.auth"], capture_output=True, check=False).returncode:
            pytest.skip("signatures cannot be verified: install python3-botocore")
        if "s3" in lab.schemes()[1]:
            pytest.skip("ecfs was built without S3: install libcurl4-openssl-dev and libxml2-dev, and set the build up again")
        self.directory, self.features = directory, features
        self.root, self.credentials = directory / "root", directory / "credentials"
        self.port, self.process = 0, None
        directory.mkdir(parents=True)
        self.root.mkdir()
        lab.logs["s3"] = directory / "log"

    def _spawn(self, port):
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen([PYTHON, "-W", "ignore", SERVER, self.directory, str(port), *self.features],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def set(self, feature, on=True):
        path = self.directory / f"feature-{feature}"
        path.touch() if on else path.unlink()

    def requests(self):
        """(method, kind, bucket and key, status, code) of all so far."""
        path = self.directory / "requests"
        return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []

    def uploads(self):
        """In parts, that have not ended."""
        return [path.name for path in (self.directory / "uploads").iterdir()]
