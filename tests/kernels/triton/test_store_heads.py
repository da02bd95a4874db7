"""Storing heads on a GPU,, interpreted, beyond the examples: rows to spare, windows, and very long answers."""

from builders import interpreted  # noqa: F401  isort: skip

from dataclasses import replace

import pytest
import torch
from builders.cases import for_each
from builders.operation_examples.attention import QUERY_DTYPES, Form, Requests, empty_memory

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import PagedKV, Rotation
from penstock.kernels.reference.paged_attention import attention_answers, attention_paged, store_heads_paged

pytestmark = pytest.mark.long  # test_every_kernel.py looks at every kernel in every run

attend_answers, attend, store_on_gpu = (
    op.versions["triton"] for op in (attention_answers, attention_paged, store_heads_paged)
)
CLOSE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}
# At the beginning of a block and of a split, in them, and at their ends; one that just began.
CONTEXTS = [1, 2, 16, 17, 33, 256, 257, 300, 513, 530]


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


def assert_as_one_after_another(form: Form, contexts: list[int], spare: int = 0) -> None:
    requests = Requests(form, contexts)
    spans = [(number, context - 1, context) for number, context in enumerate(contexts)]
    _, rows = requests.step(spans, spare_rows=spare, spare_tokens=spare)
    # A spare row has a token, too, in a step of answers.
    rows.query_starts = torch.arange(len(contexts) + spare + 1, dtype=torch.int32)
    rows.are_answers = True
    heads, layout, rotation = projected(form, [context - 1 for context in contexts], spare)
    together, apart = (requests.memory([context - 1 for context in contexts]) for _ in range(2))
    found = attend_answers(heads, layout, rotation, together, rows, form.window)
    query = store_on_gpu(heads, layout, rotation, apart, rows)
    expected = attend(query, apart, replace(rows, are_answers=False), form.head_dim**-0.5, form.window, form.sinks)
    count, close = len(contexts), CLOSE[form.kind]
    torch.testing.assert_close(found[:count].float(), expected[:count].float(), rtol=close, atol=close)
    assert_same_memory(together, apart)


@for_each("kind", CLOSE)
@for_each("window", [None, 1, 2, 19, 300])
def test_answers_of_all_lengths_see_their_newest_key_and_leave_it_in_its_place(kind, window):
    for block_size, query_heads, head_dim in ((16, 6, 24), (32, 2, 64)):
        form = Form(kind, query_heads, 2, head_dim, block_size, window, has_sinks=kind != "fp32")
        assert_as_one_after_another(form, CONTEXTS, spare=3)


def test_a_long_answer_alone_has_all_its_splits_added():
    assert_as_one_after_another(Form("bf16", has_sinks=True), [9000])
