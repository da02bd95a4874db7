"""The loop over scripted sockets: what it sends to whom, and when it waits."""

from collections import deque

import msgspec
from builders.engine_harness import answer, limits, prompt

from penstock.engine.loop import Loop
from penstock.engine.scheduler import Scheduler
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.messages import (
    Abort,
    Generate,
    StepPlan,
    StepResult,
    Stop,
    Tokens,
    values,
)
from penstock.protocol.processes.trace import Trace
from penstock.protocol.stats import Stats, StatsQuery
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


def test_a_request_becomes_steps_and_tokens():
    everyone = run(Generate([ASKED]))
    tokens = [token for told in everyone.told(Tokens) for token in values(told.token_ids)]
    assert tokens == answer(ASKED, 0, 128)[0]
    assert [ended.finish_reason for told in everyone.told(Tokens) for ended in told.ended] == ["length"]


def test_two_steps_are_in_flight_whenever_it_sleeps_with_work_to_do():
    everyone = run(Generate([ASKED]))
    assert everyone.in_flight == [2, 2, 2, 2, 1, 0]


def test_one_message_a_step_of_a_streamed_answer_and_none_where_nothing_happened():
    streamed = msgspec.structs.replace(ASKED, is_streamed=True)
    everyone = run(Generate([streamed]), Abort([777]))
    assert len(everyone.told(Tokens)) == len(everyone.told(StepPlan)) == 5


def test_tokens_between_the_first_and_the_last_come_together_where_nobody_waits_for_them():
    everyone = run(Generate([ASKED]))
    assert [values(told.num_tokens).tolist() for told in everyone.told(Tokens)] == [[1], [3], [1]]


def test_an_end_without_a_step_is_published_at_once():
    everyone = run(Generate([prompt(1, [])]), Generate([ASKED]), Abort([128]))
    assert everyone.told(StepPlan) == []
    (told,) = everyone.told(Tokens)
    assert {(ended.sequence_id, ended.error_code) for ended in told.ended} == {(128, 400), (128, 499)}


def test_stats_are_answered():
    (stats,) = run(Generate([ASKED]), StatsQuery()).told(Stats)
    assert (stats.waiting, stats.running, stats.blocks, stats.free_blocks) == (1, 0, 64, 64)


def test_stop_goes_on_to_the_workers_and_the_detokenizer():
    everyone = run(Generate([ASKED]), Stop())
    assert everyone.told(Stop) == everyone.sent == [Stop(), Stop()]


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
