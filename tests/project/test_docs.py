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


def test_long_paragraphs_are_found():
    """The rule above can fail: for a paragraph, an item of a list and a cell, in both languages."""
    words = "word " * (MOST_WORDS + 1)
    for text in [words, f"- {words}", f"| a | {words} |", f"short\n\n{words}\n\nshort"]:
        assert len(too_long(markdown_paragraphs(text))) == 1
    for text in [f".Sh X\n{words}", f".Bl -tag\n.It x\n{words}\n.El", f"short\n.Pp\n{words}\n.Pp\nshort"]:
        assert len(too_long(page_paragraphs(text))) == 1
    assert not too_long(markdown_paragraphs(f"```\n{words}\n```\n")) and not too_long(page_paragraphs(f".Bd\n{words}\n.Ed"))
    assert not too_long(page_paragraphs(f".Sh X\n{'word ' * MOST_WORDS}\n.Pp\nmore"))


@pytest.mark.parametrize("path", MARKDOWN, ids=name)
def test_links_lead_to_files(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    missing = [target for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
               if not re.match(r"\w+:", target) and not (path.parent / target).exists()]
    assert not missing


def test_readme_lists_every_folder():
    listed = set(re.findall(r"^\| `(src/\w+)/` \|", (TOP / "README.md").read_text(), flags=re.M))
    assert listed == {f"src/{path.name}" for path in (TOP / "src").iterdir() if path.is_dir()}
