"""What a card gives at most: bytes copied and bf16 products, by torch's own calls.

All other figures are held against these two, measured in the same minutes. Data are random: a card multiplies zeros
faster.
"""

from collections.abc import Iterator

import torch

from .setting import BANDWIDTH, MATRIX_RATE, Figure, Part, Setting

_GIB = 1 << 30


def parts(setting: Setting) -> Iterator[Part]:
    yield Part(BANDWIDTH, lambda: _bandwidth(setting))
    yield Part(MATRIX_RATE, lambda: _matrix_rate(setting))


def _bandwidth(setting: Setting) -> Iterator[Figure]:
    size = setting.sized(4 * _GIB, 64 << 20)
    source = torch.empty(size // 4, dtype=torch.int32, device=setting.device).random_()
    target = torch.empty_like(source)
    seconds = setting.clock().best([lambda: target.copy_(source)])
    yield Figure(BANDWIDTH, 2 * size / seconds / 1e9, "GB/s", None, "read and written")


def _matrix_rate(setting: Setting) -> Iterator[Figure]:
    side = setting.sized(8192, 512)
    left, right = (torch.randn(side, side, device=setting.device).bfloat16() for _ in range(2))
    # Several products, one after another: a card that has just woken up is not at its own speed yet.
    seconds = setting.clock().best([lambda: torch.matmul(left, right)] * setting.sized(20, 2))
    yield Figure(MATRIX_RATE, 2 * side**3 / seconds / 1e12, "TFLOP/s", None, f"torch.matmul, {side:,}³")
