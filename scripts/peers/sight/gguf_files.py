"""Writes the checkpoint as llama.cpp wants a model that sees: the text part, and the encoder in a file of its own.

Names and keys are those of llama.cpp's converter for Qwen3-VL. The text part is in bfloat16, to be quantized by
llama.cpp itself; the encoder's matrices are written in the format that is asked for.
"""

import json
from pathlib import Path
from typing import Any

import numpy

from ..gguf_file import gguf_name
from ..safetensors_file import as_float32, bfloat16_tensors

TEXT, VISION = "model.language_model.", "model.visual."
LAYER = {
    "norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down",
}  # fmt: skip
MERGER = {"norm": "v.post_ln", "linear_fc1": "mm.0", "linear_fc2": "mm.2"}
TAP = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
NORMAL, CONTROL = 1, 3  # kinds of tokens


def write_text(checkpoint: Path, path: Path) -> None:
    import gguf

    whole = json.loads((checkpoint / "config.json").read_text())
    config, rope = whole["text_config"], whole["text_config"]["rope_scaling"]
    writer = gguf.GGUFWriter(path, "qwen3vl")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_num_deepstack_layers(len(whole["vision_config"]["deepstack_visual_indexes"]))
    writer.add_vocab_size(config["vocab_size"])
    add_vocabulary(writer, checkpoint, config)
    for name, bits in bfloat16_tensors(checkpoint / "model.safetensors"):
        if not name.startswith(TEXT):
            continue
        named = gguf_name("model." + name.removeprefix(TEXT))
        if bits.ndim == 1:
            writer.add_tensor(named, as_float32(bits))
        else:
            rows = numpy.ascontiguousarray(bits).view(numpy.uint8)
            writer.add_tensor(named, rows, raw_dtype=gguf.GGMLQuantizationType.BF16)
    write(writer)


def add_vocabulary(writer: Any, checkpoint: Path, config: dict[str, Any]) -> None:
    tokenizer = json.loads((checkpoint / "tokenizer.json").read_text())
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    marks = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    texts |= marks
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([texts[number] for number in range(config["vocab_size"])])
    writer.add_token_types([CONTROL if number in marks else NORMAL for number in range(config["vocab_size"])])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)


def write_encoder(checkpoint: Path, path: Path, kind: str) -> None:
    """`kind` is F16, BF16 or Q8_0."""
    import gguf

    whole = json.loads((checkpoint / "config.json").read_text())
    config = whole["vision_config"]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_file_type(getattr(gguf.LlamaFileType, f"MOSTLY_{kind}"))
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("qwen3vl_merger")
    writer.add_vision_projection_dim(config["out_hidden_size"])
    writer.add_vision_image_size(round(config["num_position_embeddings"] ** 0.5) * config["patch_size"])
    writer.add_vision_patch_size(config["patch_size"])
    writer.add_vision_embedding_length(config["hidden_size"])
    writer.add_vision_feed_forward_length(config["intermediate_size"])
    writer.add_vision_block_count(config["depth"])
    writer.add_vision_head_count(config["num_heads"])
    writer.add_vision_attention_layernorm_eps(whole["text_config"]["rms_norm_eps"])
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    writer.add_vision_use_gelu(True)
    writer.add_vision_spatial_merge_size(config["spatial_merge_size"])
    taps = config["deepstack_visual_indexes"]
    writer.add_vision_is_deepstack_layers([layer in taps for layer in range(config["depth"])])
    for name, bits in bfloat16_tensors(checkpoint / "model.safetensors"):
        if name.startswith(VISION):
            add_of_encoder(writer, name.removeprefix(VISION), as_float32(bits), taps, kind)
    write(writer)


def add_of_encoder(writer: Any, name: str, tensor: numpy.ndarray, taps: list[int], kind: str) -> None:
    import gguf

    if name == "patch_embed.proj.weight":  # [outputs, colours, frames, height, width], of each frame a matrix
        for frame, suffix in enumerate(("", ".1")):
            matrix = numpy.ascontiguousarray(tensor[:, :, frame])
            writer.add_tensor(f"v.patch_embd.weight{suffix}", matrix.astype(numpy.float16))
        return
    named = encoder_name(name, taps)
    if tensor.ndim == 1 or named.startswith("v.position_embd"):
        writer.add_tensor(named, tensor)
        return
    number = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(named, gguf.quants.quantize(tensor, number), raw_dtype=number)


def encoder_name(name: str, taps: list[int]) -> str:
    """`blocks.3.attn.qkv.weight` is `v.blk.3.attn_qkv.weight` there."""
    stem, _, kind = name.rpartition(".")
    room, _, rest = stem.partition(".")
    if room == "blocks":
        layer, _, part = rest.partition(".")
        return f"v.blk.{layer}.{LAYER[part]}.{kind}"
    if room == "deepstack_merger_list":
        number, _, part = rest.partition(".")
        return f"v.deepstack.{taps[int(number)]}.{TAP[part]}.{kind}"
    if room == "merger":
        return f"{MERGER[rest]}.{kind}"
    return {"pos_embed": "v.position_embd", "patch_embed": "v.patch_embd"}[room] + f".{kind}"


def write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
