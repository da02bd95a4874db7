"""Steps of a model whose layers keep states, planned by hand and by the engine: cut anywhere, copied, found again, a
state has seen its tokens alone, and answers are right, whatever is scarce.
"""

import ctypes
from random import Random

import numpy
from builders.cases import for_each
from builders.group_planner import GROUPS, LENGTH, STATES, GroupPlanner, follower, prompt_of, state_runner
from builders.runner_harness import TinyEngine, prompt

from penstock.kernels.cpu.decode import Decode
from penstock.kernels.cpu.library import load
from penstock.kernels.cpu.structs import DrawColumns, Step
from penstock.kernels.torch.arrays import array_of
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import StepPlan
from penstock.protocol.parameters.beams import BeamSearchParams
from penstock.protocol.wire import column
from penstock.worker.backends.native.fast_decode import _slots, _tables
from penstock.worker.steps.slots import SlotTable


def is_right(tokens: list[int], num_prompt: int) -> bool:
    return all(tokens[place] == follower(tokens[:place]) for place in range(num_prompt, len(tokens)))


@for_each("seed", range(3))
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


def decode_of(table: SlotTable, steps: list[Step]) -> Decode:
    """Native steps read the arrays whose memory the table's tensors are."""
    table.histories = array_of(table.histories)
    for group in table.groups[:2]:
        group.tables = array_of(group.tables)
    tables = [_tables(group) for group in table.groups]
    return Decode(load(), steps, tables, _slots(table), DrawColumns(), numpy.zeros((8, 4), numpy.float32))


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
            decode = decode_of(table, steps)  # the steps point into it
            assert decode.begin(plan.slots, plan.num_tokens, plan.groups, LENGTH)
            reads, writes = (
                list((ctypes.c_int32 * 4).from_address(address))
                for address in (steps[2].segment_reads, steps[2].segment_writes)
            )
            found = [(steps[2].num_segments, reads, writes)]
        else:
            rows = table.apply(plan)
            segments = rows.segments[2]
            found = [(len(segments.reads), segments.reads.tolist(), segments.writes.tolist())]
        states = table.groups[2]
        tables.append([*found, states.reads.tolist(), states.writes.tolist(), table.num_computed.tolist()])
    assert tables[0] == tables[1]
    assert tables[0][0] == (4, [10, 11, 12, 10 + 3], [5, 11, 12, 1])


@for_each(
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
    decode = decode_of(table, [Step() for _ in GROUPS])
    before = [table.num_computed.tolist(), table.groups[2].reads.tolist(), table.groups[2].writes.tolist()]
    assert not decode.begin(column([0]), column([1]), [none, none, states], LENGTH)
    assert [table.num_computed.tolist(), table.groups[2].reads.tolist(), table.groups[2].writes.tolist()] == before


# --- as the engine plans for several groups ---------------------------------------------------------------------------


def continued(token_ids: list[int], count: int) -> list[int]:
    """The tokens that must come."""
    known = list(token_ids)
    for _ in range(count):
        known.append(follower(known))
    return known[len(token_ids) :]


@for_each("budget", [7, 16, 200])
@for_each("every", [8, 2048])
def test_answers_are_right_in_company_in_chunks_and_after_hits(budget, every):
    engine = TinyEngine(state_runner(), max_num_batched_tokens=budget, checkpoint_every=every)
    for turn in range(3):  # the later ones find what the first has left
        prompts = [prompt_of(length) for length in (30, 9, 30, 17, 30)]
        answers = engine.run(*(prompt(10 * turn + number, each, max_tokens=12) for number, each in enumerate(prompts)))
        assert [answer.tokens for answer in answers] == [continued(each, 12) for each in prompts]
    assert engine.scheduler.counters.cached_tokens > 0


def test_a_conversation_finds_its_states_and_its_window():
    engine, history = TinyEngine(state_runner(), max_num_batched_tokens=16), prompt_of(7)
    for turn in range(4):
        (answer,) = engine.run(prompt(turn, history, max_tokens=6))
        assert answer.tokens == continued(history, 6)
        history = history + answer.tokens + [turn, 5]
    assert engine.scheduler.counters.cached_tokens == sum((7 + 8 * turn - 3) // 4 * 4 for turn in range(1, 4))


@for_each("seed", range(3))
def test_answers_are_right_where_memory_is_scarce_and_swapped(seed):
    """Preempted by turns, and with states and blocks that come back from the second tier."""
    chance = Random(seed)
    engine = TinyEngine(state_runner(), max_num_batched_tokens=24, checkpoint_every=8)
    for turn in range(3):
        prompts = [prompt_of(chance.choice((3, 17, 30, 9, 41, 24))) for _ in range(9)]
        asked = (prompt(100 * turn + number, each, n=2, max_tokens=12) for number, each in enumerate(prompts))
        expected = [continued(each, 12) for each in prompts for _ in range(2)]
        assert [answer.tokens for answer in engine.run(*asked)] == expected
    assert engine.scheduler.stats().loaded_blocks > 0


def searched(budget: int, num_slots: int) -> list[list[int]]:
    engine = TinyEngine(state_runner(), max_num_batched_tokens=budget, max_num_seqs=num_slots)
    prompts = [prompt(number, prompt_of(length), n=3, max_tokens=9) for number, length in enumerate((17, 30))]
    for each in prompts:
        each.beams = BeamSearchParams(beam_width=3, max_tokens=9)
    return [answer.tokens for answer in engine.run(*prompts)]


def test_beams_that_copy_states_find_what_beams_find_that_compute_them_anew():
    forked = searched(budget=200, num_slots=6)
    assert forked[0] == continued(prompt_of(17), 9), "the best of all follows the model"
    assert searched(budget=200, num_slots=1) == searched(budget=7, num_slots=2) == forked
