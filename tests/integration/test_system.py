"""mount(8), umount(8), fstab and service managers: ecfs is mounted as any file system is."""
import os
import re
import signal
from pathlib import Path

import lab
import pytest
from namespace import MountNamespace

MIB = 1 << 20


@pytest.fixture(scope="module")
def space(module_place):
    made = MountNamespace(module_place.path / "namespace")
    yield made
    made.close()


@pytest.fixture
def mnt(place):
    path = place.path / "mnt"
    path.mkdir()
    return path


@pytest.fixture
def mount_ecfs(space, archive, mnt):
    """Mounts the archive by mount(8); unmounted at the end whatever happened."""
    def mount(*options, check=True):
        return space.run("mount", "-t", "ecfs", *options, archive.path, mnt, check=check, timeout=60)
    yield mount
    space.run("umount", "-i", "-l", mnt, check=False)
    lab.until(lambda: not daemons(space, archive), 60, "the mount ends")


def daemons(space, archive):
    """The processes that serve this archive in the namespace."""
    found = []
    for pid in space.inside():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if bytes(archive.path) in words:
            found.append(pid)
    return found


def read_in(space, path):
    return space.run("cat", path).stdout


def options_of(space, path):
    return set(space.mounted(path)[3].split(","))


def test_install_puts_the_helpers_where_mount_looks(space):
    installed = space.place / "installed/sbin"
    assert sorted(path.name for path in installed.iterdir()) == ["mount.ecfs", "mount.fuse.ecfs", "umount.ecfs",
                                                               "umount.fuse.ecfs"]
    assert {os.readlink(path) for path in installed.iterdir()} == {str(space.program)}


def test_mount_returns_when_it_serves_and_umount_when_all_is_stored(space, archive, mnt, mount_ecfs, place):
    archive.configure("archive", commit="async")
    assert mount_ecfs().stderr == ""
    source, target, kind = space.mounted(mnt)[:3]
    assert (source, target, kind) == (str(archive.path), str(mnt), "fuse.ecfs")
    space.shell('head -c 20000000 /dev/urandom > "$1/file"; cp "$1/file" "$2"', mnt, place.path / "copy")
    space.run("umount", mnt, timeout=60)
    assert space.mounted(mnt) is None and daemons(space, archive) == []
    assert archive.json("status")["staging"]["files"] == 0
    (place.path / "back").mkdir()
    archive.get("/file", place.path / "back")
    assert lab.digest(place.path / "back/file") == lab.digest(place.path / "copy")
    mount_ecfs()  # at once, for the process that had it is gone
    space.run("umount", mnt, timeout=60)


def test_options_of_all_sorts(space, mnt, mount_ecfs):
    mount_ecfs("-o", "noexec,nosuid,nodev,noatime,allow_other,defaults,_netdev,nofail,noauto,user,x-systemd.automount,"
               "x-gvfs-show,comment=mine,relatime,lazytime")
    assert {"rw", "noexec", "nosuid", "nodev", "noatime", "allow_other", "default_permissions"} <= options_of(space, mnt)


def test_root_gets_rights_and_devices_of_an_archive_only_when_asked_for(space, mnt, mount_ecfs):
    """What it holds comes over networks: by default no program there has rights, and no node is a device."""
    mount_ecfs()
    assert {"nosuid", "nodev"} <= options_of(space, mnt)
    assert not {"noexec", "allow_other", "ro"} & options_of(space, mnt)
    space.shell('cp /bin/true "$1/plain"; "$1/plain"; mknod "$1/zero" c 1 5; ! head -c 1 "$1/zero"', mnt)
    space.run("umount", mnt, timeout=60)
    mount_ecfs("-o", "allow_suid,allow_dev")
    assert not {"nosuid", "nodev", "noexec", "allow_other", "ro"} & options_of(space, mnt)
    space.shell('cp /bin/true "$1/true"; chmod 4755 "$1/true"; "$1/true"; mknod "$1/null" c 1 3; echo x > "$1/null"', mnt)


@pytest.mark.parametrize("options", ["bogus", "ro,size=10M,noexec,frobnicate=1", "nosymfollow", "bind=x"])
def test_unknown_option_is_refused_by_name(space, mnt, mount_ecfs, options):
    done = mount_ecfs("-o", options, check=False)
    assert done.returncode == 1 and space.mounted(mnt) is None
    named = [word for word in options.split(",") if word not in ("ro", "noexec")]
    assert all(word in done.stderr for word in named), done.stderr
    assert "noexec" not in done.stderr


