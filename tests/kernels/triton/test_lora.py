"""What adapters add to products on a GPU: against a plain formula, with the same bits whatever a token's company."""

import numpy
import pytest
import torch
from builders import interpreted  # noqa: F401
from builders.cases import for_each
from builders.operation_examples.products import AdaptedProduct
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels import LoraConfig, LoraMapping
from penstock.kernels.lora import DeviceLoraMapping
from penstock.kernels.triton.products.lora import TritonLora, add_lora

pytestmark = pytest.mark.long  # test_every_kernel.py looks at every kernel in every run

TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
MOST = 4  # adapters
CPU = torch.device("cpu")


class Product(AdaptedProduct):
    def __init__(self, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype = torch.float32):
        self.lora = TritonLora(in_features, outputs, LoraConfig(dtype, MOST, max(ranks)), CPU)
        for tensor in self.lora.tensors:
            tensor.fill_(torch.nan)  # as memory may be found
        super().__init__(self.lora, in_features, outputs, ranks, dtype)

    def added(self, x: Tensor, adapters: list[int], start: Tensor, room: int = 0) -> Tensor:
        """`start` with what the kernel adds to it for rows of one token each, in a step of that size at least."""
        adapted = DeviceLoraMapping.room(max(room, len(adapters)), MOST, CPU)
        adapted.take(LoraMapping.of(numpy.array(adapters), numpy.ones(len(adapters), numpy.int64)))
        return add_lora(start.clone(), x, self.lora, adapted)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@settings(max_examples=8)
@given(
    in_features=st.integers(1, 300),
    outputs=st.lists(st.integers(1, 100), min_size=1, max_size=3),
    ranks=st.lists(st.integers(0, 40), min_size=1, max_size=MOST).filter(any),
    adapters=st.data(),
)
def test_it_adds_what_the_formula_says(in_features, outputs, ranks, adapters):
    product = Product(in_features, outputs, ranks)
    chosen = adapters.draw(st.lists(st.integers(-1, len(ranks) - 1), min_size=1, max_size=50))
    x, start = normal(len(chosen), in_features), normal(len(chosen), sum(outputs))
    found = product.added(x, chosen, start)
    torch.testing.assert_close(found, product.expected(x, chosen, start), rtol=1e-5, atol=1e-5)


@for_each("dtype", TOLERANCE)
def test_weights_may_be_of_any_float_format(dtype):
    product = Product(200, [96, 40], [16, 3, 33], dtype)
    adapters = [0, 2, 1, -1, 0, 2]
    x, start = normal(6, 200, dtype=dtype), normal(6, 136, dtype=dtype)
    found = product.added(x, adapters, start)
    torch.testing.assert_close(found, product.expected(x, adapters, start), rtol=0, atol=TOLERANCE[dtype] * 3)


def test_a_tokens_bits_do_not_depend_on_its_company_or_the_room_to_spare():
    product = Product(300, [70, 33], [7, 16, 33], torch.bfloat16)
    adapters = [number % 4 - 1 if number % 3 else 2 for number in range(75)]
    x, start = normal(75, 300, dtype=torch.bfloat16), normal(75, 103, dtype=torch.bfloat16)
    together = product.added(x, adapters, start)
    for count, room in ((1, 0), (2, 9), (37, 64)):
        assert torch.equal(product.added(x[:count], adapters[:count], start[:count], room), together[:count]), count
    for number in (3, 50, 74):
        one = slice(number, number + 1)
        assert torch.equal(product.added(x[one], adapters[one], start[one]), together[one]), number


def test_a_token_without_an_adapter_is_left_alone_even_beside_nan():
    product = Product(64, [48], [8])
    x, start = normal(3, 64), normal(3, 48)
    x[1] = torch.nan
    found = product.added(x, [-1, 0, -1], start)
    assert torch.equal(found[[0, 2]], start[[0, 2]]) and found[1].isnan().all()
    assert torch.equal(product.added(x, [-1, -1, -1], start), start)


def test_a_place_is_used_again_by_an_adapter_of_another_rank():
    product = Product(64, [48], [32])
    x, start = normal(2, 64), normal(2, 48)
    product.lora.remove(0)
    assert torch.equal(product.added(x, [0, 0], start), start)
    down, up = normal(5, 64), normal(48, 5)
    product.lora.put(0, 0, down, up)
    found = product.added(x, [0, 0], start)
    torch.testing.assert_close(found, start + x @ down.T @ up.T, rtol=1e-4, atol=1e-4)


@given(counts=st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 90)), min_size=1, max_size=8))
def test_there_is_room_for_the_blocks_of_any_step(counts):
    adapters, num_tokens = numpy.array(counts).T
    room = DeviceLoraMapping.room(int(num_tokens.sum()), 6, CPU)
    adapted = LoraMapping.of(adapters, num_tokens)
    room.take(adapted)
    blocks = [] if adapted is None else adapted.blocks.tolist()
    assert [block for block in room.blocks.tolist() if block[2]] == blocks
