"""A lower bound of the memory that a rank's weights take, computed from a config before any of them is read.

Padding, norms and biases are left out: they are little, and never less than nothing.
"""

from ...kernels import WeightFormat
from ..models.config import ModelConfig

BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4}


def estimated_weight_bytes(
    config: ModelConfig, format: WeightFormat, table_format: WeightFormat, head_format: WeightFormat, ranks: int
) -> int:
    """Bytes on each of so many ranks."""
    heads = config.num_heads + max(config.num_kv_heads, ranks) * 2  # ranks that share a head have a copy each
    attention = (heads + config.num_heads) * config.head_dim * config.hidden_size
    projections = config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)
    bits = BITS[format.kind] if config.quantization is None else min(config.quantization.bits, BITS[format.kind])
    table = config.vocab_size * config.hidden_size
    head_bits = bits if head_format == format else BITS[head_format.kind]
    # A tied head multiplies with the table, which then has the head's format.
    tables = table * (BITS[head_format.kind] if config.tie_word_embeddings else BITS[table_format.kind] + head_bits)
    return (projections * bits + tables) // 8 // ranks
