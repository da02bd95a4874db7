"""Choosing, penalties, masks and log-probabilities on a GPU: the reference's, whose chances are the parameters'."""

import math
from dataclasses import replace

import numpy
import pytest
import torch
from builders import interpreted  # noqa: F401
from builders.cases import for_each
from builders.operation_examples.table import EXAMPLES
from builders.sampling_rules import kept_probabilities

from penstock.kernels.reference.sampling.adjust import apply_mask, penalize_generated, penalize_repetition
from penstock.kernels.reference.sampling.logprobs import ranked_logprobs
from penstock.kernels.reference.sampling.race import choose_on_device
from penstock.kernels.reference.sampling.uniform import exponential
from penstock.kernels.sampling import (
    BEST,
    NO_ROW,
    NOT_FINITE,
    NOTHING_LEFT,
    OF_ALL,
    OF_TOP_K,
    OF_TOP_P,
    DeviceDraws,
    Histories,
)
from penstock.protocol.parameters.sampling import SamplingParams

# Infinities are meant; numpy, in which kernels are interpreted, warns of them.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

UNWRITTEN = -7

# By what a row asks for: temperature, top_p, min_p, top_k. At 1e30 all weights are 1, so that every token kept wrongly
# is as likely to be drawn as another.
ROWS = {
    BEST: [(1.0, 1.0, 0.0, 0)],
    OF_TOP_K: [
        (1.0, 1.0, 0.0, 1),
        (1e30, 1.0, 0.0, 50),
        (2.0, 0.9, 0.2, 30),
        (1e30, 0.5, 0.0, 90),
        (1e30, 1.0, 0.0, 699),
    ],
    OF_TOP_P: [(1.0, 0.0, 0.0, 0), (1.0, 0.6, 0.0, 0), (0.2, 0.999, 0.0, 0), (5.0, 0.9, 0.3, 0), (1e30, 0.5, 0.0, 0)],
    OF_ALL: [(1.0, 1.0, 0.0, 0), (1e-38, 1.0, 0.0, 0), (3e38, 1.0, 0.0, 0), (2.0, 1.0, 0.5, 0), (1.0, 1.0, 1.0, 0)],
}


def columns(rows: list[tuple[int, float, float, float, int]]) -> DeviceDraws:
    """From each row's kind, temperature, top_p, min_p and top_k."""
    kinds, *reals, top_k = zip(*rows, strict=True)
    count = torch.arange(len(rows))
    wholes = torch.stack((torch.tensor(top_k), count * 7 + 3, count % 3))
    histories = torch.full((len(rows), len(rows) + 11), UNWRITTEN, dtype=torch.int32)
    are_best = not any(kinds)
    return DeviceDraws(torch.tensor(kinds), torch.tensor(reals), wholes, histories, count, count + 11, are_best)


choose = choose_on_device.versions["triton"]


@pytest.mark.long
@for_each("kind", ROWS)
@for_each("step", [0.0, 0.5, 8.0])
def test_it_does_so_for_parameters_at_their_ends_and_among_equal_logits(kind, step):
    draws = columns([(kind, *row) for row in ROWS[kind] * 3])
    logits = torch.randn(len(draws.kinds), 700, generator=torch.Generator().manual_seed(int(step))) * 3
    if step:
        logits = (logits / step).round() * step
    assert choose(logits, draws).tolist() == choose_on_device.reference(logits, draws).tolist()


@pytest.mark.long
@for_each("width", [32_000, 40_000])
def test_of_many_chunks_most_are_passed_over_and_the_token_is_the_same(width):
    """As many chunks as are compared for a first bound of top_k, and more."""
    draws = columns([(OF_TOP_K, 1e30, 1.0, 0.0, 40), (OF_TOP_K, 2.0, 0.8, 0.0, 300), (OF_TOP_P, 1.0, 0.9, 0.0, 0)])
    logits = torch.randn(3, width, generator=torch.Generator().manual_seed(6)) * 3
    logits[:, 5000:5100] += 9
    logits[0, 20_000:] = -math.inf
    assert choose(logits, draws).tolist() == choose_on_device.reference(logits, draws).tolist()


