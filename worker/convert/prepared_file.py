"""A file whose space is allocated before anything is written, so that a full disk shows at once: a header, then data in
any order of offsets.
"""

import os
from pathlib import Path

import numpy

from ...kernels.arrays import Array


class PreparedFile:
    """Open until closed."""

    def __init__(self, path: Path, header: bytes, data_bytes: int) -> None:
        """Data follow the header directly."""
        self._data_at = len(header)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._write(header, 0)
        os.posix_fallocate(self._file, 0, self._data_at + data_bytes)

    def put(self, numbers: Array, at: int) -> None:
        """Write an array at this offset from the data's beginning."""
        octets = numpy.ascontiguousarray(numbers).reshape(-1).view(numpy.uint8)
        self._write(octets.data, self._data_at + at)

    def close(self) -> None:
        """Flush everything to the disk."""
        os.fsync(self._file)
        os.close(self._file)

    def _write(self, content: bytes | memoryview, at: int) -> None:
        written = 0
        while written < len(content):
            written += os.pwrite(self._file, content[written:], at + written)
