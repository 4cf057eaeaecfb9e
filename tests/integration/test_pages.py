"""Pages of `ecfs status --html`: valid HTML that needs nothing else, whatever names say, and small however many files."""
import contextlib
import json
import re

import lab
import pytest
from test_readrepair import stripes

MIB, KIB = 1 << 20, 1 << 10
MOST_BYTES = 300 * KIB
EVIL = "<script>alert(1)<b>&\"'\x01\u202e.txt"


class Page:
    """A page as a browser reads it."""

    def __init__(self, path):
        html5lib = pytest.importorskip("html5lib", reason="python3-html5lib is not installed")
        self.size = path.stat().st_size
        parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
        self.root = parser.parse(path.read_text())
        self.elements = list(self.root.iter())
        self.text = re.sub(r"\s+", " ", "".join(self.root.find("body").itertext()))

    def tags(self):
        return {str(element.tag).rpartition("}")[2] for element in self.elements}

    def check(self):
        """It needs nothing else, runs nothing and is no larger than it may be."""
        assert self.size < MOST_BYTES
        assert not self.tags() & {"script", "link", "img", "iframe", "object", "embed", "form", "a", "image", "use", "foreignObject"}
        for element in self.elements:
            for name, value in element.attrib.items():
                assert not str(name).lower().startswith("on") and "href" not in str(name).lower() and name != "src"
                assert "url(" not in value and "javascript:" not in value.lower()
        style = "".join(element.text or "" for element in self.elements if element.tag == "style")
        assert "url(" not in style and "@import" not in style
        assert "prefers-color-scheme:dark" in style and "@media print" in style and "max-width:40rem" in style


def page(place, *words, check=True):
    path = place.path / "page.html"
    path.unlink(missing_ok=True)
    done = lab.ecfs(*words, "--html", path, check=check)
    assert done.stdout == ""
    assert path.stat().st_mode & 0o777 == 0o600, "it names files and accounts"
    made = Page(path)
    made.check()
    return made


@pytest.fixture
def filled(place, archive):
    lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    return archive


def test_a_healthy_archive(place, filled):
    made = page(place, "status", filled.path)
    for words in ["HEALTHY", "all 6 endpoints answer", "may vanish now2 endpoints", "any two may vanish", "1 file", str(filled.path),
                  "None of the 6 endpoints is worse"]:
        assert words in made.text, words


@pytest.mark.slow
def test_a_stranger_sees_the_worst_account_what_may_be_lost_since_when_and_what_to_type(place, filled):
    mount = place.mount(filled)
    filled["birch"].kill()
    lab.until(lambda: filled.json("status")["verdict"] == "degraded", 120, "it is down")
    facts = filled.json("status")
    made = page(place, "status", filled.path)
    assert re.search(r"The worst is birch: down since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(", made.text)
    assert "Any one of the endpoints that answer may vanish. 10 of 10 pairs may not." in made.text
    assert "Without amber and cedar, 1 object could not be read." in made.text
    assert "any 1 more endpoint may vanish" in made.text and facts["action"] in made.text
    rows = [element for element in made.elements if element.tag == "tr" and "birch" in "".join(element.itertext())]
    body = next(element for element in made.elements if element.tag == "tbody")
    assert rows and list(body)[0] is rows[0], "the worst is first"
    mount.umount()


@pytest.mark.slow
def test_all_sets_count_that_may_not_vanish(place):
    archive = place.archive(place.directories([f"account-{i}" for i in range(26)]), "rs:25+1")
    lab.write_pattern(place.path / "source", 3 * MIB, 1)
    archive.put_in_full(place.path / "source", "/file")
    made = page(place, "status", archive.path)
    assert "325 of 325 pairs may not." in made.text
    assert made.text.count("could not be read.") == 12 and "And 313 more sets." in made.text


def test_pages_of_files_that_cannot_be_read_and_of_a_broken_archive(place, filled):
    for name in ["amber", "birch", "cedar"]:
        filled[name].kill()
    made = page(place, "status", filled.path)
    assert "UNREADABLE" in made.text and "too much is lost" in made.text and "cannot be read now" in made.text
    for name in ["delta", "ember", "fjord"]:
        filled[name].kill()
    made = page(place, "status", filled.path)
    assert "No endpoint answers." in made.text and "stays readable" not in made.text
    (filled.path / "catalog.sqlite").write_bytes(b"x" * 8192)
    for tail in ["-wal", "-shm"]:
        (filled.path / f"catalog.sqlite{tail}").unlink(missing_ok=True)
    made = page(place, "status", filled.path, check=False)
    assert "BROKEN" in made.text and "ecfs recover" in made.text


@pytest.mark.slow
def test_hostile_names_are_text(place):
    directory = place.path / "<script>alert(2)<b>"
    directory.mkdir()
    archive = lab.Archive(directory / "archive", place.directories())
    archive.init()
    mount = place.mount(archive)
    (mount.path / EVIL).write_bytes(b"x" * MIB)
    archive.await_stored()
    mount.umount()
    archive.configure("archive", repair="off")
    stripe, _ = stripes(archive, EVIL)[0]
    stripe.unlink()
    mount.start()
    for _ in range(20):
        lab.forget_mounts()
        assert (mount.path / EVIL).read_bytes() == b"x" * MIB
        with contextlib.suppress(AssertionError):
            lab.until(lambda: archive.json("status")["repairs"]["queued"] == 1, 3, "it was met")
            break
    made = page(place, "status", archive.path)
    assert "/<script>alert(1)<b>&\"'?" in made.text and "<script>alert(2)<b>" in made.text
    mount.umount()


def test_page_of_a_drill(place, filled):
    made = page(place, "drill", filled.path)
    assert "NOTHING WOULD BE LOST" in made.text and ("It comes back" in made.text) == lab.all_keyed.is_on
    filled.configure("archive", repair="off")
    lab.ecfs("drill", filled.path, "--without", "amber,birch", "--sample", "100%", "--html", place.path / "read.html")
    read = Page(place.path / "read.html")
    read.check()
    assert "Read as if these had vanished: amber, birch" in read.text and "1 were read: 0 could not be" in read.text
    failed = lab.ecfs("drill", filled.path, "--without", "amber,birch,cedar", "--sample", "100%", "--html", place.path / "read.html",
                      check=False)
    read = Page(place.path / "read.html")
    read.check()
    assert failed.returncode == 1 and "SOMETHING WOULD BE LOST" in read.text and "/file" in read.text


def test_page_of_a_plan(place):
    made = page(place, "plan", "--k", "4", "--m", "2")
    for row in json.loads(lab.ecfs("plan", "--k", "4", "--m", "2", "--json").stdout)["codes"]:
        assert row["code"] in made.text and f"{row['failure']:.2e}" in made.text


@pytest.mark.parametrize("words", [["years", "--codes", "rs:8+4", "--variants", "100M"], ["stalled", "--repeat", "1"]])
@pytest.mark.slow
def test_page_of_a_simulation(place, words):
    scenario = lab.REPOSITORY / f"scenarios/{words[0]}.scenario"
    made = page(place, "sim", scenario, *words[1:])
    row = lab.ecfs("sim", scenario, *words[1:]).stdout.split("\n\n")[1].splitlines()[1]
    assert all(word in made.text for word in row.split())
