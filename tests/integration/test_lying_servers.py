"""WebDAV servers that say what is not so: never wrong bytes, never a commit that is none, never "empty" for "elsewhere"."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import socketserver
import sqlite3
import subprocess
import threading

import lab
import pytest
from forge import area, block_bytes, forge, refoot, xxh3_128
from liar import FAILED, Handler, Liar
from web import Web

pytestmark = lab.unkeyed

SIZE = 3_000_000
NAMES = ["amber", "birch", "cedar", "dogwood", "elm", "fir"]


@pytest.fixture
def liar(place):
    server = Liar("liar")
    yield server
    server.kill()


def part(handler, path):
    """What the truth would be: the whole file, and the range that was asked for."""
    whole = handler.liar.files[path]
    first, last = (int(number) for number in handler.headers["Range"].removeprefix("bytes=").split("-"))
    return whole, first, min(last, len(whole) - 1)


def ignores_range(handler, path):
    handler.answer(200, handler.liar.files[path])
    return True


def tells(shift=0, lost=0, more=b"", flip=False, status=206, cut=False, named=True, **headers):
    """Answers with a part that is not what it should be."""
    def lie(handler, path):
        whole, first, last = part(handler, path)
        sent = bytearray(whole[first:last + 1 - lost] + more)
        if flip:
            sent[len(sent) // 2] ^= 1
        if named:
            headers["Content_Range"] = f"bytes {first + shift}-{last + shift}/{len(whole) + shift}"
        handler.close_connection = cut
        handler.answer(status, bytes(sent), len(sent) + lost if cut else None, **headers)
        return True
    return lie


def answers(status, body=b"", **headers):
    def lie(handler, _):
        if handler.command in ("PUT", "PROPFIND"):
            handler.body()
        handler.answer(status, body, **headers)
        return True
    return lie


READS = {
    "ignores the range": (ignores_range, "ignores Range"),
    "sends another range": (tells(shift=512), "not the"),
    "sends bytes of another range": (tells(flip=True), "other bytes"),
    "names no range": (tells(named=False), "which range"),
    "ends early": (tells(lost=100), "ends before"),
    "is cut off": (tells(lost=100, cut=True), "127.0.0.1"),
    "goes on": (tells(more=b"x" * 5000), None),  # what was asked for is right
    "compresses": (tells(Content_Encoding="gzip"), "compressed"),
    "sends parts": (tells(named=False, Content_Type="multipart/byteranges; boundary=x"), "which range"),
    "sends us away": (answers(302, Location="http://x/\x1b[2J"), "http://x/?[2J (302), which ecfs does not follow"),
    "has nothing": (answers(204), "204"),
    "sends nothing": (answers(206), "ends before"),
}


def probe(liar, scheme="dav"):
    return lab.ecfs("endpoint", "test", liar.endpoint(scheme), check=False, timeout=60)


def test_lies_about_ranges_are_told(liar):
    for what, (lie, word) in READS.items():
        liar.lies = {"GET": lambda handler, path, lie=lie: "test-" in path and lie(handler, path)}
        done = probe(liar)
        assert (done.returncode, word is None or word in done.stderr) == (word is not None, True), (what, done.stderr)
        assert not [path for path in liar.files if "test-" in path], what


@pytest.mark.parametrize("kind", ["nginx", "apache"])
def test_real_servers_without_ranges_are_told(place, kind):
    server = Web(place.path / "web", "one", kind, "norange")
    place.servers.append(server)
    server.start()
    done = lab.ecfs("endpoint", "test", server.endpoint("/"), check=False)
    assert done.returncode == 1 and "ignores Range" in done.stderr, done.stderr


def test_lies_about_ranges_make_no_wrong_bytes(place, liar):
    archive = place.archive([liar, *place.directories(["amber", "birch"])], code="rs:2+1")
    source, back = place.path / "source", place.path / "back"
    digest = lab.write_pattern(source, SIZE)
    back.mkdir()
    archive.put_in_full(source, "/file")
    archive["amber"].kill()  # the liar's stripe is needed
    for what in ["ignores the range", "sends bytes of another range", "goes on"]:  # each failure takes seconds
        lie, word = READS[what]
        liar.lies = {"GET": lambda handler, path, lie=lie: "stripes/" in path and lie(handler, path)}
        done = archive.get("/file", back, check=False)
        assert done.returncode == (0 if word is None else 1), (what, done.stderr)
        assert (back / "file").exists() == (word is None), what
        if word is None:
            assert lab.digest(back / "file") == digest
            (back / "file").unlink()
    liar.lies = {}
    archive.get("/file", back)
    assert lab.digest(back / "file") == digest


def half(handler, path):
    """Says that it is stored after half of it."""
    size = int(handler.headers.get("Content-Length", 100_000))
    handler.liar.store(path, handler.rfile.read(size // 2))
    handler.close_connection = True
    handler.answer(201)
    return True


def moves_nothing(handler, _):
    handler.answer(201)
    return True


def replaces(handler, _):
    """Does not know Overwrite."""
    del handler.headers["Overwrite"]
    return False


def test_a_commit_that_is_none_is_an_error(liar):
    lies = {
        "takes it later": ("PUT", answers(202), "202"),
        "is too small": ("PUT", answers(413), "client_max_body_size"),
        "takes half": ("PUT", half, ""),
        "is full": ("PUT", answers(507), "no space left"),
        "moves later": ("MOVE", answers(202), "202"),
        "moves in part": ("MOVE", answers(207, FAILED), "207"),
        "moves nothing": ("MOVE", moves_nothing, "No such file"),
        "deletes later": ("DELETE", answers(202), "202"),
        "deletes in part": ("DELETE", answers(207, FAILED), "207"),
        "deletes nothing": ("DELETE", answers(204), "still there"),
    }
    for what, (method, lie, word) in lies.items():
        liar.lies = {method: lie}
        done = probe(liar)
        assert done.returncode == 1 and word in done.stderr, (what, done.stderr)


def test_a_server_that_moves_over_what_is_there_is_used(liar):
    """Names are never used twice: it is told, and nothing is refused."""
    liar.lies = {"MOVE": replaces}
    done = probe(liar)
    assert done.returncode == 0 and "lacks      refusal to replace" in done.stdout, done.stdout + done.stderr
    assert "lacks      logs" in done.stdout and "append" not in done.stdout.partition("lacks")[0], done.stdout


def test_a_server_that_publishes_later_is_refused(place):
    """rclone answers before what it serves has a file."""
    if not shutil.which("rclone"):
        pytest.skip("there is no rclone: install rclone")
    directory = place.path / "rclone"
    directory.mkdir()
    port = lab.free_port()
    server = subprocess.Popen([lab.REPOSITORY / "tests/lab/other-server", "rclone-sftp", directory, str(port)])
    try:
        lab.until(lambda: Web._answers(port), 60, "rclone answers")
        done = lab.ecfs("endpoint", "test", f"x=sftp://lab@127.0.0.1:{port}{directory}/root/e,"
                        f"identity_file={directory}/key,known_hosts={directory}/known_hosts,ssh_config=/dev/null",
                        "--json", check=False)
    finally:
        server.kill()
        server.wait()
    (told,) = json.loads(done.stdout)
    assert done.returncode == 1 and not told["works"] and "rclone" in told["server"]
    assert "before they are" in told["error"]


def test_rclone_is_refused_by_its_name_over_webdav_too(liar, monkeypatch):
    """It says who it is, or answers MOVE right behind PUT with 403."""
    monkeypatch.setattr(Handler, "version_string", lambda _: "rclone/v1.68.0")
    done = probe(liar)
    assert done.returncode == 1 and "served by rclone" in done.stderr and "before they are" in done.stderr, done.stderr
    assert not [path for path in liar.files if path], "nothing was stored there"


def test_a_server_that_refuses_names_to_what_it_took_is_explained(liar):
    liar.lies = {"MOVE": lambda handler, _: handler.answer(403) or True}
    done = probe(liar)
    assert done.returncode == 1 and "MOVE is answered by 403" in done.stderr and "allow MOVE" in done.stderr
    assert "rclone serve webdav" in done.stderr
    assert not [path for path in liar.files if path], "what was uploaded is removed, and its directories"


def test_rclone_itself_is_refused_over_webdav(place):
    if not shutil.which("rclone"):
        pytest.skip("there is no rclone: install rclone")
    directory = place.path / "rclone"
    directory.mkdir()
    port = lab.free_port()
    server = subprocess.Popen([lab.REPOSITORY / "tests/lab/other-server", "rclone-webdav", directory, str(port)])
    try:
        lab.until(lambda: Web._answers(port), 60, "rclone answers")
        done = lab.ecfs("endpoint", "test", f"x=dav://127.0.0.1:{port}/", check=False)
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 1 and "rclone" in done.stderr, done.stdout + done.stderr


class PlainFtp(socketserver.StreamRequestHandler):
    """As much of vsftpd as is asked of it before its lack is found."""

    def handle(self):
        self.wfile.write(b"220 (vsFTPd 3.0.3)\r\n")
        answers = {b"USER": b"331 Please specify the password.", b"PASS": b"230 Login successful.",
                   b"TYPE": b"200 Switching to Binary mode.", b"FEAT": b"211-Features:\r\n EPSV\r\n SIZE\r\n211 End",
                   b"QUIT": b"221 Goodbye."}
        for line in self.rfile:
            self.wfile.write(answers.get(line.split()[0], b"500 Unknown command.") + b"\r\n")


def test_an_ftp_server_without_mlst_is_told_what_it_lacks():
    helper = lab.BUILD / "tools/ecfs-gridftp-helper"
    if not helper.exists():
        pytest.skip("ecfs was built without GridFTP: install libglobus-ftp-client-dev, and set the build up again")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), PlainFtp) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"x=ftp://127.0.0.1:{server.server_address[1]}/x"
        done = lab.ecfs("endpoint", "test", url, check=False, timeout=60,
                        env=os.environ | {"ECFS_GRIDFTP_HELPER": str(helper)})
        server.shutdown()
    assert done.returncode == 1 and "lacks MLST" in done.stderr and "RFC 3659" in done.stderr, done.stderr


def elsewhere(handler, path):
    """As behind a proxy that maps paths."""
    if handler.headers["Depth"] == "0":
        return False
    handler.body()
    handler.multistatus(handler.found(path), "/mapped")
    return True


def vanishes():
    """The root is not there any more once something is listed."""
    gone = []

    def lie(handler, path):
        if handler.headers["Depth"] == "1":
            gone.append(path)
        return bool(gone) and answers(404)(handler, path)
    return lie


def test_what_is_elsewhere_is_not_empty(place, liar):
    archive = place.archive([liar, *place.directories(["amber", "birch"])], code="rs:2+1")
    source = place.path / "source"
    lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")

    def checked():
        return lab.run(lab.BUILD / "tools/ecfs-fsck", "-n", archive.path, check=False)
    assert checked().returncode == 0
    for lie in [elsewhere, vanishes()]:
        liar.lies = {"PROPFIND": lie}
        done = checked()
        assert done.returncode == 4 and "0 gone" in done.stdout and "1 unknown" in done.stdout, done.stdout + done.stderr


def test_a_server_in_trouble_is_not_taken_for_one_that_only_serves_files(liar):
    liar.lies = {"PROPFIND": answers(503)}
    done = probe(liar, "http")
    assert done.returncode == 1 and "503" in done.stderr and "only be read" not in done.stdout, done.stdout + done.stderr


def test_caches_on_the_way_are_told_to_ask_the_server(liar):
    asked = []

    def look(handler, _):
        asked.append((handler.command, handler.headers["Cache-Control"]))
        return False
    liar.lies = {"GET": look, "HEAD": look, "PROPFIND": look}
    assert probe(liar).returncode == 0
    assert {command for command, _ in asked} >= {"GET", "PROPFIND"} and {said for _, said in asked} == {"no-cache"}, asked


def test_a_password_whose_nonce_runs_out_in_an_upload_costs_that_upload_only(place, liar):
    """The server says so after the body: it cannot be sent again."""
    nonces = ["first"]

    def knows(handler, path):
        if f'nonce="{nonces[-1]}"' in handler.headers.get("Authorization", ""):
            return False
        if handler.command in ("PUT", "PROPFIND"):
            handler.body()
        handler.answer(401, WWW_Authenticate=f'Digest realm="lab", nonce="{nonces[-1]}", qop="auth", stale=true')
        return True

    def runs_out(handler, path):
        if len(nonces) == 1 and "Authorization" in handler.headers and handler.headers.get("Content-Length") != "0":
            nonces.append("second")
        return knows(handler, path)
    liar.lies = {method: knows for method in ["GET", "HEAD", "MKCOL", "MOVE", "DELETE", "PROPFIND"]} | {"PUT": runs_out}
    password = place.path / "password"
    password.write_text("sesame\n")
    password.chmod(0o600)
    url = liar.endpoint().replace("://", "://ada@") + f",password_file={password}"
    done = lab.ecfs("endpoint", "test", url, check=False, timeout=60)
    assert len(nonces) == 2 and done.returncode == 1
    assert "AuthDigestNonceLifetime" in done.stderr and "connection lost" not in done.stderr, done.stderr


def test_a_kept_connection_that_is_closed_in_an_upload_is_no_question_of_who_we_are(liar):
    def closes(handler, _):
        handler.body()
        handler.close_connection = True
        return True
    liar.lies = {"PUT": closes}
    done = probe(liar)
    assert done.returncode == 1 and "has closed its connection in the middle of an upload" in done.stderr, done.stderr


def assert_orders_nothing(text, said):
    """Not one control character, and each line is ours."""
    assert said in text, text
    assert not [c for c in text if (ord(c) < 0x20 and c != "\n") or 0x7f <= ord(c) < 0xa0], ascii(text)
    assert all(line.startswith(("ecfs ", "20")) and "forged" not in line[:40] for line in text.splitlines()), text
    assert all(len(line) < 6000 for line in text.splitlines())


FORGED = "\x1b[2J\x1b]0;title\x07\r\n2026-01-01 00:00:00.000 ecfs: forged\u009b1m\x7f"


def test_words_of_a_web_server_order_nothing(liar):
    liar.lies = {"PROPFIND": answers(302, Location="http://x/\x1b[2J\u009b1m" + "y" * 20000)}
    done = probe(liar)
    assert done.returncode == 1
    assert_orders_nothing(done.stderr, "http://x/?[2J?1m")
    liar.lies = {"PROPFIND": answers(207, FAILED + FORGED.encode(), Server="lab\u009b2J")}
    done = probe(liar)
    assert done.returncode == 1
    assert_orders_nothing(done.stderr, "")


SSH = """#!/usr/bin/python3
import os, struct, sys
words = {words!r}.encode()
if {speaks!r}:
    def answer(kind, body):
        os.write(1, struct.pack(">IB", len(body) + 1, kind) + body)
    def ask():
        size, = struct.unpack(">I", sys.stdin.buffer.read(4))
        return sys.stdin.buffer.read(size)
    ask()
    answer(2, struct.pack(">I", 3))
    while packet := ask():
        answer(101, packet[1:5] + struct.pack(">II", 4, len(words)) + words + struct.pack(">I", 0))
