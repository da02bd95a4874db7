"""What the engine agrees with its workers on."""

from contextlib import closing

import msgspec
import pytest

from penstock.engine.workers import StopRequested, Workers, agreed_plan
from penstock.protocol.layer_groups import GroupChanges, GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.messages import (
    Allocate,
    Allocated,
    EngineInbox,
    Loaded,
    StepPlan,
    StepResult,
    Stop,
    WorkerInbox,
    column,
)
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.processes.recording import read_recording
from penstock.protocol.processes.sockets import Inbox, Outbox
from penstock.protocol.stats import StatsQuery

PLAN = MemoryPlan("cpu", "", 0, 0, 0, [GroupPlan("full", 2, 0, 100, None, 40)], 4096, 8192, 512, "float32", "float32")
SMALLER = msgspec.structs.replace(PLAN, groups=[GroupPlan("full", 2, 0, 90, None, 30)], max_model_len=2880)


def test_the_plan_is_what_every_rank_can_keep():
    agreed = agreed_plan([PLAN, SMALLER])
    assert (agreed.num_blocks, agreed.num_cpu_blocks) == (90, 30)
    assert (agreed.max_model_len, agreed.model_context) == (2880, 8192)


def test_all_ranks_allocate_the_same_before_the_engine_is_ready(tmp_path):
    workers = Workers(tmp_path, EngineConfig(model="m", tensor_parallel_size=2))
    with (
        closing(Inbox(tmp_path, "engine", EngineInbox)) as engine,
        closing(Inbox(tmp_path, "worker0", WorkerInbox)) as first,
        closing(Inbox(tmp_path, "worker1", WorkerInbox)) as second,
        closing(Outbox(tmp_path, "engine")) as outbox,
    ):
        for message in (Loaded(1, SMALLER), StatsQuery(), Loaded(0, PLAN), Allocated(1), Allocated(0)):
            outbox.send(message)
        assert workers.agree(engine).num_blocks == 90
        assert first.receive(5) == second.receive(5) == Allocate([90], 2880, [30])


def test_a_stop_before_that_goes_on_to_the_workers(tmp_path):
    workers = Workers(tmp_path, EngineConfig(model="m"))
    with (
        closing(Inbox(tmp_path, "engine", EngineInbox)) as engine,
        closing(Inbox(tmp_path, "worker0", WorkerInbox)) as worker,
        closing(Outbox(tmp_path, "engine")) as outbox,
    ):
        outbox.send(Stop())
        with pytest.raises(StopRequested):
            workers.agree(engine)
        assert worker.receive(5) == Stop()


def test_the_stream_is_recorded_with_its_answers(tmp_path):
    path = tmp_path / "stream"
    workers = Workers(tmp_path, EngineConfig(model="m", record=str(path)))
    plan = StepPlan(0, column([0]), column([1]), [GroupChanges(b"", column([0, 0]))])
    answer = StepResult(0, column([1]), column([5]), 0.1)
    workers.send(plan)
    workers.note_answer(answer)
    recorded = read_recording(path, StepPlan | StepResult)
    assert [(each.message, each.is_answer) for each in recorded] == [(plan, False), (answer, True)]
