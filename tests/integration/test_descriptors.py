"""A file is fetched by its descriptor alone: no archive, no tolerance endpoints, and never wrong bytes."""
import re
import shutil
import signal
import socket

import lab
import pytest

SIZE = 5_000_011


@pytest.fixture
def stored(place):
    """An archive over a mixture of protocols with one file; its digest, and what ecfs fetch needs to know beside URLs."""
    servers = [place.sshd("amber"), place.sshd("birch"), *place.directories(["cedar", "delta"]),
               place.web("ember", "nginx"), place.web("fjord", "apache", "tls")]
    archive = place.archive(servers)
    source = place.path / "source"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/a file")
    given = [word for server in servers for word in ("--endpoint", server.endpoint())]
    return archive, digest, given


@pytest.mark.parametrize("form", ["ecfs", pytest.param("fec", marks=lab.unkeyed)])
@pytest.mark.slow
def test_a_file_is_fetched_when_archive_and_two_endpoints_are_gone(place, stored, form):
    archive, digest, given = stored
    descriptor = place.path / "descriptor"
    descriptor.write_text(lab.ecfs("export", archive.path, "/a file", "--format", form).stdout)
    assert "identity_file" not in descriptor.read_text()  # nothing of this machine
    shutil.rmtree(archive.path)
    target = place.path / "fetched"
    for lost in [[], ["cedar", "ember"], ["amber", "fjord"]]:
        for name in lost:
            archive[name].kill()
        lab.ecfs("fetch", *given, descriptor, target)
        assert lab.digest(target) == digest
        for name in lost:
            archive[name].start()
    for name in ["cedar", "delta", "ember"]:
        archive[name].kill()
    target.unlink()
    done = lab.ecfs("fetch", *given, descriptor, target, check=False)
    assert done.returncode == 1 and "ecfs fetch: " in done.stderr
    assert not list(place.path.glob("fetched*"))


@lab.unkeyed
@pytest.mark.slow
def test_fec_descriptors_have_the_properties_of_the_paper(place, stored):
    archive, _, _ = stored
    text = lab.ecfs("export", archive.path, "/a file", "--format", "fec").stdout
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert (lines["k"], lines["n"], lines["fileLength"]) == ("4", "6", str(SIZE))
    assert int(lines["packetSize"]) > 0
    assert sum(key.startswith("stripes/") and not key.endswith(".checksum") for key in lines) == 6


@pytest.mark.slow
def test_small_empty_and_sparse_files_have_descriptors(place):
    archive = place.archive(place.directories())
    mount = place.mount(archive)
    (mount.path / "empty").touch()
    (mount.path / "small").write_bytes(b"x" * 100)
    with open(mount.path / "sparse", "wb") as file:
        file.seek(3_000_000)
        file.write(b"y" * 300_000)
        file.truncate(9_000_000)
    archive.await_stored()
    for name in ["empty", "small", "sparse"]:
        descriptor = place.path / "descriptor"
        descriptor.write_text(lab.ecfs("export", archive.path, name).stdout)
        done = lab.ecfs("fetch", "--endpoint", "nobody=file:///nowhere", descriptor, place.path / name)
        assert "names no endpoint nobody" in done.stderr
        assert lab.digest(place.path / name) == lab.digest(mount.path / name)
    mount.umount()


@lab.unkeyed
def test_damaged_descriptors_are_refused(place):
    archive = place.archive(place.directories())
    source = place.path / "source"
    lab.write_pattern(source, SIZE)
    archive.put(source, "/file")
    text = lab.ecfs("export", archive.path, "/file").stdout
    descriptor = place.path / "descriptor"
    for old, new, words in [("format=1", "format=4", "later ecfs"), ("code=rs:4+2", "code=rs:4+x", "rs:4+x"),
                            ("[ecfs-descriptor]", "[other]", "not a descriptor"), ("segment_bytes=", "segment_bytes=9", "make no sense"),
                            ("digest=", "digest=x", "digest")]:
        descriptor.write_text(text.replace(old, new, 1))
        done = lab.ecfs("fetch", descriptor, place.path / "target", check=False)
        assert done.returncode == 1 and words in done.stderr, (old, done.stderr)
    digit = text.index("\ndigest=") + len("\ndigest=")
    descriptor.write_text(text[:digit] + ("1" if text[digit] == "0" else "0") + text[digit + 1:])
    done = lab.ecfs("fetch", descriptor, place.path / "target", check=False)
    assert done.returncode == 1 and "its digest differs" in done.stderr
    assert not list(place.path.glob("target*"))


