"""KV memory and the shape of a step, for kernels that read only tensors of their own device.

Unlike `rows.HostRows`, nothing here is a list: a captured step is replayed with other numbers in the same tensors. So
there may be empty rows and tokens: a row whose context is 0 is empty, and a token whose slot is below 0 is stored
nowhere; what is computed for them is never read.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy

from .arrays import BFLOAT16, FLOAT16, FLOAT32, DeviceArray
from .operands import TokenRotation

KV_DTYPES = {"fp32": FLOAT32, "fp16": FLOAT16, "bf16": BFLOAT16, "int8": numpy.dtype(numpy.int8)}


@dataclass(frozen=True, eq=False)
class PagedKV:
    """One layer's memory, laid out as libraries for attention read theirs."""

    keys: DeviceArray  # [num_blocks, block_size, num_kv_heads, head_dim]: floats, or int8 around 0
    values: DeviceArray
    key_scales: DeviceArray | None = None  # of int8: float16 [num_blocks, block_size, num_kv_heads]
    value_scales: DeviceArray | None = None

    @property
    def kind(self) -> str:
        name = str(self.keys.dtype).removeprefix("torch.")
        return next(kind for kind, dtype in KV_DTYPES.items() if dtype.name == name)

    @property
    def block_size(self) -> int:
        return self.keys.shape[1]

    @property
    def num_heads(self) -> int:
        return self.keys.shape[2]

    @property
    def head_dim(self) -> int:
        return self.keys.shape[3]

    @property
    def plain(self) -> tuple[DeviceArray, DeviceArray]:
        """Keys and values in float32, of the same shape."""
        if self.key_scales is None or self.value_scales is None:
            return self.keys.float(), self.values.float()
        return self.keys * self.key_scales[..., None].float(), self.values * self.value_scales[..., None].float()


class PromptRows(NamedTuple):
    """What the host knows of a step's rows with several queries."""

    first: int  # every row before this one has one query
    number: int


@dataclass(eq=False)
class DeviceRows:
    """One step: R rows, T tokens, the rows one after another."""

    query_starts: DeviceArray  # int32 [R + 1]: the tokens of row r are query_starts[r]:query_starts[r + 1]
    context_lengths: DeviceArray  # int32 [R]: tokens that the row's last query sees, itself included; 0: no row
    block_tables: DeviceArray  # int32 [R, blocks]
    kv_slots: DeviceArray  # int64 [T]: block × block_size + offset where a token's key and value go; below 0: nowhere
    max_queries: int  # no row has more
    max_context: int  # no context is longer
    prompts: PromptRows | None = None  # None: it is not known which rows are
    # int64 [T]: the end of the keys that each query sees, which never falls within a row; None: each sees itself last.
    seen_ends: DeviceArray | None = None

    @property
    def num_rows(self) -> int:
        return len(self.context_lengths)

    @property
    def may_have_answers(self) -> bool:
        """Whether any row may have one query."""
        return self.prompts is None or self.prompts.number < self.num_rows

    def from_first_prompt(self) -> "DeviceRows":
        """Without the rows before it; tokens keep their numbers, so that the first row's need not begin at 0."""
        if self.prompts is None or not self.prompts.first:
            return self
        first = self.prompts.first
        return replace(
            self,
            query_starts=self.query_starts[first:],
            context_lengths=self.context_lengths[first:],
            block_tables=self.block_tables[first:],
            prompts=self.prompts._replace(first=0),
        )


class Rotation(NamedTuple):
    """Cosines and sines of all positions, once for each stretch of them, and the rows that the step's tokens have.

    Sines carry the rotation's sign, as `rotate_halves` and `rotate_pairs` want them.
    """

    cos: DeviceArray  # float32 [positions, head_dim]
    sin: DeviceArray
    positions: DeviceArray  # int64 [T]
    query_scales: DeviceArray | None = None  # float32 [positions]: what queries are multiplied by

    @property
    def of_tokens(self) -> TokenRotation:
        scales = None if self.query_scales is None else self.query_scales[self.positions][:, None, None]
        return TokenRotation(self.cos[self.positions][:, None], self.sin[self.positions][:, None], scales)
