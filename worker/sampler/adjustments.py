"""Changes to logits before a token is sampled: one function per rule, in place and only for rows that use it.

The order is that of `ADJUSTMENTS`. Nothing here sums over a row or looks at another row, so a row's result is the same
in any batch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.sampling import Histories, Sampling
from . import parameters
from .parameters import Additions, SamplingRows, Sequences


class Adjustment(NamedTuple):
    wanting: Callable[[SamplingRows], numpy.ndarray]  # indices of the rows that use it
    apply: Callable[[Sampling, DeviceArray, SamplingRows, numpy.ndarray], None]


class Mask(NamedTuple):
    """The tokens that a grammar allows."""

    rows: numpy.ndarray  # of the logits
    bits: numpy.ndarray  # [rows, ceil(vocabulary / 32)] int32, lowest bit first; 1 allows

    def only(self, indices: numpy.ndarray) -> "Mask":
        """The masks of some of the rows of logits, for a matrix of these rows alone."""
        is_kept = numpy.isin(self.rows, indices)
        return Mask(numpy.searchsorted(indices, self.rows[is_kept]), self.bits[is_kept])


def allow(ops: Sampling, logits: DeviceArray, rows: SamplingRows, mask: Mask) -> None:
    ops.apply_mask(logits, *map(rows.parameters.device.put, mask))


def are_adjusted(rows: SamplingRows) -> bool:
    """Whether any row's logits must be changed."""
    return bool(rows.wants.any()) and any(len(adjustment.wanting(rows)) for adjustment in ADJUSTMENTS)


def adjust(ops: Sampling, logits: DeviceArray, rows: SamplingRows) -> None:
    """Apply all adjustments that rows use."""
    for adjustment in ADJUSTMENTS:
        wanting = adjustment.wanting(rows)
        if len(wanting):
            adjustment.apply(ops, logits, rows.only(wanting), wanting)


