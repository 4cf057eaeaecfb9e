"""An archive with a key whose code does without two of seven endpoints: two lie at once, and know the format perfectly. No
wrong byte is read, nothing of the others is deleted, nothing stops, and both are named."""
import os
import random
import re
import shutil
import struct
import sys

import lab
import pytest
from forge import xxh3_64, xxh3_128

LIARS = ["birch", "delta"]
STRIPE, JOURNAL = b"\x89ECFS\r\n\x1a", b"\x89ECJ\r\n\x1a\n"
FSCK = lab.BUILD / "tools/ecfs-fsck"
HEAD = 144  # of a journal file


def put(data, at, form, *values):
    struct.pack_into(form, data, at, *values)


def rehash_sections(data, at, end):
    while at + 16 <= end:
        size, = struct.unpack_from("<I", data, at + 4)
        if at + 16 + size > end:
            return
        put(data, at + 8 + size, "<Q", xxh3_64(data[at:at + 8 + size]))
        at += 16 + size


def rehash_stripe(data):
    header_bytes, = struct.unpack_from("<I", data, 12)
    footer_at, = struct.unpack_from("<Q", data, len(data) - 48)
    rehash_sections(data, 16, min(header_bytes, len(data)))
    if footer_at <= len(data) - 48:
        rehash_sections(data, footer_at, len(data) - 48)
        put(data, len(data) - 32, "<Q", xxh3_64(data[footer_at:-48]))
    put(data, len(data) - 16, "<Q", xxh3_64(data[-48:-16]))


def rehash_journal(data):
    data[88:104] = xxh3_128(data[HEAD:])
    put(data, HEAD - 8, "<Q", xxh3_64(data[:HEAD - 8]))


def rehash(data):
    """Puts right every checksum that needs no key."""
    if data[:8] == STRIPE and len(data) > 100:
        rehash_stripe(data)
    elif data[:8] == JOURNAL and len(data) > HEAD:
        rehash_journal(data)
    else:  # a share
        put(data, len(data) - 8, "<Q", xxh3_64(data[:-8]))
    return data


def files_of(root, *folders):
    """What is the archive's there, by its path below the root."""
    folders = folders or ("stripes", "journal", "snapshots", "keys")
    return [path for folder in folders for path in lab.files_below(root / folder)]


def flips_bits(endpoint, world):
    """In each file some bits of header and end, and of what is between them."""
    dice = random.Random(endpoint.name)
    for path in files_of(endpoint.root):
        data = bytearray(path.read_bytes())
        for at in [dice.randrange(8, min(len(data), 200)), dice.randrange(len(data)), dice.randrange(max(0, len(data) - 300), len(data))]:
            data[at] ^= 1 << dice.randrange(8)
        path.write_bytes(rehash(data))


def exchanges(endpoint, world):
    """Every file has the bytes of another of its kind; the marker is that of the other liar."""
    for folder in ("stripes", "journal", "snapshots"):
        paths = files_of(endpoint.root, folder)
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, contents[1:] + contents[:1]):
            path.write_bytes(content)
    if endpoint.name == LIARS[1]:
        shutil.copy2(world.archive[LIARS[0]].root / "ecfs-endpoint", endpoint.root / "ecfs-endpoint")
        for path in files_of(endpoint.root, "keys"):
            shutil.copy2(world.archive[LIARS[0]].root / "keys" / path.name, path)


def replays(endpoint, world):
    """Everything as it was last week."""
    shutil.rmtree(endpoint.root)
    shutil.copytree(world.past / endpoint.name, endpoint.root)


