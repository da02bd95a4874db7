"""Warms a GPU up before the first request: compiles and tunes kernels, and measures the memory that steps take.

It runs the largest possible step, and prompts and answers of doubling sizes, so that every later step finds its kernels
compiled and its sizes tuned. All rows write to one block or state, and their results are discarded.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy

from ....kernels import triton
from ....kernels.arrays import FLOAT32, DeviceArray
from ....kernels.states import NO_STATE, Segments
from ....protocol.adapter_messages import NO_ADAPTER
from ....protocol.parameters.sampling import SamplingParams
from ....protocol.wire import mask_bytes
from ...backends.torch.card import peak_bytes
from ...backends.torch.device import torch_device
from ...backends.triton.graph_capture import GraphCapture
from ...device import Device
from ...kv.model_memory import ModelMemory
from ...ranks.parallel import Parallel
from ...sampler import Mask, SamplingRows
from ...steps.batch import Batch
from ...steps.logprobs import LogprobOperations, piece_length
from ...steps.slots import SlotTable
from ...steps.state_tables import StateTables
from ...steps.step_rows import StepRows
from ..memory.profile import Size
from ..model import Model

_LOG = logging.getLogger(__name__)
_FLOAT = 4
_ANYTHING = SamplingParams(temperature=1, top_p=0.9)  # needs all kernels that choose tokens
_MORE = SamplingParams(temperature=1, top_p=0.9, repetition_penalty=1.1, frequency_penalty=0.1)  # and all that adjust
_NUM_TOP = (0, 5, 20)  # numbers of most likely tokens that have their own kernels
_LOGITS_AT_ONCE = 4  # copies: the model's, for log-probabilities, and weights and order while choosing a token


class StepMemory(NamedTuple):
    """Bytes that steps take in addition to weights and KV blocks."""

    step: int  # of the largest step
    graphs: int  # of all captured graphs


def warm_up(
    model: Model,
    size: Size,
    memory: ModelMemory,
    max_model_len: int,
    device: Device,
    kept: Path,
    ranks: Parallel | None = None,
) -> StepMemory:
    """Return the memory that steps will take; `memory` has one block, `kept` is the folder for tuning results."""
    start = time.perf_counter()
    table = SlotTable(
        size.num_slots,
        max_model_len,
        [1] * len(memory.groups),
        memory.block_size,
        model.vocab_size,
        device,
        shifts_rotations=model.shifts_rotations,
        groups=model.groups(max_model_len),
        media_tokens=model.config.media_tokens,
    )
    for slot in range(size.num_slots):
        table.parameters.enter(slot, _ANYTHING, 1, seed=slot, sample=0)
    if not triton.lack():
        _tune(model, size, memory, table, kept)
    tuned = time.perf_counter()
    peak = _peak(model, size, memory, table)
    table.num_prompt[:] = 1
    capture = GraphCapture(model.forward_pass, model.sample, table, memory, ranks or Parallel())
    graphs = capture.estimate_bytes()
    seconds = time.perf_counter() - tuned
    _LOG.info("warm-up: kernels were ready in %.1f s, the largest steps took %.1f s", tuned - start, seconds)
    return StepMemory(peak + size.num_slots * max_model_len * _FLOAT, graphs)


def _tune(model: Model, size: Size, memory: ModelMemory, table: SlotTable, kept: Path) -> None:
    from ....kernels.triton.launch.tuning import learning  # imports triton

    table.num_prompt[:] = table.max_model_len  # only steps of answers are captured
    largest = _largest(size, table.max_model_len)
    with learning(kept):
        for rows in (*_sizes_of_decodes(size), largest):
            _computed(model, rows, memory, table)
        for rows in _sizes_of_prompts(int(largest.num_tokens.max())):
            _computed_with_all_logits(model, rows, memory, table)
        _ask_for_more(model, memory, table)
        if (vision := model.config.vision) is not None and vision.family.has_whole_spans:
            _see_ahead(model, memory, table)
        if model.adapters is not None:
            table.adapters[0] = 0  # an adapter that isn't loaded
            _computed(model, _decodes(1, 2), memory, table)
            table.adapters[0] = NO_ADAPTER


def _ask_for_more(model: Model, memory: ModelMemory, table: SlotTable) -> None:
    """Run rarely used kernels: masks, penalties, log-probabilities."""
    table.parameters.enter(0, _MORE, 1, seed=0, sample=0)
    logits = _computed(model, _decodes(1, 2), memory, table, _mask(1, model.vocab_size))
    logprobs = LogprobOperations(model.backend.sampling, table.device)
    for num_top in _NUM_TOP:
        logprobs.of_tokens(logits, table.device.zeros((1,), numpy.int64), num_top)
    table.parameters.enter(0, _ANYTHING, 1, seed=0, sample=0)
    _computed(model, _decodes(1, 2), memory, table, _mask(1, model.vocab_size))


def _see_ahead(model: Model, memory: ModelMemory, table: SlotTable) -> None:
    """Run the kernels for prompts in which the rows of a picture see one another."""
    batch = _batch(model, _rows([0], [2]), memory, table)
    batch.seen_ends = numpy.full(2, 2)
    model.forward_pass.forward(batch)


def _peak(model: Model, size: Size, memory: ModelMemory, table: SlotTable) -> int:
    """The peak memory of a step's tensors."""
    shape = (size.num_slots, model.vocab_size)

    def compute() -> list[DeviceArray]:
        logits = _computed(model, _largest(size, table.max_model_len), memory, table)
        return [logits, *(table.device.zeros(shape, FLOAT32) for _ in range(_LOGITS_AT_ONCE))]

    return peak_bytes(torch_device(table.device), compute)


