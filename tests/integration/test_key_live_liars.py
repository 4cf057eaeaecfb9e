"""An archive with a key whose code does without two of seven endpoints: two lie while it is used, checked and recovered. No
wrong byte is read, nothing of the others is deleted, nothing stops, and both are named."""
import hashlib
import os
import random
import re
import shutil
import struct
import threading
import uuid
import zlib

import lab
import pytest
from forge import xxh3_64
from liar import Below, Liar

LIARS = ["birch", "delta"]
SEALED = ("stripes", "journal", "snapshots", "keys")  # directories of which nobody else can make a file
MARKER = "/ecfs-endpoint"
FSCK = lab.BUILD / "tools/ecfs-fsck"
PATIENCE_S = 60  # for one command


def folder(path):
    return path.split("/")[1]


class Truth:
    """What is said of both liars' files: this is what others say. The same object speaks for both.

    exits: what fsck may exit with when it only looks, and when it repairs. is_named: somebody tells the user who lies;
    is_named_later: also somebody who comes after the mount. is_named_in_turn: only whoever asks again.
    """
    exits = {0}, {0}
    is_named = True
    is_named_later = True
    is_named_in_turn = False

    def __init__(self, world):
        self.world, self.over, self.lock, self.n_asked = world, threading.Event(), threading.Lock(), {}

    def turn(self, *what):
        """How often that was asked before."""
        with self.lock:
            self.n_asked[what] = self.n_asked.get(what, -1) + 1
            return self.n_asked[what]

    def content(self, handler, path):
        """Bytes of a file; None: there is none."""
        return handler.liar.files.get(path)

    def listing(self, handler, path):
        """Bytes by path, of a file, or of a directory and what is in it."""
        return handler.found(path)

    def stored(self, handler, path):
        """A file has got its final name."""

    def get(self, handler, path):
        handler.give(self.content(handler, path))
        return True

    def propfind(self, handler, path):
        handler.body()
        handler.list(self.listing(handler, path))
        return True

    def move(self, handler, path):
        handler.truly_move(path)
        self.stored(handler, handler.destination())
        return True

    def begin(self):
        for name in LIARS:
            self.world.archive[name].lies = {"GET": self.get, "PROPFIND": self.propfind, "MOVE": self.move}

    def end(self):
        self.over.set()
        for name in LIARS:
            self.world.archive[name].lies = {}


def is_listing(handler):
    return handler.headers["Depth"] != "0"


class Drops(Truth):
    """Says that stripes, journal and shares are stored, and throws them away."""
    exits = {4}, {5}

    def __init__(self, world):
        super().__init__(world)
        self.gone = {name: {} for name in LIARS}

    def stored(self, handler, path):
        if folder(path) in SEALED:
            self.gone[handler.liar.name][path] = handler.liar.files.pop(path, b"")


class DropsAndLists(Drops):
    """… and says that it has them until they are read."""
    exits = {4}, {4}

    def listing(self, handler, path):
        gone = {one: data for one, data in self.gone[handler.liar.name].items()
                if one == path or is_listing(handler) and one.rpartition("/")[0] == path}
        return handler.found(path) | gone


