"""A certificate authority of a test's own, for servers and users; make-ca makes it with openssl, on the spot."""
import dataclasses
from pathlib import Path

import lab

MAKE_CA = lab.REPOSITORY / "tests/lab/make-ca"


@dataclasses.dataclass
class Credential:
    """A certificate and its key, as PEM files; stem is the path of both without suffix."""
    stem: Path

    @property
    def certificate(self):
        return self.stem.with_name(self.stem.name + ".pem")

    @property
    def key(self):
        return self.stem.with_name(self.stem.name + ".key")

    @property
    def subject(self):
        """As gridmaps have it: /O=.../CN=..."""
        done = lab.run("openssl", "x509", "-in", self.certificate, "-noout", "-subject", "-nameopt", "compat")
        return done.stdout.strip().removeprefix("subject=").strip()


class Ca:
    """One authority: ca.pem, and certificates, the directory of trusted authorities that grid software wants."""

    def __init__(self, directory, name="lab CA"):
        self.directory = directory
        lab.run(MAKE_CA, "new", directory, name)
        self.certificate = directory / "ca.pem"
        self.certificates = directory / "certificates"

    def host(self, stem, *names):
        """For a server; of this machine where no names are given."""
        lab.run(MAKE_CA, "host", self.directory, stem, *(names or ("localhost", "127.0.0.1")))
        return Credential(stem)

    def user(self, stem, name="Ada Lovelace"):
        lab.run(MAKE_CA, "user", self.directory, stem, name)
        return Credential(stem)

    def revoke(self, credential):
        """From now on it is in the list of the revoked in certificates."""
        lab.run(MAKE_CA, "revoke", self.directory, credential.stem)


def make_proxy(path, user, days=1):
    """A proxy certificate of a user's in one file with its key and chain; it has expired where days are negative."""
    lab.run(MAKE_CA, "proxy", path, user.stem, days)
    return path
