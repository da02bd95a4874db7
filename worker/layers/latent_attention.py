"""Latent attention (MLA): stores one latent and one rotated key per token, shared by the keys and values of all heads.

    latent, key = norm(kv_a(x)), rotated                  stored: rank + rope_dim numbers per token
    score       = (query · W_key) · latent + rotated query · key
    output      = W_value (Σ softmax(scale × score) × latent)

W_key and W_value are a head's share of the checkpoint's kv_b_proj. Keys and values by head are never made, not even for
prompts: they would round differently, and a token's bits must not depend on whether it was prefilled or decoded.
"""

from ...kernels import LatentLayout
from ...kernels.operations import StepField
from ..description.config import ModelConfig
from ..description.parts.latent import LatentConfig, latent_scale
from ..steps.batch import LayerInputs
from ..weights.piece import CheckpointPiece
from ..weights.weights import RowCut, Rows, Weight, Weights
from .linear import MergedLinear, RowLinear

# ε of the norms within attention, whatever the config gives for the others.
_EPSILON = 1e-6


class LatentAttention:
    """One layer's attention over the heads of this rank. Every rank computes the parts that heads share."""

    def __init__(self, weights: Weights, config: ModelConfig, latent: LatentConfig, layer: int) -> None:
        self.layer = layer
        self.ops = weights.ops
        self.query = _Query(weights, latent, config.hidden_size, config.num_heads)
        width = (latent.width, 0, latent.width)
        self.latents = MergedLinear(weights, ["kv_a_proj_with_mqa"], config.hidden_size, [width])
        first, last = weights.placement.ranks.span(config.num_heads)
        self.layout = LatentLayout(
            last - first,
            latent.rank,
            latent.nope_dim,
            latent.rope_dim,
            latent.value_dim,
            latent.rotates_pairs,
            latent_scale(latent, config.ropes.of(layer)),
            weights.at("kv_a_layernorm").vector("weight", (latent.rank,)),
            _EPSILON,
        )
        self.keys, self.values = _head_weights(weights, latent, config.num_heads)
        span = first * latent.value_dim, last * latent.value_dim
        self.output = RowLinear(weights.at("o_proj"), config.num_heads * latent.value_dim, config.hidden_size, span)

    def __call__(self, x: Rows, batch: LayerInputs) -> Rows:
        """Map `x`, [T, hidden], to the layer's update."""
        (kv, rows, rotation), layout = batch.of_layer(self.layer), self.layout
        latents = self.latents(x, batch.adapted)  # [T, rank + rope_dim]
        self.ops.store_latents(latents, layout, rotation, kv, rows)
        query = self.query(x, batch.adapted)  # [T, heads × (nope_dim + rope_dim)]
        query = self.ops.latent_query(query, self.keys, layout, rotation)  # [T, heads × (rank + rope_dim)]
        attended = self.ops.latent_attention(query, layout, kv, rows)  # [T, heads × rank]
        values = self.ops.latent_values(attended, self.values, layout)  # [T, heads × value_dim]
        return self.output(values, batch.adapted)  # [T, hidden]


class _Query:
    """The heads' queries, from one projection or from two with a norm between them."""

    def __init__(self, weights: Weights, latent: LatentConfig, hidden_size: int, num_heads: int) -> None:
        self.ops = weights.ops
        rank, own = latent.query_rank, weights.placement.ranks.span(num_heads)
        heads = (num_heads * latent.query_dim, own[0] * latent.query_dim, own[1] * latent.query_dim)
        if rank is None:
            self.down, self.up = None, MergedLinear(weights, ["q_proj"], hidden_size, [heads])
            return
        self.down = MergedLinear(weights, ["q_a_proj"], hidden_size, [(rank, 0, rank)])
        self.norm = weights.at("q_a_layernorm").vector("weight", (rank,))
        self.up = MergedLinear(weights, ["q_b_proj"], rank, [heads])

    def __call__(self, x: Rows, adapted: StepField | None) -> Rows:
        if self.down is not None:
            x = self.ops.add_rms_norm(self.down(x, adapted), None, self.norm, _EPSILON)  # [T, query_rank]
        return self.up(x, adapted)


def _head_weights(weights: Weights, latent: LatentConfig, num_heads: int) -> tuple[list[Weight], list[Weight]]:
    """Load W_key, [rank, nope_dim], and W_value, [value_dim, rank], of each head on this rank."""
    first, last = weights.placement.ranks.span(num_heads)

    def by_head(name: str, rows: int, columns: int) -> list[Weight]:
        piece = CheckpointPiece(f"{name}.weight", (num_heads * rows, columns), (0, first * rows, last * rows))
        return weights.packed_cuts(piece, [RowCut(head * rows, (head + 1) * rows) for head in range(last - first)])

    if weights.has("k_b_proj.weight"):  # stored separately, the keys' part transposed, as in GGUF files
        return by_head("k_b_proj", latent.rank, latent.nope_dim), by_head("v_b_proj", latent.value_dim, latent.rank)
    rows = latent.nope_dim + latent.value_dim
    piece = CheckpointPiece("kv_b_proj.weight", (num_heads * rows, latent.rank), (0, first * rows, last * rows))
    starts = [head * rows for head in range(last - first)]
    keys = [RowCut(start, start + latent.nope_dim, is_transposed=True) for start in starts]
    values = [RowCut(start + latent.nope_dim, start + rows) for start in starts]
    packed = weights.packed_cuts(piece, [*keys, *values])
    return packed[: len(keys)], packed[len(keys) :]
