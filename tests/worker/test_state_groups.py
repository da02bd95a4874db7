"""Steps of a model whose layers keep states: cut anywhere, copied, found again, a state has seen its tokens alone."""

from random import Random

import pytest
import torch
from builders.group_planner import GroupPlanner
from builders.state_runner import GROUPS, LENGTH, STATES, follower, prompt_of, state_runner

from penstock.kernels.cpu.decode import Decode, Parameters
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.program import Step
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import StepPlan, column
from penstock.worker.backends.native.fast_decode import _slots, _tables


def is_right(tokens: list[int], num_prompt: int) -> bool:
    return all(tokens[place] == follower(tokens[:place]) for place in range(num_prompt, len(tokens)))


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_right_however_prompts_are_cut_and_wherever_states_change(seed):
    chance, planner = Random(seed), GroupPlanner(state_runner(), seed)
    lengths = [chance.randrange(1, 30) for _ in range(4)]
    entering = [planner.add(slot, prompt_of(length)) for slot, length in enumerate(lengths)]
    for _ in range(20):
        rows = []
        for slot in chance.sample(range(4), 3):
            each = planner.sequences[slot]
            rows.append((slot, chance.randint(1, len(each.tokens) - each.num_computed)))
        used = [slot for slot, _ in rows]
        own = [new for new in entering if new.slot in used]
        entering = [new for new in entering if new.slot not in used]
        fresh = (chance.choice(used),) if chance.random() < 0.2 else ()
        planner.step(rows, fresh, new=own)
    assert any(each.answer for each in planner.sequences.values())
    for length, each in zip(lengths, (planner.sequences[slot] for slot in range(4)), strict=True):
        assert is_right(each.tokens, length)


def test_a_fork_goes_on_from_its_parent_s_state_and_leaves_it_alone():
    planner = GroupPlanner(state_runner())
    planner.step([(0, 9)], new=[planner.add(0, prompt_of(9))])
    planner.step([(0, 1), (3, 1)], forks={3: 0})
    for _ in range(6):
        planner.step([(0, 1), (3, 1)])
    assert planner.sequences[0].tokens == planner.sequences[3].tokens
    assert is_right(planner.sequences[0].tokens, 9)


def test_a_checkpoint_is_found_again_and_comes_back_from_the_second_tier():
    runner = state_runner()
    planner = GroupPlanner(runner)
    prompt = prompt_of(13)
    planner.step([(0, 9)], (0,), new=[planner.add(0, prompt)])  # the first 8 tokens' state stays as it is
    [kept, _] = planner.sequences[0].tables[2]
    for _ in range(4):
        planner.step([(0, 1)])
    none = GroupChanges(b"", column([0]))
    moves = GroupChanges(b"", column([0]), saves=column([kept, 5]))
    runner.step(StepPlan(90, b"", b"", [none, none, moves]), lambda step: None)
    runner.memory.groups[2].convolved[:, kept] = 999
    loaded = GroupChanges(column([7, 8]), column([0, 2]), starts=column([0, 8]), loads=column([5, 7]))
    blocks = GroupChanges(column(range(4)), column([0, 4]))
    again = planner.add(1, prompt)
    again.num_computed = 8
    result = runner.step(
        StepPlan(91, column([1]), column([5]), [blocks, blocks, loaded], new=[again]), lambda step: None
    )
    assert result.sampled == column([follower(prompt)])


# --- native steps of answers ------------------------------------------------------------------------------------------


def test_a_native_step_of_answers_changes_the_same_as_any_other():
    """Blocks, windows and states, some of which are appended at or behind the token."""
    appended = [[(5, 9)], [], [(6, 10), ], [(1, 9), (2, 10)]]  # fmt: skip
    tables = []
    for is_native in (False, True):
        runner = state_runner()
        table = runner.table
        for slot in range(4):
            planner = GroupPlanner(runner, slot)
            planner.free = [list(range(slot * 9, slot * 9 + 9)) for _ in range(2)] + [[10 + slot]]
            planner.step([(slot, 9)], new=[planner.add(slot, prompt_of(9))])
        ids = [state for row in appended for state, _ in row]
        starts = column(start for row in appended for _, start in row)
        offsets = column([sum(map(len, appended[:row])) for row in range(5)])
        slots, counts, none = column(range(4)), column([1] * 4), GroupChanges(b"", column([0] * 5))
        plan = StepPlan(9, slots, counts, [none, none, GroupChanges(column(ids), offsets, starts)])
        steps = [Step() for _ in GROUPS]
        if is_native:
            decode = Decode(
                load(),
                steps,
                [_tables(group) for group in table.groups],
                _slots(table),
                Parameters(),
                torch.zeros(8, 4),
            )
            assert decode.begin(plan.slots, plan.num_tokens, plan.groups, LENGTH)
            found = [(steps[2].num_segments, _ints(steps[2].segment_reads), _ints(steps[2].segment_writes))]
        else:
            rows = table.apply(plan)
            segments = rows.segments[2]
            found = [(len(segments.reads), segments.reads.tolist(), segments.writes.tolist())]
        states = table.groups[2]
        tables.append([*found, states.reads.tolist(), states.writes.tolist(), table.num_computed.tolist()])
    assert tables[0] == tables[1]
    assert tables[0][0] == (4, [10, 11, 12, 10 + 3], [5, 11, 12, 1])


@pytest.mark.parametrize(
    "states",
    [
        GroupChanges(column([STATES]), column([0, 1]), column([9])),
        GroupChanges(column([-1]), column([0, 1]), column([9])),
        GroupChanges(column([3]), column([0, 1]), column([11])),
        GroupChanges(column([3]), column([0, 1]), b""),
    ],
    ids=["unknown", "absent", "behind the next token", "nowhere"],
)
def test_a_native_step_whose_states_break_a_rule_is_refused_and_changes_nothing(states):
    runner = state_runner()
    planner = GroupPlanner(runner)
    planner.step([(0, 9)], new=[planner.add(0, prompt_of(9))])
    table, none = runner.table, GroupChanges(b"", column([0, 0]))
    tables = [_tables(group) for group in table.groups]
    decode = Decode(load(), [Step() for _ in GROUPS], tables, _slots(table), Parameters(), torch.zeros(8, 4))
    before = [table.num_computed.tolist(), table.groups[2].reads.tolist(), table.groups[2].writes.tolist()]
    assert not decode.begin(column([0]), column([1]), [none, none, states], LENGTH)
    assert [table.num_computed.tolist(), table.groups[2].reads.tolist(), table.groups[2].writes.tolist()] == before


def _ints(address: int, count: int = 4) -> list[int]:
    import ctypes

    return list((ctypes.c_int32 * count).from_address(address))
