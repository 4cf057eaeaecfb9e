#!/usr/bin/python3
"""S3 over links of a rate: `ecfs put` and `ecfs get` with rs:8+3 over eleven servers (tests/lab/s3-server), each behind a link of so
many MB/s in each direction (tc in a namespace of our own), against one such server with copies:1. Both take about as long.

    stores_links.py [RATE_MB] [SECONDS] [ROUNDS]

Only root can. ECFS_BUILD names the build, TMPDIR where servers and files lie."""
import statistics
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "lab"), str(Path(__file__).parent / "mount")]
import lab  # noqa: E402
import links  # noqa: E402
import s3  # noqa: E402
from stores import run  # noqa: E402

K, M = 8, 3


def measure(top, name, code, servers, size, rounds):
    """MB/s of put and get, and processor seconds of both per round."""
    ecfs, archive = lab.BUILD / "tools/ecfs", top / f"archive-{name}"
    words = [word for i, server in enumerate(servers) for word in (
        "--endpoint", f"s{i}=s3://{name}-{i},endpoint_url=http://127.0.0.1:{server.port},key_file={server.credentials}")]
    run(ecfs, "init", archive, "--code", code, "--key", "none", *words)
    figures = []
    for i in range(rounds + 1):
        file, got = top / f"{name}-file-{i}", top / "got"
        digest = lab.write_pattern(file, size, i)
        put, put_cpu = run(ecfs, "put", archive, file, "/")
        get, get_cpu = run(ecfs, "get", archive, f"/{file.name}", got)
        assert lab.digest(got) == digest
        file.unlink()
        got.unlink()
        if i > 0:  # the first is for what is found out once
            figures.append((size / 1e6 / put, size / 1e6 / get, put_cpu, get_cpu))
    return [statistics.median(row[i] for row in figures) for i in range(4)]


def main():
    rate, seconds, rounds = (float(word) for word in (sys.argv[1:4] + ["10", "8", "3"][len(sys.argv[1:4]):]))
    links.need_privileges("stores_links")
    links.enter_namespace()
    with tempfile.TemporaryDirectory(prefix="ecfs-stores-") as place:
        servers = [s3.S3(Path(place) / f"server-{i}") for i in range(K + M)]
        try:
            for server in servers:
                server.start()
            with links.Links([server.port for server in servers], rate):
                one = measure(Path(place), "one", "copies:1", servers[:1], int(rate * seconds * 1e6), int(rounds))
                many = measure(Path(place), "many", f"rs:{K}+{M}", servers, int(K * rate * seconds * 1e6), int(rounds))
        finally:
            for server in servers:
                server.kill()
    print(f"links of {rate:g} MB/s, medians of {rounds:g} rounds")
    for i, verb in enumerate(("put", "get")):
        print(f"{verb}   one server {one[i]:6.2f} MB/s ({one[i + 2]:.2f} s of a processor)   rs:{K}+{M} {many[i]:6.2f} MB/s "
              f"({many[i + 2]:.2f} s)   {many[i] / one[i]:5.2f} times")


if __name__ == "__main__":
    main()
