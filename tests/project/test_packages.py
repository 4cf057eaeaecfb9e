"""debian/ fits the tree: each installed file is in one package, and versions and packages agree with those told elsewhere."""
import fnmatch
import json
import re

import lab
import pytest

TOP = lab.REPOSITORY
DEBIAN = TOP / "debian"
# Packages that are always there where something is built, and those that only running ecfs needs.
ESSENTIAL = {"gcc", "libc6-dev"}
TO_RUN = {"ca-certificates", "fuse3", "openssh-client", "attr"}


def relations(text, field):
    """Names of packages in a field of debian/control."""
    found = re.search(rf"^{field}:(.*(?:\n .*)*)", text, flags=re.M)
    return {re.split(r"[ :(]", item.strip())[0] for item in found.group(1).split(",") if item.strip()}


def stanzas():
    source, *packages = (DEBIAN / "control").read_text().split("\n\n")
    return source, {re.match(r"Package: (.*)", text).group(1): text for text in packages}


def installed():
    """Where this build installs files, as a package does: below usr/."""
    options = {option["name"]: option["value"]
               for option in json.loads((lab.BUILD / "meson-info/intro-buildoptions.json").read_text())}
    for path in json.loads((lab.BUILD / "meson-info/intro-installed.json").read_text()).values():
        path = re.sub(rf"^({options['prefix']}|(?=/sbin/))", "usr", path).lstrip("/")
        # Without dpkg-dev meson knows no other directory for libraries; a package is not built without.
        yield re.sub(r"^usr/lib64/", "usr/lib/any/", path)


def patterns():
    """(package, pattern) for each line of debian/*.install."""
    for path in sorted(DEBIAN.glob("*.install")):
        for line in path.read_text().splitlines():
            yield path.stem, line.split()[0]


def holds(pattern, path):
    """Whether dh_install takes the file for this line: it names the file, or a directory above it."""
    words, names = pattern.split("/"), path.split("/")
    return len(words) <= len(names) and all(fnmatch.fnmatchcase(name, word) for name, word in zip(names, words))


@pytest.mark.parametrize("path", sorted(installed()))
def test_each_installed_file_is_in_one_package(path):
    assert len({package for package, pattern in patterns() if holds(pattern, path)}) == 1


def test_each_line_of_a_package_is_about_something():
    absent = {"usr/share/doc/ecfs/html"}  # with -Dhtml=true
    if lab.schemes()[1]:
        absent.add("usr/libexec/ecfs/ecfs-gridftp-helper")
    if not (lab.BUILD / "tools/ecfs-locate").exists():
        absent.add("usr/libexec/ecfs/ecfs-locate")
    assert {pattern for _, pattern in patterns() if not any(holds(pattern, path) for path in installed())} <= absent


def test_versions_agree():
    version = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text()).group(1)
    assert re.match(r"ecfs \(([^-]+)-1~upstream\d+\) ", (DEBIAN / "changelog").read_text()).group(1) == version
    assert re.search(r"^## ([\d.]+)", (TOP / "CHANGELOG.md").read_text(), flags=re.M).group(1) == version


def test_builds_need_the_same_packages():
    listed = {words[1] for words in map(str.split, (TOP / "tools/packages").read_text().splitlines()) if words[:1] == ["build"]}
    source, packages = stanzas()
    assert relations(source, "Build-Depends") - {"debhelper-compat", "dh-sequence-python3", "python3"} == listed - ESSENTIAL - TO_RUN
    assert TO_RUN <= relations(packages["ecfs"], "Depends") | relations(packages["ecfs"], "Recommends")


def test_packages_that_are_named_exist():
    _, packages = stanzas()
    named = {path.name.split(".")[0] for path in DEBIAN.iterdir() if path.is_file()} - {"changelog", "control", "copyright", "rules"}
    assert named <= packages.keys()


def test_no_script_of_a_package_removes_or_mounts():
    """Whatever is installed, upgraded, removed or purged: archives are left alone, and there is nothing else to remove."""
    scripts = [path for path in DEBIAN.iterdir() if re.search(r"\.(pre|post)(inst|rm)$", path.name)]
    assert {path.name for path in scripts} == {"ecfs.postinst", "ecfs.prerm"}
    for path in scripts:
        lab.run("sh", "-n", path)
        commands = re.sub(r'echo ".*"|^#.*', "", path.read_text(), flags=re.M)
        assert not re.search(r"\b(rm|mv|find|unlink|umount|fusermount3?|kill)\b", commands)


def test_quick_tests_start_no_server():
    """Packages are built where there are none: what conforms to a protocol is in the suite that they leave out."""
    tests = json.loads((lab.BUILD / "meson-info/intro-tests.json").read_text())
    conformance = [test for test in tests if "conformance" in test["name"]]
    assert len(conformance) > 3 and all("ecfs:servers" in test["suite"] for test in conformance)


@pytest.mark.parametrize("name", ["quickstart", "programs"])
def test_script_of_autopkgtest_parses(name):
    assert f"Tests: {name}\n" in (DEBIAN / "tests/control").read_text()
    lab.run("sh", "-n", DEBIAN / "tests" / name)
