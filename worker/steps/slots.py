"""The worker's table of slots: each one's token history, block table, counts and sampling parameters.

Values (tokens, block ids) are on the device. Counts are on the host, which advances them without knowing which tokens
came, so that a step never waits for the device. A plan that breaks a rule of the stream is refused with a sentence,
before anything computes on it.
"""

from dataclasses import dataclass

import numpy
import torch

from ...protocol.adapter_messages import NO_ADAPTER
from ...protocol.messages import ForcedTokens, Fork, NewSlot, StepPlan
from ..device import on_device
from ..plan_error import PlanError
from ..sampler import LogitsProcessors, ParameterTable

_Ints = numpy.ndarray


@dataclass
class StepRows:
    """The rows of one step, by the counts before it; all int64, on the host."""

    slots: _Ints
    num_tokens: _Ints
    starts: _Ints  # position of the first token to compute
    ends: _Ints  # and the one after the last
    is_sampling: _Ints  # bool: the next token is not known yet
    is_searched: _Ints  # bool: likewise, and the engine chooses it among candidates

    @classmethod
    def none(cls) -> "StepRows":
        nobody, nowhere = numpy.zeros(0, numpy.int64), numpy.zeros(0, bool)
        return cls(*(nobody,) * 4, nowhere, nowhere)

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def wants_logits(self) -> _Ints:
        return self.is_sampling | self.is_searched


