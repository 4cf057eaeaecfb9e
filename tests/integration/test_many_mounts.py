"""Several mounts write one archive, whose catalog is in PostgreSQL."""
import os
import shutil
import signal
import threading
import time
import urllib.parse

import lab
import postgresql
import pytest

pytestmark = pytest.mark.skipif(not postgresql.have_postgresql(), reason="there is no PostgreSQL")
FSCK = lab.BUILD / "tools/ecfs-fsck"


@pytest.fixture(scope="module")
def cluster():
    with postgresql.Cluster("fsync = on") as made:
        yield made


def make(place, cluster, *words):
    words = words or ("--key", "none")
    return place.archive(place.directories(), "rs:4+2", *words, "--set", f"catalog={cluster.location}",
                         "--set", "catalog_mounts=many")


def join(place, archive, name):
    """The directory of another machine."""
    joined = lab.Archive(place.path / name, archive.endpoints)
    joined.path.mkdir(mode=0o700)
    for name in ("ecfs.conf", "catalog-place", "key", "key-slots"):
        if (archive.path / name).exists():
            shutil.copy(archive.path / name, joined.path)
    lab.ecfs("catalog", "join", joined.path)
    return joined


def same_tree(mounts, seconds=20):
    """All see the same, bytes included."""
    expected = lab.describe_tree(mounts[0].path)
    for mount in mounts[1:]:
        lab.until(lambda: lab.describe_tree(mount.path) == expected, seconds, "all mounts show the same")
    return expected


