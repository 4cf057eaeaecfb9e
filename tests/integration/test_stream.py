"""Files that are stored while they are written, and closes that return at the quorum."""
import contextlib
import os
import time

import lab
import pytest

pytestmark = pytest.mark.long

KIB, MIB = 1 << 10, 1 << 20
EXPANSION = 6 / 4  # of rs:4+2
SIZE = 6 * MIB


def stored_bytes(archive):
    return sum(lab.size_of(path) for endpoint in archive.endpoints for path in lab.stripe_files(endpoint))


def await_bytes(archive, least):
    lab.until(lambda: stored_bytes(archive) >= least, 120, f"{least} bytes are at the endpoints")


def await_only(archive, size):
    """Until abandoned stripes are gone, and those of a file of so many bytes are all there is."""
    expected = size * EXPANSION
    lab.until(lambda: expected <= stored_bytes(archive) <= expected * 1.05, 120, "nothing else is left")


@pytest.fixture(params=["file", "sftp"])
def archive(request, place):
    """With segments of which a small file has several."""
    endpoints = place.directories() if request.param == "file" else [place.sshd(name) for name in lab.NAMES]
    archive = place.archive(endpoints)
    archive.configure("archive", segment_size="64K", deletion_grace="0")
    return archive


@pytest.mark.slow
def test_is_at_the_endpoints_before_close(archive, place):
    mount = place.mount(archive)
    content = os.urandom(SIZE)
    with open(mount.path / "file", "wb", buffering=0) as file:
        file.write(content[:SIZE // 2])
        await_bytes(archive, SIZE // 2)  # without those that the last segment lacks: more than the content itself
        assert os.getxattr(mount.path / "file", "user.ecfs.state").startswith(b"staged")
        file.write(content[SIZE // 2:])
    await_only(archive, SIZE)
    lab.forget_mounts()
    assert (mount.path / "file").read_bytes() == content


@pytest.mark.slow
def test_changes_of_what_was_sent_are_in_what_is_stored(archive, place):
    mount = place.mount(archive)
    content = bytearray(os.urandom(SIZE))
    with open(mount.path / "file", "wb", buffering=0) as file:
        file.write(content)
        await_bytes(archive, SIZE)
        content[MIB:MIB + 5] = b"these"
        file.seek(MIB)
        file.write(b"these")
    archive.await_stored()
    await_only(archive, SIZE)
    mount.umount()
    mount.start()
    assert (mount.path / "file").read_bytes() == content


@pytest.mark.slow
def test_a_crash_in_the_middle_leaves_nothing(archive, place):
    mount = place.mount(archive)
    file = os.open(mount.path / "file", os.O_WRONLY | os.O_CREAT)
    assert os.write(file, os.urandom(SIZE)) == SIZE
    await_bytes(archive, SIZE)
    mount.kill()
    with contextlib.suppress(OSError):  # nobody is there to answer
        os.close(file)
    mount.start()
    assert not (mount.path / "file").exists()
    lab.until(lambda: stored_bytes(archive) == 0, 120, "nothing of it is left")


AT = pytest.mark.parametrize("close_at", ["quorum", "full"])


TRIES = 4  # on a busy machine a line may be silent for so long that its stripe is given up and begun anew


class Straggling:
    """A mount, and one of its six servers on a slow line, which by default is certain to be late."""

    def __init__(self, place, close_at="full", **settings):
        last = place.behind_proxy(lab.NAMES[5])
        self.line = last.proxy
        self.archive = place.archive([*map(place.sshd, lab.NAMES[:5]), last])
        self.archive.configure("archive", close_at=close_at, deletion_grace="0", **settings)
        self.mount = place.mount(self.archive)
        (self.mount.path / "first").write_bytes(b"connects")
        self.archive.await_stored()
        self.line.tell("throttle", 32 * KIB)

    def sent(self):
        return self.line.status()["up"]

    def state(self, name):
        return os.getxattr(self.mount.path / name, "user.ecfs.state").decode()


@AT
@pytest.mark.slow
def test_close_waits_for_no_straggler(place, close_at):
    world = Straggling(place, close_at)
    content = os.urandom(2 * MIB)
    sent = []
    for number in range(TRIES):
        path = world.mount.path / f"file{number}"
        before = world.sent()
        begin = time.monotonic()
        path.write_bytes(content)
        assert time.monotonic() - begin < 9  # its stripe takes 16 seconds there
        assert world.state(path.name).startswith("quorum 5/6")
        world.line.tell("throttle", 0)
        world.archive.await_stored()
        assert world.state(path.name).startswith("full 6/6")
        sent.append(world.sent() - before)
        lab.forget_mounts()
        assert path.read_bytes() == content
        if sent[-1] < 1.5 * len(content) / 4:  # it went on where it was
            return
        world.line.tell("throttle", 32 * KIB)
    raise AssertionError(sent)


@AT
@pytest.mark.parametrize("by_verb", [True, False], ids=["umount", "SIGTERM"])
@pytest.mark.slow
def test_ending_a_mount_waits_for_its_stragglers(place, by_verb, close_at):
    world = Straggling(place, close_at)
    world.line.tell("throttle", 256 * KIB)
    for number in range(TRIES):
        (world.mount.path / f"file{number}").write_bytes(os.urandom(8 * MIB))
        assert world.state(f"file{number}").startswith("quorum 5/6")
        if by_verb:
            world.mount.umount()
        else:
            world.mount.process.terminate()
            assert world.mount.process.wait(60) == 0
            world.mount.process = None
        if world.archive.json("info", f"/file{number}")["state"].startswith("full 6/6"):
            assert number > 0 or "not on all of their endpoints" not in world.mount.text()
            return
        assert "not on all of their endpoints" in world.mount.text()
        world.mount.start()
        world.archive.await_stored()
    raise AssertionError("none was waited for")


def rewrite(path, content):
    path.write_bytes(content)


def change(path, content):
    with open(path, "r+b", buffering=0) as file:
        file.write(content)


@pytest.mark.parametrize("again", [rewrite, change])
@pytest.mark.slow
def test_what_is_changed_while_a_stripe_trails_is_never_mixed(place, again):
    world = Straggling(place)
    path, content = world.mount.path / "file", os.urandom(2 * MIB)
    path.write_bytes(os.urandom(2 * MIB))
    assert world.state("file").startswith("quorum 5/6")
    again(path, content)
    world.line.tell("throttle", 0)
    world.archive.await_stored()
    assert world.state("file").startswith("full 6/6")
    world.archive.endpoints[0].kill()
    world.archive.endpoints[1].kill()  # the one that trailed is needed
    lab.forget_mounts()
    assert path.read_bytes() == content


@pytest.mark.slow
def test_what_is_unlinked_while_a_stripe_trails_leaves_nothing(place):
    world = Straggling(place, pack_after="1s")  # small files leave a log, which goes then
    path = world.mount.path / "file"
    path.write_bytes(os.urandom(2 * MIB))
    assert world.state("file").startswith("quorum 5/6")
    path.unlink()
    (world.mount.path / "first").unlink()
    world.line.tell("throttle", 0)
    lab.until(lambda: stored_bytes(world.archive) == 0, 120, "nothing of it is left")


@pytest.mark.slow
def test_a_crash_while_a_stripe_trails_begins_it_anew(place):
    world = Straggling(place)
    path, content = world.mount.path / "file", os.urandom(2 * MIB)
    path.write_bytes(content)
    assert world.state("file").startswith("quorum 5/6")
    world.mount.kill()
    world.line.tell("throttle", 0)
    world.mount.start()
    world.archive.await_stored()
    assert world.state("file").startswith("full 6/6")
    lab.forget_mounts()
    assert path.read_bytes() == content


@AT
@pytest.mark.slow
def test_what_cannot_be_full_at_the_end_is_told(place, close_at):
    world = Straggling(place, close_at)
    (world.mount.path / "file").write_bytes(os.urandom(2 * MIB))
    assert world.state("file").startswith("quorum 5/6")
    world.line.close()
    told = lab.ecfs("umount", world.mount.path).stderr
    assert world.mount.process.wait(60) == 0
    world.mount.process = None
    for text in (told, world.mount.text()):
        assert "1 objects are stored safely, but not on all of their endpoints yet" in text


@AT
@pytest.mark.slow
def test_stragglers_hold_up_nothing_that_comes_after_them(place, close_at):
    """More files than may go on behind, and one that changes while its last stripe is on its way."""
    world = Straggling(place, close_at)
    contents = {f"file{i}": os.urandom(2 * MIB) for i in range(6)}
    for name, content in contents.items():
        (world.mount.path / name).write_bytes(content)
        assert world.state(name).startswith("quorum 5/6")
    contents["file0"] = os.urandom(MIB)
    (world.mount.path / "file0").write_bytes(contents["file0"])
    assert world.state("file0").startswith("quorum 5/6")
    world.line.tell("throttle", 0)
    world.archive.await_stored()
    lab.forget_mounts()
    for name, content in contents.items():
        assert world.state(name).startswith("full 6/6")
        assert (world.mount.path / name).read_bytes() == content