def _computed(
    model: Model, rows: StepRows, memory: ModelMemory, table: SlotTable, mask: Mask | None = None
) -> DeviceArray:
    """Compute a step, sample its tokens, and return the logits."""
    batch = _batch(model, rows, memory, table)
    logits = model.forward_pass.logits(model.forward_pass.forward(batch), batch.logit_rows)
    sampling = SamplingRows(table.parameters, rows.slots, rows.ends, table.num_prompt[rows.slots], table.histories)
    model.sample(logits, sampling, mask)
    return logits


def _computed_with_all_logits(model: Model, rows: StepRows, memory: ModelMemory, table: SlotTable) -> None:
    """Compute logits of other prompt tokens too, as many as are done at once for prompt log-probabilities."""
    batch = _batch(model, rows, memory, table)
    hidden = model.forward_pass.forward(batch)
    count = min(len(hidden), piece_length(model.vocab_size))
    model.forward_pass.logits(hidden, table.device.put(numpy.arange(count)))


def _batch(model: Model, rows: StepRows, memory: ModelMemory, table: SlotTable) -> Batch:
    """Make a batch. In layers with states each row reads none and writes the same one."""
    count, starts = len(rows), numpy.concatenate(([0], numpy.cumsum(rows.num_tokens)))
    columns = (starts, numpy.full(count, NO_STATE), numpy.zeros(count), numpy.arange(count + 1))
    segments = Segments.of((column.astype(numpy.int32) for column in columns), int(rows.num_tokens.max()))
    rows.segments = tuple(segments if isinstance(group, StateTables) else None for group in table.groups)
    return model.backend.batch(table, rows, memory)


def _mask(num_rows: int, vocab_size: int) -> Mask:
    """A mask that allows every token."""
    return Mask(numpy.arange(num_rows), numpy.full((num_rows, mask_bytes(vocab_size) // 4), -1, numpy.int32))


def _sizes_of_decodes(size: Size) -> Iterator[StepRows]:
    rows = 1
    while rows < size.num_slots:
        yield _decodes(rows, 2)
        rows *= 2
    yield _decodes(size.num_slots, 2)


def _sizes_of_prompts(longest: int) -> Iterator[StepRows]:
    """Sizes of steps that contain only prompts."""
    length = 2
    while length < longest:
        yield _rows([0], [length])
        length *= 2


def _decodes(num_rows: int, context: int) -> StepRows:
    return _rows([context - 1] * num_rows, [1] * num_rows)


def _largest(size: Size, max_model_len: int) -> StepRows:
    """Prompts of the maximum length, until the token budget is used up."""
    length = min(size.max_num_batched_tokens, max_model_len)
    lengths = [length] * min(size.num_slots, size.max_num_batched_tokens // length)
    rest = size.max_num_batched_tokens - sum(lengths)
    if rest and len(lengths) < size.num_slots:
        lengths.append(min(rest, length))
    return _rows([0] * len(lengths), lengths)


def _rows(starts: list[int], num_tokens: list[int]) -> StepRows:
    counts = numpy.array(num_tokens, numpy.int64)
    firsts = numpy.array(starts, numpy.int64)
    is_sampling = numpy.ones(len(counts), bool)
    return StepRows(numpy.arange(len(counts)), counts, firsts, firsts + counts, is_sampling, ~is_sampling, firsts * 0)
