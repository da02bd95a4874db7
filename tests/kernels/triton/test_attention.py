"""Attention on a GPU, in Triton's interpreter: right in every format, and free of company where it promises that."""

from builders import interpreted  # noqa: F401  isort: skip

import pytest
import torch
from builders.packed_steps import Form, Requests
from torch import Tensor

from penstock.kernels.paged import KV_DTYPES
from penstock.kernels.reference.paged_attention import attention_paged, attention_paged_invariant
from penstock.kernels.triton import arrival
from penstock.kernels.triton.attention import paged, trial

QUICK_KINDS = ["bf16", *(pytest.param(kind, marks=pytest.mark.long) for kind in KV_DTYPES if kind != "bf16")]
FORMS = {"fast": attention_paged, "invariant": attention_paged_invariant}
# Of the output's norm, against the formula on what is stored.
TOLERANCES = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 6e-3, "int8": 6e-3}


def attended(requests: Requests, spans: list[tuple[int, int, int]], form: str = "fast", **rest) -> Tensor:
    """What the kernel gives for the step, where there are tokens; only what the step may read is written."""
    spare = {name: rest.pop(name) for name in ("spare_rows", "spare_tokens") if name in rest}
    query, rows = requests.step(spans, **spare)
    written = [max((end for at, _, end in spans if at == number), default=0) for number in range(len(requests.lengths))]
    memory = requests.memory(rest.pop("written", written))
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    found = FORMS[form].versions["triton"](query, memory, rows, scale, window, requests.form.sinks)
    return found[: sum(end - first for _, first, end in spans)]


def assert_right(requests: Requests, spans: list[tuple[int, int, int]], form: str = "fast", **spare: int) -> None:
    found = attended(requests, spans, form, **spare)
    query, rows = requests.step(spans)
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    expected = attention_paged.reference(query, requests.memory(), rows, scale, window, requests.form.sinks)
    error = ((found - expected).norm() / expected.norm()).item()
    assert error <= TOLERANCES[requests.form.kind], f"off by {error:.1e} of the output's norm"


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KV_DTYPES)
def test_answers_and_prompts_attend_rightly_in_every_format(kind: str, form: str) -> None:
    requests = Requests(Form(kind, 2, 1), [41, 19, 70])
    assert_right(requests, [(0, 40, 41), (1, 18, 19)], form)
    assert_right(requests, [(0, 40, 41), (1, 0, 19), (2, 60, 70)], form)


@pytest.mark.long
@pytest.mark.parametrize(
    "query_heads, heads, head_dim, block_size", [(1, 1, 64, 16), (7, 1, 96, 32), (16, 2, 128, 64), (2, 1, 256, 128)]
)
@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_heads_may_be_of_many_shapes(kind: str, query_heads: int, heads: int, head_dim: int, block_size: int) -> None:
    requests = Requests(Form(kind, query_heads, heads, head_dim, block_size), [37, 90])
    assert_right(requests, [(0, 36, 37), (1, 89, 90)])
    assert_right(requests, [(0, 35, 37), (1, 82, 90)])


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("window", [1, 20, 280])
def test_a_window_hides_what_lies_before_it(window: int, form: str) -> None:
    requests = Requests(Form("bf16", 2, 1, window=window), [330, 40])
    assert_right(requests, [(0, 329, 330), (1, 39, 40)], form)
    assert_right(requests, [(0, 312, 330), (1, 38, 40)], form)


@pytest.mark.parametrize(
    "kind, window", [("bf16", 280), *(pytest.param(kind, None, marks=pytest.mark.long) for kind in KV_DTYPES)]
)
@pytest.mark.parametrize("form", FORMS)
def test_sinks_take_their_share_of_each_softmax(kind: str, window: int | None, form: str) -> None:
    """Where a context is split, too."""
    requests = Requests(Form(kind, 6, 2, 32, window=window, has_sinks=True), [330, 40])
    assert_right(requests, [(0, 329, 330), (1, 39, 40)], form)
    assert_right(requests, [(0, 312, 330), (1, 38, 40)], form)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_long_context_is_split_and_added_up(form: str) -> None:
    requests = Requests(Form("fp32", 2, 1, 16), [600, 100])
    assert_right(requests, [(0, 599, 600), (1, 99, 100)], form)
    assert not arrival.counters(torch.device("cpu")).any(), "the next launch begins to count where this one ended"


