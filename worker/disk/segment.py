"""A file with some blocks of one chain, or with all rows of a medium as its only block: a header with their keys and
checksums, then their bytes.

    mark · length of the header · digest of the header · header (msgpack) · zeros up to a page · block · block · …

It is written under another name and renamed when it is complete; nothing waits for the disk. After a crash of the
machine a finished file may lack anything: its header has a digest and each block a checksum, and what doesn't match
isn't there.
"""

import fcntl
import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy

from ...kernels.arrays import Array
from ...protocol.files.formats import PREFIXES
from ...protocol.files.prefix_folder import SEGMENT, UNFINISHED, remove_segment
from ...protocol.layer_groups import KEY_BYTES, keys_in
from ...records import dataclass

_MARK = b"penstock blocks %d\n" % PREFIXES.version
_PREAMBLE = struct.Struct(f"<{len(_MARK)}sI16s")
_PAGE = 4096
_DIGEST_BYTES = 16
_MOST_HEADER_BYTES = 16 << 20
# Don't block: a pipe may have a segment's name.
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DamagedSegment(Exception):
    """The file isn't as it was written; says how, without its path."""


class _Header(msgspec.Struct, array_like=True):
    kind: str  # the folder's name
    group: int
    previous: bytes  # the key before the first one
    keys: bytes
    block_bytes: int
    checksums: bytes


@dataclass(frozen=True)
class Segment:
    """A finished file."""

    path: Path
    group: int
    previous: bytes
    keys: list[bytes]
    block_bytes: int
    checksums: list[bytes]
    start: int  # of the first block
    num_bytes: int

    @classmethod
    def read(cls, path: Path) -> "Segment":
        """Read the header; raises DamagedSegment or OSError."""
        file = _opened(path)
        try:
            return cls._of(path, _read_header(file, path.parent.name), os.fstat(file).st_size)
        finally:
            os.close(file)

    @classmethod
    def _of(cls, path: Path, header: _Header, num_bytes: int) -> "Segment":
        keys, checksums = keys_in(header.keys), header.checksums
        start = _start(header)
        if not keys or any(len(key) != KEY_BYTES for key in keys) or len(header.previous) not in (0, KEY_BYTES):
            raise DamagedSegment("its header has keys of another length")
        if len(checksums) != _DIGEST_BYTES * len(keys) or num_bytes != start + len(keys) * header.block_bytes:
            raise DamagedSegment("its length differs from the one in its header")
        each = [checksums[at : at + _DIGEST_BYTES] for at in range(0, len(checksums), _DIGEST_BYTES)]
        return cls(path, header.group, header.previous, keys, header.block_bytes, each, start, num_bytes)

    @contextmanager
    def opened(self) -> Iterator[int]:
        file = _opened(self.path)
        try:
            # Read in the background, while the first blocks are taken.
            os.posix_fadvise(file, self.start, 0, os.POSIX_FADV_WILLNEED)
            yield file
        finally:
            os.close(file)

    def read_block(self, file: int, index: int, parts: Iterable[Array]) -> bool:
        """Read a block into these parts, each before the next is asked for; False if it isn't as it was written."""
        found = checksum(self.keys[index], _filled(file, self.start + index * self.block_bytes, parts))
        return found == self.checksums[index]


