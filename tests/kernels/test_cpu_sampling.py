"""Native operations on logits choose what the references choose, in every instruction set, whatever the company."""

import math

import pytest
import torch
from builders.cases import for_each
from builders.native_variants import needs_variant
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cpu.library import Library
from penstock.kernels.reference.sampling.choice import choose, uniforms
from penstock.kernels.reference.sampling.order import scan
from penstock.kernels.sampling import BEST, OF_ALL, OF_TOP_K, OF_TOP_P, Columns, Draws
from penstock.kernels.torch import sampling as tensors
from penstock.kernels.torch.choice import rows_of
from penstock.kernels.torch.sampling import native

pytestmark = needs_variant


@pytest.fixture
def form(library, monkeypatch) -> Library:
    """The variant that the operations are computed with."""
    monkeypatch.setattr(tensors, "load", lambda: library)
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
    return Draws(kinds, tops, Columns(*reals, *wholes), torch.randint(0, 10**6, (rows,), generator=generator))


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
    scanned = scan.reference(logits)
    found = native("choose", logits, scanned, draws)
    assert torch.equal(found, choose.reference(logits.clone(), scanned, draws))


@for_each("kind", [OF_TOP_K, OF_TOP_P, OF_ALL])
def test_a_number_that_a_rounded_sum_puts_behind_all_tokens_draws_the_last_that_is_left(kind, form):
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(64, 100, generator=generator)
    logits[:, 90:] = -math.inf
    draws = drawn_as(kind, 64, generator, 95)
    draws.columns.temperature[:] = 1
    for each, value in ((draws.columns.seed, 0), (draws.columns.sample, 0), (draws.positions, 11_033_244)):
        each[:] = value
    assert 0 < 1 - uniforms(draws).max() < 1e-8
    found = native("choose", logits, native("scan", logits), draws)
    assert torch.equal(found, choose.reference(logits, scan.reference(logits), draws))


def mixed(rows: int, width: int) -> tuple[torch.Tensor, Draws]:
    """Logits of every shape of distribution, drawn in every way."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(rows, width, generator=generator) * torch.rand(rows, 1, generator=generator) * 20
    draws = drawn_as(BEST, rows, generator, 30)
    draws.kinds[:] = [row % 4 for row in range(rows)]
    return logits, draws


def test_a_row_is_chosen_alike_alone_and_in_company_by_any_number_of_threads_and_logits_stay(form):
    logits, draws = mixed(23, 33_333)
    before, found = logits.clone(), []
    for threads in (1, 2, 3):
        form.set_threads(threads)
        found.append(native("choose", logits, native("scan", logits), draws))
    form.set_threads(1)
    assert torch.equal(logits, before)
    chosen = torch.arange(23) * 1400
    together = native("ranked_logprobs", logits, chosen, 20)
    for row in range(len(logits)):
        one = logits[row : row + 1]
        alone = native("choose", one, native("scan", one), rows_of(draws, torch.tensor([row]).numpy()))
        assert [alone.item()] == list({each[row].item() for each in found}), row
        ranked = native("ranked_logprobs", one, chosen[row : row + 1], 20)
        assert all(torch.equal(own[0], of_all[row]) for own, of_all in zip(ranked, together, strict=True)), row


@for_each("broken", [math.nan, math.inf, -math.inf])
@for_each("place", [0, 15, 16, 32_999])
def test_a_broken_logit_is_noticed_wherever_it_stands(broken, place, form):
    logits = torch.zeros(3, 33_000)
    logits[1, place] = broken
    assert native("scan", logits).is_finite.tolist() == [True, False, True]


@for_each("value", [math.nan, math.inf, -math.inf])
def test_a_row_without_any_choice_still_gets_a_token_of_the_vocabulary(value, form):
    logits, draws = mixed(8, 700)
    logits[:] = value
    chosen = native("choose", logits, native("scan", logits), draws)
    assert chosen.min() >= 0 and chosen.max() < 700
    assert native("most_likely", logits, 9)[1].max() < 700
    assert native("ranked_logprobs", logits, torch.zeros(8, dtype=torch.int64), 9).token_ids.max() < 700
