"""Compiles the kernels, each variant into a library of its own; only what changed, by the content of the files.

    python -m penstock.kernels.cpu.build                  the variant that this processor uses
    python -m penstock.kernels.cpu.build --variants all   every one for this kind of processor

$CXX may be a cross compiler, for the variants of another kind of processor.

`libraries.py` recognizes outdated ones. The standard library alone: `setup.py` uses this file before Penstock is
installed.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .libraries import OWN_FOLDERS, SOURCE, BuildFolders, digest, digest_of, flags_of, is_current, library_path
from .variants import ALL_VARIANTS, VARIANTS, executable_variants

_LINK = ["-shared", "-pthread", "-Wl,-Bsymbolic", "-Wl,-z,nodelete", f"-Wl,--version-script={SOURCE / 'exports.map'}"]
# Nothing of libstdc++ and libgcc is used, so a library needs neither where it is loaded.
_LINK += ["-Wl,--as-needed"]
_INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_WITH_DIGEST = "identity.cpp"
# Templates of many forms: three quarters of all the time.
_SLOWEST = ("blocks_", "attention_")
# What most sources include of the compiler's, and from how many sources on it is read once for all of them.
_HEADERS, _MANY = ("algorithm", "cmath", "cstdint", "cstring"), 8
_INTRINSICS = {"x86_64": "immintrin.h", "aarch64": "arm_neon.h"}


class BuildError(Exception):
    """No compiler, or one that refused."""


class _Object(NamedTuple):
    target: Path
    is_there: bool
    is_new: bool
    said: str  # by the compiler


def compiler() -> str | None:
    """$CXX, or the first of g++ and clang++ that is found; None where there is none."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    return None


def sources() -> list[Path]:
    """The sources in the order of compiling: the slowest first, so that small ones fill the cores at the end."""
    return sorted(
        SOURCE.glob("*.cpp"), key=lambda path: (not path.name.startswith(_SLOWEST), -path.stat().st_size, path.name)
    )


def build_several(
    variants: Sequence[str], folders: BuildFolders = OWN_FOLDERS
) -> Iterator[tuple[str, Exception | None]]:
    """Each variant as it is done, with what refused it. All share the cores: none waits for another's last file."""
    with _pool() as pool, ThreadPoolExecutor(max(1, len(variants))) as waiting:
        builds = {waiting.submit(build, variant, folders, pool=pool): variant for variant in variants}
        for done in as_completed(builds):
            error = done.exception()
            if error is not None and not isinstance(error, (BuildError, OSError)):
                raise error
            yield builds[done], error


def build(
    variant: str, folders: BuildFolders = OWN_FOLDERS, keep_going: bool = False, pool: Executor | None = None
) -> list[str]:
    """Make one library; returns what the compiler said. Raises `BuildError` where a file does not compile.

    With `keep_going` the library is made of those that do, for work on one kernel while another one is broken.
    """
    chosen = compiler()
    if chosen is None:
        raise BuildError("No C++ compiler was found ($CXX, g++, clang++); install g++ 11 or newer.")
    objects = folders.objects / variant
    objects.mkdir(parents=True, exist_ok=True)
    with _alone(objects):
        order = _Order(chosen, variant, folders, objects, digest(variant, folders))
        with order.with_headers(), nullcontext(pool) if pool else _pool() as threads:
            results = list(threads.map(order.compile, sources()))
        failed = [result.said for result in results if not result.is_there]
        if failed and not keep_going:
            raise BuildError(f"{Path(chosen).name} refused sources for {variant}:\n" + "\n".join(failed))
        if any(result.is_new for result in results) or not is_current(variant, folders):
            made = [result.target for result in results if result.is_there]
            _link(chosen, made, library_path(variant, folders.libraries), folders, is_whole=not failed)
    return [result.said for result in results if result.said]


