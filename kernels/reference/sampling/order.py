"""The best token of each row and its most likely ones, exactly: largest first, among equals the lowest id first."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...registry import op
from ...sampling import BLOCK, Scan


@op()
def scan(logits: Tensor) -> Scan:
    maxima = in_chunks(logits, BLOCK, -math.inf).amax(-1)
    return Scan(logits.amax(-1), logits.argmax(-1), logits.isfinite().all(-1), maxima)


@op()
def most_likely(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row and their ids, in order: the beginning of a stable sort."""
    ids = torch.sort(values, dim=-1, descending=True, stable=True).indices[:, :count]
    return values.gather(-1, ids), ids


def in_chunks(values: Tensor, chunk: int, filler: float) -> Tensor:
    """[rows, chunks, chunk]; copied only where the width is no multiple, to be filled up."""
    if missing := -values.shape[-1] % chunk:
        values = pad(values, (0, missing), value=filler)
    return values.view(len(values), -1, chunk)
