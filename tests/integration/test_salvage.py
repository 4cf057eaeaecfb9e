"""tools/ecfs-salvage, which knows the format from its manual page alone, restores what ecfs stored."""
import contextlib
import importlib.machinery
import importlib.util
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tracemalloc
import types
import zlib
from pathlib import Path

import lab
import pytest

SALVAGE = lab.REPOSITORY / "tools/ecfs-salvage"
CODES = {"rs:4+2": 6, "rs:8+3": 11, "ldpc:8+6": 14, "basic:4+4": 8, "basic:8+8": 16, "copies:3": 3}
if "without liberasurecode" not in lab.ecfs("--version").stdout:
    CODES["xor:5+5"] = 10
TOLERANCE = {"rs:4+2": 2, "rs:8+3": 3, "ldpc:8+6": 3, "basic:4+4": 2, "basic:8+8": 4, "copies:3": 2, "xor:5+5": 3}


def salvage(*arguments, check=True):
    return lab.run(sys.executable, SALVAGE, *arguments, check=check, timeout=300)


@pytest.fixture(autouse=True)
def without_keys(monkeypatch):
    """Much of this forges what has none; test_salvage_key.py is about those that have."""
    monkeypatch.setattr(lab.all_keyed, "is_on", False)


def make(place, code, files, *words):
    """An archive over directories with these files put into /tree; {path below /: bytes}."""
    archive = place.archive(place.directories([f"e{i:02}" for i in range(CODES[code])]), code, *words)
    source = place.path / "tree"
    shutil.rmtree(source, ignore_errors=True)
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
        os.utime(source / name, ns=(1_600_000_000_123_456_789,) * 2)
    archive.put_in_full(source, "/tree")
    return archive, [archive[f"e{i:02}"].root for i in range(CODES[code])]


def contents():
    return {"empty-but-one": b"x", "small": os.urandom(5000), "deep/er/odd": os.urandom(1_234_567),
            "large": os.urandom((6 << 20) + 17)}


def assert_restored(target, files):
    for name, content in files.items():
        assert (target / "tree" / name).read_bytes() == content, name
        assert os.stat(target / "tree" / name).st_mtime_ns == 1_600_000_000_123_456_789
    found = [path for path in target.rglob("*") if path.is_file()]
    assert len(found) == len(files), found


@pytest.mark.parametrize("code", CODES)
@pytest.mark.slow
def test_files_come_back_without_as_many_endpoints_as_may_be_lost(place, code):
    files = contents()
    _, roots = make(place, code, files)
    lost = TOLERANCE[code]
    for number, kept in enumerate([roots, roots[lost:], roots[:-lost], roots[1:-lost + 1]]):
        target = place.path / f"salvaged-{number}"
        salvage("--to", target, *kept)
        assert_restored(target, files)


def test_damage_is_worked_around_block_by_block(place):
    """Every stripe is damaged, each in another block: no stripe is whole, and every byte can be had."""
    files = {"large": os.urandom(9 << 20)}
    _, roots = make(place, "rs:4+2", files)
    stripes = sorted((path for root in roots for path in (root / "stripes").rglob("*") if path.is_file()),
                     key=lambda path: path.stat().st_size)[-6:]
    for number, path in enumerate(stripes):
        lab.flip(path, 4096 + 40_000 * (2 * number + 1))
    salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)


@pytest.mark.several_objects
@pytest.mark.slow
def test_what_cannot_be_had_is_told_and_the_rest_written(place):
    files = {"large": os.urandom(6 << 20)}
    _, roots = make(place, "rs:4+2", files)
    result = salvage("--to", place.path / "salvaged", *roots[:3], check=False)
    assert result.returncode == 1
    assert "tree/large: these bytes cannot be restored" in result.stderr
    assert not (place.path / "salvaged/tree/large").exists()
    partial = (place.path / "salvaged/tree/large.partial").read_bytes()
    assert len(partial) == len(files["large"])
    same = sum(partial[at:at + 4096] == files["large"][at:at + 4096] for at in range(0, len(partial), 4096))
    assert same > 0 and all(partial[at:at + 4096] in (files["large"][at:at + 4096], bytes(4096))
                            for at in range(0, len(partial), 4096))


def test_a_list_and_a_part(place):
    files = contents()
    _, roots = make(place, "rs:4+2", files)
    listed = salvage("--list", *roots[2:]).stdout
    assert f"tree/large: {len(files['large'])} bytes, rs:4+2 with " in listed
    salvage("--to", place.path / "salvaged", "--path", "/tree/deep", *roots)
    assert_restored(place.path / "salvaged", {"deep/er/odd": files["deep/er/odd"]})


