"""What the page on security promises, by whoever has some of the accounts."""
import itertools
import shutil
from types import SimpleNamespace

import lab
from keeper import salvage
from keyed import recover, secret, write_tree

pytestmark = lab.unkeyed


def make(place, *options):
    archive = lab.Archive(place.path / "archive", place.directories())
    archive.init(*options)
    mount = place.mount(archive)
    tree = write_tree(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    return archive, tree


def test_recover_says_whether_a_key_authenticates_what_it_found(place):
    archive, _ = make(place, "--key", "split")
    shutil.rmtree(archive.path)
    again, done = recover(place, archive)
    assert "is authentic by its key" in done.stdout, done
    assert again.json("status")["key"] in done.stdout


def test_who_knows_of_a_key_is_not_shown_an_archive_without_one(place):
    """As most accounts together could: they have made up all that there is."""
    archive, _ = make(place, "--key", "none")
    shutil.rmtree(archive.path)
    passphrase = secret(place, "passphrase", "a passphrase of mine")
    code = secret(place, "code", "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH")
    for options in (["--passphrase-file", passphrase], ["--code-file", code]):
        again, done = recover(place, archive, *options, check=False)
        assert done.returncode != 0 and not again.path.exists(), done
    _, done = recover(place, archive)
    assert "nothing shows that what was recovered was not made up" in done.stdout, done


def opened_by(program, files, opener):
    """What any of these shares, taken for enough, make of any slot."""
    for n in range(1, len(files) + 1):
        for some in itertools.combinations(files, n):
            if len({file.x for file in some}) < n:
                continue
            opener.secret = program.join_shares([(file.x, file.share) for file in some])
            for slot in [slot for file in files for slot in file.slots]:
                try:
                    if slot.open(files[0].archive, opener):
                        return True
                except program.Bad:
                    continue
    return False


def test_fewer_accounts_than_needed_open_nothing_with_the_passphrase(place, monkeypatch):
    """Nor with what they have kept of what they had before."""
    right = secret(place, "right", "the right passphrase")
    archive, tree = make(place, "--key", "passphrase", "--passphrase-file", right)
    kept = {endpoint.name: [path.read_bytes() for path in (endpoint.root / "keys").iterdir()]
            for endpoint in archive.endpoints}
    lab.ecfs("key", "add", archive.path, "--passphrase", "--passphrase-file", secret(place, "more", "another passphrase"))
    for endpoint in archive.endpoints:
        kept[endpoint.name] += [path.read_bytes() for path in (endpoint.root / "keys").iterdir()]
    shutil.rmtree(archive.path)
    program, known, stretched = salvage(), {}, salvage().Slot.stretched
    monkeypatch.setattr(program.Slot, "stretched",
                        lambda slot, text: known.setdefault(slot.salt, None) or known.update(
                            {slot.salt: stretched(slot, text)}) or known[slot.salt])  # which takes half a second
    for some in itertools.combinations(archive.endpoints, 2):
        files = [program.KeyFile(endpoint.name, data) for endpoint in some for data in kept[endpoint.name]]
        options = SimpleNamespace(passphrase_file=right, code_file=None, identity=None)
        assert not opened_by(program, files, program.Opener(options))
        few = lab.Archive(archive.path, list(some))
        again, done = recover(place, few, "--passphrase-file", right, check=False)
        assert done.returncode != 0 and not again.path.exists(), done
        done = lab.run(lab.REPOSITORY / "tools/ecfs-salvage", "--passphrase-file", right, "--list",
                       *[endpoint.root for endpoint in some], check=False)
        assert done.returncode != 0 and "planted" not in done.stdout + done.stderr, done
    options = SimpleNamespace(passphrase_file=right, code_file=None, identity=None)
    files = [program.KeyFile(endpoint.name, kept[endpoint.name][0]) for endpoint in archive.endpoints[:3]]
    assert opened_by(program, files, program.Opener(options)), "three of them are enough"
    again, _ = recover(place, lab.Archive(archive.path, archive.endpoints[2:]), "--passphrase-file", right)
    mount = place.mount(again)
    lab.assert_same_tree(tree, lab.describe_tree(mount.path))
    mount.umount()
