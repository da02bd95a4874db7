"""The runner of a worker without a model: it applies and checks every plan, and `made_up.py` samples.

With `verify` it also keeps, for everything in its memory, a chained hash of the tokens that were computed into it
(`contents.py`), and compares the hashes that a row reads through its tables with the row's own history: one wrong block
or state ends the run. `__main__.py` is its process, `worker/runner.py` the real runner.
"""

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...protocol.layer_groups import GroupChanges, GroupPlan
from ...protocol.media import MediaPlan, MediaRows
from ...protocol.messages import ChunkLayers, Fork, MaskFrame, NewSlot, StepPlan, StepResult
from ...protocol.processes.faults import point
from ...protocol.wire import values
from ..plan_error import PlanError
from .contents import AnyContents, RowSpan, StateContents, StateSlot, contents_of
from .made_up import PRIME, IsAllowed, allowed_by, prompt_logprobs, salt_of, sampled
from .media import MediaMemory, Row

VOCAB_SIZE = 512

AwaitMask = Callable[[int], MaskFrame]
# Expected media rows of a sequence's tokens, by position, if known.
ExpectedMedia = Callable[[NewSlot], Mapping[int, Row]]


class Slot:
    """One sequence, and with `verify` the chained hash after each of its tokens."""

    __slots__ = (
        "adapter",
        "chain",
        "endings",
        "first_draft",
        "media",
        "min_total",
        "num_candidates",
        "num_computed",
        "num_prompt",
        "params",
        "pooled",
        "rotation_start",
        "salt",
        "tables",
        "tokens",
    )

    def __init__(self, new: NewSlot) -> None:
        params = new.params
        self.tokens = values(new.token_ids)
        self.num_prompt = new.num_prompt
        self.first_draft = len(self.tokens) - new.num_claimed if new.num_claimed else PRIME  # a position
        self.num_computed = new.num_computed
        self.params = params
        self.salt = salt_of(params, new.seed, new.sample)
        self.endings = params.ending_ids
        self.min_total = max(new.num_prompt + params.min_tokens, params.min_length)
        self.num_candidates = new.num_candidates
        self.pooled = new.pooled
        self.tables: list[list[int] | StateSlot] = []  # by group
        self.chain: list[int] = []
        self.adapter = new.adapter  # keys and values depend on it
        self.rotation_start = new.rotation_start  # and on this
        self.media: Mapping[int, Row] | None = None  # and on these rows, if they are known

    def chain_up_to(self, end: int) -> list[int]:
        for position in range(len(self.chain), end):
            previous = self.chain[-1] if self.chain else (self.adapter, self.rotation_start)
            row = self.media.get(position) if self.media else None
            token = self.tokens[position] if row is None else (self.tokens[position], row)
            self.chain.append(hash((previous, token)) & 0x7FFFFFFFFFFFFFFF)
        return self.chain


class LayeredChunk:
    """The chunk that is computed layer by layer."""

    def __init__(self, chunk: ChunkLayers, slot: Slot) -> None:
        self.chunk = chunk
        self.slot = slot
        self.num_layers = 0  # computed


