"""Truncation keeps the tokens that it should, chance draws from them, and company changes no draw."""

import math

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.sampled_rows import logits_like, sampled_rows
from builders.sampling_rules import kept_probabilities

from penstock.kernels import sampling
from penstock.kernels.reference.sampling.uniform import uniform
from penstock.kernels.torch import choice
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import SamplingRows, sample

pytestmark = pytest.mark.usefixtures("sampling_form")

TRUNCATIONS = [
    {"top_k": 5},
    {"top_k": 1},
    {"top_k": 40, "top_p": 0.7},
    {"top_k": 40, "top_p": 0.7, "min_p": 0.2},
    {"top_k": 40, "min_p": 0.3},
    {"top_p": 0.6},
    {"top_p": 0.05},
    {"top_p": 0.99, "min_p": 0.02},
    {"top_p": 0.9, "temperature": 3.0},
    {"min_p": 0.1},
    {"top_k": 7, "temperature": 0.3},
    {"top_k": 100_000, "top_p": 0.5},
    {},
]


def choose(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    return sampling.choose(logits, sampling.scan(logits), rows.draws())


def draws(logits: torch.Tensor, params: SamplingParams, count: int, seed: int = 3) -> numpy.ndarray:
    """`count` samples of one row of logits."""
    rows = sampled_rows(len(logits), [params] * count, seeds=[seed] * count, samples=list(range(count)))
    return choose(logits.expand(count, -1).contiguous(), rows).numpy()


@for_each("options, ties", [(options, number % 2 == 1) for number, options in enumerate(TRUNCATIONS)])
def test_draws_go_through_the_distribution_that_truncation_leaves(options, ties):
    params, count = SamplingParams(**options), 500
    logits = logits_like(1, 211, seed=4, ties=ties)[0]
    kept = kept_probabilities(logits.double().numpy(), params)
    ends = numpy.cumsum(list(kept.values()))
    numbers = uniform(torch.full((count,), 3), torch.arange(count), torch.ones(count, dtype=torch.int64)).numpy()
    expected = [list(kept)[place] for place in numpy.searchsorted(ends, numbers * ends[-1], "right")]
    assert draws(logits, params, count).tolist() == expected


def test_temperature_zero_takes_the_best_token_with_the_lowest_id_and_extreme_ones_choose_a_token():
    logits = logits_like(6, 5000, ties=True)
    chosen = choose(logits, sampled_rows(5000, [SamplingParams(temperature=0, top_k=9, top_p=0.1)] * 6))
    assert chosen.tolist() == logits.numpy().argmax(-1).tolist()
    [logits] = logits_like(1, 500)
    assert set(draws(logits, SamplingParams(temperature=1e-300), 20).tolist()) == {int(logits.argmax())}
    assert len(set(draws(logits, SamplingParams(temperature=1e300), 200).tolist())) > 100


def test_equal_tokens_at_the_border_of_top_k_give_way_to_lower_ids():
    logits = torch.full((500,), -1.0)
    logits[[400, 30, 20, 499]] = 2.0
    assert set(draws(logits, SamplingParams(top_k=3), 200).tolist()) == {20, 30, 400}
    assert set(draws(logits, SamplingParams(top_k=4, top_p=0.5), 200).tolist()) == {20, 30}


def test_a_masked_token_is_never_drawn():
    logits = torch.full((1000,), -math.inf)
    logits[[7, 300, 999]] = torch.tensor([0.0, 1.0, 0.5])
    for options in TRUNCATIONS:
        assert set(draws(logits, SamplingParams(**options), 300).tolist()) <= {7, 300, 999}, options


def mixed_params() -> list[SamplingParams]:
    return [SamplingParams(**options) for options in TRUNCATIONS] + [SamplingParams(temperature=0)]


@for_each("vocabulary", [211, 30_001])
def test_a_row_draws_the_same_alone_in_any_company_and_by_several_threads(vocabulary):
    params = mixed_params() * 2
    count, threads = len(params), torch.get_num_threads()
    logits = logits_like(count, vocabulary, seed=7)
    try:
        torch.set_num_threads(2)
        together = choose(logits.clone(), sampled_rows(vocabulary, params))
    finally:
        torch.set_num_threads(threads)
    for row in range(count):
        alone = sampled_rows(vocabulary, [params[row]], seeds=[row])
        assert choose(logits[row : row + 1].clone(), alone).item() == together[row].item(), params[row]
    order = list(range(count))[::-1]
    backwards = sampled_rows(vocabulary, [params[row] for row in order], seeds=order)
    assert torch.equal(choose(logits[order].clone(), backwards), together[order])


def test_trying_the_most_likely_first_draws_the_same_as_sorting_all(monkeypatch):
    params = [SamplingParams(top_p=top_p, temperature=temperature) for top_p in (0.3, 0.9) for temperature in (0.4, 2)]
    logits = logits_like(4, 6000, seed=2)
    found = []
    for first_try in (1, 64, 6000):
        monkeypatch.setattr(choice, "_FIRST_TRY", first_try)
        found.append(choose(logits.clone(), sampled_rows(6000, params)))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_a_draw_depends_on_seed_sample_and_position_only():
    logits = logits_like(1, 800)[0]
    plain = SamplingParams(temperature=5)

    def drawn(**options):
        rows = sampled_rows(800, [plain] * 8, **options)
        return choose(logits.expand(8, -1).contiguous(), rows).tolist()

    base = drawn(seeds=[1] * 8)
    assert len(set(base)) == 1
    assert len(set(drawn(seeds=list(range(8))))) > 4
    assert len(set(drawn(seeds=[1] * 8, samples=list(range(8))))) > 4
    assert len(set(drawn(seeds=[1] * 8, histories=[[0] * (length + 1) for length in range(8)]))) > 4
    assert drawn(seeds=[1] * 8, slots=[9, 3, 4, 5, 6, 7, 8, 2]) == base


def test_uniform_numbers_are_uniform_and_independent():
    count = 20_000
    seed, ones = torch.full((count,), 11), torch.ones(count, dtype=torch.int64)
    by_position = uniform(seed, ones, torch.arange(count))
    by_seed = uniform(torch.arange(count), ones, ones)
    for numbers in (by_position, by_seed, uniform(seed, torch.arange(count), ones)):
        assert numbers.min() >= 0 and numbers.max() < 1
        expected = count / 50
        statistic = ((torch.histc(numbers, 50, 0, 1) - expected) ** 2 / expected).sum().item()
        assert statistic < 49 + 4 * math.sqrt(98)
    assert abs(torch.corrcoef(torch.stack([by_position, by_seed]))[0, 1].item()) < 0.03
    assert abs(torch.corrcoef(torch.stack([by_position[1:], by_position[:-1]]))[0, 1].item()) < 0.03
    assert not torch.equal(by_position, uniform(seed, ones, torch.arange(count), draw=1))


@for_each("broken", [math.nan, math.inf, -math.inf])
def test_a_row_of_broken_logits_is_marked_and_harms_no_other(broken):
    params = mixed_params()
    logits = logits_like(len(params), 6000)
    right = sample(logits.clone(), sampled_rows(6000, params))
    for row in range(len(params)):
        wrong = logits.clone()
        wrong[row, 77] = broken
        found = sample(wrong, sampled_rows(6000, params))
        assert found.faults.tolist() == [int(other == row) for other in range(len(params))]
        assert found.token_ids[row] == 0
        others = [other for other in range(len(params)) if other != row]
        assert torch.equal(found.token_ids[others], right.token_ids[others])
    banned = [SamplingParams(temperature=0), SamplingParams(bad_words_ids=[[token] for token in range(50)])]
    assert sample(logits_like(2, 50), sampled_rows(50, banned)).faults.tolist() == [0, 2]
