"""What a worker does without a model: it applies and checks every plan, and makes up tokens from the history.

With `verify` it also keeps, for every position in every KV block and cell, a chained hash of the tokens that were
computed into it, and compares what a row reads through its table with the row's own history: one wrong block, too early
or too late, ends the run. `__main__.py` is its process, `worker/steps/runner.py` the real runner.
"""

import time
from array import array
from collections.abc import Callable, Iterator

from ...protocol.layer_groups import GroupChanges
from ...protocol.messages import (
    Candidates,
    FailedRow,
    Fork,
    Logprobs,
    MaskFrame,
    NewSlot,
    StepPlan,
    StepResult,
    column,
    values,
)
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.processes.faults import point
from ..plan_error import PlanError

VOCAB_SIZE = 512
_PRIME = 2**31 - 1
_EMPTY = -1  # a place in a block that nothing was computed into


IsAllowed = Callable[[int], bool]
AwaitMask = Callable[[int], MaskFrame]


class Slot:
    """One sequence, and with `verify` the chained hash after each of its tokens."""

    __slots__ = (
        "adapter",
        "chain",
        "endings",
        "min_total",
        "num_candidates",
        "num_computed",
        "num_prompt",
        "params",
        "rotation_start",
        "salt",
        "table",
        "tokens",
        "wants_logprobs",
    )

    def __init__(self, new: NewSlot) -> None:
        params = new.params
        self.tokens = values(new.token_ids)
        self.num_prompt = new.num_prompt
        self.num_computed = new.num_computed
        self.params = params
        self.salt = _salt(params, new.seed, new.sample)
        self.endings = params.ending_ids
        self.min_total = max(new.num_prompt + params.min_tokens, params.min_length)
        self.wants_logprobs = params.logprobs is not None or params.prompt_logprobs is not None
        self.num_candidates = new.num_candidates
        self.table: list[int] = []
        self.chain: list[int] = []
        self.adapter = new.adapter  # keys and values depend on it
        self.rotation_start = new.rotation_start  # and on this

    def chain_up_to(self, end: int) -> list[int]:
        for position in range(len(self.chain), end):
            previous = self.chain[-1] if self.chain else (self.adapter, self.rotation_start)
            self.chain.append(hash((previous, self.tokens[position])) & 0x7FFFFFFFFFFFFFFF)
        return self.chain


