"""What rows with drafts cost others: nothing that they would have without."""

from builders.cases import for_each
from builders.engine_harness import Harness, answer, medium, prompt

from penstock.engine.admission.limits import DraftLimits
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import FailedRow, Prompt
from penstock.protocol.wire import column, values

DRAFT_LIMITS = DraftLimits(9, 64)
# Rows of a picture see one another, so that they are computed in one step.
WHOLE_SPANS = MediaPlan(
    num_rows=200, row_bytes=1, num_layers=1, most_patches=100_000, most_of_frame=100_000, num_full_layers=0,
    patch_keys=1, has_whole_spans=True,
)  # fmt: skip


def requests(count: int, max_tokens: int = 60) -> list[Prompt]:
    """Each with its answer to draft from."""
    asked = [prompt(number, [1, 2, 3, number] * 3, max_tokens=max_tokens, temperature=1) for number in range(count)]
    for each in asked:
        each.expected = [column(answer(each, 0, 128)[0])]
    return asked


def check(harness: Harness, asked: list[Prompt]) -> None:
    for each in asked:
        assert harness.tokens(each.request_id) == answer(each, 0, 128)[0]


@for_each("num_blocks", [5, 7, 12])
def test_a_sequence_alone_in_its_window_never_gives_way_to_its_own_drafts(num_blocks):
    window = GroupPlan("window", 1, 1, num_blocks, 16)
    harness = Harness(draft_limits=DRAFT_LIMITS, groups=(window,), max_num_seqs=1).add(*(asked := requests(3))).run()
    check(harness, asked)
    counters = harness.scheduler.counters
    assert counters.preemptions == 0 and counters.accepted_tokens > 0


@for_each("kind", [{"enable_chunked_prefill": False}, {"media": WHOLE_SPANS}])
def test_what_needs_a_whole_step_gets_one_beside_an_answer_with_drafts(kind):
    harness = Harness(draft_limits=DRAFT_LIMITS, num_blocks=128, max_num_seqs=2, max_num_batched_tokens=100, **kind)
    [first] = requests(1, max_tokens=100)
    harness.add(first).step(5)
    shown = [medium(1, (1, 95))] if "media" in kind else []
    harness.add(second := prompt(1, [5] * 97, media=shown, max_tokens=2)).step(4)
    assert harness.ended(1) is not None and harness.ended(0) is None
    check(harness.run(), [first, second])


@for_each("drafts", range(4))
def test_counts_of_drafts_at_the_ends_are_those_of_the_engine(drafts):
    asked = requests(6, max_tokens=25)
    harness = Harness(draft_limits=DRAFT_LIMITS, drafts=drafts, num_blocks=256).add(*asked).run()
    check(harness, asked)
    ends, counters = [harness.ended(each.request_id) for each in asked], harness.scheduler.counters
    assert sum(each.num_draft_tokens for each in ends) == counters.draft_tokens > 0
    assert sum(each.num_accepted_tokens for each in ends) == counters.accepted_tokens > 0
    assert counters.generated_tokens == 6 * 25 and counters.accepted_tokens <= 6 * 24


@for_each("num_right", [0, 2])
def test_a_row_that_fails_with_drafts_is_computed_again_without(num_right):
    harness = Harness(draft_limits=DRAFT_LIMITS).add(*(asked := requests(1)))
    for _ in range(12):
        harness.plan()
        result = harness.results[-1]
        if sum(values(result.num_drafted)) > 1 and values(result.num_sampled)[0] > num_right:
            break
        harness.finish()
    result.num_sampled, result.sampled = column([num_right]), result.sampled[: 4 * num_right]
    result.failed = [FailedRow(0, "0 × NaN")]
    harness.run()
    check(harness, asked)
    assert harness.scheduler.stats().free_blocks == 64
    assert not any(plan.rooms for plan in harness.plans[result.step + 2 :]), "but the one in flight"


@for_each("budget", [32, 64, 512])
@for_each("draft_limits", [DraftLimits(31, 128, 4), DraftLimits(64, 2**31)])
def test_drafts_leave_prompts_the_tokens_of_a_step(draft_limits, budget):
    harness = Harness(draft_limits=draft_limits, max_num_batched_tokens=budget, num_blocks=512)
    first, second = requests(2, max_tokens=100)
    harness.add(first)
    for _ in range(6):
        harness.plan()
        harness.finish()
    harness.add(second).plan()
    assert len(harness.plans[-1].new) == 1
    check(harness.run(), [first, second])
    for plan in harness.plans:
        assert sum(values(plan.num_tokens)) + sum(values(plan.rooms)) <= budget


def test_requests_that_wait_take_no_drafts_from_those_that_run():
    shape = {
        "draft_limits": DraftLimits(31, 128, 4),
        "max_num_seqs": 16,
        "max_num_batched_tokens": 512,
        "num_blocks": 512,
    }
    harness = Harness(**shape).add(*(asked := requests(64))).run()
    check(harness, asked)
    counters = harness.scheduler.counters
    assert counters.accepted_tokens > 0.5 * counters.generated_tokens


def test_rows_that_would_get_few_drafts_get_none():
    harness = Harness(draft_limits=DraftLimits(9, 30, 4), num_blocks=512).add(*(asked := requests(12))).run()
    check(harness, asked)
    assert {bool(plan.rooms) for plan in harness.plans if len(values(plan.slots)) > 7} == {False}
    assert any(plan.rooms for plan in harness.plans), "when fewer are left"
