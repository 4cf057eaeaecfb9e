"""The catalog in PostgreSQL: a mount killed, the database restarted and crashed while files are written, and lost."""
import json
import shutil
import signal
import threading
import time
import urllib.parse

import lab
import postgresql
import postgresql_pooler
import pytest

WITHOUT = "without PostgreSQL" in lab.ecfs("--version").stdout
pytestmark = [pytest.mark.skipif(WITHOUT, reason="built without PostgreSQL"),
              pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL server of version 15 or later")]
FSCK = lab.BUILD / "tools/ecfs-fsck"


@pytest.fixture(scope="module")
def cluster():
    with postgresql.Cluster("fsync = on") as made:
        yield made


def make(place, cluster):
    return place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}")


def is_clean(archive):
    done = lab.run(FSCK, archive.path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def test_tree_survives_a_killed_mount(place, cluster):
    archive = make(place, cluster)
    assert not (archive.path / "catalog.sqlite").exists()
    mount = place.mount(archive)
    lab.real_tree(mount.path / "tree", 60)
    expected = lab.describe_tree(mount.path)
    archive.await_stored()
    mount.kill()
    mount.start()
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    mount.umount()
    assert is_clean(archive)


class Writer(threading.Thread):
    """Makes files until it is told to stop; those whose close() succeeded."""

    def __init__(self, directory):
        super().__init__(daemon=True)
        self.directory, self.stopping = directory, threading.Event()
        self.written, self.refused = {}, []

    def run(self):
        number = 0
        while not self.stopping.is_set():
            path, content = self.directory / f"file-{number:05}", f"content {number}\n" * (number % 300)
            number += 1
            try:
                path.write_text(content)
                self.written[path.name] = content
            except OSError as error:
                self.refused.append(error)
                self.stopping.wait(0.05)


def assert_all_kept(place, archive, mount, writer):
    writer.stopping.set()
    writer.join()
    mount.umount()
    mount = place.mount(archive)
    found = {path.name: path.read_text() for path in mount.path.iterdir()}
    assert {name: found.get(name) for name in writer.written} == writer.written
    mount.umount()
    assert is_clean(archive)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGQUIT], ids=["restarted", "crashed"])
def test_database_goes_while_files_are_written(place, cluster, sign):
    archive = make(place, cluster)
    mount = place.mount(archive)
    writer = Writer(mount.path)
    writer.start()
    for round_ in range(1, 4):
        lab.until(lambda: len(writer.written) > 30 * round_, 120, "files are written")
        cluster.stop(sign)
        cluster.start()
        done = len(writer.written)
        lab.until(lambda: len(writer.written) > done + 5, 120, "files are written again")
    assert_all_kept(place, archive, mount, writer)


def test_database_is_away(place, cluster):
    archive = make(place, cluster)
    mount = place.mount(archive)
    writer = Writer(mount.path)
    writer.start()
    lab.until(lambda: len(writer.written) > 30, 120, "files are written")
    cluster.stop()
    lab.until(lambda: writer.refused, 120, "changes are refused")
    lab.until(lambda: "postgresql://" in mount.text(), 60, "the log names the catalog")
    begun = time.monotonic()
    for _ in range(10):  # whoever looks does not wait for it each time
        with pytest.raises(OSError):
            list(mount.path.iterdir())
    assert time.monotonic() - begun < 20
    said = lab.ecfs("status", archive.path, check=False)
    assert "AT RISK" in said.stdout and "away since" in said.stdout and "recover" not in said.stdout and said.stderr == ""
    cluster.start()
    done = len(writer.written)
    lab.until(lambda: len(writer.written) > done + 20, 120, "files are written again")
    assert_all_kept(place, archive, mount, writer)


