"""tools/site makes a site of README.md, doc/ and the manual, in which every link leads somewhere and nothing is fetched from afar."""
import html.parser
import shutil
import subprocess
import urllib.parse

import lab
import pytest

TOP = lab.REPOSITORY
NEEDED = ["sphinx", "myst_parser", "furo"]


def missing():
    """What tools/site needs and is not here; it takes the system's Python."""
    asked = f"import importlib.util as u; print(*[n for n in {NEEDED} if not u.find_spec(n)])"
    absent = subprocess.run(["/usr/bin/python3", "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    return absent + ([] if shutil.which("mandoc") else ["mandoc"])


class Page(html.parser.HTMLParser):
    """Where a page leads to, what it shows and loads, and the places in it that links may name."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.places, self.titles = [], [], set(), 0
        self.feed(text)

    def handle_starttag(self, tag, pairs):
        values = dict(pairs)
        self.places |= {values[key] for key in ("id", "name") if values.get(key)}
        self.titles += tag == "h1"
        for key in ("href", "src"):
            if values.get(key):
                (self.links if tag == "a" else self.loaded).append(values[key])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if absent := missing():
        pytest.skip(f"no {', '.join(absent)}: tools/install-packages site")
    directory = tmp_path_factory.mktemp("site") / "site"
    lab.run(TOP / "tools/site", directory, timeout=300)
    return {path.relative_to(directory).as_posix(): Page(path.read_text()) for path in directory.rglob("*.html")}, directory


def dead(pages, directory):
    """Links within the site that lead nowhere, as (page, link)."""
    found = []
    for name, page in pages.items():
        for link in page.links + page.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (directory / name).parent / urllib.parse.unquote(parts.path) if parts.path else directory / name
            inside = target.resolve().relative_to(directory.resolve()).as_posix() if target.exists() else None
            place = urllib.parse.unquote(parts.fragment)
            if inside is None or place and inside in pages and place not in pages[inside].places:
                found.append((name, link))
    return found


def test_links_within_the_site_lead_somewhere(site):
    pages, directory = site
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert not dead(pages, directory)


def test_dead_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="x">A</h1><a href="a.html#x">1</a><a href="#y">2</a><a href="b.html">3</a><img src="c.svg">')
    pages = {"a.html": Page((tmp_path / "a.html").read_text())}
    assert dead(pages, tmp_path) == [("a.html", "#y"), ("a.html", "b.html"), ("a.html", "c.svg")]


def test_every_page_of_the_tree_is_there(site):
    pages, _ = site
    assert {f"doc/{path.stem}.html" for path in TOP.glob("doc/*.md")} | {"README.html", "CHANGELOG.html", "index.html"} <= pages.keys()
    assert {f"manual/{path.name}.html" for path in TOP.glob("man/*.[1-8]")} <= pages.keys()


def test_pages_are_reached_from_the_first(site):
    pages, directory = site
    reached, left = set(), ["doc/index.html"]
    while left:
        name = left.pop()
        if name in reached or name not in pages:
            continue
        reached.add(name)
        for link in pages[name].links:
            target = (directory / name).parent / urllib.parse.urlsplit(link).path
            if link[0] != "#" and target.exists():
                left.append(target.resolve().relative_to(directory.resolve()).as_posix())
    assert {name for name in pages if name.startswith(("doc/", "manual/"))} <= reached


def test_the_manual_is_linked_where_it_is_named(site):
    pages, _ = site
    assert "../manual/ecfs-undelete.1.html" in pages["doc/history.html"].links
    assert "manual/ecfs-format.5.html" in pages["README.html"].links


def test_nothing_is_fetched_from_afar(site):
    pages, _ = site
    afar = {link for page in pages.values() for link in page.loaded if urllib.parse.urlsplit(link).netloc}
    assert not afar


def test_another_directory_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    done = lab.run(TOP / "tools/site", tmp_path, check=False)
    assert done.returncode == 1 and "something else" in done.stderr and (tmp_path / "mine").exists()
