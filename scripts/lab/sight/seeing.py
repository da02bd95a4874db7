"""Teaches the eyes before there are words: for each patch, its contents, whether a middle is there, and its position.

An answer says little about a picture; what lies in each of its patches says much, and needs no text part. The layer
that is held to it reads the rows that the text part gets, and is thrown away after the training.
"""

import string
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .canvas import COLOURS, Mark
from .shapes import SHAPES
from .sizes import MERGE

LABELS = ("", *SHAPES, "bar", *string.ascii_letters, *string.digits)
_COLOURS = ("", *COLOURS)
_NAMES = {name: number for number, name in enumerate(LABELS)}
_COLOUR_NUMBERS = {name: number for number, name in enumerate(_COLOURS)}
_PLACES = 12  # names of places along a side
_SIZES = (len(LABELS), len(_COLOURS), 2, _PLACES, _PLACES)
_NOTHING_WEIGHTS = (0.3, 0.3, 0.3, 1.0, 1.0)  # of each one's first number; most patches show nothing


def patch_targets(marks: Sequence[Mark], rows: int, columns: int) -> np.ndarray:
    """[patches, 5] in the patches' order: label, colour, whether the middle of something is there, and where it is."""
    y, x = (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns
    targets = np.zeros((rows, columns, len(_SIZES)), np.int16)
    targets[:, :, 3], targets[:, :, 4] = (y * _PLACES)[:, None], (x * _PLACES)[None]
    for mark in marks:
        across, down = (x > mark.left) & (x < mark.right), (y > mark.top) & (y < mark.bottom)
        targets[np.ix_(down, across, [0, 1])] = _NAMES[mark.label], _COLOUR_NUMBERS[mark.colour]
    for mark in marks:
        row, column = int((mark.top + mark.bottom) / 2 * rows), int((mark.left + mark.right) / 2 * columns)
        if 0 <= row < rows and 0 <= column < columns:
            targets[row, column, :3] = _NAMES[mark.label], _COLOUR_NUMBERS[mark.colour], 1
    merged = targets.reshape(rows // MERGE, MERGE, columns // MERGE, MERGE, -1).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(merged).reshape(rows * columns, -1)


class Seeing(nn.Module):
    """Predicts what patches show from the rows that the text part gets."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layer = nn.Linear(width, MERGE**2 * sum(_SIZES))

    def forward(self, rows: Tensor) -> list[Tensor]:
        seen = self.layer(self.norm(rows.float()))  # [rows, patches of a row * sizes]
        return seen.unflatten(-1, (MERGE**2, -1)).flatten(0, 1).split(_SIZES, -1)

    def loss(self, rows: Tensor, targets: Tensor) -> Tensor:
        parts = zip(self(rows), targets.long().unbind(-1), _NOTHING_WEIGHTS)
        return sum(functional.cross_entropy(logits, wanted, _weights(logits, first)) for logits, wanted, first in parts)

    @torch.no_grad()
    def rights(self, rows: Tensor, targets: Tensor) -> float:
        """The share of right labels among patches that show something."""
        labels = targets[:, 0].long()
        return (self(rows)[0].argmax(-1) == labels)[labels > 0].float().mean().item()


def _weights(logits: Tensor, first: float) -> Tensor:
    weights = torch.ones(logits.shape[-1])
    weights[0] = first
    return weights
