#!/usr/bin/python3
"""S3 beside rclone: `ecfs put` and `ecfs get` (one copy, no key) against `rclone copy`, with the same bytes, to and from the same
server, in turns. Rates are of the whole command, processor time is the client's.

    stores.py [MIB] [ROUNDS] [SERVER...]

Servers are those of this machine unless they are named: lab (tests/lab/s3-server), moto, versitygw, rclone (`rclone serve s3`).
ECFS_BUILD names the build, TMPDIR where servers and files lie. rclone sends a file below 200 MiB with one request, and a larger one
in parts of 5 MiB, four at once."""
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "lab")]
import lab  # noqa: E402
import s3  # noqa: E402
from daemon import Daemon  # noqa: E402

MIB = 1 << 20
ACCESS, SECRET = "AKIALABLABLABLABLAB0", "secret/of+the/lab"


class Other(Daemon):
    """A server of somebody else's, with the lab's key."""

    def __init__(self, directory, title, command, secret=SECRET, **environment):
        self.directory, self.title, self.command = directory, title, command
        self.environment = os.environ | environment
        self.port, self.process, self.secret = 0, None, secret
        self.credentials = directory / "credentials"
        (directory / "data").mkdir(parents=True)
        self.credentials.touch(mode=0o600)
        self.credentials.write_text(f"[default]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {secret}\n")

    def _spawn(self, port):
        words = [word.format(port=port, data=self.directory / "data") for word in self.command]
        with open(self.directory / "log", "ab") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, env=self.environment)

    def kill(self):
        self.process.kill()
        self.process.wait()


def can_serve_s3():
    return shutil.which("rclone") and "s3" in subprocess.run(["rclone", "serve", "--help"], capture_output=True, text=True).stdout


def servers(directory, wanted):
    """(name, server) of those that are there."""
    key = {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
    known = {
        "lab": (True, lambda at: s3.S3(at)),
        "moto": (shutil.which("moto_server"), lambda at: Other(at, "moto", ["moto_server", "-p", "{port}"])),
        "versitygw": (shutil.which("versitygw"), lambda at: Other(
            at, "versitygw", ["versitygw", "--port", "127.0.0.1:{port}", "--quiet", "posix", "{data}"], **key)),
        "rclone": (can_serve_s3(), lambda at: Other(
            at, "rclone serve s3", ["rclone", "serve", "s3", "--config=/dev/null", "--addr", "127.0.0.1:{port}", "--auth-key",
                                    f"{ACCESS},secretofthelab", "{data}"], secret="secretofthelab")),
    }
    for name in wanted or known:
        there, make = known[name]
        if there:
            yield name, make(directory / name)
        else:
            print(f"{name}: not on this machine")


def run(*words, **environment):
    """(seconds, processor seconds) of a command."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, env=os.environ | environment)
    seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(top, server, size, rounds):
    """{(verb, program): [(seconds, processor seconds)]}"""
    secret = getattr(server, "secret", SECRET)
    remote = {"RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_R_TYPE": "s3", "RCLONE_CONFIG_R_PROVIDER": "Other",
              "RCLONE_CONFIG_R_ENDPOINT": f"http://127.0.0.1:{server.port}", "RCLONE_CONFIG_R_ACCESS_KEY_ID": ACCESS,
              "RCLONE_CONFIG_R_SECRET_ACCESS_KEY": secret, "RCLONE_CONFIG_R_REGION": "us-east-1",
              "RCLONE_CONFIG_R_NO_CHECK_BUCKET": "true"}
    ecfs, archive, file = lab.BUILD / "tools/ecfs", top / "archive", top / "file"
    run(ecfs, "init", archive, "--code", "copies:1", "--key", "none", "--endpoint",
        f"s=s3://bench,endpoint_url=http://127.0.0.1:{server.port},key_file={server.credentials}")
    figures = {}
    for i in range(rounds + 1):
        lab.write_pattern(file, size * MIB, i)
        (top / f"file-{i}").hardlink_to(file)
        turns = [(("put", "ecfs"), (ecfs, "put", archive, top / f"file-{i}", "/")),
                 (("put", "rclone"), ("rclone", "copy", top / f"file-{i}", "r:bench/theirs")),
                 (("get", "ecfs"), (ecfs, "get", archive, f"/file-{i}", top / "got")),
                 (("get", "rclone"), ("rclone", "copy", f"r:bench/theirs/file-{i}", top / "theirs"))]
        for which, words in turns:
            took = run(*words, **remote)
            if i > 0:  # the first is for what is found out once
                figures.setdefault(which, []).append(took)
        digests = {lab.digest(path) for path in (file, top / "got", top / "theirs" / f"file-{i}")}
        assert len(digests) == 1, digests
        (top / "got").unlink()
        shutil.rmtree(top / "theirs")
        (top / f"file-{i}").unlink()
        file.unlink()
    return figures


def table(name, size, figures):
    for verb in ("put", "get"):
        ours, theirs = figures[verb, "ecfs"], figures[verb, "rclone"]
        rate, cpu = (statistics.median(row[i] for row in ours) / statistics.median(row[i] for row in theirs) for i in (0, 1))
        (seconds, used), (other_seconds, other_used) = ([statistics.median(row[i] for row in rows) for i in (0, 1)] for rows in (ours, theirs))
        print(f"{name:<10} {size:>5} MiB  {verb}  ecfs {size / seconds:6.0f} MiB/s {used:5.2f} s   rclone {size / other_seconds:6.0f} MiB/s "
              f"{other_used:5.2f} s   rate {1 / rate:5.2f}   processor time {cpu:5.2f}", flush=True)


def main():
    size, rounds = (int(word) for word in (sys.argv[1:3] + ["256", "5"][len(sys.argv[1:3]):]))
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 fails with it
    if not shutil.which("rclone"):
        sys.exit("stores: there is no rclone: apt install rclone")
    print(f"medians of {rounds} rounds in turns; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="ecfs-stores-") as place:
        for name, server in servers(Path(place), sys.argv[3:]):
            server.start()
            try:
                top = Path(place) / f"{name}-work"
                top.mkdir()
                table(name, size, measure(top, server, size, rounds))
            finally:
                server.kill()


if __name__ == "__main__":
    main()
