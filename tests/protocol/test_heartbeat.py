"""The page of heartbeats: what a child writes is what the front end reads; pings are answered where work is done."""

import os
from contextlib import closing

import pytest

from penstock.protocol.messages import EngineInbox
from penstock.protocol.processes.heartbeat import Heartbeat, Heartbeats, Ping, WatchedInbox
from penstock.protocol.processes.sockets import Outbox
from penstock.protocol.stats import StatsQuery

ROLES = ("engine", "detokenizer", "worker 0", "worker 1")


def test_each_child_writes_a_line_of_its_own():
    page = Heartbeats(num_ranks=2)
    beats = {role: Heartbeat.of(role, os.dup(page.descriptor)) for role in ROLES}
    for number, role in enumerate(ROLES, start=1):
        beats[role].answer(number)
        for _ in range(number):
            beats[role].taken()
    assert [page.read(role)[:2] for role in ROLES] == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_steps_that_overlap_are_counted_one_after_another():
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("worker 0", os.dup(page.descriptor))
    beat.begin_step(512)
    beat.begin_step(3)
    assert page.read("worker 0").step_tokens == 515
    beat.end_step()
    between = page.read("worker 0")
    assert (between.steps, between.done, between.step_tokens) == (1, 512, 3)
    beat.end_step()
    after = page.read("worker 0")
    assert (after.steps, after.done, after.step_tokens) == (2, 515, 0)


def test_an_answer_never_goes_back():
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("engine", os.dup(page.descriptor))
    beat.answer(7)
    beat.answer(5)
    assert page.read("engine").answered == 7


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_an_inbox_answers_pings_and_shows_nobody_any(tmp_path, timeout):
    page = Heartbeats(num_ranks=1)
    beat = Heartbeat.of("engine", os.dup(page.descriptor))
    with (
        closing(WatchedInbox(tmp_path, "engine", EngineInbox, beat)) as inbox,
        closing(Outbox(tmp_path, "engine")) as outbox,
    ):
        for message in (Ping(1), StatsQuery(4), Ping(2), Ping(3), StatsQuery(5)):
            outbox.send(message)
        inbox.socket.poll(5000)
        assert inbox.receive() == StatsQuery(4)
        assert page.read("engine")[:2] == (1, 1)
        inbox.socket.poll(5000)
        assert inbox.receive(timeout) == StatsQuery(5)
        assert page.read("engine")[:2] == (2, 3)
        assert inbox.receive(0) is None


def test_without_a_page_nothing_is_written_anywhere():
    beat = Heartbeat.of("engine", -1)
    beat.taken()
    beat.begin_step(1)
    beat.end_step()


def test_a_closed_page_still_says_what_stood_there_and_holds_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    page = Heartbeats(1)
    Heartbeat.of("engine", os.dup(page.descriptor)).answer(7)
    page.close()
    page.close()
    assert page.read("engine").answered == 7
    assert len(os.listdir("/proc/self/fd")) == before
