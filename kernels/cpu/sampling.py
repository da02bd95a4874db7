"""The native versions of the operations on logits, for tensors that the caller holds.

Unlike the kernels of a recorded step these are called one by one, with arguments made for the call. No logits are
copied; masks and penalties alone overwrite them.
"""

import ctypes
from ctypes import c_int64, c_void_p
from typing import Any

import torch
from torch import Tensor

from ..reference.sampling.adjust import Histories, apply_mask, penalize_generated, penalize_repetition
from ..reference.sampling.choice import Columns, Draws, choose
from ..reference.sampling.logprobs import RankedLogprobs, ranked_logprobs
from ..reference.sampling.order import BLOCK, Scan, most_likely, scan
from .library import LibraryError, load, struct_of

# Beyond so many the reference is as quick: numpy sorts whole rows with vector instructions.
_MOST_IN_ORDER = 16384


class Logits(ctypes.Structure):
    _fields_ = [
        ("values", c_void_p),  # float32 [rows, width]
        ("num_rows", c_int64),
        ("width", c_int64),
        ("maxima", c_void_p),  # float32 [rows, blocks]
    ]


class ScanArguments(ctypes.Structure):
    _fields_ = [
        ("logits", Logits),
        ("largest", c_void_p),
        ("best", c_void_p),
        ("is_finite", c_void_p),
    ]


class DrawColumns(ctypes.Structure):
    """How tokens are chosen, and `Columns`."""

    _fields_ = [(name, c_void_p) for name in ("kinds", *Columns._fields)]


class ChooseArguments(ctypes.Structure):
    _fields_ = [
        ("logits", Logits),  # with their maxima
        ("largest", c_void_p),
        ("best", c_void_p),
        ("columns", DrawColumns),
        ("lines", c_void_p),  # int64 [rows], or null: each row's own
        ("positions", c_void_p),
        ("sums", c_void_p),  # float64 [rows, blocks]
        ("token_ids", c_void_p),
    ]


class MostLikelyArguments(ctypes.Structure):
    _fields_ = [
        ("logits", Logits),
        ("count", c_int64),
        ("values", c_void_p),
        ("ids", c_void_p),
    ]


class RankedLogprobsArguments(ctypes.Structure):
    _fields_ = [
        ("logits", Logits),
        ("chosen", c_void_p),
        ("num_top", c_int64),
        ("sums", c_void_p),  # float64 [rows, blocks]
        ("ahead", c_void_p),  # int32 [rows, blocks]
        ("token_ids", c_void_p),
        ("logprobs", c_void_p),
        ("ranks", c_void_p),
    ]


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
    _call("scan", ScanArguments, _logits(logits, found.maxima), *found[:3])
    return found


@choose.implement("cpu", is_available)
def native_choose(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    logits = _plain(logits)
    token_ids = torch.empty(len(logits), dtype=torch.int64)
    sums = torch.empty(scanned.maxima.shape, dtype=torch.float64)
    columns = struct_of(DrawColumns, draws.kinds.ctypes.data, *draws.columns)
    scanned_columns = _logits(logits, scanned.maxima), scanned.largest, scanned.best
    _call("choose", ChooseArguments, *scanned_columns, columns, None, draws.positions, sums, token_ids)
    return token_ids


@most_likely.implement("cpu", is_available)
def native_most_likely(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count > _MOST_IN_ORDER:
        return most_likely.in_torch(values, count)
    values = _plain(values)
    ordered = torch.empty(len(values), count)
    ids = torch.empty(len(values), count, dtype=torch.int64)
    maxima = _maxima(values)
    _call("most_likely", MostLikelyArguments, _logits(values, maxima), count, ordered, ids)
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
    _call("ranked_logprobs", RankedLogprobsArguments, _logits(logits, maxima), chosen, num_top, sums, ahead, *found)
    return found


def _call(kernel: str, kind: type[ctypes.Structure], *values: Any) -> None:
    load().call(f"penstock_{kernel}", struct_of(kind, *values))


def _plain(logits: Tensor) -> Tensor:
    """As the kernels read them; nearly always they are so already."""
    return logits.to(torch.float32).contiguous()


def _logits(values: Tensor, maxima: Tensor) -> Logits:
    return struct_of(Logits, values, *values.shape, maxima)


def _maxima(logits: Tensor) -> Tensor:
    return torch.empty(len(logits), -(-logits.shape[1] // BLOCK))


class History(ctypes.Structure):
    """Some rows of logits and the tokens before them."""

    _fields_ = [
        ("logits", c_void_p),  # float32 [rows, width]
        ("width", c_int64),
        ("count", c_int64),  # of the rows meant; all columns have as many
        ("rows", c_void_p),
        ("tokens", c_void_p),  # int32 [slots, stride]
        ("stride", c_int64),
        ("slots", c_void_p),
        ("lengths", c_void_p),
    ]


class ApplyMaskArguments(ctypes.Structure):
    _fields_ = [
        ("logits", c_void_p),
        ("width", c_int64),
        ("count", c_int64),
        ("rows", c_void_p),
        ("bits", c_void_p),
    ]


class PenalizeRepetitionArguments(ctypes.Structure):
    _fields_ = [
        ("history", History),
        ("penalties", c_void_p),
    ]


class PenalizeGeneratedArguments(ctypes.Structure):
    _fields_ = [
        ("history", History),
        ("starts", c_void_p),
        ("frequencies", c_void_p),
        ("presences", c_void_p),
    ]


@penalize_repetition.implement("cpu", is_available)
def native_penalize_repetition(logits: Tensor, histories: Histories, penalty: Tensor) -> Tensor:
    _call("penalize_repetition", PenalizeRepetitionArguments, _history(logits, histories), penalty.contiguous())
    return logits


@penalize_generated.implement("cpu", is_available)
def native_penalize_generated(
    logits: Tensor, histories: Histories, starts: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    columns = (column.contiguous() for column in (starts, frequency, presence))
    _call("penalize_generated", PenalizeGeneratedArguments, _history(logits, histories), *columns)
    return logits


@apply_mask.implement("cpu", is_available)
def native_apply_mask(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    _call("apply_mask", ApplyMaskArguments, logits, logits.shape[1], len(rows), rows, bits.contiguous())
    return logits


def _history(logits: Tensor, histories: Histories) -> History:
    rows, tokens, slots, lengths, _ = histories
    return struct_of(History, logits, logits.shape[1], len(rows), rows, tokens, tokens.stride(0), slots, lengths)