@pytest.mark.long
@pytest.mark.parametrize("window", [None, 1300])
def test_there_may_be_more_splits_than_are_read_at_once(window: int | None) -> None:
    requests = Requests(Form("bf16", 2, 1, 128, window=window), [2600, 300])
    assert_right(requests, [(0, 2599, 2600), (1, 299, 300)])


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_step_of_more_tiles_than_can_be_counted_is_not_split(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(Form("bf16", 2, 1, 32), [600, 300])
    spans = [(0, 599, 600), (1, 299, 300)]
    split = attended(requests, spans, form)
    monkeypatch.setattr(paged, "MOST", 1)
    assert_right(requests, spans, form)
    assert form == "fast" or torch.equal(attended(requests, spans, form), split)


def test_there_may_be_room_to_spare() -> None:
    requests = Requests(Form("bf16", 2, 1), [41, 300])
    assert_right(requests, [(0, 40, 41), (1, 299, 300)], spare_rows=2, spare_tokens=2)
    assert_right(requests, [(0, 30, 41), (1, 299, 300)], spare_rows=2, spare_tokens=5)


@pytest.mark.long
@pytest.mark.parametrize("kind", KV_DTYPES)
def test_what_is_not_finite_in_one_row_reaches_no_other(kind: str) -> None:
    requests = Requests(Form(kind, 2, 1), [40, 41])
    for spans in ([(0, 39, 40), (1, 40, 41)], [(0, 20, 40), (1, 20, 41)]):
        found = attended(requests, spans, written=[7, 41])  # the first request misses most of its tokens
        count = spans[0][2] - spans[0][1]
        assert found[:count].isnan().any(-1).all() and not found[count:].isnan().any()


@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_a_token_has_the_same_bits_alone_in_company_and_however_its_prompt_is_chunked(kind: str) -> None:
    requests = Requests(Form(kind, 3, 1, 32), [24, 13])
    whole = attended(requests, [(0, 0, 24)], "invariant")
    chunks = [(0, 0, 9), (0, 9, 24)]
    chunked = [attended(requests, [chunk, (1, 8, 13)], "invariant")[: chunk[2] - chunk[1]] for chunk in chunks]
    assert torch.equal(torch.cat(chunked), whole)
    for position in (10, 23):
        alone = attended(requests, [(0, position, position + 1)], "invariant")
        assert torch.equal(alone[0], whole[position]), position


@pytest.mark.long
def test_a_token_has_the_same_bits_where_its_context_is_split_and_where_it_is_not() -> None:
    requests = Requests(Form("bf16", 2, 1, 32, window=400, has_sinks=True), [530, 300])
    prompt = attended(requests, [(0, 490, 530), (1, 299, 300)], "invariant")
    answers = [attended(requests, [(0, 529, 530)], "invariant"), attended(requests, [(1, 298, 300)], "invariant")[1:]]
    assert torch.equal(torch.cat(answers), prompt[-2:])


@pytest.mark.long
def test_in_the_fast_form_too_a_row_has_the_same_bits_whatever_stands_in_the_others() -> None:
    requests = Requests(Form("bf16", 2, 1), [300, 50, 33])
    prompt, answer = (1, 20, 50), (0, 299, 300)
    assert torch.equal(attended(requests, [answer, prompt])[:1], attended(requests, [answer, (2, 32, 33)])[:1])
    assert torch.equal(attended(requests, [prompt, answer])[:30], attended(requests, [prompt, (2, 0, 33)])[:30])


@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_what_answers_are_tuned_on_is_a_step_of_answers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over memory of zeros, so that every output is 0, and none is missing."""
    monkeypatch.setattr(trial, "_CONTEXT", 300)
    monkeypatch.setattr(trial, "_ROWS", 2)
    requests = Requests(Form(kind, 2, 1), [5])
    query, _ = requests.step([(0, 4, 5)])
    tried, memory, rows = trial.trial_step(query, requests.memory())
    found = FORMS["fast"].versions["triton"](tried + 1, memory, rows, 0.125, None)
    assert found.shape == (2, 2, 64) and torch.equal(found, torch.zeros_like(found))


@pytest.mark.parametrize("form", ["attention_by_shape", "attention_of_one_shape"])
@pytest.mark.parametrize(
    "spans, passes",
    [([(0, 0, 90), (1, 0, 41)], 1), ([(0, 89, 90), (1, 40, 41)], 1), ([(0, 0, 90), (1, 40, 41)], 2), ([(0, 0, 90)], 1)],
    ids=["prompts", "answers", "both", "one prompt"],
)
def test_a_step_launches_no_pass_for_rows_that_are_not_there(form, spans, passes, monkeypatch):
    launched, launch = [], paged._launch
    monkeypatch.setattr(paged, "_launch", lambda *given: launched.append(given) or launch(*given))
    requests = Requests(Form("bf16", 2, 1), [90, 41])
    query, rows = requests.step(spans)
    found = getattr(paged, form)(query, requests.memory(), rows, 0.125, None)
    expected = attention_paged.reference(query, requests.memory(), rows, 0.125, None)
    assert (found - expected).norm() < 8e-3 * expected.norm()
    assert len(launched) == passes
