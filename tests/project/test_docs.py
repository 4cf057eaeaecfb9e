"""README, manuals and doc/ keep to their own rules: short paragraphs, links that lead somewhere, words that are explained."""
import re
from pathlib import Path

import lab
import pytest

TOP = lab.REPOSITORY
MARKDOWN = sorted([*TOP.glob("*.md"), *TOP.glob("doc/*.md")])
PAGES = sorted(TOP.glob("man/*.[1-8]"))
MOST_WORDS = 80
# Macros of mdoc(7) that begin a new paragraph, item or section.
BREAKS = re.compile(r"\.(?:Pp|Sh|Ss|It|Bl|El|Bd|Ed|D1|Dl|Nd|Dd|Dt|Os)\b")
DISPLAYS = re.compile(r"\.Bd\b.*?^\.Ed\b", re.M | re.S)


def name(path):
    return str(path.relative_to(TOP)) if isinstance(path, Path) else "none"


def markdown_paragraphs(text):
    """Paragraphs, items of lists, cells of tables; neither code nor headings."""
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.M | re.S)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        if block.lstrip().startswith("|"):
            yield from (cell for line in block.splitlines() for cell in line.split("|"))
        elif not block.startswith("#"):
            yield block


def page_paragraphs(text):
    """What a reader of a manual page sees as one paragraph or item; no displays, no macros."""
    paragraph = []
    for line in DISPLAYS.sub(".Pp", text).splitlines():
        begins = BREAKS.match(line)
        if begins:
            yield " ".join(paragraph)
            paragraph = []
        if line.startswith(".\\\""):
            continue
        words = line.split()
        if line.startswith("."):
            words = [] if begins else [word for word in words[1:] if not re.fullmatch(r"[A-Z][a-z0-9]|Ns|[.,;:()]", word)]
        paragraph += words
    yield " ".join(paragraph)


def too_long(paragraphs):
    return [f"{len(text.split())} words: {text.split()[:12]}" for text in paragraphs if len(text.split()) > MOST_WORDS]


@pytest.mark.parametrize("path", MARKDOWN, ids=name)
def test_paragraphs_of_documents_are_short(path):
    assert not too_long(markdown_paragraphs(path.read_text()))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_paragraphs_of_manual_pages_are_short(path):
    assert not too_long(page_paragraphs(path.read_text()))


def test_long_paragraphs_are_found():
    """The rule above can fail: for a paragraph, an item of a list and a cell, in both languages."""
    words = "word " * (MOST_WORDS + 1)
    for text in [words, f"- {words}", f"| a | {words} |", f"short\n\n{words}\n\nshort"]:
        assert len(too_long(markdown_paragraphs(text))) == 1
    for text in [f".Sh X\n{words}", f".Bl -tag\n.It x\n{words}\n.El", f"short\n.Pp\n{words}\n.Pp\nshort"]:
        assert len(too_long(page_paragraphs(text))) == 1
    assert not too_long(markdown_paragraphs(f"```\n{words}\n```\n")) and not too_long(page_paragraphs(f".Bd\n{words}\n.Ed"))
    assert not too_long(page_paragraphs(f".Sh X\n{'word ' * MOST_WORDS}\n.Pp\nmore"))


def leads_somewhere(path, target):
    """Whether there is such a file, with such a heading: #its-words-with-hyphens."""
    file, _, place = target.partition("#")
    found = path.parent / file if file else path
    if not found.exists() or not place:
        return found.exists()
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", found.read_text(), flags=re.M | re.S), flags=re.M)
    return place in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=name)
def test_links_lead_to_files(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", text) if not re.match(r"\w+:", target)]
    assert not [target for target in targets if not leads_somewhere(path, target)]


def test_readme_lists_every_folder():
    listed = set(re.findall(r"^\| `(src/\w+)/` \|", (TOP / "README.md").read_text(), flags=re.M))
    assert listed == {f"src/{path.name}" for path in (TOP / "src").iterdir() if path.is_dir()}


ARCHITECTURE = (TOP / "doc/architecture.md").read_text()
SOURCES = {path: path.read_text() for pattern in ["src/**/*.[ch]", "include/ecfs/*.h", "tools/**/*.[ch]"] for path in TOP.glob(pattern)}


def rooms():
    return sorted(str(path.relative_to(TOP)) for path in [*(TOP / "src").iterdir(), *(TOP / "src/endpoint").iterdir()]
                  if path.is_dir())


def test_architecture_names_every_room_and_no_other():
    assert set(re.findall(r"^\| `(src/[\w/]+)` \|", ARCHITECTURE, flags=re.M)) == set(rooms())


def test_architecture_names_functions_that_are_there():
    named = set(re.findall(r"`(\w+) \(\)`", ARCHITECTURE))
    assert len(named) > 30
    assert not named - {function for text in SOURCES.values() for function in re.findall(r"\b(\w+) \(", text)}


def test_architecture_names_files_that_are_there():
    """Whole paths, and names that stand for themselves, such as `staging/queue.c` behind a path in its folder."""
    known = {path.name for path in SOURCES}
    paths = set(re.findall(r"`((?:src|include|tools|tests|doc)/[\w./*-]*)`", ARCHITECTURE))
    assert not {path for path in paths if not (TOP / path).exists()}
    assert not {file for file in re.findall(r"`(\w+\.[ch])`", ARCHITECTURE) if file not in known}


def test_code_cites_decisions_that_are_there():
    decisions = {int(number) for number in re.findall(r"^(\d+)\. \*\*", ARCHITECTURE.partition("## Decisions")[2].partition("\n## ")[0], flags=re.M)}
    assert decisions == set(range(1, max(decisions) + 1))
    cited = {int(number) for text in SOURCES.values() for number in re.findall(r"\.md[\s*]+decision (\d+)", text)}
    assert cited and cited <= decisions


OVERVIEW = (TOP / "man/ecfs.1").read_text()
# What messages and the states of ecfs-status(1) call things; each is explained once, for users.
GLOSSARY = """archive directory, catalog, check block, claim, code, committed, crowded, degraded, descriptor, digest, distrusted, down,
    draining, endpoint, epoch, erased, forged, full, gone, guarantee, hedge, hint, instance, interrupted, journal, laggard,
    lineage, marker, object, old copy, orphan, packet, parity, quorum, recovery point, refusing, repair, scrub, segment,
    sequence, session, silent, snapshot, spare, spent, staged, staging, stripe, tolerance, trial, unconfigured, unreadable,
    unrecovered, zone"""


def test_glossary_explains_each_word_once():
    section = OVERVIEW.partition(".Ss Glossary\n")[2].partition(".Ss ")[0]
    explained = re.findall(r"^\.It (.+)$", section, flags=re.M)
    assert explained == sorted(explained) == re.split(r",\s+", GLOSSARY)
    assert all(re.search(rf"^\.It {word}\n\S", section, flags=re.M) for word in explained)


def test_glossary_has_the_states_of_endpoints():
    page = (TOP / "man/ecfs-status.1").read_text().partition("The states of endpoints:\n")[2].partition("\n.El")[0]
    states = set(re.findall(r"^\.It Li (\w+)$", page, flags=re.M))
    assert {"trial", "refusing", "silent"} <= states
    assert states - {"active", "readonly", "failed"} <= set(re.split(r",\s+", GLOSSARY))
