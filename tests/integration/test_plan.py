"""ecfs plan: the command line, its JSON and its drawings. What the figures are worth is tests/codec/test_survival.c's."""
import json
import shutil
from math import comb

import lab
import pytest

ECFS = lab.BUILD / "tools" / "ecfs"


def plan(*arguments, check=True, **options):
    return lab.run(ECFS, "plan", *arguments, check=check, **options)


def facts(*arguments):
    return json.loads(plan("--json", *arguments).stdout)


def by_code(*arguments):
    return {row["code"]: row for row in facts(*arguments)["codes"]}


def any_k(k, n, availability):
    return sum(comb(n, i) * availability ** i * (1 - availability) ** (n - i) for i in range(k))


def test_codes_side_by_side():
    rows = by_code("--k", "8", "--m", "6", "--availability", "0.95")
    assert set(rows) == {"rs:8+6", "ldpc:8+6", "basic:8+8", "copies:2", "copies:3", "copies:7"}
    rs, ldpc = rows["rs:8+6"], rows["ldpc:8+6"]
    assert rs["failure"] == pytest.approx(any_k(8, 14, 0.95)) and rs["exact"] and rs["failure_error"] == 0
    assert rows["copies:3"]["failure"] == pytest.approx(0.05 ** 3)
    assert rs["tolerance"] == 6 and ldpc["tolerance"] == 3 and rows["basic:8+8"]["tolerance"] == 4
    assert rs["repair_reads"] == 8 and rows["basic:8+8"]["repair_reads"] == 4
    assert rs["overhead"] == 1.75 and rs["failure"] < ldpc["failure_by_formula"] < ldpc["failure"] < 1e-3


def test_the_table_says_the_same():
    done = plan("--k", "8", "--m", "6", "--availability", "0.95")
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("rs:8+6"))
    assert row[:6] == ["rs:8+6", "1.75", "6", "of", "14", "8.0"]
    assert float(row[6]) == pytest.approx(any_k(8, 14, 0.95), rel=0.01)


def test_endpoints_of_their_own():
    rows = by_code("--code", "copies:2", "--availability", "0.9,0.8,0.5")
    assert rows["copies:2"]["failure"] == pytest.approx((0.1 * 0.2 + 0.2 * 0.5 + 0.5 * 0.1) / 3)
    done = plan("--availability", "0.9,0.8", check=False)
    assert done.returncode == 2 and "needs 6 endpoints" in done.stderr


def test_wanted_availability():
    rows = by_code("--k", "8", "--want", "0.999999", "--availability", "0.95")
    assert "rs:8+7" in rows and rows["rs:8+7"]["failure"] <= 1e-6 < any_k(8, 14, 0.95)
    assert rows["copies:5"]["failure"] <= 1e-6 < 0.05 ** 4


@pytest.mark.slow
def test_more_stripes_than_can_be_counted():
    row = by_code("--code", "ldpc:14+12", "--availability", "0.7")["ldpc:14+12"]
    assert not row["exact"] and row["failure_error"] > 0
    assert row["failure"] > any_k(14, 26, 0.7) - 3 * row["failure_error"]


@pytest.mark.slow
def test_a_sample_is_shared_by_different_endpoints():
    one = by_code("--code", "ldpc:14+12", "--availability", "0.7")["ldpc:14+12"]
    many = by_code("--code", "ldpc:14+12", "--availability", ",".join(["0.7"] * 60))["ldpc:14+12"]
    assert many["failure_error"] == pytest.approx(one["failure_error"], rel=0.5)
    assert many["failure"] == pytest.approx(one["failure"], abs=5 * many["failure_error"])


