"""Small random checkpoints of models that give numbers, as transformers and sentence-transformers write them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy
import torch

from .gguf_file import write_gguf
from .tiny_model import tiny_model, write_safetensors, write_tokenizer


def embedding_model(folder: Path, family: str = "qwen3", **modes: bool) -> Path:
    """A decoder whose rows are pooled as these keys say, such as `pooling_mode_mean_tokens=True`."""
    tiny_model(folder, family)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


def classifier(folder: Path, purpose: str, num_labels: int, **config: Any) -> Path:
    """A decoder with another head; `purpose` ends the architecture's name, as `ForTokenClassification`."""
    labels = {str(number): f"class {number}" for number in range(num_labels)}
    tiny_model(folder, "qwen3", architectures=[f"Qwen3{purpose}"], id2label=labels, **config)
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    generator = numpy.random.default_rng(7)
    head = {
        "score.weight": generator.normal(size=(num_labels, hidden)),
        "score.bias": generator.normal(size=num_labels),
    }
    tensors = {name: values.astype(numpy.float32) for name, values in head.items()}
    write_safetensors(folder / "model-score.safetensors", tensors, "float32")
    return folder


# By a name: transformers' class, and a small config of it.
_SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
_ONE_TYPE = {"type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 260}
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": {"max_position_embeddings": 256},
    "XLMRoberta": _ONE_TYPE,
    "Roberta": _ONE_TYPE,
    "ModernBert": {**_ENDS, "max_position_embeddings": 256, "local_attention": 16},
    "Gemma3Text": {
        "max_position_embeddings": 256,
        "use_bidirectional_attention": True,
        "sliding_window": 16,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,  # a GGUF file has no key for another one
        "num_key_value_heads": 2,
    },
}


def encoder(folder: Path, kind: str, purpose: str = "Model", **config: Any) -> Any:
    """Save a small random encoder; returns transformers' model. Norms and biases are no ones and zeros."""
    torch.manual_seed(3)
    import transformers

    made = getattr(transformers, f"{kind}Config")(**{**_SMALL, **ENCODERS[kind], **config})
    model = getattr(transformers, f"{kind}{purpose}")(made).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, float(parameter.data.mean()), 0.2)
    model.save_pretrained(folder)
    write_tokenizer(folder, adds_bos=True)
    return model


def reranker(folder: Path, **names: int) -> Path:
    """A decoder whose score is made of its logits, as sentence-transformers writes one: `true_token_id=…`."""
    tiny_model(folder, "qwen3")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_LogitScore", "type": f"{_LOGITS}.LogitScore"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_LogitScore").mkdir()
    (folder / "1_LogitScore" / "config.json").write_text(json.dumps(names))
    (folder / "chat_template.jinja").write_text(PAIR_TEMPLATE)
    return folder


_LOGITS = "sentence_transformers.cross_encoder.modules.logit_score"
PAIR_TEMPLATE = """{% for message in messages %}{% if message.role == "query" %}<q>{{ message.content }}\
{% elif message.role == "document" %}<d>{{ message.content }}{% elif message.role == "system" %}\
{{ message.content }}{% endif %}{% endfor %}<a>"""


# What llama.cpp calls each kind of encoder.
_IN_GGUF = {"bert": "bert", "xlm-roberta": "bert", "modernbert": "modern-bert", "gemma3_text": "gemma-embedding"}
_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]


def encoder_as_gguf(path: Path, model: Any, pooling_type: int, **further: Any) -> Path:
    """Write an encoder as llama.cpp's converter does, by the names of gguf-py's tables; `further` tensors come last."""
    import gguf

    config = model.config
    architecture = _IN_GGUF[config.model_type]
    words = _WORDS + [f"##{number}" for number in range(config.vocab_size - len(_WORDS))]
    metadata = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3] * 5 + [1] * (len(words) - 5),
        "tokenizer.ggml.unknown_token_id": 1,
    }
    keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.causal": False,
        "pooling_type": pooling_type,
    } | _of_architecture(config, architecture)
    [known] = [arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture]
    table, tensors = gguf.get_tensor_name_map(known, config.num_hidden_layers), {}
    for name, tensor in model.state_dict().items():
        name = re.sub(r"^(model|roberta|bert)\.", "", name)
        name = re.sub(r"^classifier\.(?=weight|bias)", "classifier.out_proj.", name)
        if name.startswith("pooler"):
            continue
        own = table.get_name(name, (".weight", ".bias"))
        assert own is not None, name
        if own.startswith("position_embd"):  # the rows of padding are dropped
            tensor = tensor[config.pad_token_id + 1 :] if config.model_type != "bert" else tensor
        if architecture == "gemma-embedding" and "norm" in own:
            tensor = tensor + 1
        tensors[own] = tensor.float().numpy()
    metadata |= {f"{architecture}.{key}": value for key, value in keys.items()}
    return write_gguf(path, metadata, tensors | further)


def _of_architecture(config: Any, architecture: str) -> dict[str, Any]:
    if architecture == "bert":
        return {"attention.layer_norm_epsilon": config.layer_norm_eps}
    if architecture == "modern-bert":
        return {
            "attention.layer_norm_epsilon": config.norm_eps,
            "attention.sliding_window": config.local_attention,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base": 160_000.0,
            "rope.scaling.type": "none",
        }
    return {
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.sliding_window": 16,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "rope.freq_base": 1_000_000.0,
    }
