"""A WebDAV server in memory that can be told to lie: what no real server does on demand, and some do by mistake."""
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlsplit

PIECE = 1 << 16
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<D:multistatus xmlns:D="DAV:">'
FAILED = (f"{HEAD}<D:response><D:href>/x</D:href><D:status>HTTP/1.1 507 Insufficient Storage</D:status>"
          "</D:response></D:multistatus>").encode()


class Liar:
    """The server; `lies` maps a method to a function (handler, path) that answers in its place and returns True, or
    returns False to let the truth be told. `files` has bytes by path, None for directories. endpoint() as Sshd's."""

    def __init__(self, name):
        self.name, self.lies, self.files, self.lock = name, {}, {"": None}, threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"liar": self}))
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def endpoint(self, scheme="dav"):
        return f"{self.name}={scheme}://127.0.0.1:{self.port}/"

    def kill(self):
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

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
        whole = self.liar.files.get(path)
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

    truly_head = truly_get

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

    def truly_move(self, path):
        to = unquote(urlsplit(self.headers["Destination"]).path)
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

    def multistatus(self, paths, prefix=""):
        text = HEAD
        for path in paths:
            content = self.liar.files[path]
            kind = "<D:collection/>" if content is None else ""
            size = "" if content is None else f"<D:getcontentlength>{len(content)}</D:getcontentlength>"
            text += (f"<D:response><D:href>{prefix}{quote(path)}{'/' if content is None else ''}</D:href><D:propstat>"
                     f"<D:prop><D:resourcetype>{kind}</D:resourcetype>{size}<D:getlastmodified>{formatdate(usegmt=True)}"
                     "</D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>")
        self.answer(207, (text + "</D:multistatus>").encode(), DAV="1")

    def found(self, path):
        """What a PROPFIND is about."""
        deep = self.headers.get("Depth") != "0"
        return [one for one in sorted(self.liar.files) if one == path or deep and one.rpartition("/")[0] == path and one]

    def truly_propfind(self, path):
        self.body()
        if path in self.liar.files:
            self.multistatus(self.found(path))
        else:
            self.answer(404)
