"""The key of an archive of which nobody has said how it is kept: endpoints share it, or init makes nothing and says why."""
import itertools
import json
import os
import re
import sys

import lab
import pytest
from keyed import lose_machine, recover, tree_of, typed
from test_key import seen_at

SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"
PASSPHRASE = "correct horse battery staple"
CHOICES = {"--key code": "code", "--key passphrase --alone": "alone", "--key file": None, "--key none": None}
# What cannot share a key: endpoints and their zones, the code, and what init says that it would take.
REFUSED = {"1+1": (["one", "two"], "rs:1+1", "that takes 3 zones"),
           "two zones": (["one,zone=x", "two,zone=x", "three,zone=y", "four,zone=y"], "rs:1+1", "that takes 3 zones"),
           "one zone": ([f"{name},zone=x" for name in lab.NAMES], "rs:4+2", "that takes more zones"),
           "three copies": (["one", "two", "three"], "copies:3", "that takes 5 zones"),
           "one copy": (["one", "two"], "copies:1", "survives no loss")}


@pytest.fixture
def archive(place):
    return place.archive(place.directories(), "rs:4+2", lab.AS_USERS)


def init(place, endpoints, code="rs:1+1"):
    """The command, over directories "name[,key=value]"."""
    parts = [text.partition(",") for text in endpoints]
    given = [f"{name}=file://{place.path}/{name}{comma}{keys}" for name, comma, keys in parts]
    return ["init", place.path / "archive", "--code", code, *[word for text in given for word in ("--endpoint", text)]]


def everything(place):
    return sorted(map(str, place.path.rglob("*")))