@pytest.mark.several_objects
@pytest.mark.slow
def test_names_come_from_the_journal(place):
    """A tree as rsync makes it, with what was renamed, changed and deleted afterwards."""
    source = place.path / "source"
    lab.add_oddities(source)
    os.chmod(source / "odd/size-1", 0o755)  # set-user-ID bits are not restored
    os.utime(source / "odd", ns=(1, 1_222_222_222_000_000_000))
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    lab.run("rsync", "-aHX", f"{source}/", f"{mount.path}/")
    (mount.path / "gone").write_bytes(os.urandom(50_000))
    (mount.path / "moved").write_bytes(b"moved")
    (mount.path / "replaced").write_bytes(os.urandom(3 << 20))
    archive.await_stored()
    (mount.path / "gone").unlink()
    (mount.path / "moved").rename(mount.path / "odd/moved here")
    (mount.path / "replaced").write_bytes(b"newest")
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    mount.umount()
    salvage("--to", place.path / "salvaged", *(endpoint.root for endpoint in endpoints[2:]))
    lab.assert_same_tree(expected, lab.describe_tree(place.path / "salvaged"))


def test_garbage_among_stripes_is_told_and_passed_by(place):
    files = {"small": os.urandom(3000), "large": os.urandom(3 << 20)}
    _, roots = make(place, "rs:4+2", files)
    garbage = roots[0] / "stripes/abc/garbage"
    garbage.parent.mkdir(exist_ok=True)
    garbage.write_bytes(os.urandom(5000))
    stripe = next(path for path in (roots[1] / "stripes").rglob("*") if path.is_file())
    stripe.write_bytes(stripe.read_bytes()[:-1])
    result = salvage("--to", place.path / "salvaged", *roots)
    assert str(garbage) in result.stderr and str(stripe) in result.stderr
    assert_restored(place.path / "salvaged", files)


@pytest.mark.parametrize("code, n_emptied", [("copies:3", 1), ("rs:2+2", 2)])
@pytest.mark.slow
def test_segments_of_other_bounds_at_endpoints_that_were_filled_anew(place, code, n_emptied):
    """Such an endpoint gets the same records in other files, as many in one as go there."""
    endpoints = place.directories(["e0", "e1", "e2", "e3"][:3 if code == "copies:3" else 4])
    archive = place.archive(endpoints, code)
    mount = place.mount(archive)
    for endpoint in [None, *endpoints[:n_emptied]]:
        for number in range(3):
            (mount.path / f"{endpoint} {number}").mkdir(mode=0o700)
            (mount.path / "old").write_bytes(os.urandom(3000))
            (mount.path / "old").rename(mount.path / f"{endpoint} {number}/moved")
            archive.await_stored()
        if endpoint:
            shutil.rmtree(endpoint.root)
            endpoint.root.mkdir()
            lab.ecfs("endpoint", "replace", archive.path, endpoint.name)
    (mount.path / "None 0/moved").unlink()
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    mount.umount()
    assert len({tuple(sorted(path.name for path in (endpoint.root / "journal").iterdir()))
                for endpoint in endpoints}) > 1
    done = salvage("--to", place.path / "salvaged", *(endpoint.root for endpoint in endpoints))
    lab.assert_same_tree(expected, lab.describe_tree(place.path / "salvaged"))
    assert done.stderr == ""


@pytest.mark.parametrize("n_losing", [1, 3])
@pytest.mark.slow
def test_a_gap_of_the_journal_is_told_and_fails(place, n_losing):
    """All three have to agree: what one has lost does not count, nor does what comes behind it."""
    endpoints = place.directories(["e0", "e1", "e2"])
    archive = place.archive(endpoints, "copies:3")
    mount = place.mount(archive)
    for number in range(4):
        (mount.path / f"d{number}").mkdir()
        archive.await_stored()
    mount.umount()
    roots = [endpoint.root for endpoint in endpoints]
    assert salvage("--to", place.path / "whole", *roots).stderr == ""
    for root in roots[:n_losing]:
        sorted((root / "journal").iterdir())[2].unlink()
    done = salvage("--to", place.path / "salvaged", *roots, check=False)
    assert done.returncode == 1 and "the journal ends at change" in done.stderr
    assert not (place.path / "salvaged/d3").exists()
    salvage("--to", place.path / "without", *roots[n_losing % 3:], check=n_losing == 1)
    assert (place.path / "without/d3").exists() == (n_losing == 1)


def test_each_endpoint_has_the_means(place):
    files = {"small": os.urandom(3000), "large": os.urandom(3 << 20)}
    _, roots = make(place, "rs:4+2", files)
    for root in roots:
        assert (root / "salvage/ecfs-salvage").read_bytes() == SALVAGE.read_bytes()
        assert "python3 salvage/ecfs-salvage" in (root / "salvage/readme.txt").read_text()
    lab.run(sys.executable, roots[5] / "salvage/ecfs-salvage", "--to", place.path / "salvaged", *roots[2:])
    assert_restored(place.path / "salvaged", files)


def load():
    loader = importlib.machinery.SourceFileLoader("ecfs_salvage", str(SALVAGE))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ecfs_salvage", loader))
    loader.exec_module(module)
    return module


