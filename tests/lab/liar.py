"""A WebDAV server, in memory or in front of a directory, that can be told to lie: what no real server does on demand, and
some do by mistake."""
import itertools
import os
import sys
import threading
from collections.abc import MutableMapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit

PIECE = 1 << 16
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<D:multistatus xmlns:D="DAV:">'
FAILED = (f"{HEAD}<D:response><D:href>/x</D:href><D:status>HTTP/1.1 507 Insufficient Storage</D:status>"
          "</D:response></D:multistatus>").encode()


class Below(MutableMapping):
    """What is below a directory, as Liar.files has it."""

    def __init__(self, root):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def at(self, path):
        return self.root / path.lstrip("/")

    def __getitem__(self, path):
        if path.endswith("/") or ".." in path.split("/"):
            raise KeyError(path)
        try:
            return self.at(path).read_bytes()
        except IsADirectoryError:
            return None
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None

    def __setitem__(self, path, content):
        if content is None:
            self.at(path).mkdir()
            return
        made = self.root.with_name(f"{self.root.name}.{threading.get_ident()}")  # nobody reads half of it
        made.write_bytes(content)
        os.replace(made, self.at(path))

    def __delitem__(self, path):
        if self[path] is None:
            self.at(path).rmdir()
        else:
            self.at(path).unlink()

    def __iter__(self):
        for directory, names, files in os.walk(self.root):
            below = directory[len(str(self.root)):]
            yield from [below] if below == "" else []
            yield from (f"{below}/{name}" for name in names + files)

    def __len__(self):
        return sum(1 for _ in self)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Who hangs up in the middle of an answer may."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Liar:
    """The server; `lies` maps a method to a function (handler, path) that answers in its place and returns True, or
    returns False to let the truth be told. `files` has bytes by path, None for directories: those below @root, or in
    memory. endpoint() as Sshd's, with @options (",key=value")."""

    def __init__(self, name, root=None, options=""):
        self.name, self.lies, self.root, self.options, self.lock = name, {}, root, options, threading.Lock()
        self.files = {"": None} if root is None else Below(root)
        self.numbers = itertools.count()  # of connections
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"liar": self}))
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def endpoint(self, scheme="dav"):
        return f"{self.name}={scheme}://127.0.0.1:{self.port}/{self.options}"

    def kill(self):
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.number = next(self.liar.numbers)

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", length=None, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def pieces(self):
        """Of the body, as they come; ends without a word where it breaks off."""
        left = int(self.headers.get("Content-Length", 0))
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        while chunked or left > 0:
            if chunked and left == 0:
                left = int(self.rfile.readline() or b"0", 16)
                if left == 0:
                    self.rfile.readline()
                    return
            piece = self.rfile.read(min(left, PIECE))
            left -= len(piece)
            if chunked and left == 0:
                self.rfile.readline()
            yield piece
            if not piece:
                return

    def body(self):
        return b"".join(self.pieces())

    def serve(self):
        path = unquote(urlsplit(self.path).path).rstrip("/")
        lie = self.liar.lies.get(self.command)
        if lie is None or not lie(self, path):
            getattr(self, f"truly_{self.command.lower()}")(path)

    do_GET = do_HEAD = do_PUT = do_MKCOL = do_MOVE = do_DELETE = do_PROPFIND = serve  # noqa: N815

    def truly_get(self, path):
        self.give(self.liar.files.get(path))

    truly_head = truly_get

    def give(self, whole):
        """What is asked for of a file with these bytes; None: there is none."""
        wanted = self.headers.get("Range")
        if whole is None:
            self.answer(404)
        elif wanted is None:
            self.answer(200, whole)
        else:
            first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
            part = whole[first:last + 1]
            self.answer(206 if part else 416, part,
                        Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(whole)}" if part else "bytes */0")

    def store(self, path, content):
        """With a directory above it only; the status."""
        with self.liar.lock:
            if self.liar.files.get(path.rpartition("/")[0], b"") is not None:
                return 409
            if content is None and path in self.liar.files:
                return 405
            self.liar.files[path] = content
            return 201

    def truly_put(self, path):
        self.answer(self.store(path, self.body()))

    def truly_mkcol(self, path):
        self.answer(self.store(path, None))

    def destination(self):
        """Of a MOVE."""
        return unquote(urlsplit(self.headers["Destination"]).path)

    def truly_move(self, path):
        to = self.destination()
        if path not in self.liar.files:
            self.answer(404)
        elif to in self.liar.files and self.headers.get("Overwrite") == "F":
            self.answer(412)
        else:
            status = self.store(to, self.liar.files[path])
            if status == 201:
                del self.liar.files[path]
            self.answer(status)

    def truly_delete(self, path):
        self.answer(404 if self.liar.files.pop(path, 0) == 0 else 204)

    def multistatus(self, files, prefix=""):
        """Of these, with their bytes by path."""
        text = HEAD
        for path, content in files.items():
            kind = "<D:collection/>" if content is None else ""
            size = "" if content is None else f"<D:getcontentlength>{len(content)}</D:getcontentlength>"
            text += (f"<D:response><D:href>{prefix}{quote(path)}{'/' if content is None else ''}</D:href><D:propstat>"
                     f"<D:prop><D:resourcetype>{kind}</D:resourcetype>{size}<D:getlastmodified>{formatdate(usegmt=True)}"
                     "</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>")
        self.answer(207, (text + "</D:multistatus>").encode(), DAV="1")

    def found(self, path):
        """What a PROPFIND is about, with its bytes."""
        deep = self.headers.get("Depth") != "0"
        names = [one for one in sorted(self.liar.files) if one == path or deep and one.rpartition("/")[0] == path and one]
        return {one: self.liar.files[one] for one in names if one in self.liar.files}

    def truly_propfind(self, path):
        self.body()
        self.list(self.found(path))

    def list(self, found):
        if found:
            self.multistatus(found)
        else:
            self.answer(404)
