"""Builds the kernels of an AVX-512 variant for processors that have AVX2 alone: its code on emulated instructions."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.kernels.cpu.build import compiler, sources
from penstock.kernels.cpu.libraries import SOURCE, BuildFolders, digest, flags_of, library_path
from penstock.kernels.cpu.variants import ALL_VARIANTS

_EMULATED = Path(__file__).parents[1] / "kernels" / "emulated"
# Instructions that the kernels write as assembly, and what they add to.
_ASSEMBLY = re.compile(r'asm\("vp?(dpbusd|dpwssd|dpbf16ps) .*?" : "\+v"\((.*?)\) : "v"\((.*?)\), "v"\((.*?)\)\);')
_FUNCTIONS = {"dpbusd": "dpbusd_epi32", "dpwssd": "dpwssd_epi32", "dpbf16ps": "dpbf16_ps"}
_INTRINSIC = re.compile(r"\b_mm512_(\w+)")


def build_emulated(variant: str, folder: Path) -> None:
    """Make a library in the folder that is loaded as the variant avx2 and computes as this one does."""
    texts = {path.name: _emulated(path.read_text()) for path in (*SOURCE.glob("*.[ch]pp"), SOURCE / "exports.map")}
    texts |= {"amx.cpp": "", "amx.hpp": (_EMULATED / "tiles.hpp").read_text()}  # tiles need no permission
    texts["prelude.hpp"] = _prelude(variant, texts)
    copied = folder / "source"
    copied.mkdir()
    for name, text in texts.items():
        (copied / name).write_text(text)
    folders = BuildFolders(folder, folder / "objects")
    flags = [*flags_of("avx2", folders), "-O1", "-w", "-include", str(copied / "prelude.hpp")]
    flags.append(f'-DPENSTOCK_DIGEST="{digest("avx2", folders)}"')
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(lambda path: _compiled(copied / path.name, flags), sources()))
    script = f"-Wl,--version-script={copied / 'exports.map'}"
    _run("-shared", "-pthread", "-Wl,-Bsymbolic", script, *objects, "-o", library_path("avx2", folder))


def _emulated(text: str) -> str:
    def call(found: re.Match[str]) -> str:
        instruction, to, *others = found.groups()
        return f"{to} = emulated::{_FUNCTIONS[instruction]}({', '.join([to, *others])});"

    return _ASSEMBLY.sub(call, text)


def _prelude(variant: str, texts: dict[str, str]) -> str:
    """Comes before each source: the instructions, and the macros of a compiler that has them."""
    names = sorted({name for text in texts.values() for name in _INTRINSIC.findall(text)})
    own, plain = ALL_VARIANTS[variant].flags, ALL_VARIANTS["avx2"].flags
    features = [flag[2:].upper().replace("-", "_") for flag in own if flag not in plain and "=" not in flag]
    return "\n".join((
        f'#include "{_EMULATED / "avx512.hpp"}"',
        *(f"#define _mm512_{name} emulated::{name}" for name in names),
        *(f"#define __{feature}__ 1" for feature in features),
    ))  # fmt: skip


def _compiled(path: Path, flags: list[str]) -> Path:
    made = path.with_suffix(".o")
    _run(*flags, "-c", path, "-o", made)
    return made


def _run(*words: object) -> None:
    done = subprocess.run([str(compiler()), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "rror" in line)[:3000]
