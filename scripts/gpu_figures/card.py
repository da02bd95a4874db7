"""Measures a card's limits: the bandwidth of its copies and its rate of bf16 products, by torch's own calls.

All other figures are shares of these two, measured in the same minutes. The data are random, because a card multiplies
zeros faster.
"""

import time
from collections.abc import Callable, Iterator

import torch

from . import BANDWIDTH, MATRIX_RATE, Figure, Setting

_GIB = 1 << 30
_ROUNDS = {"cuda": 15, "cpu": 3}


def limits(setting: Setting) -> Iterator[Figure]:
    size = setting.sized(4 * _GIB, 64 << 20)
    source = torch.empty(size // 4, dtype=torch.int32, device=setting.device).random_()
    target = torch.empty_like(source)
    seconds = _best(setting.device, lambda: target.copy_(source), setting.sized(5, 1))
    yield Figure(BANDWIDTH, 2 * size / seconds / 1e9, "GB/s", None, "read and written")
    side, calls = setting.sized(8192, 512), setting.sized(20, 2)
    left, right = (torch.randn(side, side, device=setting.device).bfloat16() for _ in range(2))
    # Several products, one after another: a card that has just woken up is not at its own speed yet.
    seconds = _best(setting.device, lambda: torch.matmul(left, right), calls)
    yield Figure(MATRIX_RATE, 2 * side**3 / seconds / 1e12, "TFLOP/s", None, f"torch.matmul, {side:,}³")


def _best(device: str, call: Callable[[], object], calls: int) -> float:
    """Seconds of one call, in the best round of so many; the first round warms up."""
    taken = []
    for _ in range(1 + _ROUNDS[device]):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken[1:]) / calls
