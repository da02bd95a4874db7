"""The native versions of the operations on logits, for tensors that the caller holds.

Unlike the kernels of a recorded step these are called one by one, with arguments made for the call. No logits are
copied; masks and penalties alone overwrite them.
"""

from typing import Any

import torch
from torch import Tensor

from ..reference.sampling.adjust import Histories, apply_mask, penalize_generated, penalize_repetition
from ..reference.sampling.choice import Draws, choose
from ..reference.sampling.logprobs import RankedLogprobs, ranked_logprobs
from ..reference.sampling.order import BLOCK, Scan, most_likely, scan
from . import structs
from .library import LibraryError, Struct, load, struct_of

# Beyond so many the reference is as quick: numpy sorts whole rows with vector instructions.
_MOST_IN_ORDER = 16384


def is_available() -> bool:
    try:
        load()
    except LibraryError:
        return False
    return True


@scan.implement("cpu", is_available)
def native_scan(logits: Tensor) -> Scan:
    logits, rows = _plain(logits), len(logits)
    found = Scan(
        torch.empty(rows), torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.bool), _maxima(logits)
    )
    _call("scan", structs.Scan, _logits(logits, found.maxima), *found[:3])
    return found


@choose.implement("cpu", is_available)
def native_choose(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    logits = _plain(logits)
    token_ids = torch.empty(len(logits), dtype=torch.int64)
    sums = torch.empty(scanned.maxima.shape, dtype=torch.float64)
    columns = struct_of(structs.DrawColumns, kinds=draws.kinds.ctypes.data, **draws.columns._asdict())
    scanned_columns = _logits(logits, scanned.maxima), scanned.largest, scanned.best
    _call("choose", structs.Choose, *scanned_columns, columns, None, draws.positions, sums, token_ids)
    return token_ids


@most_likely.implement("cpu", is_available)
def native_most_likely(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count > _MOST_IN_ORDER:
        return most_likely.in_torch(values, count)
    values = _plain(values)
    ordered = torch.empty(len(values), count)
    ids = torch.empty(len(values), count, dtype=torch.int64)
    maxima = _maxima(values)
    _call("most_likely", structs.MostLikely, _logits(values, maxima), count, ordered, ids)
    return ordered, ids


@ranked_logprobs.implement("cpu", is_available)
def native_ranked_logprobs(logits: Tensor, chosen: Tensor, num_top: int) -> RankedLogprobs:
    logits, chosen = _plain(logits), chosen.to(torch.int64).contiguous()
    rows, maxima = len(logits), _maxima(logits)
    sums, ahead = torch.empty(maxima.shape, dtype=torch.float64), torch.empty(maxima.shape, dtype=torch.int32)
    found = RankedLogprobs(
        torch.empty(rows, 1 + num_top, dtype=torch.int32),
        torch.empty(rows, 1 + num_top),
        torch.empty(rows, dtype=torch.int32),
    )
    _call("ranked_logprobs", structs.RankedLogprobs, _logits(logits, maxima), chosen, num_top, sums, ahead, *found)
    return found


def _call(kernel: str, kind: type[Struct], *values: Any) -> None:
    load().call(f"penstock_{kernel}", struct_of(kind, *values))


def _plain(logits: Tensor) -> Tensor:
    """As the kernels read them; nearly always they are so already."""
    return logits.to(torch.float32).contiguous()


def _logits(values: Tensor, maxima: Tensor) -> structs.Logits:
    return struct_of(structs.Logits, values, *values.shape, maxima)


def _maxima(logits: Tensor) -> Tensor:
    return torch.empty(len(logits), -(-logits.shape[1] // BLOCK))


@penalize_repetition.implement("cpu", is_available)
def native_penalize_repetition(logits: Tensor, histories: Histories, penalty: Tensor) -> Tensor:
    _call("penalize_repetition", structs.PenalizeRepetition, _history(logits, histories), penalty.contiguous())
    return logits


@penalize_generated.implement("cpu", is_available)
def native_penalize_generated(
    logits: Tensor, histories: Histories, starts: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    columns = (column.contiguous() for column in (starts, frequency, presence))
    _call("penalize_generated", structs.PenalizeGenerated, _history(logits, histories), *columns)
    return logits


@apply_mask.implement("cpu", is_available)
def native_apply_mask(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    _call("apply_mask", structs.ApplyMask, logits, logits.shape[1], len(rows), rows, bits.contiguous())
    return logits


def _history(logits: Tensor, histories: Histories) -> structs.History:
    rows, tokens, slots, lengths, _ = histories
    width, stride = logits.shape[1], tokens.stride(0)
    return struct_of(structs.History, logits, width, len(rows), rows, tokens, stride, slots, lengths)
