"""WebDAV servers in an archive: lines that fail beneath a mount, and what is told of servers that will not have us."""
import os

import ca
import lab
import pytest
from web import Web

CYCLE = 3_000_000


@pytest.fixture
def webs(place):
    """Makes servers that end with the test."""
    def make(name, kind, *features, **options):
        server = Web(place.path / "web" / name, name, kind, *features, **options)
        place.servers.append(server)
        server.start()
        return server
    return make


@pytest.mark.slow
def test_servers_that_stall_and_lines_that_are_cut_cost_no_byte(place, webs):
    servers = [webs("amber", "nginx"), webs("birch", "apache", "tls"), webs("cedar", "nginx", "tls"),
               webs("delta", "apache"), *place.directories(["ember", "fjord"])]
    proxies = [place.proxy(server.port) for server in servers[:2]]
    behind = [lab.Behind(server, proxy) for server, proxy in zip(servers, proxies)]
    archive = place.archive([*behind, *servers[2:]])
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", CYCLE)
    archive.await_stored()
    for proxy in proxies:
        proxy.tell("stall")
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == digest
    for proxy in proxies:
        proxy.tell("resume")
        proxy.tell("cut")
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == digest
    assert lab.write_pattern(mount.path / "new", CYCLE, 1) == lab.digest(mount.path / "new")
    archive.await_stored()
    mount.umount()


def refused(endpoint, *words):
    """`ecfs endpoint test` fails with one message that has these words, and no secret."""
    done = lab.ecfs("endpoint", "test", endpoint, check=False)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("ecfs endpoint test: ")]
    assert len(lines) == 1 and all(word in lines[0] for word in words), done.stderr
    assert "sesame" not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize("kind", ["nginx", "apache"])
@pytest.mark.slow
def test_a_server_is_trusted_for_its_certificate_only(webs, place, kind):
    server = webs("one", kind, "tls")
    assert lab.ecfs("endpoint", "test", server.endpoint("/")).returncode == 0
    other = ca.Ca(place.path / "other")
    refused(server.endpoint("/", ca_file=other.certificate), "signed by no authority that is trusted", "ca_file")
    refused(server.endpoint("/", ca_file=place.path / "nowhere"), "is missing")
    refused(f"x=davs://127.0.0.1:{server.port}/", "signed by no authority that is trusted", "ca_file")
    wrong = ca.Ca(place.path / "wrong")
    wrong.host(server.directory / "host", "elsewhere.example.org")
    server.kill()
    server.start()
    refused(server.endpoint("/", ca_file=wrong.certificate), "is for another host")


@pytest.mark.parametrize("kind", ["nginx", "apache"])
@pytest.mark.slow
def test_a_client_certificate_lets_in(webs, place, kind):
    authority = ca.Ca(place.path / "authority")
    server = webs("one", kind, "tls", "client-cert", authority=authority)
    refused(server.endpoint("/"), "wants a client certificate", "client_cert")
    user = authority.user(place.path / "user")
    assert lab.ecfs("endpoint", "test", server.endpoint("/", client_cert=user.certificate,
                                                        client_key=user.key)).returncode == 0
    os.chmod(user.key, 0o644)
    refused(server.endpoint("/", client_cert=user.certificate, client_key=user.key), "can be read by others", "chmod 600")
    refused(server.endpoint("/", client_cert=place.path / "nowhere"), "is missing")


def secret(path, text):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.slow
def test_passwords_go_to_the_server_and_nowhere_else(webs, place):
    right, wrong = secret(place.path / "right", "sesame"), secret(place.path / "wrong", "sesame-no")
    for kind, features in [("nginx", ["basic", "tls"]), ("apache", ["basic", "tls"]), ("apache", ["digest"])]:
        server = Web(place.path / f"web-{kind}-{features[0]}", "one", kind, *features)
        place.servers.append(server)
        crypted = lab.run("openssl", "passwd", "-1", "sesame").stdout.strip()
        hashed = lab.hashlib.md5(b"ada:lab:sesame").hexdigest()
        (server.directory / "passwords").write_text(
            f"ada:lab:{hashed}\n" if "digest" in features else f"ada:{crypted}\n")
        server.start()
        done = lab.ecfs("endpoint", "test", server.endpoint("/", user="ada@", password_file=right))
        assert f"{features[0]} password" in done.stdout
        refused(server.endpoint("/", user="ada@", password_file=wrong), "refuses user ada", "(401)")
        refused(server.endpoint("/", user="ada@", password_file=secret(place.path / "empty", "")), "empty: its first line")
        refused(server.endpoint("/"), "wants to know who you are (401)", "password_file")
        server.kill()
    basic = webs("clear", "nginx", "basic")
    (basic.directory / "passwords").write_text(f"ada:{crypted}\n")
    refused(basic.endpoint("/", user="ada@", password_file=right), "could be read on the way", "davs://")
    assert lab.ecfs("endpoint", "test", basic.endpoint("/", user="ada@", password_file=right, auth="clear")).returncode == 0


