"""The native versions of masks and penalties, called one by one with arguments made for the call."""

import ctypes
from ctypes import c_int64, c_void_p

from torch import Tensor

from ..reference.adjust import Histories, apply_mask, penalize_generated, penalize_repetition
from .library import load
from .sampling import is_available


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
    history, held = _history(logits, histories), penalty.contiguous()
    load().call("penstock_penalize_repetition", PenalizeRepetitionArguments(history, held.data_ptr()))
    return logits


@penalize_generated.implement("cpu", is_available)
def native_penalize_generated(
    logits: Tensor, histories: Histories, starts: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    held = [column.contiguous() for column in (starts, frequency, presence)]
    pointers = (column.data_ptr() for column in held)
    load().call("penstock_penalize_generated", PenalizeGeneratedArguments(_history(logits, histories), *pointers))
    return logits


@apply_mask.implement("cpu", is_available)
def native_apply_mask(logits: Tensor, rows: Tensor, bits: Tensor) -> Tensor:
    held = bits.contiguous()
    pointers = rows.data_ptr(), held.data_ptr()
    load().call("penstock_apply_mask", ApplyMaskArguments(logits.data_ptr(), logits.shape[1], len(rows), *pointers))
    return logits


def _history(logits: Tensor, histories: Histories) -> History:
    rows, tokens, slots, lengths, _ = histories
    first = logits.data_ptr(), logits.shape[1], len(rows), rows.data_ptr()
    return History(*first, tokens.data_ptr(), tokens.stride(0), slots.data_ptr(), lengths.data_ptr())
