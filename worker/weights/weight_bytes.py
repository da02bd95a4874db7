"""A lower bound of the memory that a rank's weights take, computed from a config before any of them is read.

Padding, norms and biases are left out, so the true size is slightly larger.
"""

from collections.abc import Iterator

from ...kernels import WeightFormat
from ...kernels.cpu.weights.packed import BLOCK_KINDS, PANEL
from ..description.config import ModelConfig
from ..description.products import HEAD, TABLE, Product, products
from .layer_formats import LayerFormats

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8, "mxfp4": 4.25, "int4": 4} | {
    kind: 8 * layout.nbytes / PANEL / layout.inputs for kind, layout in BLOCK_KINDS.items()
}


def estimated_weight_bytes(config: ModelConfig, formats: LayerFormats, ranks: int) -> int:
    """Estimate the bytes on each of so many ranks."""
    return int(sum(_bits_of_each(config, formats, ranks))) // 8 // ranks


def largest_weight_bytes(config: ModelConfig, formats: LayerFormats, ranks: int) -> int:
    """Bytes of the largest weight on each rank: only one is packed at once."""
    return int(max(_bits_of_each(config, formats, ranks))) // 8 // ranks


def _bits_of_each(config: ModelConfig, formats: LayerFormats, ranks: int) -> Iterator[float]:
    """Bits of each product's weight, over all ranks."""
    for product in products(config, ranks):
        if product.layers != (HEAD,):
            yield product.num_weights * _product_bits(config, formats, product)
    if (inputs := config.token_inputs) is not None:  # whole on every rank
        yield ranks * config.num_layers * inputs.vocab_size * inputs.width * BITS[formats.own.kind]
    table, head = config.vocab_size * config.hidden_size, formats.of(HEAD)
    # A tied head uses the table, which then has the head's format.
    if config.tie_word_embeddings:
        yield table * BITS[head.kind]
    else:
        yield table * BITS[formats.of(TABLE).kind]
        yield table * _bits(config, head)


def _product_bits(config: ModelConfig, formats: LayerFormats, product: Product) -> float:
    """Bits of a product; experts with separate input orders become int8."""
    bits = _bits(config, formats.of(product.layers[0]))
    is_ordered = config.quantization is not None and config.quantization.is_ordered
    return max(bits, BITS["int8"]) if is_ordered and product.is_of_experts else bits


def _bits(config: ModelConfig, format: WeightFormat) -> float:
    """Bits per weight: integers are kept as stored; 8-bit floats are converted to the format for them."""
    if config.quantization is None or config.quantization.is_mxfp4 or config.quantization.is_gguf:
        return BITS[format.kind]
    if config.quantization.is_float8:
        return BITS[format.float8 or format.kind]
    return min(config.quantization.bits, BITS[format.kind])
