"""A corpus of damage, each kind with the verdict of whoever meets it: reader, ecfs-fsck, ecfs recover with the journal
and from footers alone, and tools/ecfs-salvage. Bytes are right or there is an error; never are there wrong bytes.

One archive for each code has a file for each kind of damage, so that every tool runs once or twice for all of them.
The fields are those of ecfs-format(5). ECFS_CORPUS=all flips each bit of each field, where else one is flipped, and
takes all codes, all damage of journals and all pages of the catalog, where else there are some.
"""
import collections
import dataclasses
import json
import os
import random
import shutil
import struct
import sys

import lab
import pytest

pytestmark = lab.unkeyed

ALL = os.environ.get("ECFS_CORPUS") == "all"
SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"
DONOR = "no damage"  # whose whole stripes others get for theirs
CODES = {"rs:4+2": (6, 2), "ldpc:8+6": (14, 3), "basic:4+4": (8, 2), "copies:3": (3, 2)}  # stripes, tolerance
SIZE = 150_001  # more than two segments
TAIL = 48
RIGHT, LOST = "right", "lost"
HEALTHY, REPAIRED = "healthy", "repaired"

HEADER = {"magic": 0, "version": 8, "header_bytes": 12, "section type": 16, "section flags": 18, "section length": 20,
          "archive": 24, "object": 40, "instance": 56, "sequence": 64, "epoch": 72, "family": 76, "k": 78, "n": 80,
          "index": 82, "segment_bytes": 84, "block_bytes": 88, "granule": 92, "tag kind": 96, "tag bytes": 98,
          "cipher": 100, "mac": 102, "section hash": 116}
FOOTER = {"sizes type": 0, "sizes length": 4, "content bytes": 8, "coded bytes": 16, "area bytes": 24,
          "area digest": 32, "object digest": 48, "sizes hash": 72, "records length": 84, "record length": 88,
          "inode": 92, "generation": 100, "file size": 108, "mode": 116, "user": 120, "group": 124, "mtime": 128,
          "ranges": 136, "range offset": 140, "range length": 148, "object offset": 156, "path length": 164,
          "path": 168}
ENDING = {"footer offset": 0, "footer bytes": 8, "version": 12, "footer hash": 16, "tail hash": 32, "magic": 40}


@dataclasses.dataclass
class Kind:
    """What is done to some stripes of a file, and what comes of it: reader, fsck, recovered, by hints, salvage."""
    name: str
    damage: object  # of (stripe, world)
    everywhere: bool
    verdicts: tuple


class Stripe:
    """A stripe file: where it is, and what it was."""

    def __init__(self, path):
        self.path, self.bytes = path, path.read_bytes()

    def write(self, data):
        self.path.write_bytes(data)

    def flip(self, offset, bit=6):
        data = bytearray(self.bytes)
        data[offset] ^= 1 << bit
        self.write(data)

    def footer(self):
        return struct.unpack_from("<Q", self.bytes, len(self.bytes) - TAIL)[0]

    def header_bytes(self):
        return struct.unpack_from("<I", self.bytes, 12)[0]


def flip_header(offset, bit=6):
    return lambda stripe, world: stripe.flip(offset, bit)


def flip_footer(offset, bit=6):
    return lambda stripe, world: stripe.flip(stripe.footer() + offset, bit)


def flip_tail(offset, bit=6):
    return lambda stripe, world: stripe.flip(len(stripe.bytes) - TAIL + offset, bit)


PARTS = {"header": (HEADER, flip_header), "footer": (FOOTER, flip_footer), "tail": (ENDING, flip_tail)}
BITS = range(8) if ALL else [6]


def flip_block(stripe, world):
    stripe.flip(stripe.header_bytes() + 100)


def flip_tag(stripe, world):
    area = stripe.footer() - stripe.header_bytes()
    stripe.flip(stripe.footer() - 3 if area > 8 else stripe.header_bytes())


def cut(size):
    return lambda stripe, world: stripe.write(stripe.bytes[:size(len(stripe.bytes))])


def swap(stripe, world):
    """The bytes of the stripe with the next index, under this one's name."""
    stripe.write(world.next_of(stripe).bytes)


def stale(stripe, world):
    """What the same file was before: whole, and of another object."""
    stripe.write(world.other_object(stripe))


def foreign(stripe, world):
    stripe.write(world.other_archive(stripe))


def duplicate(stripe, world):
    """A second copy, under the name of another instance, which nobody knows."""
    stripe.path.with_name(stripe.path.name[:-4] + "beef").write_bytes(stripe.bytes)