def test_names_wait_for_a_database_that_is_away(place, cluster):
    """As long as catalog_timeout says; files that are open can be read, and status says since when."""
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}", "--set", "catalog_timeout=20s")
    content = b"y" * 3000000
    mount = place.mount(archive)
    (mount.path / "open").write_bytes(content)
    lab.ecfs("wait", mount.path)
    mount.umount()
    mount = place.mount(archive)
    with open(mount.path / "open", "rb", buffering=0) as file:
        assert file.read(1) == content[:1]  # where the rest is, is known from here on
        cluster.stop()
        begun = time.monotonic()
        waiting = threading.Thread(target=lambda: (mount.path / "made").write_text("in time\n"))
        waiting.start()
        assert file.read(99999) == content[1:100000]
        lab.until(lambda: "tried again each second" in mount.text(), 60, "it is away")
        done = lab.ecfs("status", "--json", mount.path, check=False)
        status = json.loads(done.stdout)
        assert time.time() - 60 < status["catalog_away_since_s"] <= time.time() and "postgresql://" in status["catalog_error"]
        assert "away since" in lab.ecfs("status", mount.path, check=False).stdout
        assert time.monotonic() - begun < 18, "status does not wait"
        assert file.read(2000000) == content[100000:2100000]
        cluster.start()
        waiting.join()
        assert (mount.path / "made").read_text() == "in time\n"
        cluster.stop()
        begun = time.monotonic()
        with pytest.raises(OSError):
            (mount.path / "not there").stat()
        assert time.monotonic() - begun > 15
        begun = time.monotonic()
        for name in ("a", "b", "c"):
            with pytest.raises(OSError):
                (mount.path / name).write_text("")
        assert time.monotonic() - begun < 25
        cluster.start()
        assert file.read() == content[2100000:]
    lab.until(lambda: mount.text().count("is there again") == 2, 60, "it is back")
    assert (mount.path / "made").read_text() == "in time\n"
    mount.umount()
    assert is_clean(archive)


def test_second_mount_is_refused(place, cluster):
    archive = make(place, cluster)
    mount = place.mount(archive)
    twin = archive.path.with_name("twin")
    shutil.copytree(archive.path, twin, ignore=shutil.ignore_patterns("control.sock", "lock"))
    with open(twin / "catalog-place", "r+", encoding="utf-8") as place_file:  # a directory that was made elsewhere has another
        whose, who = place_file.read().split(":")
        place_file.seek(0)
        place_file.write(f"{whose}:{who[::-1].strip()[:8]}{who[8:]}")
    target = place.path / "mnt-twin"
    target.mkdir()
    done = lab.ecfs("mount", twin, target, check=False)
    assert done.returncode != 0 and "has the archive open for writing" in done.stderr
    (mount.path / "file").write_text("still written\n")
    mount.umount()


def test_pooler_of_transactions_is_named(place, cluster):
    """Nothing is changed through it, and nobody is told that the catalog is damaged."""
    archive = make(place, cluster)
    config = archive.path / "ecfs.conf"
    direct = config.read_text()
    mnt = place.path / "mnt"
    mnt.mkdir()
    with postgresql_pooler.Pooler(cluster) as pooler:
        pooled = direct.replace(cluster.location, pooler.location)
        assert pooled != direct
        config.write_text(pooled)
        tries = [lab.ecfs("mount", archive.path, mnt, check=False), lab.ecfs("put", archive.path, config, "/file", check=False),
                 lab.ecfs("ls", archive.path, check=False)]
        config.write_text(direct)
    for done in tries:
        assert done.returncode != 0 and "pool_mode = session" in done.stderr and "recover" not in done.stderr, done.stderr
    mount = place.mount(archive)
    assert not list(mount.path.iterdir())
    mount.umount()
    assert is_clean(archive)


def test_failed_init_leaves_nothing_in_the_database(place, cluster):
    before = cluster.psql("SELECT nspname FROM pg_namespace ORDER BY 1").stdout
    endpoints = place.directories()
    shutil.rmtree(endpoints[-1].root, ignore_errors=True)
    endpoints[-1].root.write_text("no directory")
    with pytest.raises(AssertionError, match="ecfs init"):
        place.archive(endpoints, "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}")
    assert cluster.psql("SELECT nspname FROM pg_namespace ORDER BY 1").stdout == before


