"""Prompts that a library attends to: by way of its stand-in, a step's output is what the reference gives."""

from builders import interpreted  # noqa: F401  isort: skip

import inspect

import pytest
import torch
from builders.operation_examples.attention import Form, Requests
from torch import Tensor

from penstock.kernels.paged import DeviceRows, PagedKV
from penstock.kernels.reference.paged_attention import attention_paged
from penstock.kernels.triton.attention import library, paged
from penstock.kernels.triton.attention.library import is_right, library_for
from penstock.kernels.triton.attention.shape import LIBRARY, PROMPTS

CPU = torch.device("cpu")
formula = attention_paged.reference


@pytest.fixture
def _on_a_processor(monkeypatch):
    monkeypatch.setattr(library, "_DEVICE", "cpu")
    monkeypatch.setattr(library, "_LEAST_QUERIES", 1)
    library.library.cache_clear()
    yield
    library.library.cache_clear()


def test_answers_among_prompts_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(Form("bf16", 2, 1), [90, 41, 70])
    seen = []

    def noting(query: Tensor, kv: PagedKV, rows: DeviceRows, *rest) -> Tensor:
        seen.append((rows.query_starts.tolist(), rows.context_lengths.tolist()))
        attended = formula(query, kv, rows, *rest)
        attended[: rows.query_starts[0]] = attended[rows.query_starts[1] :] = torch.nan
        return attended

    monkeypatch.setattr(paged, "library_for", lambda *asked: noting)
    monkeypatch.setitem(PROMPTS["bf16"]._known, (64, 2), LIBRARY)
    query, rows = requests.step([(0, 89, 90), (1, 0, 41), (2, 69, 70)])
    given = (query, requests.memory(), rows, 0.125, None)
    found, expected = paged.attention_by_shape(*given), formula(*given)
    assert seen == [([1, 42, 43], [41, 70])], "the answer before the first prompt is not there"
    assert (found - expected).norm() < 8e-3 * expected.norm()


def test_prompts_with_sinks_are_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "library_for", lambda *asked: pytest.fail("no library knows of sinks"))
    requests = Requests(Form("bf16", 4, 2, has_sinks=True), [90])
    query, rows = requests.step([(0, 0, 90)])
    given = (query, requests.memory(), rows, 0.125, None, requests.form.sinks)
    found, expected = paged.attention_by_shape(*given), formula(*given)
    assert (found - expected).norm() < 8e-3 * expected.norm()


@pytest.mark.usefixtures("_on_a_processor")
def test_short_prompts_and_other_formats_are_not_served_nor_is_a_processor_or_float32(monkeypatch) -> None:
    monkeypatch.setattr(library, "_libraries", lambda: iter({"right": formula}.items()))
    requests = Requests(Form("bf16", 4, 2), [90])
    query, rows = requests.step([(0, 0, 90)])
    assert library_for(query, requests.memory(), rows) is formula
    assert library_for(query, Requests(Form("int8", 4, 2), [90]).memory(), rows) is None
    monkeypatch.setattr(library, "_LEAST_QUERIES", 4 * 90 + 1)
    assert library_for(query, requests.memory(), rows) is None
    library.library.cache_clear()
    monkeypatch.setattr(library, "_DEVICE", "cuda")
    assert library.library(CPU, torch.bfloat16, 64, 16) is None
    assert library.library(torch.device("cuda"), torch.float32, 64, 16) is None


@pytest.mark.usefixtures("_on_a_processor")
def test_the_first_library_that_is_right_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*inputs) -> Tensor:
        raise RuntimeError("Paged KV cache block size must be divisible by 256")

    def wrong(query: Tensor, *inputs) -> Tensor:
        return query

    def of_other_mask(query: Tensor, kv: PagedKV, rows: DeviceRows, scale: float, window: int | None) -> Tensor:
        return formula(query, kv, rows, scale, 3)

    found = {"1": failing, "2": wrong, "of another convention": of_other_mask, "right": formula, "second": wrong}
    monkeypatch.setattr(library, "_libraries", lambda: iter(found.items()))
    assert library.library(CPU, torch.bfloat16, 32, 16) is formula
    assert not is_right(of_other_mask, device=CPU, dtype=torch.bfloat16, head_dim=64, block_size=16)


@pytest.mark.long  # imports what takes a second
def test_torchs_function_is_called_as_its_signature_says(monkeypatch: pytest.MonkeyPatch) -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    signature = inspect.signature(varlen.varlen_attn)
    if "block_table" not in signature.parameters:
        pytest.skip("this torch's function reads no blocks")

    def called(*given, **named) -> Tensor:
        bound = signature.bind(*given, **named).arguments
        before, after = bound["window_size"]
        assert after == 0 and bound["enable_gqa"] and bound["cu_seq_k"] is None
        columns = (bound[name] for name in ("cu_seq_q", "seqused_k", "block_table"))
        rows = DeviceRows(*columns, torch.empty(0), bound["max_q"], bound["max_k"])
        window = None if before < 0 else before + 1
        return formula(bound["query"], PagedKV(bound["key"], bound["value"]), rows, bound["scale"], window)

    monkeypatch.setattr(varlen, "varlen_attn", called)
    assert is_right(library._by_torch, CPU, torch.bfloat16, 64, 16)


@pytest.mark.long  # likewise
@pytest.mark.usefixtures("_on_a_processor")
def test_a_torch_whose_function_takes_no_blocks_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    varlen = pytest.importorskip("torch.nn.attention.varlen")

    def older(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None) -> Tensor:
        raise AssertionError("it was called")

    monkeypatch.setattr(library, "find_spec", lambda name: name == library._TORCH)
    assert library.lack() == ""
    monkeypatch.setattr(varlen, "varlen_attn", older)
    assert "has no attention that reads blocks" in library.lack()
    assert library._TORCH in dict(library._libraries())
    assert library.library(CPU, torch.bfloat16, 64, 16) is None
