"""Writes the checkpoint as llama.cpp wants a model that sees: the text part, and the encoder in a file of its own.

Names and keys are those of llama.cpp's converter for Qwen3-VL. The text part is in bfloat16, to be quantized by
llama.cpp itself; the encoder's matrices are written in the format that is asked for.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

TEXT, VISION, TAP = "model.language_model.", "model.visual.", "deepstack_merger_list."
MERGER = {"merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2"}
LAYERS = 64  # more than any encoder has
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
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3VL, config["num_hidden_layers"])
    for name, bits in bfloat16_tensors(checkpoint / "model.safetensors"):
        if not name.startswith(TEXT):
            continue
        named = names.get_name("model." + name.removeprefix(TEXT), (".weight",))
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
    if stem in MERGER:
        return f"{MERGER[stem]}.{kind}"
    if name.startswith(TAP):  # numbered by its layer
        number, _, part = name.removeprefix(TAP).partition(".")
        name = f"model.visual.{TAP}{taps[int(number)]}.{part}"
    else:
        name = f"visual.{name}"
    return encoder_names().get_name(name, (".weight", ".bias"))


@functools.cache
def encoder_names() -> Any:
    import gguf

    return gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, LAYERS)


def write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# --- safetensors, with nothing but numpy: llama.cpp's Python may have no torch ---------------------------------------


def bfloat16_tensors(path: Path) -> Iterator[tuple[str, numpy.ndarray]]:
    """Each tensor's name and its bits as uint16, in the file's order."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_bytes))
    header.pop("__metadata__", None)
    mapped = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + header_bytes)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {entry['dtype']}; the benchmark's checkpoints are BF16 throughout.")
        start, end = entry["data_offsets"]
        yield name, mapped[start:end].view(numpy.uint16).reshape(entry["shape"])


def as_float32(bits: numpy.ndarray) -> numpy.ndarray:
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