def few(name, damage, verdicts=(RIGHT, REPAIRED, RIGHT, RIGHT, RIGHT)):
    return Kind(name, damage, False, verdicts)


def every(name, damage, *verdicts):
    return Kind(name, damage, True, verdicts)


KINDS = [
    few(DONOR, lambda stripe, world: None, (RIGHT, HEALTHY, RIGHT, RIGHT, RIGHT)),
    *(few(f"{part} {field} {bit}", flipping(offset, bit)) for part, (fields, flipping) in PARTS.items()
      for field, offset in fields.items() for bit in BITS),
    few("block", flip_block), few("tag", flip_tag),
    few("empty", cut(lambda size: 0)), few("a byte short", cut(lambda size: size - 1)),
    few("half", cut(lambda size: size // 2)), few("header alone", cut(lambda size: 200)),
    few("gone", lambda stripe, world: stripe.path.unlink()),
    few("swapped", swap), few("stale", stale), few("foreign", foreign),
    few("duplicate", duplicate, (RIGHT, HEALTHY, RIGHT, RIGHT, RIGHT)),
    # Readers have the layout from the catalog, and each block has its own proof. Salvage has it from stripes alone.
    every("each header", flip_header(0), RIGHT, REPAIRED, RIGHT, LOST, LOST),
    every("each footer", flip_footer(48), RIGHT, REPAIRED, RIGHT, LOST, LOST),
    every("each tail", flip_tail(32), RIGHT, REPAIRED, RIGHT, LOST, LOST),
    every("each block", flip_block, LOST, LOST, LOST, LOST, LOST),
    every("each tag", flip_tag, LOST, LOST, LOST, LOST, LOST),
    every("each half", cut(lambda size: size // 2), LOST, LOST, LOST, LOST, LOST),
    every("each gone", lambda stripe, world: stripe.path.unlink(), LOST, LOST, LOST, LOST, LOST),
    every("each stale", stale, LOST, LOST, LOST, LOST, LOST),
    every("each foreign", foreign, LOST, LOST, LOST, LOST, LOST),
    every("each duplicate", duplicate, RIGHT, HEALTHY, RIGHT, RIGHT, RIGHT),
]


class World:
    """An archive with a file for each kind, before damage; and another one of the same shape."""

    def __init__(self, place, code):
        self.place, self.code, self.kinds = place, code, KINDS
        self.n, self.tolerance = CODES[code]
        numbers = random.Random(f"corpus {code}")
        self.contents = {kind.name: numbers.randbytes(SIZE) for kind in self.kinds}
        self.archive = self.make("ours")
        self.by_file = self.find(self.archive)
        self.foreign = self.find(self.make("theirs"))

    def make(self, name):
        endpoints = [lab.Directory(self.place.path / name / f"e{i:02}", f"e{i:02}") for i in range(self.n)]
        archive = lab.Archive(self.place.path / f"{name}-archive", endpoints, self.code)
        archive.init()
        archive.configure("archive", segment_size="64K", small_file="0")
        source = self.place.path / f"{name}-source"
        source.mkdir()
        for kind, content in self.contents.items():
            (source / kind).write_bytes(content)
        archive.put_in_full(source, "/tree")
        return archive

    @staticmethod
    def find(archive):
        """The stripes of each file, by its name and in the order of their indexes."""
        found = collections.defaultdict(list)
        for endpoint in archive.endpoints:
            for path in lab.stripe_files(endpoint):
                stripe = Stripe(path)
                at = stripe.footer() + FOOTER["path length"]
                size = struct.unpack_from("<H", stripe.bytes, at)[0]
                found[stripe.bytes[at + 2:at + 2 + size].decode().removeprefix("/tree/")].append(stripe)
        return {name: sorted(stripes, key=lambda stripe: stripe.path.name) for name, stripes in found.items()}

    def file_of(self, stripe):
        return next(name for name, stripes in self.by_file.items() if stripe in stripes)

    def next_of(self, stripe):
        stripes = self.by_file[self.file_of(stripe)]
        return stripes[(stripes.index(stripe) + 1) % len(stripes)]

    def other_object(self, stripe):
        return self.by_file[DONOR][self.by_file[self.file_of(stripe)].index(stripe)].bytes

    def other_archive(self, stripe):
        name = self.file_of(stripe)
        return self.foreign[name][self.by_file[name].index(stripe)].bytes

    def damage(self):
        assert all(len(self.by_file[kind.name]) == self.n for kind in self.kinds)
        for kind in self.kinds:
            stripes = self.by_file[kind.name]
            for stripe in stripes if kind.everywhere else stripes[:self.tolerance]:
                kind.damage(stripe, self)

    def judge(self, root):
        """What is below a directory that a tool filled: right or lost, and never wrong bytes under a file's name."""
        found = {}
        for name, content in self.contents.items():
            path = root / name
            found[name] = RIGHT if path.exists() else LOST
            assert not path.exists() or path.read_bytes() == content, f"{name}: wrong bytes"
        return found

    # The tools

    def read(self, archive):
        target = self.place.path / f"read-{next(self.place.numbers)}"
        target.mkdir()
        archive.get("/tree", target, check=False)
        return self.judge(target / "tree")

    def salvage(self):
        target = self.place.path / "salvaged"
        roots = [endpoint.root for endpoint in self.archive.endpoints]
        lab.run(sys.executable, SALVAGE, "--to", target, *roots, check=False, timeout=600)
        return self.judge(target / "tree")

    def recover(self, with_journal):
        """On a copy of the endpoints, as it writes to them."""
        copy = self.place.path / f"copy-{with_journal}"
        for endpoint in self.archive.endpoints:
            shutil.copytree(endpoint.root, copy / endpoint.name)
            for directory in [] if with_journal else ["journal", "snapshots"]:
                shutil.rmtree(copy / endpoint.name / directory, ignore_errors=True)
        path = self.place.path / f"recovered-{with_journal}"
        words = [word for endpoint in self.archive.endpoints
                 for word in ("--endpoint", f"{endpoint.name}=file://{copy / endpoint.name}")]
        lab.ecfs("recover", path, "--force", "--allow-lost", *words)
        return self.read(lab.Archive(path, []))

    def check(self):
        """By the result for each path; then all that can be repaired is, and a second run finds nothing else."""
        run = lab.run(lab.PROGRAM.with_name("ecfs-fsck"), self.archive.path, "-y", "--deep", "--json", check=False)
        found = dict.fromkeys(self.contents, HEALTHY)
        for line in run.stdout.splitlines():
            told = json.loads(line)
            if str(told.get("path", "")).startswith("/tree/"):
                name = told["path"].removeprefix("/tree/").split("@")[0]
                found[name] = REPAIRED if told["result"] == "repaired" else LOST
        again = lab.run(lab.PROGRAM.with_name("ecfs-fsck"), self.archive.path, "-n", "--deep", "--json", check=False)
        left = {json.loads(line)["path"].removeprefix("/tree/") for line in again.stdout.splitlines()
                if str(json.loads(line).get("path", "")).startswith("/tree/")}
        assert left == {name for name, verdict in found.items() if verdict == LOST}, run.stdout[-3000:]
        self.said = run.stderr
        return found


@pytest.mark.parametrize("code", CODES if ALL else ["rs:4+2", "ldpc:8+6"])
@pytest.mark.slow
def test_every_damage_has_its_verdict(place, code):
    world = World(place, code)
    world.damage()
    columns = {"reader": world.read(world.archive), "fsck": None, "recover": world.recover(True),
               "hints": world.recover(False), "salvage": world.salvage()}
    columns["fsck"] = world.check()
    repaired = world.read(world.archive)
    wrong = [f"{kind.name}: {tool} says {column[kind.name]} and not {kind.verdicts[number]}"
             for number, (tool, column) in enumerate(columns.items()) for kind in world.kinds
             if column[kind.name] != kind.verdicts[number]]
    wrong += [f"{kind.name}: cannot be read after ecfs-fsck -y" for kind in world.kinds
              if kind.verdicts[1] != LOST and repaired[kind.name] != RIGHT]
    assert not wrong, "\n".join([*wrong, world.said[-3000:]])


# The archive as a whole

def small_archive(place, files):
    archive = place.archive(place.directories())
    source = place.path / "source"
    source.mkdir()
    for name, content in files.items():
        (source / name).write_bytes(content)
    archive.put_in_full(source, "/tree")
    archive.await_stored()
    return archive


def salvaged(place, roots):
    target = place.path / f"salvaged-{next(place.numbers)}"
    lab.run(sys.executable, SALVAGE, "--to", target, *roots, check=False, timeout=300)
    return target


def recovered(place, archive):
    """What ecfs recover brings back from a copy of the endpoints, and what it told."""
    copy = place.path / f"copy-{next(place.numbers)}"
    for endpoint in archive.endpoints:
        shutil.copytree(endpoint.root, copy / endpoint.name)
    path, target = copy / "archive", copy / "files"
    words = [word for endpoint in archive.endpoints
             for word in ("--endpoint", f"{endpoint.name}=file://{copy / endpoint.name}")]
    told = lab.ecfs("recover", path, "--force", *words).stderr
    target.mkdir()
    lab.ecfs("get", path, "/", target, check=False)
    return target, told


@pytest.mark.slow
def test_two_objects_that_claim_one_name_are_both_there(place):
    """A file was deleted and made anew, and the stripes of the first are back: nobody knows which of them counts."""
    first, second = random.Random(1).randbytes(SIZE), random.Random(2).randbytes(SIZE)
    archive = small_archive(place, {"file": first})
    kept = place.path / "kept"
    for endpoint in archive.endpoints:
        shutil.copytree(endpoint.root / "stripes", kept / endpoint.name)
    mount = place.mount(archive)
    (mount.path / "tree/file").unlink()
    (mount.path / "tree/file").write_bytes(second)
    archive.await_stored()
    mount.umount()
    for endpoint in archive.endpoints:
        shutil.copytree(kept / endpoint.name, endpoint.root / "stripes", dirs_exist_ok=True)
    target, _ = recovered(place, archive)
    assert [path.read_bytes() for path in target.rglob("*") if path.is_file()] == [second]  # the journal knows
    roots = [endpoint.root for endpoint in archive.endpoints]
    assert (salvaged(place, roots) / "tree/file").read_bytes() == second
    for root in roots:
        shutil.rmtree(root / "journal", ignore_errors=True)
        shutil.rmtree(root / "snapshots", ignore_errors=True)
    target, told = recovered(place, archive)
    found = [path.read_bytes() for path in target.rglob("*") if path.is_file()]
    assert sorted(found) == sorted([first, second]) and "no journal mentions this content" in told
    found = [path.read_bytes() for path in salvaged(place, roots).rglob("*") if path.is_file()]
    assert second in found and set(found) <= {first, second}


@pytest.mark.parametrize("damage", [0, 8, 10, 16, 40, 48, 60, 90, 130, 200, "half", "empty"] if ALL else [16, 200])
@pytest.mark.slow
def test_a_damaged_journal_misleads_nobody(place, damage):
    """A byte is wrong, or files are cut: on as many endpoints as may be lost, so that it is read elsewhere, although the
    last that are asked have the damage; then everywhere, and names are hints of the stripes.
    """
    files = {f"file {number}": random.Random(number).randbytes(20_000 + number) for number in range(5)}
    archive = small_archive(place, files)
    roots = [endpoint.root for endpoint in archive.endpoints]
    for damaged in (roots[-2:], roots[:-2]):
        for root in damaged:
            for path in [*root.glob("journal/*"), *root.glob("snapshots/*")]:
                size = path.stat().st_size
                if isinstance(damage, str):
                    os.truncate(path, size // 2 if damage == "half" else 0)
                elif size > damage:
                    lab.flip(path, damage)
        target, told = recovered(place, archive)
        assert ("are hints" in told) == (damaged == roots[:-2])
        for target in (target, salvaged(place, roots)):
            found = {path.name: path.read_bytes() for path in target.rglob("*") if path.is_file()}
            assert found == files


@pytest.mark.slow
def test_a_damaged_page_of_the_catalog_gives_right_bytes_or_none(place):
    files = {f"file {number}": random.Random(number).randbytes(9000 + 5000 * number) for number in range(12)}
    archive = small_archive(place, files)
    path = archive.path / "catalog.sqlite"
    whole = path.read_bytes()
    outcomes = collections.Counter()
    pages = range(0, len(whole), 4096)
    for page in pages if ALL else [0, *random.Random("pages").sample(pages[1:], 5)]:
        for offset in (5, 2000, 4000):
            path.write_bytes(whole)
            lab.flip(path, page + offset)
            target = place.path / f"read-{next(place.numbers)}"
            target.mkdir()
            done = archive.get("/tree", target, check=False, timeout=60)
            assert done.returncode in (0, 1), done.stderr
            outcomes[done.returncode] += 1
            for name, content in files.items():
                fetched = target / "tree" / name
                assert not fetched.exists() or fetched.read_bytes() == content, (page, offset, name)
            shutil.rmtree(target)
    assert outcomes[0] > 0
    path.write_bytes(whole)
    lab.flip(path, 4096 + 5)
    assert lab.run(lab.PROGRAM.with_name("ecfs-fsck"), archive.path, "-n", check=False).returncode & (4 | 8)
