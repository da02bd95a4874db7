"""From a step's projected heads to queries that are ready to attend, with keys and values in their slots.

Knows nothing of who owns a block.
"""

from torch import Tensor

from ..heads import HeadForm
from ..paged import DeviceRows, PagedKV, Rotation
from ..registry import op
from .kv_packing import codes_of, key_codes, packed_keys, packed_values, value_codes
from .pointwise import rotate_halves, rotate_pairs

_INT8_KEY_ZERO = 128


@op(tolerance=1e-2)
def store_heads_paged(heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows) -> Tensor:
    """Norms and rotates query and key heads of [T, (queries + 2 × keys) × head_dim], stores keys and values.

    Gives the query, [T, heads, head_dim] in the dtype of what it is given. Everything between is float32.
    """
    by_head = heads.view(len(heads), -1, form.head_dim).float()
    query, key, value = by_head.split((form.num_queries, form.num_keys, form.num_keys), 1)
    if form.norms is not None:
        query, key = (_normed(x, weight, form.epsilon) for x, weight in zip((query, key), form.norms, strict=True))
    cos, sin = (table[rotation.positions][:, None] for table in (rotation.cos, rotation.sin))
    rotate = (rotate_pairs if form.rotates_pairs else rotate_halves).reference
    _store(rotate(key, cos, sin), value.contiguous(), kv, rows.kv_slots)
    return rotate(query, cos, sin).to(heads.dtype)


def _normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + epsilon).rsqrt() * weight.float()


def _store(key: Tensor, value: Tensor, kv: PagedKV, kv_slots: Tensor) -> None:
    """Writes the tokens' keys and values [T, heads, head_dim] where their slots are not below 0."""
    is_stored = kv_slots >= 0
    blocks, offsets = kv_slots[is_stored] // kv.block_size, kv_slots[is_stored] % kv.block_size
    codes, key_scales = codes_of(key[is_stored], kv.kind)
    held = key_codes(kv.keys, kv.kind, kv.block_size).clone()
    held[blocks, :, offsets] = codes + _INT8_KEY_ZERO if kv.kind == "int8" else codes
    kv.keys.copy_(packed_keys(held, kv.kind))
    codes, value_scales = codes_of(value[is_stored], kv.kind)
    held = value_codes(kv.values, kv.kind, kv.head_dim).clone()
    held[blocks, :, offsets] = codes
    kv.values.copy_(packed_values(held, kv.kind))
    for memory, scales in ((kv.key_scales, key_scales), (kv.value_scales, value_scales)):
        if memory is not None and scales is not None:
            memory[blocks, :, :, offsets] = scales
