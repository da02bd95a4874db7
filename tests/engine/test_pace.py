"""Prompts beside streamed answers: how many of their tokens a step takes, and how long each of them waits."""

from builders.cases import for_each
from builders.engine_harness import medium, prompt
from builders.paced import BUDGET, LONG, WITHOUT, Paced, most_but_few, streamed, usual

from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import sequence_id


@for_each("cost", [0.0004, 0.0015, 0.01])
@for_each("length", [LONG, 8 * BUDGET])
def test_a_step_beside_streams_takes_at_most_twice_as_long_as_without_the_prompt(cost, length):
    """Or as long as the fewest tokens that still make progress."""

    def seconds(step: int, tokens: int) -> float:
        return WITHOUT + cost * tokens

    harness = Paced(streamed(1), streamed(2), seconds=seconds)
    harness.add(prompt(3, [each % 500 for each in range(length)], max_tokens=1))
    counts = harness.run_until_begun(3)
    assert max(seconds(0, count) for count in counts) <= max(2 * WITHOUT, WITHOUT + 8 * cost)
    assert sum(counts) == length


def test_the_share_of_a_prompt_follows_what_its_tokens_take():
    """They take longer the longer the context is, and the answers' own steps do so, too."""

    def seconds(step: int, tokens: int) -> float:
        return WITHOUT * (1 + step / 100 + tokens * 0.03 * (1 + step / 50))

    harness = Paced(streamed(1), seconds=seconds).add(prompt(3, range(LONG), max_tokens=1))
    counts = harness.run_until_begun(3)
    beside = [seconds(step, count) / seconds(step, 0) for step, count in enumerate(counts, 1) if count]
    assert most_but_few(beside) <= 2.1
    assert max(counts) > 8, "there is time for more than the fewest"


@for_each("company, length, options", [
    ((prompt(1, [5, 6, 7], max_tokens=900),), LONG, {}),  # nobody reads its answer as it comes
    ((), LONG, {}),
    ((streamed(1),), BUDGET - 1, {"enable_chunked_prefill": False}),
])  # fmt: skip
def test_other_prompts_take_all_that_a_step_has(company, length, options):
    harness = Paced(*company, **options).add(prompt(3, [each % 500 for each in range(length)], max_tokens=1))
    assert harness.run_until_begun(3)[0] == BUDGET - len(company)


def test_a_short_prompt_is_computed_at_once_and_streams_pause_once_in_a_hundred_steps_however_many_come():
    harness = Paced(streamed(1, 99)).add(prompt(3, range(110), max_tokens=1))
    assert harness.run_until_begun(3)[0] == 110
    harness = Paced(streamed(1, 99))
    for number in range(3, 40):
        harness.add(prompt(number, range(number, number + 100), max_tokens=1))
        harness.run_until_begun(number)
    longer = [usual(0, count) for count in harness.counts if usual(0, count) > 2.1 * WITHOUT]
    assert 1 <= len(longer) <= 1 + len(harness.counts) / 100
    assert max(longer) <= 0.25 + 2 * WITHOUT


@for_each("number", [2, 6, 12])
def test_prompts_together_make_a_step_longer_up_to_the_shares_of_six_and_all_get_on(number):
    harness = Paced(streamed(1))
    requests = range(2, 2 + number)
    harness.add(*(prompt(each, range(each, each + LONG), max_tokens=1) for each in requests))
    counts = harness.run_until_begun(*requests)
    ratios = [usual(0, count) / WITHOUT for count in counts]
    assert most_but_few(ratios) <= 1 + 0.75 * min(number, 6) + 0.1
    assert len(counts) <= 2 * number * LONG / (min(number, 6) * 0.75 * WITHOUT / 0.0015)


