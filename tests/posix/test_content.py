"""Reading, writing, truncating, holes, copying and mapping: each on a file that is being written, and on a stored one."""
import errno
import mmap
import os
import random
import signal
import subprocess
import sys

import pytest
from calls import (ALICE, FALLOC_COLLAPSE, FALLOC_INSERT, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO, NEEDS_ROOT, PAGE, STAFF,
                   call, closing, fails, fallocate, in_child, opened, read, supported, user, write)

MIB = 1 << 20
DATA = random.Random(1).randbytes(300_000)  # more than is stored as copies
SIZES = [1, 100, 4095, 4096, 4097, 16384, 16385, 300_000, 2 * MIB, 2 * MIB + 1]


def pattern(size):
    return (DATA * (size // len(DATA) + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_written_is_read(files, size):
    path = files.make(pattern(size))
    assert os.stat(path).st_size == size
    assert read(path) == pattern(size)
    with opened(path) as fd:
        for at in {0, size // 2, size - 1}:
            assert os.pread(fd, 100, at) == pattern(size)[at:at + 100]
        for at in (size, size + 1, size + 10**6, 2**62):
            assert os.pread(fd, 100, at) == b""


def test_short_reads_happen_only_at_the_end(files):
    path = files.make(DATA)
    with opened(path) as fd:
        assert len(os.pread(fd, 10**6, 1)) == len(DATA) - 1
        assert os.read(fd, 250_000) == DATA[:250_000]
        assert os.read(fd, 250_000) == DATA[250_000:]
        assert os.read(fd, 1) == b""


@pytest.mark.parametrize("size", [10, 5000, 300_000])
def test_overwriting_parts(files, size):
    path, expected = files.make(pattern(size)), bytearray(pattern(size))
    generator = random.Random(size)
    with opened(path, os.O_RDWR) as fd, opened(path) as reader:
        for _ in range(20):
            at = generator.randrange(size)
            piece = generator.randbytes(generator.randrange(1, 3 * size // 4 + 2))
            os.pwrite(fd, piece, at)
            expected[at:at + len(piece)] = piece
            assert os.pread(reader, len(expected) + 1, 0) == expected
    assert read(path) == expected


def test_writing_behind_the_end_leaves_zeros(files):
    path = files.make(b"start")
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"end", 100_000)
        assert os.fstat(fd).st_size == 100_003
        assert os.pread(fd, 200_000, 0) == b"start" + bytes(99_995) + b"end"
    assert read(path) == b"start" + bytes(99_995) + b"end"


def test_vectors(files):
    path = files.make(b"0123456789")
    with opened(path, os.O_RDWR) as fd:
        assert os.writev(fd, [b"ab", b"", b"cde"]) == 5
        assert os.pwritev(fd, [b"X", b"YZ"], 7) == 3
        parts = [bytearray(3), bytearray(0), bytearray(20)]
        assert os.preadv(fd, parts, 0) == 10
        assert bytes(parts[0] + parts[2][:7]) == b"abcde56XYZ"
        os.lseek(fd, 8, os.SEEK_SET)
        parts = [bytearray(1), bytearray(1), bytearray(1)]
        assert os.readv(fd, parts) == 2
        assert os.pwritev(fd, [b"app", b"end"], 0, os.RWF_APPEND) == 6
        assert os.pread(fd, 99, 0) == b"abcde56XYZappend"
        assert os.pwritev(fd, [b"S"], 0, os.RWF_DSYNC) == 1
        many = [b"%d" % (i % 10) for i in range(1024)]
        assert os.pwritev(fd, many, 0) == 1024
    assert read(path) == b"".join(many)


def test_empty_and_impossible_requests(files):
    path = files.make(b"content")
    with opened(path, os.O_RDWR) as fd:
        assert os.write(fd, b"") == 0 and os.pwrite(fd, b"", 100) == 0 and os.read(fd, 0) == b""
        assert os.fstat(fd).st_size == 7
        for attempt in [lambda: os.pread(fd, 1, -1), lambda: os.pwrite(fd, b"x", -1), lambda: os.lseek(fd, -1, os.SEEK_SET),
                        lambda: os.lseek(fd, 0, 77)]:
            with fails(errno.EINVAL):
                attempt()
        with fails(errno.EFBIG, errno.EINVAL):
            os.pwrite(fd, b"xx", 2**63 - 2)
        assert os.lseek(fd, 0, os.SEEK_END) == 7 and os.lseek(fd, -3, os.SEEK_END) == 4
        with fails(errno.EFAULT):
            call("write", fd, 1, 3)
        assert os.lseek(fd, 10**12, os.SEEK_SET) == 10**12 and os.read(fd, 1) == b""
        with fails(errno.EFAULT):
            call("pread64", fd, 1, 7, 0)
    assert read(path) == b"content"


@pytest.mark.parametrize("offset", [2**31 - 1, 2**31, 2**32 + 5, 2**40])
def test_far_offsets(files, offset):
    path = files.make(b"start")
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"far", offset)
        assert os.fstat(fd).st_size == offset + 3
        assert os.pread(fd, 10, offset - 1) == b"\0far"
        assert os.pread(fd, 10, offset // 2) == bytes(10)
        assert os.fstat(fd).st_blocks * 512 < MIB
        os.ftruncate(fd, 5)
    assert read(path) == b"start"


@NEEDS_ROOT
def test_the_limit_on_file_sizes(files):
    path = files.make(b"content")

    def limited():
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        with opened(path, os.O_RDWR) as fd:
            assert os.pwrite(fd, bytes(100), 950) == 50
            for attempt in [lambda: os.pwrite(fd, b"x", 1000), lambda: os.ftruncate(fd, 1001), lambda: os.truncate(path, 5000),
                            lambda: os.posix_fallocate(fd, 0, 5000)]:
                with fails(errno.EFBIG):
                    attempt()
            os.ftruncate(fd, 1000)

    in_child(limited)
    assert os.stat(path).st_size == 1000


@pytest.mark.parametrize("how", ["path", "handle"])
def test_truncate(files, how):
    path, fd = files.make(DATA), None
    expected = bytearray(DATA)
    with opened(path, os.O_RDWR) as fd:
        for size in [200_000, 200_000, 4097, 4096, 1, 300_000, 250_000, 0, 10, 70_000]:
            os.truncate(path if how == "path" else fd, size)
            expected = expected[:size] + bytes(max(0, size - len(expected)))
            assert os.stat(path).st_size == os.fstat(fd).st_size == size
            assert os.pread(fd, 400_000, 0) == expected
            if size:
                os.pwrite(fd, b"mark", size - 1)
                expected[size - 1:] = b"mark"
    assert read(path) == expected


@pytest.mark.parametrize("size", [0, 1, 5, 100_000, 299_999, 300_000, 300_001, 2 * MIB])
def test_truncate_of_a_file_that_is_not_open(files, size):
    path = files.make(DATA)
    os.truncate(path, size)
    assert os.stat(path).st_size == size
    assert read(path) == DATA[:size] + bytes(max(0, size - len(DATA)))


def test_what_was_cut_off_does_not_come_back(files):
    path = files.make(b"x" * 10_000)
    with opened(path, os.O_RDWR) as fd:
        for size in 5000, 4096, 10, 0:
            os.ftruncate(fd, size)
            os.ftruncate(fd, 10_000)
            assert os.pread(fd, 10_000, 0) == b"x" * size + bytes(10_000 - size)
            os.ftruncate(fd, size)
            os.pwrite(fd, b"y", 9_999)
            assert os.pread(fd, 10_000, 0) == b"x" * size + bytes(9_999 - size) + b"y"
    assert read(path) == bytes(9_999) + b"y"


def test_truncate_refusals(files, d):
    path = files.make(b"content")
    for target, numbers in [(d, [errno.EISDIR]), (d / "nothing", [errno.ENOENT]), (path / "x", [errno.ENOTDIR])]:
        with fails(*numbers):
            os.truncate(target, 0)
    with fails(errno.EINVAL):
        os.truncate(path, -1)
    with opened(path, os.O_RDWR) as fd:
        with fails(errno.EINVAL):
            os.ftruncate(fd, -1)
        with fails(errno.EFBIG, errno.EINVAL):
            os.ftruncate(fd, 2**63 - 1)
            os.ftruncate(fd, 0)
            raise OSError(errno.EFBIG, "it can")
    os.mkfifo(d / "fifo")
    with fails(errno.EINVAL, errno.ENXIO):
        os.truncate(d / "fifo", 0)


@NEEDS_ROOT
def test_who_may_truncate(files):
    path = files.make(b"content")
    os.chmod(path, 0o644)
    with user(ALICE), fails(errno.EACCES):
        os.truncate(path, 0)
    os.chown(path, ALICE, STAFF)
    os.chmod(path, 0o444)
    with user(ALICE), fails(errno.EACCES):
        os.truncate(path, 0)
    os.chmod(path, 0o644)
    with user(ALICE):
        os.truncate(path, 3)
    assert read(path) == b"con"


def regions(fd, size):
    """Data and holes as SEEK_DATA and SEEK_HOLE tell: [(start, end), ...] of data."""
    found, at = [], 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO
            break
        end = os.lseek(fd, start, os.SEEK_HOLE)
        assert at <= start < end <= size
        found.append((start, end))
        at = end
    return found


def test_holes_and_data(files):
    """All data lies within what SEEK_DATA finds, and what it leaves out is zeros; the end is a hole."""
    path = files.make(b"x" * 70_000)
    with opened(path, os.O_RDWR) as fd:
        os.pwrite(fd, b"y" * 70_000, 4 * MIB)
        os.ftruncate(fd, 8 * MIB)
    for _ in range(2):
        with opened(path) as fd:
            found = regions(fd, 8 * MIB)
            assert sum(end - start for start, end in found) < 2 * MIB
            covered = set()
            for start, end in found:
                covered |= set(range(start // 10_000, -(-end // 10_000)))
            for at in [0, 69_999, 4 * MIB, 4 * MIB + 69_999]:
                assert at // 10_000 in covered
            for number in (8 * MIB, 8 * MIB + 1):
                for whence in os.SEEK_DATA, os.SEEK_HOLE:
                    with fails(errno.ENXIO):
                        os.lseek(fd, number, whence)
            assert os.lseek(fd, 8 * MIB - 1, os.SEEK_HOLE) == 8 * MIB - 1
            for whence in os.SEEK_DATA, os.SEEK_HOLE:
                with fails(errno.ENXIO, errno.EINVAL):
                    os.lseek(fd, -1, whence)
        assert os.stat(path).st_blocks * 512 < 2 * MIB
        files.close()


def test_an_empty_file_and_one_without_holes(files):
    path = files.make(b"")
    with opened(path) as fd:
        for whence in os.SEEK_DATA, os.SEEK_HOLE:
            with fails(errno.ENXIO):
                os.lseek(fd, 0, whence)
    path = files.make(DATA, "full")
    with opened(path) as fd:
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0 and os.lseek(fd, 1234, os.SEEK_DATA) == 1234
        assert os.lseek(fd, 0, os.SEEK_HOLE) == len(DATA)


def test_fallocate_makes_room(files):
    path = files.make(b"content")
    with opened(path, os.O_RDWR) as fd:
        supported(lambda: fallocate(fd, FALLOC_KEEP_SIZE, 0, 100_000), "fallocate")
        assert os.fstat(fd).st_size == 7
        fallocate(fd, 0, 0, 5)
        assert os.fstat(fd).st_size == 7
        fallocate(fd, 0, 50_000, 50_000)
        assert os.fstat(fd).st_size == 100_000
        assert os.pread(fd, 200_000, 0) == b"content" + bytes(99_993)
        os.posix_fallocate(fd, 0, 150_000)
        assert os.fstat(fd).st_size == 150_000
    assert read(path) == b"content" + bytes(149_993)


@pytest.mark.parametrize("mode", [FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, FALLOC_ZERO, FALLOC_ZERO | FALLOC_KEEP_SIZE])
def test_punching_and_zeroing(files, mode):
    path = files.make(DATA)
    expected = bytearray(DATA)
    with opened(path, os.O_RDWR) as fd:
        supported(lambda: fallocate(fd, mode, 5, 10), f"fallocate with mode {mode}")
        expected[5:15] = bytes(10)
        for start, size in [(10_000, 1), (20_000, 100_000), (4096, 4096), (290_000, 20_000), (400_000, 10)]:
            fallocate(fd, mode, start, size)
            if mode == FALLOC_ZERO and start + size > len(expected):
                expected += bytes(start + size - len(expected))
            end = min(start + size, len(expected))
            if end > start:
                expected[start:end] = bytes(end - start)
            assert os.fstat(fd).st_size == len(expected)
            assert os.pread(fd, 500_000, 0) == expected
    assert read(path) == expected


def test_a_hole_frees_its_room(files):
    path = files.make(b"x" * 4 * MIB)
    with opened(path, os.O_RDWR) as fd:
        os.fsync(fd)
        supported(lambda: fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 3 * MIB), "punching holes")
        os.fsync(fd)
        assert os.lseek(fd, 0, os.SEEK_DATA) == 3 * MIB
    files.close()
    assert os.stat(path).st_blocks * 512 <= 2 * MIB


@pytest.mark.parametrize("mode", [FALLOC_COLLAPSE, FALLOC_INSERT])
def test_collapsing_and_inserting_work_or_change_nothing(files, mode):
    path = files.make(b"a" * 8192 + b"b" * 8192)
    with opened(path, os.O_RDWR) as fd:
        try:
            fallocate(fd, mode, 4096, 4096)
        except OSError as error:
            assert error.errno in (errno.EOPNOTSUPP, errno.EINVAL)
            assert os.pread(fd, 20_000, 0) == b"a" * 8192 + b"b" * 8192
        else:
            middle = b"" if mode == FALLOC_COLLAPSE else bytes(4096) + b"a" * 4096
            assert os.pread(fd, 30_000, 0) == b"a" * 4096 + middle + b"b" * 8192


def test_fallocate_refusals(files):
    path = files.make(b"content")
    with opened(path, os.O_RDWR) as fd:
        supported(lambda: fallocate(fd, 0, 0, 7), "fallocate")
        for mode, start, size, numbers in [(0, 0, 0, [errno.EINVAL]), (0, -1, 5, [errno.EINVAL]), (0, 5, -1, [errno.EINVAL]),
                                           (FALLOC_PUNCH_HOLE, 0, 5, [errno.EOPNOTSUPP, errno.EINVAL]),
                                           (1 << 12, 0, 5, [errno.EOPNOTSUPP, errno.EINVAL]), (0, 2**63 - 10, 100, [errno.EFBIG])]:
            with fails(*numbers):
                fallocate(fd, mode, start, size)
    with opened(path) as fd, fails(errno.EBADF):
        fallocate(fd, 0, 0, 100)
    assert read(path) == b"content"


def test_copy_file_range(files, d):
    source = files.make(DATA)
    with opened(source) as old, opened(d / "copy", os.O_CREAT | os.O_RDWR) as new:
        done = 0
        while done < len(DATA):
            count = os.copy_file_range(old, new, len(DATA) - done)
            assert count > 0
            done += count
        assert os.copy_file_range(old, new, 100) == 0
        assert os.pread(new, 400_000, 0) == DATA
        assert os.copy_file_range(old, new, 1000, 5, 400_000) == 1000
        assert os.fstat(new).st_size == 401_000
    assert read(d / "copy") == DATA + bytes(100_000) + DATA[5:1005]


def test_copy_file_range_within_one_file(files):
    path = files.make(DATA)
    with opened(path, os.O_RDWR) as fd:
        assert os.copy_file_range(fd, fd, 1000, 0, 300_000) == 1000
        with fails(errno.EINVAL):
            os.copy_file_range(fd, fd, 1000, 0, 500)
    with opened(path) as fd, opened(path) as other, fails(errno.EBADF):
        os.copy_file_range(fd, other, 10, 0, 20)
    assert read(path) == DATA + DATA[:1000]


def test_sendfile_and_splice(files, d):
    source = files.make(DATA)
    with opened(source) as old, opened(d / "sent", os.O_CREAT | os.O_WRONLY) as new:
        at = 0
        while at < len(DATA):
            at += os.sendfile(new, old, at, len(DATA) - at)
    assert read(d / "sent") == DATA
    with opened(source) as old, opened(d / "spliced", os.O_CREAT | os.O_WRONLY) as new, closing(*os.pipe()) as (reader, writer):
        while count := os.splice(old, writer, 50_000):
            while count:
                count -= os.splice(reader, new, count)
    assert read(d / "spliced") == DATA


def test_private_mappings_change_nothing(files):
    path = files.make(DATA)
    with opened(path) as fd, mmap.mmap(fd, len(DATA), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as view:
        assert view[:] == DATA
        view[:10] = bytes(10)
    assert read(path) == DATA


def test_shared_mappings_and_writes_see_each_other(files):
    path = files.make(DATA)
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, len(DATA)) as view:
        assert view[:100] == DATA[:100]
        view[10:15] = b"-map-"
        assert os.pread(fd, 5, 10) == b"-map-"
        os.pwrite(fd, b"-write-", 200_000)
        assert view[200_000:200_007] == b"-write-"
        with opened(path) as other, mmap.mmap(other, len(DATA), prot=mmap.PROT_READ) as second:
            view[5000] = 1
            assert second[5000] == 1
        view.flush()
    expected = bytearray(DATA)
    expected[10:15], expected[200_000:200_007], expected[5000] = b"-map-", b"-write-", 1
    assert read(path) == expected


def test_a_mapping_outlives_its_handle(files):
    path = files.make(DATA)
    with opened(path, os.O_RDWR) as fd:
        view = mmap.mmap(fd, len(DATA))
    files.close()
    view[100:105] = b"later"
    view.flush()
    view[290_000:290_003] = b"end"
    view.close()
    with opened(path) as fd:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert read(path) == DATA[:100] + b"later" + DATA[105:290_000] + b"end" + DATA[290_003:]


def test_a_mapping_of_an_unlinked_file(files):
    path = files.make(DATA)
    with opened(path, os.O_RDWR) as fd:
        view = mmap.mmap(fd, len(DATA))
    os.unlink(path)
    assert view[:] == DATA
    view[0] = 1
    view.flush()
    view.close()


def test_beyond_the_end_a_mapping_is_zeros_and_then_sigbus(files):
    path = files.make(b"x" * 100)
    with opened(path, os.O_RDWR) as fd, mmap.mmap(fd, 100) as view:
        assert view[:] == b"x" * 100
    script = ("import mmap, os, sys; fd = os.open(sys.argv[1], os.O_RDWR); view = mmap.mmap(fd, 0);"
              "os.ftruncate(fd, 0); print(view[0])")
    result = subprocess.run([sys.executable, "-c", script, path], capture_output=True, timeout=60)
    assert result.returncode == -signal.SIGBUS


def test_a_mapping_grows_with_its_file(files):
    path = files.make(b"x" * PAGE)
    with opened(path, os.O_RDWR) as fd:
        os.ftruncate(fd, 3 * PAGE)
        with mmap.mmap(fd, 3 * PAGE) as view:
            assert view[PAGE:] == bytes(2 * PAGE)
            view[2 * PAGE] = 7
            view.flush()
    assert read(path) == b"x" * PAGE + bytes(PAGE) + b"\x07" + bytes(PAGE - 1)


def test_mapping_modes(files):
    path = files.make(b"content")
    with opened(path) as fd, fails(errno.EACCES):
        mmap.mmap(fd, 7, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with opened(path, os.O_WRONLY) as fd, fails(errno.EACCES):
        mmap.mmap(fd, 7, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


def test_syncing_in_every_way(files, d):
    path = files.make(b"content")
    with opened(path, os.O_RDWR) as fd:
        os.write(fd, b"C")
        os.fsync(fd)
        os.write(fd, b"O")
        os.fdatasync(fd)
        call("sync_file_range", fd, 0, 0, 7)
        call("syncfs", fd)
    with opened(d) as fd:
        os.fsync(fd)
        os.fdatasync(fd)
    with opened(path) as fd:
        os.fsync(fd)
    assert read(path) == b"COntent"


def test_advice_is_taken(files):
    path = files.make(DATA)
    with opened(path) as fd:
        for advice in range(6):
            os.posix_fadvise(fd, 0, 0, advice)
        call("readahead", fd, 0, 100_000)
        assert os.pread(fd, 400_000, 0) == DATA


def test_a_forked_writer_and_its_parent_share_the_file(d):
    path = d / "file"
    with opened(path, os.O_CREAT | os.O_WRONLY) as fd:
        os.write(fd, b"parent ")
        in_child(lambda: os.write(fd, b"child "))
        os.write(fd, b"parent")
    assert read(path) == b"parent child parent"


def test_readers_and_a_writer_at_once(files):
    """A reader sees each block as it was or as it is; or half-way, for Linux copies to and from a page without a lock."""
    block = 4096
    path = files.make(b"a" * block * 8)
    with opened(path, os.O_WRONLY) as fd, opened(path) as reader:
        child = os.fork()
        if child == 0:
            for i in range(200):
                os.pwrite(fd, bytes([97 + i % 26]) * block, i % 8 * block)
            os._exit(0)
        mixed = 0
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            for i in range(8):
                mixed += len(set(os.pread(reader, block, i * block))) > 2
    assert mixed == 0


def test_many_handles_on_one_file(files):
    path = files.make(b"0" * 100)
    handles = [os.open(path, os.O_RDWR) for _ in range(100)]
    for i, fd in enumerate(handles):
        os.pwrite(fd, b"%d" % (i % 10), i)
    for fd in handles[::-1]:
        os.close(fd)
    assert read(path) == b"0123456789" * 10


def test_copying_onto_itself_by_tools(files, d):
    path = files.make(DATA)
    subprocess.run(["dd", f"if={path}", f"of={path}", "bs=1000", "skip=10", "seek=200", "count=50", "conv=notrunc"],
                   check=True, capture_output=True)
    subprocess.run(["cp", "--sparse=always", path, d / "copy"], check=True)
    subprocess.run(["truncate", "-s", "100000", path], check=True)
    expected = DATA[:200_000] + DATA[10_000:60_000] + DATA[250_000:]
    assert read(d / "copy") == expected and read(path) == expected[:100_000]
    subprocess.run(["sed", "-i", "s/x/y/", write(d / "text", b"x\n")], check=True)
    assert read(d / "text") == b"y\n"
