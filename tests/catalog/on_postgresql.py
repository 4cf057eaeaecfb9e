#!/usr/bin/env python3
"""Runs programs one after the other with a PostgreSQL of their own: on_postgresql.py PROGRAM..."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "lab"))
from postgresql import Cluster, have_postgresql  # noqa: E402


def main(programs):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the server as well
    if not have_postgresql():
        print("there is no PostgreSQL server of version 15 or later")
        return 77
    failed = []
    with Cluster() as cluster:
        for program in programs:
            print(f"== {os.path.basename(program)}", flush=True)
            if subprocess.run([program], env={**os.environ, "ECFS_TEST_POSTGRESQL": cluster.location}).returncode:
                failed.append(os.path.basename(program))
    print("failed:", *failed if failed else ["none"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
