"""Where archives have their catalogs of which tests say nothing: in files.

With ECFS_TEST_CATALOG=postgresql they are in a database of a server that the first of them starts; with
ECFS_TEST_CATALOG=many they are in it, and many mounts may write: what tests have is then one of many.
"""
import itertools
import os
import re

import postgresql
import pytest

KIND = os.environ.get("ECFS_TEST_CATALOG", "")
_moved = itertools.count()


class Server:
    """Of all archives of this process; it ends with the tests."""

    def __init__(self):
        assert KIND in ("", "postgresql", "many"), f"ECFS_TEST_CATALOG={KIND} is none of postgresql, many"
        self.cluster = None

    def settings(self):
        if not KIND:
            return []
        if not postgresql.have_postgresql():
            pytest.skip("there is no PostgreSQL server of version 15 or later")
        self.cluster = self.cluster or postgresql.Cluster()
        return [f"catalog={self.cluster.location}", *(["catalog_mounts=many"] if KIND == "many" else [])]

    def stop(self):
        if self.cluster:
            self.cluster.close()
        self.cluster = None


server = Server()


def words(arguments):
    """What is to be said to `ecfs init` or `ecfs recover` beside these."""
    says = any(str(word).startswith("catalog=") for word in arguments) or "--read-only" in arguments
    if says or arguments[:1] not in (["init"], ["recover"]):
        return []
    return [word for setting in server.settings() for word in ("--set", setting)]


def makes_way(done):
    """Whether a recovery was refused because the schema of an archive whose directory is lost is there, and is not now."""
    found = done.returncode != 0 and "is there already" in done.stderr and re.search(r"\becfs_[0-9a-f]{32}\b", done.stderr)
    if found:
        server.cluster.psql(f"ALTER SCHEMA {found[0]} RENAME TO {found[0]}_lost_{next(_moved)}")
    return bool(found)
