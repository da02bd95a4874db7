"""Storing heads on a GPU, in Triton's interpreter: the numbers of the torch reference, bit for bit."""

from builders import interpreted  # noqa: F401  isort: skip

from dataclasses import replace

import pytest
import torch
from builders.operation_examples.paged_inputs import empty_memory
from builders.packed_steps import Form, Requests
from torch import Tensor

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import KV_DTYPES, PagedKV, Rotation
from penstock.kernels.reference.paged_attention import store_heads_paged

pytestmark = pytest.mark.long  # test_versions.py and test_compiled.py look at every kernel in every run

store_on_gpu = store_heads_paged.versions["triton"]


def heads_of(form: Form, tokens: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, (form.query_heads + 2 * form.heads) * form.head_dim, generator=generator) * 1.5


def head_form(form: Form, has_norms: bool = False, pairs: bool = False) -> HeadLayout:
    generator = torch.Generator().manual_seed(3)
    norms = tuple(torch.rand(2, form.head_dim, generator=generator) + 0.5) if has_norms else None
    return HeadLayout(form.query_heads, form.heads, form.head_dim, pairs, norms, 1e-6)


def rotation_of(form: Form, spans: list[tuple[int, int, int]], spare: int = 0) -> Rotation:
    angles = torch.rand(200, form.head_dim, generator=torch.Generator().manual_seed(5)) * 6
    positions = torch.tensor([position for _, first, end in spans for position in range(first, end)] + [0] * spare)
    return Rotation(angles.cos(), angles.sin(), positions)


def memory_for(requests: Requests) -> PagedKV:
    form = requests.form
    return empty_memory(form.kind, 1 + sum(map(len, requests.tables)), form.heads, form.block_size, form.head_dim)


def assert_same_memory(found: PagedKV, expected: PagedKV) -> None:
    for name in ("keys", "values", "key_scales", "value_scales"):
        held, wanted = getattr(found, name), getattr(expected, name)
        if held is not None:
            assert torch.equal(held.nan_to_num(7), wanted.nan_to_num(7)), name


@pytest.mark.parametrize("kind", KV_DTYPES)
@pytest.mark.parametrize("dtype, head_dim, block_size", [(torch.bfloat16, 64, 16), (torch.float32, 80, 32)])
def test_a_prompt_and_an_answer_are_stored_as_by_the_reference(kind, dtype, head_dim, block_size) -> None:
    """Steps of chunks, then one of single tokens."""
    form = Form(kind, 3, 1, head_dim, block_size)
    requests = Requests(form, [22, 40])
    found, expected = memory_for(requests), memory_for(requests)
    steps = [[(0, 0, 3), (1, 0, 30)], [(0, 3, 21), (1, 30, 39)], [(0, 21, 22), (1, 39, 40)]]
    for seed, spans in enumerate(steps):
        _, rows = requests.step(spans)
        heads = heads_of(form, len(rows.kv_slots), seed).to(dtype)
        rotation, ready = rotation_of(form, spans), head_form(form)
        query = store_on_gpu(heads, ready, rotation, found, rows)
        wanted = store_heads_paged.reference(heads, ready, rotation, expected, rows)
        assert torch.equal(query, wanted) and query.dtype == dtype
        assert_same_memory(found, expected)


@pytest.mark.parametrize("pairs", [False, True], ids=["halves", "pairs"])
@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_queries_and_keys_are_normed_and_rotated(kind: str, pairs: bool) -> None:
    form = Form(kind, 2, 2, 48, 16)
    requests = Requests(form, [20])
    _, rows = requests.step([(0, 0, 20)])
    heads, ready, rotation = heads_of(form, 20), head_form(form, True, pairs), rotation_of(form, [(0, 0, 20)])
    found, expected = memory_for(requests), memory_for(requests)
    query = store_on_gpu(heads, ready, rotation, found, rows)
    wanted = store_heads_paged.reference(heads, ready, rotation, expected, rows)
    torch.testing.assert_close(query, wanted, rtol=1e-5, atol=1e-5)
    if kind == "fp32":
        numbers = (kv.keys.nan_to_num(7) for kv in (found, expected))
        torch.testing.assert_close(*numbers, rtol=1e-5, atol=1e-5)
    assert torch.equal(found.values.nan_to_num(7), expected.values.nan_to_num(7))


def test_a_token_without_a_slot_is_stored_nowhere() -> None:
    form = Form("int8", 2, 1)
    requests = Requests(form, [13])
    _, rows = requests.step([(0, 4, 13)], spare_tokens=6)
    found, expected = memory_for(requests), memory_for(requests)
    heads = heads_of(form, 15)
    store_on_gpu(heads, head_form(form), rotation_of(form, [(0, 4, 13)], 6), found, rows)
    rows = replace(rows, kv_slots=rows.kv_slots[:9])
    store_heads_paged.reference(heads[:9], head_form(form), rotation_of(form, [(0, 4, 13)]), expected, rows)
    assert_same_memory(found, expected)


def test_the_scale_of_what_is_not_finite_is_no_number() -> None:
    form = Form("int8", 2, 1)
    requests = Requests(form, [16])
    _, rows = requests.step([(0, 0, 16)])
    heads = heads_of(form, 16).view(16, 4, 64)
    heads[3, 2, 5], heads[4, 3, 6], heads[5, 3] = torch.inf, torch.nan, 0.25
    found = memory_for(requests)
    store_on_gpu(heads.flatten(1), head_form(form), rotation_of(form, [(0, 0, 16)]), found, rows)
    for scales, poisoned in ((found.key_scales, 3), (found.value_scales, 4)):
        is_poisoned = scales[requests.tables[0][0], :, 0].isnan()
        assert is_poisoned.nonzero().flatten().tolist() == [poisoned]
