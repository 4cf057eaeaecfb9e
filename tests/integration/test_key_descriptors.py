"""Descriptors of files under a key: who has one reads that file and nothing else, and gets no wrong bytes from anybody."""
import hashlib
import os
import re
import shutil
import stat

import lab
import pytest
from liar import Liar

KIB, MIB = 1 << 10, 1 << 20
SIZE = 20 * MIB + 4321  # two units


@pytest.fixture
def archive(place):
    return place.archive(place.directories(), "rs:4+2", "--key", "file")


@pytest.fixture
def stored(place, archive):
    """The archive with a file, its digest and its descriptor."""
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/planted name")
    lab.ecfs("export", archive.path, "/planted name", "-o", descriptor)
    return archive, digest, descriptor


def fetch(place, descriptor, *words):
    """By the program alone; its process and what it fetched, if it did."""
    target = place.path / "fetched"
    target.unlink(missing_ok=True)
    done = lab.ecfs("fetch", descriptor, target, *words, check=False)
    assert target.exists() == (done.returncode == 0) and len(list(place.path.glob("fetched*"))) <= 1
    return done, lab.digest(target) if target.exists() else None


def ended(text):
    """The descriptor with the digest at its end that fits."""
    body = text.rpartition("\n[end]")[0]
    return f"{body}\n[end]\nsha256={hashlib.sha256(body.encode()).hexdigest()}\n"


def with_value(text, key, change, section="[object 0]"):
    """The descriptor with another value of one key."""
    head, mark, rest = text.partition(section)
    new, count = re.subn(rf"^{re.escape(key)}=(.*)$", lambda found: f"{key}={change(found[1])}", rest, count=1, flags=re.M)
    assert count == 1, key
    return head + mark + new


def other_digit(value):
    return ("1" if value[0] == "0" else "0") + value[1:]


@pytest.mark.slow
def test_another_machine_fetches_a_file_when_archive_and_two_endpoints_are_gone(place):
    servers = [place.sshd("amber"), place.sshd("birch"), *place.directories(["cedar", "delta"]),
               place.web("ember", "nginx"), place.web("fjord", "apache", "tls")]
    archive = place.archive(servers, "rs:4+2", "--key", "file")
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    lab.ecfs("export", archive.path, "/file", "--output", descriptor)
    key = (archive.path / "key").read_bytes()
    shutil.rmtree(archive.path)
    given = [word for server in servers for word in ("--endpoint", server.endpoint())]
    for lost in [[], ["cedar", "ember"], ["amber", "fjord"]]:
        for name in lost:
            archive[name].kill()
        done, found = fetch(place, descriptor, *given)
        assert found == digest, done.stderr
        for name in lost:
            archive[name].start()
    for name in ["cedar", "delta", "ember"]:
        archive[name].kill()
    done, found = fetch(place, descriptor, *given)
    assert done.returncode == 1 and "cedar" in done.stderr
    assert all(key[at:at + 16].hex() not in descriptor.read_text() for at in range(len(key) - 15)), "not the archive's"


@pytest.mark.slow
def test_the_descriptor_is_for_its_owner_alone(place, stored):
    archive, _, descriptor = stored
    assert stat.S_IMODE(descriptor.stat().st_mode) == 0o600
    descriptor.chmod(0o644)
    lab.ecfs("export", archive.path, "/planted name", "-o", descriptor)
    assert stat.S_IMODE(descriptor.stat().st_mode) == 0o600, "also where it replaces one"
    done = lab.ecfs("export", archive.path, "/planted name")
    assert done.stdout == descriptor.read_text() and "can read the file" in done.stderr
    assert re.search(r"^key=([0-9a-f]{64})$", done.stdout, flags=re.M)[1] not in done.stderr
    done = lab.ecfs("export", archive.path, "/planted name", "--format", "fec", check=False)
    assert done.returncode == 1 and "fec" in done.stderr and not done.stdout


@pytest.mark.slow
def test_without_keys_it_tells_sizes_and_places_and_needs_the_archives_key(place, stored):
    archive, digest, descriptor = stored
    full = descriptor.read_text().rpartition("[end]")[0]
    done = lab.ecfs("export", archive.path, "/planted name", "--without-keys", "-o", descriptor)
    text = descriptor.read_text().rpartition("[end]")[0]
    assert not done.stderr and "planted" not in text and not re.search("^(key|sha256)", text, flags=re.M)
    assert [line for line in full.splitlines() if not re.match("(key|sha256|path)=", line)] == \
        [line for line in text.splitlines() if line != "path="]
    done, _ = fetch(place, descriptor)
    assert done.returncode == 1 and "--key" in done.stderr
    assert fetch(place, descriptor, "--key", archive.path / "key")[1] == digest
    other = place.archive(place.directories([f"other{i}" for i in range(6)]), "rs:4+2", "--key", "file")
    done, _ = fetch(place, descriptor, "--key", other.path / "key")
    assert done.returncode == 1 and "key" in done.stderr