def journal_file(module, like, raw, **changes):
    """The bytes of a file with these records, and a header like that of a JournalFile but for what is changed."""
    head = types.SimpleNamespace(**{"part": 0, "is_last": 0, **vars(like), **changes})
    stored = zlib.compress(raw, 1)
    found = module.Xxh3()
    found.update(stored)
    head = struct.pack("<8sHHHH16sIIIIQQqQQ16s32x", module.JOURNAL_MAGIC, 1, head.kind, 1, 0, head.archive, head.epoch,
                       head.part, head.is_last, head.n_records, head.first, head.last, head.time, len(raw), len(stored),
                       found.digest())
    return head + struct.pack("<Q", module.xxh3_64(head)) + stored


def part_of_snapshot(module, like, part, is_last, time_ns, records):
    raw = b"".join(struct.pack("<QqI", like.last, time_ns, len(record)) + record for _, record in records)
    return journal_file(module, like, raw, kind=2, part=part, is_last=is_last, n_records=len(records), first=0,
                        time=time_ns)


def put_segment(module, root, like, records):
    """... of its own, with what comes next."""
    first, last = like.last + 1, like.last + len(records)
    raw = b"".join(struct.pack("<QqI", number, 0, len(record)) + record for number, record in enumerate(records, first))
    (root / "journal" / f"{like.epoch:08x}-{first:016x}-{last:016x}").write_bytes(
        journal_file(module, like, raw, kind=1, n_records=len(records), first=first, last=last, time=0))


def item(kind, payload):
    """A record of this item."""
    return b"\1" + struct.pack("<BI", kind, len(payload)) + payload


def newest_segment(module, root):
    return module.JournalFile(max((root / "journal").iterdir()))