@pytest.mark.long
def test_a_rows_token_does_not_depend_on_its_company():
    draws = columns([(kind, *row) for kind, rows in ROWS.items() for row in rows[:2]])
    logits = torch.randn(len(draws.kinds), 600, generator=torch.Generator().manual_seed(5))
    only = [replace(draws, slots=draws.slots[[row]], positions=draws.positions[[row]]) for row in range(len(logits))]
    alone = [choose(logits[[row]], one)[0].tolist() for row, one in enumerate(only)]
    assert choose(logits, draws).tolist() == alone


@pytest.mark.long
def test_what_cannot_be_chosen_from_is_told_and_nothing_else():
    logits = torch.zeros(5, 530)
    logits[0, 529], logits[1, 3], logits[2, 300] = math.nan, math.inf, -math.inf
    logits[3] = -math.inf
    for kind, (row, *_) in ROWS.items():
        token_ids, faults = choose(logits, columns([(kind, *row)] * 5)).T
        assert faults.tolist() == [NOT_FINITE, NOT_FINITE, 0, NOTHING_LEFT, 0]
        assert token_ids[[0, 1, 3]].tolist() == [0, 0, 0]


@pytest.mark.long
def test_tokens_are_written_behind_the_histories_of_rows_that_are_there_and_nowhere_else():
    rows = [(kind, *asked[0]) for kind, asked in ROWS.items()]
    draws, logits = columns(rows * 2), torch.randn(3, 530, generator=torch.Generator().manual_seed(2))
    slots, positions = torch.tensor([6, NO_ROW, 3]), torch.tensor([2, 4, draws.histories.shape[1]])
    (first, _), nothing, (_, fault) = choose(logits, replace(draws, slots=slots, positions=positions)).tolist()
    assert (nothing, fault) == ([0, 0], 0)
    assert draws.histories[6, 2] == first
    draws.histories[6, 2] = UNWRITTEN
    assert (draws.histories == UNWRITTEN).all(), "a position behind the longest history is not kept either"


