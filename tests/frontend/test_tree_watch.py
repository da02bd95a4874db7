"""How long processes may take: in proportion to what they compute, and counted only while somebody looks."""

import threading
import time
from types import SimpleNamespace

import pytest
from builders.watching import wait_until

from penstock.frontend.session.tree.tree_watch import TreeWatch
from penstock.frontend.session.tree.watchdog import Timer, Watchdog
from penstock.protocol.processes.heartbeat import HeartbeatLine

SECOND = 10**9


def watch(weight_bytes: int, max_model_len: int = 1024, block_bytes: int = 32, timeout: float = 10.0) -> TreeWatch:
    plan = SimpleNamespace(weight_bytes=weight_bytes, max_model_len=max_model_len, block_bytes=block_bytes)
    tree = SimpleNamespace(plan=plan, config=SimpleNamespace(block_size=32), children=[], is_ready=True)
    return TreeWatch(tree, timeout)


def in_a_step_of(tokens: int, *, steps: int, tokens_before: int, seconds_before: float) -> HeartbeatLine:
    step_time = int(seconds_before * SECOND)
    return HeartbeatLine(0, 0, tokens_before + tokens, 0, tokens_before, 0, steps, step_time)


def test_a_step_has_time_in_proportion_to_its_tokens():
    measured = dict(steps=100, tokens_before=100, seconds_before=50.0)
    few, many = (watch(10**9).step_seconds(in_a_step_of(tokens, **measured)) for tokens in (8, 512))
    assert many == pytest.approx(64 * few)
    assert many > 10 * 512 * 0.5


def test_a_step_of_one_token_has_the_time_of_those_before_it():
    # 100 prompts of 512 tokens, 30 s each: a token was 0.06 s, but the next step reads all weights again.
    signs = in_a_step_of(1, steps=100, tokens_before=51_200, seconds_before=3000.0)
    assert watch(10**9).step_seconds(signs) >= 10 * 30.0


def test_a_long_history_is_expected_after_short_ones():
    signs = in_a_step_of(512, steps=100, tokens_before=51_200, seconds_before=100.0)
    short, long = (watch(10**9, length, 32 * 10_000).step_seconds(signs) for length in (1024, 131_072))
    assert long > 2 * short


def test_the_first_steps_have_the_time_of_a_slow_machine():
    first = in_a_step_of(512, steps=0, tokens_before=0, seconds_before=0)
    assert watch(30 * 10**9).step_seconds(first) > 3600, "30 billion weights on two cores"
    assert watch(10**6).step_seconds(first) == 50.0, "kernels may have to be compiled"


@pytest.fixture
def looks():
    """A watchdog of 0.2 s; what it is told, and whether it waits."""
    told = SimpleNamespace(seconds=[], begun=0, is_waited_for=False)

    def begin() -> None:
        told.begun += 1

    told.watchdog = Watchdog(0.2, lambda: told.is_waited_for, begin, told.seconds.append)
    yield told
    told.watchdog.stop()


def test_a_watchdog_looks_only_while_somebody_waits(looks):
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: len(looks.seconds) > 2, 10, "it looks")
    looks.is_waited_for = False
    wait_until(lambda: looks.begun == 1 and not looking(looks), 10, "it sleeps")
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: looks.begun == 2, 10, "it begins anew")


def looking(looks: SimpleNamespace) -> bool:
    before = len(looks.seconds)
    time.sleep(0.1)  # five of its intervals
    return len(looks.seconds) != before


def test_time_in_which_the_watchdog_did_not_run_itself_does_not_count(looks, monkeypatch):
    clock = SimpleNamespace(ahead=0.0)
    monotonic = time.monotonic
    monkeypatch.setattr("penstock.frontend.session.tree.watchdog.time.monotonic", lambda: monotonic() + clock.ahead)
    looks.is_waited_for = True
    looks.watchdog.wake()
    wait_until(lambda: bool(looks.seconds), 10, "it looks")
    clock.ahead = 3600.0
    before = len(looks.seconds)
    wait_until(lambda: len(looks.seconds) > before + 2, 10, "it looks again")
    assert max(looks.seconds) <= 0.04 + 1e-9


def test_without_a_bound_nobody_looks():
    before = threading.active_count()
    watchdog = Watchdog(0.0, lambda: True, lambda: None, lambda seconds: None)
    watchdog.wake()
    assert threading.active_count() == before
    watchdog.stop()


def test_a_timer_counts_from_the_last_change_on():
    timer = Timer()
    for sign, seconds in ((1, 5.0), (1, 2.0), (1, 2.0)):
        timer.count(sign, seconds)
    assert timer.seconds == 4.0
    timer.count(2, 2.0)
    assert timer.seconds == 0.0