class StandInWorker:
    """Like a real worker's runner: `step` takes a plan and returns a result."""

    def __init__(
        self,
        *,
        num_slots: int,
        groups: Sequence[GroupPlan],
        block_size: int,
        max_model_len: int,
        vocab_size: int = VOCAB_SIZE,
        verify: bool = False,
        media: MediaPlan | None = None,
        expected_media: ExpectedMedia | None = None,
        num_layers: int = 0,
    ) -> None:
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.slots: list[Slot | None] = [None] * num_slots
        self.groups: list[AnyContents] = [contents_of(group, block_size, verify) for group in groups]
        self.verify = verify
        self.num_computed = 0  # tokens, since the start
        self.media = MediaMemory(media)
        self._expected_media = expected_media
        self.num_layers = num_layers
        self._layered: LayeredChunk | None = None

    def step(self, plan: StepPlan, await_mask: AwaitMask | None = None) -> StepResult:
        point("worker.step")
        start = time.perf_counter()
        self._apply_rare(plan)
        slots = values(plan.slots)
        if len(plan.groups) != len(self.groups):
            raise PlanError(f"The plan changes {len(plan.groups)} groups of layers, and there are {len(self.groups)}.")
        for number, changes in enumerate(plan.groups):
            self._change(number, changes, slots)
        self.media.apply(plan)
        for layers in plan.layered:
            self._compute_layers(layers)
        rows, starts = self._compute(plan, slots)
        logprobs = prompt_logprobs(rows, starts, self.vocab_size)
        allowed = allowed_by(await_mask(plan.step)) if plan.masked and await_mask else {}
        result = self._sample(plan.step, rows, starts, allowed)
        result.logprobs = logprobs + result.logprobs
        result.forward_time = time.perf_counter() - start
        return result

    # --- the plan, in its stated order ------------------------------------------------------------------------------

    def _apply_rare(self, plan: StepPlan) -> None:
        for slot in values(plan.freed):
            if self._layered is not None and self._taken(slot, "frees") is self._layered.slot:
                self._layered = None
            self._taken(slot, "frees")
            self.slots[slot] = None
        for new in plan.new:
            self._enter(new)
        for fork in plan.forks:
            self._fork(fork)
        for forced in plan.forced:
            self._taken(forced.slot, "forces tokens on").tokens.extend(values(forced.token_ids))

    def _enter(self, new: NewSlot) -> None:
        self._require_free(new.slot)
        entered = Slot(new)
        known = len(entered.tokens)
        if not 0 <= new.num_computed < known <= self.max_model_len or not 0 < new.num_prompt <= known:
            raise PlanError(
                f"The plan gives slot {new.slot} {known} tokens, {new.num_prompt} of them prompt and "
                f"{new.num_computed} computed, where max_model_len is {self.max_model_len}."
            )
        if min(entered.tokens) < 0 or max(entered.tokens) >= self.vocab_size:
            raise PlanError(f"The plan gives slot {new.slot} a token outside the vocabulary of {self.vocab_size}.")
        if len(new.positions) not in (0, 12 * new.num_prompt):
            raise PlanError(
                f"The plan gives slot {new.slot} positions that are not three for each of its prompt's tokens."
            )
        if self._expected_media is not None:
            entered.media = self._expected_media(new)
        entered.tables = [group.table(array("i")) for group in self.groups]
        self.slots[new.slot] = entered

    def _fork(self, fork: Fork) -> None:
        source = self._taken(fork.source, "forks")
        if self._layered is not None and source is self._layered.slot:
            raise PlanError(f"The plan forks slot {fork.source}, which has layers left to compute.")
        self._require_free(fork.target)
        packed = source.tokens.tobytes()
        # A fork has its source's salt: the protocol gives it no separate seed.
        copy = Slot(NewSlot(fork.target, packed, source.num_prompt, source.num_computed, source.params, 0, fork.sample))
        copy.salt = source.salt + fork.sample
        copy.num_candidates = source.num_candidates
        copy.adapter, copy.rotation_start, copy.media = source.adapter, source.rotation_start, source.media
        tables = zip(self.groups, fork.block_ids, strict=True)
        copy.tables = [group.table(values(block_ids)) for group, block_ids in tables]
        self.slots[fork.target] = copy

    def _change(self, number: int, changes: GroupChanges, slots: array) -> None:
        group, blocks, offsets = self.groups[number], values(changes.block_ids), values(changes.block_offsets)
        starts = values(changes.starts)
        group.check_ids(blocks, starts)
        if len(offsets) != len(slots) + 1 or offsets[0] != 0 or offsets[-1] != len(blocks):
            raise PlanError(f"The plan has {len(offsets)} block offsets for {len(slots)} rows, {len(blocks)} blocks.")
        begin = 0
        for slot, end in zip(slots, offsets[1:], strict=True) if blocks else ():
            if begin != end:
                table: Any = self._taken(slot, "appends blocks to").tables[number]
                group.append(table, blocks[begin:end], starts[begin:end])
                begin = end
        if changes.saves or changes.loads:
            group.move(values(changes.saves), values(changes.loads))
        if changes.copies:
            group.copy(values(changes.copies))

    def _compute(self, plan: StepPlan, slots: array) -> tuple[list[Slot], list[int]]:
        """Compute the rows; return them with their starts. All write before any reads, as in each layer of a model."""
        num_tokens = values(plan.num_tokens)
        if len(num_tokens) != len(slots) or len(set(slots)) != len(slots):
            raise PlanError(f"The plan computes slots {slots.tolist()} with {len(num_tokens)} counts.")
        if slots and not 0 <= min(slots) <= max(slots) < len(self.slots):
            raise PlanError(f"The plan computes slots {slots.tolist()}, and there are {len(self.slots)}.")
        rows = [self.slots[slot] or self._taken(slot, "computes") for slot in slots]
        if self._layered is not None and self._layered.slot in rows:
            raise PlanError(f"The plan computes rows {slots.tolist()}, and one of them has layers left to compute.")
        starts = [row.num_computed for row in rows]
        for row, start, count in zip(rows, starts, num_tokens, strict=True):
            row.num_computed = end = start + count
            if count < 1 or end > len(row.tokens) or end > self._reach(row):
                raise PlanError(
                    f"The plan computes {count} tokens of a slot up to {end}, where {len(row.tokens)} are known and "
                    f"its blocks end at {self._reach(row)}."
                )
        self.num_computed += sum(num_tokens)
        self._check_media(plan.media, rows, starts, num_tokens)
        for number, group in enumerate(self.groups):
            if self.verify or isinstance(group, StateContents):
                each_row = zip(slots, rows, starts, strict=True)
                group.compute([self._span(number, *row, row[1].num_computed) for row in each_row])
        return rows, starts

    def _compute_layers(self, layers: ChunkLayers) -> None:
        """Compute layers of a chunk, whose tokens count as computed after the last one."""
        row = self._taken(layers.slot, "computes layers of")
        if layers.first_layer == 0:
            if self._layered is not None:
                raise PlanError(f"The plan begins a chunk of slot {layers.slot} by layers amid another.")
            for number, changes in enumerate(layers.groups):
                self._change(number, changes, array("i", [layers.slot]))
            self._layered = LayeredChunk(layers, row)
            self._check_media(layers.media, [row], [row.num_computed], array("i", [layers.num_tokens]))
        begun, end = self._layered, row.num_computed + layers.num_tokens
        if begun is None or begun.slot is not row or begun.chunk.num_tokens != layers.num_tokens:
            raise PlanError(f"The plan goes on with a chunk of slot {layers.slot} that it hasn't begun.")
        if not begun.num_layers == layers.first_layer < layers.end_layer <= self.num_layers:
            raise PlanError(f"The plan computes layers {layers} after {begun.num_layers} of {self.num_layers}.")
        if layers.num_tokens < 1 or end >= len(row.tokens) or end > self._reach(row):
            raise PlanError(f"The plan computes layers of slot {layers.slot} up to {end} of {len(row.tokens)} tokens.")
        begun.num_layers, is_last = layers.end_layer, layers.end_layer == self.num_layers
        for number, group in enumerate(self.groups):
            span = self._span(number, layers.slot, row, row.num_computed, end)
            group.compute_layers(span, layers.first_layer == 0, is_last)
        if is_last:
            row.num_computed, self._layered = end, None
            self.num_computed += layers.num_tokens

    def _check_media(self, media: list[MediaRows], rows: list[Slot], starts: list[int], num_tokens: array) -> None:
        """Check that each token gets the expected row, if known."""
        given: dict[int, dict[int, Row]] = {}
        for number, offset, medium_row in self.media.rows(media, num_tokens):
            given.setdefault(number, {})[starts[number] + offset] = medium_row
        for number, row in enumerate(rows):
            if row.media is not None:
                end = starts[number] + num_tokens[number]
                expected = {index: row.media[index] for index in row.media if starts[number] <= index < end}
                if given.get(number, {}) != expected:
                    raise PlanError(f"Row {number} is given the rows of media {given.get(number)}, not {expected}.")
                if self.media.has_whole_spans and {end - 1, end} <= row.media.keys():
                    raise PlanError(f"Row {number} ends at {end}, within rows of media that see one another.")

    def _reach(self, row: Slot) -> int:
        """The position that its blocks reach in all groups."""
        reach = self.max_model_len
        for group, table in zip(self.groups, row.tables):
            end = group.reach(table)  # type: ignore[arg-type]
            reach = reach if end is None or end > reach else end
        return reach

    def _span(self, group: int, slot: int, row: Slot, start: int, end: int) -> RowSpan:
        chain = row.chain_up_to(end) if self.verify else row.chain
        return RowSpan(slot, row.tables[group], start, end, chain)

    def _taken(self, slot: int, what: str) -> Slot:
        if not 0 <= slot < len(self.slots) or (held := self.slots[slot]) is None:
            raise PlanError(f"The plan {what} slot {slot}, which is free or beyond {len(self.slots) - 1}.")
        return held

    def _require_free(self, slot: int) -> None:
        if not 0 <= slot < len(self.slots) or self.slots[slot] is not None:
            raise PlanError(f"The plan fills slot {slot}, which is taken or beyond {len(self.slots) - 1}.")

    def _sample(
        self, step: int, rows: list[Slot], starts: list[int], allowed: dict[int, list[IsAllowed]]
    ) -> StepResult:
        return sampled(step, rows, starts, allowed, self.vocab_size, self.max_model_len)