def test_what_cannot_be_written_is_told_and_leaves_nothing(place):
    archive = place.archive(place.directories())
    source = place.path / "source"
    lab.write_pattern(source, SIZE)
    archive.put(source, "/file")
    descriptor = place.path / "descriptor"
    descriptor.write_text(lab.ecfs("export", archive.path, "/file").stdout)
    target = place.path / "target"
    killed = lab.run("prlimit", f"--fsize={SIZE // 2}", "--core=0", lab.BUILD / "tools/ecfs", "fetch", descriptor, target, check=False)
    assert killed.returncode == -signal.SIGXFSZ, "its end comes in the middle"
    assert not list(place.path.glob("target*"))
    target.mkdir()
    for endpoint in archive.endpoints:
        shutil.rmtree(endpoint.root)
    done = lab.ecfs("fetch", descriptor, target, check=False)
    assert done.returncode == 1 and "is a directory" in done.stderr and "endpoint" not in done.stderr, "before all else"
    done = lab.ecfs("fetch", descriptor, target / "below/file", check=False)
    assert done.returncode == 1 and "below/file" in done.stderr and "endpoint" not in done.stderr
    assert list(place.path.glob("target*")) == [target] and not list(target.iterdir())


@lab.unkeyed
@pytest.mark.slow
def test_servers_of_a_descriptor_see_no_key_unless_they_are_named(place):
    """Whoever wrote the descriptor chose the servers; a login there would show them who we are."""
    archive = place.archive(place.directories())
    source, descriptor, target = place.path / "source", place.path / "descriptor", place.path / "target"
    digest = lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    text = lab.ecfs("export", archive.path, "/file").stdout
    first = archive.endpoints[0]
    page = (lab.REPOSITORY / "man/ecfs-fetch.1").read_text().partition("endpoints of\n")[2].partition("\nwhose servers")[0]
    listed = set(re.findall(r"[a-z][a-z0-9]+", page)) - {"and"}
    assert listed and listed <= set(sum(lab.schemes(), []))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        port = listening.getsockname()[1]
        for scheme in set(lab.schemes()[0]) - {"file"}:
            url = f"{scheme}://127.0.0.1:{port if scheme in listed else 1}/srv"  # nobody listens at 1
            descriptor.write_text(text.replace(first.endpoint().partition("=")[2], url))
            done = lab.ecfs("fetch", descriptor, target)
            assert (f"name it as {first.name}=" in done.stderr) == (scheme in listed), scheme
            assert lab.digest(target) == digest
            with pytest.raises(BlockingIOError):
                listening.accept()
        lab.ecfs("fetch", "-e", f"{first.name}=sftp://127.0.0.1:{port}/srv", descriptor, target)
        listening.accept()[0].close()


@lab.unkeyed
@pytest.mark.slow
def test_control_characters_in_urls_of_a_descriptor_reach_no_server(place):
    archive = place.archive(place.directories())
    source, descriptor, target = place.path / "source", place.path / "descriptor", place.path / "target"
    lab.write_pattern(source, SIZE)
    archive.put_in_full(source, "/file")
    text = lab.ecfs("export", archive.path, "/file").stdout
    url = archive.endpoints[0].endpoint().partition("=")[2]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        port = listening.getsockname()[1]
        for hidden in ["%0d%0aDELE%20x", "\\r\\nDELE x", "\x1b[2J"]:
            for place_of in [f"ftp://127.0.0.1:{port}/a{hidden}", f"ftp://me{hidden}@127.0.0.1:{port}/a"]:
                descriptor.write_text(text.replace(url, place_of))
                done = lab.ecfs("fetch", descriptor, target)
                assert "control character" in done.stderr and "\x1b" not in done.stderr
                with pytest.raises(BlockingIOError):
                    listening.accept()
