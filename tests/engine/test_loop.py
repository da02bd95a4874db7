"""The loop over scripted sockets: what it sends to whom, and when it waits; what it agrees with its workers on.

Tokens that nobody waits for leave together: what the detokenizer makes of them stays the same.
"""

from collections import deque
from contextlib import closing

import msgspec
import pytest
from builders.engine_harness import answer, limits, prompt

from penstock.engine.loop import Loop
from penstock.engine.publisher import TokenBuffer
from penstock.engine.scheduler import Scheduler
from penstock.engine.workers import StopRequested, Workers
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.messages import (
    Abort,
    Allocate,
    Allocated,
    EngineInbox,
    Generate,
    Loaded,
    SequenceEnded,
    SequenceOpened,
    StepPlan,
    StepResult,
    Stop,
    Tokens,
    WorkerInbox,
)
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.processes.sockets import Inbox, Outbox
from penstock.protocol.processes.trace import Trace
from penstock.protocol.stats import Stats, StatsQuery
from penstock.protocol.wire import column, values, wide_column
from penstock.worker.stand_in.runner import StandInWorker


class Everyone:
    """All that the loop speaks to. Results come only when it would sleep: the worker is always behind."""

    def __init__(self, *messages) -> None:
        self.inbox = deque(messages)
        self.results: deque[StepResult] = deque()
        self.worker = StandInWorker(
            num_slots=8, groups=[GroupPlan("full", 1, 1, 64)], block_size=4, max_model_len=128, verify=True
        )
        self.sent: list = []
        self.in_flight: list[int] = []  # how many, whenever the loop went to sleep

    def receive(self, timeout: float | None = None):
        if self.inbox:
            return self.inbox.popleft()
        if timeout == 0:
            return None
        self.in_flight.append(len(self.results))
        return self.results.popleft() if self.results else Stop()

    def send(self, message) -> None:
        self.sent.append(message)
        if isinstance(message, StepPlan):
            self.results.append(self.worker.step(message))

    def note_answer(self, result: StepResult) -> None:
        self.sent.append(result)

    def told(self, kind: type) -> list:
        return [message for message in self.sent if isinstance(message, kind)]


def run(*messages) -> Everyone:
    everyone = Everyone(*messages)
    Loop(Scheduler(limits()), everyone, everyone, everyone, everyone, Trace(None, "engine")).run()
    return everyone


ASKED = prompt(1, [1, 2, 3], max_tokens=5)


def test_a_request_becomes_steps_two_of_them_in_flight_and_messages_with_tokens():
    everyone = run(Generate([ASKED]))
    told = everyone.told(Tokens)
    assert [token for each in told for token in values(each.token_ids)] == answer(ASKED, 0, 128)[0]
    assert [ended.finish_reason for each in told for ended in each.ended] == ["length"]
    assert everyone.in_flight == [2, 2, 2, 2, 1, 0]
    assert [values(each.num_tokens).tolist() for each in told] == [[1], [3], [1]], "nobody waits for those between"
    streamed = run(Generate([msgspec.structs.replace(ASKED, is_streamed=True)]), Abort([777]))
    assert len(streamed.told(Tokens)) == len(streamed.told(StepPlan)) == 5, (
        "one a step, and none where nothing happened"
    )


def test_stats_and_ends_without_a_step_are_told_at_once_and_stop_goes_on_to_the_workers_and_the_detokenizer():
    everyone = run(Generate([ASKED]), StatsQuery(), Stop())
    [stats, *stops] = everyone.sent
    assert (stats.waiting, stats.running, stats.blocks, stats.free_blocks) == (1, 0, 64, 64)
    assert isinstance(stats, Stats) and stops == [Stop(), Stop()]
    everyone = run(Generate([prompt(1, [])]), Generate([ASKED]), Abort([128]))
    assert everyone.told(StepPlan) == []
    (told,) = everyone.told(Tokens)
    assert {(ended.sequence_id, ended.error_code) for ended in told.ended} == {(128, 400), (128, 499)}


def test_a_flood_of_requests_or_of_aborts_is_taken_in_between_steps():
    """A step is planned after so many sequences, however they came: the workers don't wait for the rest."""
    prompts = [prompt(2 + number, [1, 2], n=2) for number in range(640)]
    requests = [Generate(prompts[start : start + 32]) for start in range(0, 640, 32)]
    aborts = [Abort(list(range(64 * group, 64 * (group + 1)))) for group in range(20)]
    for flood in (requests, aborts):
        everyone = Everyone(Generate([ASKED]), *flood)
        left = []
        everyone.send = lambda message, everyone=everyone, left=left: (
            left.append(len(everyone.inbox)) if isinstance(message, StepPlan) else None,
            Everyone.send(everyone, message),
        )
        Loop(Scheduler(limits()), everyone, everyone, everyone, everyone, Trace(None, "engine")).run()
        assert left[0] >= 19, "the first step is planned before the rest is looked at"


