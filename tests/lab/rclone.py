"""Remotes of rclone as endpoints: directories, sshd processes and buckets, in a configuration file of their own."""
import os
import shutil
from pathlib import Path

import lab
import pytest


class Remotes:
    """Makes endpoints of remotes; config: what rclone knows."""

    def __init__(self, directory):
        if not shutil.which("rclone"):
            pytest.skip("there is no rclone: install rclone")
        if "rclone" in lab.schemes()[1]:
            pytest.skip("ecfs was built without rclone: install libcurl4-openssl-dev and libxml2-dev, and set the build up again")
        os.environ.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 fails with it
        directory.mkdir(parents=True)
        self.directory, self.config = directory, directory / "rclone.conf"
        self.config.touch(mode=0o600)

    def _add(self, name, **keys):
        with open(self.config, "a") as file:
            print(f"[{name}]", *(f"{key} = {value}" for key, value in keys.items()), sep="\n", file=file)

    def disk(self, name):
        """A directory."""
        self._add(name, type="local")
        return Remote(self, name, self.directory / "disks" / name, f"{self.directory}/disks/{name}")

    def box(self, sshd, port=None):
        """A directory of an sshd."""
        if port:
            sshd.know(port)
        self._add(sshd.name, type="sftp", host="127.0.0.1", port=port or sshd.port, user=lab.pwd.getpwuid(os.geteuid()).pw_name,
                  key_file=sshd.keys.identity, known_hosts_file=sshd.keys.known_hosts, shell_type="unix")
        return Remote(self, sshd.name, sshd.root / "ecfs", f"{sshd.root}/ecfs")

    def bucket(self, store, name):
        """A bucket of an S3 server of ours."""
        access, secret = (line.split(" = ")[1] for line in store.credentials.read_text().splitlines()[1:])
        self._add(name, type="s3", provider="Other", endpoint=f"http://127.0.0.1:{store.port}", access_key_id=access,
                  secret_access_key=secret, region="us-east-1")
        return Remote(self, name, store.root / f"ecfs-{name}", f"ecfs-{name}")


class Remote:
    """An endpoint; kill() takes what it holds away, start() brings it back."""

    def __init__(self, remotes, name, root, path):
        self.remotes, self.name, self.root, self.path = remotes, name, root, path
        self.away = root.parent / f"away-{name}"
        root.parent.mkdir(parents=True, exist_ok=True)

    def endpoint(self, **more):
        options = "".join(f",{key}={value}" for key, value in more.items())
        return f"{self.name}=rclone://{self.name}/{self.path},config={self.remotes.config}{options}"

    def kill(self):
        if self.root.exists():
            self.root.rename(self.away)

    def start(self):
        if self.away.exists():
            self.away.rename(self.root)

    def files(self):
        return {str(path.relative_to(self.root)): path for path in self.root.rglob("*") if path.is_file()}


def processes(remotes):
    """Of rclone, with the configuration of these: {pid: words}."""
    found = {}
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_text().split("\0") if path.name.isdigit() else []
        except OSError:
            continue
        if f"--config={remotes.config}" in words:
            found[int(path.name)] = words
    return found
