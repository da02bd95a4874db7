"""How a worker takes what the engine sends: plans in order, masks whenever they are wanted, a stop at any time."""

import pytest
from builders.hand_planned import plan

from penstock.protocol.messages import MaskFrame, Stop, WorkerInbox
from penstock.protocol.processes.sockets import Inbox, Outbox
from penstock.worker.__main__ import Plans, Stopped


@pytest.fixture
def engine_and_plans(tmp_path):
    plans = Plans(Inbox(tmp_path, "worker0", WorkerInbox))
    engine = Outbox(tmp_path, "worker0")
    yield engine, plans
    engine.close()
    plans.inbox.close()


def mask(step: int) -> MaskFrame:
    return MaskFrame(step, b"", b"")


def test_a_mask_may_come_before_its_plan_or_after_the_next(engine_and_plans):
    engine, plans = engine_and_plans
    for message in (mask(0), plan(0, []), plan(1, []), plan(2, []), mask(1)):
        engine.send(message)
    assert plans.next().step == 0
    assert plans.mask(0).step == 0
    assert plans.next().step == 1
    assert plans.mask(1).step == 1
    assert plans.next().step == 2


def test_masks_that_were_not_needed_are_forgotten(engine_and_plans):
    engine, plans = engine_and_plans
    for message in (mask(0), mask(1), plan(0, [])):
        engine.send(message)
    plans.next()
    plans.forget_masks(0)
    assert list(plans._masks) == [1]


def test_a_stop_ends_any_wait(engine_and_plans):
    engine, plans = engine_and_plans
    for message in (plan(0, []), Stop()):
        engine.send(message)
    plans.next()
    with pytest.raises(Stopped):
        plans.mask(0)
