"""What is compared: ecfs over each protocol, on one endpoint and on six, and the program that others use for that protocol.

All are systems of tests/bench/mount; works are "in" and "out", from a file and to a file.
"""
import lab
import measure
import systems

HANDSHAKES = {"stall_timeout": "60s"}  # gsiftp has one for each transfer, and a busy machine takes seconds for it


class Way(systems.System):
    """proto: what ratios are among; servers: what it talks to."""
    works = ["in", "out"]
    ends_with_work = True

    def __init__(self, name, base, sources, proto, servers):
        super().__init__(name, base, sources)
        self.proto, self.servers = proto, servers
        self.got = base / "got/large"

    def setup(self):
        super().setup()
        self.got.parent.mkdir()
        for server in self.servers:
            systems.empty(server.root)
            server.root.chmod(0o777)  # Apache is nobody in particular

    def verify(self):
        lab.run("cmp", self.sources.large, self.got, timeout=600)


class Ecfs(Way):
    """`ecfs put` and `ecfs get`, which connect anew each time; options: of the endpoints."""

    def __init__(self, name, base, sources, proto, servers, code, **options):
        super().__init__(name, base, sources, proto, servers)
        self.code, self.options, self.archive = code, options, None

    def places(self):
        return [Endpoint(server, self.options) for server in self.servers]

    def setup(self):
        super().setup()
        self.archive = lab.Archive(self.base / "archive", self.places(), self.code)
        self.archive.init()

    def do_in(self):
        return measure.run_program(f"{lab.PROGRAM} put {self.archive.path} {self.sources.large} /large")

    def do_out(self):
        return measure.run_program(f"{lab.PROGRAM} get {self.archive.path} /large {self.got.parent}")


class EcfsFiles(Ecfs):
    """The same over directories."""

    def __init__(self, name, base, sources, n, code):
        super().__init__(name, base, sources, "file", [], code)
        self.n = n

    def places(self):
        return [lab.Directory(self.base / "endpoints", f"d{i}") for i in range(self.n)]


class Endpoint:
    def __init__(self, server, options):
        self.name, self.server, self.options = server.name, server, options

    def endpoint(self):
        return self.server.endpoint(**self.options)


class Copy(Way):
    """cp to a directory and back."""

    def do_in(self):
        return measure.run_program(f"cp {self.sources.large} {self.base}/large")

    def do_out(self):
        return measure.run_program(f"cp {self.base}/large {self.got}")


class Sshfs(systems.Sshfs):
    """cp to a mounted server and back."""
    works = ["in", "out"]
    proto = "sftp"

    def setup(self):
        super().setup()
        self.got = self.base / "got"

    def do_out(self):
        lab.drop_caches()
        return measure.run_program(f"cp {self.path}/large {self.got}")

    def verify(self):
        lab.run("cmp", self.sources.large, self.got, timeout=600)


class Curl(Way):
    """curl to one WebDAV server."""

    def check(self):
        systems.need_program("curl", "curl")

    def _run(self, *arguments):
        server = self.servers[0]
        trust = f"--cacert {server.options['ca_file']}" if "ca_file" in server.options else ""
        url = server.url("/large").replace("dav", "http", 1)
        return measure.run_program(f"curl -sSf {trust} {' '.join(map(str, arguments))} {url}")

    def do_in(self):
        return self._run("-T", self.sources.large)

    def do_out(self):
        return self._run("-o", self.got)


class UrlCopy(Way):
    """globus-url-copy to one server."""

    def __init__(self, name, base, sources, proto, servers, options):
        super().__init__(name, base, sources, proto, servers)
        self.options = options

    def check(self):
        systems.need_program("globus-url-copy", "globus-gass-copy-progs")

    def _run(self, source, target):
        grid = self.servers[0].grid
        return measure.run_program(f"env X509_USER_PROXY={grid.proxy} X509_CERT_DIR={grid.authority.certificates} "
                                   f"globus-url-copy {self.options} {source} {target}")

    def _url(self):
        server = self.servers[0]
        return f"{server.scheme}://localhost:{server.port}{server.root}/large"

    def do_in(self):
        return self._run(f"file://{self.sources.large}", self._url())

    def do_out(self):
        return self._run(self._url(), f"file://{self.got}")


def peers(base, sources, servers):
    """The first of a protocol is what its ratios are to."""
    def place(name):
        return base / name.translate(str.maketrans(" ,", "--"))

    def url_copy(name, proto, kind, options):
        return UrlCopy(name, place(name), sources, proto, servers[kind][:1], options)

    return [
        Copy("cp", place("cp"), sources, "file", []),
        Sshfs("sshfs", place("sshfs"), sources, servers["sftp"]),
        Curl("curl, dav", place("curl-dav"), sources, "dav", servers["dav"][:1]),
        Curl("curl, davs", place("curl-davs"), sources, "davs", servers["davs"][:1]),
        url_copy("globus-url-copy, ftp", "ftp", "ftp", ""),
        url_copy("globus-url-copy, clear", "gsiftp clear", "gsiftp", "-nodcau"),
        url_copy("globus-url-copy, clear, 4 streams", "gsiftp clear", "gsiftp", "-nodcau -p 4"),
        url_copy("globus-url-copy, private", "gsiftp private", "gsiftp", "-dcpriv"),
        url_copy("globus-url-copy, private, 4 streams", "gsiftp private", "gsiftp", "-dcpriv -p 4"),
    ]


def ours(base, sources, servers):
    made = []
    for code, n in [("copies:1", 1), ("rs:4+2", 6)]:
        words = f"{n} endpoint{'s' if n > 1 else ''}"
        made.append(EcfsFiles(f"ecfs, file, {words}", base / f"file-{n}", sources, n, code))
        for proto, kind, options in [("sftp", "sftp", {}), ("dav", "dav", {}), ("davs", "davs", {}), ("ftp", "ftp", {}),
                                     ("gsiftp clear", "gsiftp", HANDSHAKES),
                                     ("gsiftp private", "gsiftp", HANDSHAKES | {"protection": "private"})]:
            made.append(Ecfs(f"ecfs, {proto}, {words}", base / f"{proto.replace(' ', '-')}-{n}", sources, proto,
                             servers[kind][:n], code, **options))
    return made