def test_sloppy_fake_and_verbose(space, archive, mnt, mount_ecfs):
    assert mount_ecfs("-f", "-v").stdout == f"mount.ecfs: {archive.path} could be mounted on {mnt}\n"
    assert space.mounted(mnt) is None
    assert mount_ecfs("-s", "-n", "-v", "-o", "bogus").stdout == f"mount.ecfs: {archive.path} is mounted on {mnt}\n"
    assert space.run("umount", "-v", mnt).stdout == f"umount.ecfs: {mnt} is unmounted\n"


def test_wrong_use_of_the_helper(space, mnt):
    for arguments in [[], ["/one"], ["/one", "/two", "/three"], ["/one", "/two", "--frobnicate"]]:
        done = space.run("/sbin/mount.ecfs", *arguments, check=False)
        assert done.returncode == 1 and "usage: mount.ecfs ARCHIVE MOUNTPOINT" in done.stderr
    done = space.run("/sbin/umount.fuse.ecfs", check=False)
    assert done.returncode == 1 and "usage: umount.fuse.ecfs MOUNTPOINT" in done.stderr
    done = space.run("/sbin/mount.ecfs", "/one", mnt, "-N", "/proc/1/ns/mnt", check=False)
    assert done.returncode == 1 and "nsenter" in done.stderr


def test_what_cannot_be_mounted_is_told_by_mount(space, archive, mnt, mount_ecfs, place):
    done = space.run("mount", "-t", "ecfs", place.path / "nothing", mnt, check=False)
    assert done.returncode == 32 and str(place.path / "nothing") in done.stderr and "ecfs init" in done.stderr
    done = space.run("mount", "-t", "ecfs", archive.path, place.path / "nowhere", check=False)
    assert done.returncode == 32 and str(place.path / "nowhere") in done.stderr
    (place.path / "a file").write_text("x")
    done = space.run("mount", "-t", "ecfs", archive.path, place.path / "a file", check=False)
    assert done.returncode == 32 and "not a directory" in done.stderr
    config = (archive.path / "ecfs.conf").read_text()
    (archive.path / "ecfs.conf").write_text(config.replace("[archive]", "[archive]\nfrobnicate = 1"))
    done = mount_ecfs(check=False)  # told by the child, behind the fork
    assert done.returncode == 32 and re.search(r"ecfs.conf:\d+", done.stderr) and "frobnicate" in done.stderr


def test_archive_that_is_mounted_says_where_and_by_whom(space, archive, mnt, mount_ecfs, place):
    mount_ecfs()
    (place.path / "other").mkdir()
    done = space.run("mount", "-t", "ecfs", archive.path, place.path / "other", check=False)
    assert done.returncode == 32
    assert str(mnt) in done.stderr and str(daemons(space, archive)[0]) in done.stderr


def test_umount_of_a_busy_mount(space, mnt, mount_ecfs):
    mount_ecfs()
    space.shell('''
        echo half > "$1/file"
        exec 3>> "$1/file"
        set +e
        umount "$1" 2> "$1/../said"
        test $? = 32 || exit 1
        set -e
        echo whole >&3
        ''', mnt)
    said = (mnt.parent / "said").read_text()
    assert str(mnt) in said and "in use" in said
    assert read_in(space, mnt / "file") == "half\nwhole\n"
    space.run("umount", mnt)
    assert space.mounted(mnt) is None


def test_lazy_umount_lets_who_uses_it_go_on(space, archive, mnt, mount_ecfs):
    mount_ecfs()
    space.shell('exec 3> "$1/file"; umount -l "$1"; grep -q " $1 " /proc/self/mounts && exit 1; echo late >&3', mnt)
    lab.until(lambda: not daemons(space, archive), 60, "the mount ends with its last user")
    mount_ecfs()
    assert read_in(space, mnt / "file") == "late\n"


def test_umount_and_mount_clear_away_what_a_dead_mount_left(space, archive, mnt, mount_ecfs):
    for clear in [lambda: space.run("umount", mnt), lambda: None]:
        mount_ecfs()
        lab.signal_all(daemons(space, archive), signal.SIGKILL)
        lab.until(lambda: space.run("ls", mnt, check=False).returncode != 0, 60, "the mount is dead")
        clear()
    mount_ecfs()  # without clearing by hand
    assert sum(str(mnt) in line for line in Path(f"/proc/{space.process.pid}/mounts").read_text().splitlines()) == 1
    space.run("ls", mnt)


