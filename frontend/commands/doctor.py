"""Check this machine, and suggest what to fix: Python, processor, memory, GPUs, torch, compiler, folders and the hub's
cache. Exit status 0 if a model can run here, 1 if not. With --start, time the start of a model instead.

Each line has its own function; `machine.py` inspects the machine, and a worker's survey inspects torch.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ... import __version__
from ...protocol.errors import PenstockError
from ...protocol.files.cache_folder import cache_place
from ...protocol.files.sizes import size
from ...protocol.files.user_folders import UserFolder
from ...protocol.processes.runtime_directory import runtime_base
from ...protocol.survey import NativeSurvey, TorchSurvey, has_driver
from .. import machine
from ..console.logs import log_place
from ..machine import ask_survey
from .shared.cached_models import bundled_models, cached_models

USAGE = "[--start MODEL]"

OK, WARN, FAIL = "ok", "warn", "FAIL"
_COLOURS = {OK: "\x1b[32m", WARN: "\x1b[33m", FAIL: "\x1b[31m"}
_PYTHONS = ((3, 11), (3, 12))  # tested versions; pyproject.toml has the lower bound
_TORCHES = ((2, 11), (2, 13))
_LITTLE_MEMORY = 1 << 30
_SLOWLY = "models run on torch's operations, several times slower"
_TORCH, _GPU = "pip install 'penstock[torch]'", "pip install 'penstock[gpu]'"
_BUILD = "python -m penstock.kernels.cpu.build"


class Finding(NamedTuple):
    verdict: str
    name: str
    found: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--start", metavar="MODEL", help="time this model's start, up to its first token, by process")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print lines as they are found: importing torch, where it is installed, takes a while."""
    if arguments.start is not None:
        from .shared.start_timeline import timed_start

        print(timed_start(arguments.start), flush=True)
        return 0
    failed = 0
    is_coloured = sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for finding in _findings():
        failed += finding.verdict == FAIL
        print(_shown(finding, is_coloured), flush=True)
    print("\nA model can run here." if not failed else "\nNo model can run here. Fix what is marked FAIL first.")
    return 1 if failed else 0


def _shown(finding: Finding, is_coloured: bool) -> str:
    mark = f"{finding.verdict:<4}"
    if is_coloured:
        mark = f"{_COLOURS[finding.verdict]}{mark}\x1b[0m"
    advice = f"\n{'':19}→ {finding.advice}" if finding.advice else ""
    return f"{mark}  {finding.name:<11}  {finding.found}{advice}"


def _findings() -> Iterator[Finding]:
    yield _python()
    yield Finding(OK, "penstock", f"{__version__} in {Path(__file__).parents[2]}")
    yield from _processor(machine.processor())
    lacks_kernels = False
    try:
        survey = ask_survey(with_torch=True)
    except PenstockError as error:
        yield Finding(FAIL, "worker", str(error), "reinstall Penstock in this environment")
    else:
        yield _memory(survey.available_bytes, machine.total_memory(), machine.memory_limit())
        native = survey.native or NativeSurvey(problem="the worker didn't report them")
        torch = survey.torch or TorchSurvey(error="the worker didn't report it")
        yield _kernels(native, has_torch=bool(torch.version))
        yield from _torch_and_cards(torch, is_needed=native.problem is not None)
        lacks_kernels = native.problem is None and not native.is_compiled
    yield _compiler(machine.compiler(), lacks_kernels)
    yield from _folders()
    yield _bundled()
    yield _hub()


# --- each check, and its advice ---------------------------------------------------------------------------------------


def _python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    found = f"{'.'.join(map(str, version))} in {sys.prefix}, {platform.system()} {platform.release()}"
    low, high = _PYTHONS
    if version[:2] < low:
        return Finding(FAIL, "python", found, "use Python 3.11 or 3.12")
    if version[:2] > high:
        return Finding(WARN, "python", found, "it is tested on 3.11 and 3.12; use one of them if something fails")
    return Finding(OK, "python", found)


def _processor(found: machine.Processor) -> Iterator[Finding]:
    cores = f"{found.allowed} of {found.cores} cores" if found.allowed < found.cores else f"{found.cores} cores"
    yield Finding(OK, "processor", f"{found.name}, {cores}")
    features = ", ".join(found.features) or "none that Penstock uses"
    if not {"avx2", "asimd"} & set(found.features):
        advice = "without these a model runs at a fraction of the speed; choose a machine with AVX2 (or ARM's asimd)"
        yield Finding(WARN, "features", features, advice)
    else:
        yield Finding(OK, "features", features)


def _memory(available: int, total: int, limit: int | None) -> Finding:
    limited = f", limited to {size(limit)} by a control group" if limit is not None and limit < total else ""
    found = f"{size(available)} free of {size(total)}{limited}"
    if available < _LITTLE_MEMORY:
        return Finding(WARN, "memory", found, "only small models fit; end other programs, or raise the limit")
    return Finding(OK, "memory", found)


