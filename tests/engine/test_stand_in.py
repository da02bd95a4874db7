"""The worker without a model: it checks plans as strictly as a real one, and its tokens depend on history alone."""

import pytest
from builders.cases import for_each

from penstock.protocol.layer_groups import GroupChanges, GroupPlan
from penstock.protocol.messages import Fork, MaskFrame, NewSlot, StepPlan, StepResult
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column, values
from penstock.worker.plan_error import PlanError
from penstock.worker.stand_in.runner import StandInWorker


def worker() -> StandInWorker:
    return StandInWorker(num_slots=4, groups=[GroupPlan("full", 1, 1, 8)], block_size=4, max_model_len=16, verify=True)


def new(slot: int = 0, tokens=(1, 2, 3), num_computed: int = 0, **params) -> NewSlot:
    settled = SamplingParams(**{"temperature": 0, **params})
    return NewSlot(slot, column(tokens), len(tokens), num_computed, settled, 0, 0)


def plan(step: int = 0, rows: dict[int, int] | None = None, blocks=(), offsets=None, **rest) -> StepPlan:
    rows = {0: 3} if rows is None else rows
    offsets = [0, len(blocks)] + [len(blocks)] * (len(rows) - 1) if offsets is None else offsets
    moves = {name: rest.pop(name) for name in ("copies", "saves", "loads") if name in rest}
    changes = GroupChanges(column(blocks), column(offsets), **moves)
    return StepPlan(step, column(rows), column(rows.values()), [changes], **rest)


def sampled(result: StepResult) -> list[int]:
    return values(result.sampled).tolist()


@for_each("broken, sentence", [
    (plan(rows={2: 1}), "computes slot 2, which is free"),
    (plan(rows={9: 1}), "there are 4"),
    (plan(new=[new()], rows={0: 3}), "its blocks end at 0"),
    (plan(new=[new()], rows={0: 4}, blocks=[1]), "3 are known"),
    (plan(new=[new()], rows={0: 0}, blocks=[1]), "computes 0 tokens"),
    (plan(new=[new()], blocks=[8]), r"outside 0..7"),
    (plan(new=[new()], blocks=[1], offsets=[0, 0]), "block offsets"),
    (plan(new=[new(), new()], blocks=[1]), "fills slot 0, which is taken"),
    (plan(new=[new(num_computed=3)], blocks=[1]), "3 computed"),
    (plan(new=[new(tokens=range(17))], blocks=[1]), "max_model_len is 16"),
    (plan(new=[new(tokens=[1, 512])], blocks=[1]), "outside the vocabulary"),
    (plan(freed=column([1]), rows={}), "frees slot 1, which is free"),
    (plan(forks=[Fork(0, 1, 0, [b""])], rows={}), "forks slot 0"),
    (plan(new=[new(num_computed=1)], rows={0: 2}, blocks=[1]), "other tokens were computed into it"),
])  # fmt: skip
def test_a_plan_that_breaks_a_rule_is_refused_with_a_sentence(broken, sentence):
    with pytest.raises(PlanError, match=sentence):
        worker().step(broken)


def test_a_fork_goes_on_like_its_source_on_blocks_of_its_own_and_what_others_computed_into_a_block_is_noticed():
    tested = worker()
    tested.step(plan(new=[new()], blocks=[1]))
    fork = plan(1, rows={0: 1, 2: 1}, forks=[Fork(0, 2, 0, [column([5])])], copies=column([1, 5]))
    first, second = sampled(tested.step(fork))
    assert first == second
    for read, others in (
        ("Slot 0 reads block 1", plan(1, rows={1: 3}, new=[new(1, [7, 8, 9])], blocks=[1])),
        ("Slot 2 reads block 5", plan(1, rows={0: 1}, forks=[Fork(0, 2, 0, [column([5])])])),
    ):
        tested = worker()
        tested.step(plan(new=[new()], blocks=[1]))
        tested.step(others)
        with pytest.raises(PlanError, match=read):
            tested.step(plan(2, rows={int(read[5]): 1}))


def test_a_row_has_the_log_probabilities_that_were_asked_for_and_a_masked_one_only_tokens_that_its_frame_allows():
    words = [0] * 16
    words[300 // 32] = 1 << 300 % 32
    frame = MaskFrame(0, column([0]), column(words))
    result = worker().step(plan(new=[new()], blocks=[1], masked=column([0])), {0: frame}.__getitem__)
    assert sampled(result) == [300]
    result = worker().step(plan(new=[new(logprobs=2, prompt_logprobs=0)], blocks=[1]))
    prompts, own = result.logprobs
    assert (prompts.is_prompt, prompts.width, len(prompts.ranks) // 4) == (True, 1, 2)
    assert values(prompts.token_ids).tolist() == [2, 3]
    assert (own.is_prompt, own.width, len(own.logprobs) // 4) == (False, 3, 3)
    assert values(own.token_ids)[0] == sampled(result)[0]
