"""Codes beside rs: what a mount stores under them survives what they promise, and `info` tells what that is."""
import itertools
import json
import os
import random
import re

import lab
import pytest

NAMES = [f"e{number:02}" for number in range(16)]
WITHOUT_LIBERASURECODE = "without liberasurecode" in lab.ecfs("--version").stdout
CODES = {"ldpc:8+6": 3, "basic:8+8": 4, "rs:8+6": 6, "copies:5": 4}
if not WITHOUT_LIBERASURECODE:
    CODES["xor:10+5"] = 3


def fresh_digest(mount, path):
    """From the endpoints, not from memory."""
    lab.forget_mounts()
    return lab.digest(mount.path / path)


def lose(mount, names):
    """Takes endpoints away below a mount that knows nothing of it yet."""
    for name in names:
        mount.archive[name].kill()


def bring_back(mount, names):
    for name in names:
        mount.archive[name].start()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.slow
def test_mount_reads_with_tolerance_endpoints_gone(place, code):
    archive = place.archive(place.directories(NAMES), code)
    mount = place.mount(archive)
    sizes = {"small": 9_000, "odd": 300_001, "large": 9 << 20}
    expected = {name: lab.write_pattern(mount.path / name, size, size) for name, size in sizes.items()}
    archive.await_stored()
    mount.umount()
    choose = random.Random(5)
    for _ in range(3):
        gone = choose.sample(NAMES, CODES[code])
        lose(mount, gone)
        mount.start()
        assert {name: fresh_digest(mount, name) for name in sizes} == expected, gone
        mount.umount()
        bring_back(mount, gone)


@pytest.mark.skipif(WITHOUT_LIBERASURECODE, reason="built without liberasurecode")
@pytest.mark.parametrize("writer, reader", [("isal", "liberasurecode"), ("liberasurecode", "isal")])
def test_what_one_provider_of_rs_stored_another_reads(place, tmp_path, writer, reader):
    archive = place.archive(place.directories(NAMES[:6]), "rs:4+2")
    archive.configure("archive", rs_provider=writer)
    lab.write_pattern(tmp_path / "file", 3_333_333, 7)
    lab.ecfs("put", archive.path, tmp_path / "file", "/file")
    archive.configure("archive", rs_provider=reader)
    for gone in [NAMES[0:2], NAMES[3:5]]:
        for name in gone:
            archive[name].kill()
        lab.ecfs("get", archive.path, "/file", tmp_path / "back")
        assert lab.digest(tmp_path / "back") == lab.digest(tmp_path / "file")
        for name in gone:
            archive[name].start()
        (tmp_path / "back").unlink()


@pytest.mark.slow
def test_codes_of_several_kinds_live_in_one_tree(place):
    archive = place.archive(place.directories(NAMES))
    mount = place.mount(archive)
    expected = {}
    for code in ["rs:4+2", "ldpc:8+6", "ldpc:7+5", "basic:6+6", "copies:3"]:
        directory = mount.path / code
        directory.mkdir()
        os.setxattr(directory, "user.ecfs.code", code.encode())
        expected[code] = lab.write_pattern(directory / "file", 1_234_567, len(expected))
    archive.await_stored()
    for code in expected:
        assert archive.json("info", f"/{code}/file")["code"] == code
    mount.umount()
    mount.start()
    for gone in itertools.islice(itertools.combinations(NAMES, 2), 0, None, 30):
        lose(mount, gone)
        assert {code: fresh_digest(mount, f"{code}/file") for code in expected} == expected, gone
        bring_back(mount, gone)
    choose = random.Random(6)
    for code in expected:
        gone = choose.sample(NAMES, archive.json("info", f"/{code}/file")["tolerance"])
        lose(mount, gone)
        assert fresh_digest(mount, f"{code}/file") == expected[code], (code, gone)
        bring_back(mount, gone)


@pytest.mark.slow
def test_info_tells_what_a_code_promises_and_costs(place):
    archive = place.archive(place.directories(NAMES), "ldpc:8+6")
    source = place.path / "file"
    lab.write_pattern(source, 1 << 20)
    archive.put(source, "/ldpc")
    archive.put("--code", "basic:8+8", source, "/basic")
    archive.put("--code", "rs:8+3", source, "/rs")
    told = {name: archive.json("info", f"/{name}") for name in ["ldpc", "basic", "rs"]}
    assert [told[name]["tolerance"] for name in told] == [3, 4, 3]
    assert [round(told[name]["f"], 3) for name in told] == [1.075, 1.038, 1]
    assert [told[name]["overhead"] for name in told] == [1.75, 2, 11 / 8]
    text = lab.ecfs("info", archive.path, "/ldpc").stdout
    assert "ldpc:8+6, any 3 stripes may be lost" in text
    assert "1.75 times the space, f 1.0746" in text