# --- tokens that leave together --------------------------------------------------------------------------------------


def opened(sequence_id: int, *, is_streamed: bool = False, **params) -> SequenceOpened:
    return SequenceOpened(sequence_id, 1, column([5]), SamplingParams(**params), is_streamed, 0, 0.0, 0.0, 0.0)


def step(*tokens: int, ids=(1, 2), **news) -> Tokens:
    return Tokens(wide_column(ids), column([1] * len(tokens)), column(tokens), 0.25, **news)


def plain(message: Tokens) -> tuple[list[int], list[int], float]:
    return values(message.num_tokens).tolist(), values(message.token_ids).tolist(), message.forward_time


def test_steps_of_the_same_sequences_leave_together_sequence_by_sequence():
    held = TokenBuffer()
    first = step(1, 11, opened=[opened(1), opened(2)])
    assert held.take(first) == [first], "a first token is told at once"
    assert held.take(step(2, 12)) == held.take(step(3, 13)) == []
    last = step(4, 14, ended=[SequenceEnded(1, "length")])
    together, after = held.take(last)
    assert plain(together) == ([2, 2], [2, 3, 12, 13], 0.5)
    assert after is last


def test_other_sequences_do_not_join_what_is_held_nor_do_several_tokens_at_once_and_it_does_not_grow_without_end():
    held = TokenBuffer()
    assert held.take(step(2, 12)) == []
    assert [plain(each) for each in held.take(step(3, ids=[1]))] == [([1, 1], [2, 12], 0.25)]
    assert [plain(each) for each in held.take(step(4, 9, ids=[1, 3], opened=[opened(3)]))] == [
        ([1], [3], 0.25),
        ([1, 1], [4, 9], 0.25),
    ]
    several = Tokens(wide_column([1]), column([3]), column([7, 8, 9]), 0.5)
    assert held.take(several) == [several]
    left = [message for _ in range(100) for message in held.take(step(1, 11))]
    assert [len(values(message.token_ids)) for message in left] == [64] * 3


def test_nothing_is_held_while_someone_waits_for_every_token():
    for watched in (opened(2, is_streamed=True), opened(2, stop=["."])):
        held = TokenBuffer()
        held.take(step(1, 11, opened=[opened(1), watched]))
        following = step(2, 12)
        assert held.take(following) == [following]
        held.take(step(3, 13, ended=[SequenceEnded(2, "length")]))
        assert held.take(step(4, ids=[1])) == [], "the last one that was watched has ended"


# --- workers ---------------------------------------------------------------------------------------------------------

PLAN = MemoryPlan("cpu", "", 0, 0, 0, [GroupPlan("full", 2, 0, 100, None, 40)], 4096, 8192, 512, "float32", "float32")
SMALLER = msgspec.structs.replace(PLAN, groups=[GroupPlan("full", 2, 0, 90, None, 30)], max_model_len=2880)


def test_all_ranks_allocate_what_every_one_can_keep_unless_a_stop_comes_before(tmp_path):
    workers = Workers(tmp_path, EngineConfig(model="m", tensor_parallel_size=2))
    with (
        closing(Inbox(tmp_path, "engine", EngineInbox)) as engine,
        closing(Inbox(tmp_path, "worker0", WorkerInbox)) as first,
        closing(Inbox(tmp_path, "worker1", WorkerInbox)) as second,
        closing(Outbox(tmp_path, "engine")) as outbox,
    ):
        for message in (Loaded(1, SMALLER), StatsQuery(), Loaded(0, PLAN), Allocated(1), Allocated(0)):
            outbox.send(message)
        agreed = workers.agree(engine)
        assert (agreed.num_blocks, agreed.num_cpu_blocks) == (90, 30)
        assert (agreed.max_model_len, agreed.model_context) == (2880, 8192)
        assert first.receive(60) == second.receive(60) == Allocate([90], 2880, [30])
        outbox.send(Stop())
        with pytest.raises(StopRequested):
            workers.agree(engine)
        assert first.receive(60) == second.receive(60) == Stop()
