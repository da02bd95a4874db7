"""Native operations on logits choose what the references choose, in every instruction set, whatever the company."""

import math

import pytest
import torch
from builders.cases import for_each
from builders.native_variants import ENDS, needs_variant
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import sampling
from penstock.kernels.cpu import sampling as native
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.sampling import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, Draws, Histories

pytestmark = needs_variant


@pytest.fixture
def form(library, monkeypatch) -> Library:
    """The variant that the operations are computed with."""
    monkeypatch.setattr(native, "load", lambda: library)
    return library


@st.composite
def logits_of_any_shape(draw) -> torch.Tensor:
    rows, width = draw(st.integers(1, 5)), draw(st.one_of(st.integers(1, 700), st.integers(15_000, 40_000)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    logits = torch.randn(rows, width, generator=generator) * draw(st.sampled_from([0.01, 3.0, 40.0]))
    match draw(st.sampled_from(["plain", "ties", "masked", "equal"])):
        case "ties":
            logits = logits.round()
        case "masked":
            logits[torch.rand(rows, width, generator=generator) < 0.9] = -math.inf
            logits[:, draw(st.integers(0, width - 1))] = 1.0
        case "equal":
            logits[:] = -0.0
            logits[:, ::2] = 0.0
    return logits


def drawn_as(kind: int, rows: int, generator: torch.Generator, top_k: int) -> Draws:
    reals = torch.rand(3, rows, generator=generator) * torch.tensor([[2.0], [1.0], [0.2]]) + 0.001
    if kind == OF_ALL:
        reals[1] = 1.0
    reals[2, ::2] = 0.0
    wholes = torch.randint(0, 2**62, (3, rows), generator=generator)
    wholes[0] = top_k
    kinds, tops = torch.full((rows,), kind).numpy(), torch.full((rows,), top_k).numpy()
    return Draws(kinds, tops, reals, wholes, torch.randint(0, 10**6, (rows,), generator=generator))


@given(logits=logits_of_any_shape())
@settings(max_examples=25)
def test_a_scan_finds_what_the_reference_finds(logits):
    for name in ENDS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "load", lambda name=name: load(name))
            for found, expected in zip(native.native_scan(logits), sampling.scan.reference(logits), strict=True):
                assert torch.equal(found, expected), name


@given(logits=logits_of_any_shape(), data=st.data())
@settings(max_examples=25)
def test_the_most_likely_are_those_of_the_reference(logits, data):
    count = data.draw(st.integers(1, min(logits.shape[1], 3000)))
    values, ids = native.native_most_likely(logits, count)
    expected_values, expected_ids = sampling.most_likely.reference(logits, count)
    assert torch.equal(ids, expected_ids) and torch.equal(values, expected_values)


@given(
    kind=st.sampled_from([OF_TOP_K, OF_TOP_P, OF_ALL]),
    logits=logits_of_any_shape(),
    seed=st.integers(0, 10**6),
    top_k=st.integers(1, 500),
)
@settings(max_examples=50)
def test_a_draw_is_that_of_the_reference(kind, logits, seed, top_k):
    generator = torch.Generator().manual_seed(seed)
    draws = drawn_as(kind, len(logits), generator, min(top_k, logits.shape[1]))
    scanned = sampling.scan.reference(logits)
    found = native.native_choose(logits, scanned, draws)
    assert torch.equal(found, sampling.choose.reference(logits.clone(), scanned, draws))


@given(logits=logits_of_any_shape(), data=st.data())
@settings(max_examples=25)
def test_log_probabilities_and_ranks_are_those_of_the_reference(logits, data):
    width = logits.shape[1]
    chosen = torch.tensor([data.draw(st.integers(0, width - 1)) for _ in logits])
    num_top = data.draw(st.integers(0, min(width, 300)))
    found = native.native_ranked_logprobs(logits, chosen, num_top)
    expected = sampling.ranked_logprobs.reference(logits, chosen, num_top)
    assert torch.equal(found.token_ids, expected.token_ids) and torch.equal(found.ranks, expected.ranks)
    # In float64: torch's own in float32 rounds more than what is tested.
    exact = torch.log_softmax(logits.double(), -1).gather(1, found.token_ids.long()).float()
    torch.testing.assert_close(found.logprobs, exact, rtol=2e-6, atol=2e-6)


@st.composite
def histories_of_any_shape(draw) -> tuple[torch.Tensor, Histories]:
    width, slots, count = draw(st.integers(1, 300)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    count = min(count, slots)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    logits = torch.randn(count + 2, width, generator=generator) * 3
    tokens = torch.randint(0, width, (slots, 50), generator=generator, dtype=torch.int32)
    lengths = torch.randint(1, 51, (count,), generator=generator)
    rows, lines = (torch.randperm(size, generator=generator)[:count] for size in (count + 2, slots))
    return logits, Histories(rows, tokens, lines, lengths, int(lengths.max()))


@given(histories_of_any_shape(), st.integers(0, 50), st.floats(0.1, 3))
@settings(max_examples=30)
def test_penalties_change_what_the_references_change_bit_for_bit(given_histories, start, strength):
    logits, histories = given_histories
    columns = torch.full((2, len(histories.rows)), strength)
    columns[1] -= 1
    starts = histories.lengths.clamp(max=start)
    for operation, arguments in (
        (sampling.penalize_repetition, columns[:1]),
        (sampling.penalize_generated, (starts, *columns)),
    ):
        found, expected = logits.clone(), logits.clone()
        operation.versions["cpu"](found, histories, *arguments)
        operation.reference(expected, histories, *arguments)
        assert torch.equal(found, expected), operation.name


@given(width=st.integers(1, 200), seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_a_mask_leaves_what_the_reference_leaves(width, seed):
    generator = torch.Generator().manual_seed(seed)
    logits, rows = torch.randn(5, width, generator=generator), torch.randperm(5, generator=generator)[:3]
    bits = torch.randint(-(2**31), 2**31, (3, -(-width // 32)), generator=generator).to(torch.int32)
    found = native.native_apply_mask(logits.clone(), rows, bits)
    assert torch.equal(found, sampling.apply_mask.reference(logits.clone(), rows, bits))


def mixed(rows: int, width: int) -> tuple[torch.Tensor, Draws]:
    """Logits of every shape of distribution, drawn in every way."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(rows, width, generator=generator) * torch.rand(rows, 1, generator=generator) * 20
    draws = drawn_as(BEST, rows, generator, 30)
    draws.kinds[:] = [row % 4 for row in range(rows)]
    return logits, draws


def test_a_row_is_chosen_alike_alone_and_in_company_by_any_number_of_threads(form):
    logits, draws = mixed(23, 33_333)
    found = []
    for threads in (1, 2, 3):
        form.set_threads(threads)
        found.append(native.native_choose(logits, native.native_scan(logits), draws))
    form.set_threads(1)
    for row in range(len(logits)):
        one = logits[row : row + 1]
        alone = native.native_choose(one, native.native_scan(one), draws.only(torch.tensor([row]).numpy()))
        assert [alone.item()] == list({together[row].item() for together in found}), row


def test_log_probabilities_have_the_same_bits_alone_and_in_company(form):
    logits, _ = mixed(7, 33_333)
    chosen = torch.arange(7) * 4000
    together = native.native_ranked_logprobs(logits, chosen, 20)
    for row in range(7):
        alone = native.native_ranked_logprobs(logits[row : row + 1], chosen[row : row + 1], 20)
        assert all(torch.equal(one[0], all_rows[row]) for one, all_rows in zip(alone, together, strict=True))


@for_each("broken", [math.nan, math.inf, -math.inf])
@for_each("place", [0, 15, 16, 32_999])
def test_a_broken_logit_is_noticed_wherever_it_stands(broken, place, form):
    logits = torch.zeros(3, 33_000)
    logits[1, place] = broken
    assert native.native_scan(logits).is_finite.tolist() == [True, False, True]


@for_each("value", [math.nan, math.inf, -math.inf])
def test_a_row_without_any_choice_still_gets_a_token_of_the_vocabulary(value, form):
    logits, draws = mixed(8, 700)
    logits[:] = value
    chosen = native.native_choose(logits, native.native_scan(logits), draws)
    assert chosen.min() >= 0 and chosen.max() < 700
    assert native.native_most_likely(logits, 9)[1].max() < 700
    assert native.native_ranked_logprobs(logits, torch.zeros(8, dtype=torch.int64), 9).token_ids.max() < 700


def test_a_choice_leaves_the_logits_alone(form):
    logits, draws = mixed(9, 5000)
    before = logits.clone()
    native.native_choose(logits, native.native_scan(logits), draws)
    assert torch.equal(logits, before)
