"""Archives over GridFTP servers: beside others, with losses, and what users are told when certificates are not right."""
import itertools
import os

import ca
import lab
import pytest
from steps import dice_of_the_day

SIZE = 4_000_001
ALL = os.environ.get("ECFS_GRIDFTP") == "all"  # what is long, and of which the rest shows most


@pytest.fixture
def mixed(place):
    """Two servers each of SFTP, of GridFTP (one with certificates, one anonymous) and of WebDAV (one with TLS)."""
    return place.archive([place.sshd("amber"), place.sshd("birch"), place.gridftp("cedar"), place.gridftp("delta", "ftp"),
                          place.web("ember", "nginx"), place.web("fjord", "apache", "tls")])


def pairs_of(endpoints):
    """Every two of them, or so many that each dies at least once: other ones each day."""
    if ALL:
        return [*itertools.combinations(endpoints, 2)]
    turned = dice_of_the_day().sample(endpoints, len(endpoints))
    return [*itertools.pairwise(turned)]


def each_pair_dead(endpoints):
    """Pairs of the endpoints in turn, killed while the caller looks; most steps change one."""
    dead = set()
    for pair in pairs_of(endpoints):
        for one in dead - set(pair):
            one.start()
        for one in set(pair) - dead:
            one.kill()
        dead = set(pair)
        yield {one.name for one in pair}
    for one in dead:
        one.start()


@pytest.mark.long
@pytest.mark.slow
def test_any_two_of_six_may_die_whatever_they_speak(place, mixed):
    mount = place.mount(mixed)
    facts = {f"size-{size}": lab.write_pattern(mount.path / f"size-{size}", size, size) for size in [1, SIZE]}
    mixed.await_stored()
    assert mixed.json("status")["objects"]["full"] == len(facts)
    n_pairs = 0
    for lost in each_pair_dead(mixed.endpoints):
        back = place.path / f"back-{n_pairs}"
        back.mkdir()
        mixed.get(*(f"/{name}" for name in facts), back)  # of a process that knows of nobody that he is down
        assert {name: lab.digest(back / name) for name in facts} == facts, lost
        n_pairs += 1
    assert n_pairs == (15 if ALL else 5)
    for lost in [("cedar", "delta"), ("amber", "birch"), ("ember", "fjord")]:  # and beneath a mount that goes on
        for name in lost:
            mixed[name].kill()
        lab.forget_mounts()
        assert {name: lab.digest(mount.path / name) for name in facts} == facts, lost
        for name in lost:
            mixed[name].start()
        lab.until(lambda: all(endpoint["state"] != "down" for endpoint in mixed.json("status")["endpoints"]), 120,
                  f"{lost} are up again", pause=0.2)
    mount.umount()


class Behind:
    """A server that is reached through a proxy, as far as it is asked; contents go beside it."""

    def __init__(self, place, server):
        self.name, self.root, self.server = server.name, server.root, server
        self.proxy = place.proxy(server.port)

    def endpoint(self):
        return self.server.endpoint(self.proxy.port, stall_timeout="2s", connect_timeout="10s")


@pytest.mark.parametrize("scheme", ["gsiftp", "ftp"] if ALL else ["gsiftp"])
@pytest.mark.slow
def test_connections_that_are_cut_and_stall_cost_one_endpoint(place, scheme):
    behind = Behind(place, place.gridftp("amber", scheme))
    archive = place.archive([behind, *place.directories(lab.NAMES[1:])])
    mount = place.mount(archive)
    state = lambda: archive.json("status")["endpoints"][0]["state"]  # noqa: E731
    behind.proxy.tell("delay", 5)
    expected = lab.write_pattern(mount.path / "first", SIZE)
    behind.proxy.tell("cut")
    assert lab.write_pattern(mount.path / "second", SIZE, 1)
    behind.proxy.tell("stall")
    lab.forget_mounts()
    assert lab.digest(mount.path / "first") == expected
    lab.until(lambda: state() == "down", 120, "it is noticed", pause=0.2)
    written = lab.write_pattern(mount.path / "third", SIZE, 2)
    behind.proxy.tell("resume")
    behind.proxy.tell("cut")
    lab.until(lambda: state() != "down", 120, "it is back", pause=0.2)
    archive.await_stored()
    lab.forget_mounts()
    assert lab.digest(mount.path / "third") == written
    mount.umount()


def explained(server, **options):
    """What `ecfs endpoint test` says is wrong with a server."""
    done = lab.ecfs("endpoint", "test", server.endpoint(**options).partition("=")[2], check=False)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) <= 2, done.stderr
    return done.stderr


@pytest.mark.slow
def test_certificates_that_are_not_right_are_explained(place, tmp_path):
    server = place.gridftp("cedar")
    grid = server.grid
    expired = ca.make_proxy(tmp_path / "expired", grid.user, -1)
    said = explained(server, user_proxy=expired)
    assert f"the proxy certificate {expired}" in said and "grid-proxy-init" in said
    said = explained(server, user_proxy=tmp_path / "nothing")
    assert f"no proxy certificate at {tmp_path}/nothing" in said and "grid-proxy-init" in said
    for option, path in {"user_proxy": grid.proxy, "user_key": grid.user.key}.items():
        os.chmod(path, 0o644)
        more = {"user_proxy": None, "user_certificate": grid.user.certificate} if option == "user_key" else {}
        said = explained(server, **{**more, option: path})
        assert f"{path} can be read by others" in said and "chmod 600" in said
        os.chmod(path, 0o600)
    other = ca.Ca(tmp_path / "other", "other CA")
    said = explained(server, certificates=other.certificates)
    assert "an authority that is not trusted" in said and str(other.certificates) in said
    server.kill()
    server.host = grid.authority.host(tmp_path / "wrong", "elsewhere.example.org")
    server.start()
    assert "certificate for another host" in (said := explained(server)) and "elsewhere.example.org" in said
    grid.authority.revoke(server.host)
    assert "has been revoked" in explained(server)


@pytest.mark.parametrize("options", [{"mode": "extended", "streams": 4, "tcp_buffer": "1M"}, {"user": True},
                                     *([{"protection": "safe"}, {"data_authentication": "no"}] if ALL else [])], ids=str)
@pytest.mark.slow
def test_an_endpoint_serves_with_each_option(place, options):
    server = place.gridftp("cedar")
    if options.get("user"):
        user = server.grid.user
        options = {"user_proxy": None, "user_certificate": user.certificate, "user_key": user.key}
    done = lab.ecfs("endpoint", "test", server.endpoint(**options).partition("=")[2])
    assert not done.stderr


@pytest.mark.slow
def test_an_expired_proxy_takes_one_endpoint_away_and_a_new_one_brings_it_back(place):
    server = place.gridftp("amber")
    archive = place.archive([server, *place.directories(lab.NAMES[1:])])
    os.replace(ca.make_proxy(server.directory / "expired", server.grid.user, -1), server.grid.proxy)
    mount = place.mount(archive)
    expected = lab.write_pattern(mount.path / "file", SIZE)
    assert "the proxy certificate" in lab.until(lambda: "has expired" in mount.text() and mount.text(), 60, "it is told")
    lab.forget_mounts()
    assert lab.digest(mount.path / "file") == expected
    assert mount.text().count("has expired") <= 3, mount.text()
    os.replace(ca.make_proxy(server.directory / "renewed", server.grid.user), server.grid.proxy)
    archive.await_stored()
    assert lab.stripe_files(server)
    mount.umount()
