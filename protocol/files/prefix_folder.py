"""The folder with kept prefixes: one folder for each kind of block, whose name identifies all that the bits depend on.

    prefixes/.penstock             the mark: only marked folders are ever written or cleared
    prefixes/3f2a…/about.json      the model and this rank, for people
    prefixes/3f2a…/in-use          locked (shared) by each process that uses the kind
    prefixes/3f2a…/9c41….kv        a segment: some blocks of one chain (`worker/disk/segment.py`)
    prefixes/3f2a…/9c41….writing   one being written, locked by its writer

Everything may be removed at any time, also while it is in use: what isn't found is computed.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ..errors import ConfigError
from ..options.config import EngineConfig
from .cache_folder import cache_folder
from .own_folder import is_own, make_own, own_folder
from .sizes import exact_size

WHAT = "kept prefixes"
SEGMENT, UNFINISHED = ".kv", ".writing"
DEFAULT_SIZE = 20 << 30
FLUSH_SECONDS = 4.0  # for what is left to be written at a tree's end
_NAME = "prefixes"
_ABOUT, _IN_USE = "about.json", "in-use"


class About(msgspec.Struct):
    """What people are told about one kind of block."""

    model: str
    rank: int
    ranks: int
    kernels: str
    kv_dtype: str


def prefix_folder(config: EngineConfig) -> Path:
    """The folder of a tree that keeps prefixes, made if there is none."""
    if config.prefix_cache_dir is None:
        return own_folder(cache_folder(), _NAME, WHAT)
    folder = Path(os.path.expanduser(config.prefix_cache_dir)).absolute()
    try:
        make_own(folder, WHAT)
    except FileExistsError as error:
        raise ConfigError(
            f"prefix_cache_dir={config.prefix_cache_dir}: the folder has files that aren't Penstock's, or belongs to "
            "another user. Give a new or empty one."
        ) from error
    except OSError as error:
        raise ConfigError(f"prefix_cache_dir={config.prefix_cache_dir} can't be used: {error.strerror}.") from error
    return folder


def size_of_folder(config: EngineConfig) -> int:
    """How many bytes the folder may take."""
    return config.prefix_cache_size or DEFAULT_SIZE


class PrefixKind:
    """The blocks of one kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, about: About) -> None:
        """Make the folder, and hold it as in use as long as this process lives."""
        try:
            while not self._is_held():
                pass  # somebody has just removed it
            written = self.folder / f"{_ABOUT}.{os.getpid()}"
            with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(about))
            os.rename(written, self.folder / _ABOUT)
        except OSError as error:
            raise ConfigError(f"Prefixes can't be kept in {self.folder}: {error.strerror}.") from error

    def _is_held(self) -> bool:
        with suppress(FileExistsError):
            os.mkdir(self.folder, 0o700)
        if self.folder.is_symlink() or self.folder.stat().st_uid != os.geteuid():
            raise ConfigError(f"{self.folder} is a link or another user's folder. Remove it.")
        with suppress(FileNotFoundError):
            held = os.open(self.folder / _IN_USE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(held, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(held), os.stat(self.folder / _IN_USE)):
                    held = -1  # kept open
                    return True
            finally:
                if held >= 0:
                    os.close(held)
        return False

    @property
    def about(self) -> About | None:
        try:
            return msgspec.json.decode((self.folder / _ABOUT).read_bytes(), type=About)
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def is_in_use(self) -> bool:
        with self._locked() as is_free:
            return not is_free

    def remove(self) -> None:
        """Remove it with all its files, unless it is in use."""
        with self._locked() as is_free:
            if not is_free:
                raise ConfigError(f"{self.folder} is in use.")
            for entry in os.scandir(self.folder):
                if entry.name.startswith(_ABOUT) or entry.name.endswith((SEGMENT, UNFINISHED)):
                    remove_segment(entry.path)
            with suppress(FileNotFoundError):
                os.unlink(self.folder / _IN_USE)
            os.rmdir(self.folder)

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether no process uses it, and none begins to before this ends."""
        try:
            file = os.open(self.folder / _IN_USE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            yield True
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        try:
            yield is_free
        finally:
            os.close(file)

    def segments(self) -> Iterator[os.DirEntry[str]]:
        """Its finished files."""
        with suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            yield from (entry for entry in entries if entry.name.endswith(SEGMENT))


def kinds_in(folder: Path) -> list[PrefixKind]:
    """All kinds in a folder of ours."""
    if not is_own(folder, WHAT):
        return []
    with os.scandir(folder) as entries:
        return [PrefixKind(Path(entry.path)) for entry in entries if entry.is_dir(follow_symlinks=False)]


def remove_segment(path: str | Path) -> None:
    """Remove a segment, or what lies in its place instead: a link itself, a folder with its content."""
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path)


def remove_oldest(folder: Path, most_bytes: int) -> int:
    """Remove the least recently used segments of all kinds until the rest takes so much; returns what it takes."""
    found = []
    for kind in kinds_in(folder):
        for entry in kind.segments():
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, entry.path))
    taken = sum(num_bytes for _, num_bytes, _ in found)
    for _, num_bytes, path in sorted(found):
        if taken <= most_bytes:
            break
        with suppress(FileNotFoundError):
            remove_segment(path)
        taken -= num_bytes
    return taken


def too_small(config: EngineConfig, least: int) -> ConfigError:
    return ConfigError(
        f"prefix_cache_size={config.prefix_cache_size:,} holds no block: one takes {exact_size(least)}. Give more."
    )