@pytest.mark.slow
def test_servers_that_refuse_or_are_not_trusted_take_their_endpoints_away_and_no_more(webs, place):
    """Two revoked tokens, a certificate for another host, and one of a strange authority, all beneath one mount."""
    authority, strangers = ca.Ca(place.path / "authority"), ca.Ca(place.path / "strangers")
    servers = [webs(name, kind, "tls", *features, authority=authority) for name, kind, features in [
        ("amber", "nginx", ["token"]), ("birch", "apache", ["token"]), ("cedar", "nginx", []), ("delta", "apache", [])]]
    for server in servers[:2]:
        server.tokens("sesame1")
        server.options["token_file"] = secret(place.path / f"token-{server.name}", "sesame1")
    archive = place.archive([*servers, *place.directories(["ember", "fjord"])], code="rs:2+4")
    mount = place.mount(archive)
    digest = lab.write_pattern(mount.path / "file", CYCLE)
    archive.await_stored()

    def states():
        lab.forget_mounts()
        assert lab.digest(mount.path / "file") == digest
        return {one["name"]: one["state"] for one in archive.json("status")["endpoints"][:4]}

    def restart_as(server, signer, host):
        signer.host(server.directory / "host", host)
        server.kill()
        server.start()
    for server in servers[:2]:
        server.tokens("sesame2")
    restart_as(servers[2], authority, "elsewhere.example.org")
    restart_as(servers[3], strangers, "127.0.0.1")
    lab.until(lambda: set(states().values()) == {"down"}, 90, "all four are down")
    words = {"amber": f"refuses the token in {servers[0].options['token_file']} (401)",
             "birch": f"refuses the token in {servers[1].options['token_file']} (403)",
             "cedar": "is for another host: write the name that it has in the URL",
             "delta": "is signed by no authority that is trusted here: set ca_file"}
    shown = lambda: lab.ecfs("status", archive.path, check=False).stdout  # noqa: E731
    lab.until(lambda: all(said in shown() for said in words.values()), 60, "status says why")
    told = {name: [line for line in mount.text().splitlines() if f"endpoint {name} is down" in line] for name in words}
    assert [len(lines) for lines in told.values()] == [1, 1, 1, 1], told
    assert words["amber"] in told["amber"][0] and words["birch"] in told["birch"][0]
    assert "sesame" not in mount.text() + shown()
    for server in servers[:2]:
        secret(server.options["token_file"], "sesame2")
    for server in servers[2:]:
        restart_as(server, authority, "127.0.0.1")
    lab.until(lambda: "down" not in states().values(), 120, "what was mended is taken up")
    mount.umount()


@pytest.mark.parametrize("kind", ["nginx", "apache"])
@pytest.mark.slow
def test_a_plain_server_is_read(webs, place, kind):
    writers = [webs(name, kind) for name in ["cedar", "delta", "ember"]]
    archive = place.archive(writers, code="rs:2+1")
    source = place.path / "source"
    digest = lab.write_pattern(source, CYCLE)
    archive.put(source, "/file")
    for server in writers:
        server.kill()
        server.features = ("plain",)
        server.start()
    refused(writers[0].endpoint(), "WebDAV", "http://")
    config = archive.path / "ecfs.conf"
    config.write_text(config.read_text().replace("dav://", "http://"))
    archive.get("/file", place.path / "back")
    assert lab.digest(place.path / "back") == digest
    refused(writers[0].endpoint().replace("dav://", "http://"), "only be read")
