"""A program that runs every operation's version for GPUs on a device and holds it against the reference on the CPU.

Prints a line for each operation that disagrees, and ends with 1 if there is one.
"""

import sys
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch

from penstock.kernels import triton as kernels
from penstock.kernels.registry import OPS, Op


def placed(argument: Any, device: str) -> Any:
    """The same with all its tensors on a device."""
    if isinstance(argument, torch.Tensor):
        return argument.to(device)
    if is_dataclass(argument) and not isinstance(argument, type):
        parts = {field.name: placed(getattr(argument, field.name), device) for field in fields(argument) if field.init}
        return replace(argument, **parts)
    if isinstance(argument, tuple):
        items = [placed(item, device) for item in argument]
        return type(argument)(*items) if hasattr(argument, "_fields") else tuple(items)
    return argument


def disagreement(found: Op, device: str) -> str:
    """What is wrong with the operation's version, or ""."""
    for seed in range(2):
        # Made twice, because an operation may write into what it is given.
        for arguments, again in zip(found.inputs(seed), found.inputs(seed), strict=True):
            try:
                moved = placed(arguments, device)
                computed, expected = found.versions["triton"](*moved), found.reference(*again)
                pairs = [(computed, expected), *zip(moved, again)]
                for one, other in pairs:
                    if isinstance(other, torch.Tensor | tuple) and one is not None:
                        near = {"rtol": found.tolerance, "atol": found.tolerance, "equal_nan": True}
                        torch.testing.assert_close(placed(one, "cpu"), other, **near)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
    return ""


def main(device: str) -> int:
    for module in iter_modules(kernels.__path__):
        import_module(f"{kernels.__name__}.{module.name}")
    ours = [found for found in OPS.values() if "triton" in found.versions]
    wrong = {found.name: disagreement(found, device) for found in ours}
    for name, what in wrong.items():
        if what:
            print(f"{name}: {what}", flush=True)
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
