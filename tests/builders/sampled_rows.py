"""Rows for the sampler, made from parameters and histories as a step would make them, and the sampler in one form.

Tests give and get tensors, whatever the form holds; on a CPU these share their memory with arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import Tensor

from penstock.kernels.arrays import DeviceArray
from penstock.kernels.sampling import Sampling
from penstock.kernels.torch.arrays import array_of, tensor_of
from penstock.kernels.torch.sampling import TensorSampling
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.device import Device, HostDevice
from penstock.worker.sampler import Mask, ParameterTable, SamplerOutput, SamplingRows, adjustments
from penstock.worker.sampler import sample as sample_rows

HISTORY = 64


@dataclass(frozen=True)
class Form:
    """Operations on logits, and the device where their arrays lie."""

    ops: Sampling
    device: Device

    def given(self, tensor: Tensor) -> DeviceArray:
        return array_of(tensor) if isinstance(self.device, HostDevice) else tensor


form = Form(TensorSampling(), TensorDevice(torch.device("cpu")))  # the fixture `sampling_form` changes it


def sample(logits: Tensor, rows: SamplingRows, mask: Mask | None = None) -> SamplerOutput:
    return SamplerOutput(_tensor(sample_rows(form.ops, form.given(logits), rows, mask).chosen))


def adjust(logits: Tensor, rows: SamplingRows) -> None:
    adjustments.adjust(form.ops, form.given(logits), rows)


def allow(logits: Tensor, rows: SamplingRows, mask: Mask) -> None:
    adjustments.allow(form.ops, form.given(logits), rows, mask)


def choose(logits: Tensor, rows: SamplingRows) -> Tensor:
    given = form.given(logits)
    return _tensor(form.ops.choose(given, form.ops.scan(given), rows.draws()))


def scan(logits: Tensor) -> tuple[Tensor, ...]:
    """The largest logits, their lowest ids, whether all are finite, and the blocks' maxima."""
    return tuple(map(_tensor, form.ops.scan(form.given(logits))))


def most_likely(values: Tensor, count: int) -> tuple[Tensor, ...]:
    return tuple(map(_tensor, form.ops.most_likely(form.given(values), count)))


def _tensor(found: Any) -> Tensor:
    return tensor_of(found) if isinstance(found, numpy.ndarray) else found


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
    table = ParameterTable(max(slots) + 1, vocab_size, form.device)
    stored = torch.full((max(slots) + 1, max(HISTORY, *map(len, histories))), vocab_size - 1, dtype=torch.int32)
    for row, slot in enumerate(slots):
        stored[slot, : len(histories[row])] = torch.tensor(histories[row], dtype=torch.int32)
        table.enter(slot, params[row], num_prompt[row], (seeds or range(count))[row], (samples or [0] * count)[row])
    lengths = numpy.array([len(history) for history in histories], numpy.int64)
    columns = (numpy.array(slots, numpy.int64), lengths, numpy.array(num_prompt, numpy.int64))
    return SamplingRows(table, *columns, form.given(stored))


def logits_like(count: int, vocab_size: int, seed: int = 0, *, ties: bool = False) -> torch.Tensor:
    """Random logits; with `ties` many of them are equal, and zeros of both signs stand among them."""
    logits = torch.randn(count, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3
    return (logits * 2).round() / 2 if ties else logits