def test_many_stripes_lie_on_few_endpoints_where_that_is_allowed(place):
    archive = lab.Archive(place.path / "archive", place.directories(NAMES[:10]), "ldpc:20+20")
    assert "needs 40 endpoints and there are 10" in archive.init(check=False).stderr
    endpoints = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("init", archive.path, "--code", "ldpc:20+20", "--set", "allow_double=yes", *endpoints)
    source, target = place.path / "file", place.path / "got"
    expected = lab.write_pattern(source, 3_000_001)
    archive.put_in_full(source, "/file")
    target.mkdir()
    for gone in NAMES[1:3]:  # 8 stripes, which any may be
        archive[gone].kill()
    archive.get("/file", target)
    assert lab.digest(target / "file") == expected


@pytest.mark.slow
def test_put_takes_every_kind_of_code_and_refuses_what_is_impossible(place):
    archive = place.archive(place.directories(NAMES[:8]))
    source, target = place.path / "source", place.path / "target"
    expected = lab.write_pattern(source, 400_000, 1)
    target.mkdir()
    for code in ["rs:6+2", "ldpc:4+4", "basic:4+4", "copies:2"]:
        archive.put("--code", code, source, f"/{code}")
        archive.get(f"/{code}", target)
        assert lab.digest(target / code) == expected and archive.json("info", f"/{code}")["code"] == code
    for code, reason in {"rs:8+1": "9 stripes", "basic:3+3": "even number", "xor": "not a code"}.items():
        done = archive.put("--code", code, source, "/refused", check=False)
        assert done.returncode == 1 and reason in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert "refused" not in lab.ecfs("ls", archive.path).stdout


@pytest.mark.parametrize("code, reason", [
    ("rs:0+3", "at least one data stripe"), ("basic:7+7", "even number"), ("basic:8+6", "as many parity"),
    ("ldpc:200+2", "at most 128"), ("ldpc:8+0", "at least one parity"), ("rs:30+3", "at most 32"),
    ("raid:4+1", "ldpc:K+M"), ("xor:4+1", "5+5 to 10+5"), ("ldpc:8+8", "needs 16 endpoints and there are 14")])
def test_impossible_codes_are_refused_in_a_sentence(place, code, reason):
    archive = lab.Archive(place.path / "archive", place.directories(NAMES[:14]), code)
    done = archive.init(check=False)
    assert done.returncode != 0
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_bench_codec_measures_each_provider_of_rs():
    rows = json.loads(lab.ecfs("bench", "codec", "--json", "--packet", "4K", "--round-ms", "1", "rs:4+2").stdout)
    built_in = ["isal"] if WITHOUT_LIBERASURECODE else ["isal", "liberasurecode"]
    assert [row["provider"] for row in rows if row["operation"] == "encode"] == built_in
    table = lab.ecfs("bench", "codec", "--packet", "4K", "--round-ms", "1", "rs:4+2").stdout
    assert all(f"rs:4+2         {provider} " in table for provider in built_in)


def test_version_tells_what_computes_codes():
    told = dict(line.split(None, 1) for line in lab.ecfs("--version").stdout.splitlines())
    assert {"rs", "ldpc", "basic", "copies"} <= set(told["codes"].split(", "))
    assert re.fullmatch(r"ISA-L [\d.]+; (liberasurecode [\d.]+|without liberasurecode)", told["rs"])


def test_bench_codec_measures_codes_and_refuses_what_is_none():
    done = lab.ecfs("bench", "codec", "--json", "--packet", "4K", "--round-ms", "1", "ldpc:8+6", "copies:2")
    rows = json.loads(done.stdout)
    assert [(row["code"], row["operation"], row["lost"]) for row in rows] == [
        ("ldpc:8+6", "encode", 0), ("ldpc:8+6", "decode", 1), ("ldpc:8+6", "decode", 2), ("ldpc:8+6", "decode", 3),
        ("copies:2", "encode", 0), ("copies:2", "decode", 1)]
    assert all(row["packet_bytes"] == 4096 and row["gb_per_s"] > 0 for row in rows)
    assert "ldpc:8+6" in lab.ecfs("bench", "codec", "--packet", "4K", "--round-ms", "1", "ldpc:8+6").stdout
    for arguments, text in [(["codec", "ldpc:0+1"], "at least one data stripe"), (["disk"], "cannot be measured"),
                            (["codec", "--packet", "0"], "not a size"), (["codec", "--round-ms", "0"], "1 to 10000")]:
        done = lab.ecfs("bench", *arguments, check=False)
        assert done.returncode in (1, 2) and text in done.stderr
