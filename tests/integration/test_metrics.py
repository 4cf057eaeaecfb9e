"""`ecfs metrics`: a strict parser of OpenMetrics takes it, and what happens to the archive shows in it."""
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request

import lab
import pytest
from test_readrepair import meet_all, stripes

MIB = 1 << 20
CONTRIB = lab.REPOSITORY / "contrib"


def parse(text):
    """Families by name; whatever OpenMetrics forbids fails."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="python3-prometheus-client is not installed")
    families = list(parser.text_string_to_metric_families(text))
    assert text.endswith("# EOF\n") and len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


class Scrape:
    """What is told at one time."""

    def __init__(self, *where, check=True):
        self.text = lab.ecfs("metrics", *where, check=check).stdout
        self.families = parse(self.text)
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def values(self, name, **labels):
        return [sample.value for sample in self.samples
                if sample.name == name and labels.items() <= sample.labels.items()]

    def value(self, name, **labels):
        (value,) = self.values(name, **labels)
        return value


@pytest.fixture
def filled(place, archive):
    """A file of several stripes, and small ones that share objects."""
    source = place.path / "source"
    source.mkdir()
    lab.write_pattern(place.path / "file", 3 * MIB, 1)
    archive.put_in_full(place.path / "file", "/file")
    for number in range(20):
        lab.write_pattern(source / f"small{number}", 100, number)
    archive.put_in_full(source, "/")
    return archive


@pytest.mark.slow
def test_names_and_units_are_as_openmetrics_wants(place, filled):
    mount = place.mount(filled)
    (mount.path / "file").read_bytes()
    told = Scrape(mount.path)
    for family in told.families.values():
        assert family.name.startswith("ecfs_") and family.documentation.endswith(".")
        unit = re.search(r"_(seconds|bytes|ratio)$", family.name)
        assert family.unit == (unit.group(1) if unit else "")
        assert not re.search(r"_(total|count|sum|bucket|info|ms|milliseconds|kib|percent)$", family.name)
        assert family.type in {"gauge", "counter", "summary"}, "node_exporter reads no others"
        assert all(sample.labels["archive"] == str(filled.path) for sample in family.samples)
    page = (lab.REPOSITORY / "man/ecfs-metrics.1").read_text()
    names = {sample.name for sample in told.samples}
    explained = set(re.findall(r"\becfs_\w+", page))
    assert names <= explained
    sources = "".join(path.read_text() for path in (lab.REPOSITORY / "tools").glob("metrics.c"))
    assert {name.removesuffix("_total") for name in explained} <= set(re.findall(r'"(ecfs_\w+)"', sources))


@pytest.mark.slow
def test_an_archive_has_one_label_however_it_is_typed(filled, monkeypatch):
    monkeypatch.chdir(filled.path.parent)
    for typed in (filled.path.name, f"./{filled.path.name}/", filled.path / "../" / filled.path.name):
        assert {sample.labels["archive"] for sample in Scrape(typed).samples} == {str(filled.path)}
    monkeypatch.chdir("/")
    assert {sample.labels["archive"] for sample in Scrape("none", check=False).samples} == {"/none"}


def test_promtool_accepts_it(filled):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    # Prometheus' own format, which promtool knows, has counters' names with _total in what is told of them, too.
    text = re.sub(r"^# UNIT .*\n|^# EOF\n", "", Scrape(filled.path).text, flags=re.M)
    for name in re.findall(r"^# TYPE (\w+) counter$", text, flags=re.M):
        text = re.sub(rf"^# (TYPE|HELP) {name} ", rf"# \1 {name}_total ", text, flags=re.M)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_stored_is_counted(place, filled):
    told = Scrape(filled.path)
    assert told.value("ecfs_guarantee") == 2 and told.value("ecfs_archive_up") == 1 and told.value("ecfs_mounted") == 0
    assert told.value("ecfs_files", guarantee="2", state="full") == 21
    assert told.value("ecfs_file_bytes", guarantee="2", state="full") == 3 * MIB + 2000
    assert sum(told.values("ecfs_endpoint_stripe_bytes")) >= 1.5 * 3 * MIB
    assert told.values("ecfs_unsafe_losses") == [0, 0] and told.values("ecfs_problems") == []
    assert told.values("ecfs_endpoint_up") == [1] * 6
    assert not told.values("ecfs_endpoint_requests_total"), "nothing counts where there is no mount"
    assert abs(told.value("ecfs_told_timestamp_seconds") - time.time()) < 60


@pytest.mark.slow
def test_a_lost_stripe_changes_it_within_one_scrape(place, filled):
    filled.configure("archive", repair="off")
    mount = place.mount(filled)
    before = Scrape(filled.path)
    assert (before.value("ecfs_guarantee"), before.value("ecfs_repairs_queued")) == (2, 0)
    stripe, _ = stripes(filled, "file")[0]
    (holder,) = [name for name in lab.NAMES if stripe.is_relative_to(filled[name].root)]
    stripe.unlink()
    meet_all(filled, mount, (place.path / "file").read_bytes(), 1)
    told = Scrape(filled.path)
    assert (told.value("ecfs_guarantee"), told.value("ecfs_repairs_queued")) == (1, 1)
    assert told.value("ecfs_files", guarantee="1", state="degraded") == 1
    assert told.value("ecfs_endpoint_damaged_stripes", endpoint=holder) == 1
    assert told.value("ecfs_unsafe_losses", size="1") == 0 and told.value("ecfs_unsafe_losses", size="2") == 10
    assert told.value("ecfs_check") == 1 and told.value("ecfs_problems", verdict="degraded") == 1


@pytest.mark.slow
def test_endpoints_that_are_away_and_what_they_leave(place, filled):
    mount = place.mount(filled)
    for name in ["amber", "birch"]:
        filled[name].kill()
    lab.until(lambda: sum(Scrape(filled.path).values("ecfs_endpoint_up")) == 4, 120, "two are down")
    told = Scrape(filled.path)
    assert told.value("ecfs_guarantee") == 0 and told.value("ecfs_check") == 2
    assert told.value("ecfs_endpoint_up", endpoint="amber") == told.value("ecfs_endpoint_up", endpoint="birch") == 0
    assert told.value("ecfs_unsafe_losses", size="1") == 4, "whichever goes next takes a file along"
    assert told.value("ecfs_endpoint_state", endpoint="amber", state="down") == 1
    survey = json.loads(lab.ecfs("status", "--survey", "--json", filled.path).stdout)["survey"]
    assert {tuple(loss["without"]) for loss in survey["losses"]["unsafe"] if len(loss["without"]) == 1} \
        == {("cedar",), ("delta",), ("ember",), ("fjord",)}
    assert "without cedar: " in lab.ecfs("status", "--survey", filled.path).stdout
    mount.umount()


@pytest.mark.slow
def test_requests_and_bytes_are_counted_by_endpoint_and_class(place, filled):
    mount = place.mount(filled)
    before = Scrape(filled.path)
    lab.write_pattern(mount.path / "more", 3 * MIB, 2)
    filled.await_stored()
    after = Scrape(filled.path)
    grown = {endpoint: after.value("ecfs_endpoint_written_bytes_total", endpoint=endpoint)
             - before.value("ecfs_endpoint_written_bytes_total", endpoint=endpoint) for endpoint in lab.NAMES}
    assert all(size >= 3 * MIB / 4 for size in grown.values())
    for endpoint in lab.NAMES:
        assert after.value("ecfs_endpoint_requests_total", endpoint=endpoint, **{"class": "write"}) \
            > before.value("ecfs_endpoint_requests_total", endpoint=endpoint, **{"class": "write"})
    assert sum(after.values("ecfs_endpoint_failed_requests_total")) == 0


def test_a_file_is_replaced_at_once_and_readable_for_others(place, filled):
    target = place.path / "ecfs-test.prom"
    target.write_text("old\n")
    old = target.stat().st_ino
    lab.ecfs("metrics", filled.path, "--output", target)
    parse(target.read_text())
    assert target.stat().st_ino != old and target.stat().st_mode & 0o777 == 0o644
    assert list(target.parent.glob("*.prom*")) == [target]
    failed = lab.ecfs("metrics", filled.path, "--output", place.path / "absent/x.prom", check=False)
    assert failed.returncode == 1 and "absent" in failed.stderr


def test_an_archive_that_cannot_be_opened_says_so(place, filled):
    (filled.path / "catalog.sqlite").write_bytes(b"x" * 8192)
    for tail in ["-wal", "-shm"]:
        (filled.path / f"catalog.sqlite{tail}").unlink(missing_ok=True)
    target = place.path / "x.prom"
    done = lab.ecfs("metrics", filled.path, "-o", target, check=False)
    assert done.returncode == 1 and done.stderr
    (up,) = parse(target.read_text())["ecfs_archive_up"].samples
    assert up.value == 0


def test_hostile_names_stay_in_their_labels(place):
    directory = place.path / 'a"} 1\nevil{x="\\'
    directory.mkdir()
    archive = lab.Archive(directory / "archive", place.directories())
    archive.init()
    told = Scrape(archive.path)
    assert {sample.labels["archive"] for sample in told.samples} == {str(archive.path)}
    assert not [sample for sample in told.samples if sample.name == "evil"]


def test_alert_rules_are_valid_and_ask_for_what_is_told(filled):
    text = (CONTRIB / "alerts.yml").read_text()
    known = set(re.findall(r'"(ecfs_\w+)"', (lab.REPOSITORY / "tools/metrics.c").read_text()))
    asked = {name.removesuffix("_total") for line in re.findall(r"expr: (.*)", text) for name in re.findall(r"ecfs_\w+", line)}
    assert asked and asked <= known
    dashboard = json.loads((CONTRIB / "grafana-dashboard.json").read_text())
    shown = {name.removesuffix("_total") for panel in dashboard["panels"] for target in panel["targets"]
             for name in re.findall(r"ecfs_\w+", target["expr"])}
    assert len(shown) > 15 and shown <= known
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed: the rules were compared with the metrics only")
    done = lab.run("promtool", "check", "rules", CONTRIB / "alerts.yml", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(place, series, at):
    """(alert, archive) of all that fire after that time, where metrics stay as they are; and what promtool said. It expects
    a sample that is never there, so it always says what it got."""
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    query = 'count by (alertname, archive) (ALERTS{alertstate="firing"})'
    rules = {"rule_files": [str(CONTRIB / "alerts.yml")], "evaluation_interval": "1h" if "d" in at else "1m", "tests": [{
        "interval": "1h" if "d" in at else "1m",
        "input_series": [{"series": name, "values": f"{value}+0x2000"} for name, value in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": at, "exp_samples": [{"labels": "none", "value": 1}]}]}]}
    (place.path / "rules.json").write_text(json.dumps(rules))
    done = lab.run("promtool", "test", "rules", place.path / "rules.json", check=False)
    got = done.stdout + done.stderr
    return set(re.findall(r'alertname="(\w+)", archive="(\w+)"', got.partition("got")[2])), got


@pytest.mark.slow
def test_what_was_never_stored_or_verified_alerts(place):
    told = {'ecfs_recovery_point_pending{archive="new"}': 3, 'ecfs_recovery_point_pending{archive="other"}': 3,
            'ecfs_recovery_point_age_seconds{archive="other"}': 5, 'ecfs_recovery_point_pending{archive="empty"}': 0}
    alerts, got = firing(place, told, "30m")
    assert alerts == {("EcfsRecoveryPointNone", "new")}, got
    told = {'ecfs_stripe_bytes{archive="new"}': 3, 'ecfs_stripe_bytes{archive="other"}': 3, 'ecfs_scrub_age_seconds{archive="other"}': 5,
            'ecfs_stripe_bytes{archive="empty"}': 0}
    alerts, got = firing(place, told, "61d")
    assert alerts == {("EcfsScrubNone", "new")}, got
    alerts, got = firing(place, told, "59d")
    assert not alerts and "got: nil" in got, got


def test_unit_writes_it(place, filled):
    text = (lab.BUILD / "systemd/ecfs-metrics-system@.service").read_text()
    command = re.search(r"^ExecStart=\S+/(ecfs .*)$", text, flags=re.M).group(1)
    for key, value in [("${METRICS_DIRECTORY}", place.path), ("%i", "test"), ("${ARCHIVE}", filled.path)]:
        command = command.replace(key, str(value))
    lab.run(lab.BUILD / "tools" / command.split()[0], *command.split()[1:])
    assert parse((place.path / "ecfs-test.prom").read_text())["ecfs_guarantee"].samples[0].value == 2


@pytest.mark.nightly
def test_node_exporter_and_prometheus_take_it_and_alert(place, filled):
    """The way of an operator: a timer's command, node_exporter, Prometheus with our rules; an endpoint dies."""
    programs = ["prometheus-node-exporter", "prometheus"]
    if not all(shutil.which(program) for program in programs):
        pytest.skip("node_exporter or Prometheus is not installed")
    exporter, server = lab.free_port(), lab.free_port()
    rules = re.sub(r"for: \w+", "for: 0s", (CONTRIB / "alerts.yml").read_text())
    (place.path / "rules.yml").write_text(rules)
    (place.path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"scrape_configs: [{{job_name: node, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}]\n")

    def ask(query):
        address = f"http://127.0.0.1:{server}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            return json.load(urllib.request.urlopen(address, timeout=5))["data"]["result"]
        except OSError:
            return []

    def tell():
        lab.ecfs("metrics", filled.path, "-o", place.path / "ecfs-test.prom")

    log = open(place.path / "log", "wb")
    started = [subprocess.Popen([programs[0], "--collector.disable-defaults", "--collector.textfile",
                                 f"--collector.textfile.directory={place.path}", f"--web.listen-address=127.0.0.1:{exporter}"],
                                stdout=log, stderr=log),
               subprocess.Popen([programs[1], f"--config.file={place.path}/prometheus.yml", f"--web.listen-address=127.0.0.1:{server}",
                                 f"--storage.tsdb.path={place.path}/tsdb"], stdout=log, stderr=log)]
    try:
        tell()
        lab.until(lambda: ask("ecfs_guarantee"), 60, "Prometheus has it", pause=0.5)
        assert [row["value"][1] for row in ask("ecfs_guarantee")] == ["2"]
        assert ask("node_textfile_scrape_error")[0]["value"][1] == "0"
        assert ask("ALERTS") == []
        filled["amber"].kill()
        tell()
        lab.until(lambda: ask('ALERTS{alertname="EcfsEndpointDown", endpoint="amber"}'), 60, "the alert", pause=0.5)
        assert [row["value"][1] for row in ask("ecfs_guarantee")] == ["1"]
    finally:
        for process in started:
            process.terminate()
            process.wait()
        log.close()
