import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "lab"))
import catalogs  # noqa: E402
import gridftp  # noqa: E402
import lab  # noqa: E402
import steps  # noqa: E402
import web  # noqa: E402

SHM_NEEDED = 4 << 30
LOG_LINES = int(os.environ.get("ECFS_LOG_LINES", "30"))  # of each mount and server, where a test fails


SMALL_OBJECTS = "64K"
SAMPLE = int(os.environ.get("ECFS_SAMPLE", "1"))  # one in so many slow tests runs


def pytest_generate_tests(metafunc):
    """Tests that are marked so run once more in archives whose larger files are several objects."""
    if metafunc.definition.get_closest_marker("several_objects"):
        metafunc.parametrize("place", [None, SMALL_OBJECTS], indirect=True, ids=["one-object", "several-objects"])


def pytest_configure(config):
    """What a shell runs in the background ignores SIGINT, and so would all that tests begin and interrupt."""
    config.addinivalue_line("markers", "several_objects: once more where files of more than 64 KiB are several objects")
    config.addinivalue_line("markers", "as_users: the archive of the fixture has the key that users get who say nothing")
    config.addinivalue_line("markers", "long: takes half a minute or more, and begins first, so that it is not alone at the end")
    config.addinivalue_line("markers", "slow: takes half a second of processor time or more; see ECFS_SAMPLE")
    config.addinivalue_line("markers", "nightly: long, or about a rare bad day; tools/check nightly runs them")
    for name in ("CI", "BUILD_NUMBER"):  # there, pytest compares what differs line by line: of a file's content, for hours
        os.environ.pop(name, None)
    steps.seed_of_the_day()  # xdist's workers are to have the same one, also at midnight
    if threading.current_thread() is threading.main_thread():  # else one of xdist's, which got it from this
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish():
    catalogs.server.stop()


def shares(item):
    """Whether it uses something of ours that outlives a test."""
    definitions = [definition for found in item._fixtureinfo.name2fixturedefs.values() for definition in found]
    return any(definition.scope != "function" and definition.has_location for definition in definitions)  # of plugins: not


def leave_for_the_night(items):
    """Of the slow tests of each file one in SAMPLE remains, and at least one; others on other days, and all at night."""
    ranks = {}
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("nightly"):
            rank = zlib.crc32(f"{steps.seed_of_the_day()} {item.nodeid}".encode())
            ranks.setdefault(item.path, []).append((rank, item))
    for found in ranks.values():
        found.sort(key=lambda ranked: ranked[0])
        for rank, item in found[1:]:
            if rank % SAMPLE != 0:
                item.add_marker(pytest.mark.nightly)


def pytest_terminal_summary(terminalreporter):
    if SAMPLE > 1:
        terminalreporter.write_line(f"one in {SAMPLE} slow tests: those of ECFS_SEED={steps.seed_of_the_day()}")


@pytest.hookimpl(tryfirst=True)  # xdist's looks at the groups, and pytest's own at the marks
def pytest_collection_modifyitems(items):
    """Tests that share what they made stay together, and in their order; all others go to who is free."""
    for item in items:
        if shares(item):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    leave_for_the_night(items)
    order = ["long", "xdist_group"], ["slow"], []  # what is short fills the end
    items.sort(key=lambda item: [not names or any(map(item.get_closest_marker, names)) for names in order].index(True))