@pytest.mark.slow
def test_parts_of_two_snapshots_of_one_moment_are_not_mixed(place):
    """One was given up after its first part, and the next, elsewhere, made other parts of the same records."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    for number in range(40):
        (mount.path / f"directory {number}/below").mkdir(parents=True)
    archive.await_stored()
    expected = sorted(path.name for path in mount.path.iterdir())
    mount.kill()
    words = [word for endpoint in endpoints for word in ("--endpoint", endpoint.endpoint())]
    lab.ecfs("recover", place.path / "first", "--force", *words)
    module = load()
    (name,) = {path.name for endpoint in endpoints for path in (endpoint.root / "snapshots").glob("*")}
    (like, *_) = [module.JournalFile(path) for endpoint in endpoints for path in endpoint.root.glob(f"snapshots/{name}")]
    records, first = list(like.records()), name.removesuffix("-end")
    half = len(records) // 2
    for endpoint in endpoints:
        for directory in ("journal", "snapshots"):
            shutil.rmtree(endpoint.root / directory, ignore_errors=True)
            (endpoint.root / directory).mkdir()
    (endpoints[0].root / "snapshots" / first).write_bytes(
        part_of_snapshot(module, like, 0, 0, 1, records[:half // 2]))
    for endpoint in endpoints[1:4]:
        target = endpoint.root / "snapshots"
        (target / first).write_bytes(part_of_snapshot(module, like, 0, 0, 2, records[:half]))
        (target / f"{first[:-1]}1-end").write_bytes(part_of_snapshot(module, like, 1, 1, 2, records[half:]))
    lab.ecfs("recover", place.path / "second", "--force", *words)
    assert sorted(lab.ecfs("ls", place.path / "second", "/").stdout.splitlines()) == expected
    for endpoint in endpoints:  # what that recovery stored
        for path in (endpoint.root / "snapshots").glob("*"):
            if not path.name.startswith(first[:8]):
                path.unlink()
    salvage("--to", place.path / "salvaged", *(endpoint.root for endpoint in endpoints))
    assert sorted(path.name for path in (place.path / "salvaged").iterdir()) == expected


@pytest.mark.slow
def test_changes_of_a_copy_that_was_given_up_are_not_taken_for_later_ones(place):
    """The machine that was thought lost went on for a while, and nothing has changed since the recovery."""
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    (mount.path / "kept").mkdir()
    archive.await_stored()
    before = place.path / "before"
    for endpoint in endpoints:
        shutil.copytree(endpoint.root, before / endpoint.name)
    for number in range(100):  # more than what the recovery changes
        (mount.path / f"given up {number}").mkdir()
    archive.await_stored()
    mount.umount()
    later = {endpoint.name: place.path / f"journal-{endpoint.name}" for endpoint in endpoints}
    for endpoint in endpoints:
        shutil.copytree(endpoint.root / "journal", later[endpoint.name])
        shutil.rmtree(endpoint.root)
        shutil.copytree(before / endpoint.name, endpoint.root)
    lab.ecfs("recover", place.path / "new", "--force", *(word for endpoint in endpoints
                                              for word in ("--endpoint", endpoint.endpoint())))
    for endpoint in endpoints:
        shutil.copytree(later[endpoint.name], endpoint.root / "journal", dirs_exist_ok=True)
    salvage("--to", place.path / "salvaged", *(endpoint.root for endpoint in endpoints))
    assert [path.name for path in (place.path / "salvaged").iterdir()] == ["kept"]


@pytest.mark.slow
def test_a_journal_file_of_more_than_64_mib_is_damaged(place):
    """However small it is as compressed: whoever reads it has that much memory, and no more is asked for."""
    module, path = load(), place.path / "file"
    like = types.SimpleNamespace(archive=bytes(16), epoch=1, last=1)
    for size, good in ((64 << 20, True), ((64 << 20) + 1, False)):
        path.write_bytes(part_of_snapshot(module, like, 0, 1, 1, [(1, bytes(size - 20))]))
        if good:
            assert len(list(module.JournalFile(path).records())) == 1
        else:
            with pytest.raises(module.Bad):
                module.JournalFile(path)


def test_its_own_hash_is_that_of_the_library():
    module = load()
    if not module.LibraryXxh3.load():
        pytest.skip("there is no libxxhash to compare with")
    for size in [*range(260), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2112, 5000, 32768]:
        data = os.urandom(size)
        for seed in (0, 0x0123456789abcdef):
            assert module.plain_xxh3_64(data, seed) == module.library_xxh3_64(data, seed), size
        plain, library = module.PlainXxh3(), module.LibraryXxh3()
        for piece in (data[:size // 3], data[size // 3:]):
            plain.update(piece)
            library.update(piece)
        assert plain.digest() == library.digest(), size


def test_it_needs_no_library(place):
    files = {"small": os.urandom(3000), "middle": os.urandom(200_000)}
    _, roots = make(place, "rs:4+2", files)
    hidden = ("import ctypes.util, runpy, sys; ctypes.util.find_library = lambda name: None; "
              "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
    subprocess.run([sys.executable, "-I", "-c", hidden, SALVAGE, "--to", place.path / "salvaged", *roots[1:]], check=True)
    assert_restored(place.path / "salvaged", files)


def stripe_paths(roots):
    return sorted(path for root in roots for path in (root / "stripes").rglob("*") if path.is_file())


def lose_journal(roots):
    for root in roots:
        for directory in ("journal", "snapshots"):
            shutil.rmtree(root / directory, ignore_errors=True)


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
@pytest.mark.slow
def test_a_file_of_several_objects_has_its_name_only_when_all_are_there(place, lost):
    place.object_max = 64 << 10
    content = os.urandom(160 << 10)
    _, roots = make(place, "rs:4+2", {"large": content})
    lose_journal(roots)
    module = load()
    numbers = {path: module.Stripe(path).records[0].number for path in stripe_paths(roots)}
    assert sorted(set(numbers.values())) == [0, 1, 2]
    for path, number in numbers.items():
        if number == lost:
            path.unlink()
    done = salvage("--to", place.path / "salvaged", *roots, check=False)
    if lost is None:
        assert done.returncode == 0
        return assert_restored(place.path / "salvaged", {"large": content})
    assert done.returncode == 1 and "tree/large: 2 of its 3 objects are there" in done.stderr
    (partial,) = (path for path in (place.path / "salvaged").rglob("*") if path.is_file())
    assert partial.name == "large.partial"
    start, end = lost * (64 << 10), min((lost + 1) * (64 << 10), len(content))
    assert partial.read_bytes() == content[:start] + bytes(end - start) + content[end:]


@pytest.mark.slow
def test_names_that_nobody_expects(place):
    """Deep, no UTF-8, and as what salvage itself makes."""
    names = [b"d/" * 1100 + b"deep", b"no \xff utf-8", b".ecfs-salvage-unfinished", b"lost.partial", b"attributes"]
    endpoints = place.directories()
    archive = place.archive(endpoints)
    mount = place.mount(archive)
    os.makedirs(mount.path / "d", exist_ok=True)
    lab.run("mkdir", "-p", mount.path / ("d/" * 1100))
    for name in names + [b"lost"]:
        with open(os.path.join(os.fsencode(mount.path), name), "wb") as file:
            file.write(name * 2000)
    os.setxattr(mount.path / "attributes", "user.note", b"kept")
    archive.await_stored()
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as connection:
        (lost,), = connection.execute(
            "SELECT o.uuid FROM objects o JOIN extents x ON x.object = o.id JOIN entries n "
            "ON n.ino = x.ino WHERE n.name = CAST ('lost' AS BLOB)").fetchall()
    mount.umount()
    for path in stripe_paths(endpoint.root for endpoint in endpoints):
        if path.name.startswith(lost.hex()):
            path.unlink()
    done = salvage("--to", place.path / "salvaged", *(endpoint.root for endpoint in endpoints), check=False)
    assert done.returncode == 1 and "lost: these bytes cannot be restored" in done.stderr
    for name in names:
        with open(os.path.join(os.fsencode(place.path / "salvaged"), name), "rb") as file:
            assert file.read() == name * 2000
    assert (place.path / "salvaged/lost.partial-2").exists()
    assert os.getxattr(place.path / "salvaged/attributes", "user.note") == b"kept"
    assert not [path for path in (place.path / "salvaged").glob(".ecfs-salvage-*") if path.is_dir()]
    lab.run("rm", "-r", place.path / "salvaged/d")  # too deep for what removes the rest


def section(module, kind, payload, flags=1):
    head = struct.pack("<HHI", kind, flags, len(payload)) + payload
    return head + struct.pack("<Q", module.xxh3_64(head))


def forge(module, like, content, epoch, **public):
    """A stripe of the same object that is complete in itself: a whole copy of other content."""
    fields = {"family": module.COPIES, "k": 1, "n": 3, "index": 0, "segment_bytes": like.segment_bytes // like.k,
              "block_bytes": like.block_bytes, "granule": like.granule, **public}
    header = section(module, 1, struct.pack(
        "<16s16sQQIHHHHIIIHHHH12x", like.archive, like.object, 77, like.sequence, epoch, fields["family"], fields["k"],
        fields["n"], fields["index"], fields["segment_bytes"], fields["block_bytes"], fields["granule"], 1, 8, 0, 0))
    header = module.HEADER_MAGIC + struct.pack("<HHI", 1, 0, 16 + len(header)) + header
    packet = content + bytes(-len(content) % like.granule)
    seed = module.xxh3_64(like.object + bytes(16))
    area = packet + struct.pack("<Q", module.xxh3_64(packet, seed))
    digests = []
    for data in (area, content):
        found = module.Xxh3()
        found.update(data)
        digests.append(found.digest())
    footer = section(module, 16, struct.pack("<QQQ", len(content), len(content), len(area)) + b"".join(digests) + bytes(8))
    tail = struct.pack("<QIHHQQ", len(header) + len(area), len(footer), 1, 0, module.xxh3_64(footer), 0)
    return header + area + footer + tail + struct.pack("<Q", module.xxh3_64(tail)) + module.TAIL_MAGIC


@pytest.mark.parametrize("journal", [True, False])
def test_one_endpoint_that_lies_replaces_no_object(place, journal):
    files = {"small": os.urandom(3000), "large": os.urandom(300_000)}
    _, roots = make(place, "rs:4+2", files)
    if not journal:
        lose_journal(roots)
    module = load()
    for path in stripe_paths(roots):
        like = module.Stripe(path)
        if like.index == 0:
            forged = forge(module, like, b"forged" * 100, 99)
            (roots[0] / "stripes" / path.parent.name).mkdir(parents=True, exist_ok=True)
            target = roots[0] / "stripes" / path.parent.name / f"{like.object.hex()}-00-{77:016x}"
            target.write_bytes(forged)
            assert module.Stripe(target).epoch == 99
    salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)


def test_one_endpoint_that_lies_changes_no_names(place):
    """A snapshot of its own, newer than all others, of nothing; only who is told to believes it."""
    files = {"small": os.urandom(3000), "large": os.urandom(300_000)}
    _, roots = make(place, "rs:4+2", files)
    module = load()
    archive = module.Stripe(stripe_paths(roots)[0]).archive
    like = types.SimpleNamespace(archive=archive, epoch=9, last=1 << 40)
    (roots[2] / "snapshots").mkdir(exist_ok=True)
    (roots[2] / "snapshots/00000009-0000010000000000-00000000-end").write_bytes(
        part_of_snapshot(module, like, 0, 1, 1, []))
    done = salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert "hint" not in done.stdout and "1 of 3: it does not count" in done.stderr
    assert "small" not in salvage("--list", "--believe-all", *roots).stdout


@pytest.mark.parametrize("changes", [{"k": 65535, "n": 65535}, {"family": 4, "k": 30, "n": 60}, {"family": 3},
                                     {"granule": 1}, {"segment_bytes": 3 << 30}, {"index": 65535}])
@pytest.mark.slow
def test_a_forged_stripe_does_not_end_the_run(place, changes):
    files = {"small": os.urandom(3000)}
    _, roots = make(place, "rs:4+2", files)
    module = load()
    like = module.Stripe(stripe_paths(roots)[0])
    other = types.SimpleNamespace(**{**vars(like), "object": os.urandom(16)})
    forged = forge(module, other, b"f" * 128, 1, **changes)
    (roots[0] / "stripes/abc").mkdir(parents=True, exist_ok=True)
    (roots[0] / "stripes/abc/forged").write_bytes(forged)
    os.mkfifo(roots[0] / "stripes/abc/pipe")
    done = salvage("--to", place.path / "salvaged", *roots)
    assert "Traceback" not in done.stderr
    assert_restored(place.path / "salvaged", files)


@pytest.mark.slow
def test_content_that_has_another_sha256_is_never_silently_right(place):
    """Every checksum of the stripes fits; only what the journal says of the content does not."""
    files = {"small": os.urandom(5000), "large": os.urandom(1_000_000)}
    archive, roots = make(place, "rs:4+2", files)
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE objects SET sha256 = ? WHERE size = 1000000", (bytes(32),))
    for root in roots:
        for kind in ("journal", "snapshots"):
            shutil.rmtree(root / kind, ignore_errors=True)
    lab.run(lab.BUILD / "tools/ecfs-fsck", "-y", archive.path, check=False)  # which stores a snapshot anew
    done = salvage("--to", place.path / "salvaged", *roots, check=False)
    assert done.returncode == 1 and "/large" in done.stderr, (done.stdout, done.stderr)
    assert sorted(path.name for path in (place.path / "salvaged/tree").iterdir()) == ["large.partial", "small"]


def test_it_tells_its_version():
    assert salvage("--version").stdout.split() == ["ecfs-salvage", lab.ecfs("--version").stdout.split()[1]]


def flood(module, roots, n):
    """Stripes of objects that nobody else knows, more than the archive has, at the last endpoint."""
    like = module.Stripe(stripe_paths(roots)[0])
    for _ in range(40):
        other = types.SimpleNamespace(**{**vars(like), "object": os.urandom(16)})
        path = roots[-1] / f"stripes/{other.object.hex()[:3]}/{other.object.hex()}-00-{77:016x}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(forge(module, other, b"flood" * 20, 0, n=n))
        module.Stripe(path)


def change_markers(roots, keep, **changes):
    """Without them the stripes are all that tells; with them the last one tells something else."""
    for root in roots if not keep else []:
        (root / "ecfs-endpoint").unlink()
    if keep:
        marker = roots[-1] / "ecfs-endpoint"
        kept = [line for line in marker.read_text().splitlines() if line.split("=")[0] not in changes]
        marker.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in changes.items())]) + "\n")


@pytest.mark.parametrize("markers", [True, False])
def test_one_endpoint_does_not_lower_how_many_must_agree(place, markers):
    """However many objects it alone has, none of which has to be at a second endpoint."""
    files = {"small": os.urandom(3000)}
    _, roots = make(place, "rs:4+2", files)
    module = load()
    flood(module, roots, 1)
    change_markers(roots, markers, copies=1, endpoints=1)
    newest = newest_segment(module, roots[-1])
    put_segment(module, roots[-1], newest, [item(5, struct.pack("<Q", 1) + b"tree")])
    raw = b"".join(newest.pieces()).replace(b"tree", b"evil")
    Path(newest.path).write_bytes(journal_file(module, newest, raw))
    done = salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert "1 of 3: it does not count" in done.stderr and "hint" not in done.stdout
    assert f"{newest.path}: most directories have other bytes of it" in done.stderr


@pytest.mark.parametrize("markers", [True, False])
def test_one_endpoint_does_not_raise_how_many_must_agree(place, markers):
    files = {"small": os.urandom(3000)}
    _, roots = make(place, "rs:4+2", files)
    flood(load(), roots, 200)
    change_markers(roots, markers, copies=200, endpoints=200)
    lose_journal(roots[-1:])
    done = salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert "does not count" not in done.stderr and "hint" not in done.stdout


def test_names_from_outside_do_not_reach_the_terminal(place):
    _, roots = make(place, "rs:4+2", {"small": os.urandom(3000)})
    name = b"\x1b]0;title\x07\x1b[2J\xc2\x9b2J\n\xff\xe2\x80\xaeline"
    for directory in ("stripes", "journal", "snapshots"):
        (roots[0] / directory).mkdir(exist_ok=True)
        with open(os.path.join(os.fsencode(roots[0] / directory), name), "wb") as file:
            file.write(b"junk")
    done = subprocess.run([sys.executable, SALVAGE, "--list", *roots], capture_output=True, check=True)
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 3 and all(line.startswith("ecfs-salvage: ") and line.isprintable() for line in lines)


def test_of_one_directory_only_so_much_is_told(place):
    _, roots = make(place, "rs:4+2", {"small": os.urandom(3000)})
    for number in range(100):
        (roots[3] / f"journal/{9:08x}-{1:016x}-{number + 1:016x}").touch()
    done = salvage("--list", *roots)
    assert len(done.stderr.splitlines()) == 21 and f"{roots[3]}: there are 80 more messages" in done.stderr


@pytest.mark.slow
def test_the_journal_is_not_kept_in_memory(place):
    """Neither what one directory alone has, however much comes of a small file, nor what counts."""
    files = {"small": os.urandom(3000)}
    _, roots = make(place, "rs:4+2", files)
    module = load()
    like = newest_segment(module, roots[0])
    n_records = (16 << 20) // 20
    bomb = journal_file(module, like, struct.pack("<QqI", 1 << 40, 0, 0) * n_records, kind=2, is_last=1, first=0,
                        last=1 << 40, n_records=n_records, time=0)
    (roots[0] / "snapshots").mkdir(exist_ok=True)
    for number in range(2):
        (roots[0] / f"snapshots/{like.epoch:08x}-{(1 << 40) + number:016x}-{0:08x}-end").write_bytes(bomb)
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (120 << 20,) * 2); " \
              "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-c", limited, SALVAGE, "--to", place.path / "salvaged", *roots],
                          check=True, capture_output=True, text=True)
    assert_restored(place.path / "salvaged", files)
    assert done.stderr.count("1 of 3: it does not count") == 2
    record = struct.pack("<QqI", 1 << 40, 0, 5000) + bytes(5000)
    path = place.path / "counts"
    path.write_bytes(journal_file(module, like, record * 6000, kind=2, first=0, last=1 << 40, n_records=6000))
    tracemalloc.start()
    assert sum(1 for _ in module.JournalFile(path).records()) == 6000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("changes", [{"n_records": 2}, {"n_records": 4}, {"raw_bytes": -1}, {"raw_bytes": 1},
                                     {"last": 11}, {"first": 7}, {"last": 9}])
def test_a_segment_has_what_its_header_says(place, changes):
    module, path = load(), place.path / "file"
    raw = b"".join(struct.pack("<QqI", number, 0, 5) + b"12345" for number in (8, 9, 10))
    like = types.SimpleNamespace(archive=bytes(16), epoch=1, kind=1, first=8, last=10, n_records=3, time=0)
    path.write_bytes(journal_file(module, like, raw))
    assert list(module.JournalFile(path).records()) == [(number, b"12345") for number in (8, 9, 10)]
    wrong = bytearray(journal_file(module, like, raw, **changes))
    if "raw_bytes" in changes:
        struct.pack_into("<Q", wrong, 72, len(raw) + changes["raw_bytes"])
        struct.pack_into("<Q", wrong, 136, module.xxh3_64(bytes(wrong[:136])))
    path.write_bytes(wrong)
    with pytest.raises(module.Bad):
        module.JournalFile(path).check()


def test_hints_that_no_file_system_would_take(place):
    module = load()
    for path, name in ((b"/d" * 2047, b"/".join([b"d"] * 2047)), (b"/d" * 2048, b"ino-5"), (b"/d" * 20000, b"ino-5"),
                       (b"/" + b"n" * 255, b"n" * 255), (b"/" + b"n" * 256, b"ino-5"), (b"/a/../b", b"ino-5")):
        assert module.hinted_name(types.SimpleNamespace(path=path, ino=5)) == name
    root = os.fsencode(place.path / "deep")
    os.mkdir(root)
    with pytest.raises(module.Bad):
        module.make_directories(root, b"/".join([b"d"] * 3000))
    assert not os.listdir(root)
    for depth in (1900, 1901, 1900, 2):
        module.make_directories(root, b"/".join([b"d"] * depth))
    assert os.path.isdir(root + b"/d" * 1901)
    lab.run("rm", "-r", place.path / "deep")  # too deep for what removes the rest


def by_index(module, roots):
    """The directories in the order of the stripes of the largest object: its data first."""
    return sorted(roots, key=lambda root: max((stripe.size, stripe.index)
                                              for stripe in map(module.Stripe, stripe_paths([root]))))


def forge_blocks(module, root):
    """The first block of each stripe becomes another one, and its tag fits."""
    for path in stripe_paths([root]):
        stripe, data = module.Stripe(path), bytearray(path.read_bytes())
        size = min(stripe.block_bytes, stripe.packet_of(min(stripe.size, stripe.segment_bytes)))
        data[stripe.header_bytes] ^= 1
        seed = module.xxh3_64(stripe.object + stripe.index.to_bytes(8, "little") + bytes(8))
        block = bytes(data[stripe.header_bytes:stripe.header_bytes + size])
        struct.pack_into("<Q", data, stripe.header_bytes + size, module.xxh3_64(block, seed))
        path.write_bytes(data)


@pytest.mark.parametrize("liars", [1, 2])
@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.slow
def test_forged_blocks_are_read_around(place, liars, journal):
    """By the SHA-256 that the journal has, and without one by the digest that all stripes have."""
    files = {"small": os.urandom(3000), "large": os.urandom(3 << 20)}
    _, roots = make(place, "rs:4+2", files)
    if not journal:
        lose_journal(roots)
    module = load()
    liars = by_index(module, roots)[:liars]
    for root in liars:
        forge_blocks(module, root)
    done = salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert f"only without the stripes in {' and '.join(str(root) for root in sorted(liars))}," in done.stderr


def test_what_is_not_what_was_stored_does_not_get_its_name(place):
    files = {"large": os.urandom(300_000)}
    _, roots = make(place, "rs:4+2", files)
    module = load()
    for root in by_index(module, roots)[:3]:
        forge_blocks(module, root)
    done = salvage("--to", place.path / "salvaged", *roots, check=False)
    assert done.returncode == 1 and "tree/large: these bytes are not what was stored: 0-299999" in done.stderr
    assert sorted(path.name for path in (place.path / "salvaged/tree").iterdir()) == ["large.partial"]
    assert (place.path / "salvaged/tree/large.partial").read_bytes()[1000:2000] == files["large"][1000:2000]


def put_segments(module, root, segments, archive=bytes(16)):
    """{(first, last): {number: what its record holds, where that is not what all have}} with an own name each."""
    (root / "journal").mkdir(parents=True, exist_ok=True)
    for (first, last), other in segments.items():
        records = [item(200, other.get(number, b"%d" % number)) for number in range(first, last + 1)]
        raw = b"".join(struct.pack("<QqI", number, 0, len(record)) + record
                       for number, record in enumerate(records, first))
        like = types.SimpleNamespace(archive=archive, epoch=1, kind=1, first=first, last=last, n_records=len(records),
                                     time=0)
        (root / f"journal/{1:08x}-{first:016x}-{last:016x}").write_bytes(journal_file(module, like, raw))


def records_that_count(module, roots, needed, told):
    """Their numbers, of the directories' only archive."""
    def complain(text, *_):
        told.append(text)

    applied, roots = [], [str(root) for root in roots]
    scattered = module.Scattered(needed, roots, complain)
    journal = module.read_journal(roots, [], scattered, complain)

    def apply(tree, epoch, number, record):
        tree.epoch, tree.number = epoch, number
        applied.append((number, record[6:]))

    module.Tree.apply = apply
    scattered.finish(module.make_trees(journal, scattered, complain).values())
    assert [number for number, _ in applied] == list(range(1, len(applied) + 1))
    return [(number, what) for number, what in applied if what != b"%d" % number], len(applied)