def spoiled(data):
    data = bytearray(data)
    for at in range(len(data) // 3, len(data), 4096):
        data[at] ^= 0x40
    return bytes(data)


class Wavers(Truth):
    """What is read the first time is right, and wrong from then on."""
    exits = {4}, {4, 5}

    def content(self, handler, path):
        data = super().content(handler, path)
        if data is None or folder(path) not in SEALED or self.turn(handler.liar.name, path, handler.headers["Range"]) == 0:
            return data
        return spoiled(data)


class HasTwoFaces(Truth):
    """Every second connection gets other bytes."""
    exits = {0, 4}, {0, 1, 4, 5}

    def content(self, handler, path):
        data = super().content(handler, path)
        return spoiled(data) if data is not None and handler.number % 2 and folder(path) in SEALED else data


class Hides(Truth):
    """Every second name of a sealed file is in no listing, and the files are there for who asks for them. Of what
    is no stripe the last is one of these: a snapshot that nobody misses is no lie that shows."""
    exits = {0, 4}, {0, 1, 4, 5}

    def listing(self, handler, path):
        found = handler.found(path)
        sealed = sorted((one for one, data in found.items()
                         if data is not None and one != path and folder(one) in SEALED), reverse=True)
        hidden = {one for number, one in enumerate(sealed)
                  if (zlib.crc32(one.encode()) if folder(one) == "stripes" else number) % 2 == 0}
        return {one: data for one, data in found.items() if one not in hidden}


class Invents(Truth):
    """Lists files that are not there: of other instances and objects, newer ones, and of an epoch that beats all."""

    def made_beside(self, path):
        top, _, name = path.rpartition("/")
        kind, (first, *parts) = folder(path), name.split("-")
        if kind == "stripes":
            index, instance = (int(part, 16) for part in parts)
            names = [f"{first}-{index:02x}-{instance + 1:016x}", f"{first}-{index + 1:02x}-{instance:016x}",
                     f"{first[:-4]}dead-{index:02x}-{instance:016x}"]
        elif kind == "journal":
            last = int(parts[1], 16)
            names = [f"{first}-{last + 1:016x}-{last + 2000:016x}", "-".join([f"{9:08x}", *parts])]
        elif kind == "snapshots":
            names = ["-".join([first, f"{int(parts[0], 16) + 1000:016x}", *parts[1:]]), "-".join([f"{9:08x}", *parts])]
        else:
            names = ["-".join([first, *parts[:4], "99"])] if kind == "keys" else []
        return [f"{top}/{one}" for one in names]

    def listing(self, handler, path):
        found = handler.found(path)
        files = {one: data for one, data in found.items() if data is not None and is_listing(handler)}
        return {name: data for one, data in files.items() for name in self.made_beside(one)} | found


class Reverts(Truth):
    """Its marker is one that it had before, and that which was written last, in turns."""
    is_named_later = False  # nothing tells one that is set back from one of an endpoint that was away
    is_named_in_turn = True

    def content(self, handler, path):
        if path == MARKER and self.turn(handler.liar.name) % 2:
            return (self.world.past / handler.liar.name / path[1:]).read_bytes()
        return super().content(handler, path)


class Replays(Truth):
    """Of all but stripes it shows what there was last week, under the key of then."""
    exits = {4}, {4}

    def __init__(self, world):
        super().__init__(world)
        self.past = {name: Below(world.past / name) for name in LIARS}

    @staticmethod
    def is_old(path):
        return path == MARKER or path and folder(path) in ("journal", "snapshots", "keys")

    def content(self, handler, path):
        return self.past[handler.liar.name].get(path) if self.is_old(path) else super().content(handler, path)

    def listing(self, handler, path):
        if not self.is_old(path):
            return handler.found(path)
        past = self.past[handler.liar.name]
        return {one: past[one] for one in sorted(past) if one == path or is_listing(handler) and one.rpartition("/")[0] == path}


class Swaps(Truth):
    """Gives its stripe, and in turns that of the same object which the other liar has, or that of another object."""
    exits = {0, 4}, {0, 1, 4, 5}

    def content(self, handler, path):
        data, liar = super().content(handler, path), handler.liar
        if data is None or folder(path) != "stripes" or self.turn(liar.name, path) % 2 == 0:
            return data
        other = self.world.archive[LIARS[1 - LIARS.index(liar.name)]]
        alike = [one for one in other.files if path.rpartition("/")[2].partition("-")[0] in one and one.count("/") == 3]
        mine = sorted(one for one in liar.files if one.startswith("/stripes/") and one.count("/") == 3)
        return other.files.get(alike[0]) if alike else liar.files.get(mine[mine.index(path) - 1])


def is_of_footer(handler, path, data):
    wanted = handler.headers["Range"]
    return bool(data and wanted and folder(path) == "stripes" and int(wanted.rpartition("-")[2]) >= len(data) - 1)


class Stalls(Truth):
    """Answers all but who reads the end of a stripe."""
    exits = {4}, {4}

    def content(self, handler, path):
        data = super().content(handler, path)
        if is_of_footer(handler, path, data):
            self.over.wait()
        return data


class Slowly:
    """Bodies go out byte by byte."""

    def __init__(self, file, over):
        self.file, self.over = file, over

    def write(self, data):
        for at in range(len(data)):
            self.file.write(data[at:at + 1])
            self.over.wait(0.2)

    def __getattr__(self, name):
        return getattr(self.file, name)


class Drips(Truth):
    """Answers who reads the end of a stripe byte by byte."""
    exits = {4}, {4}

    def is_slow(self, handler, path):
        return is_of_footer(handler, path, handler.liar.files.get(path))

    def get(self, handler, path):
        file = handler.wfile
        if self.is_slow(handler, path):
            handler.flush_headers = lambda: (file.write(b"".join(handler._headers_buffer)), handler._headers_buffer.clear())
            handler.wfile = Slowly(file, self.over)
        super().get(handler, path)
        handler.wfile = file
        return True


class AsksForShares(Truth):
    """Has a key file of its own that nobody can open: of 200 shares, of which one is its own."""
    exits = {4}, {4}

    def content(self, handler, path):
        data = bytearray(super().content(handler, path) or b"")
        if folder(path) != "keys" or not data:
            return super().content(handler, path)
        generation, share = hashlib.sha256(handler.liar.name.encode()).digest()[:16], bytes(32)
        data[26:42], data[42] = generation, 200
        at = 44 + 32 * data[43]  # of the share's number and the share
        number = data[at]
        data[at + 1:at + 33] = share
        data[12 + 32 * number:44 + 32 * number] = hashlib.sha256(data[10:42] + bytes([number]) + share).digest()
        data[-8:] = struct.pack("<Q", xxh3_64(bytes(data[:-8])))
        return bytes(data)


LIES = [Drops, DropsAndLists, Wavers, HasTwoFaces, Hides, Invents, Reverts, Replays, Swaps, Stalls, Drips, AsksForShares]


class StallsUploads(Truth):
    """Takes no stripe, and says nothing of it."""

    def move(self, handler, path):
        if folder(handler.destination()) == "stripes":
            self.over.wait()
        return super().move(handler, path)


class DripsMarkers(Drips):
    """Answers who asks whose endpoint it is byte by byte."""

    def is_slow(self, handler, path):
        return path == MARKER


class MakesUp(Truth):
    """Lists files that are not there, and takes its time to say so."""
    n_files, directory = 600, "/stripes/000"

    def listing(self, handler, path):
        found = handler.found(path)
        if not found:
            self.over.wait(0.4)
        if is_listing(handler) and path == self.directory:
            return found | {f"{path}/{self.name(i)}": b"x" * 600 for i in range(self.n_files)}
        return found | ({self.directory: None} if path == self.directory.rpartition("/")[0] and found else {})

    def name(self, i):
        return f"000{i:029x}-00-{i + 1:016x}"


class MakesUpKeys(MakesUp):
    """The same of key files."""
    directory = "/keys"

    def content(self, handler, path):
        data = super().content(handler, path)
        if data is None:
            self.over.wait(0.4)
        return data

    def name(self, i):
        return str(uuid.UUID(int=i + 1))


class Anything(Truth):
    """What any of the others would say, drawn anew for each answer."""
    exits = {0, 4}, {0, 1, 4, 5}
    seed = int(os.environ.get("ECFS_SEED", "1"))

    def __init__(self, world):
        super().__init__(world)
        print(f"seed {self.seed}")
        self.dice = random.Random(self.seed)
        self.others = [lie(world) for lie in (Truth, Truth, Wavers, HasTwoFaces, Hides, Invents, Reverts, Replays, Swaps)]

    def other(self):
        with self.lock:
            return self.dice.choice(self.others)

    def content(self, handler, path):
        return self.other().content(handler, path)

    def listing(self, handler, path):
        return self.other().listing(handler, path)


class World:
    """An archive as it is when a test begins; copies of what endpoints had last week, and of all as it is."""
    lie = None

    def lies(self, lie):
        self.lie = lie(self)
        self.lie.begin()

    def reset(self):
        for endpoint in self.archive.endpoints:
            shutil.rmtree(endpoint.root, ignore_errors=True)
            shutil.copytree(self.copy / endpoint.name, endpoint.root)
        shutil.rmtree(self.archive.path, ignore_errors=True)
        shutil.copytree(self.copy / "archive", self.archive.path)


def write_some(mount, number):
    top = mount.path / f"directory {number}"
    top.mkdir()
    for name, size in {"small": 700, "odd": 300_001, "large": 2_500_077}.items():
        lab.write_pattern(top / name, size, 10 * number + size)
    (top / "link").symlink_to("target")
    os.setxattr(top / "small", "user.note", b"attribute")


@pytest.fixture(scope="module")
def made(module_place):
    world, place = World(), module_place
    endpoints = place.directories([*lab.NAMES, "grove"])
    for i, endpoint in enumerate(endpoints):
        if endpoint.name in LIARS:
            endpoints[i] = Liar(endpoint.name, endpoint.root, ",stall_timeout=2s,connect_timeout=2s")
            place.servers.append(endpoints[i])
    world.archive = lab.Archive(place.path / "archive", endpoints)
    world.past, world.copy = place.path / "past", place.path / "copy"
    world.archive.init("--key", "split")
    world.archive.configure("archive", pack_after="1d")  # what is packed takes the place of what was there before
    mount = place.mount(world.archive)
    write_some(mount, 1)
    lab.ecfs("wait", mount.path)
    mount.umount()
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, world.past / endpoint.name)
    lab.ecfs("key", "rotate", world.archive.path)
    mount = place.mount(world.archive)
    write_some(mount, 2)
    (mount.path / "directory 1/odd").unlink()
    (mount.path / "directory 1/small").rename(mount.path / "moved")
    lab.ecfs("wait", mount.path)
    world.tree = lab.describe_tree(mount.path)
    mount.umount()
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, world.copy / endpoint.name)
    shutil.copytree(world.archive.path, world.copy / "archive")
    return world


