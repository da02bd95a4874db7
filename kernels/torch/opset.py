"""The operations of a decoder as two sets: the fastest, and the row-invariant.

In `INVARIANT` the bits of a row depend on that row alone, never on the company that it is computed in. A tree picks one
set when it starts and keeps it for prompt and answer rows alike.
"""

from dataclasses import dataclass

from ..reference.attention import attention, attention_invariant, write_kv
from ..reference.linear import linear, linear_invariant
from ..reference.lora import add_lora, add_lora_invariant
from ..reference.pointwise import (
    embedding,
    rms_norm,
    rms_norm_invariant,
    rotate_halves,
    rotate_pairs,
    silu_mul,
    silu_mul_invariant,
)
from ..registry import Op
from . import attention as _attention  # noqa: F401  registers
from . import attention_invariant as _attention_invariant  # noqa: F401  registers
from . import linear as _linear  # noqa: F401  registers
from . import lora as _lora  # noqa: F401  registers
from . import pointwise as _pointwise  # noqa: F401  registers


@dataclass(frozen=True)
class OpSet:
    linear: Op
    add_lora: Op
    rms_norm: Op
    silu_mul: Op
    attention: Op
    embedding: Op = embedding
    rotate_halves: Op = rotate_halves
    rotate_pairs: Op = rotate_pairs
    write_kv: Op = write_kv


FAST = OpSet(linear, add_lora, rms_norm, silu_mul, attention)
INVARIANT = OpSet(linear_invariant, add_lora_invariant, rms_norm_invariant, silu_mul_invariant, attention_invariant)
