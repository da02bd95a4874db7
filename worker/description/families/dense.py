"""Dense families, as rows of the table in `table.py`."""

from dataclasses import replace

from ..parts.rope import WITH_SECTIONS, in_blocks, in_turns
from .family import (
    QKV,
    Family,
    attention_biases,
    by_head,
    ernie_biases,
    every_layer,
    layer_types,
    llama_biases,
)

DEFAULTS = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
QWEN_DEFAULTS = DEFAULTS | {
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
LLAMA = Family(
    "llama",
    biased=llama_biases,
    defaults=DEFAULTS | {"vocab_size": 32_000, "intermediate_size": 11_008, "max_position_embeddings": 2048},
)
MISTRAL = Family(
    "mistral",
    windows=every_layer,
    defaults=DEFAULTS
    | {
        "vocab_size": 32_000,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
)
QWEN2 = Family("qwen2", windows=layer_types, biased=lambda config: QKV, defaults=QWEN_DEFAULTS)
QWEN3 = Family(
    "qwen3",
    windows=layer_types,
    biased=attention_biases,
    qk_norm=by_head,
    defaults=QWEN_DEFAULTS | {"head_dim": 128},
)
QWEN2_VL = replace(
    QWEN2,
    name="qwen2_vl_text",
    axes=(in_blocks, [16, 24, 24]),
    rope_kinds=WITH_SECTIONS,
    rope_theta=1_000_000.0,
    defaults=QWEN_DEFAULTS
    | {
        "vocab_size": 152_064,
        "hidden_size": 8192,
        "intermediate_size": 29_568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "max_window_layers": 80,
    },
)
QWEN3_VL = replace(
    QWEN3,
    name="qwen3_vl_text",
    windows=Family.windows,
    axes=(in_turns, [24, 20, 20]),
    rope_theta=500_000.0,
    defaults=QWEN_DEFAULTS | {"head_dim": 128, "max_position_embeddings": 128_000},
)
ERNIE = Family(
    "ernie4_5",
    biased=ernie_biases,
    rotates_pairs=True,
    rope_theta=500_000.0,
    defaults={
        "vocab_size": 103_424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "hidden_act": "silu",
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
)