@pytest.fixture
def world(made):
    made.reset()
    made.lie = None
    yield made
    if made.lie is not None:
        made.lie.end()


def honest(world):
    return {path: path.read_bytes() for endpoint in world.archive.endpoints if endpoint.name not in LIARS
            for path in lab.files_below(endpoint.root / "stripes")}


def assert_kept(before, world):
    """Nothing of those that tell the truth is gone or other."""
    after = honest(world)
    assert {path: after.get(path) for path in before} == before


def named(*texts):
    return set(re.findall(r"(?:endpoint|at) (\w+)", "\n".join(texts))) & set(LIARS)


def change(mount):
    """Adds, takes away, renames and overwrites; the tree then."""
    write_some(mount, 3)
    (mount.path / "directory 2/odd").unlink()
    (mount.path / "moved").rename(mount.path / "moved again")
    lab.write_pattern(mount.path / "directory 2/small", 900, 77)
    return lab.describe_tree(mount.path)


def ends(*command):
    """What a command that ends in time has said."""
    return lab.run(*command, check=False, timeout=PATIENCE_S)


def assert_reads(mount, tree):
    lab.forget_mounts()
    lab.assert_same_tree(tree, lab.describe_tree(mount.path))


def recover_without(place, world, liars):
    """As a user does who is told to leave them out."""
    done = None
    left = list(world.archive.endpoints)
    for _ in range(len(liars) + 1):
        archive, done = recover(place, left)
        if done.returncode == 0:
            return archive
        assert done.returncode == 1, done.stdout + done.stderr
        told = named(done.stdout, done.stderr) & {endpoint.name for endpoint in left}
        assert told and told <= set(liars), done.stderr
        left = [endpoint for endpoint in left if endpoint.name not in told]
    raise AssertionError(done.stderr)


