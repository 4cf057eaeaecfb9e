"""How endpoints usually are: told by status, kept from one mount to the next, and used for its first read."""
import sqlite3

import lab
import pytest

MIB = 1 << 20
COLUMNS = ("latency_p5_us, latency_p50_us, latency_p95_us, read_p5, read_p50, read_p95, write_p5, write_p50, write_p95")


def endpoints(archive):
    return {endpoint["name"]: endpoint for endpoint in archive.json("status")["endpoints"]}


def rows(archive):
    with sqlite3.connect(archive.path / "catalog.sqlite") as catalog:
        return dict((name, figures) for name, *figures in catalog.execute(
            f"SELECT e.name, {COLUMNS} FROM estimates JOIN endpoints e ON e.id = endpoint"))


def set_row(archive, name, *figures):
    with sqlite3.connect(archive.path / "catalog.sqlite") as catalog:
        catalog.execute(f"UPDATE estimates SET ({COLUMNS}) = (?, ?, ?, ?, ?, ?, ?, ?, ?) "
                        "WHERE endpoint = (SELECT id FROM endpoints WHERE name = ?)", (*figures, name))


@pytest.mark.slow
def test_the_next_mount_begins_with_what_the_last_one_knew(place):
    archive = place.archive(place.directories())
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", 24 * MIB, 1)
    archive.await_stored()
    for facts in endpoints(archive).values():
        assert facts["latency_ms"]["p5"] <= facts["latency_ms"]["p50"] <= facts["latency_ms"]["p95"]
        assert facts["latency_ms"]["p50"] == facts["round_trip_ms"] > 0
        assert facts["write_bytes_per_s"] > 0
    table = lab.ecfs("status", archive.path).stdout
    assert "LATENCY" in table and ", 95% " in table, table
    mount.umount()
    kept = rows(archive)
    assert set(kept) == set(lab.NAMES) and all(0 < row[0] <= row[1] <= row[2] for row in kept.values()), kept

    for _ in range(3):  # where a busy machine makes others late, what they owe is asked of the slow one, too
        set_row(archive, "amber", 300, 500, 5_000_000, 2000, 3000, 4000, 0, 0, 0)
        set_row(archive, "birch", -1, 0, 2**63 - 1, 5, 4, 3, -2**63, 2**63 - 1, 2**63 - 1)
        mount.start()
        lab.forget_mounts()
        assert lab.digest(mount.path / "file") == expected
        found = endpoints(archive)
        assert found["amber"]["read_rate"]["p50"] > 0
        if found["amber"]["read_bytes"] < 4 * MIB:  # a stripe has 6 MiB
            break
        mount.umount()
    assert found["amber"]["read_bytes"] < 4 * MIB, "what is known to be slow is not read from where others suffice"
    assert found["amber"]["read_rate"]["p50"] < 10_000, "only bytes that were asked for tell that it is faster"
    assert sum(facts["read_bytes"] for facts in found.values()) >= 24 * MIB
    assert 0 < found["birch"]["latency_ms"]["p95"] < 60_000, "impossible figures are nobody's"


@pytest.mark.slow
def test_one_that_flaps_is_on_trial_and_let_in_again(place):
    server = place.sshd("amber")
    archive = place.archive([server, *place.directories(lab.NAMES[1:])])
    mount = place.mount(archive)
    expected = {}

    def state():
        return endpoints(archive)["amber"]["state"]

    def store_while_it_falls_silent(name):
        """At work: silent at anything else, it would be nobody to be tried."""
        before, source = lab.stripe_files(server), place.path / "source"
        expected[name] = lab.write_pattern(source, 32 * MIB, len(expected))
        with open(source, "rb") as data, open(mount.path / name, "wb") as file:
            file.write(data.read(16 * MIB))
            file.flush()
            lab.until(lambda: set(lab.stripe_files(server)) - set(before), 60, "a stripe is on its way to amber")
            server.suspend()
            file.write(data.read())

    for i in range(6):  # experience, so that it is given up sooner
        expected[f"quick-{i}"] = lab.write_pattern(mount.path / f"quick-{i}", MIB, i)
    archive.await_stored()
    for i in range(2):
        store_while_it_falls_silent(f"without-{i}")
        lab.until(lambda: state() == "down", 60, "amber is down")
        server.resume()
        archive.await_stored()
        lab.until(lambda: state() == "active", 60, "amber has proven itself")
        assert mount.text().count(", on trial") == i + 1, mount.text()
    lab.forget_mounts()
    for name, digest in expected.items():
        assert lab.digest(mount.path / name) == digest
