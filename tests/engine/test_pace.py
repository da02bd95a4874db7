"""Prompts beside streamed answers: how many of their tokens a step takes, and how long each of them waits."""

import random
from collections.abc import Callable, Sequence
from statistics import median

from builders.cases import for_each
from builders.engine_harness import Harness, answer, medium, prompt
from msgspec.structs import replace

from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import ChunkLayers, FailedRow, Prompt, sequence_id
from penstock.protocol.wire import values

BUDGET, LONG = 128, 490  # tokens of a step, and of a prompt
WITHOUT = 0.04  # seconds of a step without prompts

Seconds = Callable[[int, int], float]  # of a step, by its number and its tokens of prompts


def usual(step: int, tokens: int) -> float:
    return WITHOUT + 0.0015 * tokens


def streamed(request_id: int, length: int = 3, **params) -> Prompt:
    return replace(prompt(request_id, [7, 8, request_id] * (length // 3), max_tokens=1900, **params), is_streamed=True)


class Paced(Harness):
    """With steps that take `seconds`, two of them in flight."""

    def __init__(
        self,
        *prompts: Prompt,
        seconds: Seconds = usual,
        seconds_of_work: float = 0.0,
        seconds_of_layers: Callable[[ChunkLayers, int], float] = lambda layers, position: 0.0,
        **options,
    ) -> None:
        super().__init__(**{"max_num_batched_tokens": BUDGET, "num_blocks": 2048, "max_model_len": 2048, **options})
        self.seconds = seconds
        self.seconds_of_work = seconds_of_work  # of a patch in a layer of an encoder
        self.seconds_of_layers = seconds_of_layers  # of a chunk that begins at a position
        self.times: list[float] = []  # seconds of each step
        self.counts: list[int] = []  # tokens of prompts in each step
        self.works: list[int] = []  # patches x layers in each step
        self.add(*prompts)
        for _ in range(6 if prompts else 0):
            self.step()
        self.counts.clear()
        self.works.clear()
        self.times.clear()

    def step(self) -> None:
        while len(self.results) < 2 and (plan := self.plan()) is not None:
            planned = next(step for step in self.scheduler.in_flight if step.number == plan.step)
            self.counts.append(sum(values(plan.num_tokens)[planned.num_decodes :]))
            self.works.append(planned.encoder_work)
            seconds = self.seconds(len(self.counts), self.counts[-1]) + self.seconds_of_work * self.works[-1]
            for layers, sequence in zip(planned.layered, planned.layered_sequences, strict=True):
                is_done = layers.end_layer == self.limits.num_layers
                seconds += self.seconds_of_layers(layers, sequence.num_computed - layers.num_tokens * is_done)
            self.results[-1].forward_time = seconds
            self.times.append(seconds)
        self.finish()

    def has_begun(self, request_id: int) -> bool:
        return sequence_id(request_id, 0) in self.heard and bool(self.tokens(request_id))

    def run_until_begun(self, *request_ids: int) -> list[int]:
        while not all(self.has_begun(each) for each in request_ids):
            assert len(self.counts) < 1900, "a prompt makes no progress"
            self.step()
        return self.counts


def most_but_few(ratios: Sequence[float]) -> float:
    """What 95 of a hundred keep to."""
    return sorted(ratios)[-1 - len(ratios) // 20]


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


LAYERS, KEYS = 28, 150  # of a model: its layers, and the keys that cost a token as much as all else


class LongContexts(Paced):
    """With tokens that take longer the longer their context is, and steps that take so much longer with any of them."""

    def __init__(self, token: float, overhead: float, *prompts: Prompt, noise: float = 0.0) -> None:
        self.token, self.overhead, self.noise, self.chance = token, overhead, noise, random.Random(7)
        sizes = {"groups": (GroupPlan("full", LAYERS, 1, 512),), "block_size": 16, "max_num_batched_tokens": 512}
        ways = {"seconds": self.seconds_of_rows, "seconds_of_layers": self.seconds_of_chunk}
        super().__init__(*prompts, **ways, **sizes, num_layers=LAYERS, layer_keys=KEYS)

    def seconds_of_rows(self, step: int, tokens: int) -> float:
        prompts = [each.num_computed for each in self.scheduler.running.prefilling if not each.num_begun]
        beside = self.overhead + self.of_tokens(max(prompts, default=0), tokens) if tokens else 0.0
        return (WITHOUT + beside) * self.chance.uniform(0.97, 1.03)

    def seconds_of_chunk(self, layers: ChunkLayers, position: int) -> float:
        share = (layers.end_layer - layers.first_layer) / LAYERS
        seconds = self.overhead + share * self.of_tokens(position + layers.num_tokens / 2, layers.num_tokens)
        return seconds * self.chance.uniform(1 - self.noise, 1 + self.noise)

    def of_tokens(self, position: float, count: int) -> float:
        return count * self.token * (1 + position / KEYS)

    def alone(self, length: int) -> float:
        return sum(self.of_tokens(position, 1) for position in range(length))


@for_each("token, overhead, times", [(0.0015, 0.0, 2.5), (0.006, 0.0, 2.5), (0.0003, 0.0, 3.0), (0.0015, 0.01, 3.3)])
def test_a_long_prompt_gets_nearly_half_of_the_time_and_no_step_takes_twice_as_long(token, overhead, times):
    harness = LongContexts(token, overhead, streamed(1), streamed(2))
    harness.add(prompt(3, [each % 500 for each in range(1000)], max_tokens=1))
    harness.run_until_begun(3)
    ratios = sorted(each / WITHOUT for each in harness.times)
    assert ratios[-1 - len(ratios) // 100] <= 2
    assert sum(harness.times) <= times * harness.alone(1000)


def test_a_long_prompt_gets_its_time_though_no_two_layers_take_the_same():
    harness = LongContexts(0.0003, 0.0, streamed(1), streamed(2), noise=0.1)
    harness.add(prompt(3, [each % 500 for each in range(1000)], max_tokens=1))
    harness.run_until_begun(3)
    assert median(harness.times) > 1.7 * WITHOUT
    assert most_but_few([each / WITHOUT for each in harness.times]) <= 2


def test_long_prompts_next_to_streams_come_one_after_another_and_short_ones_wait_for_none_of_them():
    harness = LongContexts(0.0015, 0.0, streamed(1), streamed(2))
    harness.add(*(prompt(number, [(number * each) % 500 for each in range(900)], max_tokens=1) for number in (3, 4)))
    for _ in range(20):
        harness.step()
    harness.add(prompt(5, range(60), max_tokens=1))
    before = len(harness.run_until_begun(5))
    assert before < 20 + 2 * 60 / 8
    harness.run_until_begun(3)
    assert not harness.has_begun(4)
    harness.run_until_begun(4)
    assert most_but_few([each / WITHOUT for each in harness.times]) <= 2
    ordered = [layers.slot for plan in harness.plans for layers in plan.layered]
    assert ordered == sorted(ordered) and len(set(ordered)) == 2


def test_a_prompt_next_to_streams_waits_for_no_much_longer_one_and_the_long_one_goes_on_whatever_comes():
    harness = LongContexts(0.0015, 0.0, streamed(1), streamed(2))
    harness.add(prompt(3, [each % 500 for each in range(1500)], max_tokens=1))
    while not harness.plans[-1].layered:
        harness.step()
    for number in range(4, 40):
        harness.add(prompt(number, [(number * each) % 500 for each in range(300)], max_tokens=1))
        before = len(harness.times)
        harness.run_until_begun(number)
        assert sum(harness.times[before:]) < 3 * (harness.alone(1500) - harness.alone(1000))
        if harness.has_begun(3):
            break
    assert 4 < number < 20
    assert most_but_few([each / WITHOUT for each in harness.times]) <= 2


def test_a_prompt_next_to_streams_waits_in_proportion_to_its_length_and_one_of_a_first_priority_for_none_of_others():
    harness = LongContexts(0.0015, 0.0, streamed(1), streamed(2))

    def of_length(number: int, length: int, **params) -> Prompt:
        return prompt(number, [(number * each) % 500 for each in range(length)], max_tokens=1, **params)

    harness.add(of_length(3, 1900))
    while not harness.plans[-1].layered:
        harness.step()
    harness.add(of_length(4, 450))
    for number in range(5, 40):  # always another one that is shorter
        harness.add(of_length(number, 300)).run_until_begun(number)
        if harness.has_begun(4):
            break
    assert number < 8 and not harness.has_begun(3)
    harness.add(*(of_length(number, 300) for number in range(40, 48)))
    harness.add(of_length(50, 900, priority=-1)).run_until_begun(50)
    assert sum(map(harness.has_begun, range(40, 48))) <= 1, "the chunk in progress may be one's last"


def test_when_nobody_streams_any_more_the_rest_of_a_chunk_is_computed_at_once():
    harness = LongContexts(0.0015, 0.0, streamed(1)).add(prompt(3, [each % 500 for each in range(900)], max_tokens=1))
    while not harness.plans[-1].layered:
        harness.step()
    harness.abort(sequence_id(1, 0))
    harness.run_until_begun(3)
    rest = [layers for plan in harness.plans for layers in plan.layered][-1]
    assert rest.end_layer == LAYERS and rest.end_layer - rest.first_layer > LAYERS // 2


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


def with_prefix(request_id: int, suffix: int = 6, **params) -> Prompt:
    return prompt(request_id, [each % 500 for each in range(LONG)] + [request_id] * suffix, max_tokens=3, **params)


@for_each("num_layers", [0, 4])
def test_of_prompts_with_one_prefix_next_to_streams_the_later_wait_for_the_firsts_blocks(num_layers):
    harness = Paced(streamed(1), num_layers=num_layers, max_num_seqs=32).add(*map(with_prefix, range(10, 30)))
    harness.run_until_begun(29)
    stats = harness.scheduler.stats()
    computed = stats.prompt_tokens - stats.cached_tokens
    assert computed <= 3 + LONG + 20 * (6 + harness.limits.block_size), "the prefix is computed once"


def test_a_prompt_with_another_prefix_or_salt_waits_for_none():
    harness = Paced(streamed(1), max_num_seqs=32)
    harness.add(*map(with_prefix, range(10, 14)), prompt(20, [3] * 20, max_tokens=3))
    harness.add(with_prefix(21, cache_salt="own"))
    harness.run_until_begun(20)
    assert not any(harness.has_begun(each) for each in range(10, 14)), "it has overtaken those that wait"
    salted = harness.scheduler.sequences[sequence_id(21, 0)]
    assert len(followers := harness.scheduler.admission.followers.waiting) == 3 and salted not in followers


@for_each("fate", ["abort", "preempt", "fail", "follower aborts"])
def test_whatever_becomes_of_the_first_the_others_go_on_and_get_their_answers(fate):
    harness = Paced(streamed(1), max_num_seqs=32).add(*(asked := [with_prefix(each) for each in range(10, 16)]))
    while not harness.scheduler.admission.followers.waiting:
        harness.step()
    first = harness.scheduler.sequences[sequence_id(10, 0)]
    match fate:
        case "abort":
            harness.abort(first.id)
        case "preempt":
            harness.scheduler.preemption.preempt(first)
        case "fail":
            step = harness.scheduler.in_flight[-1]
            harness.scheduler._fail(step, FailedRow(step.rows.index(first), "planted"))
        case "follower aborts":
            harness.abort(sequence_id(11, 0))
    lost = {"abort": 10, "fail": 10, "follower aborts": 11}.get(fate)
    left = [each for each in asked if each.request_id != lost]
    while any(sequence_id(each.request_id, 0) in harness.scheduler.sequences for each in left):
        harness.step()
    assert all(harness.tokens(each.request_id) == answer(each, 0, 2048)[0] for each in left)
    assert not harness.scheduler.admission.followers.waiting
