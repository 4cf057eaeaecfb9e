"""Completions, in the shells themselves on a terminal of their own: verbs, actions, options and paths."""
import os
import pty
import re
import select
import shutil
import signal
import time

import lab
import pytest

MADE = lab.BUILD / "tools/complete"
COMMANDS = f"PATH={lab.BUILD}/tools:$PATH"


class Shell:
    """A shell on a terminal, as somebody types at it."""

    def __init__(self, words, setup, directory):
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.environ.update(TERM="dumb", PS1="ready$ ", HOME=str(directory), HISTFILE="", XDG_CONFIG_HOME=str(directory))
            os.execvp(words[0], words)
        self.seen = ""
        for line in setup:
            self.type(f"{line}\r")
        self.type("echo set''up\r")
        self.await_text("setup\r")

    def type(self, text):
        os.write(self.fd, text.encode())

    def await_text(self, text):
        """Until it is on the terminal; what comes later is another one's."""
        end = time.monotonic() + 30
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} was not completed: {self.seen!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07", "", os.read(self.fd, 65536).decode(errors="replace"))
        self.seen = self.seen.partition(text)[2]

    def completes(self, typed, text):
        """Typing it and Tab makes the text out of it; the line is then run as an argument of echo, which tells it."""
        self.type(f"{typed}\t")
        self.await_text(text)
        self.type("\x15")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def bash(directory):
    return Shell(["bash", "--norc", "--noprofile", "-i"], ["bind 'set enable-bracketed-paste off'", COMMANDS, f". {MADE}/ecfs"], directory)


def zsh(directory):
    return Shell(["zsh", "-f", "-i"], ["unsetopt zle_bracketed_paste; PROMPT='ready$ '", COMMANDS, f"fpath=({MADE} $fpath)",
                                       "autoload -Uz compinit; compinit -u -D"], directory)


@pytest.mark.parametrize("start", [bash, zsh])
@pytest.mark.slow
def test_a_shell_completes_verbs_actions_options_and_paths(start, tmp_path):
    (tmp_path / "archive-of-photos").mkdir()
    (tmp_path / "page-of-it.html").touch()
    shell = start(tmp_path)
    try:
        for typed, text in [("ecfs undel", "ecfs undelete"), ("ecfs endpoint dra", "endpoint drain"), ("ecfs status --expl", "--explain"),
                            ("ecfs endpoint drain --dry", "--dry-run"), ("ecfs status archive-o", "archive-of-photos"),
                            ("ecfs status --html page-o", "page-of-it.html"), ("ecfs-fsck --remote", "--remote-hash")]:
            shell.completes(typed, text)
    finally:
        shell.end()


def test_fish_completes_verbs_actions_options_and_paths(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    (tmp_path / "archive-of-photos").mkdir()
    for typed, text in [("ecfs undel", "undelete"), ("ecfs endpoint dra", "drain"), ("ecfs status --expl", "--explain"),
                        ("ecfs endpoint drain --dry", "--dry-run"), ("ecfs status archive-o", "archive-of-photos/"),
                        ("ecfs-fsck --remote", "--remote-hash")]:
        done = lab.run("fish", "--no-config", "-c", f"source {MADE}/ecfs.fish; complete -C '{typed}'", cwd=tmp_path,
                       env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
        assert text in [line.split("\t")[0] for line in done.stdout.splitlines()], (typed, done.stdout)


@pytest.mark.slow
def test_each_shell_knows_every_verb_and_option():
    """What --help tells is what was made of it, for all of them."""
    texts = {name: (MADE / name).read_text() for name in ["ecfs", "_ecfs", "ecfs.fish"]}
    verbs = re.findall(r"^  ([a-z]+) ", lab.ecfs("--help").stdout.partition("Verbs:\n")[2].partition("\n\n")[0], flags=re.M)
    assert len(verbs) > 30
    for verb in verbs:
        options = set(re.findall(r"^  (?:-\w, )?--([\w-]+)", lab.ecfs(verb, "--help").stdout, flags=re.M))
        (case,) = re.findall(rf"^    {verb}:\*?\)\n +options='([^']*)'", texts["ecfs"], flags=re.M)
        assert {word.removeprefix("--") for word in case.split() if word.startswith("--")} == options
        assert re.search(rf"^ +'{verb}:", texts["_ecfs"], flags=re.M)
        assert f"-a {verb} -d" in texts["ecfs.fish"]
        assert all(f"--{option}" in texts["_ecfs"] and f"-l {option} " in texts["ecfs.fish"] for option in options)


def test_they_are_installed_where_shells_look(tmp_path):
    lab.run("meson", "install", "-C", lab.BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path)
    found = {str(path.relative_to(tmp_path)).partition("/share/")[2] for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {"bash-completion/completions/ecfs", "bash-completion/completions/ecfs-fsck", "zsh/site-functions/_ecfs",
            "fish/vendor_completions.d/ecfs.fish", "ecfs/alerts.yml", "ecfs/grafana-dashboard.json"} <= found