def test_catalog_moves_there_and_back(place, cluster):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none")
    mount = place.mount(archive)
    lab.real_tree(mount.path / "tree", 60)
    expected = lab.describe_tree(mount.path)
    done = lab.ecfs("catalog", "move", archive.path, cluster.location, check=False)
    assert done.returncode != 0 and str(mount.path) in done.stderr, done.stderr
    mount.umount()
    before = (archive.path / "ecfs.conf").read_text()
    done = lab.ecfs("catalog", "move", "--dry-run", archive.path, cluster.location)
    assert "would go" in done.stderr and (archive.path / "ecfs.conf").read_text() == before
    for target in (cluster.location, "file", cluster.location):
        report = json.loads(lab.ecfs("catalog", "move", "--json", archive.path, target).stdout)
        assert report["rows"] > 100
        assert (archive.path / "catalog.sqlite").exists() == (target == "file")
        assert (archive.path / "catalog-place").exists() == (target != "file")
        mount = place.mount(archive)
        lab.assert_same_tree(expected, lab.describe_tree(mount.path))
        (mount.path / f"new in {len(expected)}").write_text(target)
        expected = lab.describe_tree(mount.path)
        mount.umount()
        assert is_clean(archive)
    done = lab.ecfs("catalog", "move", archive.path, target)
    assert "already" in done.stderr
    schemas = f"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ecfs_{(archive.path / 'catalog-place').read_text().split(':')[0].replace('-', '')}%'"
    assert cluster.psql(schemas).stdout.strip() == "2"
    for kept in archive.path.glob("catalog.sqlite.moved-*"):
        kept.unlink()
    lab.ecfs("destroy", archive.path, "--yes", check=False)
    assert not archive.path.exists(), list(archive.path.iterdir())
    assert cluster.psql(schemas).stdout.strip() == "0"


def test_log_of_a_mount_whose_database_is_away(place, cluster):
    """It says so once, and when it is over; what looks at the catalog again and again repeats nothing."""
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}", "--set", "catalog_mounts=many")
    mount = place.mount(archive)
    (mount.path / "file").write_text("stored\n")
    lab.ecfs("wait", mount.path)
    cluster.stop()
    lab.until(lambda: "tried again each second" in mount.text(), 60, "it is away")
    since = time.time()
    lab.until(lambda: time.time() - since > 40, 60, "all has looked that looks now and then")
    cluster.start()
    lab.until(lambda: "is there again" in mount.text(), 60, "it is back")
    lines = mount.text().splitlines()
    assert not any("assertion" in line for line in lines), mount.text()
    warnings = [line.partition("warning: ")[2] for line in lines if "warning: " in line]
    assert warnings and len(warnings) == len(set(warnings)), mount.text()
    mount.umount()
    assert is_clean(archive)


def damaged(place, cluster, sql):
    """An archive with a file, whose database was changed while it was mounted; what was said then, and what is said later."""
    archive = make(place, cluster)
    mount = place.mount(archive)
    (mount.path / "file").write_text("stored\n")
    lab.ecfs("wait", mount.path)
    schema = f"ecfs_{(archive.path / 'catalog-place').read_text().split(':')[0].replace('-', '')}"
    lab.until(lambda: cluster.psql(sql.format(schema), check=False).returncode == 0, 60, "no deadlock with the mount")
    said = lab.ecfs("wait", mount.path, check=False)
    assert said.returncode != 0 and "nothing is mounted" not in said.stderr and "--set catalog=" in said.stderr, said.stderr
    mount.kill()
    later = lab.ecfs("status", archive.path, check=False)
    assert "from a backup" not in later.stderr and "correct that" not in later.stderr, later.stderr
    assert f"ecfs recover {archive.path}.new --set catalog=..." in later.stderr
    return archive, schema, said.stderr


def recovered(place, cluster, archive):
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", again.path, "--force", "--set", f"catalog={cluster.location}", *words, check=False)
    if done.returncode == 0:
        mount = place.mount(again)
        assert (mount.path / "file").read_text() == "stored\n"
        mount.umount()
    return done


def test_schema_that_is_no_catalog_is_renamed_first(place, cluster):
    """The advice is one that works, and is what the verb says that was advised before."""
    archive, schema, said = damaged(place, cluster, 'TRUNCATE "{}".about')
    rename = f"ALTER SCHEMA {schema} RENAME TO {schema}_old"
    assert rename in said
    assert rename in recovered(place, cluster, archive).stderr
    cluster.psql(rename)
    assert recovered(place, cluster, archive).returncode == 0


