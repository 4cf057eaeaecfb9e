"""A WebDAV server that keeps every byte of every stripe that ever reached it, also of uploads that broke off; and what no
key may have seen: two contents."""
import importlib.machinery
import importlib.util
import itertools
import struct
import threading
from functools import lru_cache

import lab
from liar import Liar

LAGS_AFTER = 1 << 16  # bytes of a stripe, where uploads are held up


class Keeper(Liar):
    """`flows`: while it is cleared, uploads of stripes are held up. `is_up`: else it refuses all. `counts`: is called for
    every request that changes something about stripes, before it is done. `kept`: a bytearray for each upload."""

    def __init__(self, name):
        super().__init__(name)
        self.kept, self.flows, self.is_up, self.counts = [], threading.Event(), True, None
        self.flows.set()
        self.lies = dict.fromkeys(["GET", "HEAD", "MKCOL", "PROPFIND"], self.refuse)
        self.lies |= {"PUT": self.put, "MOVE": self.count, "DELETE": self.count}

    def refuse(self, handler, _):
        if not self.is_up:
            handler.close_connection = True
            handler.answer(503)
        return not self.is_up

    def count(self, handler, path):
        if self.counts is not None and "-" in path.rpartition("/")[2]:
            self.counts()
        return self.refuse(handler, path)

    def put(self, handler, path):
        if self.count(handler, path):
            return True
        body = bytearray()
        self.kept.append(body)
        for piece in handler.pieces():
            body += piece
            if piece == b"":
                handler.close_connection = True
                return True
            if is_stripe(body) and len(body) > LAGS_AFTER:
                self.flows.wait()
        handler.answer(handler.store(path, bytes(body)))
        return True

    def stripes(self):
        """Paths of those that are there."""
        return [path for path, data in self.files.items() if path.startswith("/stripes/") and data is not None]


@lru_cache(maxsize=1)
def salvage():
    """The second implementation of the format."""
    loader = importlib.machinery.SourceFileLoader("ecfs_salvage", str(lab.REPOSITORY / "tools/ecfs-salvage"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("ecfs_salvage", loader))
    loader.exec_module(module)
    return module


def is_stripe(body):
    return body[:8] == salvage().HEADER_MAGIC


class Upload:
    """Of a stripe: what came of its packets, without their tags, of an object of @size bytes."""

    def __init__(self, body, size):
        header_bytes, = struct.unpack_from("<I", body, 12)
        found = salvage().sections(bytes(body[:header_bytes]), salvage().PREAMBLE_BYTES)
        (_, self.object, self.instance, _, _, _, self.k, self.n, self.index, self.segment_bytes, self.block_bytes, granule,
         *kinds) = struct.unpack_from("<16s16sQQIHHHHIIIHHHH", found[1])
        self.seal, tag_bytes = found[4], kinds[1]
        self.packets, at = [], header_bytes
        while size > 0:
            left = packet = -(-min(size, self.segment_bytes) // (self.k * granule)) * granule
            size -= min(size, self.segment_bytes)
            came = b""
            while left > 0 and at < len(body):
                block = min(left, self.block_bytes)
                came += bytes(body[at:at + block])
                at += block + tag_bytes
                left -= block
            self.packets.append((packet, came))

    def name(self):
        return self.object, self.seal


def add_up(row, packets):
    """The packet with these coefficients."""
    return salvage().add_up([(x, packet) for x, packet in zip(row, packets) if x], len(packets[0]))


def assert_fit(packets, k):
    """Packets of one segment, by stripe: all are of the same content."""
    code = salvage().ByteCode(k)
    first = dict(sorted(packets.items())[:k])
    data = code.decode(first)
    for index in set(packets) - set(first):
        assert add_up(code.row(index), data) == packets[index], f"stripe {index} has another content than the others"


def assert_one_content(keepers, size):
    """That no key saw two contents, as far as endpoints were ever sent anything; of objects of @size bytes under an RS
    code. Returns how many objects there were, and how many uploads."""
    uploads = [Upload(body, size) for keeper in keepers for body in list(keeper.kept) if is_stripe(body) and len(body) > 512]
    uploads.sort(key=Upload.name)
    nonces = set()
    for (_, seal), group in itertools.groupby(uploads, Upload.name):
        assert seal not in nonces, "two objects have the same nonce"
        nonces.add(seal)
        longest = {}
        for upload in group:
            for segment, (packet, came) in enumerate(upload.packets):
                before = longest.setdefault((segment, upload.index), came)
                shared = min(len(before), len(came))
                assert before[:shared] == came[:shared], f"stripe {upload.index}: another content in segment {segment}"
                longest[segment, upload.index] = max(before, came, key=len)
        for segment, (packet, _) in enumerate(upload.packets):
            whole = {index: came for (at, index), came in longest.items() if at == segment and len(came) == packet}
            if len(whole) > upload.k:
                assert_fit(whole, upload.k)
    return len(nonces), len(uploads)
