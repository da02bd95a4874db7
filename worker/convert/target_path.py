"""The target of a conversion, a folder or file: it has a temporary name next to the final one until it is complete.

Leftovers of an ended process are removed. Existing targets are never overwritten.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...protocol.errors import ConfigError
from ...protocol.files.own_folder import HeldFolder
from ...protocol.files.sizes import exact_size

_SPARE = 256 << 20  # bytes of disk to leave free


@contextmanager
def appearing_folder(target: Path, size: int) -> Iterator[Path]:
    """A folder that gets the target's name at the end."""
    with _unfinished(target, size) as folder:
        yield folder.path
        _require_free(target, meanwhile=True)
        folder.keep_as(target)


@contextmanager
def appearing_file(target: Path, size: int) -> Iterator[Path]:
    """A file, made by the caller, that gets the target's name at the end."""
    with _unfinished(target, size) as folder:
        yield folder.path / target.name
        _require_free(target, meanwhile=True)
        os.rename(folder.path / target.name, target)
        folder.remove()


@contextmanager
def _unfinished(target: Path, size: int) -> Iterator[HeldFolder]:
    _require_free(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < size + _SPARE:
        raise ConfigError(
            f"{exact_size(size)} are to be written, and {exact_size(free)} are free at {target}, where "
            f"{exact_size(_SPARE)} are to be left."
        )
    unfinished = target.with_name(f".{target.name}.converting")
    try:
        folder = HeldFolder(unfinished, "unfinished conversion", mode=0o777)
    except BlockingIOError:
        raise ConfigError(f"Another process is converting to {target} now. Wait for it, or end it.") from None
    except FileExistsError:
        raise ConfigError(f"{unfinished} is in the way, and not Penstock's. Move it, or name another folder.") from None
    try:
        folder.clear()
        yield folder
    except BaseException:
        folder.remove()
        raise


def _require_free(target: Path, *, meanwhile: bool = False) -> None:
    if not os.path.lexists(target):  # even a dangling link
        return
    if meanwhile:
        raise ConfigError(f"{target} was made by someone else meanwhile, and is not written over.")
    raise ConfigError(f"{target} exists, and is not written over. Remove it, or give another name.")