def test_schema_that_is_dropped_while_it_is_mounted(place, cluster):
    archive, _, _ = damaged(place, cluster, 'DROP SCHEMA "{}" CASCADE')
    assert recovered(place, cluster, archive).returncode == 0


def test_section_is_not_blamed_for_an_emptied_table(place, cluster):
    archive = make(place, cluster)
    schema = f"ecfs_{(archive.path / 'catalog-place').read_text().split(':')[0].replace('-', '')}"
    cluster.psql(f'TRUNCATE "{schema}".endpoints CASCADE')
    said = lab.ecfs("status", archive.path, check=False).stderr
    assert "take the section out" not in said and "has no endpoints" in said and f"ecfs recover {archive.path}.new --set catalog=..." in said, said


def test_lost_database_comes_back_from_the_endpoints(place, cluster):
    archive = make(place, cluster)
    mount = place.mount(archive)
    lab.real_tree(mount.path / "tree", 30)
    expected = lab.describe_tree(mount.path)
    mount.umount()
    schemas = cluster.psql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ecfs_%'").stdout.split()
    uuid = (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    assert f"ecfs_{uuid}" in schemas
    cluster.psql(f'DROP SCHEMA "ecfs_{uuid}" CASCADE')
    assert lab.ecfs("status", archive.path, check=False).returncode != 0
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", again.path, "--force", "--set", f"catalog={cluster.location}", *words)
    assert not (again.path / "catalog.sqlite").exists()
    mount = place.mount(again)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    (mount.path / "new").write_text("written after that\n")
    mount.umount()
    assert is_clean(again)
    lab.ecfs("destroy", again.path, "--yes")
    assert cluster.psql(f"SELECT count(*) FROM pg_namespace WHERE nspname = 'ecfs_{uuid}'").stdout.strip() == "0"


def marks(archive):
    return [(endpoint.root / "ecfs-endpoint").read_bytes() for endpoint in archive.endpoints]


def test_what_is_there_is_not_recovered_over(place, cluster):
    """It is refused before an endpoint hears of it: the archive is used on."""
    archive = make(place, cluster)
    before = marks(archive)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    setting = ["--set", f"catalog={cluster.location}"]
    done = lab.ecfs("recover", place.path / "again", "--force", *setting, *words, check=False)
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    assert done.returncode != 0 and f"schema {schema} is there already" in done.stderr
    done = lab.ecfs("recover", place.path / "again", "--read-only", *setting, *words, check=False)
    assert done.returncode != 0 and "leave out --set catalog" in done.stderr
    done = lab.ecfs("takeover", archive.path, "--yes", check=False)
    assert done.returncode != 0 and marks(archive) == before
    mount = place.mount(archive)
    (mount.path / "file").write_text("written\n")
    mount.umount()
    assert is_clean(archive)


def test_snapshot_is_taken(place, cluster):
    archive = place.archive(place.directories([*lab.NAMES, "gone"]), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}")
    mount = place.mount(archive)
    lab.real_tree(mount.path / "tree", 20)
    archive.await_stored()
    mount.umount()
    gone = archive.endpoints[-1]
    lab.ecfs("endpoint", "drain", archive.path, gone.name)
    lab.ecfs("endpoint", "remove", archive.path, gone.name)
    assert any((endpoint.root / "snapshots").iterdir() for endpoint in archive.endpoints[:-1])
    assert is_clean(archive)


@pytest.mark.slow
def test_status_without_the_database(place):
    """It is no lost catalog that the endpoints are to be asked for."""
    with postgresql.Cluster() as own:
        archive = make(place, own)
        own.stop()
        said = lab.ecfs("status", archive.path, check=False)
        assert said.returncode != 0 and "postgresql://" in said.stdout + said.stderr
        assert "ecfs recover" not in said.stdout + said.stderr


@pytest.mark.parametrize("location", ["postgresql://me:geheim@localhost/x", "postgresql://me:ge/heim@localhost/x",
                                      "service=x password=geheim", "postgres:/me:geheim@localhost"])
def test_password_is_not_taken(place, location):
    with pytest.raises(AssertionError, match="catalog: ") as failed:
        place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={location}")
    said = str(failed.value).replace(location, "")
    assert "heim" not in said


@pytest.mark.slow
def test_certificate_is_verified(place, tmp_path, monkeypatch):
    """Also where a service says nothing of it."""
    port = lab.free_port()
    service = tmp_path / "services"
    service.write_text(f"[silent]\nhost=127.0.0.1\nport={port}\nuser=ecfs\ndbname=postgres\n\n"
                       f"[plain]\nhost=127.0.0.1\nport={port}\nuser=ecfs\ndbname=postgres\nsslmode=disable\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    with postgresql.Cluster(port=port):
        for location in (f"postgresql://ecfs@127.0.0.1:{port}/postgres", "service=silent"):
            with pytest.raises(AssertionError, match="root certificate|SSL"):
                place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={location}")
        archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", "catalog=service=plain")
        assert is_clean(archive)


def stripes(archive):
    return {path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}


@pytest.mark.slow
def test_standby_that_lagged_takes_over(place):
    """It lacks transactions: nothing is deleted or stored by what it says, and a takeover brings back what was waited for."""
    with postgresql.Cluster("fsync = on") as primary, postgresql.Standby(primary) as standby:
        hosts = ",".join(urllib.parse.quote(str(one.directory), safe="") for one in (primary, standby))
        location = f"postgresql://ecfs@/postgres?host={hosts}&target_session_attrs=read-write"
        archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={location}",
                                "--set", "deletion_grace=0", "--set", "small_file=0")
        mount = place.mount(archive)
        lab.real_tree(mount.path / "tree", 20)
        for name in ("deleted", "brought back"):
            (mount.path / name).write_bytes(b"x" * 100000)
        lab.ecfs("wait", mount.path)
        flushed = primary.psql("SELECT pg_current_wal_flush_lsn ()").stdout.strip()
        lab.until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn () >= '{flushed}'").stdout.strip() == "t", 60, "it follows")
        standby.stop_following()
        for number in range(30):
            (mount.path / f"waited-{number}").write_text(f"waited for {number}\n" * 500)
        (mount.path / "deleted").unlink()
        (mount.path / "tree").rename(mount.path / "renamed")
        lab.ecfs("wait", mount.path)
        expected = lab.describe_tree(mount.path)
        (mount.path / "closed").write_text("not waited for\n" * 900)
        primary.stop(signal.SIGQUIT)
        standby.promote()
        lab.until(lambda: "lacks changes that it had committed" in mount.text(), 120, "the log says it")
        before = stripes(archive)
        with pytest.raises(OSError):
            (mount.path / "new").write_text("refused\n")
        assert (mount.path / "brought back").read_bytes() == b"x" * 100000
        done = lab.ecfs("status", mount.path, check=False)
        assert "OLD COPY" in done.stdout and "ecfs takeover" in done.stdout + done.stderr, done.stdout
        assert stripes(archive) >= before
        done = lab.ecfs("umount", mount.path, check=False)
        assert done.returncode != 0 and "is in this copy only" in done.stderr, done.stderr
        lab.run("fusermount3", "-u", mount.path)
        mount.process.wait(60)
        mount.process = None
        done = lab.ecfs("mount", archive.path, mount.path)
        assert "it is mounted for reading only" in done.stderr and "ecfs takeover" in done.stderr
        lab.ecfs("umount", mount.path)
        done = lab.ecfs("takeover", archive.path, "--yes", "--allow-lost", check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (archive.path / "catalog.sqlite").exists()
        assert "_aside_" in standby.psql("SELECT nspname FROM pg_namespace").stdout
        mount = place.mount(archive)
        found = lab.describe_tree(mount.path)
        lab.assert_same_tree(expected, {name: facts for name, facts in found.items() if name in expected})
        assert "deleted" not in found
        assert (mount.path / "closed").read_text() == "not waited for\n" * 900
        mount.umount()
        assert is_clean(archive)