def is_stored(mount):
    """What liars throw away may be found to be gone before somebody asks, or after."""
    waited = ends(lab.PROGRAM, "wait", mount.path)
    return waited.returncode == 0 or "of its stripes are damaged or gone" in waited.stderr


def use(place, world):
    """A mount that reads, writes and waits; the tree, the stripes of those that tell the truth, and what was said."""
    before = honest(world)
    mount = place.mount(world.archive)
    lab.assert_same_tree(world.tree, lab.describe_tree(mount.path))
    tree = change(mount)
    lab.until(lambda: is_stored(mount), PATIENCE_S, "all is stored, but for what is thrown away")
    assert_reads(mount, tree)
    assert_kept(before, world)
    return mount, tree, honest(world), ends(lab.PROGRAM, "status", world.archive.path).stdout


def check_and_repair(world, before, exits):
    """fsck looks, repairs, and looks again; what it said."""
    told = []
    for options, codes in (["-n", "--deep"], exits[0]), (["-y", "--deep"], exits[1]), (["-n"], {0, 4}):
        done = ends(FSCK, *options, world.archive.path)
        assert done.returncode in codes, (options, done.returncode, done.stdout, done.stderr)
        assert_kept(before, world)
        told += [done.stdout, done.stderr]
    return told


def recover(place, endpoints):
    archive = lab.Archive(place.path / "again", endpoints)
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    return archive, ends(lab.PROGRAM, "recover", archive.path, "--force", *words)


