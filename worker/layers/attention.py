"""Self-attention: project, rotate, store the keys and values, attend to what is stored, project back.

Attends to the KV memory only, the step's own tokens included, so how a prompt was chunked changes nothing.
Knows nothing of what surrounds it in a layer.
"""

from torch import Tensor

from ..batch import Batch
from ..checkpoint import Weights
from ..models.config import ModelConfig
from .linear import QKVLinear, RowLinear
from .norm import HeadNorm


class Attention:
    """One layer's attention, on the heads of this rank."""

    def __init__(self, weights: Weights, config: ModelConfig, layer: int) -> None:
        self.layer = layer
        self.ops = weights.placement.ops
        self.rotate = self.ops.rotate_pairs if config.family.rotates_pairs else self.ops.rotate_halves
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5
        self.window = config.windows[layer]
        self.qkv = QKVLinear(
            weights,
            ["q_proj", "k_proj", "v_proj"],
            config.hidden_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
        )
        local = (self.qkv.local_heads, self.qkv.local_kv_heads)
        self.norm = HeadNorm(weights, *local, config.head_dim, config.rms_norm_eps) if config.family.qk_norm else None
        width = config.num_heads * config.head_dim
        self.output = RowLinear(weights.at("o_proj"), width, config.hidden_size, granularity=config.head_dim)

    def __call__(self, x: Tensor, batch: Batch) -> Tensor:
        num_queries, num_keys = self.qkv.local_heads, self.qkv.local_kv_heads
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        rotated, value = heads[:, : num_queries + num_keys], heads[:, num_queries + num_keys :]
        if self.norm is not None:
            rotated = self.norm(rotated)
        rotated = self.rotate(rotated, *batch.rotation)
        query, key = rotated[:, :num_queries], rotated[:, num_queries:]
        keys, values = batch.kv.keys[self.layer], batch.kv.values[self.layer]
        # Every row's keys and values are stored before any row attends: rows may share blocks within a step.
        self.ops.write_kv(key, value, keys, values, batch.rows)
        attended = self.ops.attention(query, keys, values, batch.rows, self.scale, self.window)
        return self.output(attended.view(x.shape[0], -1))
