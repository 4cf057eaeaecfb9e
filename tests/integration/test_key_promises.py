"""What the page on security promises, by whoever has some of the accounts."""
import itertools
import os
import shutil
import signal
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import lab
import pytest
from keeper import salvage
from keyed import keys_of, recover, secret, tree_of, write_tree
from steps import CRASHES, Kept, Steps, points

pytestmark = lab.unkeyed

MIB = 1 << 20
PLANTED = ["planted-name", "planted-directory", "planted-content", "planted-target", "planted-attribute"]


def make(place, *options):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init(*options)
    mount = place.mount(archive)
    tree = write_tree(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    return archive, tree


@pytest.mark.slow
def test_recover_says_whether_a_key_authenticates_what_it_found(place):
    archive, _ = make(place, "--key", "split")
    shutil.rmtree(archive.path)
    again, done = recover(place, archive)
    assert "is authentic by its key" in done.stdout, done
    assert again.json("status")["key"] in done.stdout


@pytest.mark.slow
def test_who_knows_of_a_key_is_not_shown_an_archive_without_one(place):
    """As most accounts together could: they have made up all that there is."""
    archive, _ = make(place, "--key", "none")
    shutil.rmtree(archive.path)
    passphrase = secret(place, "passphrase", "a passphrase of mine")
    code = secret(place, "code", "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH")
    for options in (["--passphrase-file", passphrase], ["--code-file", code]):
        again, done = recover(place, archive, *options, check=False)
        assert done.returncode != 0 and not again.path.exists(), done
    _, done = recover(place, archive)
    assert "nothing shows that what was recovered was not made up" in done.stdout, done


def opened_by(program, files, opener):
    """What any of these shares, taken for enough, make of any slot."""
    for n in range(1, len(files) + 1):
        for some in itertools.combinations(files, n):
            if len({file.x for file in some}) < n:
                continue
            opener.secret = program.join_shares([(file.x, file.share) for file in some])
            for slot in [slot for file in files for slot in file.slots]:
                try:
                    if slot.open(files[0].archive, opener):
                        return True
                except program.Bad:
                    continue
    return False


@pytest.mark.slow
def test_fewer_accounts_than_needed_open_nothing_with_the_passphrase(place, monkeypatch):
    """Nor with what they have kept of what they had before."""
    right = secret(place, "right", "the right passphrase")
    archive, tree = make(place, "--key", "passphrase", "--passphrase-file", right)
    kept = {endpoint.name: [path.read_bytes() for path in (endpoint.root / "keys").iterdir()]
            for endpoint in archive.endpoints}
    lab.ecfs("key", "add", archive.path, "--passphrase", "--passphrase-file", secret(place, "more", "another passphrase"))
    for endpoint in archive.endpoints:
        kept[endpoint.name] += [path.read_bytes() for path in (endpoint.root / "keys").iterdir()]
    shutil.rmtree(archive.path)
    program, known, stretched = salvage(), {}, salvage().Slot.stretched
    monkeypatch.setattr(program.Slot, "stretched",
                        lambda slot, text: known.setdefault(slot.salt, None) or known.update(
                            {slot.salt: stretched(slot, text)}) or known[slot.salt])  # which takes half a second
    for some in itertools.combinations(archive.endpoints, 2):
        files = [program.KeyFile(endpoint.name, data) for endpoint in some for data in kept[endpoint.name]]
        options = SimpleNamespace(passphrase_file=right, code_file=None, identity=None)
        assert not opened_by(program, files, program.Opener(options))
        few = lab.Archive(archive.path, list(some))
        again, done = recover(place, few, "--passphrase-file", right, check=False)
        assert done.returncode != 0 and not again.path.exists(), done
        done = lab.run(lab.REPOSITORY / "tools/ecfs-salvage", "--passphrase-file", right, "--list",
                       *[endpoint.root for endpoint in some], check=False)
        assert done.returncode != 0 and "planted" not in done.stdout + done.stderr, done
    options = SimpleNamespace(passphrase_file=right, code_file=None, identity=None)
    files = [program.KeyFile(endpoint.name, kept[endpoint.name][0]) for endpoint in archive.endpoints[:3]]
    assert opened_by(program, files, program.Opener(options)), "three of them are enough"
    again, _ = recover(place, lab.Archive(archive.path, archive.endpoints[2:]), "--passphrase-file", right)
    mount = place.mount(again)
    lab.assert_same_tree(tree, lab.describe_tree(mount.path))
    mount.umount()


def planted_in(data):
    """What of it can be read there, also of what is only compressed."""
    for start in [at for at in range(min(len(data), 512)) if data[at] == 0x78]:
        try:
            data += zlib.decompressobj().decompress(data[start:])
        except zlib.error:
            continue
    return {word for word in PLANTED if word.encode() in data}


class Watch(threading.Thread):
    """Collects arguments and environments of all programs of ours that have @mark in theirs, while the body runs."""

    def __init__(self, mark):
        super().__init__()
        self.mark, self.over, self.seen = os.fsencode(mark), threading.Event(), set()

    def run(self):
        while not self.over.wait(0.01):
            for process in Path("/proc").iterdir():
                try:
                    if process.name.isdigit() and str(lab.BUILD) in os.readlink(process / "exe"):
                        seen = {(process / "cmdline").read_bytes(), (process / "environ").read_bytes()}
                        if any(self.mark in words for words in seen):  # other tests run beside
                            self.seen |= seen
                except OSError:  # it has ended
                    continue

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


@pytest.mark.slow
def test_nobody_learns_anything_in_a_whole_life(place, monkeypatch):
    """Neither the accounts, at any moment, nor who reads logs, arguments, environments and the files that programs leave."""
    temporary = place.path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    passphrase = "planted-content by which a key opens"
    said = []

    def do(*words, **options):
        done = lab.ecfs(*words, **options)
        said.append(done.stdout + done.stderr)

    def look(phase):
        for endpoint in [*archive.endpoints, *more]:
            for path in lab.files_below(endpoint.root):
                if path.parent.name != "salvage":
                    assert not planted_in(path.read_bytes() + os.fsencode(path)), f"{phase}: {path}"

    more = place.directories(["grove"])
    archive = lab.Archive(place.path / "archive", place.directories())
    with Watch(temporary) as watch:
        archive.init("--key", "split")
        do("key", "add", archive.path, "--passphrase", "--passphrase-file", secret(place, "passphrase", passphrase))
        mount = place.mount(archive)
        write_tree(mount)
        top = mount.path / "planted-directory"
        do("wait", mount.path)
        look("new files")
        (top / "planted-name-odd").rename(top / "planted-name-renamed")
        with open(top / "planted-name-small", "ab") as file:
            file.write(b"planted-content, appended")
        with open(top / "planted-name-large", "r+b") as file:
            file.seek(5 * MIB)
            file.write(b"planted-content, written over " * 3000)
        os.truncate(top / "planted-name-renamed", 100_000)
        (top / "planted-name-gone").write_bytes(b"planted-content " * 9000)
        do("wait", mount.path)
        (top / "planted-name-gone").unlink()
        look("changes")
        do("recode", archive.path, "/", "--code", "rs:3+2")
        do("wait", mount.path)
        look("recode")
        (top / "planted-name-crash").write_bytes(b"planted-content " * 20_000)
        mount.kill()
        mount = place.mount(archive)
        do("wait", mount.path)
        look("a crash")
        tree = lab.describe_tree(mount.path)
        mount.umount()
        do("endpoint", "add", archive.path, more[0].endpoint())
        do("endpoint", "drain", archive.path, archive.endpoints[0].name)
        do("key", "rotate", archive.path, "--drop")
        look("drain and another key")
        shutil.rmtree(archive.endpoints[1].root / "stripes")
        lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", "--deep", archive.path, check=False)  # tells whose stripes are gone
        do("drill", archive.path)
        do("status", archive.path)
        look("repair")
        shutil.rmtree(archive.path)
        again, done = recover(place, lab.Archive(archive.path, [*archive.endpoints[1:], *more]))
        said.append(done.stdout + done.stderr)
        look("recovery")
        lab.assert_same_tree(tree, tree_of(place, again))
    for text in [*said, *(log.read_text(errors="replace") for log in place.path.glob("mount-*.log"))]:
        assert not planted_in(text.encode()), text
    assert not [seen for seen in watch.seen if planted_in(seen)]
    assert any(b"--passphrase-file" in seen for seen in watch.seen), "programs were seen"
    left = [path for path in temporary.rglob("*") if path.is_file()]
    assert not left, left


@pytest.mark.parametrize("machine", ["here", "lost"])
@pytest.mark.slow
def test_as_many_as_may_lie_show_what_they_had_last_week(place, machine):
    """All of it, also their key files."""
    archive, _ = make(place, "--key", "split")
    lab.ecfs("key", "add", archive.path, "--code", "--code-file", place.path / "code")
    liars = archive.endpoints[:2]
    kept = Kept(place, [endpoint.root for endpoint in liars])
    slot = next(slot["id"] for slot in keys_of(archive)["slots"] if slot["kind"] == "code")
    lab.ecfs("key", "remove", archive.path, slot)
    mount = place.mount(archive)
    (mount.path / "planted-directory" / "planted-name-odd").unlink()
    lab.write_pattern(mount.path / "newer", 2 * MIB + 5)
    lab.write_pattern(mount.path / "planted-directory" / "planted-name-large", 3 * MIB)
    lab.ecfs("wait", mount.path)
    tree = lab.describe_tree(mount.path)
    mount.umount()
    honest = {path: path.read_bytes() for endpoint in archive.endpoints[2:]
              for path in lab.files_below(endpoint.root / "stripes")}
    kept.restore()
    if machine == "lost":
        shutil.rmtree(archive.path)
        kept.restore()
        archive, done = recover(place, archive)
    lab.assert_same_tree(tree, tree_of(place, archive))
    done = lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", "--deep", archive.path, check=False)
    assert all(endpoint.name in done.stdout + done.stderr for endpoint in liars), done
    assert all(path.exists() and path.read_bytes() == data for path, data in honest.items())
    lab.assert_same_tree(tree, tree_of(place, archive))
    again = lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", "--deep", archive.path, check=False)
    assert again.returncode == 0, again
    assert lab.ecfs("key", "check", archive.path, "--code-file", place.path / "code", check=False).returncode != 0


def make_by_code(place):
    archive, tree = make(place, "--key", "code", "--code-file", place.path / "code")
    return archive, tree, ["--code-file", place.path / "code"]


def adds_a_way(place):
    archive, tree, opens = make_by_code(place)
    return archive, tree, opens, ["key", "add", archive.path, "--split"]


def takes_a_way_away(place):
    archive, tree, opens = make_by_code(place)
    lab.ecfs("key", "add", archive.path, "--split")
    slot = next(slot["id"] for slot in keys_of(archive)["slots"] if slot["kind"] == "split")
    return archive, tree, opens, ["key", "remove", archive.path, slot]


def adds_an_endpoint(place):
    archive, tree = make(place, "--key", "split")
    return archive, tree, [], ["endpoint", "add", archive.path, place.directories(["grove"])[0].endpoint()]


def replaces_an_endpoint(place):
    archive, tree = make(place, "--key", "split")
    new = place.directories(["grove"])[0]
    return archive, tree, [], ["endpoint", "replace", archive.path, archive.endpoints[0].name, new.endpoint()]


@pytest.mark.parametrize("begin", [adds_a_way, adds_an_endpoint, replaces_an_endpoint, takes_a_way_away])
@pytest.mark.slow
def test_killed_at_any_step_the_key_comes_back(place, begin):
    """With the machine lost, and two endpoints that it had before."""
    archive, tree, opens, words = begin(place)
    roots = [path for path in place.path.iterdir() if path.name.startswith("endpoints-")]
    before, steps = Kept(place, [archive.path, *roots]), Steps(place, [archive.path, *roots])
    lab.ecfs(*words, env=steps.environment(0, "before"))
    n_steps = steps.count()
    for at, moment in points(n_steps, max(CRASHES // 2, 5)):
        before.restore()
        done = lab.ecfs(*words, env=steps.environment(at, moment), check=False)
        where = steps.where()
        try:
            assert (done.returncode == -signal.SIGKILL) == (where is not None), done
            killed = Kept(place, before.paths)
            shutil.rmtree(archive.path)
            again, _ = recover(place, lab.Archive(archive.path, archive.endpoints[2:]), *opens)
            lab.assert_same_tree(tree, tree_of(place, again))
            shutil.rmtree(again.path)
            killed.restore()
            killed.drop()
            lab.ecfs(*words, check=False)
            lab.assert_same_tree(tree, tree_of(place, archive))
            lab.ecfs("key", "check", archive.path, *opens)
        except AssertionError as error:
            raise AssertionError(f"killed {where}: {error}") from error