def is_clean(archive):
    done = lab.run(FSCK, archive.path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_each_sees_what_the_other_writes(place, cluster):
    archive = make(place, cluster)
    other = join(place, archive, "other")
    first, second = place.mount(archive), place.mount(other)
    lab.real_tree(first.path / "tree", 40)
    same_tree([first, second])
    lab.real_tree(second.path / "another", 40)
    (second.path / "tree/new").write_text("of the second\n")
    same_tree([second, first])
    shutil.rmtree(second.path / "tree")
    (second.path / "another").rename(second.path / "moved")
    expected = same_tree([second, first])
    archive.await_stored()
    other.await_stored()
    first.umount()
    lab.assert_same_tree(expected, lab.describe_tree(second.path))
    second.umount()
    is_clean(archive)


def test_an_endpoint_that_is_taken_out_elsewhere_is_passed_over_at_once(place, cluster):
    archive = place.archive(place.directories([*lab.NAMES, "grove"]), "rs:4+2", "--key", "none", "--set", "small_file=0",
                            "--set", f"catalog={cluster.location}", "--set", "catalog_mounts=many")
    first = place.mount(archive)
    second = place.mount(join(place, archive, "other"))
    for endpoint in archive.endpoints[:3]:
        lab.ecfs("endpoint", "readonly", archive.path, endpoint.name)
        for i in range(3):
            lab.write_pattern(second.path / f"{endpoint.name}{i}", 200_000, i)
        lab.ecfs("endpoint", "active", archive.path, endpoint.name)
    same_tree([second, first])
    second.umount()
    first.umount()


def test_what_is_stored_leaves_staging(place, cluster):
    archive = make(place, cluster)
    mount = place.mount(archive)
    for i in range(30):
        lab.write_pattern(mount.path / f"file{i}", 100 * i + 1, i)
    schema = cluster.psql("SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                          "WHERE c.relname = 'staging' ORDER BY c.oid DESC LIMIT 1").stdout.strip()
    lab.until(lambda: cluster.psql(f'SELECT count (*) FROM "{schema}".staging').stdout.strip() == "0", 60, "no rows are left")
    lab.until(lambda: not [name for name in os.listdir(archive.path / "staging") if name[0].isdigit()], 60, "no bytes are left")
    mount.umount()


def n_transactions(cluster):
    """Of all that have ended; each process tells of its own within a second or so."""
    time.sleep(2)
    return int(cluster.psql("SELECT sum (xact_commit + xact_rollback) FROM pg_stat_database").stdout)


def test_the_database_is_not_asked_at_each_write(place, cluster):
    mount = place.mount(make(place, cluster))
    with open(mount.path / "file", "wb", buffering=0) as file:
        before = n_transactions(cluster)
        for i in range(500):
            file.write(bytes([i % 256]) * 4096)
        assert n_transactions(cluster) - before < 250
    mount.umount()


@pytest.mark.parametrize("words", [(lab.AS_USERS,), pytest.param(("--key", "none", "--set", "commit=async"), marks=pytest.mark.nightly),
                                   pytest.param(("--key", "none", "--set", "small_file=0"), marks=pytest.mark.nightly)],
                         ids=["with-key", "async", "no-small-files"])
@pytest.mark.slow
def test_settings_of_all_kinds(place, cluster, words):
    archive = make(place, cluster, *words)
    other = join(place, archive, "other")
    first, second = place.mount(archive), place.mount(other)
    lab.real_tree(first.path / "tree", 30)
    lab.real_tree(second.path / "another", 30)
    archive.await_stored()
    other.await_stored()
    expected = same_tree([first, second])
    second.umount()
    first.umount()
    is_clean(archive)
    mount = place.mount(other)
    lab.assert_same_tree(expected, lab.describe_tree(mount.path))
    mount.umount()


@pytest.mark.nightly
def test_open_shows_what_was_closed(place, cluster):
    """close-to-open: what one has closed, the other finds when it opens; by name, and by a name that it knows."""
    archive = make(place, cluster)
    first, second = place.mount(archive), place.mount(join(place, archive, "other"))
    for round_ in range(15):
        writer, reader = (first, second) if round_ % 2 else (second, first)
        text = f"round {round_}\n" * (1 + 700 * round_ % 4001)
        (writer.path / "file").write_text(text)
        assert (reader.path / "file").read_text() == text
        replaced = f"replaced in {round_}\n"
        (writer.path / "temporary").write_text(replaced)
        (writer.path / "temporary").rename(writer.path / "file")
        lab.until(lambda: (reader.path / "file").read_text() == replaced, 5, "what took its place is seen")
    first.umount()
    second.umount()
    is_clean(archive)


@pytest.mark.parametrize("stored", [False, True])
def test_one_writes_a_file(place, cluster, stored):
    """Who would write what another has open for writing is told so, also when that is stored, and nothing is lost."""
    archive = make(place, cluster)
    first, second = place.mount(archive), place.mount(join(place, archive, "other"))
    (first.path / "log").write_text("begun\n")
    with open(first.path / "log", "a", encoding="utf-8") as log:
        log.write("by the first\n")
        log.flush()
        if stored:
            os.close(os.dup(log.fileno()))
            assert (second.path / "log").read_text() == "begun\nby the first\n"
        with pytest.raises(OSError, match="busy"):
            open(second.path / "log", "a", encoding="utf-8")
        log.write("again\n")
    with open(second.path / "log", "a", encoding="utf-8") as log:
        log.write("by the second\n")
    for mount in (first, second):
        assert (mount.path / "log").read_text() == "begun\nby the first\nagain\nby the second\n"
    first.umount()
    second.umount()
    is_clean(archive)


def test_writer_reads_what_it_stored(place, cluster):
    """Also who had it open before, and had read it then: what has been stored meanwhile is what there is."""
    archive = make(place, cluster)
    mount = place.mount(archive)
    (mount.path / "file").write_text("0123456789")
    file = os.open(mount.path / "file", os.O_RDWR)
    for number in range(3):
        before = os.pread(file, 99, 0)
        os.pwrite(file, b"%d" % number, 5 + number)
        os.close(os.dup(file))  # which stores it
        lab.forget_mounts()
        assert os.pread(file, 99, 0) == before[:5 + number] + b"%d" % number + before[6 + number:]
    os.ftruncate(file, 3)
    os.close(os.dup(file))
    lab.forget_mounts()
    assert os.pread(file, 99, 0) == b"012"
    os.close(file)
    mount.umount()


def test_catalog_moves_to_a_file_when_all_have_stored_theirs(place, cluster):
    """Else what others have written would be lost, as its content is in their directories."""
    archive = make(place, cluster, "--key", "none", "--set", "commit=async")
    other = join(place, archive, "other")
    mount = place.mount(other)
    for endpoint in archive.endpoints:
        endpoint.kill()
    lab.write_pattern(mount.path / "file", 100000, 1)
    digest = lab.digest(mount.path / "file")
    lab.run("fusermount3", "-u", mount.path)
    mount.process.wait(60)
    for endpoint in archive.endpoints:
        endpoint.start()
    done = lab.ecfs("catalog", "move", archive.path, "file", check=False)
    assert done.returncode == 1 and "not stored yet: 1 (process" in done.stderr, done
    mount.start()
    other.await_stored()
    mount.umount()
    lab.ecfs("catalog", "move", archive.path, "file")
    mount = place.mount(archive)
    assert lab.digest(mount.path / "file") == digest
    mount.umount()
    is_clean(archive)
    done = lab.ecfs("mount", other.path, mount.path, check=False)
    assert done.returncode == 1 and f"moved to a file in {archive.path}" in done.stderr


def test_who_is_left_leads(place, cluster):
    archive = make(place, cluster)
    other = join(place, archive, "other")
    first, second = place.mount(archive), place.mount(other)
    (first.path / "file").write_text("of the first\n")
    assert "leads" in lab.ecfs("endpoint", "drain", other.path, archive.endpoints[0].name, check=False).stderr
    first.umount()
    lab.until(lambda: "leads now" in second.text(), 60, "the other leads")
    (second.path / "file").write_text("of the second\n")
    other.await_stored()
    again = lab.Archive(place.path / "again", archive.endpoints)
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    second.umount()
    uuid_ = (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    cluster.psql(f'DROP SCHEMA "ecfs_{uuid_}" CASCADE')
    lab.ecfs("recover", again.path, "--force", "--set", f"catalog={cluster.location}", *words)
    mount = place.mount(again)
    assert (mount.path / "file").read_text() == "of the second\n"
    mount.umount()


class Worker(threading.Thread):
    """Makes, changes, renames and removes files in a directory that others use, too; what it knows must be there."""

    def __init__(self, mount, number, seconds):
        super().__init__(daemon=True)
        self.mount, self.number, self.until = mount, number, time.monotonic() + seconds
        self.known, self.errors, self.n_done = {}, [], 0

    def step(self, i):
        directory = self.mount.path / "shared" / f"dir{i % 3}"
        name = directory / f"{self.number}-{i % 40}"
        text = f"{self.number} {i}\n" * (i % 50 + 1)
        action = i % 7
        if action < 5:
            self.known.pop(name, None)
            name.write_text(text)
            self.known[name] = text
        elif action == 5 and self.known:
            old = next(iter(self.known))
            text = self.known.pop(old)
            new = old.with_name(old.name + "x")
            self.known.pop(new, None)
            old.rename(new)
            self.known[new] = text
        elif self.known:
            old = next(iter(self.known))
            self.known.pop(old)
            old.unlink()
        self.n_done += 1

    def run(self):
        i = 0
        while time.monotonic() < self.until:
            i += 1
            try:
                self.step(i)
            except OSError as error:
                self.errors.append(error)
                time.sleep(0.1)


@pytest.mark.nightly
def test_all_work_in_the_same_directories(place, cluster):
    archive = make(place, cluster)
    members = [archive] + [join(place, archive, f"other{i}") for i in range(2)]
    mounts = [place.mount(member) for member in members]
    for i in range(3):
        (mounts[0].path / "shared" / f"dir{i}").mkdir(parents=True)
    workers = [Worker(mount, number, 20) for number, mount in enumerate(mounts)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not [error for worker in workers for error in worker.errors]
    assert all(worker.n_done > 20 for worker in workers)
    same_tree(mounts)
    for worker in workers:
        for path, text in worker.known.items():
            shown = mounts[0].path / path.relative_to(worker.mount.path)
            assert shown.read_text() == text
    for mount in mounts:
        mount.umount()
    is_clean(archive)


@pytest.mark.nightly
def test_killed_mount_loses_nothing(place, cluster):
    """Of a mount that is killed what was closed is there; what it was writing others may write after a while."""
    archive = make(place, cluster)
    other = join(place, archive, "other")
    first, second = place.mount(archive), place.mount(other)
    lab.real_tree(first.path / "tree", 20)
    expected = same_tree([first, second])
    half = open(first.path / "half", "w", encoding="utf-8")
    half.write("not closed\n")
    half.flush()
    (first.path / "kept").write_text("as it was\n")
    untouched = open(first.path / "kept", "r+", encoding="utf-8")
    first.kill()
    lab.until(lambda: "leads now" in second.text(), 120, "the other leads")
    lab.assert_same_tree(expected, {path: seen for path, seen in lab.describe_tree(second.path).items() if path not in ("half", "kept")})
    (second.path / "half").write_text("by the other\n")
    other.await_stored()
    first.start()
    assert (first.path / "half").read_text() == "by the other\n"
    kept = [path for path in (archive.path / "interrupted").iterdir()]
    assert [path.read_text() for path in kept] == ["not closed\n"]
    first.umount()
    second.umount()
    is_clean(archive)


@pytest.mark.parametrize("mounts", ["one", "many"])
def test_what_is_staged_for_a_number_that_nobody_has(place, cluster, mounts):
    """It was removed; but where mounts take numbers ahead it may be of a file that the database has lost, and is kept."""
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", f"catalog={cluster.location}", "--set", f"catalog_mounts={mounts}")
    mount = place.mount(archive)
    for name in ("removed", "there"):
        (mount.path / name).write_text("stored\n")
    number = {"one": (mount.path / "removed").stat().st_ino, "many": (mount.path / "there").stat().st_ino + 50}[mounts]
    (mount.path / "removed").unlink()
    lab.ecfs("wait", mount.path)
    mount.umount()
    staged = archive.path / "staging" / f"987654.{number}"
    staged.write_text("of whom?\n")
    mount.start()
    kept = list((archive.path / "interrupted").iterdir()) if (archive.path / "interrupted").exists() else []
    assert not staged.exists() and [path.read_text() for path in kept] == (["of whom?\n"] if mounts == "many" else [])
    mount.umount()


@pytest.mark.nightly
def test_row_that_stayed_keeps_nobody_out(place, cluster):
    """Of a file that is not staged any more."""
    archive = make(place, cluster)
    first, second = place.mount(archive), place.mount(join(place, archive, "other"))
    (first.path / "file").write_text("before\n")
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    cluster.psql(f"INSERT INTO {schema}.staging (ino, state, fresh, size, since_ns, member) SELECT {(first.path / 'file').stat().st_ino}, "
                 f"0, 0, 0, 0, m.id FROM {schema}.members m JOIN {schema}.holder h ON h.session = m.session; "
                 f"UPDATE {schema}.counters SET n_staged = n_staged + 1")
    with pytest.raises(OSError, match="busy"):
        open(second.path / "file", "r+", encoding="utf-8")
    lab.until(lambda: not cluster.psql(f"SELECT 1 FROM {schema}.staging").stdout.strip(), 60, "the row is swept away")
    (second.path / "file").write_text("after\n")
    assert (first.path / "file").read_text() == "after\n"
    first.umount()
    second.umount()
    is_clean(archive)


def write_and_wait(mount, name):
    for number in range(20):
        (mount.path / f"{name}-{number}").write_text(f"{name} {number}\n" * 500)
    lab.ecfs("wait", mount.path)


@pytest.mark.slow
def test_a_standby_that_lagged_is_found_by_who_was_idle(place):
    """Who was told that something is stored may be gone: the endpoints know it."""
    with postgresql.Cluster("fsync = on") as primary, postgresql.Standby(primary) as standby:
        hosts = ",".join(urllib.parse.quote(str(one.directory), safe="") for one in (primary, standby))
        archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", "catalog_mounts=many", "--set",
                                f"catalog=postgresql://ecfs@/postgres?host={hosts}&target_session_attrs=read-write")
        first, second = place.mount(archive), place.mount(join(place, archive, "other"))
        write_and_wait(first, "before")
        flushed = primary.psql("SELECT pg_current_wal_flush_lsn ()").stdout.strip()
        lab.until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn () >= '{flushed}'").stdout.strip() == "t", 60, "it follows")
        standby.stop_following()
        write_and_wait(first, "waited")
        first.kill()
        primary.stop(signal.SIGQUIT)
        standby.promote()
        with pytest.raises(OSError):
            write_and_wait(second, "after")
        assert not any(name.startswith("after") for name in os.listdir(second.path))
        assert "OLD COPY" in lab.ecfs("status", second.path, check=False).stdout
        lab.run("fusermount3", "-u", second.path)
        second.process.wait(60)


def test_of_two_servers_that_take_changes_the_accounts_follow_one(place):
    """A standby was promoted, and the primary lives: a mount at each of them."""
    with postgresql.Cluster("fsync = on") as primary, postgresql.Standby(primary) as standby:
        def location(*servers):
            hosts = ",".join(urllib.parse.quote(str(one.directory), safe="") for one in servers)
            return f"postgresql://ecfs@/postgres?host={hosts}&target_session_attrs=read-write"
        archive = place.archive(place.directories(), "rs:4+2", "--key", "none", "--set", "catalog_mounts=many",
                                "--set", f"catalog={location(primary)}")
        other = join(place, archive, "other")
        other.configure("archive", catalog=location(standby, primary))
        first, second = place.mount(archive), place.mount(other)
        write_and_wait(first, "before")
        flushed = primary.psql("SELECT pg_current_wal_flush_lsn ()").stdout.strip()
        lab.until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn () >= '{flushed}'").stdout.strip() == "t", 60, "it follows")
        standby.promote()
        primary.psql("SELECT pg_terminate_backend (pid) FROM pg_stat_activity WHERE application_name LIKE 'ecfs%'")
        for number in range(60):
            (second.path / f"more-{number}").write_text(f"{number}\n" * 500)
        write_and_wait(first, "waited")
        done = lab.ecfs("wait", second.path, check=False)
        assert done.returncode == 1 and "another copy" in done.stderr, done
        write_and_wait(first, "after")
        with pytest.raises(OSError):
            (second.path / "refused").write_text("refused\n")
        assert "OLD COPY" in lab.ecfs("status", second.path, check=False).stdout
        assert "OLD COPY" not in lab.ecfs("status", first.path).stdout
        lab.run("fusermount3", "-u", second.path)
        second.process.wait(60)
        first.umount()


def test_recovered_elsewhere_all_mounts_take_no_more_changes(place, cluster):
    archive = make(place, cluster)
    first, second = place.mount(archive), place.mount(join(place, archive, "other"))
    write_and_wait(second, "before")
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", place.path / "elsewhere", "--force", *words)

    def refuses(mount):
        try:
            (mount.path / "late").write_text("late\n")
        except OSError:
            return True
        return False
    for mount in first, second:
        lab.until(lambda: refuses(mount), 120, "it takes no changes")
        assert (mount.path / "before-1").read_text() == "before 1\n" * 500
        assert "OLD COPY" in lab.ecfs("status", mount.path, check=False).stdout
        lab.run("fusermount3", "-u", mount.path)
        mount.process.wait(60)


def test_a_dump_that_is_restored_is_found_by_who_comes_first(place, cluster):
    archive = make(place, cluster)
    other = join(place, archive, "other")
    first, second = place.mount(archive), place.mount(other)
    write_and_wait(first, "before")
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().partition(":")[0].replace("-", "")
    dump = cluster.dump(schema)
    write_and_wait(first, "waited")
    first.umount()
    second.umount()
    cluster.psql(f"DROP SCHEMA {schema} CASCADE")
    cluster.restore(dump)
    done = lab.ecfs("mount", other.path, second.path)
    assert "is an old copy" in done.stderr and "for reading only" in done.stderr, done.stderr
    with pytest.raises(OSError):
        (second.path / "after").write_text("refused\n")
    lab.ecfs("umount", second.path)


def test_copy_does_not_throw_out_who_is_in(place, cluster):
    archive = make(place, cluster)
    mount = place.mount(archive)
    (mount.path / "file").write_text("before\n")
    lab.run("cp", "-a", archive.path, place.path / "copied")
    (place.path / "copied/lock").unlink(missing_ok=True)
    target = place.path / "mnt-copied"
    target.mkdir()
    done = lab.ecfs("mount", place.path / "copied", target, check=False)
    assert done.returncode == 1 and "is a copy of one that was in use" in done.stderr, done
    (mount.path / "file").write_text("after\n")
    lab.ecfs("wait", mount.path)
    mount.umount()
    is_clean(archive)


def test_mount_that_was_taken_for_dead_is_unmounted_and_mounted_again(place, cluster):
    archive = make(place, cluster, "--key", "none", "--set", "commit=async")
    mount = place.mount(archive)
    for endpoint in archive.endpoints:
        endpoint.kill()
    (mount.path / "file").write_text("kept\n")
    lab.until(lambda: archive.json("status")["staging"]["files"] == 1, 20, "it is staged")
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    cluster.psql(f"UPDATE {schema}.members SET session = NULL")
    lab.until(lambda: "catalog_ended" in archive.json("status"), 60, "it notices")
    done = lab.ecfs("status", archive.path, check=False)
    assert f"ecfs umount {archive.path}" in done.stdout, done.stdout
    assert "df -h" not in done.stdout and "takeover" not in done.stdout and "another copy is in use" not in done.stdout
    lab.ecfs("umount", mount.path)
    mount.process.wait(60)
    for endpoint in archive.endpoints:
        endpoint.start()
    mount.start()
    archive.await_stored()
    assert (mount.path / "file").read_text() == "kept\n"
    mount.umount()
    is_clean(archive)


@pytest.mark.parametrize("which", [0, 1])
def test_who_was_taken_for_dead_has_no_more_than_it_wrote(place, cluster, which):
    """Whether it led or not: what the others wrote and store is not only there, and nothing of it is lost."""
    archive = make(place, cluster)
    archives = [archive, join(place, archive, "other")]
    mounts = [place.mount(each) for each in archives]
    for number, mount in enumerate(mounts):
        for i in range(5):
            (mount.path / f"file {number} {i}").write_text("small\n")
    schema = "ecfs_" + (archive.path / "catalog-place").read_text().split(":")[0].replace("-", "")
    cluster.psql(f"UPDATE {schema}.members SET session = NULL WHERE id = (SELECT id FROM {schema}.members ORDER BY id OFFSET {which} LIMIT 1)")
    dead, alive = mounts[which], mounts[1 - which]
    lab.until(lambda: "catalog_ended" in dead.archive.json("status"), 60, "it notices")
    (alive.path / "later").write_text("of who is alive\n")
    expected = {f"file {number} {i}": "small\n" for number in range(2) for i in range(5)} | {"later": "of who is alive\n"}
    facts = dead.archive.json("status")
    assert [row["path"] for row in facts.get("unstored", {}).get("list", []) if not row["path"].startswith(f"/file {which}")] == []
    done = lab.ecfs("status", dead.archive.path, check=False)
    assert f"ecfs umount {dead.archive.path}" in done.stdout and "takeover" not in done.stdout, done.stdout
    assert "See that the database" not in done.stdout, done.stdout
    lab.ecfs("umount", dead.path)
    dead.process.wait(60)
    assert "are lost" not in dead.text(), dead.text()
    dead.start()
    for mount in mounts:
        assert {path.name: path.read_text() for path in mount.path.iterdir()} == expected
        mount.umount()
    is_clean(archive)


@pytest.mark.slow
def test_who_ends_says_who_stores_what_it_changed(place, cluster):
    archive = make(place, cluster)
    first, second = place.mount(archive), place.mount(join(place, archive, "other"))
    (second.path / "file").write_text("stored\n")
    lab.ecfs("wait", second.path)
    for endpoint in archive.endpoints:
        endpoint.kill()
    (second.path / "made").mkdir()
    done = lab.ecfs("umount", second.path)
    assert f"safe without the database: process {first.process.pid} on " in done.stderr and ", which leads, stores them" in done.stderr, done.stderr
    done = lab.ecfs("umount", first.path)
    assert "safe without this machine: the next mount stores them" in done.stderr, done.stderr


def test_joining_needs_a_database(place, cluster):
    archive = place.archive(place.directories(), "rs:4+2", "--key", "none")
    other = place.path / "other"
    other.mkdir(mode=0o700)
    shutil.copy(archive.path / "ecfs.conf", other)
    done = lab.ecfs("catalog", "join", other, check=False)
    assert done.returncode == 1 and "joining needs one in a database" in done.stderr, done
