"""ecfs sim: the command line, scenarios, JSON and drawings; and that what simulations show has the shape it should."""
import json
import shutil

import lab
import pytest

ECFS = lab.BUILD / "tools" / "ecfs"
SCENARIOS = lab.REPOSITORY / "scenarios"

SMALL = """[scenario]
about = small
repeat = 2
[objects]
size = 32M
[servers all]
count = 11
jitter_ms = 20
"""


def sim(*arguments, check=True, **options):
    return lab.run(ECFS, "sim", *arguments, check=check, **options)


def rows(*arguments):
    found = json.loads(sim("--json", *arguments).stdout)["rows"]
    return {(row["code"], row.get("policy") or row["repair_bandwidth"]): row for row in found}


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.scenario"
    path.write_text(SMALL)
    return path


def test_a_scenario_repeats(small):
    first = sim("--json", small).stdout
    assert sim("--json", small).stdout == first
    assert sim("--json", "--seed", 5, small).stdout != first
    facts = json.loads(first)
    assert facts["kind"] == "read" and facts["about"] == "small" and facts["seed"] == 1
    row = facts["rows"][0]
    assert row["runs"] == 2 and row["objects"] == 2 and row["failed"] == 0 and row["received"] >= 1
    assert row["bytes_per_s"] <= 11 * 10 * 2 ** 20


def test_the_table_names_seeds_and_models(small):
    text = sim(small, "--codes", "mds:20+20;sparse:5+5;rs:8+3").stdout
    assert "seeds 1 to 2" in text and "mds: any k of the stripes suffice" in text and "rs:8+3" in text


@pytest.mark.parametrize("name", sorted(path.name for path in SCENARIOS.glob("*.scenario")))
def test_scenarios_of_the_source_are_read(name):
    done = sim(SCENARIOS / name, "--codes", "foo:1", check=False)
    assert done.returncode == 2 and "foo:1" in done.stderr and name not in done.stderr


def test_stalled_servers_cost_little():
    removed = rows(SCENARIOS / "stalled.scenario", "--codes", "rs:8+3")["rs:8+3", "default"]
    assert removed["failed"] == 0
    assert 512 * 2 ** 20 / 110e6 < removed["seconds"] < 1.1 * 512 * 2 ** 20 / 80e6


def test_data_first_where_the_client_is_fast_no_preference_where_links_are_slow():
    policies = [f"T=30,R=1,fastest1,{preference}" for preference in ("data-first", "no-preference")]
    options = ["--codes", "mds:100+100", "--variants", ";".join(policies)]
    near, far = rows(SCENARIOS / "regional.scenario", *options), rows(SCENARIOS / "slow-regional.scenario", *options)
    data, none = [("mds:100+100", policy) for policy in policies]
    assert near[data]["seconds"] < near[none]["seconds"]
    assert far[none]["seconds"] < far[data]["seconds"]


def test_what_keeps_objects_safe():
    found = rows(SCENARIOS / "years.scenario", "--codes", "copies:2;rs:8+4", "--variants", "100M")
    assert found["copies:2", "100M"]["lost"] > 0 and found["rs:8+4", "100M"]["lost"] == 0
    assert found["copies:2", "100M"]["lost_of_1e6_a_year"] > found["rs:8+4", "100M"]["lost_of_1e6_a_year_at_most"] > 1
    assert found["rs:8+4", "100M"]["deaths"] > 50 and found["rs:8+4", "100M"]["repairs"] > 0


@pytest.mark.parametrize("text, said", [
    ("[nonsense]\na=1\n", "nonsense"), ("[servers a]\ncuont=1\n", "cuont"), ("[servers a]\ncount=1.5\n", "count"),
    ("[servers a]\ncount=1\n[compare]\npolicies=T=0\n", "T=0"), ("[scenario]\nkind=what\n", "what"), ("", "servers"),
    ("[servers a]\ncount=99999\n[clients]\ncount=99999\n", "servers times clients"), ("\xff\n", "not text"),
    ("[servers a]\ncount=3\n[scenario]\nkind=lifetime\n", "needs 11 endpoints"),
    ("[servers a]\ncount=20\n[scenario]\nkind=lifetime\n[objects]\ncount=99999999\n", "stand_for"),
])
def test_scenarios_that_are_none(text, said, tmp_path):
    path = tmp_path / "bad.scenario"
    path.write_bytes(text.encode("latin-1"))
    done = sim(path, check=False)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.parametrize("option", ["--codes", "--variants"])
@pytest.mark.parametrize("nothing", ["", " ; "])
def test_nothing_to_compare(option, nothing, small):
    done = sim(small, option, nothing, check=False)
    assert done.returncode == 2 and f"{option} is empty" in done.stderr and done.stdout == ""


def test_lists_may_end_with_a_semicolon(small):
    assert set(rows(small, "--codes", "rs:8+3; ", "--variants", "default;")) == {("rs:8+3", "default")}


def test_a_file_that_is_absent(tmp_path):
    done = sim(tmp_path / "absent", check=False)
    assert done.returncode == 2 and "absent" in done.stderr


@pytest.mark.parametrize("arguments", [["small"], ["years", "--codes", "copies:2;copies:3", "--variants", "30M;100M"]])
def test_drawing(arguments, small, tmp_path):
    if not shutil.which("gnuplot"):
        pytest.skip("there is no gnuplot: apt install gnuplot-nox")
    scenario = small if arguments[0] == "small" else SCENARIOS / "years.scenario"
    sim(scenario, *arguments[1:], "--plot", tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
