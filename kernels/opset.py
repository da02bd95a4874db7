"""The operations of a decoder as two sets: the fastest, and the row-invariant.

A tree picks one set when it starts and keeps it for prompt and answer rows alike.
"""

from dataclasses import dataclass

from .reference.attention import attention, write_kv
from .reference.attention_invariant import attention_invariant
from .reference.linear import linear, linear_invariant
from .reference.pointwise import (
    embedding,
    log_softmax,
    rms_norm,
    rms_norm_invariant,
    rotate_halves,
    rotate_pairs,
    silu_mul,
    silu_mul_invariant,
)
from .registry import Op


@dataclass(frozen=True)
class OpSet:
    linear: Op
    rms_norm: Op
    silu_mul: Op
    attention: Op
    embedding: Op = embedding
    rotate_halves: Op = rotate_halves
    rotate_pairs: Op = rotate_pairs
    write_kv: Op = write_kv
    log_softmax: Op = log_softmax


FAST = OpSet(linear, rms_norm, silu_mul, attention)
INVARIANT = OpSet(linear_invariant, rms_norm_invariant, silu_mul_invariant, attention_invariant)
