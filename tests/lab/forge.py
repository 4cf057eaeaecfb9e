"""Stripes whose checksums fit and whose bytes are other than those that were stored: what an endpoint could make."""
import ctypes
import ctypes.util
import struct

library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
library.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
library.XXH3_64bits_withSeed.restype = ctypes.c_uint64


class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.XXH3_128bits.restype = Hash


def xxh3_64(data, seed=0):
    return library.XXH3_64bits_withSeed(bytes(data), len(data), seed)


def xxh3_128(data):
    found = library.XXH3_128bits(bytes(data), len(data))
    return found.high.to_bytes(8, "big") + found.low.to_bytes(8, "big")


def block_bytes(data):
    """Of a check block of a stripe."""
    return struct.unpack_from("<16s16sQQIHHHHIII", data, 16 + 8)[10]


def area(data):
    """The packet area of a stripe."""
    return data[struct.unpack_from("<I", data, 12)[0]:struct.unpack_from("<Q", data, len(data) - 48)[0]]


def forge(path):
    """Changes the first check block of a stripe, which is a full one, with its tag. What its footer claims stays, as who
    knows how to find bytes with a given XXH3 need not change it. Returns the digest of the packet area and of what it
    was."""
    data = bytearray(path.read_bytes())
    header_bytes, = struct.unpack_from("<I", data, 12)
    fields = struct.unpack_from("<16s16sQQIHHHHIII", data, 16 + 8)
    uuid, index, block_bytes = fields[1], fields[8], fields[10]
    footer_at, = struct.unpack_from("<Q", data, len(data) - 48)
    was = xxh3_128(data[header_bytes:footer_at])
    block = data[header_bytes:header_bytes + block_bytes]
    seed = xxh3_64(uuid + struct.pack("<QQ", index, 0))
    stored, = struct.unpack_from("<Q", data, header_bytes + block_bytes)
    assert stored == xxh3_64(block, seed), "the first check block is not a full one"
    block[0] ^= 1
    block[-1] ^= 0x80
    data[header_bytes:header_bytes + block_bytes + 8] = block + struct.pack("<Q", xxh3_64(block, seed))
    path.write_bytes(data)
    return xxh3_128(data[header_bytes:footer_at]), was


def renamed(data, instance):
    """The stripe as another instance would be that was stored of the same bytes."""
    data = bytearray(data)
    length, = struct.unpack_from("<I", data, 16 + 4)
    struct.pack_into("<Q", data, 16 + 8 + 32, instance)
    struct.pack_into("<Q", data, 16 + 8 + length, xxh3_64(data[16:16 + 8 + length]))
    return data


def refoot(data, was, digest):
    """The footer claims another digest of the packet area, with checksums that fit."""
    data = bytearray(data)
    footer_at, size = struct.unpack_from("<QI", data, len(data) - 48)
    footer = bytearray(bytes(data[footer_at:footer_at + size]).replace(was, digest))
    end, = struct.unpack_from("<I", footer, 4)  # of the payload of its first section, which has the digests
    struct.pack_into("<Q", footer, 8 + end, xxh3_64(footer[:8 + end]))
    data[footer_at:footer_at + size] = footer
    struct.pack_into("<Q", data, len(data) - 32, xxh3_64(footer))
    struct.pack_into("<Q", data, len(data) - 16, xxh3_64(data[-48:-16]))
    return data


def retold(data, old, new, uuid=None):
    """The stripe with these bytes (as many) in its footer in place of others, of the object @uuid."""
    data = bytearray(data)
    footer_at, = struct.unpack_from("<Q", data, len(data) - 48)
    end = len(data) - 48
    if uuid is not None:
        length, = struct.unpack_from("<I", data, 16 + 4)
        data[16 + 8 + 16:16 + 8 + 32] = uuid
        struct.pack_into("<Q", data, 16 + 8 + length, xxh3_64(data[16:16 + 8 + length]))
    at = footer_at
    while at < end:
        length, = struct.unpack_from("<I", data, at + 4)
        told = data[at:at + 8 + length].replace(old, new)
        data[at:at + 8 + length + 8] = told + struct.pack("<Q", xxh3_64(told))
        at += 8 + length + 8
    assert at == end and new in data[footer_at:end]
    struct.pack_into("<Q", data, end + 16, xxh3_64(data[footer_at:end]))
    struct.pack_into("<Q", data, end + 32, xxh3_64(data[end:end + 32]))
    return data
