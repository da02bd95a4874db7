"""Prompts that a library attends to: by way of its stand-in, a step's output is what the reference gives."""

from builders import interpreted  # noqa: F401  isort: skip

import inspect
from functools import partial

import pytest
import torch
from builders.packed_steps import Form, Requests
from torch import Tensor

from penstock.kernels.reference.paged_attention import attention_paged
from penstock.kernels.triton.attention import library, paged
from penstock.kernels.triton.attention.library import attend_by_library, formula, is_right, serves
from penstock.kernels.triton.attention.shape import LIBRARY, PROMPTS

QUICK_KINDS = ["bf16", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("fp16", "int8", "uint4"))]
CPU = torch.device("cpu")


def error_of(requests: Requests, found: Tensor, spans: list[tuple[int, int, int]]) -> float:
    """Of the output's norm."""
    query, rows = requests.step(spans)
    form = requests.form
    expected = attention_paged.reference(query, requests.memory(), rows, form.head_dim**-0.5, form.window)
    return ((found[: len(expected)] - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("window", [None, pytest.param(30, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_prompts_and_their_chunks_attend_rightly(kind: str, window: int | None) -> None:
    requests = Requests(Form(kind, window=window), [90, 19])
    spans = [(0, 50, 90), (1, 0, 19)]
    query, rows = requests.step(spans, spare_rows=1, spare_tokens=3)
    scale = requests.form.head_dim**-0.5
    found = attend_by_library(formula, query, requests.memory(), rows, scale, window, 1)
    assert error_of(requests, found, spans) < 8e-3


def test_answers_among_prompts_are_not_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(Form("bf16", 2, 1), [90, 41, 70])
    spans = [(0, 89, 90), (1, 0, 41), (2, 69, 70)]
    seen = []

    def noting(query: Tensor, keys: Tensor, *rest) -> Tensor:
        seen.append(rest[1].key_starts.tolist())
        return formula(query, keys, *rest).masked_fill_(query == 0, torch.nan)

    monkeypatch.setattr(paged, "library", lambda *asked: noting)
    monkeypatch.setattr(library, "_LEAST_QUERIES", 1)
    monkeypatch.setitem(PROMPTS["bf16"]._known, (64, 2), LIBRARY)
    query, rows = requests.step(spans)
    found = paged.attention_by_shape(query, requests.memory(), rows, 0.125, None)
    assert seen == [[0, 41, 41]], "the answer before the first prompt is not there, the one behind it has no keys"
    assert error_of(requests, found, spans) < 8e-3


def test_short_prompts_and_contexts_beyond_the_bound_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(Form("bf16", 4, 2), [90])
    query, rows = requests.step([(0, 0, 90)])
    assert not serves(query, requests.memory(), rows, None)
    monkeypatch.setattr(library, "_LEAST_QUERIES", 4 * 90)
    assert serves(query, requests.memory(), rows, None)
    monkeypatch.setattr(library, "_BYTES", 90 * 2 * 2 * 64 * 2 - 1)
    assert not serves(query, requests.memory(), rows, None)


def test_a_library_of_another_convention_is_not_believed() -> None:
    def of_other_mask(query: Tensor, keys: Tensor, values: Tensor, lengths, scale: float, window: int | None) -> Tensor:
        return formula(query, keys, values, lengths, scale, 3)

    trial = partial(is_right, device=CPU, dtype=torch.bfloat16, head_dim=64)
    assert trial(formula) and not trial(of_other_mask)


def test_the_first_library_that_is_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*inputs) -> Tensor:
        raise RuntimeError("no kernel image is available")

    def wrong(query: Tensor, *inputs) -> Tensor:
        return query

    found = {"another torch's": failing, "wrong": wrong, "right": formula, "second": wrong}
    monkeypatch.setattr(library, "_libraries", lambda: iter(found.items()))
    monkeypatch.setattr(library, "_DEVICE", "cpu")
    library.library.cache_clear()
    assert library.library(CPU, torch.bfloat16, 32) is formula
    library.library.cache_clear()


def test_there_is_no_library_for_a_processor_or_for_float32() -> None:
    assert library.library(CPU, torch.bfloat16, 64) is None
    assert library.library(torch.device("cuda"), torch.float32, 64) is None


@pytest.mark.long  # imports what takes a second
def test_torchs_function_is_called_as_its_signature_says(monkeypatch: pytest.MonkeyPatch) -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    signature = inspect.signature(varlen.varlen_attn)

    def called(*given, **named) -> Tensor:
        bound = signature.bind(*given, **named).arguments
        before, after = bound["window_size"]
        assert after == 0 and bound.get("enable_gqa", True)
        lengths = library.Lengths(*(bound[name] for name in ("cu_seq_q", "cu_seq_k", "max_q", "max_k")))
        window = None if before < 0 else before + 1
        return formula(bound["query"], bound["key"], bound["value"], lengths, bound["scale"], window)

    called.__signature__ = signature
    monkeypatch.setattr(varlen, "varlen_attn", called)
    assert is_right(library._of_torch, CPU, torch.bfloat16, 64)
