"""Commands in the pages of doc/ that a reader types in order: each runs, and what a page shows of its output comes.

A page's shell blocks run in their order, each in a shell of its own that begins in the source tree, with a home directory
that the pages share. A block of
text behind one is what the page promises: its lines, in order, where "..." stands for anything. sftp://me@X.example.org/~/
is a real sshd with a directory of its own. A block behind a line that begins with "*Not run by the tests" is not run.
"""
import os
import re
import subprocess

import lab
import pytest

PAGES = ["codes", "first-steps", "losing", "operations", "history", "many-machines"]
NOT_RUN = "*Not run by the tests"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
# What only looks may say it a moment later, as when a mount has yet to notice that an account is gone.
LOOKS = re.compile(r"ecfs (status|info|drill|ls|log) ")
# ecfs-fsck exits with 1 where it repaired something.
PRELUDE = 'set -e -o pipefail\necfs-fsck() { command ecfs-fsck "$@" || [ $? = 1 ]; }\n'


def blocks(text):
    """(commands, promised text or None) of each block that is to be run."""
    found = list(BLOCK.finditer(text))
    for i, block in enumerate(found):
        before = text[:block.start()].rstrip().rpartition("\n\n")[2]
        if block[1] != "sh" or before.startswith(NOT_RUN):
            continue
        after = found[i + 1] if i + 1 < len(found) else None
        promised = after and after[1] == "text" and not text[block.end():after.start()].strip()
        yield block[2], after[2] if promised else None


def promised_by(text):
    """A pattern of promised output: a line of its own for each line, "..." within one, and any lines for "..." alone."""
    lines = [r"(?:.*\n)*?" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n"
             for line in text.splitlines()]
    return re.compile("".join(lines))


class Reader:
    """Somebody with a home directory who types what the pages say."""

    def __init__(self, place):
        self.place = place
        self.home = place.path / "home"
        self.home.mkdir()
        self.servers, self.done = {}, []

    def account(self, found):
        """The words for ecfs of an account that a page names, and its server."""
        name = found[1]
        if name not in self.servers:
            self.servers[name] = self.place.sshd(name)
            self.servers[name].root.mkdir()
        server = self.servers[name]
        return server.endpoint(server.root / found[2]).partition("=")[2]

    def shell(self, commands):
        """Its standard output and error; in files, as a mount that stays would hold a pipe open."""
        commands = re.sub(r"sftp://me@(\w+)\.example\.org/~/(\w*)", self.account, commands)
        out, err = self.home.parent / "out", self.home.parent / "err"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            done = subprocess.run(["bash", "-c", PRELUDE + commands], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, timeout=300,
                                  cwd=lab.REPOSITORY, env={**os.environ, "HOME": str(self.home), "TZ": "UTC", "LC_ALL": "C.UTF-8",
                                                      "PATH": f"{lab.BUILD / 'tools'}:{os.environ['PATH']}"})
        assert done.returncode == 0, f"exit {done.returncode} of\n{commands}\n{out.read_text()}{err.read_text()}"
        return out.read_text()

    def follow(self, commands, promised):
        if promised is None:
            self.shell(commands)
            return
        seen = []

        def fits():
            seen.append(self.shell(commands))
            return promised_by(promised).search(seen[-1])
        try:
            lab.until(fits, 60 if LOOKS.match(commands) else 0, "what the page shows", pause=0.5)
        except AssertionError:
            raise AssertionError(f"{commands}\nsays\n{seen[-1]}\nand not\n{promised}") from None

    def read(self, page):
        """This page, after those before it."""
        for name in PAGES[:PAGES.index(page) + 1]:
            if name not in self.done:
                self.done.append(name)
                for commands, promised in blocks((lab.REPOSITORY / f"doc/{name}.md").read_text()):
                    self.follow(commands, promised)


@pytest.fixture(scope="module")
def reader(module_place):
    made = Reader(module_place)
    yield made
    for name in ["practice/mnt", "mnt", "then", "reader-mnt", "second-mnt"]:
        lab.detach(made.home / name)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.slow
def test_commands_of_a_page_do_what_it_says(reader, page):
    reader.read(page)


def test_promises_of_pages_can_be_broken():
    """Lines in their order, and dots for the rest."""
    assert promised_by("a ... b\n...\nc\n").search("first\na 1 b\nx\ny\nc\n")
    for printed in ["a 1 b\n", "c\na 1 b\n", "a 1\n b\nc\n"]:
        assert not promised_by("a ... b\n...\nc\n").search(printed)


def test_blocks_that_are_not_run_are_marked_for_readers():
    text = f"```sh\none\n```\n\n```text\n1\n```\n\n{NOT_RUN}: no account.*\n\n```sh\ntwo\n```\n\n```ini\nthree\n```\n\n```sh\nfour\n```\n"
    assert list(blocks(text)) == [("one\n", "1\n"), ("four\n", None)]
    assert all(len(list(blocks((lab.REPOSITORY / f"doc/{page}.md").read_text()))) > 1 for page in PAGES)