@pytest.mark.parametrize("arguments, said", [
    (["--k", "0"], "--k"), (["--m", "300"], "--m"), (["--availability", "1.5"], "1.5"), (["--want", "x"], "x"),
    (["--availability", "nan"], "nan"), (["--code", "foo:1"], "foo:1"), (["--code", ""], "--code is empty"),
    (["--plot", "a.gif"], "a.gif"), (["more"], "too many"),
])
def test_wrong_usage(arguments, said):
    done = plan(*arguments, check=False)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.parametrize("suffix, start", [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_drawing(suffix, start, tmp_path):
    if not shutil.which("gnuplot"):
        pytest.skip("there is no gnuplot: apt install gnuplot-nox")
    drawing = tmp_path / f"it's.{suffix}"
    plan("--plot", drawing)
    assert drawing.read_bytes().startswith(start)


def test_a_drawing_is_a_file_whatever_its_name(tmp_path):
    if not shutil.which("gnuplot"):
        pytest.skip("there is no gnuplot: apt install gnuplot-nox")
    plan("--plot", "|touch it.svg", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["|touch it.svg"]
    done = plan("--plot", tmp_path / "absent" / "a.svg", check=False)
    assert done.returncode == 1 and "absent/a.svg" in done.stderr


def test_nothing_to_draw(tmp_path):
    done = plan("--availability", "1", "--plot", tmp_path / "a.svg", check=False)
    assert done.returncode == 1 and "nothing to draw" in done.stderr and not (tmp_path / "a.svg").exists()


@pytest.mark.slow
def test_a_sample_that_shows_no_failure_is_a_bound():
    line = next(line for line in plan("--code", "ldpc:40+40").stdout.splitlines() if line.startswith("ldpc"))
    failure, year = line.split("  <")[1:]
    assert 0 < float(failure) < 1e-3 and not year.startswith(" 0.1 ms")


def test_without_gnuplot(tmp_path):
    done = plan("--plot", tmp_path / "a.svg", check=False, env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and "gnuplot-nox" in done.stderr and "rs:4+2" in done.stdout


def test_prices_for_all_endpoints_and_for_each():
    flat = by_code("--code", "rs:4+2,copies:2", "--prices", "6/0.5/90", "--size", "1GB", "--files", "1000")
    costs = flat["rs:4+2"]["costs"]
    assert costs["stored_bytes"] == 1_500_000_000 and costs["month_millionths"] == 9_000_000
    assert costs["store_requests"] == 6000 and costs["store_millionths"] == 6000 * 500
    assert costs["read_requests"] == 4000 and costs["read_millionths"] == 90_000_000 + 4000 * 500
    assert costs["read_cheap_millionths"] == costs["read_millionths"]
    assert costs["repair_millionths"] == 90_000_000 + 1000 * 5 * 500  # four stripes are read for each, and one stored
    assert flat["copies:2"]["costs"]["repair_millionths"] == 90_000_000 + 1000 * 2 * 500
    large = by_code("--code", "rs:4+2", "--prices", "0/1", "--size", "1GiB", "--files", "1")["rs:4+2"]["costs"]
    assert large["read_requests"] == 4 * 512 and large["store_requests"] == 6, "each segment is asked for on its own"
    each = by_code("--code", "rs:4+2,copies:2", "--prices", "6/0/90,6/0/90,0,0,0,0,0,0", "--size", "1GB", "--files", "1000")
    costs = each["rs:4+2"]["costs"]
    assert costs["month_millionths"] == 1_500_000_000 * 6_000_000 * 2 // 8 // 10**9
    assert costs["read_millionths"] == pytest.approx(90_000_000 * 2 / 8)
    assert costs["read_cheap_millionths"] == 0, "six others suffice"
    assert 0 < each["copies:2"]["costs"]["read_cheap_millionths"] < each["copies:2"]["costs"]["read_millionths"]
    told = plan("--code", "rs:4+2", "--prices", "6/0.5/90", "--size", "1GB", "--files", "1000").stdout
    row = [line.split() for line in told.splitlines() if line.startswith("rs:4+2")][1]
    assert row == ["rs:4+2", "9.00", "3.00", "92.00", "92.00", "92.50"]
    assert "costs" not in by_code("--code", "rs:4+2")["rs:4+2"]


@pytest.mark.parametrize("arguments, said", [
    (["--prices", "x"], "STORAGE"), (["--prices", "1/2/3/4"], "STORAGE"), (["--prices", "1,2"], "needs 6 endpoints"),
    (["--prices", "1,1,1,1,1,1,1", "--availability", "1,1,1,1,1,1"], "of 7 endpoints"), (["--size", "1G"], "need prices"),
    (["--prices", "1", "--size", "x"], "--size"), (["--prices", "1", "--files", "-1"], "--files"),
    (["--prices", "1", "--archive", "/"], "not both"), (["--prices", "-1"], "STORAGE"),
])
def test_wrong_prices(arguments, said):
    done = plan(*arguments, check=False)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_prices_of_an_archive(place, archive):
    done = plan("--archive", archive.path, check=False)
    assert done.returncode != 0 and "price_storage" in done.stderr
    archive.configure("endpoint amber", price_storage="6", price_egress="90")
    lab.write_pattern(place.path / "source", 4 << 20, 1)
    archive.put_in_full(place.path / "source", "/file")
    found = facts("--archive", archive.path, "--code", "rs:4+2")
    assert (found["bytes"], found["objects"]) == (4 << 20, 1)
    costs = found["codes"][0]["costs"]
    assert costs["month_millionths"] == pytest.approx((4 << 20) * 1.5 * 1_000_000 / 10**9, abs=1)
    assert costs["read_cheap_millionths"] == 0 < costs["read_millionths"]
    given = facts("--archive", archive.path, "--code", "rs:4+2", "--size", "1GB", "--files", "10")
    assert (given["bytes"], given["objects"]) == (10**9, 10)
