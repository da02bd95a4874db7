"""Kernels add an adapter's share to products as the formula does, with the same bits whatever a token's company.

Quick on processors; in Triton's interpreter with `-m long`, since test_triton_worker.py tries it in every run.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

from collections.abc import Callable
from ctypes import addressof

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.native_products import assert_free_of_company
from builders.native_variants import available_variants, quick_or_long
from builders.operation_examples.products import AdaptedProduct
from builders.quantized_parts import draws
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels import LoraConfig, LoraMapping, WeightFormat
from penstock.kernels.arrays import address
from penstock.kernels.cpu.library import Library, load
from penstock.kernels.cpu.structs import Linear, Lora, Step
from penstock.kernels.cpu.weights.lora import NativeLora
from penstock.kernels.torch.arrays import array_of, numpy_dtype, tensor_of
from penstock.kernels.triton.products.lora import DeviceLoraMapping, TritonLora, add_lora

TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
MOST, CPU = 5, torch.device("cpu")  # adapters; where the GPU's kernel is interpreted


def mapping_of(adapters: list[int]) -> LoraMapping | None:
    """The mapping of rows of one token each."""
    return LoraMapping.of(numpy.array(adapters), numpy.ones(len(adapters), numpy.int64))


def in_tensors(adapted: LoraMapping | None) -> DeviceLoraMapping | None:
    return None if adapted is None else DeviceLoraMapping(tensor_of(adapted.tokens), tensor_of(adapted.blocks))


class NativeProduct(AdaptedProduct):
    def __init__(self, library: Library, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype):
        self.library, self.lora = (
            library,
            NativeLora(in_features, outputs, LoraConfig(numpy_dtype(dtype), MOST, max(ranks))),
        )
        super().__init__(self.lora, in_features, outputs, ranks, dtype)

    def added(self, x: Tensor, adapters: list[int], start: Tensor) -> Tensor:
        """`start` with what the kernel adds to it."""
        output, adapted = start.clone(), mapping_of(adapters)
        step, parts = Step(), self.lora.structures()
        if adapted is not None:
            step.num_adapted = len(adapted.blocks)
            step.adapted, step.adapted_tokens = address(adapted.blocks), address(adapted.tokens)
        product = Linear(output=output.data_ptr(), output_stride=output.stride(0))
        shrunk = torch.full((len(adapters), self.lora.shrunk_width()), torch.nan)
        config = self.lora.config
        arguments = Lora(
            addressof(step), addressof(product), x.data_ptr(), x.shape[1], config.max_rank, len(parts),
            addressof(parts), shrunk.data_ptr(),
        )  # fmt: skip
        self.library.call(f"penstock_lora_{WeightFormat.of(config.dtype).kind}", arguments)
        return output


class TritonProduct(AdaptedProduct):
    def __init__(self, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype):
        self.dtype, self.lora = (
            dtype,
            TritonLora(in_features, outputs, LoraConfig(numpy_dtype(dtype), MOST, max(ranks)), CPU),
        )
        for tensor in (self.lora.down, self.lora.up):
            tensor.fill_(torch.nan)  # as memory may be found
        super().__init__(self.lora, in_features, outputs, ranks, dtype)

    def added(self, x: Tensor, adapters: list[int], start: Tensor, room: int = 0) -> Tensor:
        """The same, in a step of that size at least; rows are of the weights' format."""
        adapted = DeviceLoraMapping.room(max(room, len(adapters)), MOST, CPU)
        adapted.take(in_tensors(mapping_of(adapters)))
        return add_lora(start.to(self.dtype, copy=True), x.to(self.dtype), self.lora, adapted).to(start.dtype)


Product = Callable[..., NativeProduct | TritonProduct]


@pytest.fixture(
    scope="module", params=[*quick_or_long(available_variants()), pytest.param("triton", marks=pytest.mark.long)]
)
def made(request: pytest.FixtureRequest) -> Product:
    """Makes a product of given inputs, outputs of its parts, and ranks of its adapters."""
    library = None if request.param == "triton" else load(request.param)

    def product(in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype = torch.float32):
        sizes = (in_features, outputs, ranks, dtype)
        return NativeProduct(library, *sizes) if library else TritonProduct(*sizes)

    return product