def goes_on(place, world, lie):
    world.lies(lie)
    mount, tree, before, said = use(place, world)
    if lie.is_named_in_turn:
        lab.until(lambda: ends(lab.PROGRAM, "wait", mount.path).returncode == 0 and named(mount.text()) == set(LIARS),
                  PATIENCE_S, "the mount has met both")
    mount.umount(PATIENCE_S)
    told = [said, mount.text(), *check_and_repair(world, before, lie.exits)]
    mount = place.mount(world.archive)
    assert_reads(mount, tree)
    mount.umount(PATIENCE_S)
    assert_kept(before, world)
    assert not lie.is_named or named(*told, mount.text()) == set(LIARS), "\n".join(told)


def comes_back(place, world, lie):
    world.lies(lie)
    mount, tree, before, _ = use(place, world)
    mount.kill()
    shutil.rmtree(world.archive.path)
    archive, done = recover(place, world.archive.endpoints)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_kept(before, world)
    mount = place.mount(archive)
    assert_reads(mount, tree)
    mount.umount(PATIENCE_S)
    looked = ends(FSCK, "-n", "--deep", archive.path)
    assert looked.returncode in (0, 4), looked.stdout + looked.stderr
    assert_kept(before, world)
    told = [done.stdout, done.stderr, mount.text(), looked.stdout, looked.stderr]
    assert not lie.is_named_later or named(*told) == set(LIARS), "\n".join(told)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.slow
def test_a_mount_and_fsck_go_on(place, world, lie):
    goes_on(place, world, lie)


@pytest.mark.parametrize("lie", [pytest.param(lie, marks=pytest.mark.nightly) if lie is Stalls else lie for lie in LIES])
@pytest.mark.slow
def test_it_is_recovered(place, world, lie):
    comes_back(place, world, lie)


def test_what_cannot_be_stored_in_full_is_told(place, world):
    before = honest(world)
    world.lies(StallsUploads)
    mount = place.mount(world.archive)
    tree = change(mount)
    waited = ends(lab.PROGRAM, "wait", mount.path)
    assert waited.returncode == 1 and "not all of its stripes are stored" in waited.stderr and named(waited.stderr), waited.stderr
    status = ends(lab.PROGRAM, "status", world.archive.path).stdout
    assert named(status, waited.stderr, mount.text()) == set(LIARS), status
    assert ends(lab.PROGRAM, "wait", "--quorum", mount.path).returncode == 0
    assert_reads(mount, tree)
    mount.umount(PATIENCE_S)
    assert_kept(before, world)
    world.lie.end()
    mount = place.mount(world.archive)
    world.archive.await_stored()
    assert_reads(mount, tree)
    mount.umount(PATIENCE_S)
    assert_kept(before, world)


