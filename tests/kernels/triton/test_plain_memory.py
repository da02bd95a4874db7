"""Keys and values that were gathered for a library are those that the packed memory holds."""

from builders import interpreted  # noqa: F401  isort: skip

import pytest
import torch
from builders.packed_steps import Form, Requests

from penstock.kernels.kv_layout import KV_FORMATS, plain_keys, plain_values
from penstock.kernels.triton.attention.plain_memory import kept_at_most, plain_memory

QUICK_KINDS = ["bf16", *(pytest.param(kind, marks=pytest.mark.long) for kind in KV_FORMATS if kind != "bf16")]
SPANS = [(0, 80, 150), (1, 40, 41), (2, 0, 19)]
LENGTHS = [150, 41, 19]


def assert_gathered(
    form: Form, spans: list[tuple[int, int, int]], least: int, is_known: bool = False, **spare: int
) -> None:
    requests = Requests(form, LENGTHS)
    _, rows = requests.step(spans, **spare)
    rows.prompts = rows.prompts if is_known else None
    memory = requests.memory()
    shape = (kept_at_most(rows, form.window).all_rows, form.heads, form.head_dim)
    dtype = {"fp32": torch.float32, "fp16": torch.float16}.get(form.kind, torch.bfloat16)
    found = torch.full((2, *shape), torch.nan, dtype=dtype)
    found_starts = plain_memory(memory, rows, form.window, least, *found)
    keys = plain_keys(memory.keys, memory.key_scales, form.kind, form.block_size).transpose(1, 2).flatten(0, 1)
    values = plain_values(memory.values, memory.value_scales, form.kind, form.head_dim).transpose(1, 2).flatten(0, 1)
    starts = [0]
    for request, first, end in spans:
        begin = 0 if form.window is None else max(0, first - form.window + 1)
        slots = requests.slots(request, begin, end) if end - first >= least else []
        own = slice(starts[-1], starts[-1] + len(slots))
        torch.testing.assert_close(found[0, own], keys[slots].to(dtype), rtol=8e-3, atol=1e-6)
        torch.testing.assert_close(found[1, own], values[slots].to(dtype), rtol=8e-3, atol=1e-6)
        starts.append(own.stop)
    assert found_starts.tolist() == starts + [starts[-1]] * spare.get("spare_rows", 0)


@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_whole_rows_lie_one_after_another(kind: str) -> None:
    assert_gathered(Form(kind), SPANS, 1, spare_rows=2)


def test_rows_of_few_queries_may_be_left_out() -> None:
    assert_gathered(Form(), SPANS, 2)


def test_where_prompts_are_known_there_is_room_for_them_alone() -> None:
    _, rows = Requests(Form(), LENGTHS).step(SPANS)
    assert kept_at_most(rows, None) == (150 + 19, 150)
    assert kept_at_most(rows, 37) == (70 + 36 + 19, 70 + 36)
    assert_gathered(Form(), SPANS, 2, is_known=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", KV_FORMATS)
def test_only_what_a_window_shows_is_there(kind: str) -> None:
    assert_gathered(Form(kind, window=37), SPANS, 1)


@pytest.mark.long
@pytest.mark.parametrize("head_dim, block_size", [(96, 32), (256, 128)])
@pytest.mark.parametrize("kind", ["bf16", "uint4"])
def test_heads_and_blocks_may_be_of_many_sizes(kind: str, head_dim: int, block_size: int) -> None:
    assert_gathered(Form(kind, head_dim=head_dim, block_size=block_size), SPANS, 1)
