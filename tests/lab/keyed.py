"""Archives with a key: what is stored in them, and how they come back without their directory."""
import json
import os
import pty
import shutil
import struct

import lab
from forge import xxh3_64

MIB = 1 << 20


def write_tree(mount):
    """Files whose every check block has something that nobody is to see."""
    top = mount.path / "planted-directory"
    top.mkdir()
    for name, size in {"small": 700, "odd": 300_001, "large": 9 * MIB + 77}.items():
        (top / f"planted-name-{name}").write_bytes((b"planted-content " * (size // 16 + 1))[:size])
    os.symlink("planted-target", top / "link")
    os.setxattr(top / "planted-name-small", "user.note", b"planted-attribute")
    return lab.describe_tree(mount.path)


def files_at(endpoints):
    """All that is there but for the program that restores files, which is the same everywhere."""
    return [path for endpoint in endpoints for path in lab.files_below(endpoint.root) if path.parent.name != "salvage"]


def recover(place, archive, *options, **how):
    path = place.path / "recovered"
    words = [word for endpoint in archive.endpoints for word in ("--endpoint", endpoint.endpoint())]
    done = lab.run(lab.PROGRAM, "recover", path, "--force", *words, *options, **how)
    return lab.Archive(path, archive.endpoints), done


def tree_of(place, archive):
    mount = place.mount(archive)
    found = lab.describe_tree(mount.path)
    mount.umount()
    return found


def keys_of(archive):
    """What `ecfs key list` tells."""
    return json.loads(lab.ecfs("key", "list", archive.path, "--json").stdout)


def share_of(endpoint):
    return next((endpoint.root / "keys").iterdir())


def lose_machine(place, archive):
    """All but what endpoints have."""
    mount = place.mount(archive)
    before = write_tree(mount)
    lab.ecfs("wait", mount.path)
    mount.umount()
    shutil.rmtree(archive.path)
    return before


class KeyFile:
    """A key file, as ecfs-format(5) has it; bytes() is another one where its parts were changed."""

    def __init__(self, data):
        at = 46 + 32 * data[43] + 33
        self.head, self.slots = data[:at - 2], []
        self.version, = struct.unpack_from("<H", data, 8)
        n_slots, = struct.unpack_from("<H", data, at - 2)
        for _ in range(n_slots):
            note = 1 + data[at + 53] if self.version > 1 else 0
            size, = struct.unpack_from("<I", data, at + 53 + note)
            end = at + 53 + note + 4 + size
            self.slots.append(data[at:end])
            at = end
        self.end = data[at:-8]

    def __bytes__(self):
        data = self.head + struct.pack("<H", len(self.slots)) + b"".join(self.slots) + self.end
        return data + struct.pack("<Q", xxh3_64(data))

    def as_first_version(self):
        """As it was written before there were revisions."""
        self.head = self.head[:8] + struct.pack("<H", 1) + self.head[10:]
        self.slots, self.end = [slot[:53] + slot[54 + slot[53]:] for slot in self.slots], b""
        return bytes(self)


def secret(place, name, text):
    """A file that nobody else may read."""
    path = place.path / name
    path.write_text(text)
    path.chmod(0o600)
    return path


def key_pair(place, name="identity"):
    """Files with an X25519 key and its public half."""
    private, public = place.path / f"{name}.pem", place.path / f"{name}.pub"
    lab.run("openssl", "genpkey", "-algorithm", "X25519", "-out", private)
    lab.run("openssl", "pkey", "-in", private, "-pubout", "-out", public)
    private.chmod(0o600)
    return private, public


def typed(place, command, lines, environment):
    """What a program prints to a terminal at which these lines are typed, each when something is asked, and its status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(str(command[0]), [str(word) for word in command], environment)
    said = b""
    lines = list(lines)
    try:
        while True:
            said += os.read(terminal, 4096)
            if said.endswith(b": ") and lines:
                os.write(terminal, lines.pop(0).encode() + b"\n")
                said += b"\n"
    except OSError:  # it has ended
        pass
    os.close(terminal)
    return said.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
