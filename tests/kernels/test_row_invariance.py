"""In the invariant forms the bits of a row depend on that row alone: not on company, place, chunking or threads."""

from collections.abc import Iterator
from itertools import product
from typing import get_args

import pytest
import torch
from builders.cases import for_each
from builders.operation_examples.attention import Form, Requests

import penstock.kernels.torch.operations  # noqa: F401  registers the versions
from penstock.kernels import HostRows
from penstock.kernels.operands import Activation
from penstock.kernels.reference.attention import attention, attention_invariant
from penstock.kernels.reference.pointwise import (
    apply_activation_invariant,
    gate_invariant,
    layer_norm_invariant,
    log_softmax,
    rms_norm_invariant,
    rotate_halves,
    rotate_pairs,
)
from penstock.kernels.reference.products import linear_invariant
from penstock.kernels.reference.states import gated_norm
from penstock.kernels.registry import Op
from penstock.kernels.torch.packed.torch_weights import pack

# Every small number and both sides of the borders at which products change their tiling; `-m long` has all of them.
COMPANY = (*range(1, 18), 31, 32, 33, 47, 48, 49, 63, 64, 65, 70, 71)
# Companies of long rows, which have a thousand numbers or more.
FEW, MANY_NUMBERS = (1, 2, 3, 16, 17, 33, 64, 71), 1000
THREADS = (1, 2, 3)
WHOLE = pytest.param(True, marks=pytest.mark.long)


@pytest.fixture(autouse=True)
def threads_are_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _draws(*shape, seed=0, dtype=torch.float32):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2).to(dtype)


def _rowwise():
    """Name, operation on [M, …] rows, the rows."""
    for out, inner in ((96, 56), (31, 64), (515, 1024), (259, 3072)):
        for dtype in (torch.float32, torch.bfloat16):
            weight = pack(_draws(out, inner, seed=1, dtype=dtype))
            bias = _draws(out, seed=2, dtype=dtype)
            linear = lambda x, weight=weight, bias=bias: linear_invariant(x, weight, bias)  # noqa: E731
            yield f"linear {out}x{inner} {dtype}", linear, _draws(71, inner)
    for size in (56, 64, 1024, 40_000):
        weight = _draws(size, seed=3)
        yield f"rms_norm {size}", lambda x, weight=weight: rms_norm_invariant(x, weight, 1e-6), _draws(71, size)
    heads = _draws(3, 24, seed=3)
    yield "rms_norm by head", lambda x: rms_norm_invariant(x, heads, 1e-6), _draws(71, 3, 24)
    for size in (34, 6144):
        for activation in get_args(Activation):
            gated = lambda x, activation=activation: gate_invariant(x, activation)  # noqa: E731
            yield f"{activation} and multiply {size}", gated, _draws(71, size)
        yield f"gelu {size}", lambda x: apply_activation_invariant(x, "gelu"), _draws(71, size)
    for size in (56, 40_000):
        vectors = _draws(2, size, seed=3).unbind()
        yield f"layer_norm {size}", lambda x, vectors=vectors: layer_norm_invariant(x, *vectors, 1e-5), _draws(71, size)
    for size in (307, 50_001):
        yield f"log_softmax {size}", log_softmax, _draws(71, size)
    cos, sin = _draws(1, 1, 24, seed=4), _draws(1, 1, 24, seed=5)
    yield "rotate_halves", lambda x: rotate_halves(x, cos, sin), _draws(71, 5, 24)
    for heads, size in ((1, 128), (3, 24), (1, 7)):
        gate, weight = _draws(71, heads * size, seed=6), _draws(size, seed=7)
        both = torch.cat((_draws(71, heads * size), gate), 1)
        norm = lambda x, heads=heads, weight=weight: gated_norm(*x.chunk(2, 1), weight, 1e-6, heads)  # noqa: E731
        yield f"gated_norm {heads}x{size}", norm, both
    yield "rotate_pairs", lambda x: rotate_pairs(x, cos, sin), _draws(71, 5, 24)


