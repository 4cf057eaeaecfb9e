"""What ecfs-fsck finds damaged and cannot repair is known from then on: to status, to wait, and to the mount's repairs."""
import os
import random
import shutil

import lab
import pytest
from test_fsck import CLEAN, LEFT, REPAIRED, everything, fsck, rows, serving
from test_readrepair import queue_length

KIB, MIB = 1 << 10, 1 << 20


def fill(place, archive, kind):
    """A file of its own object, or ten that share one. A path of these in the archive, and the stripes of the object."""
    top = place.path / "tree"
    top.mkdir()
    for number in range(1 if kind == "whole" else 10):
        lab.write_pattern(top / f"file{number}", 2 * MIB if kind == "whole" else KIB + number, number)
    wanted, former = 6 if kind == "whole" else 3, set()
    for _ in range(8):
        archive.put_in_full(top, "/")
        stripes = [path for endpoint in archive.endpoints for path in lab.stripe_files(endpoint) if path not in former]
        if len(stripes) == wanted and len(rows(archive, "SELECT * FROM objects")) == 1:
            return stripes
        former.update(stripes)
        # On a busy machine they do not come together. A mount that packs soon has done with logs of which nothing is left.
        lab.ecfs("rm", "-r", archive.path, "/tree")
        config = (archive.path / "ecfs.conf").read_text()
        archive.configure("archive", pack_after="1s")
        mount = place.mount(archive)
        lab.until(lambda: not rows(archive, "SELECT * FROM objects"), 60, "what was put is gone")
        mount.umount()
        (archive.path / "ecfs.conf").write_text(config)
    raise AssertionError(f"{len(stripes)} stripes")


def take_away(place, stripes):
    """The way back is to call what is returned."""
    kept = place.path / "kept"
    kept.mkdir()
    for path in stripes:
        shutil.move(path, kept / path.name)
    return lambda: [shutil.move(kept / path.name, path) for path in stripes]


def overwrite(place, stripes):
    """All bytes are others, and as many as before."""
    before = {path: path.read_bytes() for path in stripes}
    for path, content in before.items():
        path.write_bytes(random.Random(path.name).randbytes(len(content)))
    return lambda: [path.write_bytes(content) for path, content in before.items()]


def verdict(archive):
    status = archive.json("status")
    return status["verdict"], status["check"], status["repairs"]["queued"]


def wait(archive, *words):
    done = lab.ecfs("wait", *words, "--unmounted", archive.path, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", ["whole", "pack"])
@pytest.mark.parametrize(("damage", "arguments"), [(take_away, ()), (take_away, ("--deep",)), (overwrite, ("--deep",))],
                         ids=["gone", "gone-deep", "overwritten-deep"])
@pytest.mark.slow
def test_what_is_left_is_known_until_it_is_back(place, archive, kind, damage, arguments):
    bring_back = damage(place, fill(place, archive, kind)[:3])
    before = everything(archive)
    status, text = fsck(archive, "-n", *arguments)
    assert status == LEFT and "CANNOT BE READ" in text and everything(archive) == before, "-n changes nothing"
    status, text = fsck(archive, "-y", *arguments)
    assert status == LEFT and "CANNOT BE READ" in text
    assert verdict(archive) == ("unreadable", 2, 3)
    code, text = wait(archive)
    assert code == 1 and "/tree/file" in text and "3 of its stripes" in text and "fsck" in text
    assert wait(archive, "--quorum")[0] == 0, "it was committed"
    assert fsck(archive, "-y", *arguments)[0] == LEFT and verdict(archive) == ("unreadable", 2, 3), "each is queued once"
    bring_back()
    assert fsck(archive, "-y", *arguments)[0] == (CLEAN if damage is take_away else REPAIRED)
    assert verdict(archive) == ("healthy", 0, 0) and wait(archive) == (0, "")
    assert fsck(archive, "--deep")[0] == CLEAN


@pytest.mark.parametrize("kind", ["whole", "pack"])
@pytest.mark.slow
def test_beside_a_mount_it_is_known_and_not_tried_all_the_time(place, archive, kind):
    stripes = fill(place, archive, kind)
    mount = serving(place, archive)
    bring_back = take_away(place, stripes[:3])
    assert fsck(archive, "-n")[0] == LEFT and verdict(archive)[2] == 0
    assert fsck(archive, "-y")[0] == LEFT
    assert verdict(archive) == ("unreadable", 2, 3)
    assert wait(archive)[0] == 1 and wait(archive, "--quorum")[0] == 0
    lab.until(lambda: archive.json("status")["repairs"]["failing"] == 1, 60, "the mount has tried, and waits")
    bring_back()
    lab.until(lambda: verdict(archive) == ("healthy", 0, 0), 60, "the mount has found them again by itself", pause=0.2)
    assert wait(archive) == (0, "")
    assert 1 <= mount.text().count("cannot be repaired yet") <= 2
    mount.umount()
    assert fsck(archive, "--deep")[0] == CLEAN


@pytest.mark.slow
def test_beside_a_mount_fsck_finds_them_again(place, archive):
    archive.configure("archive", repair="off")
    stripes = fill(place, archive, "whole")
    mount = serving(place, archive)
    bring_back = take_away(place, stripes[:3])
    assert fsck(archive, "-y")[0] == LEFT and verdict(archive) == ("unreadable", 2, 3)
    bring_back()
    assert fsck(archive, "-n")[0] == CLEAN and verdict(archive) == ("unreadable", 2, 3), "-n changes nothing"
    assert fsck(archive, "-y")[0] == CLEAN and verdict(archive) == ("healthy", 0, 0)
    mount.umount()


def test_what_came_back_in_part_is_enough(place, archive):
    stripes = fill(place, archive, "whole")
    back = take_away(place, stripes[:3])
    assert fsck(archive, "-y")[0] == LEFT
    back()
    os.unlink(stripes[0])
    assert fsck(archive, "-y")[0] == REPAIRED
    assert verdict(archive) == ("healthy", 0, 0)


@pytest.mark.slow
def test_what_can_be_read_and_not_be_made_whole_is_known(place, archive):
    """No endpoint takes one of the two stripes: the other is rebuilt."""
    fill(place, archive, "whole")
    lab.ecfs("endpoint", "readonly", archive.path, "amber")
    for name in ("amber", "birch"):
        os.unlink(lab.stripe_files(archive[name])[0])
    assert fsck(archive, "-y")[0] == REPAIRED + LEFT
    assert verdict(archive) == ("degraded", 1, 1)
    assert wait(archive)[0] == 1
    lab.ecfs("endpoint", "active", archive.path, "amber")
    assert fsck(archive, "-y")[0] == REPAIRED and verdict(archive) == ("healthy", 0, 0)


@pytest.mark.slow
def test_what_an_endpoint_had_that_was_given_up_is_known(place, archive):
    fill(place, archive, "whole")
    config = archive.path / "ecfs.conf"
    whole = config.read_text()
    sections = whole.split("\n[endpoint ")
    config.write_text("\n[endpoint ".join(part for part in sections if not part.startswith("birch]")))
    assert fsck(archive, "-y")[0] == LEFT and verdict(archive)[1:] == (1, 1)
    assert wait(archive)[0] == 1
    config.write_text(whole)
    assert fsck(archive, "-y")[0] == CLEAN and verdict(archive) == ("healthy", 0, 0)