def add_biases(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Add `logit_bias`, and minus infinity for bad words of one token."""
    biases = rows.parameters.rare.biases
    _add(ops, logits, rows, indices, [biases[slot] for slot in rows.slots.tolist()])


def ban_bad_sequences(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Mask the last token of a bad sequence if the history ends with its other tokens."""
    sequences = [rows.parameters.rare.bad_sequences[slot] for slot in rows.slots.tolist()]
    for length in sorted({length for of_row in sequences for length in of_row}):
        long_enough = rows.positions >= length
        having = numpy.array([long_enough[row] and length in of_row for row, of_row in enumerate(sequences)])
        if having.any():
            kept = numpy.flatnonzero(having)
            of_length = [sequences[row][length] for row in kept]
            _ban_where_rest_stands(ops, logits, rows.only(kept), indices[kept], of_length)


def _ban_where_rest_stands(
    ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray, sequences: list[Sequences]
) -> None:
    length, device = sequences[0].rest.shape[1], rows.parameters.device
    counts = [len(of_row.last) for of_row in sequences]
    tails = rows.history(rows.positions - length, length)
    tails = tails[device.put(numpy.repeat(numpy.arange(len(rows)), counts))]
    rest = device.put(numpy.concatenate([of_row.rest for of_row in sequences]))
    last = device.put(numpy.concatenate([of_row.last for of_row in sequences]))
    _ban_where(ops, logits, rows, device.put(numpy.repeat(indices, counts)), last, (tails == rest).all(-1))


def ban_repeated_ngrams(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`no_repeat_ngram_size`: mask tokens that would complete an n-gram of the prompt or answer again."""
    device, sizes = rows.parameters.device, rows.parameters.ngram_sizes[rows.slots]
    for index, slot, size, length in zip(indices, rows.slots, sizes, rows.positions, strict=True):
        if length < size:
            continue
        history, count = rows.histories[slot, :length], length - size + 1  # n-grams that are there
        end = history[count:]  # of the next one, all but the last token
        is_repeated = ~device.zeros((count,), numpy.bool_)
        for place in range(size - 1):
            is_repeated &= history[place : place + count] == end[place]
        ngram_ends = device.cast(history[size - 1 :], numpy.int64)
        _ban_where(ops, logits, rows, device.put(numpy.full(count, index)), ngram_ends, is_repeated)


def _ban_where(
    ops: Sampling,
    logits: DeviceArray,
    rows: SamplingRows,
    indices: DeviceArray,
    token_ids: DeviceArray,
    is_banned: DeviceArray,
) -> None:
    added = rows.parameters.device.zeros((len(token_ids),), numpy.float32)
    added[is_banned] = -numpy.inf
    ops.add(logits, indices, token_ids, added)


def before_first_end(rows: SamplingRows) -> numpy.ndarray:
    with_ends = rows.wanting(parameters.ENDS)
    before: numpy.ndarray = with_ends[rows.positions[with_ends] < rows.parameters.first_end[rows.slots[with_ends]]]
    return before


def ban_ends(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`min_tokens`, `min_length`: mask EOS and stop tokens before the minimum."""
    ends = rows.parameters.rare.ends
    _add(ops, logits, rows, indices, [ends[slot] for slot in rows.slots.tolist()])


def penalize_repetition(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`repetition_penalty`: tokens of prompt and answer, or with `suppress_repetition_in_generation` the answer's."""
    spares_prompt = rows.parameters.spares_prompt[rows.slots]
    whole = numpy.flatnonzero(~spares_prompt)
    if len(whole):
        counted = rows.only(whole)
        ops.penalize_repetition(logits, _histories(counted, indices[whole]), counted.real("repetition_penalty"))
    generated = numpy.flatnonzero(spares_prompt & (rows.positions > rows.num_prompt))
    if len(generated):
        counted = rows.only(generated)
        ops.penalize_repetition(logits, _answers(counted, indices[generated]), counted.real("repetition_penalty"))


def penalize_generated(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Apply `frequency_penalty` for each time that a token was generated, `presence_penalty` once."""
    penalties = rows.real("frequency_penalty"), rows.real("presence_penalty")
    starts = rows.parameters.device.put(rows.num_prompt)
    ops.penalize_generated(logits, _histories(rows, indices), starts, *penalties)


def _histories(rows: SamplingRows, indices: numpy.ndarray) -> Histories:
    of_logits, lengths = map(rows.parameters.device.put, (indices, rows.positions))
    return Histories(of_logits, rows.histories, rows.device_slots, lengths, int(rows.positions.max()))


def _answers(rows: SamplingRows, indices: numpy.ndarray) -> Histories:
    """The tokens after the prompts, as separate histories."""
    lengths = rows.positions - rows.num_prompt
    longest, put = int(lengths.max()), rows.parameters.device.put
    # Beyond a row's own length any token will do; clamping avoids reads beyond the table's end.
    positions = numpy.minimum(rows.num_prompt[:, None] + numpy.arange(longest), rows.positions[:, None] - 1)
    tokens = rows.histories[rows.device_slots[:, None], put(positions)]
    return Histories(put(indices), tokens, put(numpy.arange(len(rows))), put(lengths), longest)


def _add(
    ops: Sampling,
    logits: DeviceArray,
    rows: SamplingRows,
    indices: numpy.ndarray,
    additions: Sequence[Additions],
) -> None:
    ids = numpy.concatenate([of_row.ids for of_row in additions])
    added = numpy.concatenate([of_row.added for of_row in additions])
    of_rows = numpy.repeat(indices, [len(of_row.ids) for of_row in additions])
    ops.add(logits, *map(rows.parameters.device.put, (of_rows, ids, added)))


def _wanting(bit: int) -> Callable[[SamplingRows], numpy.ndarray]:
    return lambda rows: rows.wanting(bit)


def apply_logits_processors(ops: Sampling, logits: DeviceArray, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Run `logits_processors`. If a row's step raises, all its tokens are masked and the error is kept.

    A row that is faulty before has its fault by the scan.
    """
    device = rows.parameters.device
    for index, slot, length, num_prompt in zip(indices, rows.slots, rows.positions, rows.num_prompt, strict=True):
        tokens = device.host_copy(rows.histories[slot, :length])()
        tokens.flags.writeable = False
        row = device.host_copy(logits[index])()  # on a CPU the same memory
        if not row.max() < numpy.inf:
            continue
        try:
            for processor in rows.parameters.rare.logits_processors[int(slot)]:
                processor.apply(tokens, int(num_prompt), row)
        except RuntimeError as error:
            rows.errors[int(slot)] = str(error)
            row[:] = -numpy.inf
        logits[index] = device.put(row)


# The rows that each one changes, and its formula for the logit x of a token.
ADJUSTMENTS = (
    Adjustment(_wanting(parameters.BIASES), add_biases),  # x + bias; -∞ for a bad word of one token
    Adjustment(_wanting(parameters.BAD_SEQUENCES), ban_bad_sequences),  # -∞ if it would complete a bad sequence
    Adjustment(_wanting(parameters.NGRAMS), ban_repeated_ngrams),  # -∞ if it would complete an n-gram a second time
    Adjustment(before_first_end, ban_ends),  # -∞ for EOS and stop tokens, before the minimum length
    Adjustment(_wanting(parameters.REPETITION), penalize_repetition),  # x > 0: x / penalty; else x × penalty
    Adjustment(_wanting(parameters.GENERATED), penalize_generated),  # x - count × frequency - (count > 0) × presence
    Adjustment(_wanting(parameters.LOGITS_PROCESSORS), apply_logits_processors),  # whatever the user's step does
)
