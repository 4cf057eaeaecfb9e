"""ecfs recover where endpoints have lost some of their journal: they do not outvote those that have it."""
import shutil

import lab
import pytest

SMALL = [pytest.param("copies:3", 3, id="copies:3"), pytest.param("rs:2+2", 4, id="rs:2+2")]


class Few:
    """An archive of so few endpoints that each has to say the same, unless it has lost what it says nothing of."""

    def __init__(self, place, code, count):
        self.place, self.endpoints = place, place.directories(lab.NAMES[:count])
        archive = place.archive(self.endpoints, code)
        mount = place.mount(archive)
        self.write(archive, mount, "early")
        mount.umount()
        self.archive, _ = self.recover("--force")  # which begins with a snapshot
        for endpoint in self.endpoints:  # what is in snapshots goes in time
            for path in self.files(endpoint, "journal"):
                path.unlink()
        mount = place.mount(self.archive)
        self.write(self.archive, mount, "late")
        self.expected = lab.describe_tree(mount.path)
        mount.umount()
        for endpoint in self.endpoints:
            shutil.copytree(endpoint.root, place.path / "truth" / endpoint.name)

    @staticmethod
    def write(archive, mount, name):
        for number in range(3):
            lab.write_pattern(mount.path / f"{name}{number}", 3000, number)
            archive.await_stored()
        (mount.path / f"{name}0").rename(mount.path / f"{name}-renamed")
        (mount.path / f"{name}1").unlink()
        (mount.path / f"{name}-directory").mkdir()
        archive.await_stored()

    @staticmethod
    def files(endpoint, part):
        return sorted((endpoint.root / part).iterdir())

    def recover(self, *options, **how):
        path = self.place.path / f"recovered-{next(self.place.numbers)}"
        words = [word for endpoint in self.endpoints for word in ("--endpoint", endpoint.endpoint())]
        done = lab.ecfs("recover", path, *words, *options, **how)
        return lab.Archive(path, self.endpoints), done

    def hurt(self, what, count):
        """Takes files away at so many of the endpoints, of what all had."""
        for endpoint in self.endpoints:
            shutil.rmtree(endpoint.root)
            shutil.copytree(self.place.path / "truth" / endpoint.name, endpoint.root)
        for endpoint in self.endpoints[:count]:
            segments = self.files(endpoint, "journal")
            assert len(segments) >= 3
            gone = {"middle": [segments[len(segments) // 2]], "last": segments[-1:],
                    "snapshots": self.files(endpoint, "snapshots")}[what]
            for path in gone:
                path.unlink()

    def found(self, *options):
        again, done = self.recover("--read-only", *options)
        mount = self.place.mount(again, "-o", "ro")
        found = lab.describe_tree(mount.path)
        mount.umount()
        return found, done


@pytest.mark.parametrize("code, count", SMALL)
@pytest.mark.slow
def test_an_endpoint_with_a_gap_outvotes_nobody(place, code, count):
    few = Few(place, code, count)
    for what, n_hurt in (("middle", 1), ("middle", 2), ("last", 1), ("snapshots", 1), ("snapshots", 2)):
        few.hurt(what, n_hurt)
        found, done = few.found()
        assert found == few.expected, (what, n_hurt, done.stderr)


@pytest.mark.slow
def test_what_cannot_be_settled_is_not_dropped_unasked(place):
    few = Few(place, "copies:3", 3)
    few.hurt("last", 2)
    again, done = few.recover(check=False)
    teller = few.endpoints[2].name
    assert done.returncode == 1 and f"or ruled out ({teller})" in done.stderr and "--believe" in done.stderr
    assert not again.path.exists()
    assert few.found("--believe", teller)[0] == few.expected


@pytest.mark.slow
def test_an_archive_of_few_endpoints_is_recovered_with_one_distrusted(place):
    few = Few(place, "copies:3", 3)
    again, done = few.recover("--force", "--distrust", few.endpoints[0].name)
    assert again.json("status")["files"] == 4


@pytest.mark.slow
def test_two_that_say_nothing_alike_are_not_believed_one_by_one(place):
    """Of two histories from the beginning on none is the truth because it is there."""
    endpoints = place.directories(lab.NAMES[:2])
    archive = place.archive(endpoints, "copies:2")
    roots = [archive.path, *(endpoint.root for endpoint in endpoints)]
    begun, first = place.path / "begun", place.path / "first"
    for root in roots:
        shutil.copytree(root, begun / root.name)
    for name in ("one", "other"):
        mount = place.mount(archive)
        lab.write_pattern(mount.path / name, 3000, 1)
        archive.await_stored()
        mount.umount()
        if name == "one":
            shutil.copytree(endpoints[0].root, first)
            for root in roots:
                shutil.rmtree(root)
                shutil.copytree(begun / root.name, root)
    shutil.rmtree(endpoints[0].root)
    shutil.copytree(first, endpoints[0].root)
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", place.path / "again", *words, check=False)
    assert done.returncode == 1 and "--believe" in done.stderr and "permanently" in done.stderr, done.stderr
    done = lab.ecfs("recover", place.path / "again", *words, "--read-only", "--believe", endpoints[1].name)
    assert lab.ecfs("ls", place.path / "again", "/").stdout.split()[:1] == ["other"], done.stderr


@pytest.mark.slow
def test_snapshots_of_which_none_is_believed_make_no_catalog(place):
    """That nothing is believed is no reason to believe more: what it would be measured by is empty."""
    endpoints = place.directories(lab.NAMES[:2])
    archive = place.archive(endpoints, "copies:2")
    mount = place.mount(archive)
    lab.write_pattern(mount.path / "file", 3000, 1)
    archive.await_stored()
    mount.umount()
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, place.path / "begun" / endpoint.name)
    for number, keeper in enumerate(endpoints):
        for endpoint in endpoints:
            shutil.rmtree(endpoint.root)
            shutil.copytree(place.path / "begun" / endpoint.name, endpoint.root)
        lab.ecfs("recover", place.path / f"again-{number}", *words, "--force")
        shutil.copytree(keeper.root, place.path / "kept" / keeper.name)
    for endpoint in endpoints:
        shutil.rmtree(endpoint.root)
        shutil.copytree(place.path / "kept" / endpoint.name, endpoint.root)
        shutil.rmtree(endpoint.root / "journal")
    done = lab.ecfs("recover", place.path / "last", *words, check=False)
    assert done.returncode == 1 and "nothing that the endpoints say is believed" in done.stderr, done.stderr
