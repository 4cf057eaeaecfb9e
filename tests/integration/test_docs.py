"""Manual pages and --help tell the same options, and ecfs.conf(5) tells every key that is taken."""
import re

import lab
import pytest

MAN = lab.REPOSITORY / "man"
PROGRAMS = {"salvage"}  # pages of their own, and no verbs
WITH_ACTIONS = {"catalog", "endpoint", "key", "swarm"}
VERBS = sorted({path.name[len("ecfs-"):-len(".1")] for path in MAN.glob("ecfs-*.1")} - PROGRAMS - WITH_ACTIONS)


def help_options(*verb):
    """Long and short options that --help tells."""
    return told_options(lab.ecfs(*verb, "--help").stdout)


def told_options(text):
    options = set()
    for line in text.splitlines():
        found = re.match(r"\s+(?:-(\w), )?--([\w-]+)", line)
        if found:
            options |= {word for word in found.groups() if word}
    return options


def page_options(page):
    """Options that a page has items for: ".It Fl c , Fl -code Ar code"."""
    options = set()
    for line in (MAN / page).read_text().splitlines():
        if line.startswith(".It Fl "):
            options |= {word.removeprefix("-") for word in re.findall(r"Fl (\S+)", line)}
    return options


def page_keys(title):
    """Keys that ecfs.conf(5) has items for, in sections whose title begins with this."""
    sections = re.split(r"^\.Ss ", (MAN / "ecfs.conf.5").read_text(), flags=re.M)
    keys = set()
    for section in sections[1:]:
        if section.startswith(title):
            for item in re.findall(r"^\.It Cm (\w+(?: , \w+)*)", section, flags=re.M):
                keys |= set(item.split(" , "))
    return keys


@pytest.mark.parametrize("verb", VERBS)
def test_page_and_help_of_a_verb_tell_the_same_options(verb):
    assert help_options(verb) == page_options(f"ecfs-{verb}.1")


def test_every_verb_has_a_page():
    told = lab.ecfs("--help").stdout.partition("Verbs:\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^  (\w+) ", told, flags=re.M)) == {*VERBS, *WITH_ACTIONS, "fsck"}


@pytest.mark.parametrize("verb", sorted(WITH_ACTIONS))
def test_page_and_help_of_a_verb_with_actions_tell_the_same_options(verb):
    actions = re.search(rf"ecfs {verb} \[OPTION...\] ([\w|]+) ", lab.ecfs(verb, "--help").stdout).group(1).split("|")
    assert len(actions) > 1
    helped = set().union(*(help_options(verb, action) for action in actions))
    assert helped == page_options(f"ecfs-{verb}.1")


def test_page_and_help_of_the_helpers_of_mount_tell_the_same_options(tmp_path):
    helped = set()
    for name in ["mount.ecfs", "umount.ecfs"]:
        (tmp_path / name).symlink_to(lab.BUILD / "tools/ecfs")
        helped |= told_options(lab.run(tmp_path / name, "--help").stdout)
    assert helped == page_options("mount.ecfs.8")


def test_page_and_help_of_fsck_tell_the_same_options():
    assert told_options(lab.run(lab.BUILD / "tools/ecfs-fsck", "--help").stdout) == page_options("ecfs-fsck.8")
    assert lab.ecfs("fsck", "--help").stdout == lab.run(lab.BUILD / "tools/ecfs-fsck", "--help").stdout
    assert ".It Cm fsck\n" in (MAN / "ecfs.1").read_text()
    assert "'ecfs-fsck.8'" in (MAN / "meson.build").read_text()
    assert ".Xr ecfs-fsck 8" in (MAN / "ecfs.1").read_text()


@pytest.mark.parametrize("verb", [*VERBS, *sorted(WITH_ACTIONS)])
def test_overview_and_page_know_every_verb(verb):
    assert f".Xr ecfs-{verb} 1" in (MAN / "ecfs.1").read_text()
    assert f".It Cm {verb}\n" in (MAN / "ecfs.1").read_text()
    assert re.search(rf"^  {verb} ", lab.ecfs("--help").stdout, flags=re.M)
    assert f"'ecfs-{verb}.1'" in (MAN / "meson.build").read_text()