class StandInWorker:
    """`step` is what a real worker's runner does: plan in, result out."""

    def __init__(
        self,
        *,
        num_slots: int,
        num_blocks: int,
        block_size: int,
        max_model_len: int,
        num_cells: int = 0,
        vocab_size: int = VOCAB_SIZE,
        verify: bool = False,
    ) -> None:
        self.num_blocks = num_blocks
        self.num_cells = num_cells
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.slots: list[Slot | None] = [None] * num_slots
        self.contents = [_EMPTY] * (num_blocks * block_size if verify else 0)
        self.cells = [_EMPTY] * (num_cells * block_size if verify else 0)
        self.verify = verify
        self.num_computed = 0  # tokens, since the start

    def step(self, plan: StepPlan, await_mask: AwaitMask | None = None) -> StepResult:
        point("worker.step")
        start = time.perf_counter()
        self._apply_rare(plan)
        slots = values(plan.slots)
        (changes,) = plan.groups
        self._append_blocks(changes, slots)
        self._move_blocks(changes)
        self._copy_blocks(values(changes.copies))
        rows, starts = self._compute(plan, slots)
        logprobs = list(self._prompt_logprobs(rows, starts))
        allowed = _allowed(await_mask(plan.step)) if plan.masked and await_mask else {}
        result = self._sample(plan.step, rows, allowed)
        result.logprobs = logprobs + result.logprobs
        result.forward_time = time.perf_counter() - start
        return result

    # --- the plan, in its stated order ------------------------------------------------------------------------------

    def _apply_rare(self, plan: StepPlan) -> None:
        for slot in values(plan.freed):
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
        self.slots[new.slot] = entered

    def _fork(self, fork: Fork) -> None:
        source = self._taken(fork.source, "forks")
        self._require_free(fork.target)
        packed = source.tokens.tobytes()
        # The salt of a fork is its source's: the protocol gives it no seed of its own.
        copy = Slot(NewSlot(fork.target, packed, source.num_prompt, source.num_computed, source.params, 0, fork.sample))
        copy.salt = source.salt + fork.sample
        copy.num_candidates = source.num_candidates
        copy.adapter, copy.rotation_start = source.adapter, source.rotation_start
        copy.table = self._within(values(fork.block_ids[0])).tolist()
        self.slots[fork.target] = copy

    def _append_blocks(self, changes: GroupChanges, slots: array) -> None:
        blocks, offsets = self._within(values(changes.block_ids)), values(changes.block_offsets)
        if len(offsets) != len(slots) + 1 or offsets[0] != 0 or offsets[-1] != len(blocks):
            raise PlanError(f"The plan has {len(offsets)} block offsets for {len(slots)} rows, {len(blocks)} blocks.")
        if not blocks:
            return
        start = 0
        for slot, end in zip(slots, offsets[1:], strict=True):
            if start != end:
                self._taken(slot, "appends blocks to").table += blocks[start:end]
                start = end

    def _move_blocks(self, changes: GroupChanges) -> None:
        saves, loads = values(changes.saves), values(changes.loads)
        self._within(saves[::2] + loads[1::2])
        cells, targets = saves[1::2] + loads[::2], (saves[1::2], loads[1::2])
        if cells and not 0 <= min(cells) <= max(cells) < self.num_cells:
            raise PlanError(f"The plan names a cell outside 0..{self.num_cells - 1}: {cells.tolist()}.")
        if any(len(set(each)) != len(each) for each in targets):
            raise PlanError(f"The plan fills a cell or a block twice: {saves.tolist()}, {loads.tolist()}.")
        self._copy(saves, self.contents, self.cells)
        self._copy(loads, self.cells, self.contents)

    def _copy_blocks(self, pairs: array) -> None:
        self._copy(self._within(pairs), self.contents, self.contents)

    def _copy(self, pairs: array, sources: list[int], targets: list[int]) -> None:
        if self.verify:
            size = self.block_size
            for source, target in zip(pairs[::2], pairs[1::2], strict=True):
                targets[target * size : (target + 1) * size] = sources[source * size : (source + 1) * size]

    def _compute(self, plan: StepPlan, slots: array) -> tuple[list[Slot], list[int]]:
        """The rows, and where each began. All are computed before any reads, as in each layer of a model."""
        num_tokens = values(plan.num_tokens)
        if len(num_tokens) != len(slots) or len(set(slots)) != len(slots):
            raise PlanError(f"The plan computes slots {slots.tolist()} with {len(num_tokens)} counts.")
        if slots and not 0 <= min(slots) <= max(slots) < len(self.slots):
            raise PlanError(f"The plan computes slots {slots.tolist()}, and there are {len(self.slots)}.")
        rows = [self.slots[slot] or self._taken(slot, "computes") for slot in slots]
        starts = [row.num_computed for row in rows]
        for row, start, count in zip(rows, starts, num_tokens, strict=True):
            row.num_computed = end = start + count
            if count < 1 or end > len(row.tokens) or end > len(row.table) * self.block_size:
                raise PlanError(
                    f"The plan computes {count} tokens of a slot up to {end}, where {len(row.tokens)} are known and "
                    f"its {len(row.table)} blocks of {self.block_size} end at {len(row.table) * self.block_size}."
                )
        self.num_computed += sum(num_tokens)
        if self.verify:
            for row, start in zip(rows, starts, strict=True):
                self._write(row, start)
            for slot, row in zip(slots, rows, strict=True):
                self._read(slot, row)
        return rows, starts

    def _taken(self, slot: int, what: str) -> Slot:
        if not 0 <= slot < len(self.slots) or (held := self.slots[slot]) is None:
            raise PlanError(f"The plan {what} slot {slot}, which is free or beyond {len(self.slots) - 1}.")
        return held

    def _require_free(self, slot: int) -> None:
        if not 0 <= slot < len(self.slots) or self.slots[slot] is not None:
            raise PlanError(f"The plan fills slot {slot}, which is taken or beyond {len(self.slots) - 1}.")

    def _within(self, blocks: array) -> array:
        if blocks and not 0 <= min(blocks) <= max(blocks) < self.num_blocks:
            raise PlanError(f"The plan names a block outside 0..{self.num_blocks - 1}: {blocks.tolist()}.")
        return blocks

    # --- KV contents ------------------------------------------------------------------------------------------------

    def _write(self, row: Slot, start: int) -> None:
        chain = row.chain_up_to(row.num_computed)
        for position in range(start, row.num_computed):
            block, offset = divmod(position, self.block_size)
            self.contents[row.table[block] * self.block_size + offset] = chain[position]

    def _read(self, slot: int, row: Slot) -> None:
        size, chain = self.block_size, row.chain
        for index in range(-(-row.num_computed // size)):
            own = chain[index * size : min((index + 1) * size, row.num_computed)]
            start = row.table[index] * size
            if self.contents[start : start + len(own)] != own:
                raise PlanError(
                    f"Slot {slot} reads block {row.table[index]} for its tokens from {index * size} on, and other "
                    "tokens were computed into it."
                )

    # --- sampling ---------------------------------------------------------------------------------------------------

    def _sample(self, step: int, rows: list[Slot], allowed: dict[int, IsAllowed]) -> StepResult:
        logprobs: list[Logprobs] = []
        failed: list[FailedRow] = []
        candidates: list[Candidates] = []
        num_sampled, sampled = array("i"), array("i")
        is_nan = point("worker.logits") == "nan"
        for number, row in enumerate(rows):
            tokens = row.tokens
            if row.num_computed < len(tokens):
                num_sampled.append(0)
                continue
            if len(tokens) >= self.max_model_len:
                raise PlanError(f"Row {number} of step {step} samples a token beyond {self.max_model_len}.")
            if row.num_candidates:
                candidates.append(likely_tokens(row, number, self.vocab_size))
                num_sampled.append(0)
                continue
            token = next_token(row, self.vocab_size, allowed.get(number) if allowed else None)
            tokens.append(token)
            if is_nan:
                is_nan = False
                failed.append(FailedRow(number, "The model's scores are not numbers (injected)."))
                num_sampled.append(0)
                continue
            num_sampled.append(1)
            sampled.append(token)
            if row.wants_logprobs and row.params.logprobs is not None:
                logprobs.append(_logprobs(number, False, [token], row.params.logprobs, self.vocab_size))
        return StepResult(step, num_sampled.tobytes(), sampled.tobytes(), 0.0, failed, logprobs, candidates)

    def _prompt_logprobs(self, rows: list[Slot], starts: list[int]) -> Iterator[Logprobs]:
        for number, row in enumerate(rows):
            if not row.wants_logprobs:
                continue
            start, last, top = starts[number], min(row.num_computed, row.num_prompt - 1), row.params.prompt_logprobs
            if top is not None and start < last:
                yield _logprobs(number, True, row.tokens[start + 1 : last + 1].tolist(), top, self.vocab_size)


def next_token(row: Slot, vocab_size: int, is_allowed: IsAllowed | None = None) -> int:
    """A function of the last token, its position and, unless greedy, the seed: nothing else may change it."""
    tokens = row.tokens
    token = (tokens[-1] * 48271 + len(tokens) * 16807 + row.salt) % _PRIME % vocab_size
    if is_allowed is None and len(tokens) >= row.min_total:
        return token
    while (len(tokens) < row.min_total and token in row.endings) or (is_allowed and not is_allowed(token)):
        token = (token + 1) % vocab_size
    return token


def likely_tokens(row: Slot, number: int, vocab_size: int) -> Candidates:
    """As many as the row asks for. How fast their probability falls depends on the history, as does which they are."""
    tokens = row.tokens
    first = (tokens[-1] * 48271 + len(tokens) * 16807) % _PRIME
    falling = 0.03 + first % 97 / 40
    ids = [(first + place * 37) % vocab_size for place in range(row.num_candidates)]
    logprobs = array("f", [-0.2 - place * falling for place in range(row.num_candidates)])
    return Candidates(number, column(ids), logprobs.tobytes())


def _salt(params: SamplingParams, seed: int, sample: int) -> int:
    return 0 if params.is_greedy else (seed * 69621 + sample * 40692 + 1) % _PRIME


def _allowed(frame: MaskFrame) -> dict[int, IsAllowed]:
    """By row, whether a token's bit is set."""
    rows, words = values(frame.rows), array("I", frame.bits)
    width = len(words) // max(1, len(rows))

    def allows(start: int) -> IsAllowed:
        return lambda token: bool(words[start + token // 32] >> (token % 32) & 1)

    return {row: allows(place * width) for place, row in enumerate(rows)}


def _logprobs(owner: int, is_prompt: bool, chosen: list[int], top: int, vocab_size: int) -> Logprobs:
    """Of the right shape: the chosen token is always the most likely one."""
    width = 1 + (vocab_size if top < 0 else top)
    ids = [(token + max(0, place - 1)) % vocab_size for token in chosen for place in range(width)]
    likely = array("f", [-0.5 * max(1, place) for place in range(width)] * len(chosen))
    return Logprobs(owner, is_prompt, width, column(ids), likely.tobytes(), column([1] * len(chosen)))
