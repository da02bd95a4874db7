"""Encoders of texts, whose tokens see those after them as well: rows of the table in `table.py`."""

from typing import Any

from ..parts.norms import NormForm, NormPlaces
from ..parts.stored_names import BERT_NAMES, MODERNBERT_NAMES
from ..parts.text_embedding import TextEmbedding
from .family import MLP, QKV, SLIDING, Family, Windows

_LAYER_NORM = NormForm(has_mean=True, has_bias=True)


def _no_rope(config: dict[str, Any], windows: Windows) -> tuple[bool, ...]:
    return (False,) * len(windows)


def _of_bert(config: dict[str, Any]) -> TextEmbedding:
    return TextEmbedding(config["max_position_embeddings"], num_types=config["type_vocab_size"])


def _of_roberta(config: dict[str, Any]) -> TextEmbedding:
    # Its positions are counted from behind the padding's own.
    padding = config["pad_token_id"]
    return TextEmbedding(config["max_position_embeddings"], padding + 1, padding, config["type_vocab_size"])


BERT = Family(
    "bert",
    biased=lambda config: (*QKV, "o_proj", *MLP),
    norm=_LAYER_NORM,
    norm_places=lambda config: NormPlaces(None, "attention_norm", None, "mlp_norm", is_behind=True),
    has_gate=False,
    rotates=_no_rope,
    stored=BERT_NAMES,
    is_two_sided=True,
    text_embedding=_of_bert,
    defaults={
        "vocab_size": 30_522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    },
)
ROBERTA = Family(
    "roberta",
    biased=BERT.biased,
    norm=_LAYER_NORM,
    norm_places=BERT.norm_places,
    has_gate=False,
    rotates=_no_rope,
    stored=BERT_NAMES,
    is_two_sided=True,
    text_embedding=_of_roberta,
    defaults=BERT.defaults | {"vocab_size": 50_265, "pad_token_id": 1},
)


def _windows_of_modernbert(config: dict[str, Any], num_layers: int) -> Windows:
    """`local_attention` counts both sides and, here, a window its own token."""
    half, every = config["local_attention"] // 2 + 1, config["global_attn_every_n_layers"]
    types = config.get("layer_types") or [
        "full_attention" if layer % every == 0 else SLIDING for layer in range(num_layers)
    ]
    return tuple(half if kind == SLIDING else None for kind in types)


def _biases_of_modernbert(config: dict[str, Any]) -> tuple[str, ...]:
    return ((*QKV, "o_proj") if config["attention_bias"] else ()) + (MLP if config["mlp_bias"] else ())


MODERNBERT = Family(
    "modernbert",
    windows=_windows_of_modernbert,
    biased=_biases_of_modernbert,
    norm=NormForm(has_mean=True),
    norm_places=lambda config: NormPlaces("attn_norm", None, "mlp_norm", skips_first=True),
    activation="hidden_activation",
    stored=MODERNBERT_NAMES,
    ropes_by_kind=True,
    window_theta=("local_rope_theta", 10_000.0),
    rope_theta=160_000.0,
    is_two_sided=True,
    text_embedding=lambda config: TextEmbedding(),
    defaults={
        "vocab_size": 50_368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "hidden_activation": "gelu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "tie_word_embeddings": True,
    },
)
# By how an architecture's name begins.
ENCODERS = {
    "Bert": BERT,
    "Roberta": ROBERTA,
    "XLMRoberta": ROBERTA,
    "Camembert": ROBERTA,
    "ModernBert": MODERNBERT,
}
