"""The sampling parameters of every slot, in columns, and the rows of a step that read them.

A step for 256 rows needs one gather instead of 256 look-ups. Columns are on the device, for the arithmetic, and on the
host, so that a step can skip work that no row needs. Rare, ragged parameters (biases, bad words, tokens that end an
answer) are kept per slot.
"""

from dataclasses import field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.sampling import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, REALS, WHOLES, Columns, DeviceDraws, Draws
from ...protocol.parameters.sampling import PENALTIES, SamplingParams
from ...records import dataclass
from ..device import Device
from .processors import LogitsProcessor, LogitsProcessors

Entry = TypeVar("Entry")

# The work that a row needs, as bits of the column `wants`.
BIASES = 1
BAD_SEQUENCES = 2
REPETITION = 4
GENERATED = 8  # presence or frequency penalty
ENDS = 16  # tokens that end the answer, and a minimum length
NGRAMS = 32  # n-grams that may not be repeated
LOGITS_PROCESSORS = 64  # the user's logits processors

_REALS = (*REALS, *PENALTIES)
_TINY, _HUGE = (float(bound) for bound in (numpy.finfo("f4").tiny, numpy.finfo("f4").max))
NO_LOGPROBS = -1


class Additions(NamedTuple):
    """Values added to the logits of some tokens."""

    ids: numpy.ndarray  # int64
    added: numpy.ndarray  # float32


class Sequences(NamedTuple):
    """Token sequences of one length: all but their last token, one sequence per line, and their last tokens."""

    rest: numpy.ndarray
    last: numpy.ndarray


@dataclass
class RareParameters:
    """The parameters that few slots have."""

    biases: dict[int, Additions] = field(default_factory=dict)
    ends: dict[int, Additions] = field(default_factory=dict)
    bad_sequences: dict[int, dict[int, Sequences]] = field(default_factory=dict)  # by the number of tokens in `rest`
    logits_processors: dict[int, list[LogitsProcessor]] = field(default_factory=dict)


class ParameterTable:
    """One line per slot; `enter` fills it, and a later `enter` overwrites it."""

    def __init__(
        self, num_slots: int, vocab_size: int, device: Device, processors: LogitsProcessors | None = None
    ) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self.processors = processors
        # Stored column by column, written line by line.
        self.reals = numpy.zeros((len(_REALS), num_slots), numpy.float32).T
        self.wholes = numpy.zeros((len(WHOLES), num_slots), numpy.int64).T
        # On a CPU the device's columns share the memory of these arrays. They are written in place and never replaced,
        # because captured graphs read them at fixed addresses.
        self.device_reals = device.put(self.reals.T).T
        self.device_wholes = device.put(self.wholes.T).T
        self.wants = numpy.zeros(num_slots, numpy.int64)
        self.kinds = numpy.zeros(num_slots, numpy.int64)  # how a token is chosen
        self.device_kinds = device.put(self.kinds)
        self.first_end = numpy.zeros(num_slots, numpy.int64)  # position before which no token may end the answer
        self.ngram_sizes = numpy.zeros(num_slots, numpy.int64)
        self.spares_prompt = numpy.zeros(num_slots, bool)  # repetition_penalty ignores the prompt's tokens
        # A more likely token counts as certain; NaN: not counted.
        self.least_logprob = numpy.full(num_slots, numpy.nan, numpy.float32)
        self.logprobs = numpy.full(num_slots, NO_LOGPROBS, numpy.int64)  # how many besides the chosen one
        self.prompt_logprobs = numpy.full(num_slots, NO_LOGPROBS, numpy.int64)
        self.rare = RareParameters()

    def enter(self, slot: int, params: SamplingParams, num_prompt: int, seed: int, sample: int) -> None:
        self.reals[slot] = [min(max(getattr(params, name), -_HUGE), _HUGE) for name in _REALS]
        # Beyond these bounds float32 can't represent a different distribution.
        temperature = _REALS.index("temperature")
        self.reals[slot, temperature] = max(self.reals[slot, temperature], _TINY)
        wholes = {"top_k": max(params.top_k, 0), "seed": seed & (2**63 - 1), "sample": sample}
        self.wholes[slot] = [wholes[name] for name in WHOLES]
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
            + LOGITS_PROCESSORS * (slot in self.rare.logits_processors)
        )

    def copy(self, source: int, target: int, sample: int) -> None:
        columns: tuple[numpy.ndarray, ...] = (
            *(self.reals, self.wholes, self.wants, self.kinds, self.first_end, self.ngram_sizes, self.spares_prompt),
            *(self.least_logprob, self.logprobs, self.prompt_logprobs),
        )
        for column in columns:
            column[target] = column[source]
        self.wholes[target, WHOLES.index("sample")] = sample
        self._to_device(target)
        rare = self.rare
        _keep(rare.biases, target, rare.biases.get(source))
        _keep(rare.ends, target, rare.ends.get(source))
        _keep(rare.bad_sequences, target, rare.bad_sequences.get(source))
        _keep(rare.logits_processors, target, rare.logits_processors.get(source))

    def is_plain(self, slot: int) -> bool:
        """Whether a slot samples from unchanged logits and reports only the token."""
        is_told_more = self.logprobs[slot] != NO_LOGPROBS or not numpy.isnan(self.least_logprob[slot])
        return not self.wants[slot] and not is_told_more

    def device_draws(
        self, histories: DeviceArray, slots: DeviceArray, positions: DeviceArray, are_best: bool
    ) -> DeviceDraws:
        """Sampling parameters for a GPU, in tensors at fixed addresses that the host does not read."""
        return DeviceDraws(
            kinds=self.device_kinds,
            reals=self.device_reals.T[: len(REALS)],
            wholes=self.device_wholes.T,
            histories=histories,
            slots=slots,
            positions=positions,
            are_best=are_best,
        )

    def draw_columns(self) -> dict[str, numpy.ndarray]:
        """Kinds and `Columns` on the host, one entry per slot."""
        return {"kinds": self.kinds, **dict(zip(REALS, self.reals.T)), **dict(zip(WHOLES, self.wholes.T))}

    def _to_device(self, slot: int) -> None:
        if self.device.is_asynchronous:  # else the same memory
            self.device_reals[slot] = self.device.put(self.reals[slot])
            self.device_wholes[slot] = self.device.put(self.wholes[slot])
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
        if self.processors is not None:
            _keep(rare.logits_processors, slot, self.processors.steps(self.vocab_size, params.logits_processors_args))

    def _additions(self, added: dict[int, float]) -> Additions | None:
        # Ids beyond the model's vocabulary (such as the EOS of a larger one) can't be sampled anyway.
        added = {token: value for token, value in added.items() if token < self.vocab_size}
        if not added:
            return None
        return Additions(numpy.fromiter(added.keys(), numpy.int64), numpy.fromiter(added.values(), numpy.float32))