def test_keys_of_the_archive_are_those_of_the_manual(archive):
    section = (archive.path / "ecfs.conf").read_text().partition("[archive]")[2].partition("[endpoint")[0]
    written = dict(re.findall(r"^(\w+) = (.*)$", section, flags=re.M))
    assert written.keys() == page_keys("The section")
    page = (MAN / "ecfs.conf.5").read_text()
    for key, value in written.items():
        told = re.search(rf"^\.It Cm {key}\n.*?Default:\n\.Li (\S+) \.", page, flags=re.M | re.S).group(1)
        assert told == value, f"the default of {key}"


def test_keys_of_endpoints_are_those_of_the_manual(archive):
    known, told = {"url"}, page_keys("Sections")
    built, absent = lab.schemes()
    for scheme in built:
        url = f"{scheme}://{'' if scheme == 'file' else 'host.example.org'}/srv/x"
        done = lab.ecfs("init", archive.path.parent / "new", "--endpoint", f"x={url},no_such_key=1", check=False)
        assert done.returncode == 2
        known |= set(re.search(r"this URL takes (.*)", done.stderr).group(1).split(", "))
    assert known <= told
    assert absent or known == told


def test_schemes_of_endpoints_are_those_of_the_manual_and_of_readme():
    known = set(sum(lab.schemes(), []))
    items = re.findall(r"^\.It Li (.*://.*)$", (MAN / "ecfs.conf.5").read_text(), flags=re.M)
    assert {scheme for item in items for scheme in re.findall(r"(\w+)://", item)} == known
    readme = (lab.REPOSITORY / "README.md").read_text().partition("- **Protocols**")[2].partition("\n- ")[0]
    assert set(re.findall(r"`(\w+)://`", readme)) == known


@pytest.mark.parametrize("words", [("put",), ("endpoint",), ("endpoint", "drain")])
def test_help_of_a_verb_is_what_its_option_prints(words):
    assert lab.ecfs("help", *words).stdout == lab.ecfs(*words, "--help").stdout


def test_a_slip_of_the_hand_gets_the_verb_that_was_meant():
    for wrong, meant in [(["stauts"], "ecfs status"), (["unmount"], "ecfs umount"), (["help", "recovr"], "ecfs recover"),
                         (["fcsk"], "ecfs fsck"), (["endpoint", "drian"], "ecfs endpoint drain")]:
        done = lab.ecfs(*wrong, check=False)
        assert done.returncode == 2 and f'"{meant}"' in done.stderr and len(done.stderr.splitlines()) == 2
    done = lab.ecfs("xyzzy-plugh", check=False)
    assert done.returncode == 2 and "Did you mean" not in done.stderr and "--help" in done.stderr


@pytest.mark.slow
def test_every_program_and_verb_tells_the_version(tmp_path):
    version = lab.ecfs("--version").stdout.split()[1]
    programs = [[lab.PROGRAM, verb] for verb in [*VERBS, "fsck"]] + [[lab.PROGRAM, "endpoint", "add"]]
    for name in ["mount.ecfs", "umount.ecfs"]:
        (tmp_path / name).symlink_to(lab.BUILD / "tools/ecfs")
        programs.append([tmp_path / name])
    for program in [*programs, [lab.BUILD / "tools/ecfs-fsck"]]:
        assert version in lab.run(*program, "--version").stdout.split()


@pytest.mark.parametrize("page", sorted(path.name for path in MAN.glob("*.[158]")))
def test_page_shows_what_was_meant(page):
    """No escape sequence that eats its neighbours, and quotes that are closed where they are opened."""
    source = (MAN / page).read_text()
    assert not re.search(r"(?<!\\)\\[ngkvwz](?![(\[])", source), "an escape sequence of roff where one of the shell was meant"
    assert not re.search(r"^\.(?:Pq |Po )?[DQ]q .* [DQ]q ", source, flags=re.M), "quotes that end with the line, not the word"
