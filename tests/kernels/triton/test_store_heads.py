"""Storing heads on a GPU, interpreted, beyond the examples: tokens to spare, and numbers that have no scale."""

from builders import interpreted  # noqa: F401  isort: skip

from dataclasses import replace

import pytest
import torch
from builders.operation_examples.attention import QUERY_DTYPES, Form, Requests, empty_memory

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import PagedKV, Rotation
from penstock.kernels.reference.paged_attention import store_heads_paged

pytestmark = pytest.mark.long  # test_every_kernel.py looks at every kernel in every run

store_on_gpu = store_heads_paged.versions["triton"]


def projected(form: Form, positions: list[int], spare: int = 0) -> tuple[torch.Tensor, HeadLayout, Rotation]:
    """Heads of tokens at these positions, and NaN behind them."""
    generator = torch.Generator().manual_seed(0)
    count, width = len(positions) + spare, (form.query_heads + 2 * form.heads) * form.head_dim
    heads = torch.randn(count, width, generator=generator).to(QUERY_DTYPES.get(form.kind, torch.bfloat16))
    heads[len(positions) :] = torch.nan
    angles = torch.rand(max(positions) + 1, form.head_dim, generator=generator) * 6
    norms = tuple(torch.rand(2, form.head_dim, generator=generator) + 0.5)
    layout = HeadLayout(form.query_heads, form.heads, form.head_dim, False, norms, 1e-6, form.sinks)  # type: ignore[arg-type]
    return heads, layout, Rotation(angles.cos(), angles.sin(), torch.tensor(positions + [0] * spare))


def assert_same_memory(found: PagedKV, expected: PagedKV) -> None:
    for name in ("keys", "values", "key_scales", "value_scales"):
        held, wanted = getattr(found, name), getattr(expected, name)
        if held is not None:
            assert torch.equal(held.nan_to_num(7), wanted.nan_to_num(7)), name


def test_a_token_without_a_slot_is_stored_nowhere_and_one_that_is_not_finite_has_no_scale() -> None:
    form = Form("int8", 2, 1)
    requests = Requests(form, [13])
    _, rows = requests.step([(0, 4, 13)], spare_tokens=6)
    heads, layout, rotation = projected(form, [*range(4, 13)], spare=6)
    by_head = heads.view(15, 4, 64)
    by_head[3, 2, 5], by_head[4, 3, 6], by_head[5, 3] = torch.inf, torch.nan, 0.25
    found, expected = (empty_memory("int8", 1 + len(requests.tables[0]), 1, 16, 64) for _ in range(2))
    store_on_gpu(heads, layout, rotation, found, rows)
    rows, rotation = replace(rows, kv_slots=rows.kv_slots[:9]), rotation._replace(positions=rotation.positions[:9])
    store_heads_paged.reference(heads[:9], layout, rotation, expected, rows)
    assert_same_memory(found, expected)
    for scales, poisoned in ((found.key_scales, 3), (found.value_scales, 4)):
        is_poisoned = scales[requests.tables[0][0], 4:13, 0].isnan()
        assert is_poisoned.nonzero().flatten().tolist() == [poisoned]