class SlotTable:
    def __init__(
        self,
        num_slots: int,
        max_model_len: int,
        num_blocks: int,
        block_size: int,
        vocab_size: int,
        device: torch.device,
        processors: LogitsProcessors | None = None,
        stretches: bool = False,
    ) -> None:
        self.max_model_len = max_model_len
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.device = device
        self.is_taken = numpy.zeros(num_slots, bool)
        self.num_tokens = numpy.zeros(num_slots, numpy.int64)  # known, or being sampled
        self.num_prompt = numpy.zeros(num_slots, numpy.int64)
        self.num_computed = numpy.zeros(num_slots, numpy.int64)
        self.num_table = numpy.zeros(num_slots, numpy.int64)  # blocks in the table
        self.num_candidates = numpy.zeros(num_slots, numpy.int64)  # not 0: it gives so many, and samples nothing
        self.adapters = numpy.full(num_slots, NO_ADAPTER, numpy.int64)
        self.rotation_starts = numpy.zeros(num_slots, numpy.int64)  # where its positions begin in the rotary table
        # The same on the device, where a model's rotary positions depend on the length of a request.
        self.device_rotation_starts = torch.zeros(num_slots, dtype=torch.int64, device=device) if stretches else None
        # The next token is all that is asked for, and the logits are taken as they are.
        self.is_plain = numpy.zeros(num_slots, bool)
        # Beyond its count a history holds what earlier tenants left, never read; a table holds zeros.
        self.histories = torch.zeros(num_slots, max_model_len, dtype=torch.int32, device=device)
        self.tables = torch.zeros(num_slots, -(-max_model_len // block_size), dtype=torch.int32, device=device)
        self.parameters = ParameterTable(num_slots, vocab_size, device, processors)

    def apply(self, plan: StepPlan) -> StepRows:
        """Apply the plan, in its stated order; afterwards the counts are those after the step."""
        self._free(_column(plan.freed))
        for new in plan.new:
            self._enter(new)
        for fork in plan.forks:
            self._fork(fork)
        for forced in plan.forced:
            self._force(forced)
        slots, num_tokens = _column(plan.slots), _column(plan.num_tokens)
        self._check_slots(slots, num_tokens)
        (changes,) = plan.groups
        self._append_blocks(slots, _column(changes.block_ids), _column(changes.block_offsets))
        return self._advance(slots, num_tokens)

    def _free(self, slots: _Ints) -> None:
        _require(_all_within(slots, len(self.is_taken)) and self.is_taken[slots].all(), "frees a slot that is free")
        self.is_taken[slots] = False

    def _enter(self, new: NewSlot) -> None:
        tokens = numpy.frombuffer(new.token_ids, numpy.int32)
        self._check_free(new.slot)
        _require(
            0 <= new.num_computed < len(tokens) <= self.max_model_len and 0 < new.num_prompt <= len(tokens),
            f"gives slot {new.slot} {len(tokens)} tokens, {new.num_prompt} of them prompt and {new.num_computed} "
            f"computed, where max_model_len is {self.max_model_len}",
        )
        self._check_tokens(tokens, new.slot)
        self.is_taken[new.slot] = True
        self.num_tokens[new.slot] = len(tokens)
        self.num_prompt[new.slot] = new.num_prompt
        self.num_computed[new.slot] = new.num_computed
        self.num_candidates[new.slot] = new.num_candidates
        self.adapters[new.slot] = new.adapter
        self._rotate_from(new.slot, new.rotation_start)
        self._empty_table(new.slot)
        self.histories[new.slot, : len(tokens)] = on_device(tokens.copy(), self.device)
        self.parameters.enter(new.slot, new.params, new.num_prompt, new.seed, new.sample)
        self.is_plain[new.slot] = (
            self.parameters.is_plain(new.slot)
            and not (new.num_candidates or new.rotation_start)
            and new.adapter == NO_ADAPTER
        )

    def _fork(self, fork: Fork) -> None:
        source, target = fork.source, fork.target
        self._check_free(target)
        is_source_taken = 0 <= source < len(self.is_taken) and bool(self.is_taken[source])
        _require(is_source_taken, f"forks slot {source}, which is free")
        counts = (self.num_tokens, self.num_prompt, self.num_computed, self.num_candidates)
        for of_slot in (self.is_taken, *counts, self.adapters, self.is_plain):
            of_slot[target] = of_slot[source]
        self._rotate_from(target, int(self.rotation_starts[source]))
        self._empty_table(target)
        self.histories[target, : self.num_tokens[source]] = self.histories[source, : self.num_tokens[source]]
        self.parameters.copy(source, target, fork.sample)
        blocks = _column(fork.block_ids[0])
        self._append_blocks(numpy.array([target]), blocks, numpy.array([0, len(blocks)]))

    def _force(self, forced: ForcedTokens) -> None:
        tokens = numpy.frombuffer(forced.token_ids, numpy.int32)
        self._check_slots(numpy.array([forced.slot]), numpy.array([1]))
        start = int(self.num_tokens[forced.slot])
        _require(
            start + len(tokens) <= self.max_model_len,
            f"forces {len(tokens)} tokens on slot {forced.slot}, which has {start} of {self.max_model_len}",
        )
        self._check_tokens(tokens, forced.slot)
        self.histories[forced.slot, start : start + len(tokens)] = on_device(tokens.copy(), self.device)
        self.num_tokens[forced.slot] += len(tokens)

    def _rotate_from(self, slot: int, start: int) -> None:
        self.rotation_starts[slot] = start
        if self.device_rotation_starts is not None:
            self.device_rotation_starts[slot] = start

    def _empty_table(self, slot: int) -> None:
        self.num_table[slot] = 0
        self.tables[slot] = 0

    def _append_blocks(self, slots: _Ints, blocks: _Ints, offsets: _Ints) -> None:
        _require(
            len(offsets) == len(slots) + 1 and offsets[0] == 0 and offsets[-1] == len(blocks),
            f"has {len(offsets)} block offsets for {len(slots)} rows and {len(blocks)} blocks",
        )
        if not len(blocks):
            return
        _require(_all_within(blocks, self.num_blocks), f"names a block outside 0..{self.num_blocks - 1}")
        counts = numpy.diff(offsets)
        _require(
            bool((counts >= 0).all() and (self.num_table[slots] + counts <= self.tables.shape[1]).all()),
            f"makes a block table longer than {self.tables.shape[1]}",
        )
        row = numpy.repeat(numpy.arange(len(slots)), counts)
        place = numpy.arange(len(blocks)) - offsets[row] + self.num_table[slots[row]]
        where = (on_device(slots[row], self.device), on_device(place, self.device))
        self.tables[where] = on_device(blocks.astype(numpy.int32), self.device)
        self.num_table[slots] += counts

    def _advance(self, slots: _Ints, num_tokens: _Ints) -> StepRows:
        starts = self.num_computed[slots]
        is_at_end = starts + num_tokens == self.num_tokens[slots]
        is_searched = is_at_end & (self.num_candidates[slots] > 0)
        rows = StepRows(slots, num_tokens, starts, starts + num_tokens, is_at_end & ~is_searched, is_searched)
        self._check_counts(rows)
        self.num_computed[slots] = rows.ends
        self.num_tokens[slots] += rows.is_sampling
        return rows

    def _check_free(self, slot: int) -> None:
        is_free = 0 <= slot < len(self.is_taken) and not self.is_taken[slot]
        _require(is_free, f"puts a sequence into slot {slot}, which is taken or beyond {len(self.is_taken) - 1}")

    def _check_tokens(self, tokens: _Ints, slot: int) -> None:
        _require(
            _all_within(tokens, self.vocab_size),
            f"gives slot {slot} a token outside the vocabulary of {self.vocab_size}",
        )

    def _check_slots(self, slots: _Ints, num_tokens: _Ints) -> None:
        _require(
            len(slots) == len(num_tokens) and _all_within(slots, len(self.is_taken)) and self.is_taken[slots].all(),
            "computes a slot that is free",
        )
        _require(len(set(slots.tolist())) == len(slots), "computes a slot twice")
        _require(bool((num_tokens > 0).all()), "has a row without tokens")

    def _check_counts(self, rows: StepRows) -> None:
        known = self.num_tokens[rows.slots]
        reach = self.num_table[rows.slots] * self.block_size
        wrong = (rows.ends > known) | (rows.ends > reach) | (rows.wants_logits & (known >= self.max_model_len))
        if wrong.any():
            row = int(numpy.flatnonzero(wrong)[0])
            raise PlanError(
                f"The plan computes slot {rows.slots[row]} up to token {rows.ends[row]}, where {known[row]} are known, "
                f"its blocks reach {reach[row]}, and max_model_len is {self.max_model_len}."
            )


def _column(packed: bytes) -> _Ints:
    return numpy.frombuffer(packed, numpy.int32).astype(numpy.int64)


def _all_within(values: _Ints, bound: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < bound)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise PlanError(f"The plan {sentence}.")