@settings(max_examples=20)
@given(
    in_features=st.integers(1, 150),
    outputs=st.lists(st.integers(1, 100), min_size=1, max_size=3),
    ranks=st.lists(st.integers(0, 40), min_size=1, max_size=MOST).filter(any),
    adapters=st.data(),
)
def test_it_adds_what_the_formula_says(made, in_features, outputs, ranks, adapters):
    product = made(in_features, outputs, ranks)
    chosen = adapters.draw(st.lists(st.integers(-1, len(ranks) - 1), min_size=1, max_size=40))
    x, start = draws(len(chosen), in_features), draws(len(chosen), sum(outputs))
    found = product.added(x, chosen, start)
    torch.testing.assert_close(found, product.expected(x, chosen, start), rtol=1e-5, atol=1e-5)


@for_each("dtype", TOLERANCE)
def test_in_any_float_format_a_tokens_bits_do_not_depend_on_its_company_the_threads_or_the_room_to_spare(made, dtype):
    product = made(130, [70, 33], [7, 16, 64, 1], dtype)
    adapters = [(5 * number) % 5 - 1 if number % 3 else number % 4 for number in range(71)]
    x, start = draws(71, 130).to(dtype).float(), draws(71, 103).to(dtype).float()
    together = product.added(x, adapters, start)
    torch.testing.assert_close(together, product.expected(x, adapters, start), rtol=0, atol=TOLERANCE[dtype] * 3)
    if isinstance(product, NativeProduct):
        run = lambda own: product.added(x[own], adapters[own], start[own])  # noqa: E731
        assert_free_of_company(product.library, run, 71, (1, 2, 3, 5, 8, 33, 71))
        return
    for own, room in ((slice(1), 0), (slice(2), 9), (slice(37), 64), (slice(3, 4), 0), (slice(70, 71), 0)):
        assert torch.equal(product.added(x[own], adapters[own], start[own], room), together[own]), own


def test_a_token_without_an_adapter_is_left_alone_even_beside_nan(made):
    product = made(64, [48], [8])
    x, start = draws(3, 64), draws(3, 48)
    x[1] = torch.nan
    found = product.added(x, [-1, 0, -1], start)
    assert torch.equal(found[[0, 2]], start[[0, 2]]) and found[1].isnan().all()
    assert torch.equal(product.added(x, [-1, -1, -1], start), start)


def test_a_place_is_used_again_by_an_adapter_of_another_rank(made):
    product = made(64, [48], [32])
    x, start = draws(2, 64), draws(2, 48)
    product.lora.remove(0)
    assert torch.equal(product.added(x, [0, 0], start), start)
    down, up = draws(5, 64), draws(48, 5)
    product.lora.put(0, 0, array_of(down), array_of(up))
    found = product.added(x, [0, 0], start)
    torch.testing.assert_close(found, start + x @ down.T @ up.T, rtol=1e-4, atol=1e-4)


def test_tokens_of_a_step_are_ordered_by_adapter_in_blocks_of_one_each():
    adapted = LoraMapping.of(numpy.array([2, -1, 0, 2]), numpy.array([3, 4, 40, 2]))
    assert adapted.tokens.tolist() == [*range(7, 47), 0, 1, 2, 47, 48]
    assert adapted.blocks.tolist() == [[0, 0, 32], [0, 32, 8], [2, 40, 5]]
    found = [(adapter, tokens.tolist()) for adapter, tokens in adapted.groups]
    assert found == [(0, [*range(7, 47)]), (2, [0, 1, 2, 47, 48])]
    assert mapping_of([-1, -1]) is None


@given(counts=st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 90)), min_size=1, max_size=8))
def test_there_is_room_for_the_blocks_of_any_step(counts):
    adapters, num_tokens = numpy.array(counts).T
    room, adapted = DeviceLoraMapping.room(int(num_tokens.sum()), 6, CPU), LoraMapping.of(adapters, num_tokens)
    room.take(in_tensors(adapted))
    blocks = [] if adapted is None else adapted.blocks.tolist()
    assert [block for block in room.blocks.tolist() if block[2]] == blocks