SCATTERED = [{(1, 3): {}, (4, 9): {}, (10, 12): {}}, {(1, 12): {}}, {(1, 5): {}, (5, 7): {}, (7, 12): {}},
             {(1, 1): {}, (2, 8): {}, (8, 12): {}}]


@pytest.mark.parametrize("change, n_counts", [
    ({}, 12),
    ({0: {(1, 12): {6: b"another"}}}, 12),  # three others agree
    ({0: {(1, 3): {}, (4, 12): {6: b"another"}}, 1: {(1, 12): {6: b"another"}}}, 5),  # two have this, and two that
    ({0: {(1, 3): {}}, 1: {(1, 12): {9: b"another"}}}, 8),  # what is not there says nothing
    ({0: {}}, 12), ({0: {}, 1: {}}, 0), ({3: {(1, 40): {}}}, 12),
])
def test_it_is_voted_about_each_record(place, change, n_counts):
    """... where the directories have none of the segments alike; three of four have to agree."""
    module, told, roots = load(), [], [place.path / f"root{number}" for number in range(4)]
    for number, root in enumerate(roots):
        put_segments(module, root, change.get(number, SCATTERED[number]))
    assert records_that_count(module, roots, 3, told) == ([], n_counts)
    assert bool(told) == (n_counts < 12 or 0 in change and (1, 12) in change[0] or 3 in change)