@pytest.mark.nightly
def test_who_never_ends_an_answer_counts_as_away(place, world):
    before = honest(world)
    world.lies(DripsMarkers)
    mount = place.mount(world.archive)
    lab.assert_same_tree(world.tree, lab.describe_tree(mount.path))
    lab.write_pattern(mount.path / "more", 5000, 3)
    waited = ends(lab.PROGRAM, "wait", mount.path)
    assert waited.returncode in (0, 1) and (waited.returncode == 0 or named(waited.stderr)), waited.stderr
    assert_reads(mount, world.tree | {"more": lab.describe(mount.path / "more")})
    mount.umount(PATIENCE_S)
    checked = ends(FSCK, "-n", world.archive.path)
    assert checked.returncode == 4 and named(checked.stdout) == set(LIARS), checked.stdout + checked.stderr
    shutil.rmtree(world.archive.path)
    recover_without(place, world, LIARS)
    assert_kept(before, world)


def test_who_makes_names_up_slowly_holds_nobody_up(place, world):
    before = honest(world)
    world.lies(MakesUp)
    checked = ends(FSCK, "-n", world.archive.path)
    assert checked.returncode == 0 and named(checked.stdout) == set(LIARS), checked.stdout[-2000:] + checked.stderr
    assert_kept(before, world)


@pytest.mark.nightly
def test_who_makes_key_files_up_slowly_holds_no_recovery_up(place, world):
    world.lies(MakesUpKeys)
    shutil.rmtree(world.archive.path)
    archive, done = recover(place, world.archive.endpoints)
    assert done.returncode == 0 and named(done.stderr) == set(LIARS), done.stderr
    mount = place.mount(archive)
    assert_reads(mount, world.tree)
    mount.umount(PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.parametrize("lie", LIES)
def test_what_was_waited_for_is_there_without_them(place, world, lie):
    """Where nothing waits for its deletion, and the key is another."""
    world.archive.configure("archive", deletion_grace="0s")
    world.lies(lie)
    mount = place.mount(world.archive)
    change(mount)
    world.archive.await_stored()  # also what was met damaged, and is rebuilt first
    ends(FSCK, "-y", "--deep", world.archive.path)
    (mount.path / "directory 3/large").unlink()
    tree = lab.describe_tree(mount.path)
    world.archive.await_stored()
    mount.umount(PATIENCE_S)
    rotated = ends(lab.PROGRAM, "key", "rotate", world.archive.path)
    assert rotated.returncode == 0, rotated.stderr
    shutil.rmtree(world.archive.path)
    archive, done = recover(place, [endpoint for endpoint in world.archive.endpoints if endpoint.name not in LIARS])
    assert done.returncode == 0, done.stderr
    mount = place.mount(archive)
    assert_reads(mount, tree)
    mount.umount(PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("what", [goes_on, comes_back])
def test_whatever_they_say(place, world, what, seed):
    what(place, world, type(f"Anything{seed}", (Anything,), {"seed": Anything.seed + seed}))


@pytest.mark.slow
def test_what_is_thrown_away_is_not_rebuilt_for_ever(place, world):
    """To rebuild what one has thrown away, what the other should have is read, and so on."""
    world.lies(Drops)
    mount = place.mount(world.archive)
    lab.write_pattern(mount.path / "file", 2_500_077, 1)
    assert is_stored(mount)
    lab.until(lambda: lab.forget_mounts() or lab.digest(mount.path / "file") and "times within minutes" in mount.text(),
              PATIENCE_S, "it is told that it was rebuilt too often")
    assert world.archive.json("status")["repairs"]["rebuilt"] <= 12
    mount.umount(PATIENCE_S)
