"""Choosing by a race on a GPU: the reference's tokens; and the reference's are distributed as the parameters say."""

import math

import numpy
import pytest
import torch
from builders import interpreted  # noqa: F401
from builders.sampling_rules import kept_probabilities

from penstock.kernels.reference.choice import BEST, OF_ALL, OF_TOP_K, OF_TOP_P
from penstock.kernels.reference.race import choose_on_device
from penstock.kernels.reference.uniform import exponential
from penstock.kernels.sampling_columns import NOT_FINITE, NOTHING_LEFT, Chosen, DeviceDraws
from penstock.protocol.sampling import SamplingParams

# Infinities are meant; numpy, in which kernels are interpreted, warns of them.
pytestmark = [
    pytest.mark.long,  # test_versions.py and test_compiled.py look at every kernel in every run
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

# By what a row asks for: temperature, top_p, min_p, top_k. At 1e30 all weights are 1, so that every token kept wrongly
# is as likely to be drawn as another.
ROWS = {
    BEST: [(1.0, 1.0, 0.0, 0)],
    OF_TOP_K: [
        (1.0, 1.0, 0.0, 1),
        (1e30, 1.0, 0.0, 50),
        (3.0, 0.5, 0.0, 9),
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
    return DeviceDraws(torch.tensor(kinds, dtype=torch.int32), torch.tensor(reals), wholes, count + 11)


def only(draws: DeviceDraws, row: int) -> DeviceDraws:
    one = slice(row, row + 1)
    return DeviceDraws(draws.kinds[one], draws.reals[:, one], draws.wholes[:, one], draws.positions[one])


def chosen_on_device(logits: torch.Tensor, draws: DeviceDraws) -> Chosen:
    return choose_on_device.versions["triton"](logits, draws)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("step", [0.0, 0.5, 8.0])
def test_it_does_so_for_parameters_at_their_ends_and_among_equal_logits(kind, step):
    draws = columns([(kind, *row) for row in ROWS[kind] * 3])
    logits = torch.randn(len(draws.kinds), 700, generator=torch.Generator().manual_seed(int(step))) * 3
    if step:
        logits = (logits / step).round() * step
    assert chosen_on_device(logits, draws).token_ids.tolist() == choose_on_device.reference(logits, draws)[0].tolist()


def test_a_rows_token_does_not_depend_on_its_company():
    draws = columns([(kind, *row) for kind, rows in ROWS.items() for row in rows[:2]])
    logits = torch.randn(len(draws.kinds), 600, generator=torch.Generator().manual_seed(5))
    together = chosen_on_device(logits, draws).token_ids
    alone = [chosen_on_device(logits[row : row + 1], only(draws, row)).token_ids.item() for row in range(len(logits))]
    assert together.tolist() == alone


def test_what_cannot_be_chosen_from_is_told_and_nothing_else():
    logits = torch.zeros(5, 530)
    logits[0, 529], logits[1, 3], logits[2, 300] = math.nan, math.inf, -math.inf
    logits[3] = -math.inf
    for kind, (row, *_) in ROWS.items():
        found = chosen_on_device(logits, columns([(kind, *row)] * 5))
        assert found.faults.tolist() == [NOT_FINITE, NOT_FINITE, 0, NOTHING_LEFT, 0]
        assert found.token_ids[[0, 1, 3]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("time", [2**-14, 0.0099, 0.0101, 1.0, 8.0])
def test_times_are_exponential_down_to_the_smallest_that_win(time):
    count = torch.arange(1 << 20)
    times = exponential(count // 4096, count[:1], count[:1], count % 4096)
    share = 1 - math.exp(-time)
    assert abs((times < time).double().mean().item() - share) < 4 * (share * (1 - share) / len(count)) ** 0.5


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2, "min_p": 0.1},
        {"top_k": 6},
        {"top_p": 0.7},
        {"top_k": 9, "top_p": 0.8},
    ],
    ids=str,
)
def test_tokens_come_as_often_as_the_parameters_say(params):
    asked, draws_made = SamplingParams(**params), 20_000
    logits = torch.randn(24, generator=torch.Generator().manual_seed(3)) * 2
    kind = OF_TOP_K if asked.top_k > 0 else OF_TOP_P if asked.top_p < 1 else OF_ALL
    count = torch.arange(draws_made)
    # Neighbours in seed, sample and position: the numbers must not tell.
    wholes = torch.stack((torch.full_like(count, asked.top_k), count // 100, count % 10))
    reals = torch.tensor([asked.temperature, asked.top_p, asked.min_p])[:, None].repeat(1, draws_made)
    draws = DeviceDraws(torch.full((draws_made,), kind, dtype=torch.int32), reals, wholes, count // 10 % 10)
    token_ids = choose_on_device.reference(logits.repeat(draws_made, 1), draws).token_ids
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