class SegmentWriter:
    """A file being written, locked so that no other process takes it for abandoned."""

    def __init__(self, folder: Path, group: int, previous: bytes, keys: list[bytes], block_bytes: int) -> None:
        """Raises OSError, also where the disk hasn't room for all of it."""
        self.path = folder / segment_name(group, keys)
        checksums = bytes(_DIGEST_BYTES * len(keys))
        self._header = _Header(folder.name, group, previous, b"".join(keys), block_bytes, checksums)
        self._keys, self._checksums = keys, b""
        self._start = _start(self._header)
        self._unfinished = self.path.with_suffix(UNFINISHED)
        for path in (self.path, self._unfinished):
            make_way(path)
        self._file = os.open(self._unfinished, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another process may be writing the same
            os.ftruncate(self._file, 0)
            os.posix_fallocate(self._file, 0, self._start + len(keys) * block_bytes)
        except BlockingIOError:
            os.close(self._file)
            raise
        except OSError:
            self.forget()
            raise

    def add(self, parts: Iterable[Array]) -> None:
        """Write the next block, each part of it before the next is asked for."""
        index = len(self._checksums) // _DIGEST_BYTES
        at = self._start + index * self._header.block_bytes
        self._checksums += checksum(self._keys[index], self._written(at, parts))

    def _written(self, at: int, parts: Iterable[Array]) -> Iterator[Array]:
        for part in parts:
            octets = part.reshape(-1).view(numpy.uint8)
            if os.pwritev(self._file, [octets.data], at) != len(octets):
                raise OSError(f"{self._unfinished} took a part of a block only")
            at += len(octets)
            yield part

    def complete(self) -> Segment:
        """Give the file its name."""
        self._header.checksums = self._checksums
        os.pwrite(self._file, _packed(self._header), 0)
        os.rename(self._unfinished, self.path)
        num_bytes = os.fstat(self._file).st_size
        os.close(self._file)
        return Segment._of(self.path, self._header, num_bytes)

    def forget(self) -> None:
        """Remove it."""
        with suppress(OSError):
            os.unlink(self._unfinished)  # while it is locked
        os.close(self._file)


def segment_name(group: int, keys: Sequence[bytes]) -> str:
    """The same blocks have one name, whoever writes them."""
    digest = hashlib.blake2b(b"%d " % group + b"".join(keys), digest_size=_DIGEST_BYTES)
    return digest.hexdigest() + SEGMENT


def checksum(key: bytes, parts: Iterable[Array]) -> bytes:
    """A digest of the key and of sums over all bytes, about as fast as memory is read.

    Words are summed up along rows and columns of a page's width, so that a changed, moved or missing piece shows.
    """
    digest = hashlib.blake2b(key, digest_size=_DIGEST_BYTES)
    for part in parts:
        octets = part.reshape(-1).view(numpy.uint8)
        whole = len(octets) // _PAGE * _PAGE
        words = octets[:whole].view(numpy.uint64).reshape(-1, _PAGE // 8)
        digest.update(words.sum(axis=0).data)
        digest.update(words.sum(axis=1).data)
        digest.update(octets[whole:].data)
    return digest.digest()


def _filled(file: int, at: int, parts: Iterable[Array]) -> Iterator[Array]:
    """Read each part from the file."""
    for part in parts:
        octets = part.reshape(-1).view(numpy.uint8)
        if os.preadv(file, [octets.data], at) != len(octets):
            raise DamagedSegment("it ends inside a block")
        at += len(octets)
        yield part


def _opened(path: Path) -> int:
    """A descriptor of a segment's file; raises DamagedSegment for anything else that has its name."""
    file = os.open(path, READING)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise DamagedSegment("it is not a regular file")
    return file


def make_way(path: Path) -> None:
    """Remove what has this name unless it is a file."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            remove_segment(path)


def _start(header: _Header) -> int:
    """Where the first block begins; the checksums' values make no difference."""
    return -(-len(_packed(header)) // _PAGE) * _PAGE


def _packed(header: _Header) -> bytes:
    text = msgspec.msgpack.encode(header)
    return _PREAMBLE.pack(_MARK, len(text), hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest()) + text


def _read_header(file: int, kind: str) -> _Header:
    preamble = os.pread(file, _PREAMBLE.size, 0)
    mark, length, digest = _PREAMBLE.unpack(preamble) if len(preamble) == _PREAMBLE.size else (b"", 0, b"")
    text = os.pread(file, length, _PREAMBLE.size) if mark == _MARK and length <= _MOST_HEADER_BYTES else b""
    if not text or hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest() != digest:
        raise DamagedSegment("the checksum of its header differs")
    try:
        header = msgspec.msgpack.decode(text, type=_Header)
    except msgspec.DecodeError as error:
        raise DamagedSegment(f"its header has an unknown form: {error}") from None
    if header.kind != kind:
        raise DamagedSegment(f"it belongs to {header.kind}")
    return header
