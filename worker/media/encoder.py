"""A vision transformer built from a config's description: patches, layers that attend to frames or windows, mergers.

It is called in stages (`patch`, each layer's `project` and `attend`, each merger), for some patches at a time, because
a medium may be computed in several steps. A merger makes a part of the rows: after the last layer the part that
replaces embeddings, after earlier layers those for DeepStack.
"""

import math

from ...kernels import HeadLayout
from ...kernels.arrays import DeviceArray
from ..description.vision_config import VisionConfig
from ..layers.mlp import MLP
from ..layers.norm import Norm
from ..steps.batch import LayerStep
from ..weights.weights import Rows, Weights
from .arrangement import FRAMES, WINDOWS, Arrangement
from .mergers import MERGERS, Merger, MLPMerger
from .positions import PLACES, TableEntries
from .projections import from_heads, patch_projection, to_heads


class EncoderAttention:
    """Attention among all patches of a frame or window. Heads are padded with zeros to the size that kernels need,
    which changes no result."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        self.ops = weights.ops
        self.heads = HeadLayout(
            config.num_heads,
            config.num_heads,
            config.padded_head_dim,
            rotates_pairs=False,
            rotary_dim=config.head_dim,
            given_scale=1 / math.sqrt(config.head_dim),
        )
        names = config.family.names
        self.qkv = to_heads(weights, names.heads, config)
        self.output = from_heads(weights, names.output, config)

    def project(self, x: Rows, step: LayerStep) -> Rows:
        """Store the keys and values of these patches; return their queries."""
        heads = self.qkv(x)  # [P, 3 × heads × head_dim]
        return self.ops.store_heads(heads, self.heads, step.rotation, step.kv, step.rows)

    def attend(self, query: Rows, step: LayerStep) -> Rows:
        return self.output(self.ops.attention(query, self.heads, step.kv, step.rows, None))  # [P, hidden]


class EncoderLayer:
    """Attention and MLP, with a norm before each."""

    def __init__(self, weights: Weights, config: VisionConfig, layer: int) -> None:
        family, parts, hidden = config.family, config.family.names, config.hidden_size
        self.ops = weights.ops
        self.before_attention = Norm(weights.at(parts.before_attention), hidden, config.epsilon, family.norm)
        self.layout = FRAMES if layer in config.full_layers else WINDOWS
        self.attention = EncoderAttention(weights.at(parts.attention), config)
        self.before_mlp = Norm(weights.at(parts.before_mlp), hidden, config.epsilon, family.norm)
        *gate, up, down = family.mlp
        names, is_gated = (gate[0] if gate else "", up, down), bool(gate)
        self.mlp = MLP(weights.at("mlp"), hidden, config.intermediate_size, config.activation, is_gated, names)

    def project(self, stream: Rows, step: LayerStep) -> Rows:
        """Store the keys and values of these patches, before any patch that sees them attends; return their queries."""
        return self.attention.project(self.before_attention(stream), step)

    def attend(self, stream: Rows, query: Rows, step: LayerStep) -> Rows:
        """Replace the stream of these patches by that after the layer."""
        update = self.attention.attend(query, step)
        return self.ops.add(stream, self.mlp(self.before_mlp(stream, update)))  # [P, hidden]


class Encoder:
    """Patches, layers and mergers."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        self.config = config
        self.placement = weights.placement
        inner, names = weights.at("visual"), config.family.names
        self.patch = patch_projection(inner, names.patch, config)
        self.table: DeviceArray | None = None  # [side², hidden]
        if config.table_side is not None:
            self.table = inner.vector(f"{names.table}.weight", (config.table_side**2, config.hidden_size))
        self.layers = [EncoderLayer(inner.at(names.blocks).at(n), config, n) for n in range(config.num_layers)]
        # By part of the rows; the first part's merger follows the last layer.
        self.mergers: list[Merger] = [MERGERS[config.family.merging](inner, config)]
        tapped = inner.at("deepstack_merger_list")
        self.mergers += [MLPMerger(tapped.at(number), config, norms_rows=True) for number in range(len(config.taps))]

    def parts_behind(self, layer: int) -> list[int]:
        """The parts of the rows that are made after this layer."""
        last = [0] if layer == self.config.num_layers - 1 else []
        return [part for part, tap in enumerate(self.config.taps, 1) if tap == layer] + last

    def entries(self, arrangement: Arrangement) -> TableEntries | None:
        """The entries of the table whose sum is added to each embedded patch."""
        side, places = self.config.table_side, self.config.family.places
        return None if side is None or places is None else PLACES[places](side, arrangement)
