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


# llama.cpp's names of an encoder's modules, and the keys of its header.
_ENCODER = {"encoder.layer": "blk", "layers": "blk"}
_BERT = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
    "classifier.dense": "cls",
    "classifier.out_proj": "cls.output",
}
_MODERN = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.Wo": "attn_output",
    "mlp_norm": "ffn_norm",
    "mlp.Wi": "ffn_up",
    "mlp.Wo": "ffn_down",
    "final_norm": "output_norm",
    "head.dense": "cls",
    "head.norm": "cls.norm",
    "classifier": "cls.output",
}
_GEMMA = {
    "embed_tokens": "token_embd",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_IN_GGUF: dict[str, tuple[str, dict[str, str]]] = {
    "bert": ("bert", _BERT),
    "xlm-roberta": ("bert", _BERT),
    "modernbert": ("modern-bert", _MODERN),
    "gemma3_text": ("gemma-embedding", _GEMMA),
}
_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"\u2581{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]


def encoder_as_gguf(path: Path, model: Any, pooling_type: int, **further: Any) -> Path:
    """Write an encoder as llama.cpp's converter does; `further` tensors stand behind it."""
    config = model.config
    architecture, names = _IN_GGUF[config.model_type]
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
    tensors = {}
    for name, tensor in model.state_dict().items():
        name = re.sub(r"^(model|roberta|bert)\.", "", name)
        for module, own in (_ENCODER | names).items():
            name = re.sub(rf"\b{module}\b", own, name, count=1)
        if name.startswith("position_embd"):  # the rows of padding are dropped
            tensor = tensor[config.pad_token_id + 1 :] if config.model_type != "bert" else tensor
        if architecture == "gemma-embedding":
            name = "output_norm.weight" if name == "norm.weight" else name
            tensor = tensor + 1 if "norm" in name else tensor
        if not name.startswith("pooler"):
            tensors[name] = tensor.float().numpy()
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
