"""What is drawn at the borders of truncation and among equal tokens, and of what a draw depends."""

import math

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.sampled_rows import choose, logits_like, sample, sampled_rows
from builders.sampling_rules import CASES

from penstock.kernels.reference.sampling.uniform import uniform
from penstock.kernels.torch import choice
from penstock.protocol.parameters.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("sampling_form")


def draws(logits: torch.Tensor, params: SamplingParams, count: int, seed: int = 3) -> numpy.ndarray:
    """`count` samples of one row of logits."""
    rows = sampled_rows(len(logits), [params] * count, seeds=[seed] * count, samples=list(range(count)))
    return choose(logits.expand(count, -1).contiguous(), rows).numpy()


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
    for name, options in CASES.items():
        assert set(draws(logits, SamplingParams(**options), 300).tolist()) <= {7, 300, 999}, name


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
    params = [SamplingParams(**options) for options in CASES.values()]
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