def truncates(endpoint, world):
    for number, path in enumerate(files_of(endpoint.root)):
        size = path.stat().st_size
        os.truncate(path, [0, size // 2, size - 1, 12][number % 4])


def forgets(endpoint, world):
    for path in files_of(endpoint.root):
        path.unlink()


def invents(endpoint, world):
    """Files of another archive with a key that this endpoint has made, under this archive's UUIDs, and newer ones."""
    for path in files_of(world.other["amber"].root, "stripes", "journal", "snapshots"):
        data = bytearray(path.read_bytes())
        mine, other = world.uuid, world.other_uuid
        while (at := data.find(other)) >= 0:
            data[at:at + 16] = mine
        to = endpoint.root / path.relative_to(world.other["amber"].root)
        if to.parent.name in ("journal", "snapshots"):  # of an epoch that beats all
            put(data, 32, "<I", 9)
            to = to.with_name(f"{9:08x}" + to.name[8:])
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(rehash(data))


LIES = [flips_bits, exchanges, replays, truncates, forgets, invents]


class World:
    pass


def write_some(mount, number):
    top = mount.path / f"directory {number}"
    top.mkdir()
    for name, size in {"small": 700, "odd": 300_001, "large": 2_500_077}.items():
        lab.write_pattern(top / name, size, 10 * number + size)
    os.symlink("target", top / "link")
    os.setxattr(top / "small", "user.note", b"attribute")


@pytest.fixture
def world(place):
    return make_world(place, [*lab.NAMES, "grove"])


def make_world(place, names):
    """An archive as it was last week and as it is, and what the liars have of an archive of their own."""
    made = World()
    made.archive = lab.Archive(place.path / "archive", place.directories(names))
    made.archive.init("--key", "split")
    mount = place.mount(made.archive)
    write_some(mount, 1)
    lab.ecfs("wait", mount.path)
    made.past = place.path / "past"
    for name in LIARS:
        shutil.copytree(made.archive[name].root, made.past / name)
    write_some(mount, 2)
    (mount.path / "directory 1/odd").unlink()
    (mount.path / "directory 1/small").rename(mount.path / "moved")
    lab.ecfs("wait", mount.path)
    made.tree = lab.describe_tree(mount.path)
    mount.umount()
    made.other = lab.Archive(place.path / "other", place.directories(["amber", "birch", "cedar", "delta", "ember"]), "rs:3+2")
    made.other.init("--key", "split")
    lab.write_pattern(place.path / "file", 50_000)
    made.other.put_in_full(place.path / "file", "/directory 1/small")
    made.uuid, made.other_uuid = (bytes.fromhex(archive.json("status")["archive"].replace("-", ""))
                                  for archive in (made.archive, made.other))
    return made


def lie(world, how):
    for name in LIARS:
        how(world.archive[name], world)


def honest(world):
    return {path: path.read_bytes() for endpoint in world.archive.endpoints if endpoint.name not in LIARS
            for path in files_of(endpoint.root, "stripes")}


def assert_kept(before, world):
    """Nothing of those that told the truth is gone or other."""
    after = honest(world)
    assert {path: after.get(path) for path in before} == before


def fsck(archive, *options):
    return lab.run(FSCK, *options, archive.path, check=False, timeout=300)


@pytest.mark.parametrize("how", LIES)
@pytest.mark.slow
def test_a_mount_and_fsck_go_on(place, world, how):
    before = honest(world)
    lie(world, how)
    mount = place.mount(world.archive)
    lab.assert_same_tree(world.tree, lab.describe_tree(mount.path))
    more = lab.write_pattern(mount.path / "more", 100_000, 3)
    lab.ecfs("wait", "--quorum", mount.path)
    mount.umount()
    assert_kept(before, world)
    told = fsck(world.archive, "-n", "--deep")
    repaired = "rebuilt" in mount.text()  # what it met, before it ended
    assert told.returncode == 0 if how is invents else told.returncode == 4 or repaired, told.stdout + told.stderr
    told_of = told.stdout + told.stderr + mount.text()  # the mount may have repaired what it met
    named = set(re.findall(r"(?:endpoint|at) (\w+)", told_of))
    assert set(LIARS) <= named, told_of
    assert_kept(before, world)
    told = fsck(world.archive, "-y", "--deep")
    assert told.returncode in ({invents: (0,), exchanges: (4, 5)}.get(how, (1,)) + ((0,) if repaired else ())), told.stdout + told.stderr
    assert_kept(before, world)
    mount = place.mount(world.archive)
    assert lab.digest(mount.path / "more") == more
    (mount.path / "more").unlink()
    lab.assert_same_tree(world.tree, lab.describe_tree(mount.path))
    mount.umount()


@pytest.mark.parametrize("how", LIES)
@pytest.mark.slow
def test_it_is_recovered_and_salvaged(place, world, how):
    key = place.path / "key"
    shutil.copy2(world.archive.path / "key", key)
    shutil.rmtree(world.archive.path)
    before = honest(world)
    lie(world, how)
    roots = [endpoint.root for endpoint in world.archive.endpoints]
    lab.run(sys.executable, lab.REPOSITORY / "tools/ecfs-salvage", "--key", key, "--to", place.path / "salvaged", *roots,
            check=False, timeout=300)
    lab.assert_same_tree(world.tree, lab.describe_tree(place.path / "salvaged"))
    done = recover(place, world)
    assert_kept(before, world)
    named = set(re.findall(r"(?:endpoints?|at|and) (\w+)", done.stdout + done.stderr))
    assert set(LIARS) <= named, done.stdout + done.stderr


def recover(place, world, tree=None):
    again = lab.Archive(place.path / "again", world.archive.endpoints)
    words = [word for endpoint in again.endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.ecfs("recover", again.path, "--force", *words, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    mount = place.mount(again)
    lab.assert_same_tree(tree or world.tree, lab.describe_tree(mount.path))
    mount.umount()
    return done


@pytest.mark.parametrize("how", [replays, forgets, exchanges])
@pytest.mark.slow
def test_endpoints_that_were_away_do_not_help_those_that_lie(place, how):
    """Two honest ones missed what `wait` said is safe, and two lie about it: only the other two of six say it."""
    world = make_world(place, lab.NAMES)
    away = [name for name in lab.NAMES if name not in LIARS][:2]
    for name in away:
        os.rename(world.archive[name].root, place.path / f"away-{name}")
    lab.write_pattern(place.path / "late", 900, 17)
    lab.ecfs("mv", world.archive.path, "/directory 2/odd", "/renamed")
    lab.ecfs("mkdir", world.archive.path, "/new")
    lab.ecfs("put", world.archive.path, place.path / "late", "/new/late")
    lab.ecfs("wait", "--unmounted", world.archive.path)
    for name in away:
        os.rename(place.path / f"away-{name}", world.archive[name].root)
    mount = place.mount(world.archive, "-o", "ro")
    tree = lab.describe_tree(mount.path)
    mount.umount()
    assert {"renamed", "new/late"} <= {str(name) for name in tree}
    key = place.path / "key"
    shutil.copy2(world.archive.path / "key", key)
    shutil.rmtree(world.archive.path)
    before = honest(world)
    lie(world, how)
    roots = [endpoint.root for endpoint in world.archive.endpoints]
    lab.run(sys.executable, lab.REPOSITORY / "tools/ecfs-salvage", "--key", key, "--to", place.path / "salvaged", *roots,
            check=False, timeout=300)
    lab.assert_same_tree(tree, lab.describe_tree(place.path / "salvaged"))
    recover(place, world, tree)
    assert_kept(before, world)