@pytest.hookimpl(hookwrapper=True)
def pytest_report_from_serializable(data):
    """In what xdist's workers tell, tests have their names, without the groups that it appends."""
    name, _, group = data["nodeid"].rpartition("@")
    if name and "]" not in group:
        data["nodeid"] = name
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows what the servers and mounts said where a test fails."""
    report = (yield).get_result()
    if report.failed:
        for name, path in lab.logs.items():
            if path.exists():
                lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"log of {name}", "\n".join(lines)))


def new_place(factory, keep_on_disk):
    """A fresh directory: in memory where there is room, as nothing here needs to outlive the test."""
    shm = Path("/dev/shm")
    if not keep_on_disk and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free >= SHM_NEEDED:
        return Path(tempfile.mkdtemp(prefix="ecfs-test-", dir=shm))
    return factory.mktemp("place")


class Place:
    """A directory of its own for servers, archives and mounts; close() ends and removes all that was made in it."""

    def __init__(self, factory, keep_on_disk=False, object_max=None):
        self.path = new_place(factory, keep_on_disk)
        self.object_max = object_max
        self.mounts, self.servers, self.proxies, self.disks = [], [], [], []
        self.numbers = itertools.count()
        self.known = set(lab.logs)
        lab.places.add(self.path)
        self.keys = self.grid = None

    def gridftp(self, name, scheme="gsiftp"):
        self.grid = self.grid or gridftp.Grid(self.path / "grid")
        server = gridftp.Server(self.path / "gridftp" / name, name, self.grid, scheme)
        self.servers.append(server)
        server.start()
        return server

    def web(self, name, kind, *features, **options):
        server = web.Web(self.path / "web" / name, name, kind, *features, **options)
        self.servers.append(server)
        server.start()
        return server

    def sshd(self, name, address="127.0.0.1"):
        self.keys = self.keys or lab.Keys(self.path / "keys")
        server = lab.Sshd(self.path / "sshd" / name, name, self.keys, address)
        self.servers.append(server)
        server.start()
        return server

    def proxy(self, port, listen_port=0):
        proxy = lab.Proxy(port, listen_port)
        self.proxies.append(proxy)
        return proxy

    def behind_proxy(self, name):
        """A new sshd as an endpoint that is reached through a proxy of its own."""
        server = self.sshd(name)
        proxy = self.proxy(server.port)
        server.know(proxy.port)
        return lab.Behind(server, proxy)

    def directories(self, names=lab.NAMES):
        return [lab.Directory(self.path / f"endpoints-{next(self.numbers)}", name) for name in names]

    def archive(self, endpoints, code="rs:4+2", *words):
        """Six directories, six sshd: whatever the endpoints are, an initialised archive over them."""
        archive = lab.Archive(self.path / f"archive-{next(self.numbers)}", endpoints, code)
        archive.init(*words)
        if self.object_max:
            archive.configure("archive", object_max=self.object_max)
        return archive

    def fetched(self, archive, path):
        """What ecfs get makes of a directory of the archive."""
        target = self.path / "fetched"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        archive.get(path, target)
        return lab.describe_tree(target / path.rpartition("/")[2])

    def disk(self, path, size_bytes):
        disk = lab.Disk(path, size_bytes)
        self.disks.append(disk)
        return disk

    def mount(self, archive, *options):
        mount = lab.Mount(archive, self.path / f"mnt-{next(self.numbers)}", *options)
        self.mounts.append(mount)
        mount.start()
        return mount

    def close(self):
        for mount in self.mounts:
            mount.kill()
        for proxy in self.proxies:
            proxy.close()
        for server in self.servers:
            server.kill()
        for disk in self.disks:
            disk.remove()
        for name in set(lab.logs) - self.known:
            del lab.logs[name]
        lab.places.remove(self.path)
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.fixture
def place(request, tmp_path_factory):
    made = Place(tmp_path_factory, object_max=getattr(request, "param", None))
    yield made
    made.close()


@pytest.fixture(scope="module")
def module_place(tmp_path_factory):
    made = Place(tmp_path_factory)
    yield made
    made.close()


@pytest.fixture(scope="session")
def session_place(tmp_path_factory):
    made = Place(tmp_path_factory)
    yield made
    made.close()


@pytest.fixture
def disk_place(tmp_path_factory):
    made = Place(tmp_path_factory, keep_on_disk=True)
    yield made
    made.close()


@pytest.fixture
def archive(place, request):
    """rs:4+2 over six directories."""
    marked = request.node.get_closest_marker("as_users")
    return place.archive(place.directories(), "rs:4+2", *([lab.AS_USERS] if marked else []))


@pytest.fixture
def mount(place, archive):
    return place.mount(archive)
