"""File descriptors: waits for any number of them, checks that enough are left, and explains errors if none are.

ZeroMQ aborts its process if it can't open what it needs, so its users check for room first.
"""

import errno
import os
import resource
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import PenstockError

_ADVICE = {
    errno.EMFILE: "Close files that this process no longer needs, or raise its limit with `ulimit -n`",
    errno.ENFILE: "The whole machine has as many open as it may (fs.file-max); end what holds them",
    errno.EAGAIN: "This user has as many processes and threads as it may; end some, or raise `ulimit -u`",
    errno.ENOMEM: "Free some memory",
}


def is_readable(descriptor: int, seconds: float = 0) -> bool:
    """Whether it is readable, or its other end closed, within `seconds`. `select` fails for descriptors above 1,023."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def require_descriptors(count: int, what: str) -> None:
    """Raise unless this process, and each that it starts, may open `count` more files."""
    taken: list[int] = []
    try:
        with said_in_words(f"{what} needs {count:,} file descriptors more, and a process may have {_limit():,}"):
            for _ in range(count):
                taken.append(os.eventfd(0))
    finally:
        for descriptor in taken:
            with suppress(OSError):
                os.close(descriptor)


@contextmanager
def said_in_words(what: str) -> Iterator[None]:
    """Turn errors about exhausted system resources into a `PenstockError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ADVICE:
            raise
        raise PenstockError(f"{what}: {error.strerror}. {_ADVICE[error.errno]}.") from error


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
