"""Long prompts beside streamed answers: a step computes some layers of a chunk, and none is longer than its due."""

import random
from statistics import median

from builders.cases import for_each
from builders.engine_harness import prompt
from builders.paced import WITHOUT, Paced, most_but_few, streamed

from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.messages import ChunkLayers, Prompt, sequence_id

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
