"""tools/ecfs-salvage restores an archive with a key, given that key, and nothing without; with an AES of its own."""
import os
import shutil
import struct
import sys
import types
import zlib
from pathlib import Path

import lab
import pytest
from test_salvage import (SALVAGE, assert_restored, contents, forge, item, load, lose_journal, make,
                          newest_segment, put_segment, records_that_count, salvage, section, stripe_paths, without_keys)

__all__ = ["without_keys"]  # of those archives that are to have none

# FIPS 197, C.3; NIST SP 800-38A, F.5.5; the test cases 13 to 16 of McGrew and Viega, "The Galois/Counter Mode of
# Operation", of which the last has bound bytes, and no whole number of blocks.
BLOCK_KEY, BLOCK, BLOCK_SEALED = bytes(range(32)), "00112233445566778899aabbccddeeff", "8ea2b7ca516745bfeafc49904b496089"
STREAM_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
STREAM_COUNTER = 0xf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff
STREAM = ("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
          "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")
STREAM_SEALED = ("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
                 "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6")
GCM_KEY, GCM_NONCE = "feffe9928665731c6d6a8f9467308308" * 2, "cafebabefacedbaddecaf888"
GCM_TEXT = ("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255")
GCM_SEALED = ("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
              "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad")
GCM = [("00" * 32, "00" * 12, "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
       ("00" * 32, "00" * 12, "", "00" * 16, "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"),
       (GCM_KEY, GCM_NONCE, "", GCM_TEXT, GCM_SEALED, "b094dac5d93471bdec1a502270e3cc6c"),
       (GCM_KEY, GCM_NONCE, "feedfacedeadbeef" * 2 + "abaddad2", GCM_TEXT[:-8], GCM_SEALED[:-8],
        "76fc6ece0f4e1768cddf8853bb2d551b")]
# RFC 5869, A.1 and A.2, of which the first 32 bytes are taken.
HKDF = [("0b" * 22, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"),
        (bytes(range(0x50)).hex(), bytes(range(0x60, 0xb0)).hex(), bytes(range(0xb0, 0x100)).hex(),
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c")]


@pytest.fixture(params=["plain", "library"])
def aes(request):
    module = load()
    if request.param == "library" and not module.LibraryAes.load():
        pytest.skip("there is no libcrypto")
    return module.PlainAes if request.param == "plain" else module.LibraryAes


def test_block_of_the_standard():
    assert load().PlainAes(BLOCK_KEY).encrypt(bytes.fromhex(BLOCK)).hex() == BLOCK_SEALED


def test_stream_of_the_standard(aes):
    cipher = aes(bytes.fromhex(STREAM_KEY))
    assert cipher.stream(STREAM_COUNTER, bytes.fromhex(STREAM)).hex() == STREAM_SEALED
    assert cipher.stream(STREAM_COUNTER + 1, bytes.fromhex(STREAM_SEALED[32:70])).hex() == STREAM[32:70]
    assert cipher.stream(STREAM_COUNTER, b"") == b""


@pytest.mark.parametrize("key, nonce, bound, text, sealed, tag", GCM)
def test_sealed_bytes_of_the_standard(aes, key, nonce, bound, text, sealed, tag):
    cipher, bound, whole = aes(bytes.fromhex(key)), bytes.fromhex(bound), bytes.fromhex(nonce + sealed + tag)
    assert cipher.open(bound, whole) == bytes.fromhex(text)
    assert cipher.open(bound + b"\0", whole) is None
    for at in range(len(whole)):
        assert cipher.open(bound, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]) is None


@pytest.mark.parametrize("secret, salt, label, key", HKDF)
def test_keys_of_the_standard(secret, salt, label, key):
    assert load().derive(*map(bytes.fromhex, (secret, salt, label))).hex() == key


def test_its_own_aes_is_that_of_the_library():
    module = load()
    if not module.LibraryAes.load():
        pytest.skip("there is no libcrypto to compare with")
    for size in [*range(50), 4095, 32767, 32768, 32769, 100_001]:
        key, data, bound, nonce = os.urandom(32), os.urandom(size), os.urandom(size % 37), os.urandom(12)
        assert module.PlainAes(key).stream(size, data) == module.LibraryAes(key).stream(size, data), size
        assert module.LibraryAes(key).open(bound, seal(module, key, bound, data, nonce)) == data, size


def test_too_few_bytes_are_not_authentic(aes):
    module = load()
    module.Aes = aes
    for size in range(30):
        with pytest.raises(module.Bad):
            module.open_sealed(bytes(32), b"", bytes(size))


def test_deciphering_begins_anywhere(aes):
    thing, data = types.SimpleNamespace(cipher=aes(os.urandom(32))), os.urandom(100)
    sealed = thing.cipher.stream(0, data)
    for at in range(40):
        assert load().Object.decipher(thing, at, sealed[at:at + 50]) == data[at:at + 50], at


def seal(module, key, bound, data, nonce=bytes(12)):
    """As GCM seals, by what salvage has of it to open."""
    aes, first = module.PlainAes(key), int.from_bytes(nonce + bytes([0, 0, 0, 1]), "big")
    text = aes.stream(first + 1, data)
    return nonce + text + aes.stream(first, aes.hash(bound, text))


def make_keyed(place, code, files):
    """Directories with an archive that has a key, and a copy of that."""
    archive, roots = make(place, code, files, "--key", "file")
    key = place.path / f"key-{next(place.numbers)}"
    shutil.copy2(archive.path / "key", key)
    shutil.rmtree(archive.path)
    return key, roots


def load_keyed(key):
    module = load()
    module.KEYS = module.Keys(Path(key).read_bytes())
    return module


@pytest.mark.parametrize("code", ["rs:4+2", "rs:8+3", "ldpc:8+6", "basic:4+4", "copies:3"])
@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.slow
def test_files_come_back_with_the_key(place, code, journal):
    """Without one endpoint, and with damage in every stripe of another; by the journal's names, and by hints alone."""
    files = contents()
    key, roots = make_keyed(place, code, files)
    if not journal:
        lose_journal(roots)
    for path in stripe_paths(roots[:1]):
        lab.flip(path, path.stat().st_size // 2)
    done = salvage("--key", key, "--to", place.path / "salvaged", *roots[:-1])
    assert_restored(place.path / "salvaged", files)
    assert ("hint" in done.stdout) == (not journal) and "not authentic" not in done.stderr


@pytest.mark.several_objects
@pytest.mark.slow
def test_names_come_back_with_the_key(place):
    source = place.path / "source"
    lab.add_oddities(source)
    os.chmod(source / "odd/size-1", 0o755)  # set-user-ID bits are not restored
    endpoints = place.directories()
    archive = place.archive(endpoints, "rs:4+2", "--key", "file")
    mount = place.mount(archive)
    lab.run("rsync", "-aHX", f"{source}/", f"{mount.path}/")
    (mount.path / "gone").write_bytes(os.urandom(50_000))
    (mount.path / "moved").write_bytes(b"moved")
    os.setxattr(mount.path / "moved", "user.note", b"kept")
    archive.await_stored()
    (mount.path / "gone").unlink()
    (mount.path / "moved").rename(mount.path / "odd/moved here")
    archive.await_stored()
    expected = lab.describe_tree(mount.path)
    mount.umount()
    done = salvage("--key", archive.path / "key", "--to", place.path / "salvaged",
                   *(endpoint.root for endpoint in endpoints[2:]))
    lab.assert_same_tree(expected, lab.describe_tree(place.path / "salvaged"))
    assert done.stderr == ""


@pytest.mark.slow
def test_its_own_aes_restores_files(place):
    files = {"small": os.urandom(3001), "middle": os.urandom(300_007)}
    key, roots = make_keyed(place, "rs:4+2", files)
    salvage("--slow-aes", "--key", key, "--to", place.path / "salvaged", *roots[1:])
    assert_restored(place.path / "salvaged", files)
    hidden = ("import ctypes.util, runpy, sys; ctypes.util.find_library = lambda name: None; "
              "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
    lab.run(sys.executable, "-I", "-c", hidden, SALVAGE, "--key", key, "--to", place.path / "without", *roots[1:])
    assert_restored(place.path / "without", files)


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.slow
def test_nothing_comes_back_without_the_key(place, journal):
    key, roots = make_keyed(place, "rs:4+2", {"small": os.urandom(3000)})
    other, _ = make_keyed(place, "copies:3", {"small": os.urandom(3000)})
    if not journal:
        lose_journal(roots)
    module, bad, archive = load(), place.path / "bad", load_keyed(key).KEYS.archive
    ring = key.read_bytes()[:32] + os.urandom(32)
    bad.write_bytes(ring + struct.pack("<Q", module.xxh3_64(ring)))
    damaged = place.path / "damaged"
    damaged.write_bytes(bytes([*key.read_bytes()[:40], key.read_bytes()[40] ^ 1, *key.read_bytes()[41:]]))
    for options, message in (((), "this archive has a key: "), (("--archive", archive.hex()), "this archive has a key: "),
                             (("--key", other), "of which the directories have nothing"),
                             (("--key", bad), f", which {bad} does not have: "),
                             (("--key", damaged), f"{damaged}: it is damaged"),
                             (("--key", place.path / "none"), "No such file"),
                             (("--key", SALVAGE), f"{SALVAGE}: it is no key of an archive"),
                             (("--key", key, "--archive", bytes(16).hex()), f"{key}: it is the key of archive ")):
        for what in (("--to", place.path / "salvaged"), ("--list",)):
            done = salvage(*options, *what, *roots, check=False)
            assert done.returncode == 2 and message in done.stderr, (options, done.stderr)
            assert len(done.stderr.splitlines()) == 1 and done.stdout == ""
            assert not (place.path / "salvaged").exists()


@pytest.mark.slow
def test_only_its_own_archive_is_restored_with_a_key(place):
    """Anybody can put the stripes of another archive there; the names of that are not those of this."""
    files = {"small": os.urandom(3000)}
    key, roots = make_keyed(place, "rs:4+2", files)
    _, others = make(place, "rs:4+2", {"other": os.urandom(3000)})
    for root, other in zip(roots, others):
        for path in stripe_paths([other]):
            (root / path.relative_to(other)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / path.relative_to(other))
    done = salvage("--key", key, "--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert "tree/other" not in done.stdout and "not sealed" not in done.stderr
    assert "tree/other" in salvage("--list", "--archive", newest_segment(load(), others[0]).archive.hex(), *roots).stdout


def test_one_endpoint_with_sealed_files_does_not_keep_an_open_archive_back(place):
    files = {"small": os.urandom(3000), "large": os.urandom(300_000)}
    _, roots = make(place, "rs:4+2", files)
    _, keyed = make_keyed(place, "rs:4+2", files)
    shutil.rmtree(roots[0])
    shutil.copytree(keyed[0], roots[0])
    done = salvage("--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert "it is sealed: --key opens it" in done.stderr


def test_open_stripes_and_records_are_none_of_an_archive_with_a_key(place):
    """However many have them, and whatever is believed."""
    files = {"small": os.urandom(3000)}
    key, roots = make_keyed(place, "rs:4+2", files)
    module = load_keyed(key)
    like, newest = module.Stripe(stripe_paths(roots)[0]), newest_segment(module, roots[0])
    other = types.SimpleNamespace(**{**vars(like), "object": os.urandom(16), "segment_bytes": 4096, "granule": 64})
    for root in roots:
        for number, thing in enumerate((like, other)):
            path = root / "stripes/abc" / f"forged-{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(forge(load(), thing, b"forged" * 100, 99))
    put_segment(load(), roots[0], newest, [item(5, struct.pack("<Q", 1) + b"tree")])
    done = salvage("--key", key, "--believe-all", "--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    refused = [line for line in done.stderr.splitlines() if "it is not sealed, so it is not of this archive" in line]
    assert sum("/forged-" in line for line in refused) == 2 * len(roots)
    assert any(f"{roots[0]}/journal/" in line for line in refused)


def put(data, at, form, *values):
    struct.pack_into(form, data, at, *values)


def rehash(module, stripe, data, footer_at=None):
    """Every checksum that anybody can compute is right again."""
    def rehash_sections(at, end):
        while at < end:
            size = struct.unpack_from("<I", data, at + 4)[0]
            put(data, at + 8 + size, "<Q", module.xxh3_64(bytes(data[at:at + 8 + size])))
            at += 16 + size

    rehash_sections(16, stripe.header_bytes)
    footer_at = footer_at or stripe.header_bytes + stripe.area_bytes
    rehash_sections(footer_at, len(data) - 48)
    put(data, len(data) - 32, "<Q", module.xxh3_64(bytes(data[footer_at:-48])))
    put(data, len(data) - 16, "<Q", module.xxh3_64(bytes(data[-48:-16])))


def change_instance(module, stripe, data):
    put(data, 16 + 8 + 32, "<Q", 77)


def change_index(module, stripe, data):
    put(data, 16 + 8 + 16 + 16 + 8 + 8 + 4 + 2 + 2 + 2, "<H", stripe.index ^ 1)


def change_mac(module, stripe, data):
    data[data.index(struct.pack("<HHI", 2, 0, 32)) + 8] ^= 1


def change_size(module, stripe, data):
    at = stripe.header_bytes + stripe.area_bytes + 8
    put(data, at, "<QQ", stripe.size - 1, stripe.size - 1)


def change_digest(module, stripe, data):
    data[stripe.header_bytes + stripe.area_bytes + 8 + 40] ^= 1


def change_records(module, stripe, data):
    data[data.index(struct.pack("<HHI", 19, 1, 0)[:4], stripe.header_bytes + stripe.area_bytes) + 8 + 20] ^= 1


def add_behind_the_mac(module, stripe, data):
    footer_bytes = struct.unpack_from("<I", data, len(data) - 40)[0]
    more = section(module, 17, b"")
    data[len(data) - 48:len(data) - 48] = more
    put(data, len(data) - 40, "<I", footer_bytes + len(more))


@pytest.mark.parametrize("change", [change_instance, change_index, change_mac, change_size, change_digest,
                                    change_records, add_behind_the_mac])
@pytest.mark.slow
def test_a_stripe_is_authentic_or_none(place, change):
    """What is changed has checksums that fit. Of two of six stripes: the others suffice."""
    files = {"small": os.urandom(3000), "large": os.urandom(300_000)}
    key, roots = make_keyed(place, "rs:4+2", files)
    module = load_keyed(key)
    paths = [path for path in stripe_paths(roots) if module.Stripe(path).size == 300_000][:2]
    for path in paths:
        stripe, data = module.Stripe(path), bytearray(path.read_bytes())
        rehash(module, stripe, data)
        assert bytes(data) == path.read_bytes()  # as it was: what follows is refused for the change alone
        change(module, stripe, data)
        rehash(module, stripe, data)
        path.write_bytes(data)
        with pytest.raises(module.Bad, match="authentic|its MAC"):
            module.Stripe(path)
    done = salvage("--key", key, "--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)
    assert all(str(path) in done.stderr for path in paths)


def test_blocks_have_macs(place):
    """A block with a checksum that fits is none; nor one of another place, with its own tag."""
    files = {"large": os.urandom(3 << 20)}
    key, roots = make_keyed(place, "rs:4+2", files)
    module = load_keyed(key)
    (moved, *_, changed) = [path for path in stripe_paths(roots) if module.Stripe(path).size == 3 << 20]
    stripe, data = module.Stripe(moved), bytearray(moved.read_bytes())
    step, at = stripe.block_bytes + 16, stripe.header_bytes
    data[at:at + step], data[at + step:at + 2 * step] = data[at + step:at + 2 * step], data[at:at + step]
    moved.write_bytes(data)
    data = bytearray(changed.read_bytes())
    data[at] ^= 1
    block = bytes(data[at:at + stripe.block_bytes])
    put(data, at + stripe.block_bytes, "<Q", module.xxh3_64(block))
    changed.write_bytes(data)
    thing = module.Object([module.Stripe(moved), module.Stripe(changed)])
    (first, *_), (second, *_) = (thing.stripes[index] for index in thing.stripes)
    assert [thing.read_block(first, 0, block, stripe.block_bytes) for block in (0, 1)] == [None, None]
    assert thing.read_block(second, 0, 0, stripe.block_bytes) is None
    assert thing.read_block(first, 0, 2, stripe.block_bytes) and thing.read_block(second, 0, 1, stripe.block_bytes)
    thing.close()
    salvage("--key", key, "--to", place.path / "salvaged", *roots)
    assert_restored(place.path / "salvaged", files)


ARCHIVE = bytes(range(16))


def keyed_module():
    module = load()
    ring = module.Keys.MAGIC + struct.pack("<HHI", 1, 2, 0) + ARCHIVE + bytes(range(64))
    module.KEYS = module.Keys(ring + struct.pack("<Q", module.xxh3_64(ring)))
    return module


def sealed_file(module, first, last, kind=1, time=0, level=1, number=0, changed=()):
    """The bytes of a segment or, with the last number alone, of a snapshot, sealed under this of the keys; `changed`:
    (offset, byte) of the header after that."""
    numbers = [(at, at if kind == 1 else last) for at in range(first, last + 1)]
    raw = b"".join(struct.pack("<QqI", at, 0, len(record)) + record
                   for record, at in ((item(200, b"%d" % number), at) for number, at in numbers))
    text, salt, key_id = zlib.compress(raw, level), os.urandom(16), list(module.KEYS.by_id)[number]
    head = struct.pack("<8sHHHH16sIIIIQQqQQ16s16s16s", module.JOURNAL_MAGIC, 1, kind, 1, 1, ARCHIVE, 1, 0, kind - 1,
                       len(numbers), first if kind == 1 else 0, last, time, len(raw), len(text) + 28, bytes(16), key_id, salt)
    key = module.KEYS.derive(key_id, b"journal", salt)
    sealed = seal(module, key, head[:88] + head[104:], text, os.urandom(12))
    digest, head = module.Xxh3(), bytearray(head)
    digest.update(sealed)
    head[88:104] = digest.digest()
    for at, byte in changed:
        head[at] = byte
    return bytes(head) + struct.pack("<Q", module.xxh3_64(bytes(head))) + sealed


def put_sealed(module, root, first, last, kind=1, **how):
    path = root / (f"journal/{1:08x}-{first:016x}-{last:016x}" if kind == 1 else f"snapshots/{1:08x}-{last:016x}-{0:08x}-end")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sealed_file(module, first, last, kind, **how))


@pytest.mark.parametrize("slow", [False, True])
def test_the_same_records_sealed_twice_are_the_same(place, slow):
    """Three directories must agree, and no two have the same bytes: of one segment, compressed and sealed in other ways,
    and of those of other bounds."""
    module, told, roots = keyed_module(), [], [place.path / f"root{number}" for number in range(4)]
    if not slow and module.LibraryAes.load():
        module.Aes = module.LibraryAes
    for number, root in enumerate(roots[:3]):
        put_sealed(module, root, 1, 5, level=3 * number, number=number % 2)
        put_sealed(module, root, 6, 8 + number)
        put_sealed(module, root, 9 + number, 20)
    assert records_that_count(module, roots, 3, told) == ([], 20) and told == []


@pytest.mark.parametrize("times, counts", [((5, 5, 5), True), ((5, 6, 5), False)])
def test_a_snapshot_that_was_sealed_twice_is_the_same(place, times, counts):
    """Three directories must agree; of another time it is another."""
    module, told, roots = keyed_module(), [], [place.path / f"root{number}" for number in range(3)]
    for number, root in enumerate(roots):
        put_sealed(module, root, 1, 9, kind=2, time=times[number], number=number % 2)
    scattered = module.Scattered(3, list(map(str, roots)), lambda text, *_: told.append(text))
    ((snapshots, _),) = module.read_journal(list(map(str, roots)), [], scattered, scattered.complain).values() or [({}, [])]
    assert bool(snapshots) == counts == (told == [])


@pytest.mark.parametrize("at", [10, 32, 36, 40, 44, 64, 71, 72, 104, 120])
def test_a_header_of_the_journal_is_bound_to_its_records(place, at):
    module, path = keyed_module(), place.path / "segment"
    path.write_bytes(sealed_file(module, 8, 10))
    good = path.read_bytes()
    assert [number for number, _ in module.JournalFile(path).records()] == [8, 9, 10]
    path.write_bytes(sealed_file(module, 8, 10, changed=[(at, good[at] ^ 3)]))
    with pytest.raises(module.Bad, match="not authentic|does not have"):
        module.JournalFile(path).check()


def test_records_are_read_with_their_own_key_alone(place):
    module, path = keyed_module(), place.path / "segment"
    path.write_bytes(sealed_file(module, 8, 10, number=1))
    module.JournalFile(path).check()
    kept = module.KEYS.by_id.pop(list(module.KEYS.by_id)[1])
    with pytest.raises(module.Bad, match="which the given file does not have"):
        module.JournalFile(path).check()
    module.KEYS.by_id = {key_id: kept for key_id in [module.JournalFile(path).key_id]}
    module.JournalFile(path).check()
    for keys in (None, types.SimpleNamespace(archive=bytes(16))):
        module.KEYS = keys
        with pytest.raises(module.Bad, match="--key opens it"):
            module.JournalFile(path).check()


def test_marker_counts_where_the_key_made_it(place):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init("--key", "file")
    place.mount(archive).umount()
    module = load()
    marker = archive.endpoints[0].root / "ecfs-endpoint"
    text, other = marker.read_text(), (archive.endpoints[1].root / "ecfs-endpoint").read_text()
    mac, another = (one.rpartition("mac=")[2] for one in (text, other))
    assert module.marker_says(marker.parent) == (3, 6)
    module.KEYS = module.Keys((archive.path / "key").read_bytes())
    assert module.marker_says(marker.parent) == (3, 6)
    for false in (text.replace("copies=3", "copies=1"), text.replace(mac, another), text.replace("mac=", "mad="),
                  text.rpartition("key=")[0], text + "\n", text[:-2]):
        marker.write_text(false)
        assert module.marker_says(marker.parent) is None


def key_files(threshold, *roots):
    """Files of one list of shares that these directories have."""
    shares = [(x, bytes([threshold]) + bytes([x]) * 31) for x in range(1, 6)]
    generation, digests = bytes([threshold, len(roots)]) * 8, [bytes([threshold, x]) * 16 for x, _ in shares]
    return [types.SimpleNamespace(generation=generation, threshold=threshold, digests=digests, x=x, share=share,
                                  root=root, has_right_share=lambda: True) for (x, share), root in zip(shares, roots)]


def test_few_cannot_offer_another_secret():
    """As in ecfs: a list of shares that asks for fewer than another one does not count where only so few have it."""
    module = load()
    liars, honest = key_files(2, "amber", "birch"), key_files(3, "cedar", "delta", "ember")
    for few in (honest[:1], honest[:2]):
        assert module.gather(liars + few) == (None, None)
    assert module.gather(liars)[1] == liars[0].generation
    assert module.gather(liars + honest)[1] == honest[0].generation


def test_who_asks_for_many_shares_stops_nobody():
    """As in ecfs: two of six that ask for 200 are known to lie, as more than have to agree with the others do so."""
    module = load()
    liars, honest = key_files(200, "amber", "birch"), key_files(3, "cedar", "delta", "ember", "fjord")
    assert module.gather(liars + honest)[1] == honest[0].generation
    assert module.established(liars + honest) == [honest]
    assert module.gather(liars + honest[:3]) == (None, None)
    assert module.established(liars + honest[:3]) == []