def _torch_and_cards(torch: TorchSurvey, is_needed: bool) -> Iterator[Finding]:
    if torch.error is not None:
        yield Finding(WARN, "torch", torch.error, f"it can't be used; {_TORCH}, or pip uninstall torch")
    elif not torch.version:
        found = "none; needed without native kernels" if is_needed else "none; only needed with a GPU"
        yield Finding(WARN if is_needed else OK, "torch", found, _TORCH if is_needed else "")
    else:
        build = f"built for CUDA {torch.cuda}" if torch.cuda else "a CPU build"
        number = tuple(int(part) for part in torch.version.split("+")[0].split(".")[:2])
        is_tested = _TORCHES[0] <= number <= _TORCHES[1]
        advice = "" if is_tested else "it is tested on torch 2.11 to 2.13; install one of them if something fails"
        yield Finding(OK if is_tested else WARN, "torch", f"{torch.version}, {build}", advice)
    yield _cards(torch)
    if torch.cards and torch.triton is None:
        yield Finding(WARN, "triton", "none", f"GPU kernels need it: {_GPU}")


def _cards(torch: TorchSurvey) -> Finding:
    if torch.cards:
        found = [f"{card.name} ({size(card.free_bytes)} free of {size(card.total_bytes)})" for card in torch.cards]
        return Finding(OK, "GPU", ", ".join(found))
    seen = machine.cards()
    if not seen:
        advice = "the driver is loaded, but no GPU responds; see nvidia-smi" if has_driver() else ""
        return Finding(WARN if advice else OK, "GPU", "none; models run on the CPU", advice)
    names = ", ".join(card.name for card in seen)
    if not torch.version:
        return Finding(WARN, "GPU", names, f"models run on the CPU; to use it: {_GPU}")
    if torch.cuda is None:
        return Finding(WARN, "GPU", names, "this torch cannot use it; install a CUDA build of torch")
    return Finding(WARN, "GPU", names, f"torch finds no device: {torch.lack}")


def _kernels(native: NativeSurvey, has_torch: bool) -> Finding:
    """Check for native kernels; a model runs on torch's operations without them, at a fraction of the speed."""
    if native.is_compiled:
        return Finding(OK, "kernels", f"native, {native.variant}")
    if native.problem is None and native.can_compile:
        return Finding(WARN, "kernels", f"not compiled yet ({native.variant})", f"the first start does, or: {_BUILD}")
    lacking = native.problem or f"not compiled ({native.variant}), and no compiler"
    advice = [] if native.problem else [f"install g++ (Debian: apt install g++), then {_BUILD}"]
    advice.insert(0, _SLOWLY if has_torch else f"no model runs on this processor without them or torch: {_TORCH}")
    return Finding(WARN if has_torch else FAIL, "kernels", f"NO native kernels: {lacking}", "; ".join(advice))


def _compiler(found: str | None, lacks_kernels: bool) -> Finding:
    if found is None and lacks_kernels:
        return Finding(WARN, "compiler", "none; needed to compile native kernels", "install g++ (apt install g++)")
    return Finding(OK, "compiler", found or "none; only needed to compile native kernels")


def _folders() -> Iterator[Finding]:
    folders: tuple[tuple[str, Callable[[], UserFolder], str], ...] = (
        ("sockets", lambda: UserFolder(runtime_base()), "PENSTOCK_RUNTIME_DIR"),
        ("logs", log_place, "PENSTOCK_LOG_DIR"),
        ("cache", cache_place, "PENSTOCK_CACHE"),
    )
    for name, find, variable in folders:
        advice = f"set {variable} to a writable folder"
        try:
            folder, passed_over = find()
        except PenstockError as error:
            yield Finding(FAIL, name, str(error), advice)
        except OSError as error:  # a full disk: a tree starts nevertheless
            yield Finding(WARN, name, str(error), advice)
        else:
            found = f"{folder}, since {passed_over}" if passed_over else str(folder)
            yield Finding(WARN, name, found, advice) if passed_over else Finding(OK, name, found)


def _bundled() -> Finding:
    names = ", ".join(f"{model.name} ({size(model.size)})" for model in bundled_models())
    if not names:
        return Finding(WARN, "bundled", "no model came with this installation", "use a model's folder or a hub id")
    return Finding(OK, "bundled", names)


def _hub() -> Finding:
    models = list(cached_models())
    from huggingface_hub import constants

    found = f"{len(models)} models, {size(sum(model.size for model in models))} in {constants.HF_HUB_CACHE}"
    if constants.HF_HUB_OFFLINE:
        return Finding(OK, "hub", f"{found}; offline by HF_HUB_OFFLINE", "unset it to download models")
    return Finding(OK, "hub", found)