def test_a_long_prompt_gets_on_while_short_ones_keep_coming_which_need_not_wait_for_its_end():
    harness = Paced(streamed(1)).add(prompt(2, range(LONG), max_tokens=1), prompt(3, range(9, 69), max_tokens=1))
    harness.run_until_begun(3)
    assert not harness.has_begun(2)
    number = 3
    while not harness.has_begun(2):
        number += 1
        harness.add(prompt(number, range(number, number + 40), max_tokens=1))
        harness.step()
    assert len(harness.counts) <= LONG / 8 * 1.2


@for_each("is_measured", [True, False], ids=["without prompts", "with tokens of one"])
def test_one_step_that_takes_very_long_makes_few_others_longer(is_measured):
    delayed: list[int] = []

    def seconds(step: int, tokens: int) -> float:
        if step > 8 and not delayed and is_measured == (tokens == 0):
            delayed.append(step)
        return usual(step, tokens) * (100 if step in delayed else 1)

    harness = Paced(streamed(1), seconds=seconds).add(prompt(3, [each % 500 for each in range(2 * LONG)], max_tokens=1))
    ratios = [usual(0, count) / WITHOUT for count in harness.run_until_begun(3)]
    assert delayed
    assert sum(ratio > 2.1 for ratio in ratios) <= 3
    assert max(ratios) <= 3


def test_steps_become_shorter_at_once_when_most_streams_have_ended():
    lone, others = streamed(1), [streamed(each) for each in range(2, 8)]
    harness = Paced(lone, *others, seconds=lambda step, tokens: 0.0)
    ratios: list[float] = []

    def seconds(step: int, tokens: int) -> float:
        without = WITHOUT * harness.scheduler.in_flight[-1].num_decodes
        ratios.append((without + 0.0015 * tokens) / without if tokens else 1.0)
        return without + 0.0015 * tokens

    assert sum(harness.add(prompt(8, range(LONG), max_tokens=1)).run_until_begun(8)) == LONG, "steps that take no time"
    harness.seconds = seconds
    harness.add(prompt(9, [each % 500 for each in range(1900)], max_tokens=1))
    for _ in range(20):
        harness.step()
    harness.abort(*(sequence_id(each.request_id, 0) for each in others))
    ratios.clear()
    harness.run_until_begun(9)
    assert max(ratios) <= 2.1


def test_pictures_take_from_their_prompts_part_of_a_step():
    pictures = [medium(each, (30 * each + 6, 24), num_patches=100) for each in range(40)]
    tokens = ([7] * 6 + [500] * 24) * len(pictures)
    media = MediaPlan(num_rows=1000, row_bytes=1, num_layers=4, most_patches=100, most_of_frame=100)
    harness = Paced(streamed(1), streamed(2), seconds_of_work=0.00004, media=media)
    harness.add(prompt(3, [9] * LONG, max_tokens=1))
    before = len(harness.run_until_begun(3))
    harness.add(prompt(4, tokens, media=pictures, max_tokens=1))
    counts, works = harness.run_until_begun(4)[before:], harness.works[before:]
    ratios = [
        (usual(step, count) + harness.seconds_of_work * work) / WITHOUT
        for step, (count, work) in enumerate(zip(counts, works, strict=True))
    ]
    assert sum(works) == 4 * 100 * len(pictures) and sum(counts) == len(tokens)
    assert most_but_few(ratios) <= 2


def test_a_large_picture_takes_no_step_beyond_a_streams_due():
    """From the first step on that encodes: nothing is known then of how long it takes."""
    media = MediaPlan(1000, 1, 24, 100_000, 100_000, num_full_layers=24, patch_keys=2400)
    harness = Paced(streamed(1), streamed(2), seconds_of_work=0.000015, media=media)
    harness.add(prompt(3, [7] * 6 + [500] * 768, media=[medium(1, (6, 768), num_patches=3072)], max_tokens=1))
    counts, works = harness.run_until_begun(3), harness.works
    steps = enumerate(zip(counts, works, strict=True))
    ratios = [(usual(step, count) + harness.seconds_of_work * work) / WITHOUT for step, (count, work) in steps]
    assert sum(works) == 3072 * 24 + 3072 * 24 * 3072 // 2400
    assert max(ratios) <= 2.1