@pytest.mark.long
@for_each("time", [2**-14, 0.0099, 0.0101, 1.0, 8.0])
def test_times_are_exponential_down_to_the_smallest_that_win(time):
    count = torch.arange(1 << 20)
    times = exponential(count // 4096, count[:1], count[:1], count % 4096)
    share = 1 - math.exp(-time)
    assert abs((times < time).double().mean().item() - share) < 4 * (share * (1 - share) / len(count)) ** 0.5


PARAMETERS = [
    {}, {"temperature": 0.5}, {"temperature": 2, "min_p": 0.1}, {"top_k": 6}, {"top_p": 0.7},
    {"top_k": 9, "top_p": 0.8},
]  # fmt: skip


@pytest.mark.long
@for_each("params", PARAMETERS)
def test_tokens_come_as_often_as_the_parameters_say(params):
    asked, draws_made = SamplingParams(**params), 20_000
    logits = torch.randn(24, generator=torch.Generator().manual_seed(3)) * 2
    kind = OF_TOP_K if asked.top_k > 0 else OF_TOP_P if asked.top_p < 1 else OF_ALL
    count = torch.arange(draws_made)
    # Neighbours in seed, sample and position: the numbers must not tell.
    wholes = torch.stack((torch.full_like(count, asked.top_k), count // 100, count % 10))
    reals = torch.tensor([asked.temperature, asked.top_p, asked.min_p])[:, None].repeat(1, draws_made)
    kinds, nowhere = torch.full_like(count, kind), torch.zeros(draws_made, 0, dtype=torch.int32)
    draws = DeviceDraws(kinds, reals, wholes, nowhere, count, count // 10 % 10)
    token_ids = choose_on_device.reference(logits.repeat(draws_made, 1), draws)[:, 0]
    expected = numpy.zeros(len(logits))
    for token, probability in kept_probabilities(logits.double().numpy(), asked).items():
        expected[token] = probability * draws_made
    found = numpy.bincount(token_ids, minlength=len(logits))
    is_kept = expected > 0
    assert not found[~is_kept].any()
    distance = ((found - expected)[is_kept] ** 2 / expected[is_kept]).sum()
    # Chi square has a mean of its degrees of freedom and a variance of twice that.
    freedom = is_kept.sum() - 1
    assert abs(distance - freedom) < 4 * (2 * freedom) ** 0.5


OPERATIONS = {found.name: found for found in (apply_mask, penalize_repetition, penalize_generated)}


@for_each("name", OPERATIONS)
def test_it_changes_what_the_reference_changes_bit_by_bit(name):
    found = OPERATIONS[name]
    for seed in range(3):
        for arguments, again in zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True):
            assert torch.equal(found.versions["triton"](*arguments), found.reference(*again)), (seed, arguments)


def histories_of(*tokens: list[int]) -> Histories:
    lengths = torch.tensor([len(of_row) for of_row in tokens])
    table = torch.zeros(len(tokens), int(lengths.max()) + 3, dtype=torch.int32)
    for line, of_row in zip(table, tokens, strict=True):
        line[: len(of_row)] = torch.tensor(of_row, dtype=torch.int32)
    places = torch.arange(len(tokens))
    return Histories(places, table, places, lengths, int(lengths.max()))


def test_a_token_is_penalized_once_and_counted_over_its_own_answer():
    logits = torch.tensor([[2.0, -1.0] * 6] * 2)
    histories = histories_of([7] * 2100, [7, 9])
    found = penalize_repetition.versions["triton"](logits.clone(), histories, torch.tensor([1.25, 0.5]))
    expected = logits.clone()
    expected[0, 7], expected[1, 7], expected[1, 9] = -1.25, -0.5, -0.5
    assert torch.equal(found, expected)
    histories, logits = histories_of([7] * 100 + [3] * 1200 + [7] * 900, [3] * 4), torch.zeros(2, 12)
    starts, frequency, presence = torch.tensor([50, 4]), torch.tensor([0.5, 1.0]), torch.tensor([0.25, 1.0])
    found = penalize_generated.versions["triton"](logits.clone(), histories, starts, frequency, presence)
    logits[0, 7], logits[0, 3] = -(950 * 0.5 + 0.25), -(1200 * 0.5 + 0.25)
    assert torch.equal(found, logits)


def test_more_rows_than_are_counted_at_once_find_their_memory_as_new():
    tokens = [[row % 5, 2, row % 3] for row in range(70)]
    starts, frequency = torch.zeros(70, dtype=torch.int64), torch.linspace(-1, 1, 70)
    logits = torch.randn(70, 9, generator=torch.Generator().manual_seed(1))
    arguments = histories_of(*tokens), starts, frequency, frequency + 1
    found = penalize_generated.versions["triton"](logits.clone(), *arguments)
    assert torch.equal(found, penalize_generated.reference(logits.clone(), *arguments))


@pytest.mark.long
@for_each("num_top", [0, 1, 5, 6, 20, 21])
def test_the_most_likely_are_told_in_order_of_their_ids_even_where_they_stand_in_one_chunk_or_are_masked(num_top):
    logits = torch.randn(5, 1300, generator=torch.Generator().manual_seed(num_top))
    logits[0, 700:730] += 10
    logits[2:] = -math.inf
    logits[2, 550], logits[3, 3], logits[3, 599], logits[4, ::2] = -2.0, 0.0, -0.0, 1.0
    chosen = torch.tensor([1299, 0, 7, 599, 5])
    found = ranked_logprobs.versions["triton"](logits, chosen, num_top)
    expected = ranked_logprobs.reference(logits, chosen, num_top)
    assert torch.equal(found.token_ids, expected.token_ids) and torch.equal(found.ranks, expected.ranks)
    torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=1e-5, atol=1e-5)
