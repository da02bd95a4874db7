"""A runner takes a stream of plans, on a model whose tokens are known beforehand."""

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.hand_planned import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    NUM_BLOCKS,
    VOCABULARY,
    chain_runner,
    follower,
    layers,
    new,
    plan,
    sampled,
    step,
)
from builders.runner_harness import no_mask

from penstock.protocol.messages import ForcedTokens, Fork, MaskFrame, StepPlan
from penstock.protocol.wire import column, values
from penstock.worker.steps import logprobs as logprobs_module
from penstock.worker.steps.slots import PlanError


def chain(token: int, position: int, count: int) -> list[int]:
    """`count` tokens after `token` at `position`."""
    found = []
    for place in range(position, position + count):
        token = follower(token, place)
        found.append(token)
    return found


@pytest.fixture
def runner():
    return chain_runner()


def test_a_prompt_in_chunks_samples_after_the_last_one_and_goes_on_from_tokens_that_never_left_the_device(runner):
    prompt = list(range(10, 20))
    assert step(runner, 0, [(2, 3, [5])], new=[new(2, prompt)]) == [[]]
    assert step(runner, 1, [(2, 6, [1, 9])]) == [[]]
    rest = [step(runner, number, [(2, 1, [number] if number in (4, 8) else [])])[0][0] for number in range(2, 11)]
    assert rest == chain(19, 9, 9)


def test_rows_of_every_kind_share_a_step(runner):
    step(runner, 0, [(0, 2, [0]), (1, 3, [1])], new=[new(0, [1, 2]), new(1, [3, 4, 5, 6])])
    found = step(runner, 1, [(3, 5, [2, 3]), (0, 1, []), (1, 1, [])], new=[new(3, [7] * 6)])
    assert found == [[], chain(2, 1, 2)[1:], [follower(6, 3)]]


def test_a_computed_prefix_is_not_computed_again(runner):
    assert step(runner, 0, [(0, 2, [7, 2])], new=[new(0, [1, 2, 3, 4, 5, 6], num_computed=4)]) == [[follower(6, 5)]]
    assert runner.forward_pass.batch.positions.tolist() == [4, 5]
    assert runner.forward_pass.batch.context_lengths == [6]


def test_a_freed_slot_is_taken_again_in_the_same_plan(runner):
    step(runner, 0, [(0, 5, [7, 2])], new=[new(0, [1, 2, 3, 4, 5])])
    assert step(runner, 1, [(0, 2, [9])], freed=column([0]), new=[new(0, [6, 7])]) == [[follower(7, 1)]]
    assert runner.forward_pass.batch.groups[0].block_tables.tolist() == [[9]]


def test_forced_tokens_stand_in_the_history_as_if_sampled(runner):
    step(runner, 0, [(0, 2, [0])], new=[new(0, [1, 2])])
    forced = ForcedTokens(0, column([50, 51]))
    # The sampled token and the two forced ones are computed; what follows is sampled.
    assert step(runner, 1, [(0, 3, [1])], forced=[forced]) == [[follower(51, 4)]]
    assert runner.forward_pass.batch.token_ids.tolist() == [follower(2, 1), 50, 51]


def test_a_fork_goes_on_as_its_source_on_its_own_blocks(runner):
    step(runner, 0, [(0, 4, [3])], new=[new(0, [1, 2, 3, 4, 5])])
    fork = Fork(0, 4, 1, [column([3, 8])])
    assert step(runner, 1, [(0, 1, [6]), (4, 1, [])], forks=[fork]) == [[follower(5, 4)]] * 2
    assert runner.forward_pass.batch.groups[0].block_tables.tolist() == [[3, 6], [3, 8]]
    assert runner.table.parameters.wholes[4].tolist() == [0, 7, 1]  # top_k, seed, sample


