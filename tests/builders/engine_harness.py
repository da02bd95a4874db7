"""Drives a `Scheduler` against a verifying stand-in worker in one process, and hears what a detokenizer would.

`answer` is what a request must get whatever its company: the harness is only there to find out whether it does.
"""

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

import msgspec
from builders.disk_model import DiskModel
from builders.drafting_stand_in import DraftingWorker
from builders.kv_router import Router

from penstock.engine.adapters import AdapterTable
from penstock.engine.admission.limits import Limits
from penstock.engine.loop import STEPS_IN_FLIGHT
from penstock.engine.memory.window_blocks import WindowBlocks
from penstock.engine.scheduler import Scheduler
from penstock.protocol.layer_groups import ABSENT, GroupPlan
from penstock.protocol.media import Medium
from penstock.protocol.messages import (
    FailedRow,
    MaskFrame,
    NewSlot,
    Prompt,
    SequenceEnded,
    SequenceOpened,
    StepPlan,
    StepResult,
    Tokens,
    sequence_id,
)
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, values, wide_values
from penstock.worker.stand_in.made_up import next_token
from penstock.worker.stand_in.media import Row, content_of
from penstock.worker.stand_in.runner import Slot, StandInWorker

VOCABULARY = 512
TOKENS = [(7 * place) % 500 for place in range(200)]  # of a prompt
# The tokens that may follow those of an answer; None: any.
Following = Callable[[list[int], Prompt], set[int] | None]


def key(number: int) -> bytes:
    """A block's key, of which nothing else is known."""
    return number.to_bytes(4, "big")


def limits(**options) -> Limits:
    """With one group of full attention, unless `groups` are given."""
    full = GroupPlan("full", 1, 1, options.pop("num_blocks", 64), None, options.pop("num_cpu_blocks", 0))
    small = {
        "groups": (full,),
        "block_size": 4,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
        "static_decode_blocks": 0,
    }
    return Limits(**{**small, **options})


def prompt(request_id: int, token_ids: Iterable[int], *, client: str = "", media=(), **params) -> Prompt:
    settled = SamplingParams(**{"temperature": 0, "max_tokens": 8, "eos_token_id": [], **params})
    packed = column(token_ids)
    positions = bytes(3 * len(packed)) if media else b""
    return Prompt(
        request_id, packed, settled, request_id, arrival_time=0.0, client=client, media=list(media), positions=positions
    )


def medium(picture: int, *spans: tuple[int, int], num_patches: int = 8) -> Medium:
    """A picture of one pixel, whose rows stand at these spans of start and length."""
    pixels = bytes([picture] * 3)
    digest = hashlib.sha256(pixels).digest()
    return Medium("image", digest, pixels, (1, 1, 1), column(place for span in spans for place in span), num_patches)


def media_rows(asked: Prompt) -> dict[int, Row]:
    rows = {}
    for each in asked.media:
        spans = values(each.spans)
        places = [place for start, length in zip(spans[::2], spans[1::2]) for place in range(start, start + length)]
        rows.update({place: (content_of(each.kind, each.pixels), row) for row, place in enumerate(places)})
    return rows


def answer(asked: Prompt, sample: int, max_model_len: int, following: Following | None = None) -> tuple[list[int], str]:
    """The tokens and the finish reason of one sample, computed alone and with no engine at all."""
    params = asked.params
    num_prompt = len(asked.token_ids) // 4
    row = Slot(NewSlot(0, asked.token_ids, num_prompt, 0, params, asked.seed, sample))
    longest = min(max_model_len, num_prompt + params.max_tokens)
    endings = params.ending_ids
    while len(row.tokens) < longest:
        allowed = None if following is None else following(row.tokens[num_prompt:].tolist(), asked)
        is_complete = asked.grammar is not None and allowed == endings
        if is_complete and (not endings or len(row.tokens) < row.min_total):
            return row.tokens[num_prompt:].tolist(), "stop"
        row.tokens.append(next_token(row, VOCABULARY, None if allowed is None else allowed.__contains__))
        if row.tokens[-1] in endings and len(row.tokens) >= row.min_total:
            return row.tokens[num_prompt:].tolist(), "stop"
    return row.tokens[num_prompt:].tolist(), "length"


