"""Answers attended to as they are stored, in Triton's interpreter: as if they were stored first, then attended to."""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from dataclasses import replace

import pytest
import torch
from builders.packed_steps import Form, Requests

from penstock.kernels.operands import HeadLayout
from penstock.kernels.paged import DeviceRows, PagedKV, Rotation
from penstock.kernels.reference.paged_attention import attention_answers, attention_paged, store_heads_paged

pytestmark = pytest.mark.long  # as of all that is unproven

attend_answers, attend, store = (
    op.versions["triton"] for op in (attention_answers, attention_paged, store_heads_paged)
)
CLOSE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}
# At the beginning of a block and of a split, in them, and at their ends; one that just began.
CONTEXTS = [1, 2, 16, 17, 33, 256, 257, 300, 513, 530]


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
    query = store(heads, head_form, rotation, apart, rows)
    expected = attend(query, apart, replace(rows, are_answers=False), form.head_dim**-0.5, form.window, form.sinks)
    count, close = len(contexts), CLOSE[form.kind]
    torch.testing.assert_close(found[:count].float(), expected[:count].float(), rtol=close, atol=close)
    assert_same_memory(together, apart)


def assert_same_memory(found: PagedKV, expected: PagedKV) -> None:
    for one, other in zip((found.keys, found.values), (expected.keys, expected.values), strict=True):
        assert torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def test_answers_of_all_lengths_see_their_newest_key_and_leave_it_in_its_place():
    assert_as_one_after_another(Form("bf16"), CONTEXTS[-4:], spare=2)


@pytest.mark.parametrize("kind", CLOSE)
@pytest.mark.parametrize("window", [None, 1, 2, 19, 300])
def test_they_do_in_every_format_and_window(kind, window):
    for block_size, query_heads, head_dim in ((16, 6, 24), (32, 2, 64)):
        form = Form(kind, query_heads, 2, head_dim, block_size, window, has_sinks=kind != "fp32")
        assert_as_one_after_another(form, CONTEXTS, spare=3)


def test_a_long_answer_alone_has_all_its_splits_added():
    assert_as_one_after_another(Form("bf16", has_sinks=True), [9000])
