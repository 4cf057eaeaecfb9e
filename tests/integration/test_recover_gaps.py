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
def test_an_endpoint_with_a_gap_outvotes_nobody(place, code, count):
    few = Few(place, code, count)
    for what, n_hurt in (("middle", 1), ("middle", 2), ("last", 1), ("snapshots", 1), ("snapshots", 2)):
        few.hurt(what, n_hurt)
        found, done = few.found()
        assert found == few.expected, (what, n_hurt, done.stderr)


def test_what_cannot_be_settled_is_not_dropped_unasked(place):
    few = Few(place, "copies:3", 3)
    few.hurt("last", 2)
    again, done = few.recover(check=False)
    teller = few.endpoints[2].name
    assert done.returncode == 1 and f"or ruled out ({teller})" in done.stderr and "--believe" in done.stderr
    assert not again.path.exists()
    assert few.found("--believe", teller)[0] == few.expected


def test_an_archive_of_few_endpoints_is_recovered_with_one_distrusted(place):
    few = Few(place, "copies:3", 3)
    again, done = few.recover("--force", "--distrust", few.endpoints[0].name)
    assert again.json("status")["files"] == 4