@pytest.mark.parametrize("code", ["rs:4+2", "ldpc:3+3", "copies:3"])
@pytest.mark.slow
def test_endpoints_that_return_other_bytes_are_named_and_read_around(place, code):
    names = ["amber", "birch", "cedar", "dogwood", "elm", "fir"]
    archive = place.archive(place.directories(names), code, "--key", "file")
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    lab.ecfs("export", archive.path, "/file", "-o", descriptor)
    stripes = {endpoint.name: path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
    named = set()
    for index, liars in enumerate([*([name] for name in stripes), list(stripes)[:2], list(stripes)[-2:]]):
        lies = {name: stripes[name].read_bytes() for name in liars}
        for name in liars:
            lab.flip(stripes[name], 5000 if index % 2 else len(lies[name]) - 5000)  # in the first unit or the last
        done, found = fetch(place, descriptor)
        assert found == digest, done.stderr
        told = set(re.findall(r"endpoint (\w+): these are not the bytes", done.stderr))
        assert told <= set(liars)
        named |= told  # who is not read need not be named
        for name in liars:
            stripes[name].write_bytes(lies[name])
    assert named
    for name in list(stripes)[:4]:
        lab.flip(stripes[name], 5000)
    done, found = fetch(place, descriptor)
    assert found is None and done.returncode == 1
    assert all(f"endpoint {name}: " in done.stderr for name in list(stripes)[:4]), done.stderr


@pytest.mark.slow
def test_a_liar_that_needs_to_be_believed_is_named(place, stored):
    archive, digest, descriptor = stored
    stripes = {endpoint.name: path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)}
    *dead, liar = sorted(stripes)[:2]
    archive[dead[0]].kill()
    lab.flip(stripes[liar], stripes[liar].stat().st_size - 5000)
    done, found = fetch(place, descriptor)
    assert found == digest
    while f"endpoint {liar}: these are not the bytes" not in done.stderr:  # it was not among the four that were read
        archive[dead[-1]].start()
        dead.append(next(name for name in sorted(stripes) if name not in dead and name != liar))
        archive[dead[-1]].kill()
        done, found = fetch(place, descriptor)
        assert found == digest


@pytest.mark.slow
def test_a_liar_is_found_beside_an_endpoint_that_hangs(place):
    archive = place.archive([place.sshd("amber"), place.sshd("birch"), *place.directories(["cedar", "delta", "elm", "fir"])],
                            "rs:4+2", "--key", "file")
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    lab.ecfs("export", archive.path, "/file", "-o", descriptor)
    given = [word for server in archive.endpoints for word in ("--endpoint", server.endpoint())]
    liar = lab.stripe_files(archive["cedar"])[0]
    lab.flip(liar, 5000)
    archive["amber"].suspend()
    try:
        done, found = fetch(place, descriptor, *given)
    finally:
        archive["amber"].resume()
    assert found == digest, done.stderr


