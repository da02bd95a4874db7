"""Packed KV memory and the shape of a step, as kernels see them that know only tensors of their own device.

Unlike `rows.Rows`, nothing here is a list: a captured step is replayed with other numbers in the same tensors. So there
may be room to spare: a row whose context is 0 is not there, and a token whose slot is below 0 is stored nowhere; what
is computed for them is never read. Knows nothing of requests.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True, eq=False)
class PagedKV:
    """One layer's memory in a format of `kv_layout.KV_FORMATS`."""

    keys: Tensor  # uint8 [num_blocks, num_kv_heads, bytes of a block and head]
    values: Tensor
    key_scales: Tensor | None  # float16 [num_blocks, num_kv_heads, parts, block_size]
    value_scales: Tensor | None
    kind: str
    block_size: int
    head_dim: int

    @property
    def num_heads(self) -> int:
        return self.keys.shape[1]


@dataclass(eq=False)
class DeviceRows:
    """One step: R rows, T tokens, the rows one after another."""

    query_starts: Tensor  # int32 [R + 1]: the tokens of row r are query_starts[r]:query_starts[r + 1]
    context_lengths: Tensor  # int32 [R]: tokens that the row's last query sees, itself included; 0: no row
    block_tables: Tensor  # int32 [R, blocks]
    kv_slots: Tensor  # int64 [T]: block × block_size + offset where a token's key and value go; below 0: nowhere
    max_queries: int  # no row has more
    max_context: int  # no context is longer
    are_answers: bool = False  # each has one query, and none reads what another one stores in this step

    @property
    def num_rows(self) -> int:
        return len(self.context_lengths)


class Rotation(NamedTuple):
    """Cosines and sines of all positions, once for each stretch of them, and the rows that the step's tokens have.

    Sines carry the rotation's sign, as `rotate_halves` and `rotate_pairs` want them.
    """

    cos: Tensor  # float32 [positions, head_dim]
    sin: Tensor
    positions: Tensor  # int64 [T]
