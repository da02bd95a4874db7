"""Facts of models that give numbers: encoders, classifiers, and the layers behind a pooled row."""

from ....fields.rules import shown
from ..refusals import UNSUPPORTED, MalformedError
from .model_metadata import Config, ModelMetadata

# llama.cpp's numbers of poolings in sentence-transformers' words; of the last one, classes are made of the row.
POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
NO_POOLING, RANK = 0, 4
_CLASSES, _BEFORE = "cls.output.weight", "cls.weight"
_ORIGINAL = "Use the original model's folder or hub id."
DENSE = ("dense_2", "dense_3")  # EmbeddingGemma's, between pooling and norm
_MOST_CLASSES = 1 << 16


def has_classes(given: ModelMetadata) -> bool:
    return given.has_tensor(_CLASSES, _BEFORE)


def classes(given: ModelMetadata) -> Config:
    """The names of classes, as many as the last layer has rows."""
    if not given.has_tensor(_CLASSES):
        raise MalformedError(f"has {_BEFORE} without {_CLASSES}, as classes need both", _ORIGINAL)
    count = given.rows(_CLASSES)
    if count > _MOST_CLASSES:
        raise MalformedError(f"has {count:,} classes, and {_MOST_CLASSES:,} are read at most", UNSUPPORTED)
    names = given.texts("classifier.output_labels")
    if len(names) != count:
        names = [f"LABEL_{number}" for number in range(count)]
    return {"id2label": {str(number): name for number, name in enumerate(names)}}


def bert_classes(given: ModelMetadata) -> Config:
    """Classes of BERT's kind. Converters keep the layer before them of XLM-RoBERTa, and drop that of BERT itself."""
    if not given.has_tensor(_BEFORE) or given.rows(_BEFORE) != given.count("embedding_length"):
        raise MalformedError(
            "has classes without the layer between them and the text (BERT's pooler), which converters drop, so its "
            "scores would be wrong",
            _ORIGINAL,
        )
    return classes(given)


def qwen3_classes(given: ModelMetadata) -> Config:
    """Of Qwen3-Reranker the head's rows for its two answers."""
    found = classes(given)
    return found | {"is_original_qwen3_reranker": list(found["id2label"].values()) == ["yes", "no"]}


def bert_tables(given: ModelMetadata) -> Config:
    """An encoder's tables of positions and types. Converters drop the rows before a text's first position."""
    if given.flag("attention.causal", False):
        raise MalformedError("is an encoder whose tokens see none after them, which its family hasn't", UNSUPPORTED)
    return {
        "max_position_embeddings": given.rows("position_embd.weight"),
        "type_vocab_size": given.rows("token_types.weight") if given.has_tensor("token_types.weight") else 0,
    }


def modernbert_layers(given: ModelMetadata) -> Config:
    """Windows to both sides in all but every third layer, counted from the first; rotation by kind of layer."""
    return {
        "local_attention": given.count("attention.sliding_window", 128),
        "global_attn_every_n_layers": given.count("attention.sliding_window_pattern", 3),
        "global_rope_theta": given.number("rope.freq_base", 160_000.0),
        "local_rope_theta": given.number("rope.freq_base_swa", 10_000.0),
        "norm_eps": given.number("attention.layer_norm_epsilon", 1e-5),
        "attention_bias": given.has_in_any_layer("attn_qkv.bias"),
        "mlp_bias": given.has_in_any_layer("ffn_up.bias"),
    }


def pooling_of(given: ModelMetadata) -> str | None:
    """How rows are pooled, in sentence-transformers' word; None if the file doesn't say, or has classes."""
    pooling = given.count("pooling_type", NO_POOLING)
    if pooling == NO_POOLING or has_classes(given):
        return None
    if pooling not in POOLINGS:
        what = f"ranks texts without {_CLASSES}" if pooling == RANK else f"has pooling_type={shown(pooling)}"
        raise MalformedError(f"{what}, which doesn't run", _ORIGINAL)
    return POOLINGS[pooling]


def dense_widths(given: ModelMetadata) -> dict[str, int]:
    """What each layer between pooling and norm gives, by its name in the file."""
    return {name: given.rows(f"{name}.weight") for name in DENSE if given.has_tensor(f"{name}.weight")}
