"""What the native kernel adds to products: against a plain formula, with the same bits whatever a token's company."""

from ctypes import addressof

import numpy
import torch
from builders.cases import for_each
from builders.native_products import assert_free_of_company, draws
from builders.native_variants import needs_variant
from builders.operation_examples.products import AdaptedProduct
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from penstock.kernels import LoraConfig, LoraMapping
from penstock.kernels.cpu.layer import Linear
from penstock.kernels.cpu.library import Library
from penstock.kernels.cpu.program import Step
from penstock.kernels.cpu.weights.lora import Lora, NativeLora

pytestmark = needs_variant
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
KINDS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
MOST = 5  # adapters


class Product(AdaptedProduct):
    def __init__(self, in_features: int, outputs: list[int], ranks: list[int], dtype: torch.dtype = torch.float32):
        self.lora = NativeLora(in_features, outputs, LoraConfig(dtype, MOST, max(ranks)))
        super().__init__(self.lora, in_features, outputs, ranks, dtype)

    def added(self, library: Library, x: Tensor, adapters: list[int], start: Tensor) -> Tensor:
        """`start` with what the kernel adds to it for rows of one token each."""
        output = start.clone()
        adapted = LoraMapping.of(numpy.array(adapters), numpy.ones(len(adapters), numpy.int64))
        step, parts = Step(), self.lora.structures()
        if adapted is not None:
            step.num_adapted = len(adapted.blocks)
            step.adapted, step.adapted_tokens = adapted.blocks.data_ptr(), adapted.tokens.data_ptr()
        product = Linear(output=output.data_ptr(), output_stride=output.stride(0))
        shrunk = torch.full((len(adapters), self.lora.shrunk_width()), torch.nan)
        arguments = Lora(
            addressof(step),
            addressof(product),
            x.data_ptr(),
            x.shape[1],
            self.lora.config.max_rank,
            len(parts),
            addressof(parts),
            shrunk.data_ptr(),
        )
        library.call(f"penstock_lora_{KINDS[self.lora.config.dtype]}", arguments)
        return output


@settings(max_examples=25)
@given(
    in_features=st.integers(1, 150),
    outputs=st.lists(st.integers(1, 100), min_size=1, max_size=3),
    ranks=st.lists(st.integers(0, 40), min_size=1, max_size=MOST).filter(any),
    adapters=st.data(),
)
def test_it_adds_what_the_formula_says(library, in_features, outputs, ranks, adapters):
    product = Product(in_features, outputs, ranks)
    chosen = adapters.draw(st.lists(st.integers(-1, len(ranks) - 1), min_size=1, max_size=40))
    x, start = draws(len(chosen), in_features), draws(len(chosen), sum(outputs))
    found = product.added(library, x, chosen, start)
    torch.testing.assert_close(found, product.expected(x, chosen, start), rtol=1e-5, atol=1e-5)


@for_each("dtype", TOLERANCE)
def test_weights_may_be_of_any_float_format(library, dtype):
    product = Product(200, [96, 40], [16, 3, 33], dtype)
    adapters = [0, 2, 1, -1, 0, 2]
    x, start = draws(6, 200), draws(6, 136)
    found = product.added(library, x, adapters, start)
    torch.testing.assert_close(found, product.expected(x, adapters, start), rtol=0, atol=TOLERANCE[dtype] * 3)


@for_each("dtype", TOLERANCE)
def test_a_tokens_bits_do_not_depend_on_its_company_or_the_threads(library, dtype):
    product = Product(130, [70, 33], [7, 16, 64, 1], dtype)
    adapters = [(5 * number) % 5 - 1 if number % 3 else number % 4 for number in range(71)]
    x, start = draws(71, 130), draws(71, 103)
    run = lambda own: product.added(library, x[own], adapters[own], start[own])  # noqa: E731
    assert_free_of_company(library, run, 71, (1, 2, 3, 5, 8, 33, 71))


def test_a_token_without_an_adapter_is_left_alone_even_beside_nan(library):
    product = Product(64, [48], [8])
    x, start = draws(3, 64), draws(3, 48)
    x[1] = torch.nan
    found = product.added(library, x, [-1, 0, -1], start)
    assert torch.equal(found[[0, 2]], start[[0, 2]]) and found[1].isnan().all()
    assert torch.equal(product.added(library, x, [-1, -1, -1], start), start)


def test_a_place_is_used_again_by_an_adapter_of_another_rank(library):
    product = Product(64, [48], [32])
    x, start = draws(2, 64), draws(2, 48)
    product.lora.remove(0)
    assert torch.equal(product.added(library, x, [0, 0], start), start)
    down, up = draws(5, 64), draws(48, 5)
    product.lora.put(0, 0, down, up)
    found = product.added(library, x, [0, 0], start)
    torch.testing.assert_close(found, start + x @ down.T @ up.T, rtol=1e-4, atol=1e-4)


def test_tokens_of_a_step_are_ordered_by_adapter_in_blocks_of_one_each():
    adapted = LoraMapping.of(numpy.array([2, -1, 0, 2]), numpy.array([3, 4, 40, 2]))
    assert adapted.tokens.tolist() == [*range(7, 47), 0, 1, 2, 47, 48]
    assert adapted.blocks.tolist() == [[0, 0, 32], [0, 32, 8], [2, 40, 5]]
    assert [(adapter, tokens.tolist()) for adapter, tokens in adapted.groups] == [
        (0, [*range(7, 47)]),
        (2, [0, 1, 2, 47, 48]),
    ]
    assert LoraMapping.of(numpy.array([-1, -1]), numpy.array([3, 4])) is None