os.write(2, words)
sys.exit(255)
"""


@pytest.mark.parametrize("speaks", [False, True], ids=["stderr of ssh", "status texts"])
@pytest.mark.parametrize("words", [FORGED, FORGED + "x" * 100_000], ids=["orders", "long"])
def test_words_of_an_sftp_server_order_nothing(place, speaks, words):
    program = place.path / "ssh"
    program.write_text(SSH.format(words="so it is" + words, speaks=speaks))
    program.chmod(0o755)
    done = lab.ecfs("endpoint", "test", "x=sftp://127.0.0.1/x,transport=openssh", check=False, timeout=60,
                    env={**os.environ, "PATH": f"{place.path}:{os.environ['PATH']}"})
    assert done.returncode == 1
    assert_orders_nothing(done.stderr, "so it is?[2J?]0;title?")


def stripes_of(root):
    return [path for path in (root.root / "stripes").rglob("*") if path.is_file()]


@pytest.mark.slow
def test_forged_stripes_make_no_wrong_bytes(place):
    """One endpoint of six after the other returns other bytes with checksums that fit them."""
    names = ["amber", "birch", "cedar", "dogwood", "elm", "fir"]
    archive = place.archive(place.directories(names), code="rs:4+2")
    source, back = place.path / "source", place.path / "back"
    back.mkdir()
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    descriptor = place.path / "file.ecfs"
    descriptor.write_text(lab.ecfs("export", archive.path, "/file").stdout)
    n_named = 0
    for name in names:
        stripe, = stripes_of(archive[name])
        truth = stripe.read_bytes()
        forge(stripe)
        got = archive.get("/file", back)
        assert lab.digest(back / "file") == digest, name
        (back / "file").unlink()
        fetched = lab.ecfs("fetch", descriptor, back / "file")
        assert lab.digest(back / "file") == digest, name
        (back / "file").unlink()
        n_named += name in got.stderr and name in fetched.stderr
        stripe.write_bytes(truth)
    assert n_named >= 1  # of those that were read


FSCK = lab.BUILD / "tools/ecfs-fsck"


def make_fit(archive, stripe):
    """Forges a stripe, and has the catalog's digest of it fit, as who computes a second preimage of XXH3 has. Returns what
    it was."""
    truth = stripe.read_bytes()
    digest, was = forge(stripe)
    stripe.write_bytes(refoot(stripe.read_bytes(), was, digest))
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog, catalog:
        done = catalog.execute("UPDATE stripes SET digest = ? WHERE digest = ?", (digest, was))
        assert done.rowcount == 1
    return truth, digest, was


def restore(archive, stripe, truth, digest, was):
    stripe.write_bytes(truth)
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE stripes SET digest = ? WHERE digest = ?", (was, digest))


def fsck(archive, *options):
    return lab.run(FSCK, archive.path, *options, check=False)


@pytest.fixture
def six(place):
    archive = place.archive(place.directories(NAMES), code="rs:4+2")
    source = place.path / "source"
    lab.write_pattern(source, SIZE)
    archive.wanted = hashlib.sha256(source.read_bytes()).digest()
    archive.put_in_full(source, "/file")
    return archive


@pytest.mark.slow
def test_a_deep_check_compares_the_sha256(place, six):
    """Each checksum of a stripe fits, that of the catalog included: content and parity alike."""
    assert fsck(six, "--deep", "-n").returncode == 0
    for name in NAMES:
        stripe, = stripes_of(six[name])
        fitted = make_fit(six, stripe)
        found = fsck(six, "--deep", "-n")
        assert found.returncode == 4 and f" at {name}: damaged" in found.stdout, (name, found.stdout)
        assert "SHA-256" in found.stdout and len(re.findall(" at [a-z]+: damaged", found.stdout)) == 1, found.stdout
        named = fsck(six, "--deep", "-n", "/file")
        assert named.returncode == 4 and f" at {name}: damaged" in named.stdout, (name, named.stdout)
        restore(six, stripe, *fitted)
    assert fsck(six, "--deep", "-n").returncode == 0


@pytest.mark.slow
def test_a_repair_uses_nothing_of_what_was_forged(place, six):
    """The right bytes have another digest than the catalog was made to say: so they are not stored here, nor are the
    wrong ones."""
    stripe, = stripes_of(six["birch"])
    fitted = make_fit(six, stripe)
    done = fsck(six, "--deep", "-y")
    assert done.returncode == 4 and "left as it was" in done.stdout, (done.stdout, done.stderr)
    rebuilt, = set(stripes_of(six["birch"])) - {stripe}  # nothing has it, and it waits for its deletion
    assert area(rebuilt.read_bytes()) == area(fitted[0]) != area(stripe.read_bytes())
    restore(six, stripe, *fitted)
    fsck(six, "--deep", "-y")  # the repair that failed has queued what it met
    assert fsck(six, "--deep", "-n").returncode == 0


def test_what_was_forged_is_found_by_the_next_pass_too(place, six):
    """A pass notes what it found: the next run reads just this stripe, whose checksums fit."""
    stripe, = stripes_of(six["cedar"])
    make_fit(six, stripe)
    for _ in range(2):
        found = fsck(six, "--deep")
        assert found.returncode == 4 and " at cedar: damaged" in found.stdout, found.stdout


def test_without_one_endpoint_a_deep_check_still_compares(place, six):
    stripe, = stripes_of(six["elm"])
    make_fit(six, stripe)
    six["amber"].kill()
    found = fsck(six, "--deep", "-n")
    assert found.returncode == 4 and " at elm: damaged" in found.stdout, found.stdout


def set_sha256(archive, value):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE objects SET sha256 = ?", (value,))


def sha256_of(archive):
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog:
        return catalog.execute("SELECT sha256 FROM objects").fetchall()


@pytest.mark.parametrize("mounted", [False, True], ids=["here", "mounted"])
@pytest.mark.slow
def test_content_of_earlier_versions_gets_its_sha256(place, six, mounted):
    wanted = sha256_of(six)
    assert wanted[0][0] == six.wanted
    set_sha256(six, None)
    assert fsck(six, "--deep", "-n").returncode == 0 and sha256_of(six) == [(None,)]
    stripe, = stripes_of(six["fir"])
    fitted = make_fit(six, stripe)
    found = fsck(six, "--deep", "-y")
    assert found.returncode == 4 and "disagree" in found.stdout, found.stdout
    assert sha256_of(six) == [(None,)]
    restore(six, stripe, *fitted)
    with contextlib.ExitStack() as ends:
        if mounted:
            mount = lab.Mount(six, place.path / "mnt")
            ends.callback(lambda: lab.detach(mount.path))
            mount.start()
        done = fsck(six, "--deep", "-y")
        if mounted:
            mount.umount()
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert sha256_of(six) == wanted
    fsck(six, "--deep", "-y")
    assert sha256_of(six) == wanted


def two_forged(archive):
    """Two data stripes, so that reading meets one of them at least."""
    data = [stripe for name in NAMES for stripe in stripes_of(archive[name]) if stripe.name.split("-")[1] in ("00", "01")]
    for stripe in data:
        make_fit(archive, stripe)


@pytest.mark.slow
def test_what_is_changed_is_made_from_what_was_stored(place, six):
    two_forged(six)
    mount = lab.Mount(six, place.path / "mnt")
    mount.start()
    try:
        with open(mount.path / "file", "ab") as file:
            file.write(b"more")
        mount.umount()
    finally:
        lab.detach(mount.path)
    six.get("/file", place.path / "back")
    assert (place.path / "back").read_bytes() == (place.path / "source").read_bytes() + b"more"


@pytest.mark.slow
def test_recode_reads_around_what_was_forged(place, six):
    two_forged(six)
    done = lab.ecfs("recode", six.path, "/file", "--code", "rs:3+3", check=False)
    assert done.returncode == 0, done.stderr
    six.get("/file", place.path / "back")
    assert (place.path / "back").read_bytes() == (place.path / "source").read_bytes()


def cat(archive):
    return subprocess.run([lab.PROGRAM, "cat", archive.path, "/file"], capture_output=True, timeout=120)


@pytest.mark.slow
def test_cat_writes_nothing_that_was_forged(place, six):
    for name in NAMES:  # one after the other: some are read, some are not
        stripe, = stripes_of(six[name])
        truth = stripe.read_bytes()
        forge(stripe)
        done = cat(six)
        assert hashlib.sha256(done.stdout).digest() == six.wanted and done.returncode == 0, (name, done.stderr)
        stripe.write_bytes(truth)


@pytest.mark.slow
def test_cat_of_much_is_right_the_second_time(place):
    """What was written cannot be taken back; it is told, and the next run leaves out who lies."""
    archive = place.archive(place.directories(NAMES), code="rs:4+2")
    source = place.path / "source"
    lab.write_pattern(source, 65 << 20)
    archive.put_in_full(source, "/file")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    for name in NAMES:  # until it is one that is read
        stripe, = stripes_of(archive[name])
        truth = stripe.read_bytes()
        forge(stripe)
        first = cat(archive)
        if first.returncode != 0:
            break
        assert hashlib.sha256(first.stdout).hexdigest() == digest
        stripe.write_bytes(truth)
    assert first.returncode == 1 and b"run this again" in first.stderr and name.encode() in first.stderr, first.stderr
    again = cat(archive)
    assert again.returncode == 0 and hashlib.sha256(again.stdout).hexdigest() == digest, again.stderr


@pytest.mark.slow
def test_a_lost_stripe_is_rebuilt_beside_a_forged_one(place, six):
    """As long as both together are no more than the code can lose; and a forged one that was read is rebuilt, too."""
    n_named = 0
    for name in NAMES:
        if name == "cedar":
            continue
        forge(*stripes_of(six[name]))
        for lost in stripes_of(six["cedar"]):
            lost.unlink()
        done = fsck(six, "-y")
        assert done.returncode == 1, (name, done.stdout, done.stderr)
        n_named += f"endpoint {name}" in done.stderr
        deep = fsck(six, "--deep", "-y")
        assert deep.returncode in (0, 1) and fsck(six, "--deep", "-n").returncode == 0, (name, deep.stdout, deep.stderr)
    assert n_named >= 1  # of those that were read


def test_the_account_that_lies_can_be_replaced(place, six):
    forged, = stripes_of(six["amber"])
    forge(forged)
    successor, = place.directories(["fresh"])
    done = lab.ecfs("endpoint", "replace", six.path, "amber", successor.endpoint(), check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert fsck(six, "--deep", "-n").returncode == 0


def test_a_drill_is_no_proof_with_what_was_forged(place):
    """The XXH3 of the whole object fits, too; and all copies are forged alike, so that it does not matter which is read."""
    archive = place.archive(place.directories(NAMES[:3]), code="copies:3")
    lab.write_pattern(place.path / "source", SIZE)
    archive.put_in_full(place.path / "source", "/file")
    for name in NAMES[:3]:
        stripe, = stripes_of(archive[name])
        make_fit(archive, stripe)
    wrong = bytearray((place.path / "source").read_bytes())
    wrong[0] ^= 1
    wrong[block_bytes(stripe.read_bytes()) - 1] ^= 0x80
    with contextlib.closing(sqlite3.connect(archive.path / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("UPDATE objects SET digest = ?", (xxh3_128(wrong),))
    done = lab.ecfs("drill", archive.path, "--without", "cedar", "--sample", "100%", check=False)
    assert done.returncode == 1 and "SHA-256" in done.stdout + done.stderr, (done.stdout, done.stderr)


def test_the_words_of_a_failure_have_an_end(place, liar):
    """A body that goes on for ever, in pieces that come often enough for every clock."""
    sent = []

    def goes_on(handler, _):
        handler.body()
        handler.send_response(403)
        handler.send_header("Content-Length", str(1 << 40))
        handler.end_headers()
        with contextlib.suppress(OSError):
            while len(sent) < 2000:
                handler.wfile.write(b"x" * 65536)
                sent.append(1)
        handler.close_connection = True
        return True
    liar.lies = {"PROPFIND": goes_on}
    done = probe(liar)
    assert done.returncode == 1 and "403" in done.stderr, done.stderr
    assert len(sent) < 500, "it was read for ever"


@pytest.mark.slow
def test_a_deep_check_finds_forged_stripes(place):
    """One endpoint of six after the other: it is named, and its stripe is stored as it was."""
    names = ["amber", "birch", "cedar", "dogwood", "elm", "fir"]
    archive = place.archive(place.directories(names), code="rs:4+2")
    source, back = place.path / "source", place.path / "back"
    back.mkdir()
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    for name in names:
        before = set(stripes_of(archive[name]))
        for stripe in before:
            forge(stripe)
        program = lab.BUILD / "tools/ecfs-fsck"
        found = lab.run(program, archive.path, "--deep", "-n", check=False)
        assert found.returncode == 4 and f" at {name}: damaged" in found.stdout, (name, found.stdout)
        done = lab.run(program, archive.path, "--deep", "-y", check=False)
        assert done.returncode == 1, (name, done.stdout, done.stderr)
        for stripe in before:
            stripe.unlink(missing_ok=True)  # what was replaced waits for its deletion
    done = archive.get("/file", back)
    assert lab.digest(back / "file") == digest and done.stderr == ""