def test_a_damaged_segment_may_have_had_any_record(place):
    module, told, roots = load(), [], [place.path / f"root{number}" for number in range(4)]
    for number, root in enumerate(roots):
        put_segments(module, root, SCATTERED[number])
    for number, name in ((1, (1, 12)), (2, (5, 7))):
        path = roots[number] / f"journal/{1:08x}-{name[0]:016x}-{name[1]:016x}"
        path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert records_that_count(module, roots, 3, told) == ([], 12)
    assert sum("it is damaged" in text for text in told) == 2


@pytest.mark.slow
def test_what_one_directory_tells_costs_little(place):
    """Segments beyond what others have are not read, nor many that are not what they say; no record is kept."""
    module, told, roots = load(), [], [place.path / f"root{number}" for number in range(4)]
    for number, root in enumerate(roots[:3]):
        put_segments(module, root, SCATTERED[number])
    bomb = bytes(12 << 20)
    put_segments(module, roots[3], {(number, 60 + number): {} for number in range(1, 6)})
    module.TORN_MAX = 2
    for path in (roots[3] / "journal").iterdir():
        like = module.JournalFile(path)
        path.write_bytes(journal_file(module, like, struct.pack("<QqI", like.first, 0, len(bomb)) + bomb))
    read = []
    opened = module.JournalFile.pieces
    module.JournalFile.pieces = lambda file: read.append(file.path) or opened(file)
    tracemalloc.start()
    assert records_that_count(module, roots, 3, told) == ([], 12)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20 and sum(str(roots[3]) in path for path in read) <= module.TORN_MAX