def test_keys_are_written_where_the_table_says_and_blocks_copied_before(runner):
    step(runner, 0, [(0, 7, [7, 3])], new=[new(0, [11, 12, 13, 14, 1, 2, 3])])
    step(runner, 1, [(0, 1, [])], copies=column([3, 5]))
    keys = runner.memory.groups[0].keys[0, :, 0, :, 0]
    assert keys[[7, 5]].tolist() == [[11, 12, 13, 14], [1, 2, 3, 0]]
    assert keys[3].tolist() == [1, 2, 3, follower(3, 6)]


def test_a_plan_that_only_frees_has_an_empty_result(runner):
    step(runner, 0, [(0, 1, [3])], new=[new(0, [1])])
    result = runner.step(plan(1, [], freed=column([0])), no_mask)
    assert (result.step, result.num_sampled, result.sampled) == (1, b"", b"")
    assert not runner.table.is_taken.any()


def mask_frame(number: int, allowed: dict[int, set[int]]) -> MaskFrame:
    words = -(-VOCABULARY // 32)
    bits = [
        sum(1 << token % 32 for token in tokens if token // 32 == word)
        for tokens in allowed.values()
        for word in range(words)
    ]
    return MaskFrame(number, column(allowed), numpy.array(bits, numpy.uint32).tobytes())


def test_a_masked_row_waits_for_its_frame_and_takes_an_allowed_token(runner):
    asked = []

    def await_mask(number: int) -> MaskFrame:
        asked.append((number, hasattr(runner.forward_pass, "batch")))
        return mask_frame(number, {2: {0, 100}, 1: {33}})

    rows = [(0, 1, [3]), (1, 1, [4]), (2, 1, [5]), (3, 1, [6])]
    longer = new(0, [1, 2])  # row 0 samples nothing
    masked = plan(8, rows, new=[longer, new(1, [50]), new(2, [30]), new(3, [1])], masked=column([1, 2]))
    assert sampled(runner.step(masked, await_mask)) == [[], [33], [100], [follower(1, 0)]]
    assert asked == [(8, True)], "the forward pass comes before the wait"


def test_a_frame_that_does_not_fit_its_plan_is_refused(runner):
    masked = plan(0, [(0, 1, [3])], new=[new(0, [1])], masked=column([0]))
    with pytest.raises(PlanError, match="mask of step 0"):
        runner.step(masked, lambda number: mask_frame(number, {1: {2}}))


def test_broken_logits_fail_their_row_only(runner):
    runner.forward_pass.nan_after = 60
    rows = [(0, 1, [3]), (1, 1, [4]), (2, 1, [5])]
    result = runner.step(plan(0, rows, new=[new(0, [1]), new(1, [60], logprobs=1), new(2, [2], logprobs=1)]), no_mask)
    assert sampled(result) == [[follower(1, 0)], [], [follower(2, 0)]]
    assert [(failed.row, "NaN" in failed.message) for failed in result.failed] == [(1, True)]
    assert [entry.owner for entry in result.logprobs] == [2]
    # The engine learns of it a step later: until then the row goes on, and does no harm.
    assert step(runner, 1, [(0, 1, []), (1, 1, []), (2, 1, [])])[0] == chain(1, 0, 2)[1:]


def test_logprobs_come_for_the_rows_that_asked_and_as_many_as_they_asked(runner):
    entries = [new(0, [1], logprobs=2), new(1, [2]), new(2, [3], logprobs=-1), new(3, [4], logprobs=0)]
    rows = [(slot, 1, [slot]) for slot in range(4)]
    found = {entry.owner: entry for entry in runner.step(plan(0, rows, new=entries), no_mask).logprobs}
    assert {owner: entry.width for owner, entry in found.items()} == {0: 3, 2: 1 + VOCABULARY, 3: 1}
    best = follower(1, 0)
    assert values(found[0].token_ids).tolist() == [best, best, best - 1]
    assert values(found[0].ranks).tolist() == [1]


class AnotherRank:
    """Gets `told` from rank 0."""

    rank, size, told = 1, 2, 33

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(torch.tensor([self.told, 0]))  # no row has a fault


def test_another_rank_goes_on_from_the_tokens_of_rank_0(runner):
    runner.ranks = AnotherRank()
    masked = plan(0, [(0, 1, [3]), (1, 2, [4])], new=[new(0, [1]), new(1, [2, 3], logprobs=1)], masked=column([1]))
    assert sampled(runner.step(masked, no_mask)) == [[33], [33]]
    runner.step(plan(1, [(0, 1, []), (1, 1, [])]), no_mask)
    assert runner.forward_pass.batch.token_ids.tolist() == [33, 33]


@for_each("positions_a_piece", [1, 2, 100])
def test_prompt_logprobs_cover_every_token_but_the_first(monkeypatch, positions_a_piece):
    runner = chain_runner()
    monkeypatch.setattr(logprobs_module, "_PIECE_BYTES", (4 * VOCABULARY + 8) * positions_a_piece)
    prompt = [5, 90, 3, 17, 4, 60]
    chunks = [(0, 4, [1]), (0, 2, [2])]
    found = []
    for number, chunk in enumerate(chunks):
        entering = [new(0, prompt, prompt_logprobs=1)] if number == 0 else []
        found += runner.step(plan(number, [chunk], new=entering), no_mask).logprobs
    assert all(entry.is_prompt and entry.width == 2 for entry in found)
    tokens = [token for entry in found for token in values(entry.token_ids)]
    assert tokens[0::2] == prompt[1:]
    assert tokens[1::2] == [follower(token, position) for position, token in enumerate(prompt[:-1])]
    given = [value for entry in found for value in numpy.frombuffer(entry.logprobs, numpy.float32)]
    seen = torch.tensor(list(zip(prompt, range(6), strict=True)))
    expected = torch.log_softmax(runner.forward_pass.logits(seen, torch.arange(6)), -1)
    assert given[0::2] == pytest.approx([expected[place, prompt[place + 1]].item() for place in range(5)], abs=1e-6)
    assert step(runner, 5, [(0, 1, [])]) == [chain(60, 5, 2)[1:]], "and none for what is sampled after the prompt"


LONG = [5, 90, 3, 17, 4, 60]


def test_a_chunk_passes_through_the_layers_over_several_steps_while_other_rows_go_on(runner):
    step(runner, 0, [(1, 1, [0])], new=[new(0, LONG), new(1, [7])], layered=[layers(0, 5, 0, 1, [1, 2])])
    step(runner, 1, [(1, 1, [])])
    step(runner, 2, [], layered=[layers(0, 5, 1, 3)])
    assert step(runner, 3, [(1, 1, []), (0, 1, [])]) == [chain(7, 0, 3)[2:], chain(60, 5, 1)]
    written = runner.memory.groups[0].keys[0, [1, 2], 0].flatten()
    assert written[:6].int().tolist() == LONG
    # A chunk whose slot is freed is dropped; another may begin then.
    step(runner, 4, [], new=[new(2, LONG)], layered=[layers(2, 5, 0, 2, [3, 4])])
    step(runner, 5, [], freed=column([2]), new=[new(2, LONG)], layered=[layers(2, 4, 0, 3, [5])])
    assert step(runner, 6, [(2, 2, [6])]) == [chain(60, 5, 1)]


@for_each("broken, sentence", [
    (plan(1, [(0, 1, [])]), "layers left"),
    (plan(1, [], forks=[Fork(0, 4, 0, [b""])]), "layers left"),
    (plan(1, [], layered=[layers(1, 2, 0, 1, [3])]), "amid another"),
    (plan(1, [], layered=[layers(1, 2, 1, 2)]), "hasn't begun"),
    (plan(1, [], layered=[layers(0, 3, 1, 2)]), "hasn't begun"),
    (plan(1, [], layered=[layers(0, 4, 2, 3)]), "with 1 done"),
    (plan(1, [], layered=[layers(0, 4, 1, 1)]), "with 1 done"),
    (plan(1, [], layered=[layers(0, 4, 1, 4)]), "1 to 4 of 3"),
    (plan(1, [], freed=column([0]), layered=[layers(0, 4, 1, 2)]), "hasn't begun"),
    (plan(1, [], freed=column([0]), layered=[layers(1, 6, 0, 2, [3, 4])]), "last token"),
])  # fmt: skip
def test_a_plan_that_breaks_a_rule_of_a_chunk_in_progress_is_refused(broken, sentence):
    runner = chain_runner()
    step(runner, 0, [], new=[new(0, LONG), new(1, LONG)], layered=[layers(0, 4, 0, 1, [1])])
    with pytest.raises(PlanError, match=sentence):
        runner.step(broken, no_mask)


FULL = list(range(NUM_BLOCKS))[: -(-MAX_MODEL_LEN // BLOCK_SIZE)]
BROKEN: dict[str, tuple[StepPlan, str]] = {
    "a free slot": (plan(1, [(3, 1, [1])]), "free"),
    "a slot that isn't there": (plan(1, [(6, 1, [1])]), "free"),
    "a negative slot": (plan(1, [(-1, 1, [1])]), "free"),
    "a slot twice": (plan(1, [(0, 1, []), (0, 1, [])]), "twice"),
    "a taken slot": (plan(1, [], new=[new(0, [1])]), "taken"),
    "freed twice": (plan(1, [], freed=column([4])), "frees"),
    "too many tokens": (plan(1, [(0, 2, [])]), "2 are known|are known"),
    "no tokens": (plan(1, [(0, 0, [])]), "without tokens"),
    "too few blocks": (plan(1, [(1, 5, [1])], new=[new(1, [1] * 5)]), "blocks reach 4"),
    "a block beyond the pool": (plan(1, [(0, 1, [NUM_BLOCKS])]), "outside"),
    "too many blocks": (plan(1, [(0, 1, FULL)]), "longer than"),
    "a token beyond the vocabulary": (plan(1, [], new=[new(1, [VOCABULARY])]), "vocabulary"),
    "a negative token": (plan(1, [], forced=[ForcedTokens(0, column([-1]))]), "vocabulary"),
    "an empty history": (plan(1, [], new=[new(1, [])]), "0 tokens"),
    "too long a history": (plan(1, [], new=[new(1, [1] * 25)]), "max_model_len is 24"),
    "all computed already": (plan(1, [], new=[new(1, [1, 2], num_computed=2)]), "computed"),
    "too much forced": (plan(1, [], forced=[ForcedTokens(0, column([1] * 24))]), "forces"),
    "a fork of nothing": (plan(1, [], forks=[Fork(3, 4, 0, [b""])]), "forks slot 3"),
    "a fork onto another": (plan(1, [], forks=[Fork(0, 0, 0, [b""])]), "taken"),
    "a copy beyond the pool": (plan(1, [], copies=column([0, NUM_BLOCKS])), "copies"),
    "a mask where nothing is sampled": (plan(1, [(1, 1, [1])], new=[new(1, [1, 2])], masked=column([0])), "nothing"),
}


@for_each("broken, sentence", BROKEN.values(), ids=BROKEN)
def test_a_plan_that_breaks_a_rule_is_refused(broken, sentence):
    runner = chain_runner()
    step(runner, 0, [(0, 1, [0])], new=[new(0, [1])])
    with pytest.raises(PlanError, match=sentence):
        runner.step(broken, lambda number: mask_frame(number, {0: {1}}))


def test_a_sequence_fills_the_context_to_its_last_token(runner):
    last = list(range(MAX_MODEL_LEN - 1))
    assert step(runner, 0, [(0, len(last), FULL)], new=[new(0, last)]) == [[follower(last[-1], len(last) - 1)]]
    with pytest.raises(PlanError, match="max_model_len is 24"):
        step(runner, 1, [(0, 1, [])])
