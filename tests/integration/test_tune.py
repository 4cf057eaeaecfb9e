"""ecfs tune: measures real endpoints, cleans up behind itself, and writes what it proposes so that a mount reads it."""
import json
import re

import lab
import pytest

MIB = 1 << 20
LITTLE = ["--load", "1M"]


def scratch(endpoint):
    return [path for path in lab.files_below(endpoint.root) if "scratch" in path.parts or "incoming" in path.parts]


@pytest.fixture
def small(place):
    """Two directories, and less memory than the segments of files need, so that something is proposed whatever comes."""
    endpoints = place.directories(lab.NAMES[:2])
    archive = place.archive(endpoints, code="copies:2")
    config = archive.path / "ecfs.conf"
    text = re.sub(r"(?m)^transfer_memory = .*$", "transfer_memory=16M  # for a small machine", config.read_text())
    config.write_text("# ours\n" + text + "\n; the end")
    return archive


@pytest.mark.slow
def test_a_server_is_measured_with_every_setting(place):
    far = place.behind_proxy("amber")
    far.proxy.tell("delay", 4)
    archive = place.archive([far], code="copies:1")
    before = (archive.path / "ecfs.conf").read_bytes()
    facts = archive.json("tune", *LITTLE)
    amber, = facts["endpoints"]
    assert "error" not in amber and amber["name"] == "amber"
    assert amber["round_trip_ms"] >= 8
    settings = [(trial["connections"], trial["transport"]) for trial in amber["trials"]]
    assert settings[:4] == [(3, "auto"), (1, "auto"), (2, "auto"), (4, "auto")]
    assert [transport for _, transport in settings[4:]] == ["openssh", "libssh2"]
    assert all(trial["read_bytes_per_s"] > 0 and trial["write_bytes_per_s"] > 0 for trial in amber["trials"])
    # On a busy machine the one without a transfer, which is taken off, may need more.
    assert any(trial.get("cpu_s_per_gib", 0) > 0 for trial in amber["trials"][4:])
    assert len(facts["machine"]["segments"]) == 5 and not facts["applied"]
    assert all(rate > 0 for rate in facts["machine"]["cipher_bytes_per_s"].values())
    assert not scratch(far)
    assert (archive.path / "ecfs.conf").read_bytes() == before and not (archive.path / "ecfs.conf.previous").exists()


@pytest.mark.slow
def test_what_is_applied_is_what_the_next_mount_uses(place, small):
    config, previous = small.path / "ecfs.conf", small.path / "ecfs.conf.previous"
    before = config.read_text()
    table = lab.ecfs("tune", small.path, *LITTLE).stdout
    assert re.search(r"\[archive\] transfer_memory = \d+M \(was 16M\)", table) and "ecfs tune --apply" in table, table
    assert config.read_text() == before
    facts = json.loads(lab.ecfs("tune", small.path, *LITTLE, "--apply", "--json").stdout)
    assert facts["applied"]
    changes = {(row["section"], row["key"]): row["value"] for row in facts["proposals"]}
    memory = changes[("archive", "transfer_memory")]  # by what was measured, on a machine that may be busy
    assert memory in ("64M", "128M", "256M")
    assert previous.read_text() == before
    after = config.read_text()
    assert f"transfer_memory={memory}  # for a small machine" in after
    assert after.startswith("# ours\n") and after.endswith("\n; the end")
    if len(changes) == 1:
        assert after == before.replace("transfer_memory=16M", f"transfer_memory={memory}")
    assert config.stat().st_mode & 0o777 == 0o600
    for endpoint in small.endpoints:
        assert not scratch(endpoint)

    mount = place.mount(small)
    expected = lab.write_pattern(mount.path / "file", 5 * MIB, 1)
    small.await_stored()
    refused = lab.ecfs("tune", small.path, *LITTLE, "--apply", check=False)
    assert refused.returncode == 1 and "unmount the archive" in refused.stderr and str(mount.path) in refused.stderr, refused
    assert config.read_text() == after
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected


@pytest.mark.slow
def test_nothing_is_changed_where_the_old_settings_cannot_be_kept(small):
    config = small.path / "ecfs.conf"
    before = config.read_bytes()
    (small.path / "ecfs.conf.previous").mkdir()
    refused = lab.ecfs("tune", small.path, *LITTLE, "--apply", check=False)
    assert refused.returncode == 1 and "stays as it is" in refused.stderr, refused
    assert config.read_bytes() == before
    config.write_bytes(before + b"\n[endpoint amber]\nconnections = many\n")
    refused = lab.ecfs("tune", small.path, *LITTLE, "--apply", check=False)
    assert refused.returncode == 1 and re.search(r"ecfs\.conf:\d+: ", refused.stderr), refused


@pytest.mark.slow
def test_an_endpoint_that_is_away_is_told_and_others_are_measured(small):
    small.endpoints[1].kill()
    done = lab.ecfs("tune", small.path, *LITTLE, "--json", check=False)
    facts = json.loads(done.stdout)
    here, away = facts["endpoints"]
    assert done.returncode == 1 and "endpoint birch: " in done.stderr
    assert "error" in away and not away["trials"]
    assert "error" not in here and len(here["trials"]) == 1
