"""The sampling parameters of every slot, in columns: what a step needs of 256 rows is one gather, not 256 look-ups.

Columns are on the device, for the arithmetic, and on the host, where a step reads which work no row wants. What is rare
and ragged (biases, bad words, tokens that end an answer) is kept per slot.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy
import torch

from ...kernels.sampling import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, DeviceDraws, Draws
from ...protocol.parameters.sampling import SamplingParams
from ..device import kind_of
from .processors import OwnStep, Processors

Entry = TypeVar("Entry")

# What a row wants of a step, as bits of the column `wants`.
BIASES = 1
BAD_SEQUENCES = 2
REPETITION = 4
GENERATED = 8  # presence or frequency penalty
ENDS = 16  # tokens that end the answer, and a length before which they may not
NGRAMS = 32  # runs of tokens that may not come twice
OWN_STEPS = 64  # logits processors that the user brought

# `Draws` takes its columns in this order.
_DRAW_REALS = ("temperature", "top_p", "min_p")
_REALS = (*_DRAW_REALS, "repetition_penalty", "presence_penalty", "frequency_penalty")
_WHOLES = ("top_k", "seed", "sample")
_TINY, _HUGE = (float(bound) for bound in (numpy.finfo("f4").tiny, numpy.finfo("f4").max))
NO_LOGPROBS = -1


class Additions(NamedTuple):
    """What is added to the logits of some tokens."""

    ids: numpy.ndarray  # int64
    added: numpy.ndarray  # float32


class Sequences(NamedTuple):
    """Token sequences of one length: all but their last token, one sequence a line, and their last tokens."""

    rest: numpy.ndarray
    last: numpy.ndarray


@dataclass
class RareParameters:
    """The parameters that few slots have."""

    biases: dict[int, Additions] = field(default_factory=dict)
    ends: dict[int, Additions] = field(default_factory=dict)
    bad_sequences: dict[int, dict[int, Sequences]] = field(default_factory=dict)  # by the number of tokens in `rest`
    own_steps: dict[int, list[OwnStep]] = field(default_factory=dict)


class ParameterTable:
    """One line per slot; `enter` fills it, and a later `enter` overwrites it."""

    def __init__(
        self, num_slots: int, vocab_size: int, device: torch.device, processors: Processors | None = None
    ) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.processors = processors or Processors()
        # Stored column by column, written line by line.
        self.reals = numpy.zeros((len(_REALS), num_slots), numpy.float32).T
        self.wholes = numpy.zeros((len(_WHOLES), num_slots), numpy.int64).T
        # On a CPU the device's columns are these very arrays. They are written into and never replaced: what was
        # captured reads them where they are.
        self.device_reals = torch.from_numpy(self.reals).to(device)
        self.device_wholes = torch.from_numpy(self.wholes).to(device)
        self.wants = numpy.zeros(num_slots, numpy.int64)
        self.kinds = numpy.zeros(num_slots, numpy.int64)  # how a token is chosen
        self.device_kinds = torch.from_numpy(self.kinds).to(device)
        self.first_end = numpy.zeros(num_slots, numpy.int64)  # position before which no token may end the answer
        self.ngram_sizes = numpy.zeros(num_slots, numpy.int64)
        self.spares_prompt = numpy.zeros(num_slots, bool)  # repetition_penalty leaves the prompt's tokens alone
        # Above it a token counts as one chosen without doubt; NaN: nobody counts.
        self.least_logprob = numpy.full(num_slots, numpy.nan, numpy.float32)
        self.logprobs = numpy.full(num_slots, NO_LOGPROBS, numpy.int64)  # how many beside the chosen one
        self.prompt_logprobs = numpy.full(num_slots, NO_LOGPROBS, numpy.int64)
        self.rare = RareParameters()

    def enter(self, slot: int, params: SamplingParams, num_prompt: int, seed: int, sample: int) -> None:
        self.reals[slot] = [min(max(getattr(params, name), -_HUGE), _HUGE) for name in _REALS]
        # So small or large a temperature is a limit of float32, not another distribution.
        self.reals[slot, 0] = max(self.reals[slot, 0], _TINY)
        self.wholes[slot] = (max(params.top_k, 0), seed & (2**63 - 1), sample)
        self.kinds[slot] = _kind(params, self.vocab_size)
        self._to_device(slot)
        self.first_end[slot] = max(num_prompt + params.min_tokens, params.min_length)
        self.logprobs[slot] = self._width(params.logprobs)
        self.prompt_logprobs[slot] = self._width(params.prompt_logprobs)
        self.ngram_sizes[slot] = params.no_repeat_ngram_size
        self.spares_prompt[slot] = params.suppress_repetition_in_generation
        self.least_logprob[slot] = _least_logprob(params)
        self._enter_rare(slot, params)
        self.wants[slot] = (
            BIASES * (slot in self.rare.biases)
            + BAD_SEQUENCES * (slot in self.rare.bad_sequences)
            + REPETITION * (params.repetition_penalty != 1)
            + GENERATED * (params.presence_penalty != 0 or params.frequency_penalty != 0)
            + ENDS * (slot in self.rare.ends and self.first_end[slot] > num_prompt)
            + NGRAMS * (params.no_repeat_ngram_size > 0)
            + OWN_STEPS * (slot in self.rare.own_steps)
        )

    def copy(self, source: int, target: int, sample: int) -> None:
        columns: tuple[numpy.ndarray, ...] = (
            *(self.reals, self.wholes, self.wants, self.kinds, self.first_end, self.ngram_sizes, self.spares_prompt),
            *(self.least_logprob, self.logprobs, self.prompt_logprobs),
        )
        for column in columns:
            column[target] = column[source]
        self.wholes[target, _WHOLES.index("sample")] = sample
        self._to_device(target)
        rare = self.rare
        _keep(rare.biases, target, rare.biases.get(source))
        _keep(rare.ends, target, rare.ends.get(source))
        _keep(rare.bad_sequences, target, rare.bad_sequences.get(source))
        _keep(rare.own_steps, target, rare.own_steps.get(source))

    def is_plain(self, slot: int) -> bool:
        """Whether a slot samples from unchanged logits and reports nothing but the token."""
        is_told_more = self.logprobs[slot] != NO_LOGPROBS or not numpy.isnan(self.least_logprob[slot])
        return not self.wants[slot] and not is_told_more

    def device_real(self, name: str, slots: torch.Tensor) -> torch.Tensor:
        return self.device_reals[slots, _REALS.index(name)]

    def draws(self, slots: numpy.ndarray, device_slots: torch.Tensor, positions: torch.Tensor) -> Draws:
        return Draws(
            kinds=self.kinds[slots],
            top_k=self.wholes[slots, 0],
            reals=self.device_reals.T[: len(_DRAW_REALS)].index_select(1, device_slots),
            wholes=self.device_wholes.T.index_select(1, device_slots),
            positions=positions,
        )

    def device_draws(
        self, histories: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, are_best: bool
    ) -> DeviceDraws:
        """The same for a captured step, which reads the table itself at its fixed address."""
        return DeviceDraws(
            kinds=self.device_kinds,
            reals=self.device_reals.T[: len(_DRAW_REALS)],
            wholes=self.device_wholes.T,
            histories=histories,
            slots=slots,
            positions=positions,
            are_best=are_best,
        )

    def draw_columns(self) -> list[numpy.ndarray]:
        """On the host, one entry for each slot: temperature, top_p, min_p, top_k, seed, sample."""
        return [*self.reals.T[: len(_DRAW_REALS)], *self.wholes.T]

    def _to_device(self, slot: int) -> None:
        if kind_of(self.device).is_asynchronous:  # else the same memory
            self.device_reals[slot].copy_(torch.from_numpy(self.reals[slot]), non_blocking=True)
            self.device_wholes[slot].copy_(torch.from_numpy(self.wholes[slot]), non_blocking=True)
            self.device_kinds[slot] = int(self.kinds[slot])

    def _width(self, wanted: int | None) -> int:
        if wanted is None:
            return NO_LOGPROBS
        return self.vocab_size if wanted < 0 else min(wanted, self.vocab_size)

    def _enter_rare(self, slot: int, params: SamplingParams) -> None:
        words = [word for word in params.bad_words_ids or [] if max(word) < self.vocab_size]
        biases = dict(params.logit_bias or {})
        biases.update({word[0]: -numpy.inf for word in words if len(word) == 1})
        rare = self.rare
        _keep(rare.biases, slot, self._additions(biases))
        _keep(rare.ends, slot, self._additions(dict.fromkeys(params.ending_ids, -numpy.inf)))
        _keep(rare.bad_sequences, slot, _by_length([word for word in words if len(word) > 1]))
        _keep(rare.own_steps, slot, self.processors.steps(self.vocab_size, params.logits_processors_args))

    def _additions(self, added: dict[int, float]) -> Additions | None:
        # Ids that the model does not have (an EOS of a larger vocabulary) can't be sampled anyway.
        added = {token: value for token, value in added.items() if token < self.vocab_size}
        if not added:
            return None
        return Additions(numpy.fromiter(added.keys(), numpy.int64), numpy.fromiter(added.values(), numpy.float32))


def _keep(kept: dict[int, Entry], slot: int, entry: Entry | None) -> None:
    """Replace what the slot had; an empty entry is not kept."""
    kept.pop(slot, None)
    if entry:
        kept[slot] = entry


def _kind(params: SamplingParams, vocab_size: int) -> int:
    if params.is_greedy:
        return BEST
    if 0 < params.top_k < vocab_size:
        return OF_TOP_K
    return OF_TOP_P if params.top_p < 1 else OF_ALL


def _least_logprob(params: SamplingParams) -> float:
    early_stop = params.early_stop
    return early_stop.least_logprob if early_stop is not None and early_stop.enable_early_stop else numpy.nan


def _by_length(words: list[list[int]]) -> dict[int, Sequences]:
    groups: dict[int, list[list[int]]] = {}
    for word in words:
        groups.setdefault(len(word) - 1, []).append(word)
    arrays = {length: numpy.array(group, numpy.int64) for length, group in groups.items()}
    return {length: Sequences(array[:, :-1], array[:, -1]) for length, array in arrays.items()}
