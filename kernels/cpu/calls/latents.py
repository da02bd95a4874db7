"""The calls of latent attention on the CPU besides attending."""

from collections.abc import Sequence
from ctypes import addressof

from ...arrays import address
from ...operands import LatentLayout
from ..library import struct_of
from ..program import Buffer, Program
from ..structs import ROTATION, HeadProducts, Linear, Quantized, Step
from ..weights.packed import NativeWeight
from ..weights.quantized import OrderedWeight

_MOST_IN_A_GROUP, _FEWEST_IN_A_GROUP = 16, 6


def rotation_of(layout: LatentLayout) -> int:
    return ROTATION["pairs" if layout.rotates_pairs else "halves"]


def heads_in_a_group(num_heads: int) -> int:
    """How many heads look at latents together, of a tile's tokens each; groups are what threads share."""
    most = max(size for size in range(1, _MOST_IN_A_GROUP + 1) if num_heads % size == 0)
    return most if most >= _FEWEST_IN_A_GROUP else num_heads


def record_head_products(
    program: Program,
    step: Step,
    x: Buffer,
    weights: Sequence[NativeWeight],
    rotated: LatentLayout | None = None,
    rotary: int | None = None,
) -> Buffer:
    """[T, heads × out]: of each head of `x` the product with its weight, and with `rotated` its rest, rotated.

    `rotary` is the address of a rotary table.
    """
    count, first = len(weights), weights[0]
    num_rotated = 0 if rotated is None else rotated.rope_dim
    in_features = x.width // count - num_rotated
    output_width = first.out_features + num_rotated
    output = program.buffer(count * output_width)
    gathered = program.buffer(count * in_features)
    products = (Linear * count)()
    for number, weight in enumerate(weights):
        product = _product(program, weight, gathered, number * in_features)
        product.output, product.output_stride = output.data_ptr() + 4 * number * output_width, output.width
        products[number] = product
    arguments = struct_of(
        HeadProducts,
        step=addressof(step),
        input=x,
        input_width=x.width // count,
        in_features=in_features,
        num_heads=count,
        product=program.library.address(f"penstock_linear_{first.family}"),
        products=addressof(products),
        rotary=rotary,
        num_rotated=num_rotated,
        rotation=ROTATION["none"] if rotated is None else rotation_of(rotated),
    )
    program.call("penstock_head_products", arguments, output, keep=(weights, products))
    return output


def _product(program: Program, weight: NativeWeight, gathered: Buffer, before: int) -> Linear:
    """The product of one head; its rows are gathered behind `before` numbers a token of the heads before it."""
    quantized = Quantized()
    if weight.meets_integers:
        quantized = gathered.another_quantized(weight.in_features, weight.row_group)
        if isinstance(weight, OrderedWeight):
            quantized.order, quantized.num_ordered = address(weight.order), weight.in_features
    return struct_of(
        Linear,
        num_rows=program.num_rows,
        input=gathered.data_ptr() + 4 * before * program.capacity,
        quantized_input=quantized,
        weight=weight.structure(),
    )
