"""Two copies of an archive's directory have both written, and an archive was recovered while some endpoints were away: with
a key what is authentic may still be of what was given up."""
import os
import re
import shutil

import lab
import pytest
from steps import Kept, Steps

BEHIND, LIARS = ["amber", "cedar"], ["birch", "delta"]


class World:
    """An archive of six directories, and what all of it was at several moments."""

    def __init__(self, place, key="split"):
        self.place = place
        self.archive = lab.Archive(place.path / "archive", place.directories(lab.NAMES))
        self.archive.init("--key", key)
        self.change("common")
        self.key = place.path / "key"
        shutil.copy2(self.archive.path / "key", self.key)

    def change(self, name, n_attributes=0, large=True):
        """A directory, files in it, and so many attributes that make a snapshot due; all of it is safe then."""
        mount = self.place.mount(self.archive)
        (mount.path / name).mkdir()
        lab.write_pattern(mount.path / name / "file", 3000, len(name))
        if large:
            lab.write_pattern(mount.path / name / "large", 200_000, len(name))
        for number in range(n_attributes):
            os.setxattr(mount.path / name, f"user.{number % 100}", os.urandom(32_000))
        lab.ecfs("wait", mount.path)
        self.tree = lab.describe_tree(mount.path)
        mount.umount()

    def keep(self, name):
        for path in [self.archive.path, *(endpoint.root for endpoint in self.archive.endpoints)]:
            shutil.copytree(path, self.place.path / name / path.name, symlinks=True)

    def bring_back(self, name, endpoints=lab.NAMES, archive=True):
        for path in [endpoint.root for endpoint in self.archive.endpoints if endpoint.name in endpoints] + (
                [self.archive.path] if archive else []):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.place.path / name / path.name, path, symlinks=True)

    def recover(self, names=lab.NAMES):
        """Anew, with those endpoints; what it said."""
        shutil.rmtree(self.archive.path, ignore_errors=True)
        words = ["--key", self.key] + [word for endpoint in self.archive.endpoints if endpoint.name in names
                                       for word in ("--endpoint", endpoint.endpoint())]
        done = lab.ecfs("recover", self.archive.path, "--force", *words, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def assert_is(self, tree):
        mount = self.place.mount(self.archive)
        lab.assert_same_tree(tree, lab.describe_tree(mount.path))
        mount.umount()

    def assert_salvaged(self, tree):
        to = self.place.path / "salvaged"
        lab.run(lab.REPOSITORY / "tools/ecfs-salvage", "--key", self.key, "--to", to,
                *(endpoint.root for endpoint in self.archive.endpoints), check=False, timeout=300)
        salvaged = lab.describe_tree(to)
        lab.assert_same_tree(tree, {name: salvaged[name] for name in salvaged if name in tree})
        shutil.rmtree(to)


@pytest.mark.parametrize("n_attributes", [1, 40, 250], ids=["short", "longer", "with-a-snapshot"])
@pytest.mark.slow
def test_what_another_copy_wrote_is_not_added_to_what_most_have(place, n_attributes):
    """The other copy wrote more than the one that counts, at two of six; and some of its files lie at a third."""
    world = World(place)
    world.keep("before")
    world.change("given up", n_attributes)
    world.keep("other")
    world.bring_back("before")
    world.change("true")
    tree = world.tree
    world.bring_back("other", LIARS, archive=False)
    for folder in ("journal", "snapshots"):
        for path in (place.path / "other" / "amber" / folder).glob("*"):
            if not (to := world.archive["amber"].root / folder / path.name).exists():
                shutil.copy2(path, to)
    world.assert_salvaged(tree)
    said = world.recover()
    world.assert_is(tree)
    assert set(LIARS) <= set(re.findall(r"endpoint (\w+): journal/\S+ is of another copy", said)), said


@pytest.mark.slow
def test_a_recovery_is_not_undone_by_who_lies_and_who_was_away(place):
    """An archive is recovered with four of six and goes on; then two of the four show what was before, as the two that
    were away do."""
    world = World(place, "file")
    world.keep("before")
    world.recover([name for name in lab.NAMES if name not in BEHIND])
    world.change("after the recovery", large=False)
    tree = world.tree
    world.bring_back("before", LIARS, archive=False)
    world.assert_salvaged(tree)
    world.recover()
    world.assert_is(tree)


def epochs(world):
    markers = {endpoint.name: endpoint.root / "ecfs-endpoint" for endpoint in world.archive.endpoints}
    return {name: int(re.search(r"^epoch=(\d+)$", marker.read_text(), re.M)[1]) for name, marker in markers.items()
            if marker.exists()}


def die_among_markers(place, world, names):
    """A recovery elsewhere that has written markers at these, which are the first that it writes, and dies."""
    roots = [endpoint.root for endpoint in world.archive.endpoints]
    steps, kept = Steps(place, roots), Kept(place, roots)
    ordered = sorted(world.archive.endpoints, key=lambda endpoint: endpoint.name not in names)
    words = [word for endpoint in ordered for word in ("--endpoint", endpoint.endpoint())]

    def recover(at):
        elsewhere = place.path / f"elsewhere-{next(place.numbers)}"
        lab.ecfs("recover", elsewhere, "--force", *words, check=False, env=steps.environment(at, "before"))
        return {name for name, epoch in epochs(world).items() if epoch > 1}

    recover(0)
    n_steps = steps.count()
    for at in range(n_steps, 0, -1):
        kept.restore()
        if recover(at) == set(names):
            kept.drop()
            return
    raise AssertionError("no step has these markers written")


@pytest.mark.slow
def test_what_a_recovery_left_that_died_is_not_what_the_archive_is(place, monkeypatch):
    """It has written its markers at two of six and died. The archive goes on without it, and takes them back where it can:
    one of the two is away meanwhile, and then two lie."""
    monkeypatch.setattr(lab, "PROGRAM", lab.BUILD / "tests/lab/ecfs-flawed")
    monkeypatch.setenv("ECFS_LAB_HASTE", "40")  # a claim is dead after 3 seconds
    world = World(place)
    die_among_markers(place, world, BEHIND)
    away = world.archive[BEHIND[0]].root
    os.rename(away, place.path / "away")
    mount = place.mount(world.archive)
    (mount.path / "went on").mkdir()
    lab.until(lambda: lab.ecfs("wait", mount.path, check=False).returncode == 0, 60, "the archive goes on")
    tree = lab.describe_tree(mount.path)
    lab.until(lambda: epochs(world)[BEHIND[1]] == 1, 60, "what the recovery wrote is taken back")
    mount.umount()
    os.rename(place.path / "away", away)
    assert epochs(world)[BEHIND[0]] == 2
    world.assert_salvaged(tree)
    world.recover()
    world.assert_is(tree)
