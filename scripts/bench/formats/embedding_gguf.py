"""Writes an embedding model of `embedding_checkpoint.py` as llama.cpp's converter would, and has llama.cpp quantize it.

    python -m bench.formats.embedding_gguf CHECKPOINT FOLDER int8        # or none: bfloat16

It runs in the Python in which llama-cpp-python and gguf are installed. The file has no vocabulary, since every engine
gets token ids.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy

from .quantize_gguf import quantize
from .sight_gguf import as_float32, bfloat16_tensors, write

ARCHITECTURES = {"qwen3": "QWEN3", "xlm-roberta": "BERT", "modernbert": "MODERN_BERT"}  # by transformers' model_type


def main(checkpoint: Path, folder: Path, quantization: str) -> None:
    folder.mkdir()
    output = folder / "model.gguf"
    if quantization == "none":
        write_file(checkpoint, output)
    else:
        floats = folder / "floats.gguf"
        write_file(checkpoint, floats)
        quantize(floats, output, "Q8_0")
        floats.unlink()


def write_file(checkpoint: Path, path: Path) -> None:
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    architecture = getattr(gguf.MODEL_ARCH, ARCHITECTURES[config["model_type"]])
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("none")
    _add_shape(writer, config)
    _add_kind(writer, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, bits in bfloat16_tensors(checkpoint / "model.safetensors"):
        if name.startswith("pooler."):
            continue
        prefix = "model." if config["model_type"] == "qwen3" else ""
        named = names.get_name(prefix + name.removeprefix("model."), (".weight", ".bias"))
        if "position_embeddings" in name:
            bits = bits[_skipped_positions(config) :]
        if bits.ndim == 1 or "token_type" in name:
            writer.add_tensor(named, as_float32(bits))
        else:
            rows = numpy.ascontiguousarray(bits).view(numpy.uint8)
            writer.add_tensor(named, rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
    write(writer)


def _skipped_positions(config: dict[str, Any]) -> int:
    """RoBERTa's positions begin behind the padding's own."""
    return config["pad_token_id"] + 1 if config["model_type"] == "xlm-roberta" else 0


def _add_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"] - _skipped_positions(config))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])


def _add_kind(writer: Any, config: dict[str, Any]) -> None:
    """What only one of the architectures has."""
    if config["model_type"] == "qwen3":
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        return
    writer.add_causal_attention(False)
    writer.add_layer_norm_eps(config.get("layer_norm_eps") or config["norm_eps"])
    if config["model_type"] == "xlm-roberta":
        writer.add_token_type_count(config["type_vocab_size"])
        return
    writer.add_sliding_window(config["local_attention"])
    writer.add_sliding_window_pattern(3)
    ropes = config["rope_parameters"]
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
