"""The native versions of the operations on logits, for tensors that the caller holds.

Unlike the kernels of a recorded step these are called one by one, with arguments made for the call. No logits are
copied or overwritten.
"""

import ctypes
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor

from ..reference.choice import Draws, choose
from ..reference.logprobs import RankedLogprobs, ranked_logprobs
from ..reference.order import BLOCK, Scan, most_likely, scan
from .library import LibraryError, load

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


class ChooseArguments(ctypes.Structure):
    """Columns of one value per row, and memory to work in."""

    _fields_ = [
        ("logits", Logits),  # with their maxima
        ("largest", c_void_p),
        ("best", c_void_p),
        ("kinds", c_void_p),
        ("temperatures", c_void_p),
        ("top_ps", c_void_p),
        ("min_ps", c_void_p),
        ("top_ks", c_void_p),
        ("seeds", c_void_p),
        ("samples", c_void_p),
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
    pointers = (column.data_ptr() for column in found[:3])
    load().call("penstock_scan", ScanArguments(_logits(logits, found.maxima), *pointers))
    return found


@choose.implement("cpu", is_available)
def native_choose(logits: Tensor, scanned: Scan, draws: Draws) -> Tensor:
    logits = _plain(logits)
    token_ids = torch.empty(len(logits), dtype=torch.int64)
    sums = torch.empty(scanned.maxima.shape, dtype=torch.float64)
    arguments = ChooseArguments(
        _logits(logits, scanned.maxima),
        scanned.largest.data_ptr(),
        scanned.best.data_ptr(),
        draws.kinds.ctypes.data,
        *_columns(draws.reals),
        *_columns(draws.wholes),
        draws.positions.data_ptr(),
        sums.data_ptr(),
        token_ids.data_ptr(),
    )
    load().call("penstock_choose", arguments)
    return token_ids


@most_likely.implement("cpu", is_available)
def native_most_likely(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count > _MOST_IN_ORDER:
        return most_likely.in_torch(values, count)
    values = _plain(values)
    ordered = torch.empty(len(values), count)
    ids = torch.empty(len(values), count, dtype=torch.int64)
    maxima = _maxima(values)
    arguments = MostLikelyArguments(_logits(values, maxima), count, ordered.data_ptr(), ids.data_ptr())
    load().call("penstock_most_likely", arguments)
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
    arguments = RankedLogprobsArguments(
        _logits(logits, maxima),
        chosen.data_ptr(),
        num_top,
        sums.data_ptr(),
        ahead.data_ptr(),
        *(column.data_ptr() for column in found),
    )
    load().call("penstock_ranked_logprobs", arguments)
    return found


def _plain(logits: Tensor) -> Tensor:
    """As the kernels read them; nearly always they are so already."""
    return logits.to(torch.float32).contiguous()


def _logits(values: Tensor, maxima: Tensor) -> Logits:
    return Logits(values.data_ptr(), len(values), values.shape[1], maxima.data_ptr())


def _maxima(logits: Tensor) -> Tensor:
    return torch.empty(len(logits), -(-logits.shape[1] // BLOCK))


def _columns(columns: Tensor) -> list[int]:
    """Their addresses."""
    first, stride = columns.data_ptr(), columns.stride(0) * columns.element_size()
    return [first + place * stride for place in range(len(columns))]
