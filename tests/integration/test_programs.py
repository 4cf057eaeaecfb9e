"""Programs that people use, on a mount: what they do works, and what they leave is on the endpoints.

Each test works in a directory of its own. What it leaves is read back from the endpoints, by another mount of the same
archive, when all of the tests have run: two endpoints are gone then.
"""
import logging
import logging.handlers
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap

import lab
import pytest

MIB = 1 << 20


class World:
    """A mount that all tests here share, and what the directories of the tests held when they ended."""

    def __init__(self, place):
        self.place = place
        self.archive = place.archive(place.directories())
        self.mount = place.mount(self.archive)
        self.left = {}

    def look_again(self):
        """From the endpoints that are left, with nothing in memory."""
        self.archive.await_stored()
        self.mount.umount()
        self.mount.start()
        for endpoint in self.archive.endpoints[2:4]:
            endpoint.kill()
        for name, expected in self.left.items():
            lab.assert_same_tree(expected, lab.describe_tree(self.mount.path / name))


@pytest.fixture(scope="module")
def world(module_place):
    return World(module_place)


@pytest.fixture
def here(world, request):
    """An empty directory on the mount; what the test leaves in it is to be there later."""
    path = world.mount.path / request.node.name
    path.mkdir()
    yield path
    world.left[path.name] = lab.describe_tree(path)


@pytest.fixture
def outside(tmp_path):
    """An empty directory on a plain file system."""
    path = tmp_path / "outside"
    path.mkdir()
    return path


def shell(text, cwd, **options):
    """A script of bash that ends at the first failure; what it printed."""
    return lab.run("bash", "-euc", text, cwd=cwd, **options).stdout


def python(text, *arguments, **options):
    """Another process with this program; what it printed."""
    return lab.run(sys.executable, "-c", textwrap.dedent(text), *arguments, **options).stdout