@dataclass
class SamplingRows:
    """The rows that sample a token in this step, for the sampler."""

    parameters: ParameterTable
    slots: numpy.ndarray  # int64, one per row of logits
    positions: numpy.ndarray  # of the token to sample: the number of tokens before it
    num_prompt: numpy.ndarray
    histories: DeviceArray  # [slots, max_model_len] int32, on the device
    errors: dict[int, str] = field(default_factory=dict)  # by slot: errors other than faulty logits

    def __len__(self) -> int:
        return len(self.slots)

    @cached_property
    def wants(self) -> numpy.ndarray:
        """The work that each row needs, as bits."""
        wants: numpy.ndarray = self.parameters.wants[self.slots]
        return wants

    @property
    def are_greedy(self) -> bool:
        return not self.parameters.kinds[self.slots].any()

    def wanting(self, bit: int) -> numpy.ndarray:
        """Indices of the rows that need this work."""
        return numpy.flatnonzero(self.wants & bit)

    def only(self, indices: numpy.ndarray) -> "SamplingRows":
        if len(indices) == len(self):
            return self
        columns = (self.slots[indices], self.positions[indices], self.num_prompt[indices])
        return SamplingRows(self.parameters, *columns, self.histories, self.errors)

    @cached_property
    def device_slots(self) -> DeviceArray:
        return self.parameters.device.put(self.slots)

    def real(self, name: str) -> DeviceArray:
        """A parameter, one per row."""
        return self.parameters.device_reals[self.device_slots, _REALS.index(name)]

    def draws(self) -> Draws:
        """The rows' sampling parameters."""
        table = self.parameters
        return Draws(
            kinds=table.kinds[self.slots],
            top_k=table.wholes[self.slots, WHOLES.index("top_k")],
            columns=Columns(
                *(column[self.device_slots] for column in table.device_reals.T[: len(REALS)]),
                *(column[self.device_slots] for column in table.device_wholes.T),
            ),
            positions=table.device.put(self.positions),
        )

    def device_draws(self) -> DeviceDraws:
        """The rows' sampling parameters in tensors that the host does not read."""
        return self.parameters.device_draws(
            self.histories, self.device_slots, self.parameters.device.put(self.positions), self.are_greedy
        )

    def keep(self, token_ids: DeviceArray) -> None:
        """Write the rows' next tokens into their histories."""
        device = self.parameters.device
        self.histories[self.device_slots, device.put(self.positions)] = device.cast(token_ids, numpy.int32)

    def history(self, start: numpy.ndarray, length: int) -> DeviceArray:
        """`length` tokens of every row's history, from `start` on."""
        positions = self.parameters.device.put(start[:, None] + numpy.arange(length))
        return self.histories[self.device_slots[:, None], positions]


def _keep(kept: dict[int, Entry], slot: int, entry: Entry | None) -> None:
    """Replace the slot's entry; an empty one is removed."""
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
    least = params.early_stop.least_logprob if params.early_stop is not None else None
    return numpy.nan if least is None else least


def _by_length(words: list[list[int]]) -> dict[int, Sequences]:
    groups: dict[int, list[list[int]]] = {}
    for word in words:
        groups.setdefault(len(word) - 1, []).append(word)
    arrays = {length: numpy.array(group, numpy.int64) for length, group in groups.items()}
    return {length: Sequences(array[:, :-1], array[:, -1]) for length, array in arrays.items()}
