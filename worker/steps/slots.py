"""The worker's table of slots: each one's token history, counts, parameters, and its tables in the groups of layers.

Tokens are on the device. Counts are on the host, which advances them without knowing the sampled tokens, so that a step
never waits for the device. A plan that breaks a rule of the stream is refused before anything is computed.
"""

from collections.abc import Sequence

import numpy

from ...kernels.arrays import DeviceArray
from ...kernels.states import Segments
from ...protocol.adapter_messages import NO_ADAPTER
from ...protocol.layer_groups import GroupChanges, SpareStates
from ...protocol.messages import ChunkLayers, ForcedTokens, Fork, NewSlot, StepPlan
from ..description.groups import ONE_GROUP, LayerGroup
from ..device import Device
from ..plan_error import PlanError, require
from ..sampler import LogitsProcessors, ParameterTable
from .block_tables import BlockTables
from .drafts import StepDrafts
from .state_tables import StateTables
from .step_rows import Ints, StepRows, all_within, column

_NEVER = numpy.iinfo(numpy.int64).max


class SlotTable:
    def __init__(
        self,
        num_slots: int,
        max_model_len: int,
        num_blocks: Sequence[int],
        block_size: int,
        vocab_size: int,
        device: Device,
        processors: LogitsProcessors | None = None,
        shifts_rotations: bool = False,
        groups: Sequence[LayerGroup] = (ONE_GROUP,),
        media_tokens: Sequence[int] = (),
        rows_of_type: int = 0,
        padding_token: int | None = None,
    ) -> None:
        """`num_blocks`: by group. `shifts_rotations`: rows in the rotary tables may differ from positions.
        `rows_of_type`: of each type of text in a table of learned positions, if a text may have a second part.
        `padding_token`: takes none of the learned positions."""
        self.max_model_len = max_model_len
        self.block_size = block_size
        self.vocab_size = vocab_size
        self.device = device
        self.is_taken = numpy.zeros(num_slots, bool)
        self.num_tokens = numpy.zeros(num_slots, numpy.int64)  # known, or being sampled
        self.num_prompt = numpy.zeros(num_slots, numpy.int64)
        self.num_computed = numpy.zeros(num_slots, numpy.int64)
        self.first_draft = numpy.full(num_slots, _NEVER)  # the position from which on its history has drafts
        self.num_candidates = numpy.zeros(num_slots, numpy.int64)  # not 0: it returns candidates, not a sample
        self.is_pooled = numpy.zeros(num_slots, bool)  # its prompt's end gives vectors, not a sample
        self.adapters = numpy.full(num_slots, NO_ADAPTER, numpy.int64)
        # Offset from a position to its row in the rotary tables; negative after pictures.
        self.rotation_starts = numpy.zeros(num_slots, numpy.int64)
        self.rows_of_type = rows_of_type
        self.second_texts = numpy.full(num_slots, _NEVER)  # the position from which on its text has the second type
        self.padding_token = padding_token
        # From each token's position to its row of learned positions, of prompts that hold padding: [num_prompt].
        self.learned_shifts: dict[int, Ints] = {}
        # The same on the device, if it isn't 0 for all.
        self.device_rotation_starts: DeviceArray | None = None
        if shifts_rotations:
            self.device_rotation_starts = device.zeros((num_slots,), numpy.int64)
        # Which prompt tokens are media, if the model needs it.
        self.media_tokens = device.put(numpy.array(media_tokens, numpy.int64)) if media_tokens else None
        # Rows for time, height and width of prompts that have them: [3, num_prompt].
        self.prompt_rotations: dict[int, Ints] = {}
        # Whether the row only wants its next token, from unadjusted logits.
        self.is_plain = numpy.zeros(num_slots, bool)
        # Beyond its count a history holds tokens of earlier sequences, which are never read.
        self.histories = device.zeros((num_slots, max_model_len), numpy.int32)
        self.parameters = ParameterTable(num_slots, vocab_size, device, processors)
        self.begun: StepRows | None = None  # the chunk of a slot that only some layers have computed
        self.groups = [self._table_of(*each) for each in zip(groups, num_blocks, strict=True)]
        # Of each group, how many tokens after its own a query sees; nothing if none does.
        ahead = [group.num_seen_ahead for group in groups]
        self.seen_ahead = ahead if any(each != 0 for each in ahead) else []

    def _table_of(self, group: LayerGroup, num_blocks: int) -> BlockTables | StateTables:
        num_slots, max_blocks = len(self.is_taken), -(-self.max_model_len // self.block_size)
        if group.kind == "state":
            return StateTables(num_slots, num_blocks, self.block_size)
        return BlockTables(num_slots, max_blocks, num_blocks, self.block_size, group.window, self.device)

    def no_rows(self) -> StepRows:
        """An empty step."""
        rows = StepRows.none()
        rows.segments = tuple(Segments.none() if isinstance(each, StateTables) else None for each in self.groups)
        return rows

    def apply(self, plan: StepPlan, drafts: StepDrafts | None = None) -> StepRows:
        """Apply the plan in its stated order, and add drafts to its rows; afterwards the counts are those after the
        step."""
        self._free(column(plan.freed))
        for new in plan.new:
            self._enter(new)
        for fork in plan.forks:
            self._fork(fork)
        for forced in plan.forced:
            self._force(forced)
        for spare in plan.spares:
            self._spare(spare)
        slots, num_tokens = column(plan.slots), column(plan.num_tokens)
        if drafts is not None:
            self._check_slots(slots, num_tokens)
            for row, tokens in zip(drafts.rows, drafts.tokens):
                self._draft(int(slots[row]), tokens)
            num_tokens += drafts.num_drafted(len(slots))
        rows = self._rows(plan.groups, slots, num_tokens)
        self.num_computed[rows.slots] = rows.ends
        self.num_tokens[rows.slots] += rows.is_sampling
        return rows

    def take_back(self, rows: StepRows, drafts: StepDrafts) -> None:
        """Set the counts of rows with drafts to those after the tokens that count."""
        for row, count in zip(drafts.rows, drafts.num_accepted):
            slot, end = int(rows.slots[row]), int(rows.starts[row]) + 1 + count
            self.num_computed[slot], self.num_tokens[slot] = end, end + 1
            self.first_draft[slot] = _NEVER
            for group in self.groups:
                group.take_back(slot, end)

    def begin_layers(self, chunk: ChunkLayers) -> StepRows:
        """Apply a chunk that begins as if it were a step's only row; its tokens don't count as computed yet."""
        require(self.begun is None, f"begins a chunk of slot {chunk.slot} amid another")
        rows = self._rows(chunk.groups, numpy.array([chunk.slot]), numpy.array([chunk.num_tokens]))
        require(not rows.wants_logits.any(), f"computes the last token of slot {chunk.slot} layer by layer")
        self.begun = rows
        return rows

    def end_layers(self) -> None:
        """Count the tokens of the chunk whose last layer is computed."""
        if self.begun is not None:
            self.num_computed[self.begun.slots] = self.begun.ends
        self.begun = None

    def _free(self, slots: Ints) -> None:
        require(all_within(slots, len(self.is_taken)) and self.is_taken[slots].all(), "frees a slot that is free")
        self.is_taken[slots] = False
        if self.begun is not None and self.begun.slots[0] in slots:
            self.begun = None
        for slot in slots.tolist() if self.prompt_rotations else ():
            self.prompt_rotations.pop(slot, None)
        for slot in slots.tolist() if self.learned_shifts else ():
            self.learned_shifts.pop(slot, None)

    def _enter(self, new: NewSlot) -> None:
        tokens = numpy.frombuffer(new.token_ids, numpy.int32)
        self._check_free(new.slot)
        require(
            0 <= new.num_computed < len(tokens) <= self.max_model_len and 0 < new.num_prompt <= len(tokens),
            f"gives slot {new.slot} {len(tokens)} tokens, {new.num_prompt} of them prompt and {new.num_computed} "
            f"computed, where max_model_len is {self.max_model_len}",
        )
        self._check_tokens(tokens, new.slot)
        require(
            0 <= new.num_claimed <= len(tokens) - new.num_prompt and not (new.num_claimed and new.num_candidates),
            f"gives slot {new.slot} {len(tokens)} tokens, {new.num_prompt} of them prompt and {new.num_claimed} drafts",
        )
        self.is_taken[new.slot] = True
        self.num_tokens[new.slot] = len(tokens)
        self.num_prompt[new.slot] = new.num_prompt
        self.num_computed[new.slot] = new.num_computed
        self.num_candidates[new.slot] = new.num_candidates
        self.is_pooled[new.slot] = new.pooled is not None
        has_second = new.pooled is not None and new.pooled.second_text > 0 and self.rows_of_type > 0
        self.second_texts[new.slot] = new.pooled.second_text if has_second else _NEVER  # type: ignore[union-attr]
        self.first_draft[new.slot] = len(tokens) - new.num_claimed if new.num_claimed else _NEVER
        self.adapters[new.slot] = new.adapter
        if (is_padding := tokens == self.padding_token).any():
            self.learned_shifts[new.slot] = numpy.where(
                is_padding, -1 - numpy.arange(len(tokens)), -is_padding.cumsum()
            )
        is_shifted = self._rotate(new)
        self._empty_tables(new.slot)
        self.histories[new.slot, : len(tokens)] = self.device.put(tokens.copy())
        self.parameters.enter(new.slot, new.params, new.num_prompt, new.seed, new.sample)
        self.is_plain[new.slot] = (
            self.parameters.is_plain(new.slot)
            and is_shifted
            and self._ends_with_text(tokens[new.num_prompt - 1])
            and not (new.num_candidates or new.num_claimed or new.pooled)
            and new.adapter == NO_ADAPTER
        )

    def _ends_with_text(self, token: int) -> bool:
        """Whether a prompt's last token isn't media; earlier tokens are never computed alone."""
        return self.media_tokens is None or int(token) not in self.media_tokens

    def _fork(self, fork: Fork) -> None:
        source, target = fork.source, fork.target
        self._check_free(target)
        is_source_taken = 0 <= source < len(self.is_taken) and bool(self.is_taken[source])
        require(is_source_taken, f"forks slot {source}, which is free")
        is_whole = self.begun is None or self.begun.slots[0] != source
        require(is_whole, f"forks slot {source}, which has layers left to compute")
        counts = (self.num_tokens, self.num_prompt, self.num_computed, self.num_candidates, self.first_draft)
        for of_slot in (self.is_taken, *counts, self.is_pooled, self.adapters, self.is_plain):
            of_slot[target] = of_slot[source]
        self._rotate_from(target, int(self.rotation_starts[source]), self.prompt_rotations.get(source))
        self._empty_tables(target)
        self.histories[target, : self.num_tokens[source]] = self.histories[source, : self.num_tokens[source]]
        self.parameters.copy(source, target, fork.sample)
        for group, blocks in zip(self.groups, fork.block_ids, strict=True):
            group.fork(target, column(blocks))

    def _force(self, forced: ForcedTokens) -> None:
        tokens = numpy.frombuffer(forced.token_ids, numpy.int32)
        self._check_slots(numpy.array([forced.slot]), numpy.array([1]))
        start = int(self.num_tokens[forced.slot])
        require(
            start + len(tokens) <= self.max_model_len,
            f"forces {len(tokens)} tokens on slot {forced.slot}, which has {start} of {self.max_model_len}",
        )
        self._check_tokens(tokens, forced.slot)
        self.histories[forced.slot, start : start + len(tokens)] = self.device.put(tokens.copy())
        self.num_tokens[forced.slot] += len(tokens)

    def _spare(self, spare: SpareStates) -> None:
        group = self.groups[spare.group] if 0 <= spare.group < len(self.groups) else None
        if not isinstance(group, StateTables):
            raise PlanError(f"The plan gives slot {spare.slot} spare states in group {spare.group}, which keeps none.")
        self._check_slots(numpy.array([spare.slot]), numpy.array([1]))
        group.spare(spare.slot, column(spare.states))

    def _draft(self, slot: int, tokens: Ints) -> None:
        """Append drafts to a history of which only the last token is left to compute."""
        start = int(self.num_tokens[slot])
        require(
            start == self.num_computed[slot] + 1 and start + len(tokens) < self.max_model_len,
            f"drafts {len(tokens)} tokens for slot {slot}, which has {start} of {self.max_model_len}",
        )
        self.histories[slot, start : start + len(tokens)] = self.device.put(tokens)
        self.num_tokens[slot] += len(tokens)
        self.first_draft[slot] = start

    def _rotate(self, new: NewSlot) -> bool:
        """Whether one offset gives the rotary rows of the prompt's last token and of all answer tokens."""
        if not new.positions:
            self._rotate_from(new.slot, new.rotation_start, None)
            return True
        positions = numpy.frombuffer(new.positions, numpy.int32).astype(numpy.int64)
        require(
            len(positions) == 3 * new.num_prompt and int(positions.min()) >= 0,
            f"gives slot {new.slot} {len(positions)} positions of a prompt of {new.num_prompt}, and each has three",
        )
        by_axis, largest = positions.reshape(3, -1), int(positions.max())
        following = new.rotation_start + largest + 1 - new.num_prompt
        self._rotate_from(new.slot, following, by_axis + new.rotation_start)
        return bool((by_axis[:, -1] == largest).all())

    def _rotate_from(self, slot: int, start: int, of_prompt: Ints | None) -> None:
        self.rotation_starts[slot] = start
        self.prompt_rotations.pop(slot, None)
        if of_prompt is not None:
            self.prompt_rotations[slot] = of_prompt
        if self.device_rotation_starts is not None:
            self.device_rotation_starts[slot] = start

    def _empty_tables(self, slot: int) -> None:
        for group in self.groups:
            group.empty(slot)

    def _rows(self, groups: Sequence[GroupChanges], slots: Ints, num_tokens: Ints) -> StepRows:
        """The rows of a step or of a chunk; their tables are those after it, their counts not yet."""
        self._check_slots(slots, num_tokens)
        starts = self.num_computed[slots]
        is_at_end = starts + num_tokens == self.num_tokens[slots]
        is_searched = is_at_end & (self.num_candidates[slots] > 0)
        ends = starts + num_tokens
        num_drafts = numpy.maximum(0, ends - is_at_end - numpy.maximum(starts, self.first_draft[slots] - 1))
        is_sampling = is_at_end & ~is_searched & ~self.is_pooled[slots]
        rows = StepRows(slots, num_tokens, starts, ends, is_sampling, is_searched, num_drafts)
        self._check_counts(rows)
        require(len(groups) == len(self.groups), f"changes {len(groups)} groups of {len(self.groups)}")
        changed = zip(self.groups, groups, strict=True)
        rows.segments = tuple(group.advance(rows, changes) for group, changes in changed)
        return rows

    def _check_free(self, slot: int) -> None:
        is_free = 0 <= slot < len(self.is_taken) and not self.is_taken[slot]
        require(is_free, f"puts a sequence into slot {slot}, which is taken or beyond {len(self.is_taken) - 1}")

    def _check_tokens(self, tokens: Ints, slot: int) -> None:
        require(
            all_within(tokens, self.vocab_size),
            f"gives slot {slot} a token outside the vocabulary of {self.vocab_size}",
        )

    def _check_slots(self, slots: Ints, num_tokens: Ints) -> None:
        require(
            len(slots) == len(num_tokens) and all_within(slots, len(self.is_taken)) and self.is_taken[slots].all(),
            "computes a slot that is free",
        )
        require(len(set(slots.tolist())) == len(slots), "computes a slot twice")
        is_whole = self.begun is None or self.begun.slots[0] not in slots
        require(is_whole, "computes a slot that has layers left to compute")
        require(bool((num_tokens > 0).all()), "has a row without tokens")

    def _check_counts(self, rows: StepRows) -> None:
        known = self.num_tokens[rows.slots]
        wrong = (rows.ends > known) | (rows.wants_logits & (known >= self.max_model_len))
        if wrong.any():
            row = int(numpy.flatnonzero(wrong)[0])
            raise PlanError(
                f"The plan computes slot {rows.slots[row]} up to token {rows.ends[row]}, where {known[row]} are known "
                f"and max_model_len is {self.max_model_len}."
            )
