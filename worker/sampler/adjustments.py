"""Changes to logits before a token is sampled: one function per rule, in place and only for rows that use it.

The order is that of `ADJUSTMENTS`. Nothing here sums over a row or looks at another row, so a row's result is the same
in any batch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
import torch
from torch import Tensor

from ...kernels import sampling
from ...kernels.sampling import Histories
from ..device import Device
from . import parameters
from .parameters import Additions, SamplingRows, Sequences


class Adjustment(NamedTuple):
    wanting: Callable[[SamplingRows], numpy.ndarray]  # indices of the rows that use it
    apply: Callable[[Tensor, SamplingRows, numpy.ndarray], None]


class Mask(NamedTuple):
    """The tokens that a grammar allows."""

    rows: numpy.ndarray  # of the logits
    bits: numpy.ndarray  # [rows, ceil(vocabulary / 32)] int32, lowest bit first; 1 allows


def allow(logits: Tensor, mask: Mask, device: Device) -> None:
    sampling.apply_mask(logits, *map(device.put, mask))


def are_adjusted(rows: SamplingRows) -> bool:
    """Whether any row's logits must be changed."""
    return bool(rows.wants.any()) and any(len(adjustment.wanting(rows)) for adjustment in ADJUSTMENTS)


def adjust(logits: Tensor, rows: SamplingRows) -> None:
    """Apply all adjustments that rows use."""
    for adjustment in ADJUSTMENTS:
        wanting = adjustment.wanting(rows)
        if len(wanting):
            adjustment.apply(logits, rows.only(wanting), wanting)


def add_biases(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Add `logit_bias`, and minus infinity for bad words of one token."""
    biases = rows.parameters.rare.biases
    _add(logits, rows, indices, [biases[slot] for slot in rows.slots.tolist()])


def ban_bad_sequences(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Mask the last token of a bad sequence if the history ends with its other tokens."""
    sequences = [rows.parameters.rare.bad_sequences[slot] for slot in rows.slots.tolist()]
    for length in sorted({length for of_row in sequences for length in of_row}):
        long_enough = rows.positions >= length
        having = numpy.array([long_enough[row] and length in of_row for row, of_row in enumerate(sequences)])
        if having.any():
            kept = numpy.flatnonzero(having)
            _ban_where_rest_stands(logits, rows.only(kept), indices[kept], [sequences[row][length] for row in kept])


def _ban_where_rest_stands(
    logits: Tensor, rows: SamplingRows, indices: numpy.ndarray, sequences: list[Sequences]
) -> None:
    length = sequences[0].rest.shape[1]
    counts = [len(of_row.last) for of_row in sequences]
    tails = rows.history(rows.positions - length, length)
    put = rows.parameters.device.put
    tails = tails[put(numpy.repeat(numpy.arange(len(rows)), counts))]
    rest = put(numpy.concatenate([of_row.rest for of_row in sequences]))
    last = numpy.concatenate([of_row.last for of_row in sequences])
    flat = put(numpy.repeat(indices, counts) * logits.shape[1] + last)
    added = torch.zeros(len(last), device=logits.device).masked_fill_((tails == rest).all(-1), -torch.inf)
    logits.view(-1).index_add_(0, flat, added)


def ban_repeated_ngrams(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`no_repeat_ngram_size`: mask tokens that would complete an n-gram of the prompt or answer again."""
    sizes = rows.parameters.ngram_sizes[rows.slots]
    for index, slot, size, length in zip(indices, rows.slots, sizes, rows.positions, strict=True):
        if length < size:
            continue
        ngrams = rows.histories[slot, :length].unfold(0, int(size), 1)
        end = rows.histories[slot, length - size + 1 : length]
        added = torch.zeros(len(ngrams), device=logits.device)
        added.masked_fill_((ngrams[:, :-1] == end).all(-1), -torch.inf)
        logits[index].index_add_(0, ngrams[:, -1].long(), added)


def before_first_end(rows: SamplingRows) -> numpy.ndarray:
    with_ends = rows.wanting(parameters.ENDS)
    before: numpy.ndarray = with_ends[rows.positions[with_ends] < rows.parameters.first_end[rows.slots[with_ends]]]
    return before


def ban_ends(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`min_tokens`, `min_length`: mask EOS and stop tokens before the minimum."""
    ends = rows.parameters.rare.ends
    _add(logits, rows, indices, [ends[slot] for slot in rows.slots.tolist()])


def penalize_repetition(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """`repetition_penalty`: tokens of prompt and answer, or with `suppress_repetition_in_generation` the answer's."""
    spares_prompt = rows.parameters.spares_prompt[rows.slots]
    whole = numpy.flatnonzero(~spares_prompt)
    if len(whole):
        counted = rows.only(whole)
        sampling.penalize_repetition(logits, _histories(counted, indices[whole]), counted.real("repetition_penalty"))
    generated = numpy.flatnonzero(spares_prompt & (rows.positions > rows.num_prompt))
    if len(generated):
        counted = rows.only(generated)
        sampling.penalize_repetition(logits, _answers(counted, indices[generated]), counted.real("repetition_penalty"))


def penalize_generated(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Apply `frequency_penalty` for each time that a token was generated, `presence_penalty` once."""
    penalties = rows.real("frequency_penalty"), rows.real("presence_penalty")
    starts = rows.parameters.device.put(rows.num_prompt)
    sampling.penalize_generated(logits, _histories(rows, indices), starts, *penalties)


def _histories(rows: SamplingRows, indices: numpy.ndarray) -> Histories:
    of_logits, lengths = map(rows.parameters.device.put, (indices, rows.positions))
    return Histories(of_logits, rows.histories, rows.device_slots, lengths, int(rows.positions.max()))


def _answers(rows: SamplingRows, indices: numpy.ndarray) -> Histories:
    """The tokens after the prompts, as separate histories."""
    lengths = rows.positions - rows.num_prompt
    longest = int(lengths.max())
    # Beyond a row's own length any token will do; clamping avoids reads beyond the table's end.
    last = rows.column(rows.positions - 1)
    positions = torch.minimum(rows.column(rows.num_prompt) + torch.arange(longest, device=last.device), last)
    tokens = rows.histories[rows.device_slots[:, None], positions]
    of_logits, counts = map(rows.parameters.device.put, (indices, lengths))
    return Histories(of_logits, tokens, torch.arange(len(rows), device=last.device), counts, longest)


def _add(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray, additions: Sequence[Additions]) -> None:
    put = rows.parameters.device.put
    flat = numpy.repeat(indices, [len(of_row.ids) for of_row in additions]) * logits.shape[1] + numpy.concatenate(
        [of_row.ids for of_row in additions]
    )
    added = numpy.concatenate([of_row.added for of_row in additions])
    logits.view(-1).index_add_(0, put(flat), put(added))


def _wanting(bit: int) -> Callable[[SamplingRows], numpy.ndarray]:
    return lambda rows: rows.wanting(bit)


def apply_logits_processors(logits: Tensor, rows: SamplingRows, indices: numpy.ndarray) -> None:
    """Run `logits_processors`. If a row's step raises, all its tokens are masked and the error is kept."""
    for index, slot, length, num_prompt in zip(indices, rows.slots, rows.positions, rows.num_prompt, strict=True):
        tokens = rows.histories[slot, :length].cpu().numpy()
        tokens.flags.writeable = False
        try:
            for processor in rows.parameters.rare.logits_processors[int(slot)]:
                processor.apply(tokens, int(num_prompt), logits[index])
        except RuntimeError as error:
            rows.errors[int(slot)] = str(error)
            logits[index] = -torch.inf


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
