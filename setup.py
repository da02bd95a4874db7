"""The native half of the package: `pip install .` compiles the kernels for processors where a compiler is found.

The variant that this processor uses is compiled, for an editable install in place; another one is compiled where it is
first loaded. With PENSTOCK_VARIANTS=all, or names of variants, a wheel holds these, for machines without a compiler.
Where no compiler is found the package is pure Python and needs torch (the extra `torch`); `penstock doctor` says so.
Everything else stands in pyproject.toml.
"""

import os
import sys
import time
import warnings
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from types import ModuleType

from setuptools import Distribution, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "kernels" / "cpu"
ROOMS = (
    "protocol",
    "engine",
    "worker",
    "kernels",
    "frontend",
    "allspark",
    "cluster",
)  # the others are no part of the package

# The folder as a package of its own: its files need neither Penstock nor torch.
sys.modules["native"] = ModuleType("native")
sys.modules["native"].__path__ = [str(NATIVE)]
build = import_module("native.build")
variants = import_module("native.variants")


def can_compile() -> bool:
    return variants.is_known_machine() and build.compiler() is not None


class BuildWithKernels(build_py):
    """Beside the Python files, the libraries: in place for an editable install, else into the package that is built."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """This file lies in the package's folder and is no part of it."""
        return [module for module in super().find_package_modules(package, package_dir) if module[1] != "setup"]

    def run(self) -> None:
        super().run()
        names = wanted_variants()
        if not can_compile():
            warn("no C++ compiler was found ($CXX, g++, clang++)")
        elif not names:
            warn("this processor has not the instructions; PENSTOCK_VARIANTS=all compiles them for others")
        elif self.editable_mode:
            compile_kernels(names, build.BuildFolders())
        else:
            target = Path(self.build_lib) / "penstock" / "kernels" / "cpu"
            compile_kernels(names, build.BuildFolders(libraries=target))


class PlatformWheel(bdist_wheel):
    """Any Python 3 loads the libraries, on this kind of machine only."""

    def get_tag(self) -> tuple[str, str, str]:
        python, binary, machine = super().get_tag()
        return ("py3", "none", machine) if can_compile() else (python, binary, machine)


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return can_compile()


def wanted_variants() -> list[str]:
    """Those that PENSTOCK_VARIANTS names, else the best one for this processor."""
    names = os.environ.get("PENSTOCK_VARIANTS", "").replace(",", " ").split()
    if unknown := [name for name in names if name not in (*variants.VARIANTS, "all")]:
        raise SystemExit(f"PENSTOCK_VARIANTS: there is no {unknown[0]}; it is all, or {', '.join(variants.VARIANTS)}.")
    return list(variants.VARIANTS) if "all" in names else names or variants.executable_variants()[:1]


def compile_kernels(names: Collection[str], place: build.Place) -> None:
    """A variant that an older compiler refuses is left out; those who need it compile it when they first load it."""
    cores, start = len(os.sched_getaffinity(0)), time.monotonic()
    say(f"native kernels: {', '.join(names)}, on {cores} cores; PENSTOCK_VARIANTS=all compiles all of them")
    for count, (name, error) in enumerate(build.build_several(list(names), place), start=1):
        if error is not None:
            warn(f"the variant {name} is left out: {error}")
        else:
            say(f"native kernels: {name} is compiled ({count} of {len(names)}, {time.monotonic() - start:.0f} s)")


def say(text: str) -> None:
    """pip shows it with -v, and without only where the build fails."""
    print(text, flush=True)


def warn(reason: str) -> None:
    advice = "without them models need torch: pip install 'penstock[torch]'"
    print(f"\nWARNING: native kernels are not compiled: {reason}; {advice}\n", file=sys.stderr)


def packages() -> list[str]:
    inner = find_packages(str(ROOT), include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
    return ["penstock", *(f"penstock.{name}" for name in inner)]


# A box about folders of the same name, which setuptools prints at each editable install.
warnings.filterwarnings("ignore", "Editable installation")
setup(
    packages=packages(),
    distclass=NativeDistribution,
    cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel},
)