def key_of(path):
    """What ecfs key list says; None: there is no key."""
    done = lab.ecfs("key", "list", "--json", path, check=False)
    assert done.returncode == 0 or "has no key" in done.stderr, done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_endpoints_share_it_and_init_says_what_that_means(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    lines = [line for line in archive.init(lab.AS_USERS).stdout.splitlines() if re.search("key|recover", line)]
    assert len(lines) <= 4 and "Any 3 of the 6 endpoints bring it back" in lines[0], lines
    assert f"{archive.path}/key needs no backup" in lines[1] and "'ecfs recover'" in lines[2], lines
    found = key_of(archive.path)
    assert [slot["kind"] for slot in found["slots"]] == ["split"] and found["threshold"] == 3
    assert {endpoint["key_file"] for endpoint in found["endpoints"]} == {"stored"}
    assert (archive.path / "key").stat().st_mode & 0o777 == 0o600


def test_zones_share_it_where_endpoints_have_them(place):
    done = lab.ecfs(*init(place, ["one", "two", "three,zone=x", "four,zone=x"]), lab.AS_USERS)
    assert "Any 2 of the 3 zones bring it back" in done.stdout
    assert "all on disk" in done.stderr and "shares of them all" in done.stderr, "where it is made, zones can still be given"


@pytest.mark.slow
def test_another_machine_needs_nothing_but_what_endpoints_are_left(place, archive):
    before = lose_machine(place, archive)
    for endpoint in archive.endpoints[1:3]:
        endpoint.kill()
    home = place.path / "another home"
    home.mkdir()
    left = lab.Archive(archive.path, [archive.endpoints[0], *archive.endpoints[3:]])
    again, _ = recover(place, left, env={"PATH": os.environ["PATH"], "HOME": str(home)})
    lab.assert_same_tree(before, tree_of(place, again))
    assert key_of(again.path)["threshold"] == 3


@pytest.mark.slow
def test_fewer_endpoints_than_bring_it_back_open_nothing(place, archive):
    lose_machine(place, archive)
    assert seen_at(archive.endpoints) == set()
    for two in itertools.combinations(archive.endpoints, 2):
        again, refused = recover(place, lab.Archive(archive.path, two), check=False)
        assert refused.returncode == 1 and "too few of the endpoints" in refused.stderr, refused.stderr
        assert not again.path.exists()
    out = place.path / "salvaged"
    for two in itertools.islice(itertools.combinations(archive.endpoints, 2), 0, None, 5):
        lab.run(sys.executable, SALVAGE, "--to", out, *[endpoint.root for endpoint in two], check=False)
        files = lab.files_below(out)
        assert not [path for path in files if b"planted" in bytes(path) or b"planted" in path.read_bytes()]
    three = lab.Archive(archive.path, archive.endpoints[:3])
    _, refused = recover(place, three, "--dry-run", check=False)
    assert "too few of the endpoints" not in refused.stderr, "as many as bring it back do"


@pytest.mark.parametrize("case", REFUSED)
def test_where_it_cannot_be_shared_nothing_is_made_and_there_is_a_choice(place, case):
    endpoints, code, takes = REFUSED[case]
    before = everything(place)
    refused = lab.ecfs(*init(place, endpoints, code), lab.AS_USERS, check=False)
    assert refused.returncode == 2 and "cannot be shared" in refused.stderr and takes in refused.stderr, refused.stderr
    assert len(refused.stderr.splitlines()) == 2 and all(choice in refused.stderr for choice in CHOICES)
    assert everything(place) == before
    (place.path / "archive").mkdir(mode=0o700)
    before = everything(place)
    assert lab.ecfs(*init(place, endpoints, code), lab.AS_USERS, check=False).returncode == 2
    assert everything(place) == before, "an empty directory stays, and stays empty"


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.slow
def test_what_it_offers_works(place, choice):
    words = choice.split()
    if "passphrase" in words:
        (place.path / "passphrase").write_text(PASSPHRASE)
        (place.path / "passphrase").chmod(0o600)
        words += ["--passphrase-file", place.path / "passphrase"]
    lab.ecfs(*init(place, ["one", "two"]), *words)
    assert_kept(place, choice)


def assert_kept(place, choice):
    found = key_of(place.path / "archive")
    assert (place.path / "archive/key").exists() == (choice != "--key none") == (found is not None)
    assert [slot["kind"] for slot in (found or {}).get("slots", [])] == ([CHOICES[choice]] if CHOICES[choice] else [])


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.slow
def test_at_a_terminal_it_asks(place, choice):
    before = everything(place)
    command = [lab.PROGRAM, *init(place, ["one", "two"])]
    for answer in ("", "perhaps"):
        said, status = typed(place, command, [answer], os.environ)
        assert status == 2 and "How is the key to be kept?" in said and "nothing was made" in said, said
        assert everything(place) == before
    said, status = typed(place, command, [choice.split()[1], PASSPHRASE, PASSPHRASE], os.environ)
    assert status == 0 and PASSPHRASE not in said, said
    assert_kept(place, choice)


def test_who_has_said_it_is_not_asked(place):
    for key in ("split", "passphrase"):
        (place.path / "passphrase").write_text(PASSPHRASE)
        (place.path / "passphrase").chmod(0o600)
        words = ["--passphrase-file", place.path / "passphrase"] if key == "passphrase" else []
        said, status = typed(place, [lab.PROGRAM, *init(place, ["one", "two"]), "--key", key, *words], [], os.environ)
        assert status == 2 and "How is" not in said and "cannot be shared" in said, said
    assert not (place.path / "archive").exists()


@pytest.mark.slow
def test_a_code_by_which_more_could_read_is_refused_wherever_it_is_named(place, archive):
    (place.path / "file").write_text("content")
    archive.put(place.path / "file", "/file")
    before = archive.json("info", "/file")
    refused = {"recode": ["recode", archive.path, "/file", "--code", "rs:3+3"],
               "put": ["put", archive.path, place.path / "file", "/other", "--code", "rs:3+3"]}
    for verb, words in refused.items():
        done = lab.ecfs(*words, check=False)
        assert done.returncode != 0 and "choose one that survives fewer losses" in done.stderr, (verb, done.stderr)
    assert archive.json("info", "/file") == before and "other" not in lab.ecfs("ls", archive.path, "/").stdout
    mount = place.mount(archive)
    with pytest.raises(OSError):
        os.setxattr(mount.path, "user.ecfs.code", b"rs:3+3")
    mount.umount()


def test_plan_says_which_codes_take_more_zones(place):
    done = lab.ecfs("plan", "--code", "rs:4+2,copies:2,copies:3")
    assert "copies:2 (3), copies:3 (5)" in done.stdout
    assert "With these codes" not in lab.ecfs("plan", "--code", "rs:4+2,rs:8+3").stdout


@pytest.mark.slow
def test_what_the_readme_tells_to_type_works(place):
    """Five minutes with six SSH accounts; then the machine goes, and two accounts with it."""
    readme = (lab.REPOSITORY / "README.md").read_text()
    script = re.search(r"^ecfs init ~/archive.*?^```", readme, flags=re.M | re.S)[0].removesuffix("```")
    servers = {name: place.sshd(name) for name in "abcdef"}
    for name, server in servers.items():
        script = script.replace(f"{name}=sftp://me@{name}.example.org/~/ecfs", server.endpoint())
    assert "example.org" not in script and "--key" not in script
    home = place.path / "home"
    (home / "photos").mkdir(parents=True)
    digest = lab.write_pattern(home / "photos/1.jpeg", 3 << 20)
    environment = os.environ | {"HOME": str(home), "PATH": f"{lab.BUILD}/tools:{os.environ['PATH']}"}
    try:
        done = lab.run("bash", "-euc", script, env=environment)
    finally:
        lab.detach(home / "mnt")
    assert "full 6/6, guarantee 2" in done.stdout and "Any 3 of the 6 endpoints" in done.stdout, done.stdout
    lab.run("rm", "-r", home / "archive")
    for name in "be":
        servers[name].kill()
    left = [word for name in "acdf" for word in ("--endpoint", servers[name].endpoint())]
    lab.run(lab.PROGRAM, "recover", home / "archive", "--force", *left, env=environment)
    lab.ecfs("get", home / "archive", "/photos/1.jpeg", place.path / "got.jpeg")
    assert lab.digest(place.path / "got.jpeg") == digest
