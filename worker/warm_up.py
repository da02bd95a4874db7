"""A GPU's first steps, before any request: kernels are compiled and tuned, and what a step takes of memory is measured.

The largest step there may be, and steps that only decode, of sizes that double; their rows all write to one block, and
what they compute is of no interest. Knows of requests only how many there may be.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch

from ..kernels import triton
from ..protocol.messages import mask_bytes
from ..protocol.sampling import SamplingParams
from .kv_cache import AnyKVCache
from .memory import Size
from .models.graphed import GraphedDecoder
from .models.load import Model
from .sampler import Mask, SamplingRows
from .slots import SlotTable, StepRows
from .step_batch import batch_of

_LOG = logging.getLogger(__name__)
_FLOAT = 4
_ANYTHING = SamplingParams(temperature=1, top_p=0.9)  # that needs every kernel which chooses tokens
_LOGITS_AT_ONCE = 4  # the model's, their copies for log-probabilities, weights and order while a token is chosen


def warm_up(model: Model, size: Size, kv: AnyKVCache, max_model_len: int, device: torch.device, kept: Path) -> int:
    """Bytes that a step takes beyond what stays; `kv` has one block, `kept` is the folder for what tuning finds."""
    start = time.perf_counter()
    table = SlotTable(
        size.num_slots, max_model_len, 1, kv.block_size, model.vocab_size, device, stretches=bool(model.stretches)
    )
    for slot in range(size.num_slots):
        table.parameters.enter(slot, _ANYTHING, 1, seed=slot, sample=0)
    if not triton.lack():
        _tune(model, size, kv, table, kept)
    tuned = time.perf_counter()
    peak = _peak(model, size, kv, table)
    seconds = time.perf_counter() - tuned
    _LOG.info("warm-up: kernels were ready in %.1f s, the largest steps took %.1f s", tuned - start, seconds)
    return peak + size.num_slots * max_model_len * _FLOAT


def _tune(model: Model, size: Size, kv: AnyKVCache, table: SlotTable, kept: Path) -> None:
    from ..kernels.triton.tuning import learning  # imports triton

    table.num_prompt[:] = table.max_model_len  # of prompts no step is captured
    with learning(kept):
        for rows in (*_sizes_of_decodes(size), _largest(size, table.max_model_len)):
            _computed(model, rows, kv, table)
        _computed(model, _decodes(1, 2), kv, table, _mask(1, model.vocab_size))


def _peak(model: Model, size: Size, kv: AnyKVCache, table: SlotTable) -> int:
    """What a step's tensors take at most, and what the largest graphs keep."""
    device = table.device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    logits = _computed(model, _largest(size, table.max_model_len), kv, table)
    shape = (size.num_slots, model.vocab_size)
    spare = [torch.empty(shape, dtype=torch.float32, device=device) for _ in range(_LOGITS_AT_ONCE)]
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del logits, spare
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved(device)
    table.num_prompt[:] = 1
    for mask in (None, _mask(size.num_slots, model.vocab_size)):  # the first of its kind is captured
        _computed(model, _decodes(size.num_slots, table.max_model_len), kv, table, mask)
    torch.cuda.empty_cache()
    captured = max(0, torch.cuda.memory_reserved(device) - held)
    if isinstance(model.runs, GraphedDecoder):
        model.runs.forget()
    torch.cuda.empty_cache()
    return peak + captured


def _computed(model: Model, rows: StepRows, kv: AnyKVCache, table: SlotTable, mask: Mask | None = None) -> torch.Tensor:
    """The logits, of which tokens were chosen too."""
    batch = batch_of(table, rows, kv)
    logits = model.logits(model.forward(batch), batch.logit_rows)
    sampling = SamplingRows(table.parameters, rows.slots, rows.ends, table.num_prompt[rows.slots], table.histories)
    model.sample(logits, sampling, mask)
    return logits


def _mask(num_rows: int, vocab_size: int) -> Mask:
    """That allows everything."""
    return Mask(numpy.arange(num_rows), numpy.full((num_rows, mask_bytes(vocab_size) // 4), -1, numpy.int32))


def _sizes_of_decodes(size: Size) -> Iterator[StepRows]:
    rows = 1
    while rows < size.num_slots:
        yield _decodes(rows, 2)
        rows *= 2
    yield _decodes(size.num_slots, 2)


def _decodes(num_rows: int, context: int) -> StepRows:
    return _rows([context - 1] * num_rows, [1] * num_rows)


def _largest(size: Size, max_model_len: int) -> StepRows:
    """Prompts as long as may be, until the budget of tokens is used up."""
    length = min(size.max_num_batched_tokens, max_model_len)
    lengths = [length] * min(size.num_slots, size.max_num_batched_tokens // length)
    return _rows([0] * len(lengths), lengths)


def _rows(starts: list[int], num_tokens: list[int]) -> StepRows:
    counts = numpy.array(num_tokens, numpy.int64)
    firsts = numpy.array(starts, numpy.int64)
    is_sampling = numpy.ones(len(counts), bool)
    return StepRows(numpy.arange(len(counts)), counts, firsts, firsts + counts, is_sampling, ~is_sampling)
