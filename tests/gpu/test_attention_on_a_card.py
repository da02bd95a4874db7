"""Faults of attention that only many programs at once can have, or only a card's library.

With `-m long` on small sizes, interpreted: that proves the tests.
"""

from importlib import import_module

import pytest
import torch
from builders.elsewhere import distance
from builders.filled_memory import BLOCK_SIZE, filled_memory, steps_rows

from penstock.kernels.paged import PagedKV
from penstock.kernels.reference.paged_attention import attention_paged

_LAUNCHES = {"cuda": 100, "cpu": 2}


@pytest.fixture(scope="module", autouse=True)
def kernels(device):
    if device == "cpu":
        import_module("builders.interpreted")
    from penstock.kernels.triton.attention import paged

    return paged


def memory_for(contexts: list[int], heads: tuple[int, int, int], kind: str, device: str) -> PagedKV:
    num_tokens = sum(-(-context // BLOCK_SIZE) * BLOCK_SIZE for context in contexts)
    return filled_memory(num_tokens, heads[1], heads[2], kind, device).of_layer(0)


@pytest.mark.parametrize("kind", ["bf16", "int8"])
@pytest.mark.parametrize("form", ["attention_by_shape", "attention_of_one_shape"])
def test_whoever_comes_last_adds_splits_up_to_the_same_bits(device, kernels, form, kind):
    from penstock.kernels.triton.arrival import counters

    torch.manual_seed(0)
    heads, contexts = ((32, 8, 128), [1, 33, 700, 3000, 8192] * 8) if device == "cuda" else ((2, 1, 32), [1, 600])
    kv = memory_for(contexts, heads, kind, device)
    rows = steps_rows(contexts, 1, device)
    query = torch.randn(len(contexts), heads[0], heads[2], device=device).bfloat16()
    attend = getattr(kernels, form)
    found = [attend(query, kv, rows, heads[2] ** -0.5, None) for _ in range(_LAUNCHES[device])]
    assert all(torch.equal(each, found[0]) for each in found)
    assert not counters(query.device).any()


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_the_library_attends_to_prompts_as_ours_does(device, kernels, kind, window):
    from penstock.kernels.triton.attention.library import library

    torch.manual_seed(0)
    is_card = device == "cuda"
    heads, contexts, queries = ((32, 8, 128), [1500, 300, 2048], 300) if is_card else ((2, 1, 32), [40, 17], 17)
    kv = memory_for(contexts, heads, kind, device)
    rows = steps_rows(contexts, queries, device)
    dtype = torch.float16 if kind == "fp16" else torch.bfloat16
    query = torch.randn(len(rows.kv_slots), heads[0], heads[2], device=device).to(dtype)
    attend = library(query.device, dtype, heads[2], BLOCK_SIZE) if is_card else attention_paged.reference
    if attend is None:
        pytest.skip("no library on this card computes attention as it should")
    found = attend(query, kv, rows, heads[2] ** -0.5, window)
    expected = kernels.attention_by_shape(query, kv, rows, heads[2] ** -0.5, window)
    assert distance(found, expected) < 1e-2
