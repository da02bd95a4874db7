"""The budget of what clients make the daemon hold."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.requests.budget import Budget, BudgetError


def test_neither_one_client_nor_all_together_can_take_more_than_their_share() -> None:
    budget = Budget(total=100, per_client=40)
    charges = [budget.charge(name, 40) for name in "ab"]
    with pytest.raises(BudgetError, match="one client may take"):
        budget.charge("a", 1)
    with pytest.raises(BudgetError, match="set aside"):
        budget.charge("c", 21)
    charges[0].release()
    budget.charge("c", 21)


def test_those_who_hold_much_leave_room_for_those_who_hold_little() -> None:
    budget = Budget(total=1 << 30, per_client=1 << 28)
    for client in range(3):
        budget.charge(client, 1 << 28)  # all that may be held but for short requests
    with pytest.raises(BudgetError, match="short requests alone"):
        budget.charge("long", (1 << 18) + 1)
    for client in range(1024):
        budget.charge(("short", client), 1 << 18)
    assert budget.used == budget.total
    with pytest.raises(BudgetError):
        budget.charge("one more", 1)


def test_by_default_a_budget_is_a_share_of_the_memory() -> None:
    gib = 1 << 30
    assert [(budget.total, budget.per_client) for budget in map(Budget.of_memory, (64 * gib, 8 * gib, gib))] == [
        (gib, gib // 4), (gib // 2, gib // 8), (gib // 16, gib // 16),
    ]  # fmt: skip
    assert Budget.of_memory(gib, total=1000).per_client == 1000


def test_threads_that_grow_shrink_and_release_at_once_leave_nothing() -> None:
    budget = Budget(total=10**9, per_client=10**9)
    charge = budget.charge("a")

    def work(number: int) -> None:
        with suppress(BudgetError):
            for _ in range(2000):
                charge.grow(3)
                charge.shrink(2)
        if number == 0:
            charge.release()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert budget.used == charge.num_bytes == 0 and not budget._accounts


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-60, 60)), max_size=60))
def test_what_is_used_is_the_sum_of_all_charges(steps: list[tuple[str, int]]) -> None:
    budget = Budget(total=150, per_client=70)
    charges = {name: budget.charge(name) for name in "abc"}
    for name, num_bytes in steps:
        with suppress(BudgetError):
            charges[name].grow(num_bytes) if num_bytes > 0 else charges[name].shrink(-num_bytes)
        assert budget.used == sum(charge.num_bytes for charge in charges.values()) <= 150
        assert all(budget.used_by(name) == charge.num_bytes <= 70 for name, charge in charges.items())
    for charge in charges.values():
        charge.release()
        charge.release()
    assert budget.used == 0 and not budget._accounts


def test_what_is_given_back_where_no_thread_can_be_started_is_given_back(monkeypatch) -> None:
    monkeypatch.setattr("threading.Thread.start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    budget = Budget(total=1 << 30, per_client=1 << 30)
    with budget.charge("a", 700 << 20) as charge:
        charge.shrink(400 << 20)
    assert budget.used == 0 and charge.is_released
