"""ecfs status --explain: which endpoints reading treated as erased, when, why and what that saved."""
import os
import re

import lab
import pytest

MIB = 1 << 20
SIZE = 48 * MIB


def reads(archive):
    return archive.json("status")["reads"]


def erased(archive, name, *whys):
    return [each for each in reads(archive)["erasures"] if each["endpoint"] == name and each["why"] in whys]


@pytest.mark.skipif(not lab.ROOT, reason="only root can empty the page cache")
@pytest.mark.slow
def test_a_stopped_server_is_explained(place):
    servers = {name: place.sshd(name) for name in lab.NAMES}
    archive = place.archive(list(servers.values()))
    mount = place.mount(archive, "-d")
    expected = lab.write_pattern(mount.path / "file", SIZE, 1)
    archive.await_stored()
    before = reads(archive)
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected
    healthy = reads(archive)
    assert healthy["segments"] > before["segments"]
    assert healthy["received_bytes"] - before["received_bytes"] >= SIZE

    def read_with_one_stopped():
        servers["delta"].suspend()
        try:
            lab.forget_mounts()
            assert lab.digest(mount.path / "file") == expected
        finally:
            servers["delta"].resume()
        return erased(archive, "delta", "stalled", "late", "down")

    found = lab.until(read_with_one_stopped, 120, "the stopped server was missed")
    assert all(each["segments"] >= 1 and each["end"] >= each["begin"] > 1_700_000_000 for each in found)
    after = reads(archive)
    assert after["degraded"] > before["degraded"] and after["decoded"] > 0
    assert after["hedged_bytes"] < after["received_bytes"]
    text = lab.ecfs("status", archive.path, "--explain").stdout
    assert "delta: " in text and "read around it" in text, text
    assert "around erased endpoints" in text
    lab.until(lambda: re.search("endpoint delta: (was )?treated as erased in reads", mount.text()), 60, "the log tells")

    # Damage is told as what it is.
    holders = {each["index"]: each["endpoint"] for each in archive.json("info", "/file")["stripes"]}
    name = next(holders[index] for index in range(4) if holders[index] != "delta")  # data is preferred
    stripe = max(lab.stripe_files(servers[name]), key=lambda path: path.stat().st_size)
    with open(stripe, "r+b") as file:
        for offset in range(100_000, stripe.stat().st_size - 5000, 30_000):
            os.pwrite(file.fileno(), b"damaged", offset)
    lab.until(lambda: archive.json("status")["endpoints"][3]["state"] == "active", 120, "delta is back")

    def read_damage():
        lab.forget_mounts()
        assert lab.digest(mount.path / "file") == expected
        return erased(archive, name, "damaged")

    lab.until(read_damage, 120, "the damage was met")
    mount.umount()
    assert f"endpoint {name}: was treated as erased in reads for " in mount.text()
    assert "not mounted" in lab.ecfs("status", archive.path, "--explain").stdout


@pytest.mark.slow
def test_policies_are_configured_and_read_the_same_bytes(place):
    archive = place.archive(place.directories())
    for policy in ("T=20,R=2,P=6,fastest1,data-first", "T=1", "R=1,fastest0,no-preference"):
        archive.configure("archive", read_policy=policy, hedge_budget="0")
        mount = place.mount(archive)
        name = f"file-{policy}"
        expected = lab.write_pattern(mount.path / name, 5 * MIB + 17, 2)
        archive.await_stored()
        lab.forget_mounts()
        assert lab.digest(mount.path / name) == expected
        if "data-first" in policy:
            assert reads(archive)["hedged_bytes"] <= reads(archive)["received_bytes"]
        mount.umount()
    for key, value in (("read_policy", "P=3"), ("hedge_budget", "5"), ("hedge_budget", "101%")):
        archive.configure("archive", read_policy="default", hedge_budget="5%")
        archive.configure("archive", **{key: value})
        failed = lab.ecfs("status", archive.path, check=False)
        assert failed.returncode != 0 and key in failed.stderr, failed.stderr
