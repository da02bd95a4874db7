"""The budget of what clients make the daemon hold."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.budget import Budget, BudgetError


def test_one_client_cannot_take_more_than_its_share() -> None:
    budget = Budget(total=100, per_client=40)
    budget.charge("a", 40)
    with pytest.raises(BudgetError, match="one client may take"):
        budget.charge("a", 1)
    budget.charge("b", 40)


def test_all_clients_together_cannot_take_more_than_the_budget() -> None:
    budget = Budget(total=100, per_client=40)
    charges = [budget.charge(name, 40) for name in "ab"]
    with pytest.raises(BudgetError, match="set aside"):
        budget.charge("c", 21)
    charges[0].release()
    budget.charge("c", 21)


def test_a_refused_growth_leaves_the_charge_as_it_was() -> None:
    budget = Budget(total=100, per_client=40)
    charge = budget.charge("a", 30)
    with pytest.raises(BudgetError):
        charge.grow(11)
    assert (charge.num_bytes, budget.used, budget.used_by("a")) == (30, 30, 30)


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
