"""Where a model computes: `CUDA:0,1`, `CPU:0`, and the options of a tree that this becomes.

On a GPU the length of the list is the tensor-parallel size; on `CPU_NUMA` each node gets a rank; on `CPU` the list is
[0], whatever was given.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.files.sizes import exact_size
from ....protocol.options.option_rules import FRACTION
from ...console import logs
from ...machine import cards, has_visible_card
from ..names import TargetDevice


@dataclass(frozen=True)
class ComputeUnit:
    device: TargetDevice = TargetDevice.CUDA
    ids: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.device.name}:{','.join(map(str, self.ids))}"


def compute_unit(device: TargetDevice | str, ids: Sequence[int] | None = None) -> ComputeUnit:
    """Check a device, by its member or its name, and the list that goes with it."""
    found = _device(device)
    is_list = ids is None or (isinstance(ids, Sequence) and not isinstance(ids, (str, bytes)))
    if not is_list or not all(type(each) is int and each >= 0 for each in ids or ()):
        raise ConfigError(f"device_ids={shown(ids)}: must be a list of whole numbers, 0 or more.")
    chosen = tuple(ids or (0,))
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"device_ids={shown(ids)}: names a device twice.")
    return ComputeUnit(found, (0,) if found is TargetDevice.CPU else chosen)


def parsed(text: str) -> ComputeUnit:
    """Parse `CUDA:0,1`."""
    name, colon, ids = text.partition(":") if isinstance(text, str) else ("", "", "")
    try:
        numbers = [int(each) for each in ids.split(",")]
    except ValueError:
        numbers = []
    if not colon or not numbers:
        raise ConfigError(f"compute_unit={shown(text)}: must be a device and its numbers, such as CUDA:0,1 or CPU:0.")
    return compute_unit(name, numbers)


def _device(device: TargetDevice | str) -> TargetDevice:
    if isinstance(device, TargetDevice):
        return device
    names = [each.name for each in TargetDevice]
    if isinstance(device, str) and device.upper() in names:
        return TargetDevice[device.upper()]
    raise ConfigError(
        f"device={shown(device)}: must be one of {', '.join(names)}, as TargetDevice or as text."
        f"{suggestion(device, names)}"
    )


def device_options(unit: ComputeUnit, threads_a_device: int) -> dict[str, Any]:
    """The options of `LLM` for a compute unit. `threads_a_device` is 0 if nobody said how many."""
    device = unit.device
    if device is TargetDevice.CUDA:
        if has_visible_card():
            devices = {"device": "cuda", "devices": list(unit.ids), "tensor_parallel_size": len(unit.ids)}
            return {**devices, **_memory_share(unit.ids)}
        _warn_of_no_gpu()
    nodes = len(unit.ids) if device is TargetDevice.CPU_NUMA else 1
    options: dict[str, Any] = {"device": "cpu", "tensor_parallel_size": nodes}
    if device is TargetDevice.CPU_NUMA:
        options["devices"] = list(unit.ids)
    if threads_a_device:
        options["num_threads"] = threads_a_device * nodes
    return options


def _memory_share(ids: Sequence[int]) -> dict[str, Any]:
    """The share of a card's memory that BFC_MEM_RATIO leaves when BFC_LEFTOVER_MB of it are set aside first."""
    if not (leftover := os.environ.get("BFC_LEFTOVER_MB")):
        return {}  # the ratio alone is read with the options
    if not leftover.isdecimal():
        raise ConfigError(f"BFC_LEFTOVER_MB={shown(leftover)}: must be a whole number.")
    ratio = FRACTION.checked("BFC_MEM_RATIO", os.environ.get("BFC_MEM_RATIO", "0.9"), ConfigError)
    total = min((card.total_bytes for number, card in enumerate(cards()) if number in ids), default=0)
    left = total - (int(leftover) << 20)
    if total and left <= 0:
        raise ConfigError(f"BFC_LEFTOVER_MB={leftover}: a card has {exact_size(total)}.")
    return {"gpu_memory_utilization": ratio * left / total} if total else {}


@cache
def _warn_of_no_gpu() -> None:
    """Once a process."""
    words = "TargetDevice.CUDA: no NVIDIA card is to be seen here, so models run on the CPU."
    logs.say(words, quiet=logs.is_quiet(False))