def test_remount_takes_writing_away_and_gives_it_back(space, mnt, mount_ecfs):
    mount_ecfs()
    space.shell('echo one > "$1/file"', mnt)
    space.run("mount", "-o", "remount,ro,noexec", mnt)
    assert {"ro", "noexec"} <= options_of(space, mnt)
    assert "Read-only" in space.shell('echo two > "$1/file"', mnt, check=False).stderr
    space.run("mount", "-o", "remount,rw", mnt)
    space.shell('echo two > "$1/file"', mnt)
    done = space.run("mount", "-o", "remount,allow_other", mnt, check=False)
    assert done.returncode == 32 and "allow_other" in done.stderr


def test_what_was_mounted_for_reading_only_stays_so(space, archive, mnt, mount_ecfs):
    mount_ecfs("-o", "ro")
    done = space.run("mount", "-o", "remount,rw", mnt, check=False)
    assert done.returncode == 32 and "for reading only" in done.stderr
    space.run("mount", "-i", "-o", "remount,rw", mnt)  # past the helper, the kernel lets it through
    for change in ['echo x > "$1/new"', 'mkdir "$1/new"', 'ln -s x "$1/new"', 'chmod 700 "$1"', 'touch "$1"',
                   'mkfifo "$1/new"', 'setfattr -n user.a -v b "$1"']:
        done = space.shell(change, mnt, check=False)
        assert done.returncode != 0 and "Read-only" in done.stderr, (change, done.stderr)
    space.run("umount", mnt)
    lab.until(lambda: not daemons(space, archive), 60, "the process ends")


@pytest.fixture
def own_fstab(space):
    """Puts one line in place of /etc/fstab, in the namespace only."""
    def write(archive, mnt, options):
        space.cover("/etc/fstab", f"{archive.path} {mnt} ecfs {options} 0 0\n")
    yield write
    space.run("umount", "/etc/fstab", check=False)


def test_fstab_mounts_by_name_and_mount_a_mounts_once(space, archive, mnt, mount_ecfs, own_fstab):
    own_fstab(archive, mnt, "_netdev,nofail,allow_other,noatime,x-systemd.mount-timeout=90")
    space.run("mount", mnt)
    assert {"allow_other", "noatime"} <= options_of(space, mnt)
    space.run("mount", "-a", "-t", "ecfs")  # what is mounted is not mounted again
    assert len(daemons(space, archive)) == 1
    space.run("umount", mnt)
    space.run("mount", "-a", "-t", "ecfs")
    assert space.mounted(mnt) is not None
    space.run("umount", mnt)


def test_symbolic_link_as_source_is_known_again(space, place, archive, mnt, mount_ecfs, own_fstab):
    (place.path / "link").symlink_to(archive.path)
    link = lab.Archive(place.path / "link", archive.endpoints)
    own_fstab(link, mnt, "nofail")
    space.run("mount", "-a", "-t", "ecfs")
    space.run("mount", "-a", "-t", "ecfs")
    assert space.mounted(mnt)[0] == str(archive.path)
    assert sum(str(mnt) in line for line in Path(f"/proc/{space.process.pid}/mounts").read_text().splitlines()) == 1


def test_relative_paths(space, place, archive, mnt, mount_ecfs):
    space.shell('cd "$1"; "$2" mount "$3" "$4"', place.path, space.program, archive.path.name, mnt.name)
    assert space.mounted(mnt)[0] == str(archive.path)
    space.shell('cd "$1"; echo x > "$3/file"; umount "$3"; "$2" ls "$4"', place.path, space.program, mnt.name,
                archive.path.name)
    assert space.mounted(mnt) is None


def test_directory_that_is_not_empty_is_covered_and_comes_back(space, mnt, mount_ecfs):
    (mnt / "below").write_text("x")
    assert "not empty" in mount_ecfs(check=False).stderr
    mount_ecfs("-o", "nonempty")
    assert space.run("ls", mnt).stdout == ""
    space.run("umount", mnt)
    assert space.run("ls", mnt).stdout == "below\n"


def test_without_the_fuse_device(space, archive, mnt, place):
    (place.path / "dev").mkdir()
    done = space.run("unshare", "--mount", "sh", "-ec", '''
        mount -t tmpfs -o mode=755 none "$1"
        mknod "$1/null" c 1 3
        mkdir "$1/shm"
        mount --bind /dev/shm "$1/shm"
        mount --move "$1" /dev
        ! mount -t ecfs "$2" "$3"
        ''', "sh", place.path / "dev", archive.path, mnt)
    assert "/dev/fuse" in done.stderr or "fuse device" in done.stderr or "modprobe" in done.stderr
