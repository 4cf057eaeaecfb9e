"""doc/recipes.md, with the programs that it is about: what they keep on a mount is there when two accounts are gone."""
import os
import shutil
import subprocess

import lab
import pytest
from test_tour import BLOCK

pytestmark = pytest.mark.nightly

SECRETS = {"RESTIC_PASSWORD": "sesame", "BORG_PASSPHRASE": "sesame", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
           "GIT_AUTHOR_NAME": "me", "GIT_AUTHOR_EMAIL": "me@example.org", "GIT_COMMITTER_NAME": "me",
           "GIT_COMMITTER_EMAIL": "me@example.org"}


def recipe(title, language="sh"):
    """The block of the section with this title."""
    section = (lab.REPOSITORY / "doc/recipes.md").read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    return next(block[2] for block in BLOCK.finditer(section) if block[1] == language)


class Home:
    """A home directory with photos, and an archive that is mounted in it."""

    def __init__(self, place):
        self.path = place.path / "home"
        self.photos = self.path / "photos"
        self.path.mkdir()
        shutil.copytree(lab.REPOSITORY / "doc", self.photos)
        lab.write_pattern(self.photos / "large", 9 << 20, 1)
        self.archive = place.archive(place.directories(lab.NAMES))
        self.mount = place.mount(self.archive, "-o", "allow_other")
        (self.path / "mnt").symlink_to(self.mount.path)
        (self.path / "archive").symlink_to(self.archive.path)

    def shell(self, commands, directory=None):
        environment = {**os.environ, **SECRETS, "HOME": str(self.path), "PATH": f"{lab.BUILD / 'tools'}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=directory or self.path, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"exit {done.returncode} of\n{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def lose_two(self):
        for endpoint in self.archive.endpoints[1:3]:
            endpoint.kill()


@pytest.fixture
def home(place):
    return Home(place)


def test_restic(home):
    home.shell(recipe("A backup with restic"))
    (home.photos / "more").write_text("more")
    home.shell("restic -r ~/mnt/restic backup ~/photos; restic -r ~/mnt/restic forget --keep-last 1 --prune; ecfs wait ~/mnt")
    home.lose_two()
    home.shell("restic -r ~/mnt/restic check --read-data; restic -r ~/mnt/restic restore latest --target ~/back")
    lab.assert_same_tree(lab.describe_tree(home.photos), lab.describe_tree(home.path / "back" / home.photos.relative_to("/")))


def test_borg(home):
    home.shell(recipe("A backup with borg"))
    (home.photos / "more").write_text("more")
    home.shell("borg create ~/mnt/borg::last ~/photos; borg compact ~/mnt/borg; ecfs wait ~/mnt")
    home.lose_two()
    home.shell("borg check --verify-data ~/mnt/borg; mkdir ~/back; cd ~/back; borg extract ~/mnt/borg::last")
    lab.assert_same_tree(lab.describe_tree(home.photos), lab.describe_tree(home.path / "back" / home.photos.relative_to("/")))


def test_git_annex(home):
    keep = home.path / "keep"
    home.shell(f"git init -q {keep}; cd {keep}; git annex init here; cp -r ~/photos/. .; git annex add -q .; git commit -qm all")
    before = home.shell("git annex find | sort | xargs -d '\\n' sha256sum", keep)
    home.shell(recipe("git-annex"), keep)
    home.shell("git annex drop -q --from ecfs large; git annex copy -q --to ecfs large", keep)
    home.shell("git annex drop -q .; ! test -e large", keep)
    home.lose_two()
    home.shell("git annex fsck --from ecfs; git annex get -q .", keep)
    assert home.shell("git annex find | sort | xargs -d '\\n' sha256sum", keep) == before and before.count("\n") > 10


def test_samba(home):
    """Its text for smb.conf, with a port, a directory and a user of the test."""
    share = recipe("A share for other machines, with Samba", "").replace("/home/me/mnt", str(home.mount.path))
    share = share.replace("valid users = me", "valid users = root")
    state = home.path / "samba"
    state.mkdir()
    places = "".join(f"    {key} = {state}\n" for key in
                     ["private dir", "lock directory", "state directory", "cache directory", "pid directory", "ncalrpc dir"])
    port = lab.free_port()
    lab.logs["samba"] = state / "log"
    conf = state / "smb.conf"
    conf.write_text(f"[global]\n{places}    log file = {state}/log\n    interfaces = lo\n    bind interfaces only = yes\n"
                    f"    smb ports = {port}\n    map to guest = never\n{share}")
    home.shell(f"printf 'sesame\\nsesame\\n' | smbpasswd -c {conf} -a -s root")
    with subprocess.Popen(["smbd", "--foreground", "--no-process-group", "-s", conf], stdin=subprocess.DEVNULL,
                          start_new_session=True) as server:
        try:
            client = f"smbclient -s {conf} -p {port} -U root%sesame //127.0.0.1/archive -c"
            lab.until(lambda: lab.run("bash", "-c", f"{client} ls", check=False).returncode == 0, 30, "Samba")
            home.shell(f"{client} 'put photos/large large; get large back'")
        finally:
            server.terminate()
    assert lab.digest(home.path / "back") == lab.digest(home.photos / "large") == lab.digest(home.mount.path / "large")
