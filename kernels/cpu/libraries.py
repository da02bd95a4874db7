"""The libraries of the kernels: where they are, and whether they were made from the sources that are there now.

A library carries a digest of the sources that it was made from, so an outdated one is recognized without loading it.
`build.py` makes them. The standard library alone, since `setup.py` uses that file before Penstock is installed.
"""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from .variants import ALL_VARIANTS

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
# Bits must not depend on what a compiler chooses to fuse; fused products are written as intrinsics.
_COMPILE = ["-std=c++17", "-O3", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-semantic-interposition"]
# g++ takes the undefined values in its own headers of intrinsics for forgotten ones (its bug 105593).
_WARNINGS = ["-Wall", "-Wextra", "-Wno-maybe-uninitialized", "-Wno-uninitialized"]
_MARK = b"penstock sources "


class BuildFolders(NamedTuple):
    """The folders of libraries and objects, and flags in addition to a variant's own."""

    libraries: Path = HERE
    objects: Path = HERE / "objects"
    flags: tuple[str, ...] = ()  # a sanitizer's, say; for objects and libraries

    @classmethod
    def chosen(cls) -> "BuildFolders":
        """PENSTOCK_CPU_LIBRARIES names another folder, PENSTOCK_CPU_FLAGS what is compiled in there."""
        folder = os.environ.get("PENSTOCK_CPU_LIBRARIES")
        if not folder:
            return cls()
        libraries = Path(folder).resolve()
        return cls(libraries, libraries / "objects", tuple(os.environ.get("PENSTOCK_CPU_FLAGS", "").split()))


OWN_FOLDERS = BuildFolders()


def library_path(variant: str, folder: Path = HERE) -> Path:
    return folder / f"libpenstock_{variant}.so"


def digest(variant: str, folders: BuildFolders = OWN_FOLDERS) -> str:
    """A digest of everything that a library is made from, except the compiler."""
    files = sorted((*SOURCE.glob("*.[ch]pp"), SOURCE / "exports.map"))
    return digest_of(*flags_of(variant, folders), *((path.name, path.read_bytes()) for path in files))


def is_current(variant: str, folders: BuildFolders = OWN_FOLDERS) -> bool:
    """Whether the library is there and was made from the sources that are there now."""
    try:
        content = library_path(variant, folders.libraries).read_bytes()
    except OSError:
        return False
    return _MARK + digest(variant, folders).encode() in content


def flags_of(variant: str, folders: BuildFolders) -> tuple[str, ...]:
    return (*_COMPILE, *_WARNINGS, *ALL_VARIANTS[variant].flags, *folders.flags)


def digest_of(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:32]
