"""Which instruction sets the kernels are compiled for, and which of them this processor can execute.

One source serves all: a variant is a name, the compiler's flags and the processor's features that they rely on. The
standard library alone, so that a build can read the table before anything is installed.
"""

import ctypes
import platform
from pathlib import Path
from typing import NamedTuple


class Variant(NamedTuple):
    machine: str  # the kind of processor, as `uname -m` names it
    name: str
    features: tuple[str, ...]  # as /proc/cpuinfo names them; the system lists none that it does not save and restore
    flags: tuple[str, ...]  # as g++ and clang++ name them


def _wider(base: Variant, name: str, features: str, flags: str) -> Variant:
    return Variant(base.machine, name, (*base.features, *features.split()), (*base.flags, *flags.split()))


_AVX2 = Variant("x86_64", "avx2", ("avx2", "fma", "f16c", "bmi2"), ("-mavx2", "-mfma", "-mf16c", "-mbmi2"))
_AVX512 = _wider(
    _AVX2,
    "avx512",
    "avx512f avx512bw avx512vl avx512dq avx512cd",
    "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd -mprefer-vector-width=512",
)
_AVX512_VNNI = _wider(_AVX512, "avx512_vnni", "avx512_vnni", "-mavx512vnni")
_AVX512_BF16 = _wider(_AVX512_VNNI, "avx512_bf16", "avx512_bf16", "-mavx512bf16")
_AMX = _wider(_AVX512_BF16, "amx", "amx_tile amx_int8 amx_bf16", "-mamx-tile -mamx-int8 -mamx-bf16")

# Products of 8-bit numbers, four at a time; i8mm has those of unsigned with signed ones, which are wanted here.
_NEON = Variant("aarch64", "neon", ("asimd", "asimddp"), ("-march=armv8.2-a+dotprod",))
_NEON_I8MM = Variant("aarch64", "neon_i8mm", (*_NEON.features, "i8mm"), ("-march=armv8.2-a+dotprod+i8mm",))

# Of one kind of processor, the last one that it can execute is the best for it.
ALL_VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        _AVX2,
        _wider(_AVX2, "avx_vnni", "avx_vnni", "-mavxvnni"),
        _AVX512,
        _AVX512_VNNI,
        _AVX512_BF16,
        _AMX,
        _NEON,
        _NEON_I8MM,
    )
}
# Those for processors of this kind.
VARIANTS = {name: variant for name, variant in ALL_VARIANTS.items() if variant.machine == platform.machine()}


def is_known_machine() -> bool:
    """Whether there is any variant for processors of this kind."""
    return bool(VARIANTS)


def needed_features() -> str:
    """Name the processor features that the plainest of these variants needs."""
    return ", ".join(next(iter(VARIANTS.values())).features)


def processor_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the first core has; empty where the list cannot be read."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    listed = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(listed, ()))


def grants_tiles() -> bool:
    """Whether the system lets processes have the registers of AMX (Linux from 5.16 on, on request)."""
    system_call, supported, tile_data = 158, 0x1021, 18  # arch_prctl, ARCH_GET_XCOMP_SUPP, XFEATURE_XTILEDATA
    mask = ctypes.c_uint64()
    if ctypes.CDLL(None).syscall(system_call, supported, ctypes.byref(mask)) != 0:
        return False
    return bool(mask.value >> tile_data & 1)


def executable_variants(features: frozenset[str] | None = None) -> tuple[str, ...]:
    """The variants that a processor with these features (default: this one) can execute, best first."""
    has = processor_features() if features is None else features
    if features is None and "amx_tile" in has and not grants_tiles():
        has -= {"amx_tile"}
    return tuple(name for name, variant in reversed(VARIANTS.items()) if has.issuperset(variant.features))
