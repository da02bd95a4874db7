"""Storing heads on a GPU, in Triton's interpreter: the reference's numbers; and answers that attend while stored."""

from builders import interpreted  # noqa: F401  isort: skip

from dataclasses import replace

import pytest
import torch
from builders.cases import for_each
from builders.operation_examples.attention import Form, Requests, empty_memory
from torch import Tensor

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import KV_DTYPES, DeviceRows, PagedKV, Rotation
from penstock.kernels.reference.paged_attention import attention_answers, attention_paged, store_heads_paged

pytestmark = pytest.mark.long  # test_every_kernel.py looks at every kernel in every run

attend_answers, attend, store_on_gpu = (
    op.versions["triton"] for op in (attention_answers, attention_paged, store_heads_paged)
)
CLOSE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}
# At the beginning of a block and of a split, in them, and at their ends; one that just began.
CONTEXTS = [1, 2, 16, 17, 33, 256, 257, 300, 513, 530]


def heads_of(form: Form, tokens: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, (form.query_heads + 2 * form.heads) * form.head_dim, generator=generator) * 1.5


def head_form(form: Form) -> HeadLayout:
    return HeadLayout(form.query_heads, form.heads, form.head_dim, rotates_pairs=False, norms=None, epsilon=1e-6)


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


@for_each("kind", KV_DTYPES)
@for_each("dtype, head_dim, block_size", [(torch.bfloat16, 64, 16), (torch.float32, 80, 32)])
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


def step_of(form: Form, contexts: list[int], spare: int = 0) -> tuple[Requests, DeviceRows]:
    requests = Requests(form, contexts)
    spans = [(number, context - 1, context) for number, context in enumerate(contexts)]
    _, rows = requests.step(spans, spare_rows=spare, spare_tokens=spare)
    # A spare row has a token, too, in a step of answers.
    rows.query_starts = torch.arange(len(contexts) + spare + 1, dtype=torch.int32)
    rows.are_answers = True
    return requests, rows


def projected(form: Form, contexts: list[int], spare: int = 0) -> tuple[torch.Tensor, HeadLayout, Rotation]:
    generator = torch.Generator().manual_seed(0)
    count, dtype = len(contexts) + spare, {"fp32": torch.float32, "fp16": torch.float16}.get(form.kind, torch.bfloat16)
    heads = torch.randn(count, (form.query_heads + 2 * form.heads) * form.head_dim, generator=generator).to(dtype)
    heads[len(contexts) :] = torch.nan
    angles = torch.rand(max(contexts), form.head_dim, generator=generator) * 6
    norms = tuple(torch.rand(2, form.head_dim, generator=generator) + 0.5)
    positions = torch.tensor([context - 1 for context in contexts] + [0] * spare)
    return (
        heads,
        HeadLayout(form.query_heads, form.heads, form.head_dim, False, norms, 1e-6, form.sinks),  # type: ignore[arg-type]
        Rotation(angles.cos(), angles.sin(), positions),
    )


def assert_as_one_after_another(form: Form, contexts: list[int], spare: int = 0) -> None:
    requests, rows = step_of(form, contexts, spare)
    heads, head_form, rotation = projected(form, contexts, spare)
    together, apart = (requests.memory([context - 1 for context in contexts]) for _ in range(2))
    found = attend_answers(heads, head_form, rotation, together, rows, form.window)
    query = store_on_gpu(heads, head_form, rotation, apart, rows)
    expected = attend(query, apart, replace(rows, are_answers=False), form.head_dim**-0.5, form.window, form.sinks)
    count, close = len(contexts), CLOSE[form.kind]
    torch.testing.assert_close(found[:count].float(), expected[:count].float(), rtol=close, atol=close)
    assert_same_memory(together, apart)


def test_answers_of_all_lengths_see_their_newest_key_and_leave_it_in_its_place():
    assert_as_one_after_another(Form("bf16"), CONTEXTS[-4:], spare=2)


@for_each("kind", CLOSE)
@for_each("window", [None, 1, 2, 19, 300])
def test_they_do_in_every_format_and_window(kind, window):
    for block_size, query_heads, head_dim in ((16, 6, 24), (32, 2, 64)):
        form = Form(kind, query_heads, 2, head_dim, block_size, window, has_sinks=kind != "fp32")
        assert_as_one_after_another(form, CONTEXTS, spare=3)


def test_a_long_answer_alone_has_all_its_splits_added():
    assert_as_one_after_another(Form("bf16", has_sinks=True), [9000])
