"""How the product of one row is cut: lines of the weight a program, words of a line a step, parts of the inputs.

Keys are those of few_rows_choice.py. More lines share what is done with the row; fewer make more programs.
Knows nothing of what is computed.
"""

from functools import partial

import triton

from ..tuning import Choice, Key, Tuning
from .tiles import num_parts

PER_WORD = {"fp32": 1, "fp16": 2, "bf16": 2, "int8": 4, "int4": 8}  # weights in 32 bits
_MANY_LINES = 8192  # from which half as many programs still are four or more for each multiprocessor
_INTERPRETED = Choice.of(BLOCK_N=64, WORDS=32, PARTS=2)
# An interpreted program takes as long as it has lines, whatever its tile: of a whole model's products few are best.
_OF_A_MODEL = 80  # lines at least
_INTERPRETED_MODEL = Choice.of(BLOCK_N=1024, WORDS=128, PARTS=1)


def _default(kind: str, architecture: int, key: Key) -> Choice:
    _, _, lines, inputs, *_ = key
    if not architecture:
        return _INTERPRETED if lines < _OF_A_MODEL else _INTERPRETED_MODEL
    block_n = 8 if lines >= _MANY_LINES else 4
    if kind == "int4":
        block_n *= 2
    # Of integers a thread takes two words at once, so many as eight 16-bit numbers of the row meet.
    widest = 256 if kind.startswith("int") else 512
    words = min(widest, triton.next_power_of_2(inputs // PER_WORD[kind]))
    # As many warps as the words occupy: others would have lines of their own, and the row by way of shared memory.
    warps = max(1, 4 * words // widest)
    return Choice.of(warps, BLOCK_N=block_n, WORDS=words, PARTS=num_parts(lines, inputs, block_n))


def _choices(widest: int, block_n: int) -> list[Choice]:
    """Few, since each is compiled for each shape of a weight."""
    return [
        *(Choice.of(BLOCK_N=block_n, WORDS=widest, PARTS=parts) for parts in (1, 2, 4)),
        Choice.of(BLOCK_N=2 * block_n, WORDS=widest, PARTS=1),
        Choice.of(BLOCK_N=block_n, WORDS=widest // 2, num_warps=2, PARTS=1),
        Choice.of(BLOCK_N=block_n, WORDS=2 * widest, num_warps=8, PARTS=1),
    ]


_FLOATS = Tuning("one_row", partial(_default, "bf16"), _choices(512, 4))
_INT8 = Tuning("one_row_int8", partial(_default, "int8"), _choices(256, 4))
_INT4 = Tuning("one_row_int4", partial(_default, "int4"), _choices(256, 8))
TUNINGS = {"fp32": _FLOATS, "fp16": _FLOATS, "bf16": _FLOATS, "int8": _INT8, "int4": _INT4}