def make_files(directory, count, seed=0):
    """Text and binary files in a few directories."""
    numbers = random.Random(seed)
    for i in range(count):
        path = directory / f"part-{i % 7}" / f"file-{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = numbers.choice([0, 10, 1000, 20_000, 300_000])
        path.write_bytes(numbers.randbytes(size) if i % 2 else b"a line of text\n" * (size // 15))


# Version control and databases

GIT = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def test_git_clones_commits_collects_and_pushes(here, outside):
    make_files(outside / "origin", 120)
    environment = os.environ | GIT
    shell("""
        git init -q -b main; git add .; git commit -qm first
        for i in 1 2 3 4 5; do echo $i >> part-0/file-0; git commit -qam "number $i"; done
        git config receive.denyCurrentBranch updateInstead
    """, outside / "origin", env=environment)
    shell("""
        git clone -q "$1/origin" clone; cd clone
        test -z "$(git status --porcelain)"
        git checkout -qb side; echo side > side; git add side; git commit -qm side
        git checkout -q main; echo main >> part-1/file-1; rm -r part-2; git add -A; git commit -qm main
        git merge -q -m merged side
        git gc -q --aggressive --prune=now; git repack -qad
        git fsck --full --strict
        git rev-list --count HEAD | grep -qx 9
        git push -q origin main; git stash list; git clean -fdx
        test -z "$(git status --porcelain)"
        git worktree add -q ../tree side; git -C ../tree fsck
        git bundle create -q ../bundle --all; git bundle verify -q ../bundle
    """.replace("$1", str(outside)), here, env=environment, timeout=300)
    shell("git fsck --full; git rev-list --count HEAD | grep -qx 9; git reset -q --hard; diff -r --exclude=.git . $1"
          .replace("$1", str(here / "clone")), outside / "origin", env=environment)


@pytest.mark.parametrize("mode", ["delete", "truncate", "persist", "wal"])
def test_sqlite_keeps_a_database(world, here, mode):
    path = here / "database"
    lab.forget_mounts()  # skips before there is a database where it cannot
    first = sqlite3.connect(path, isolation_level=None, timeout=0)
    assert first.execute(f"PRAGMA journal_mode={mode}").fetchone() == (mode,)
    first.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY, bytes BLOB)")
    numbers = random.Random(1)
    for start in range(0, 400, 40):
        first.execute("BEGIN IMMEDIATE")
        rows = [(i, numbers.randbytes(2000)) for i in range(start, start + 40)]
        first.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
        first.execute("ROLLBACK" if start == 80 else "COMMIT")
    lab.forget_mounts()
    second = sqlite3.connect(path, isolation_level=None, timeout=0)
    assert second.execute("SELECT count(*), sum(length(bytes)) FROM numbers").fetchone() == (360, 720_000)
    first.execute("BEGIN IMMEDIATE")
    first.execute("DELETE FROM numbers WHERE number % 2")
    assert locked_for_another_process(path)
    assert second.execute("SELECT count(*) FROM numbers").fetchone() == (360,)
    first.execute("COMMIT")
    assert not locked_for_another_process(path)
    assert second.execute("SELECT count(*) FROM numbers").fetchone() == (181,)
    second.execute("VACUUM")
    for connection in first, second:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
    world.archive.await_stored()
    lab.forget_mounts()
    again = sqlite3.connect(path)
    assert again.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert again.execute("SELECT count(*) FROM numbers").fetchone() == (181,)
    again.close()


def locked_for_another_process(path):
    """Whether a process that has the database for itself may not write; if it may, it adds a row."""
    return python("""
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], timeout=0)
        try:
            connection.execute("INSERT INTO numbers VALUES (1000, NULL)")
            connection.commit()
        except sqlite3.OperationalError as error:
            print(error)
    """, path).strip() == "database is locked"


# Archivers and copiers


def test_tar_keeps_holes_links_and_attributes(here, outside):
    lab.add_oddities(outside)
    with open(outside / "sparse", "wb") as file:
        file.truncate(50 * MIB)
        file.seek(20 * MIB)
        file.write(b"island")
    lab.settle(outside)
    lab.run("tar", "-C", outside, "--format=posix", "--xattrs", "-Scf", here / "packed.tar", ".")
    assert os.stat(here / "packed.tar").st_size < 20 * MIB
    (here / "unpacked").mkdir()
    lab.run("tar", "-C", here / "unpacked", "--xattrs", "-xpf", here / "packed.tar")
    lab.assert_same_tree(lab.describe_tree(outside), lab.describe_tree(here / "unpacked"))
    lab.run("tar", "-C", here / "unpacked", "--compare", "-f", here / "packed.tar")


def changes(*arguments):
    """What rsync says it changed."""
    return lab.run("rsync", "-aHAX", "--delete", "--itemize-changes", *arguments).stdout.splitlines()


def test_rsync_repeats_nothing_and_changes_in_place(here, outside):
    lab.add_oddities(outside)
    lab.run("mkfifo", outside / "pipe")
    lab.settle(outside)
    assert changes(f"{outside}/", f"{here}/")
    assert changes(f"{outside}/", f"{here}/") == []
    lab.assert_same_tree(lab.describe_tree(outside), lab.describe_tree(here))
    large = outside / "odd/size-9000001"
    with open(large, "r+b") as file:
        file.seek(4 * MIB)
        file.write(b"changed")
        file.truncate(8 * MIB)
    (outside / "odd/size-1").unlink()
    before = os.stat(here / "odd/size-9000001").st_ino
    lab.settle(outside)
    changes("--inplace", "--no-whole-file", f"{outside}/", f"{here}/")
    assert os.stat(here / "odd/size-9000001").st_ino == before
    with open(large, "ab") as file:
        file.write(b"more" * MIB)
    lab.settle(outside)
    lab.run("rsync", "-a", "--append", f"{outside}/odd/", f"{here}/odd/")
    lab.assert_same_tree(lab.describe_tree(outside), lab.describe_tree(here))


@pytest.mark.parametrize("options", [["--reflink=auto"], ["--sparse=always"], ["--sparse=never"], ["-a"]])
def test_cp_copies_within_the_mount_and_out_of_it(here, outside, options):
    expected = lab.write_pattern(here / "file", 5 * MIB + 3, 1)
    with open(here / "file", "r+b") as file:
        file.truncate(30 * MIB)
    expected = lab.digest(here / "file")
    lab.run("cp", *options, here / "file", here / "copy")
    lab.run("cp", *options, here / "copy", outside / "copy")
    lab.forget_mounts()
    assert lab.digest(here / "copy") == lab.digest(outside / "copy") == expected
    lab.run("cmp", here / "file", here / "copy")


def test_zip_and_unzip(here, outside):
    make_files(outside / "tree", 50)
    lab.run("cp", "-r", outside / "tree", here)
    shell("""
        zip -qr packed.zip tree; zip -q packed.zip -d tree/part-0/file-0; zip -qr packed.zip tree
        unzip -q packed.zip -d out
    """, here)
    lab.run("diff", "-r", here / "out/tree", outside / "tree")


def test_mv_between_directories_and_file_systems(here, outside):
    make_files(here / "one", 30)
    expected = lab.describe_tree(here / "one")
    shell(f"mkdir two; mv one two/moved; mv two/moved {outside}/; mv {outside}/moved back; rmdir two", here)
    lab.assert_same_tree(expected, lab.describe_tree(here / "back"))


# Editors and small tools


def save_by_renaming(path, data):
    """A temporary file beside it, made durable, and renamed over it."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(path, temporary)
    os.rename(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


def save_with_a_moved_backup(path, data):
    """vim, backupcopy=no: a probe, the old file moved away, a new one under its name."""
    probe = path.with_name("4913")
    os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW))
    os.chown(probe, -1, os.stat(path).st_gid)
    probe.unlink()
    backup = path.with_name(f"{path.name}~")
    os.rename(path, backup)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), os.stat(backup).st_mode & 0o7777)
    backup.unlink()


def save_in_place_with_a_copied_backup(path, data):
    """vim, backupcopy=yes: the old content copied away, the new one written into the file itself."""
    backup = path.with_name(f"{path.name}~")
    shutil.copy2(path, backup)
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    backup.unlink()


def save_through_a_swap_of_names(path, data):
    """The new file gets the name of a link to the old one, which stays until the end."""
    linked, new = path.with_name("linked"), path.with_name("new")
    os.link(path, linked)
    new.write_bytes(data)
    shutil.copymode(path, new)
    os.replace(new, path)
    linked.unlink()


@pytest.mark.parametrize("save", [save_by_renaming, save_with_a_moved_backup, save_in_place_with_a_copied_backup,
                                  save_through_a_swap_of_names])
def test_editors_save(here, save):
    path = here / "text"
    path.write_bytes(b"first\n")
    path.chmod(0o640)
    with open(path, "rb") as reader:
        for i in range(5):
            data = b"line %d\n" % i * random.Random(i).choice([0, 10, 50_000])
            save(path, data)
            assert path.read_bytes() == data
            assert os.listdir(here) == ["text"]
        reader.read()
    lab.forget_mounts()
    assert path.read_bytes() == data
    assert os.stat(path).st_mode & 0o7777 == 0o640


def test_dd_sed_patch_sort_and_friends_change_files(here, outside):
    text = "".join(f"line {i}\n" for i in range(20_000))
    script = """
        sed -i 's/line 1000$/line one thousand/' text
        cp text changed; sed -i '/line 5../d' changed; echo tail >> changed
        diff -u text changed > change || true; patch -s text change; cmp text changed
        dd if=/dev/zero of=changed bs=1 seek=777 count=3000 conv=notrunc status=none
        dd if=text of=changed bs=4k skip=2 seek=100 oflag=append conv=notrunc status=none
        sort -r -o text text; split -n 5 text part.; cat part.* | cmp - text
        tee -a text < change > copied; truncate -s -5 copied; truncate -s +100K part.aa; truncate -s 10 part.ab
        install -m 750 text installed; ln -f installed linked; touch -r text copied
        gzip -k text; gzip -dc text.gz | cmp - text; rm part.ad; shuf --random-source=text -n 100 text > shuffled
        fallocate -l 200K allocated; fallocate -p -o 4K -l 8K text; perl -pi -e 's/line/LINE/' shuffled
        xargs -n 100 echo < shuffled > listed; tac listed > reversed; tail -c +500 reversed > listed
    """
    for directory in here, outside:
        (directory / "text").write_text(text)
        shell(script, directory)
    def content(directory):
        return {path.name: (path.stat().st_mode, path.stat().st_nlink, path.stat().st_size,
                            None if path.suffix == ".gz" else lab.digest(path)) for path in directory.iterdir()}
    lab.forget_mounts()
    expected = content(outside)
    for name in "change", "text", "text.gz", "copied", "installed", "linked":  # a diff tells the time
        expected.pop(name)
    assert {name: facts for name, facts in content(here).items() if name in expected} == expected


def test_c_program_is_built_and_runs(here):
    for i in range(8):
        (here / f"part{i}.c").write_text(f"int part{i} (void) {{ return {i}; }}\n")
    (here / "main.c").write_text("#include <stdio.h>\n" + "".join(f"int part{i} (void);\n" for i in range(8)) +
                                 "int main (void) { printf (\"%d\\n\", " + " + ".join(f"part{i} ()" for i in range(8)) +
                                 "); fflush (stdout); return getchar () == EOF; }\n")
    shell("""
        for i in 0 1 2 3 4 5 6 7; do gcc -g -fPIC -c part$i.c & done; wait
        ar rcs libparts.a part0.o part1.o part2.o part3.o; gcc -shared -o libmore.so part4.o part5.o part6.o part7.o
        gcc -g -o program main.c libparts.a -L. -lmore -Wl,-rpath,"$PWD"; strip -o small program
    """, here)
    for name in "program", "small":
        lab.forget_mounts()
        with subprocess.Popen([here / name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "28\n"
            with pytest.raises(OSError) as caught:
                open(here / name, "r+b")
            assert caught.value.errno == 26  # ETXTBSY
            with open(here / name, "rb"):  # of what others have open nothing is forgotten
                lab.forget_mounts()
            process.communicate("x")
            assert process.returncode == 0


def test_disk_image_is_made_filled_and_checked(here, outside):
    if not shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin"):
        pytest.skip("e2fsprogs is not installed")
    make_files(outside / "tree", 60)
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    shell(f"""
        truncate -s 40M image; mke2fs -q -F -t ext4 -d {outside}/tree image; e2fsck -fn image
        cp --sparse=always image copy; e2fsck -fn copy
        debugfs -w -R 'write image again' copy; e2fsck -fy copy; debugfs -R 'rdump /part-1 .' copy
    """, here, env=environment)
    lab.run("diff", "-r", outside / "tree/part-1", here / "part-1")


def test_downloads_arrive_in_pieces(here):
    """As of a client of torrents: room for all is taken first, and pieces come in any order."""
    piece, n_pieces = 100_000, 60
    expected = random.Random(1).randbytes(piece * n_pieces - 33)
    order = random.Random(2).sample(range(n_pieces), n_pieces)
    with open(here / "file.part", "w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, len(expected))
        for number in order:
            part = slice(number * piece, min((number + 1) * piece, len(expected)))
            os.pwrite(file.fileno(), expected[part], part.start)
            with open(here / "file.part", "rb", buffering=0) as reader:
                assert os.pread(reader.fileno(), piece, part.start) == expected[part]
            if number % 10 == 0:
                os.fsync(file.fileno())
    os.rename(here / "file.part", here / "file")
    lab.forget_mounts()
    assert (here / "file").read_bytes() == expected


def test_header_is_written_when_all_else_is_there(here):
    """As of a program that writes video: the first bytes, which tell how long it is, come last."""
    with open(here / "file", "wb") as file:
        file.write(bytes(64) + b"frame" * MIB)
        size = file.tell()
        file.seek(0)
        file.write(size.to_bytes(64, "little"))
    lab.forget_mounts()
    data = (here / "file").read_bytes()
    assert data[:64] == size.to_bytes(64, "little") and data[64:] == b"frame" * MIB


def test_temporary_files_that_are_unlinked_at_once(here):
    numbers = random.Random(3)
    lines = [f"{numbers.random()}\n" for _ in range(100_000)]
    (here / "lines").write_text("".join(lines))
    lab.run("sort", "-S", "200K", "-T", here, "-o", here / "sorted", here / "lines", env=os.environ | {"LC_ALL": "C"})
    assert (here / "sorted").read_text() == "".join(sorted(lines))
    with tempfile.TemporaryFile(dir=here) as file:
        file.write(b"x" * MIB)
        file.seek(0)
        lab.forget_mounts()
        assert file.read() == b"x" * MIB
    assert sorted(os.listdir(here)) == ["lines", "sorted"]


# Logs, locks and pipes


def test_log_is_rotated_while_it_is_written(here):
    handler = logging.handlers.RotatingFileHandler(here / "log", maxBytes=20_000, backupCount=50)
    logger = logging.getLogger("test_programs")
    logger.propagate = False
    logger.addHandler(handler)
    for i in range(3000):
        logger.warning("message %d", i)
    handler.close()
    lab.forget_mounts()
    names = sorted(os.listdir(here), key=lambda name: -int(name.partition(".")[2] or 0))
    lines = "".join((here / name).read_text() for name in names).splitlines()
    assert lines == [f"message {i}" for i in range(3000)]


def test_log_that_is_copied_and_truncated_goes_on_at_its_start(here):
    with open(here / "log", "a", buffering=1) as log:
        log.write("one\n")
        shell("cp log log.1; truncate -s 0 log", here)
        log.write("two\n")
        assert (here / "log").read_text() == "two\n"
    lab.forget_mounts()
    assert ((here / "log.1").read_text(), (here / "log").read_text()) == ("one\n", "two\n")


def test_processes_that_append_lose_no_line(here):
    writers = [subprocess.Popen(["bash", "-c", f"for i in $(seq 150); do echo {n} $i >> log; done"], cwd=here)
               for n in range(4)]
    assert [writer.wait(120) for writer in writers] == [0] * 4
    lab.forget_mounts()
    lines = (here / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{n} {i}" for n in range(4) for i in range(1, 151))


def test_flock_lets_one_shell_in_at_a_time(here):
    (here / "count").write_text("0\n")
    script = "for i in $(seq 25); do flock lock sh -c 'read n < count; echo $((n + 1)) > count'; done"
    shells = [subprocess.Popen(["bash", "-c", script], cwd=here) for _ in range(4)]
    assert [process.wait(120) for process in shells] == [0] * 4
    assert (here / "count").read_text() == "100\n"
    shell("exec 9> lock; flock -n 9; if flock -n lock true; then exit 1; fi; exec 9>&-; flock -n lock true", here)


def test_mail_is_delivered_by_linking(here):
    for name in "tmp", "new", "cur":
        (here / name).mkdir()
    for i in range(30):
        file = os.open(here / f"tmp/{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(file, b"mail %d" % i * 1000)
        os.fsync(file)
        os.close(file)
        os.link(here / f"tmp/{i}", here / f"new/{i}")
        os.unlink(here / f"tmp/{i}")
        os.rename(here / f"new/{i}", here / f"cur/{i}:2,S")
    lab.forget_mounts()
    assert sorted(os.listdir(here / "cur")) == sorted(f"{i}:2,S" for i in range(30))
    assert all((here / f"cur/{i}:2,S").read_bytes() == b"mail %d" % i * 1000 for i in range(30))


def test_named_pipe_connects_processes(here):
    assert shell("mkfifo pipe; seq 1000 > pipe & sum=0; while read n; do sum=$((sum + n)); done < pipe; echo $sum",
                 here) == "500500\n"


# Mappings


def test_mapping_written_after_close_arrives(world, here):
    path = here / "file"
    expected = bytearray(random.Random(1).randbytes(3 * MIB))
    path.write_bytes(expected)
    file = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(file, len(expected))
    os.close(file)
    for offset in 0, 1_000_000, len(expected) - 4:
        mapped[offset:offset + 4] = expected[offset:offset + 4] = b"late"
    mapped.close()
    world.archive.await_stored()
    lab.forget_mounts()
    assert path.read_bytes() == expected


def test_mapping_written_by_a_process_that_just_ends_arrives(world, here):
    path = here / "file"
    lab.write_pattern(path, 2 * MIB, 1)
    expected = bytearray(path.read_bytes())
    python("""
        import mmap, os, sys
        file = os.open(sys.argv[1], os.O_RDWR)
        mapped = mmap.mmap(file, 0)
        os.close(file)
        mapped[500_000:500_004] = b"late"
        os._exit(0)
    """, path)
    expected[500_000:500_004] = b"late"
    world.archive.await_stored()
    lab.forget_mounts()
    assert path.read_bytes() == expected


def test_all_that_programs_left_is_on_the_endpoints(world):
    """The last test: of what the others left."""
    assert world.left
    world.look_again()
