"""A vision transformer as a config describes it: patches, layers that attend to whole frames or windows, and mergers.

It is called in stages (`embed`, each `layer`, each merger), because a medium's layers may be computed in several steps.
A merger makes a part of the rows: that in the place of the embeddings behind the last layer, those for DeepStack behind
earlier ones.
"""

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import HeadLayout
from ...kernels.float8_part import WeightPart
from ..layers.linear import Linear
from ..layers.mlp import MLP
from ..layers.norm import Norm
from ..models.part_names import VISION_BLOCKS
from ..models.vision_config import VisionConfig
from ..steps.batch import LayerStep
from ..weights.piece import CheckpointPiece
from ..weights.weights import Weights
from .arrangement import FRAMES, WINDOWS, Arrangement
from .positions import resampled


class EncoderInputs(Protocol):
    """What layers read beside the stream."""

    def of_layout(self, layout: int) -> LayerStep:
        """Of layers whose patches attend to one another so."""


class EncoderAttention:
    """Attention of all patches of a frame, or a window, to one another. Heads are filled up with zeros where kernels
    want them larger, which changes no number."""

    def __init__(self, weights: Weights, config: VisionConfig, layer: int) -> None:
        self.ops = weights.placement.ops
        self.layout = FRAMES if layer in config.full_layers else WINDOWS
        self.heads = HeadLayout(
            config.num_heads,
            config.num_heads,
            config.padded_head_dim,
            rotates_pairs=False,
            rotary_dim=config.head_dim,
            given_scale=config.head_dim**-0.5,
        )
        hidden = config.hidden_size
        self.qkv = _filled(weights, "qkv", config, (3 * hidden, hidden), outputs=3)
        self.output = _filled(weights, "proj", config, (hidden, hidden), outputs=0)

    def __call__(self, x: Any, inputs: EncoderInputs) -> Any:
        kv, rows, rotation = inputs.of_layout(self.layout)
        heads = self.qkv(x)  # [P, 3 × heads × head_dim]
        query = self.ops.store_heads(heads, self.heads, rotation, kv, rows)
        return self.output(self.ops.attention(query, self.heads, kv, rows, None))  # [P, hidden]


class EncoderLayer:
    """Attention and MLP, with a norm before each."""

    def __init__(self, weights: Weights, config: VisionConfig, layer: int) -> None:
        family, hidden = config.family, config.hidden_size
        self.before_attention = Norm(weights.at("norm1"), hidden, family.epsilon, family.norm)
        self.attention = EncoderAttention(weights.at("attn"), config, layer)
        self.before_mlp = Norm(weights.at("norm2"), hidden, family.epsilon, family.norm)
        *gate, up, down = family.mlp
        names, is_gated = (gate[0] if gate else "", up, down), bool(gate)
        self.mlp = MLP(weights.at("mlp"), hidden, config.intermediate_size, config.activation, is_gated, names)

    def __call__(self, stream: Any, inputs: EncoderInputs) -> Any:
        """Gives what is to be added to the stream, to which attention's update is added here."""
        update = self.attention(self.before_attention(stream), inputs)
        return self.mlp(self.before_mlp(stream, update))  # [P, hidden]


class Merger:
    """Neighbouring patches become one row: a norm of each patch, or of the row, then Linear, gelu, Linear."""

    def __init__(self, weights: Weights, config: VisionConfig, norms_rows: bool) -> None:
        family, joined = config.family, config.hidden_size * config.merge**2
        self.ops = weights.placement.ops
        self.norms_rows = norms_rows
        names, size = family.merger, joined if norms_rows else config.hidden_size
        self.norm = Norm(weights.at(names.norm), size, family.epsilon, family.norm)
        self.up = _linear(weights, names.up, (joined, joined))
        self.down = _linear(weights, names.down, (config.out_size, joined))

    def of_patches(self, stream: Any) -> Any:
        """[P, hidden], of which neighbours are then joined."""
        return stream if self.norms_rows else self.norm(stream)

    def of_rows(self, joined: Any) -> Any:
        """[rows, out] of [rows, merge² × hidden]."""
        normed = self.norm(joined) if self.norms_rows else joined
        return self.down(self.ops.apply_activation(self.up(normed), "gelu"))


class Encoder:
    """Patches, layers and mergers."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        self.config = config
        self.placement = weights.placement
        inner = weights.at("visual")
        patch = inner.at("patch_embed")
        sides = (3, config.num_frames, config.patch_size, config.patch_size)
        piece = CheckpointPiece("proj.weight", (config.hidden_size, *sides))
        self.patch = Linear(
            patch.packed_of("patches", piece, lambda matrix: _plain(matrix).flatten(1)),
            [patch.vector("proj.bias", (config.hidden_size,))] if patch.has("proj.bias") else [],
            patch,
        )
        self.table: Tensor | None = None
        if config.table_side is not None:
            self.table = inner.vector("pos_embed.weight", (config.table_side**2, config.hidden_size))
        self.layers = [EncoderLayer(inner.at(VISION_BLOCKS).at(n), config, n) for n in range(config.num_layers)]
        # By part of the rows; the first one's stands behind the last layer.
        self.mergers = [Merger(inner.at("merger"), config, norms_rows=False)]
        tapped = inner.at("deepstack_merger_list")
        self.mergers += [Merger(tapped.at(number), config, norms_rows=True) for number in range(len(config.taps))]

    def parts_behind(self, layer: int) -> list[int]:
        """The parts of the rows that are made behind this layer."""
        last = [0] if layer == self.config.num_layers - 1 else []
        return [part for part, tap in enumerate(self.config.taps, 1) if tap == layer] + last

    def positions(self, arrangement: Arrangement) -> Tensor | None:
        """[P, hidden], added to the embedded patches."""
        if self.table is None or self.config.table_side is None:
            return None
        return resampled(self.table, self.config.table_side, arrangement)

    def layer(self, number: int, stream: Any, inputs: EncoderInputs) -> Any:
        """The stream behind this layer, in the place of the one before it."""
        return self.placement.ops.add(stream, self.layers[number](stream, inputs))


def _linear(weights: Weights, name: str, shape: tuple[int, int]) -> Linear:
    biases = [weights.vector(f"{name}.bias", shape[:1])] if weights.has(f"{name}.bias") else []
    return Linear(weights.packed([CheckpointPiece(f"{name}.weight", shape)]), biases, weights)


def _filled(weights: Weights, name: str, config: VisionConfig, shape: tuple[int, int], outputs: int) -> Linear:
    """A projection to heads (to so many of each: queries, keys, values), or from heads, which are filled up."""
    by_head, filled = (config.num_heads, config.head_dim), (0, config.padded_head_dim - config.head_dim)

    def widened(matrix: WeightPart) -> WeightPart:
        plain = _plain(matrix)
        if not filled[1]:
            return plain
        if not outputs:
            return F.pad(plain.unflatten(1, by_head), filled).flatten(1)
        return F.pad(plain.unflatten(0, (outputs, *by_head)), (0, 0, *filled)).flatten(0, 2)

    biases = []
    if weights.has(f"{name}.bias"):
        bias = weights.vector(f"{name}.bias", shape[:1])
        biases = [F.pad(bias.unflatten(0, (outputs, *by_head)), filled).flatten() if outputs else bias]
    weight = weights.packed_of(f"heads of {config.padded_head_dim}", CheckpointPiece(f"{name}.weight", shape), widened)
    return Linear(weight, biases, weights)


def _plain(matrix: WeightPart) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.to(torch.device("cpu"), torch.float32)