@dataclass
class _Order:
    """What one variant's objects are made with."""

    compiler: str
    variant: str
    folders: BuildFolders
    objects: Path
    mark: str
    prepared: tuple[str, ...] = ()  # flags that change no object

    @contextlib.contextmanager
    def with_headers(self) -> Iterator[None]:
        """Read the compiler's headers once for all files, where many are to be compiled: half of a small file's time.

        g++ alone, whose objects are the same to the byte; where it can't, every file reads them itself.
        """
        num_new = sum(not self._is_made(path) for path in sources())
        if num_new < _MANY or "Free Software Foundation" not in _version(self.compiler):
            yield
            return
        with tempfile.TemporaryDirectory(prefix="penstock-headers-") as folder:
            header = Path(folder, "common.hpp")
            headers = (_INTRINSICS[ALL_VARIANTS[self.variant].machine], *_HEADERS)
            header.write_text("".join(f"#include <{name}>\n" for name in headers))
            command = [self.compiler, *flags_of(self.variant, self.folders), "-x", "c++-header", str(header)]
            done = subprocess.run([*command, "-o", f"{header}.gch"], capture_output=True)
            self.prepared = ("-include", str(header)) if done.returncode == 0 else ()
            yield

    def compile(self, path: Path) -> _Object:
        """Make one object, unless it was made from the same text by the same compiler."""
        target, stamp = self._files(path)
        if self._is_made(path):
            return _Object(target, is_there=True, is_new=False, said="")
        stamp.unlink(missing_ok=True)
        command = [*self._command(path), *self.prepared, "-o", str(target)]
        done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True)
        is_there = done.returncode == 0
        if is_there:
            stamp.write_text(self._key(path))
        return _Object(target, is_there, is_there, done.stderr.strip())

    def _is_made(self, path: Path) -> bool:
        target, stamp = self._files(path)
        return target.exists() and stamp.exists() and stamp.read_text() == self._key(path)

    def _files(self, path: Path) -> tuple[Path, Path]:
        return self.objects / f"{path.stem}.o", self.objects / f"{path.stem}.key"

    def _command(self, path: Path) -> list[str]:
        command = [self.compiler, *flags_of(self.variant, self.folders), "-c", path.name]
        return [*command, f'-DPENSTOCK_DIGEST="{self.mark}"'] if path.name == _WITH_DIGEST else command

    def _key(self, path: Path) -> str:
        return digest_of(_version(self.compiler), *self._command(path), *((name, text) for name, text in _texts(path)))


def _pool() -> ThreadPoolExecutor:
    """As many compilers at a time as there are cores."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)))


def _link(chosen: str, objects: list[Path], target: Path, folders: BuildFolders, is_whole: bool) -> None:
    """A process that has the old library loaded keeps it: the new one takes its name, not its file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # A sanitizer's names come with the program.
    complete = ["-Wl,--no-undefined"] if is_whole and not folders.flags else []
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", suffix=".so", dir=target.parent)
    os.close(handle)
    try:
        command = [chosen, *_LINK, *complete, *folders.flags, "-o", name, *map(str, objects)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{Path(chosen).name} could not link {target.name}:\n{done.stderr.strip()}")
        os.chmod(name, 0o755)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file and all that it includes of ours, each once."""
    waiting, seen = [path.name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or not (SOURCE / name).is_file():
            continue
        seen.add(name)
        text = (SOURCE / name).read_bytes()
        waiting += [found.decode() for found in _INCLUDE.findall(text)]
        yield name, text


@cache
def _version(chosen: str) -> str:
    return subprocess.run([chosen, "--version"], capture_output=True, text=True).stdout


@contextlib.contextmanager
def _alone(objects: Path) -> Iterator[None]:
    """One build of a variant at a time, whichever processes want it; the others find it done."""
    with open(objects / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.kernels.cpu.build", description=(__doc__ or "").partition("\n")[0]
    )
    best = executable_variants()[:1]
    parser.add_argument("--variants", nargs="+", default=best, choices=[*ALL_VARIANTS, "all"], metavar="VARIANT")
    parser.add_argument("--keep-going", action="store_true", help="leave out sources that do not compile")
    chosen = parser.parse_args(arguments)
    folders = BuildFolders.chosen()
    for variant in VARIANTS if "all" in chosen.variants else chosen.variants:
        try:
            for said in build(variant, folders, keep_going=chosen.keep_going):
                print(said, file=sys.stderr)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        print(library_path(variant, folders.libraries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
