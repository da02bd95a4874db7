"""Operations on logits: mask, penalize, find the best token, sample one, give log-probabilities.

`Sampling` is their interface: `cpu/sampling.py` implements it on numpy's arrays, `torch/sampling.py` on tensors. The
formulas are in `reference/sampling/`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy

from .arrays import Array, DeviceArray

BLOCK = 128  # tokens whose maxima and sums are made together; divides most vocabularies

# How a row chooses; the native kernel numbers them likewise.
BEST = 0
OF_TOP_K = 1  # among the first k in order; the other rules then speak of what is left
OF_TOP_P = 2  # among the first in order that hold a share of the whole
OF_ALL = 3  # in the order of token ids

# What can be wrong with a row; 0 is nothing.
NOT_FINITE = 1  # a logit is NaN or +infinity
NOTHING_LEFT = 2  # every logit is -infinity
NO_ROW = -1  # the slot of a row that is not there, and the line of one without a mask


class Scan(NamedTuple):
    """The findings of one pass over logits."""

    largest: DeviceArray  # [rows]
    best: DeviceArray  # [rows] int64: the lowest id among the largest
    is_finite: DeviceArray  # [rows] bool: every logit is a finite number
    maxima: DeviceArray  # [rows, blocks]: the largest of every BLOCK neighbours


class Columns(NamedTuple):
    """The parameters of draws: a value for each row or slot."""

    temperature: DeviceArray  # float32
    top_p: DeviceArray
    min_p: DeviceArray
    top_k: DeviceArray  # int64
    seed: DeviceArray
    sample: DeviceArray


# Tables keep them as two matrices, a line for each of these.
REALS, WHOLES = Columns._fields[:3], Columns._fields[3:]


@dataclass
class Draws:
    """How each row wants to be chosen."""

    kinds: Array  # [rows] int64, on the host
    top_k: Array  # [rows] int64, on the host
    columns: Columns  # [rows] each, on the logits' device as the positions
    positions: DeviceArray  # [rows] int64: of the token to choose

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def of_rows(self) -> Columns:
        """The columns, shaped to act on rows of logits."""
        return Columns(*(column[:, None] for column in self.columns))


class RankedLogprobs(NamedTuple):
    """The chosen token in column 0, the most likely ones after it."""

    token_ids: DeviceArray  # [rows, 1 + num_top] int32
    logprobs: DeviceArray  # [rows, 1 + num_top] float32
    ranks: DeviceArray  # [rows] int32, of the chosen token; 1 is the most likely


class Histories(NamedTuple):
    """The tokens before some of the rows of logits; columns have one value for each of these rows."""

    rows: DeviceArray  # int64, of the logits
    tokens: DeviceArray  # [slots, longest possible] int32
    slots: DeviceArray  # int64: each row's line of `tokens`
    lengths: DeviceArray  # int64, at least 1
    longest: int  # of `lengths`, known on the host


class Sampling(Protocol):
    """The operations on float32 logits, [rows, vocabulary]; those that change them do so in place and return them."""

    def scan(self, logits: DeviceArray, /) -> Scan: ...

    def choose(self, logits: DeviceArray, scanned: Scan, draws: Draws, /) -> DeviceArray:
        """One token id per row, int64; the logits may be overwritten."""

    def most_likely(self, values: DeviceArray, count: int, /) -> tuple[DeviceArray, DeviceArray]:
        """The `count` largest values of each row and their ids, equal ones by id."""

    def ranked_logprobs(self, logits: DeviceArray, chosen: DeviceArray, num_top: int, /) -> RankedLogprobs: ...

    def apply_mask(self, logits: DeviceArray, rows: DeviceArray, bits: DeviceArray, /) -> DeviceArray: ...

    def penalize_repetition(
        self, logits: DeviceArray, histories: Histories, penalty: DeviceArray, /
    ) -> DeviceArray: ...

    def penalize_generated(
        self,
        logits: DeviceArray,
        histories: Histories,
        starts: DeviceArray,
        frequency: DeviceArray,
        presence: DeviceArray,
        /,
    ) -> DeviceArray: ...

    def add(self, logits: DeviceArray, rows: DeviceArray, token_ids: DeviceArray, added: DeviceArray, /) -> DeviceArray:
        """Add each value to the logit of its row and token; a token may come several times."""


@dataclass(frozen=True, eq=False)
class DeviceDraws:
    """The columns of `Draws`, of every slot, and which slot a row of logits is of; no host reads them."""

    kinds: DeviceArray  # int64 [slots]: BEST, OF_TOP_K, OF_TOP_P or OF_ALL
    reals: DeviceArray  # float32 [len(REALS), slots]
    wholes: DeviceArray  # int64 [len(WHOLES), slots]
    histories: DeviceArray  # int32 [slots, longest]: where tokens are written that were chosen
    slots: DeviceArray  # whole numbers [rows]; NO_ROW: of such a row nothing is read, and nothing is written for it
    positions: DeviceArray  # whole numbers [rows]: of the token to choose; one behind the longest history is not kept
    are_best: bool = False  # the host knows that every row takes its best token


def sorted_by_row(values: Array, count: int) -> Array:
    """The ids of each row's `count` largest values in order, equal ones by id, by numpy's vectorized sort.

    Value and id are one unique integer, and each row is sorted alone, in a cache.
    """
    rows, width = values.shape
    ids = numpy.empty((rows, count), numpy.int64)
    keys = numpy.empty(width, numpy.int64)
    low, high = keys.view(numpy.int32).reshape(-1, 2).T
    descending = numpy.arange(width - 1, -1, -1, dtype=numpy.int32)
    for row, of_row in zip(ids, values, strict=True):
        bits = (of_row + numpy.float32(0)).view(numpy.int32)  # + 0: there is one zero only
        high[:], low[:] = bits ^ ((bits >> 31) & 0x7FFFFFFF), descending
        keys.partition(width - count)
        row[:] = width - 1 - (numpy.sort(keys[width - count :])[::-1] & 0xFFFFFFFF)
    return ids
