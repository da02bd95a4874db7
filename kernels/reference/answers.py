"""Attention of rows with one query each, from their projected heads: stores keys and values, then attends.

No row reads what another one stores.
"""

from torch import Tensor

from ..heads import HeadForm
from ..paged import DeviceRows, PagedKV, Rotation
from ..registry import op
from .paged_attention import attention_paged
from .store_heads import store_heads_paged


@op(tolerance=2e-2)
def attention_answers(
    heads: Tensor, form: HeadForm, rotation: Rotation, kv: PagedKV, rows: DeviceRows, window: int | None
) -> Tensor:
    """[rows, heads, head_dim]; keys and values are stored in their slots."""
    query = store_heads_paged.reference(heads, form, rotation, kv, rows)
    return attention_paged.reference(query, kv, rows, form.head_dim**-0.5, window)
