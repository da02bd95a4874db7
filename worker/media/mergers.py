"""Turns patches into rows of the text part's stream: one class for each method, by its name in `MERGERS`.

A merger alternates joins, which only move values, and stages, which compute: a stage reads the previous stage's output
through a join. Patches that become one row are already adjacent.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy

from ...kernels.arrays import DeviceArray
from ..description.families.vision import Merging
from ..description.parts.norms import RMS, NormForm
from ..description.vision_config import VisionConfig
from ..layers.norm import Norm
from ..weights.weights import Rows, Weights
from .projections import projection, transposed_projection

_LESS_ONE = NormForm(is_stored_less_one=True)


class MergeStage(NamedTuple):
    join: Callable[[DeviceArray, int], DeviceArray]  # concatenates so many frames' values in each row
    width: int  # of its output
    compute: Callable[[Rows], Rows]


class Merger(Protocol):
    """Makes a part of the rows."""

    @property
    def stages(self) -> Sequence[MergeStage]: ...

    @property
    def products(self) -> int:
        """Multiplications per row."""

    def of_patches(self, stream: Rows) -> Rows:
        """The first stage's output per patch, [P, hidden], which the first join reads."""


def side_by_side(x: DeviceArray, _: int, count: int) -> DeviceArray:
    """[n / count, count × width]"""
    return x.reshape(len(x) // count, -1)


def averaged(x: DeviceArray, _: int, count: int) -> DeviceArray:
    """[n / count, width]"""
    return x.reshape(-1, count, x.shape[1]).mean(1)


def paired(x: DeviceArray, num_frames: int) -> DeviceArray:
    """[rows, 2 × width]: each frame joined with the next one, a single one with itself."""
    pairs = x[numpy.arange(len(x)).repeat(2)] if num_frames == 1 else x
    return pairs.reshape(len(pairs) // 2, -1)


class MLPMerger:
    """A norm of each patch, or of the row, then Linear, gelu, Linear."""

    def __init__(self, weights: Weights, config: VisionConfig, norms_rows: bool = False) -> None:
        family, neighbours = config.family, config.merge**2
        joined = config.hidden_size * neighbours
        self.ops = weights.ops
        self.norms_rows = norms_rows
        names, size = family.merger, joined if norms_rows else config.hidden_size
        self.norm = Norm(weights.at(names.norm), size, config.epsilon, family.norm)
        self.up = projection(weights, names.up, (joined, joined))
        self.down = projection(weights, names.down, (config.out_size, joined))
        self.stages = [MergeStage(partial(side_by_side, count=neighbours), joined, self._of_rows)]
        self.products = joined * (joined + config.out_size)

    def of_patches(self, stream: Rows) -> Rows:
        return stream if self.norms_rows else self.norm(stream)

    def _of_rows(self, joined: Rows) -> Rows:
        normed = self.norm(joined) if self.norms_rows else joined
        return self.down(self.ops.apply_activation(self.up(normed), "gelu"))  # [rows, out]


class MeanMerger:
    """A norm of each patch, the mean of a row's patches, a norm of that, and a projection stored as [in, out]."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        family, hidden, inner = config.family, config.hidden_size, weights.at("projector")
        self.last_norm = Norm(weights.at("post_layernorm"), hidden, config.epsilon, family.norm)
        norm = Norm(inner.at("mm_soft_emb_norm"), hidden, config.epsilon, _LESS_ONE)
        project = transposed_projection(inner, "mm_input_projection_weight", (config.out_size, hidden))
        mean = partial(averaged, count=config.merge**2)
        self.stages = [MergeStage(mean, hidden, lambda rows: project(norm(rows)))]
        self.products = hidden * config.out_size

    def of_patches(self, stream: Rows) -> Rows:
        return self.last_norm(stream)


class ProjectionMerger:
    """A norm of each patch, and one projection of a row's patches."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        hidden, neighbours = config.hidden_size, config.merge**2
        joined = hidden * neighbours
        self.last_norm = Norm(weights.at("post_layernorm"), hidden, config.epsilon, config.family.norm)
        project = projection(weights, "projector.modality_projection.proj", (config.out_size, joined))
        self.stages = [MergeStage(partial(side_by_side, count=neighbours), joined, project)]
        self.products = joined * config.out_size

    def of_patches(self, stream: Rows) -> Rows:
        return self.last_norm(stream)


class PairMerger:
    """An MLP of a row's concatenated patches, an MLP of two frames' results, and a projection with a norm after it."""

    def __init__(self, weights: Weights, config: VisionConfig) -> None:
        family, inner, joined = config.family, weights.at("projector"), config.hidden_size * config.merge**2
        self.last_norm = Norm(weights.at("ln"), config.hidden_size, config.epsilon, family.norm)
        spatial = _NormedMLP(inner.at("spatial_linear"), joined, joined, config)
        temporal = _NormedMLP(inner.at("temporal_linear"), 2 * joined, joined, config)
        project = projection(inner, "mlp", (config.out_size, joined))
        norm = Norm(inner.at("after_norm"), config.out_size, config.out_epsilon, RMS)
        self.stages = [
            MergeStage(partial(side_by_side, count=config.merge**2), joined, spatial),
            MergeStage(paired, 2 * joined, lambda rows: norm(project(temporal(rows)))),
        ]
        self.products = joined * (2 * 2 * joined + 3 * joined + config.out_size)

    def of_patches(self, stream: Rows) -> Rows:
        return self.last_norm(stream)


class _NormedMLP:
    """Linear, gelu, Linear, norm."""

    def __init__(self, weights: Weights, width: int, out: int, config: VisionConfig) -> None:
        self.ops = weights.ops
        self.up = projection(weights, "0", (out, width))
        self.down = projection(weights, "2", (out, out))
        self.norm = Norm(weights.at(3), out, config.epsilon, config.family.norm)

    def __call__(self, x: Rows) -> Rows:
        return self.norm(self.down(self.ops.apply_activation(self.up(x), "gelu")))


MERGERS: dict[Merging, Callable[[Weights, VisionConfig], Merger]] = {
    "mlp": lambda weights, config: MLPMerger(weights.at("merger"), config),
    "mean": MeanMerger,
    "projection": ProjectionMerger,
    "pairs": PairMerger,
}
