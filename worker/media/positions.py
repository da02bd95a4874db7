"""The position embeddings of patches: angles for height and width, and a learned table resampled to a grid."""

from collections.abc import Callable
from typing import NamedTuple

import numpy

from ...kernels.arrays import FLOAT32, Array
from ...kernels.elementary import cosines_and_sines
from ..description.families.vision import Places
from ..description.vision_config import VisionConfig
from ..layers.rope import plain_frequencies
from .arrangement import Arrangement


class PatchRotation(NamedTuple):
    """Cosines and sines of patches, float32 [P, padded head_dim] each; the sines have the rotation's sign."""

    cos: Array
    sin: Array


class TableEntries(NamedTuple):
    """The entries of a table that make up each patch's embedding."""

    indices: Array  # int64 [P, entries]
    shares: Array  # float32 [P, entries]: what each entry is multiplied by


def rotation_of(arrangement: Arrangement, config: VisionConfig) -> PatchRotation | None:
    """Half of a head's angles are for heights, half for widths."""
    if not config.family.rotates:
        return None
    half = config.head_dim // 2
    frequencies = plain_frequencies(config.rope_theta, half)
    coordinates = numpy.stack((arrangement.heights, arrangement.widths), 1).astype(FLOAT32)  # [P, 2]
    angles = (coordinates[:, :, None] * frequencies).reshape(len(coordinates), -1)  # [P, head_dim / 2]
    cos = numpy.ones((len(angles), config.padded_head_dim), FLOAT32)
    sin = numpy.zeros_like(cos)
    cosines, sin[:, half : 2 * half] = cosines_and_sines(angles.astype(numpy.float64))
    cos[:, :half] = cos[:, half : 2 * half] = cosines
    sin[:, :half] = -sin[:, half : 2 * half]
    return PatchRotation(cos, sin)


def resampled(side: int, arrangement: Arrangement) -> TableEntries:
    """Interpolate the table [side²] at the patches, mapping the frame's corners to the table's."""
    down, across = arrangement.grid
    rows, row_shares = _neighbours(arrangement.heights, down, side)
    columns, column_shares = _neighbours(arrangement.widths, across, side)
    indices = rows[:, :, None] * side + columns[:, None, :]  # [P, 2, 2]
    shares = row_shares[:, :, None] * column_shares[:, None, :]
    return TableEntries(indices.reshape(-1, 4), shares.reshape(-1, 4))


def bucketed(side: int, arrangement: Arrangement) -> TableEntries:
    """The entry that contains the patch's corner, once the frame is scaled to the table."""
    down, across = (_buckets(count, side) for count in arrangement.grid)
    return _whole(down[arrangement.heights] * side + across[arrangement.widths])


def _buckets(count: int, side: int) -> Array:
    """[count]. Computed in float32 like transformers: models were trained with its rounding errors."""
    bounds = numpy.arange(1 / side, 1.0, 1 / side).astype(FLOAT32)
    begins = numpy.arange(count, dtype=FLOAT32) * (FLOAT32.type(1) / FLOAT32.type(count))
    return numpy.searchsorted(bounds, numpy.minimum(begins, FLOAT32.type(1 - 1e-6)), side="right")


def fixed(side: int, arrangement: Arrangement) -> TableEntries:
    """One entry per patch of a frame."""
    return _whole(arrangement.heights * side + arrangement.widths)


def _whole(indices: Array) -> TableEntries:
    return TableEntries(indices[:, None], numpy.ones((len(indices), 1), FLOAT32))


PLACES: dict[Places, Callable[[int, Arrangement], TableEntries]] = {
    "resampled": resampled,
    "bucketed": bucketed,
    "fixed": fixed,
}


def _neighbours(indices: Array, count: int, side: int) -> tuple[Array, Array]:
    """For each index below `count`, the two nearest of `side`, [P, 2], and their shares."""
    exact = indices.astype(FLOAT32) * (side - 1) / max(count - 1, 1)
    first = exact.astype(numpy.int64)
    share = exact - first.astype(FLOAT32)
    return numpy.stack((first, numpy.minimum(first + 1, side - 1)), 1), numpy.stack((1 - share, share), 1)