@pytest.mark.slow
def test_a_liar_that_says_the_truth_when_it_is_asked_again_does_no_harm(place):
    """What was compared is what is decoded."""
    liars = [Liar("liar0"), Liar("liar1")]
    try:
        archive = place.archive([*place.directories(["amber", "birch", "cedar", "delta"]), *liars], "rs:4+2", "--key", "file")
        source, descriptor = place.path / "source", place.path / "descriptor"
        digest = lab.write_pattern(source, SIZE)
        archive.put_in_full(source, "/file")
        lab.ecfs("export", archive.path, "/file", "-o", descriptor)
        for name in ["amber", "birch"]:
            archive[name].kill()

        def lie(handler, path, asked={}):  # noqa: B006
            if "stripes" not in path or "Range" not in handler.headers:
                return False
            wanted = handler.headers["Range"]
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            asked[path] = asked.get(path, 0) + 1
            part = bytearray(handler.liar.files[path][first:last + 1])
            if asked[path] % 2:
                part[len(part) // 2] ^= 1
            handler.answer(206, bytes(part), Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(handler.liar.files[path])}")
            return True

        liars[0].lies["GET"] = liars[1].lies["GET"] = lie
        done, found = fetch(place, descriptor)
        assert found in (digest, None) and (found == digest or "liar" in done.stderr), done.stderr
        liars[1].lies.clear()
        archive["amber"].start()
        done, found = fetch(place, descriptor)
        assert found == digest, done.stderr
    finally:
        for liar in liars:
            liar.kill()


@pytest.mark.slow
def test_stripes_that_are_short_or_empty_are_read_around(place, stored):
    archive, digest, descriptor = stored
    stripes = [path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)]
    os.truncate(stripes[0], stripes[0].stat().st_size // 2)
    os.truncate(stripes[3], 0)
    assert fetch(place, descriptor)[1] == digest
    os.truncate(stripes[5], 3000)
    done, _ = fetch(place, descriptor)
    assert done.returncode == 1 and "endpoint " in done.stderr


@pytest.mark.slow
def test_what_was_changed_in_a_descriptor_gives_no_other_bytes(place, stored):
    _, digest, descriptor = stored
    text = descriptor.read_text()
    for key in ["key", "seal", "uuid", "sha256", "unit-0", "unit-1", "size"]:
        changed = with_value(text, key, other_digit)
        descriptor.write_text(changed)
        done, _ = fetch(place, descriptor)
        assert done.returncode == 1 and "changed" in done.stderr, key
        descriptor.write_text(ended(changed))
        done, _ = fetch(place, descriptor)
        assert done.returncode == 1 and "changed" not in done.stderr, key
    of_a_stripe = with_value(text, "unit-1", lambda value: value[:64] + other_digit(value[64:]))
    descriptor.write_text(ended(of_a_stripe))
    assert fetch(place, descriptor)[1] == digest
    for key, value in [("unit_segments", "0"), ("unit_segments", "4294967295"), ("unit_segments", "x"), ("seal", ""),
                       ("seal", "0900" + "00" * 32), ("unit-1", ""), ("key", "00")]:
        descriptor.write_text(ended(with_value(text, key, lambda _, value=value: value)))
        done, _ = fetch(place, descriptor)
        assert done.returncode == 1 and "[object 0]" in done.stderr, (key, value, done.stderr)
    descriptor.write_text(ended(with_value(text, "unit_segments", lambda _: "9")))
    done, _ = fetch(place, descriptor)
    assert done.returncode == 1 and "digests" in done.stderr and "these are not the bytes" not in done.stderr
    for new in ["format=4", "format=1"]:
        descriptor.write_text(ended(text.replace("format=2", new, 1)))
        done, _ = fetch(place, descriptor)
        assert done.returncode == 1, new
    lines = text.splitlines(keepends=True)
    for end in range(len(lines)):
        descriptor.write_text("".join(lines[:end]) + lines[end][:len(lines[end]) // 2])
        assert fetch(place, descriptor)[1] is None, end


@pytest.mark.slow
def test_files_of_several_objects_holes_and_parts_have_descriptors(place):
    place.object_max = 64 * KIB
    archive = place.archive(place.directories(), "rs:4+2", "--key", "file")
    mount = place.mount(archive)
    (mount.path / "empty").touch()
    (mount.path / "small").write_bytes(b"x" * 100)
    lab.write_pattern(mount.path / "objects", 160 * KIB)
    with open(mount.path / "sparse", "wb") as file:
        file.seek(3_000_000)
        file.write(os.urandom(300_000))
        file.truncate(9_000_000)
    lab.write_pattern(mount.path / "cut", 160 * KIB)
    archive.await_stored()
    os.truncate(mount.path / "cut", 100_001)
    os.truncate(mount.path / "sparse", 3_123_457)
    archive.await_stored()
    descriptor = place.path / "descriptor"
    for name in ["empty", "small", "objects", "sparse", "cut"]:
        lab.ecfs("export", mount.path / name, "-o", descriptor)
        done, found = fetch(place, descriptor)
        assert found == lab.digest(mount.path / name), (name, done.stderr)
    assert len(set(re.findall("^key=.*", descriptor.read_text(), flags=re.M))) == 2, "each object has its own key"
    descriptor.write_text(with_value(descriptor.read_text(), "key", other_digit, "[object 1]"))
    done, _ = fetch(place, descriptor)  # of a part of an object nothing else tells a key that is damaged
    assert done.returncode == 1 and "changed" in done.stderr
    mount.umount()


@pytest.mark.slow
def test_export_takes_no_lie_for_the_truth(place, archive):
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    stripes = [path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint)]
    for path in stripes[:2]:
        lab.flip(path, 5000)
    lab.ecfs("export", archive.path, "/file", "-o", descriptor)
    done, found = fetch(place, descriptor)
    assert found == digest, done.stderr
    lab.flip(stripes[2], 5000)
    descriptor.unlink()
    done = lab.ecfs("export", archive.path, "/file", "-o", descriptor, check=False)
    assert done.returncode == 1 and not descriptor.exists()


def test_files_without_a_key_have_the_descriptors_that_they_had(place):
    archive = lab.Archive(place.path / "clear", place.directories())
    archive.init("--key", "none")
    source, descriptor = place.path / "source", place.path / "descriptor"
    digest = lab.write_pattern(source, MIB)
    archive.put_in_full(source, "/file")
    done = lab.ecfs("export", archive.path, "/file")
    assert "format=1" in done.stdout and not done.stderr
    assert not set(re.findall(r"^\w+(?==)", done.stdout, flags=re.M)) & {"seal", "key", "unit_segments"}
    lab.ecfs("export", archive.path, "/file", "--without-keys", "-o", descriptor)
    assert descriptor.read_text() == done.stdout
    assert fetch(place, descriptor)[1] == digest
