"""Object Lock: what is needed stays locked, what is not does not, and what a server refuses is told."""
import json

import lab
import pytest
import s3
from test_s3_mount import contents, store  # noqa: F401 (a fixture)


class Locking(s3.Bucket):
    def endpoint(self, port=None, **more):
        return super().endpoint(port, delete="never", object_lock="governance 12s", **more)


def locks(server, bucket, folder="stripes"):
    """Until when each file of a folder is locked."""
    found = json.loads((server.directory / "locks.json").read_text())
    return {path: found.get(str(path), [None, ""])[1] for path in lab.files_below(bucket.root / folder)}


def told(archive, bucket):
    rows = json.loads(lab.ecfs("status", archive.path, "--json").stdout)["retained"]
    return next(row["locks"] for row in rows if row["endpoint"] == bucket.name)


@pytest.mark.slow
def test_what_is_needed_stays_locked(place, store):  # noqa: F811
    store.set("lock")
    endpoints = [Locking(store, "amber"), Locking(store, "birch"), *place.directories(lab.NAMES[2:])]
    archive = place.archive(endpoints)
    archive.configure("archive", history="0", deletion_grace="0s", small_file="0", journal_interval="1s")
    mount = place.mount(archive)
    for i in range(4):
        lab.write_pattern(mount.path / f"file {i}", 50_000, seed=i)
    archive.await_stored()
    expected = contents(mount.path)
    before = [locks(store, bucket) for bucket in endpoints[:2]]
    journal = locks(store, endpoints[0], "journal")
    dead = set(locks(store, endpoints[0]))
    lab.write_pattern(mount.path / "file 9", 50_000, seed=9)
    archive.await_stored()
    dead = set(locks(store, endpoints[0])) - dead
    (mount.path / "file 9").unlink()
    archive.await_stored()
    end = locks(store, endpoints[0])
    assert len(dead) == 1 and all(len(one) == 4 for one in before)

    for turn in range(2):  # more than once
        lab.until(lambda: all(locks(store, bucket)[path] > until for bucket, had in zip(endpoints, before)
                              for path, until in had.items()), 60, f"all is locked for longer, turn {turn}")
        before = [{path: locks(store, bucket)[path] for path in had} for bucket, had in zip(endpoints, before)]
    lab.until(lambda: all(locks(store, endpoints[0], "journal")[path] > until for path, until in journal.items()), 60,
              "the journal is, too")
    assert all(locks(store, endpoints[0])[path] == end[path] for path in dead), "what is dead is not"

    # Refused, it is told; and not any more when it is allowed.
    store.set("no-renew")
    lab.until(lambda: told(archive, endpoints[0])["refused"] >= 4, 60, "refusals reach the status", pause=0.3)
    assert "s3:PutObjectRetention" in told(archive, endpoints[0])["error"]
    shown = lab.ecfs("status", archive.path).stdout
    assert "locks      amber: for 12 s; " in shown and "s3:PutObjectRetention" in shown
    samples = dict(line.rsplit(" ", 1) for line in lab.ecfs("metrics", archive.path).stdout.splitlines() if line[0] != "#")
    (refused,) = [float(value) for name, value in samples.items()
                  if name.startswith("ecfs_endpoint_locks_refused") and 'endpoint="birch"' in name]
    assert refused >= 1
    store.set("no-renew", on=False)
    lab.until(lambda: told(archive, endpoints[0])["refused"] == 0 and told(archive, endpoints[0])["renewed"] > 0, 60,
              "they are locked again", pause=0.3)
    assert contents(mount.path) == expected
    mount.umount()
    assert told(archive, endpoints[0])["ended"] > 0, "it is kept for whoever asks without a mount"
