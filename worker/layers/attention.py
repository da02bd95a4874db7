"""Self-attention: project, rotate, store the keys and values, attend to what is stored, project back.

Attends to the KV memory only, the step's own tokens included, so how a prompt was chunked changes nothing.
"""

from typing import Any

from torch import Tensor

from ...kernels import HeadLayout
from ..models.config import ModelConfig
from ..steps.batch import LayerInputs
from ..weights.checkpoint import Weights
from .linear import QKVLinear, RowLinear


class Attention:
    """One layer's attention, on the heads of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        self.layer = layer
        self.ops = weights.placement.ops
        self.window = config.windows[layer]
        self.qkv = QKVLinear(
            weights,
            ["q_proj", "k_proj", "v_proj"],
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
        )
        self.layout = HeadLayout(
            self.qkv.local_heads,
            self.qkv.local_kv_heads,
            config.head_dim,
            config.family.rotates_pairs,
            _head_norms(weights, config.head_dim) if config.family.qk_norm else None,
            config.rms_norm_eps,
            self._sinks(weights, config) if config.family.has_sinks else None,
        )
        width = config.num_heads * config.head_dim
        self.output = RowLinear(weights.at("o_proj"), width, config.hidden_size, granularity=config.head_dim)

    def _sinks(self, weights: Weights, config: ModelConfig) -> Tensor:
        """Of the heads of this rank."""
        first, last = weights.placement.ranks.span(config.num_heads)
        return weights.vector("sinks", (config.num_heads,), (0, first, last)).float()

    def __call__(self, x: Any, batch: LayerInputs) -> Any:
        """`x` and what comes back are [T, hidden]; heads are those of this rank."""
        kv = batch.kv.of_layer(self.layer)
        heads = self.qkv(x, batch.adapted)  # [T, (heads + 2 × kv_heads) × head_dim]: queries, keys, values
        query = self.ops.store_heads(heads, self.layout, batch.rotation, kv, batch.rows)  # [T, heads, head_dim]
        attended = self.ops.attention(query, self.layout, kv, batch.rows, self.window)  # [T, heads × head_dim]
        return self.output(attended, batch.adapted)  # [T, hidden]


def _head_norms(weights: Weights, head_dim: int) -> tuple[Any, Any]:
    """[head_dim] each."""
    return tuple(weights.at(name).vector("weight", (head_dim,)) for name in ("q_norm", "k_norm"))  # type: ignore[return-value]
