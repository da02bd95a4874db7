"""Latent attention (MLA): what is stored of a token for all heads, and how each head meets it.

Of a token a normed latent [rank] and a rotated key [rope_dim] are kept side by side, as the one key of all heads; the
latent is its value, too. A head's own matrices come before (`latent_query`) and after (`latent_values`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..operands import LatentLayout
from ..paged import DeviceRows, PagedKV, Rotation
from ..registry import op
from ..torch.packed.torch_weights import PackedWeight
from .paged_attention import attention_paged
from .pointwise import rotate_halves, rotate_pairs


@op(tolerance=1e-2)
def store_latents(x: Tensor, layout: LatentLayout, rotation: Rotation, kv: PagedKV, rows: DeviceRows) -> Tensor:
    """Norms the latents of [T, rank + rope_dim], rotates the keys, stores both in their slots; gives all stored."""
    latent, key = x.float().split((layout.rank, layout.rope_dim), 1)
    normed = latent * (latent.square().mean(-1, keepdim=True) + layout.epsilon).rsqrt() * layout.norm.float()
    kept = torch.cat((normed, _rotated(key[:, None], layout, rotation)[:, 0]), 1)  # [T, width]
    is_stored = rows.kv_slots >= 0
    where = (rows.kv_slots[is_stored] // kv.block_size, rows.kv_slots[is_stored] % kv.block_size, 0)
    kv.keys[where] = kept[is_stored].to(kv.keys.dtype)
    return kv.keys.float()


@op(tolerance=1e-4)
def latent_query(query: Tensor, weights: Sequence[PackedWeight], layout: LatentLayout, rotation: Rotation) -> Tensor:
    """[T, heads × width] of [T, heads × (nope_dim + rope_dim)]: what meets a latent, and what meets its key."""
    nope, key = query.unflatten(1, (layout.num_heads, -1)).split((layout.nope_dim, layout.rope_dim), 2)
    return torch.cat((_by_head(nope, weights), _rotated(key, layout, rotation)), 2).flatten(1)


@op(tolerance=2e-2)
def latent_attention(query: Tensor, layout: LatentLayout, kv: PagedKV, rows: DeviceRows) -> Tensor:
    """[T, heads × rank]: of each head the weighted sum of the latents that its token sees."""
    by_head = query.unflatten(1, (layout.num_heads, layout.width))
    attended = attention_paged.reference(by_head, kv, rows, layout.scale, None, None)
    return attended[:, :, : layout.rank].flatten(1)


@op(tolerance=1e-4)
def latent_values(attended: Tensor, weights: Sequence[PackedWeight], layout: LatentLayout) -> Tensor:
    """[T, heads × value_dim]: of each head's sum of latents the value that it stands for."""
    return _by_head(attended.unflatten(1, (layout.num_heads, layout.rank)), weights).flatten(1)


def _by_head(heads: Tensor, weights: Sequence[PackedWeight]) -> Tensor:
    """[T, heads, out] of [T, heads, in]: each head times its own matrix [out, in]."""
    matrices = torch.stack([weight.plain().float() for weight in weights])  # [heads, out, in]
    return torch.einsum("thi,hoi->tho", heads.float(), matrices).to(heads.dtype)


def _rotated(heads: Tensor, layout: LatentLayout, rotation: Rotation) -> Tensor:
    cos, sin, _ = rotation.of_tokens
    return (rotate_pairs if layout.rotates_pairs else rotate_halves).reference(heads, cos, sin)
