"""Rows for the sampler, made from parameters and histories as a step would make them."""

from collections.abc import Sequence

import numpy
import torch

from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.sampler import ParameterTable, SamplingRows

HISTORY = 64


def sampled_rows(
    vocab_size: int,
    params: Sequence[SamplingParams],
    *,
    histories: Sequence[Sequence[int]] | None = None,
    num_prompt: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    samples: Sequence[int] | None = None,
    slots: Sequence[int] | None = None,
) -> SamplingRows:
    """One row per params object; by default a history of one prompt token, slots in reverse order."""
    count = len(params)
    histories = histories or [[0]] * count
    num_prompt = num_prompt or [1] * count
    slots = slots or list(range(count))[::-1]
    device = TensorDevice(torch.device("cpu"))
    table = ParameterTable(max(slots) + 1, vocab_size, device)
    stored = torch.full((max(slots) + 1, max(HISTORY, *map(len, histories))), vocab_size - 1, dtype=torch.int32)
    for row, slot in enumerate(slots):
        stored[slot, : len(histories[row])] = torch.tensor(histories[row], dtype=torch.int32)
        table.enter(slot, params[row], num_prompt[row], (seeds or range(count))[row], (samples or [0] * count)[row])
    lengths = numpy.array([len(history) for history in histories], numpy.int64)
    return SamplingRows(table, numpy.array(slots, numpy.int64), lengths, numpy.array(num_prompt, numpy.int64), stored)


def logits_like(count: int, vocab_size: int, seed: int = 0, *, ties: bool = False) -> torch.Tensor:
    """Random logits; with `ties` many of them are equal, and zeros of both signs stand among them."""
    logits = torch.randn(count, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3
    return (logits * 2).round() / 2 if ties else logits