ROWWISE = {name: (operation, rows) for name, operation, rows in _rowwise()}


@pytest.mark.parametrize("is_whole", [False, WHOLE], ids=["some", "all"])
@for_each("name", ROWWISE)
def test_a_row_has_the_same_bits_in_any_company_at_any_place_and_with_any_threads(name, is_whole):
    operation, rows = ROWWISE[name]
    is_long = rows[0].numel() >= MANY_NUMBERS and name != "linear 515x1024 torch.float32"
    company, threads = (range(1, 72), THREADS) if is_whole else (FEW if is_long else COMPANY, (1, 3))
    torch.set_num_threads(1)
    alone = torch.cat([operation(row[None]) for row in rows])
    for number, count in product(threads, company):
        torch.set_num_threads(number)
        for first in {0, (71 - count) // 2, 71 - count}:
            found, own = operation(rows[first : first + count].clone()), alone[first : first + count]
            assert torch.equal(found, own), f"{count} rows from {first} on, {number} threads"


ATTENTION = [
    Form("fp32", 4, 4, 16, 16), Form("fp32", 6, 2, 24, 32), Form("fp32", 7, 1, 10, 64),
    Form("fp32", 5, 1, 12, 16, window=37, has_sinks=True), Form("fp32", 4, 2, 128, 128),
    Form("bf16", 4, 2, 16, 32, window=200, has_sinks=True),
]  # fmt: skip
LENGTHS = [300, 77, 150, 290, 140, 1]
# What a step computes of a row of 300 tokens; of the other rows; and which of these come, with that row's place.
CHUNKS = ((0, 300), (0, 1), (0, 9), (5, 131), (127, 129), (128, 256), (299, 300), (40, 47))
SPANS = {1: (76, 77), 2: (0, 150), 3: (289, 290), 4: (131, 140), 5: (0, 1)}
OTHERS = (([], 0), ([1], 0), ([1, 2, 3], 2), ([1, 2, 3, 4, 5], 5), ([3] * 40, 17))


def attended(
    requests: Requests, chunk: tuple[int, int], others: list[int], place: int, attend: Op = attention_invariant
) -> torch.Tensor:
    """Attention of the long row's positions of `chunk`, with other rows before and after it."""
    spans = [(other, *SPANS[other]) for other in others]
    query, rows = requests.step([*spans[:place], (0, *chunk), *spans[place:]])
    starts, kv, form = rows.query_starts.tolist(), requests.memory(), requests.form
    step = HostRows(starts, rows.context_lengths.tolist(), rows.block_tables, rows.kv_slots)
    keys, values = (each.transpose(1, 2).contiguous() for each in (kv.keys, kv.values))
    found = attend(query.float(), keys, values, step, form.head_dim**-0.5, form.window, form.sinks)
    return found[starts[place] : starts[place + 1]]


@pytest.mark.parametrize("is_whole", [False, WHOLE], ids=["some", "all"])
@for_each("form", ATTENTION)
def test_a_query_attends_rightly_with_the_same_bits_however_its_row_is_chunked_and_accompanied(form, is_whole):
    """Each chunk with some other rows, and these with some chunks: a step computes one row after another. Slots that
    no request has written hold NaN, as those of a freed block may."""
    requests = Requests(form, LENGTHS)
    torch.set_num_threads(1)
    whole = attended(requests, (0, 300), [], 0)
    torch.testing.assert_close(whole, attended(requests, (0, 300), [], 0, attention), rtol=1e-5, atol=1e-5)
    pairs = [(chunk, OTHERS[(place + more) % len(OTHERS)]) for place, chunk in enumerate(CHUNKS) for more in (0, 2)]
    some = [(*pair, 1 + place % 3) for place, pair in enumerate(pairs)]
    for chunk, (others, place), threads in product(CHUNKS, OTHERS, THREADS) if is_whole else some:
        torch.set_num_threads(threads)
        found = attended(requests, chunk, others, place)
        assert torch.equal(found, whole[slice(*chunk)]), f"{chunk} with {others}, {threads} threads"