def with_claims(asked: Prompt, wholes: list[list[int]], wrong: int) -> Prompt:
    """A request whose samples are claimed to say these, with another token at the place `wrong`, if there is one."""
    claims = [column([token ^ (place == wrong) for place, token in enumerate(each)]) for each in wholes]
    return msgspec.structs.replace(asked, claims=claims)


def drawn(asked: Prompt, sample: int, whole: list[int], reason: str) -> tuple[list[int], str]:
    """What becomes of an answer that is claimed: it ends with the first token that isn't the claimed one."""
    if sample < len(asked.claims):
        for place, pair in enumerate(zip(values(asked.claims[sample]), whole)):
            if pair[0] != pair[1]:
                return whole[: place + 1], "abort"
    return whole, reason


class Heard:
    def __init__(self, opened: SequenceOpened) -> None:
        self.opened = opened
        self.said = [] if opened.said is None else values(opened.said.token_ids).tolist()
        self.published: list[int] = []  # after these
        self.prompt_positions = self.positions = 0  # with log-probabilities, of the prompt and of the answer
        self.forward_time = opened.forward_time
        self.preemptions = 0
        self.ended: SequenceEnded | None = None

    @property
    def tokens(self) -> list[int]:
        return self.said + self.published


class Harness:
    """`plan` and `finish` one at a time, or `run` until nothing is left to do."""

    def __init__(
        self,
        *,
        shares_prefixes: bool = True,
        adapters: AdapterTable | None = None,
        drafts: int = 0,
        is_observed: bool = False,
        **options,
    ) -> None:
        """`drafts`: the seed of what rows with room draft. With `is_observed` a router follows the cache by its events,
        and must know it exactly after every step."""
        self.now = 0.0  # what time it is to the scheduler
        self.tick = 0.0  # what each look at the clock takes
        self.limits = limits(**options)
        self.scheduler = Scheduler(self.limits, shares_prefixes=shares_prefixes, adapters=adapters, clock=self._clock)
        self.router = Router(self.scheduler.cache, self.scheduler.adapters) if is_observed else None
        self._media: dict[int, dict[int, Row]] = {}  # by the seed, which is the request's number
        kind = StandInWorker if self.limits.draft_limits is None else partial(DraftingWorker, drafts)
        self.worker = kind(
            num_slots=self.limits.num_slots,
            groups=self.limits.groups,
            block_size=self.limits.block_size,
            max_model_len=self.limits.max_model_len,
            verify=True,
            media=self.limits.media,
            expected_media=lambda new: self._media[new.seed],
            num_layers=self.limits.num_layers,
        )
        num_disks = self.limits.num_disks
        self.disk = DiskModel(num_disks, self.worker, random.Random(num_disks)) if num_disks else None
        self.results: deque[StepResult] = deque()
        self.plans: list[StepPlan] = []
        self.heard: dict[int, Heard] = {}
        self.num_steps: Counter[int] = Counter()  # that a sequence was in before it ended

    def _clock(self) -> float:
        self.now += self.tick
        return self.now

    def add(self, *prompts: Prompt) -> Self:
        for each in prompts:
            self._media[each.seed] = media_rows(each)
            self.scheduler.add(each)
        self._hear_ends()
        return self

    def abort(self, *sequence_ids: int) -> None:
        self.scheduler.abort(sequence_ids)
        self._hear_ends()

    def plan(self) -> StepPlan | None:
        """Plan a step; the worker takes plans in order, so it may as well compute it at once."""
        if self.disk is not None:
            self.disk.answer_some(self.scheduler)
        plan = self.scheduler.plan()
        self.scheduler.check()
        if self.router is not None:
            self.router.check()
        self._hear_ends()
        if plan is not None:
            self._check_stretches()
            self._check_windows()
            self.plans.append(plan)
            self._compute(plan)
        return plan

    def _compute(self, plan: StepPlan, masks: Callable[[int], MaskFrame] | None = None) -> None:
        result = self.worker.step(plan, masks)
        if plan.disk is not None:
            self.disk.take(plan.disk)
        result.forward_time = 1.0  # so that times told are numbers of steps
        self.results.append(result)

    def _check_stretches(self) -> None:
        """What runs has positions for so many tokens."""
        stretches = self.limits.stretches
        for sequence in self.scheduler.running.decoding + self.scheduler.running.prefilling if stretches else ():
            if sequence.is_running:
                shorter = stretches[sequence.stretch - 1] if sequence.stretch else 0
                assert sequence.num_computed <= stretches[sequence.stretch], "positions beyond its stretch"
                assert sequence.num_known > shorter, "stretched too early"

    def _check_windows(self) -> None:
        """No row of the newest step reads a block that was given back."""
        step, groups = self.scheduler.in_flight[-1], self.scheduler.cache.groups
        for sequence, count in zip(step.rows, step.num_tokens, strict=True):
            for group, table in zip(groups, sequence.tables, strict=True):
                if isinstance(group, WindowBlocks):
                    first = group.first_read(sequence.num_computed - count)
                    assert ABSENT not in table.block_ids[first:], "a row reads a block that was given back"

    def finish(self) -> None:
        """The oldest result reaches the engine."""
        step = self.scheduler.in_flight[0]
        computed = step.rows + step.layered_sequences
        self.num_steps.update(sequence.id for sequence in computed if not sequence.has_ended)
        self._hear(self.scheduler.finish(self.results.popleft()))
        self.scheduler.check()
        if self.router is not None:
            self.router.check()

    def fail(self) -> None:
        """The only row of the oldest result has failed."""
        result = self.results[0]
        result.num_sampled, result.sampled, result.failed = column([0]), b"", [FailedRow(0, "injected")]
        self.finish()

    def step(self, count: int = 1) -> None:
        """So many steps, of which the next is planned when the last one is finished."""
        for _ in range(count):
            self.plan()
            self.finish()

    def go_on(self, steps_in_flight: int = STEPS_IN_FLIGHT) -> bool:
        """Plan as far ahead as may be, and finish the oldest step; False if there is none."""
        while len(self.results) < steps_in_flight and self.plan() is not None:
            pass
        if is_any := bool(self.results):
            self.finish()
        return is_any

    def run(self, steps_in_flight: int = STEPS_IN_FLIGHT) -> Self:
        while self.go_on(steps_in_flight) or (self.disk is not None and self.disk.answer(self.scheduler)):
            pass
        assert not self.scheduler.sequences, "sequences are left, and nothing is planned for them"
        return self

    def visit(self, request_id: int, token_ids: Iterable[int], **params) -> int:
        """Run one request alone, whose answer is right in any case; how many of its tokens its last sample found."""
        asked = prompt(request_id, token_ids, **{"max_tokens": 2, **params})
        self.add(asked).run()
        for sample in range(asked.params.n):
            expected = answer(asked, sample, self.limits.max_model_len)[0]
            assert self.tokens(request_id, sample) == expected, f"sample {sample} of {asked}"
        return self.num_cached(request_id, asked.params.n - 1)

    def tokens(self, request_id: int, sample: int = 0) -> list[int]:
        return self.heard[sequence_id(request_id, sample)].tokens

    def num_cached(self, request_id: int, sample: int = 0) -> int:
        return self.heard[sequence_id(request_id, sample)].opened.num_cached

    def ended(self, request_id: int, sample: int = 0) -> SequenceEnded | None:
        heard = self.heard.get(sequence_id(request_id, sample))
        return heard.ended if heard else None

    def rows(self, plan: StepPlan) -> dict[int, int]:
        return dict(zip(values(plan.slots), values(plan.num_tokens), strict=True))

    def _hear_ends(self) -> None:
        if (tokens := self.scheduler.take_ends()) is not None:
            self._hear(tokens)

    def _hear(self, told: Tokens) -> None:
        for opened in told.opened:
            assert opened.sequence_id not in self.heard, "opened twice"
            self.heard[opened.sequence_id] = Heard(opened)
        for resumed in told.resumed:
            self.heard[resumed.sequence_id].forward_time += resumed.forward_time
            self.heard[resumed.sequence_id].preemptions += resumed.preemptions
        tokens = iter(values(told.token_ids))
        for sequence, count in zip(wide_values(told.sequence_ids), values(told.num_tokens), strict=True):
            heard = self.heard[sequence]
            assert heard.ended is None, "a token came after the end"
            heard.published += [next(tokens) for _ in range(count)]
            heard.forward_time += told.forward_time
        for entry in told.logprobs:
            heard, count = self.heard[entry.owner], len(entry.ranks) // 4
            heard.prompt_positions += entry.is_prompt * count
            heard.positions += (not entry.is_prompt) * count
        for ended in told.ended:
            heard = self.heard[ended.sequence_id]
            assert heard.ended is None, "ended twice"
            heard.ended = ended
