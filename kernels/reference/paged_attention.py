"""Attention over KV memory in blocks, row by row, and the storing of a step's heads before it."""

import torch
from torch import Tensor

from ..operands import HeadLayout
from ..paged import DeviceRows, PagedKV, Rotation
from ..registry import op
from .attention import attend
from .pointwise import rotated, rotated_queries


@op(tolerance=1e-2)
def store_heads_paged(
    heads: Tensor, layout: HeadLayout, rotation: Rotation | None, kv: PagedKV, rows: DeviceRows
) -> Tensor:
    """Norms and rotates query and key heads of [T, projected heads × head_dim], stores keys and values.

    Without a rotation nothing is rotated. Gives the query, [T, heads, head_dim] in the dtype of what it is given.
    Everything between is float32.
    """
    query, key, value = layout.split(heads.float())
    if layout.norms_values:
        value = _normed(value, None, layout)
    if not layout.norms_follow:
        query, key = _both_normed(query, key, layout)
    angles = None if rotation is None else rotation.of_tokens
    query, key = rotated_queries(query, layout, angles), rotated(key, layout, angles)
    if layout.norms_follow:
        query, key = _both_normed(query, key, layout)
    if layout.num_projected_keys:
        _store(key, value.contiguous(), kv, rows.kv_slots)
    return query.to(heads.dtype)


def _both_normed(query: Tensor, key: Tensor, layout: HeadLayout) -> tuple[Tensor, Tensor]:
    if layout.norms is None:
        return query, key
    of_queries, of_keys = layout.norms
    return _normed(query, of_queries, layout), key if of_keys is None else _normed(key, of_keys, layout)


def _normed(x: Tensor, weight: Tensor | None, layout: HeadLayout) -> Tensor:
    if weight is not None and layout.norms_have_mean:
        x = x - x.mean(-1, keepdim=True)
    normed = x * (x.square().mean(-1, keepdim=True) + layout.epsilon).rsqrt()
    return normed if weight is None else normed * weight.float()


def _store(key: Tensor, value: Tensor, kv: PagedKV, kv_slots: Tensor) -> None:
    """Writes the tokens' keys and values [T, heads, head_dim] where their slots are not below 0."""
    is_stored = kv_slots >= 0
    place = (kv_slots[is_stored] // kv.block_size, kv_slots[is_stored] % kv.block_size)
    for x, held, held_scales in ((key, kv.keys, kv.key_scales), (value, kv.values, kv.value_scales)):
        numbers = x[is_stored]
        if held_scales is not None:
            numbers, held_scales[place] = in_8_bits(numbers)
        held[place] = numbers.to(held.dtype)


def in_8_bits(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each head of float32 [..., head_dim] as whole numbers, and its float16 scale [...]."""
    # What isn't finite must not be hidden by an integer: the scale becomes NaN.
    scale = _rounded_up((x.abs().amax(-1) + (x * 0).sum(-1)) / 127)
    whole = (x * (1 / scale.float())[..., None]).clamp(-127, 127).round()
    return whole.where((scale > 0)[..., None], 0.0).to(torch.int8), scale


def _rounded_up(x: Tensor) -> Tensor:
    """The smallest float16 that is not below."""
    nearest = x.half()
    bits = nearest.view(torch.int16)
    above = (bits + torch.where(bits >= 0, 1, -1)).to(torch.int16).view(torch.float16)
    return torch.where(nearest.float() < x, above, nearest)


@op(tolerance=2e-2)
def attention_paged(
    query: Tensor,
    kv: PagedKV,
    rows: DeviceRows,
    scale: float,
    window: int | None,
    sinks: Tensor | None = None,
    softcap: float | None = None,
) -> Tensor:
    """[T, heads, head_dim] of queries over their rows' stored keys and values, within `window` if given.

    Causal, or up to the ends that the rows give.
    """
    attended = torch.zeros_like(query)
    starts = rows.query_starts.tolist()
    for row, context in enumerate(rows.context_lengths.tolist()):
        if context:
            own = slice(starts[row], starts[row + 1])
            keys, values = _stored(kv, rows.block_tables[row], context)
            ends = None if rows.seen_ends is None else rows.seen_ends[own]
            found = attend(query[own].float(), keys, values, scale, window, sinks, softcap, ends)
            attended[own] = found.to(query.dtype)
    return attended


attention_paged_invariant = attention_paged.invariant()


def _stored(kv: PagedKV, table: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Keys and values [context, heads, head_dim] of one row."""
    blocks = table[: -(-context // kv.block_size)].long()
    parts = (None if part is None else part[blocks] for part in (kv.keys, kv.values, kv.key_scales, kv.value_scales))
    keys, values = PagedKV(*parts).plain  # type: ignore[arg-type]  # [blocks, block_size, heads, head_dim]
    return keys.flatten(0, 1)[:context], values.flatten(0, 1)[:context]
