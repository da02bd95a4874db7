"""Converting to GGUF: the blocks are ggml's, and the file holds what llama.cpp's own converter would write."""

import dataclasses
import json
import re
from pathlib import Path

import gguf
import numpy
import pytest
import torch
from builders.cases import for_each
from builders.quantized_parts import floats
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.frontend.models.gguf.config import config_of
from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.torch.arrays import array_of
from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.architectures.table import WRITTEN
from penstock.protocol.files.gguf.header import Header, read_header
from penstock.protocol.files.gguf.parts import read_model
from penstock.worker.convert import convert
from penstock.worker.convert.gguf.blocks import quantized_rows
from penstock.worker.convert.gguf.file_types import FILE_TYPES, TypeChooser
from penstock.worker.description.config import ModelConfig, read_config

FAMILIES = {
    **{name: {} for name in WRITTEN if name not in ("qwen3_moe", "ernie4_5_moe", "gemma2", "gemma3_text")},
    "qwen2_moe": dict(hidden_size=96),
    "qwen3_moe": dict(norm_topk_prob=True, decoder_sparse_step=1),
    "ernie4_5_moe": dict(use_bias=False, moe_layer_end_index=-1, moe_layer_interval=1, moe_layer_start_index=1),
    "gemma2": dict(query_pre_attn_scalar=32),
    "gemma3_text": dict(query_pre_attn_scalar=32),
}


def written(source: Path, kind: str | None = None) -> Path:
    target = source.with_name(f"{source.name}-{kind}.gguf")
    convert.convert(Conversion(str(source), str(source), str(target), kind, is_gguf=True), lambda said: None)
    return target


def tensors_of(path: Path, header: Header) -> dict[str, torch.Tensor]:
    """All as float32, whatever their type."""
    content = numpy.memmap(path, numpy.uint8, "r")
    found = {}
    for each in header.tensors:
        octets = torch.from_numpy(content[each.offset : each.offset + each.nbytes].copy())
        if each.type in ("F32", "F16", "BF16"):
            dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[each.type]
            numbers = octets.view(dtype).float()
        else:
            rows = octets.view(
                -1, gguf.quants.quant_shape_to_byte_shape(each.shape, gguf.GGMLQuantizationType[each.type])[-1]
            )
            numbers = floats(GgmlPart(each.type, array_of(rows)))
        found[each.name] = numbers.view(each.shape)
    return found


# --- blocks ----------------------------------------------------------------------------------------------------------


def rows(num_inputs: int = 1024) -> torch.Tensor:
    """Of many magnitudes, with zeros, one value throughout, and a group that is all below 0."""
    generator = torch.Generator().manual_seed(0)
    found = torch.randn(24, num_inputs, generator=generator) * torch.logspace(-3, 2, 24)[:, None]
    found[0], found[1], found[2] = 0, 1.5, -0.25
    found[3] = -found[3].abs()
    found[4, ::7] *= 30
    return found


@for_each("kind", ["Q8_0", "Q4_0", "Q5_0"])
def test_blocks_of_32_are_those_that_ggufs_own_code_writes(kind):
    expected = gguf.quants.quantize(rows().numpy(), gguf.GGMLQuantizationType[kind])
    assert (quantized_rows(rows().numpy(), kind) == expected).all()


@for_each("kind, error", [("Q4_K", 0.12), ("Q5_K", 0.06), ("Q6_K", 0.035)])
def test_blocks_of_256_are_close_to_the_weights_and_closer_than_plain_rounding(kind, error):
    found = floats(GgmlPart(kind, quantized_rows(rows().numpy(), kind)))
    distance = (found - rows()).norm(dim=1) / rows().norm(dim=1).clamp(min=1e-9)
    assert distance.max() < error, distance
    assert distance[0] == 0
    if kind == "Q4_K":
        plain = floats(GgmlPart("Q4_0", quantized_rows(rows().numpy(), "Q4_0")))
        assert (distance[5:] < (plain - rows()).norm(dim=1)[5:] / rows().norm(dim=1)[5:]).all()


@for_each("kind", ["Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q5_K", "Q6_K"])
def test_a_row_becomes_the_same_bytes_in_any_company(kind):
    many = rows(512).numpy()
    together = quantized_rows(many, kind)
    for number in (0, 3, 23):
        assert (quantized_rows(many[number : number + 1], kind)[0] == together[number]).all(), number


def test_types_of_a_q4_k_file_are_those_of_llama_cpps_q4_k_m():
    choose = TypeChooser(FILE_TYPES["q4_k"], num_layers=28, num_experts=0, has_own_head=False, shares_keys=True)
    by_layer = [choose.type_of(f"blk.{layer}.ffn_down.weight", (1024, 3072)).name for layer in range(28)]
    # Read off a Qwen3-0.6B that llama.cpp quantized.
    more = {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}
    assert [layer for layer, name in enumerate(by_layer) if name == "Q6_K"] == sorted(more)
    assert choose.type_of("token_embd.weight", (151936, 1024)).name == "Q6_K"
    assert choose.type_of("blk.3.attn_q_norm.weight", (128,)).name == "F32"
    assert choose.type_of("blk.3.ffn_gate.weight", (3072, 1000)).name == "F16"
    assert choose.type_of("blk.3.ffn_gate.weight", (3072, 992)).name == "Q5_0"


# --- whole files -----------------------------------------------------------------------------------------------------


@for_each("family", FAMILIES)
def test_all_weights_of_a_model_are_in_the_file_whose_header_reads_as_its_config(tmp_path, family):
    source = tiny_model(tmp_path / "model", family, **FAMILIES[family])
    header = read_header(path := written(source))
    architecture = header.metadata["general.architecture"]
    own = sum(tensor.numel() for tensor in load_file(source / "model.safetensors").values())
    there = sum(numpy.prod(each.shape) for each in header.tensors)
    assert there == own, [each.name for each in header.tensors]
    known = {name for key in gguf.MODEL_TENSORS[ARCH[architecture]] for name in [gguf.TENSOR_NAMES[key]]}
    assert all(stem(each.name) in known for each in header.tensors), [each.name for each in header.tensors]
    assert header.metadata[f"{architecture}.block_count"] == 2 or family.startswith("gemma")
    assert len(header.metadata["tokenizer.ggml.tokens"]) == header.metadata[f"{architecture}.vocab_size"]
    (translated := tmp_path / "translated").mkdir()
    (translated / "config.json").write_text(json.dumps(config_of(read_model((path,)))))
    assert described(read_config(translated)) == described(read_config(source))


def described(config: ModelConfig) -> dict[str, object]:
    """All but the form of its file."""
    of_form = {"family", "dtype", "quantization", "ropes"}
    ropes = [(rope.kind, rope.theta, rope.rotary_dim, rope.max_position) for rope in config.ropes.ropes]
    fields = {each.name: getattr(config, each.name) for each in dataclasses.fields(config) if each.name not in of_form}
    return fields | {"rotations": ropes}


ARCH = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}


def stem(name: str) -> str:
    return re.sub(r"^blk\.\d+\.", "blk.{bid}.", name).removesuffix(".weight").removesuffix(".bias")


def both(folder: Path, family: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors of a model, and those of its file."""
    source = tiny_model(folder / family, family, **FAMILIES[family])
    path = written(source)
    return load_file(source / "model.safetensors"), tensors_of(path, read_header(path))


def test_rows_and_norms_lie_as_llama_cpp_wants_them_and_experts_one_behind_the_other(tmp_path):
    """Rows of a Llama's queries and keys in pairs, a Gemma's norms with the one that they are stored without, a Phi's
    rows fused."""
    before, after = both(tmp_path, "llama")
    query = before["model.layers.1.self_attn.q_proj.weight"]  # 6 heads of 16
    paired = after["blk.1.attn_q.weight"].view(6, 8, 2, -1).transpose(1, 2).reshape(query.shape)
    assert torch.equal(paired, query) and not torch.equal(after["blk.1.attn_q.weight"], query)
    assert torch.equal(after["blk.1.attn_v.weight"], before["model.layers.1.self_attn.v_proj.weight"])

    before, after = both(tmp_path, "gemma")
    assert torch.equal(after["blk.0.ffn_norm.weight"], before["model.layers.0.post_attention_layernorm.weight"] + 1)
    before, after = both(tmp_path, "phi3")
    assert torch.equal(after["blk.0.attn_qkv.weight"], before["model.layers.0.self_attn.qkv_proj.weight"])
    assert torch.equal(after["blk.0.ffn_up.weight"], before["model.layers.0.mlp.gate_up_proj.weight"])
    for family in ("mixtral", "qwen3_moe"):
        before, after = both(tmp_path, family)
        [down] = [tensor for name, tensor in before.items() if re.search(r"layers\.1.*\.3\.(w2|down_proj)", name)]
        assert torch.equal(after["blk.1.ffn_down_exps.weight"][3], down), family


@for_each("kind", FILE_TYPES)
def test_weights_are_quantized_and_norms_are_not(tmp_path, kind):
    source = tiny_model(tmp_path / "model", "qwen3", hidden_size=256, intermediate_size=512, dtype="bfloat16")
    before, path = load_file(source / "model.safetensors"), written(source, kind)
    header = read_header(path)
    after = tensors_of(path, header)
    types = {each.name: each.type for each in header.tensors}
    assert types["blk.0.attn_q.weight"] == kind.upper() and types["blk.0.attn_norm.weight"] == "F32"
    weight = before["model.layers.0.mlp.up_proj.weight"].float()
    assert (after["blk.0.ffn_up.weight"] - weight).norm() < 0.12 * weight.norm()
    assert path.stat().st_size < (source / "model.safetensors").stat().st_size


def test_a_copy_keeps_the_models_own_numbers_and_stretched_positions_and_windows_are_written_as_llama_cpp_reads_them(
    tmp_path,
):
    header = read_header(written(tiny_model(tmp_path / "qwen2", "qwen2", dtype="bfloat16")))
    assert {each.type for each in header.tensors} == {"BF16", "F32"}
    assert header.metadata["general.file_type"] == gguf.LlamaFileType.MOSTLY_BF16
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    llama3["original_max_position_embeddings"] = 128
    path = written(tiny_model(tmp_path / "llama", "llama", rope=llama3))
    factors = tensors_of(path, read_header(path))["rope_freqs.weight"]
    assert factors[0] == 1 and factors[-1] == 8 and (factors.diff() >= 0).all()
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=256)
    metadata = read_header(written(tiny_model(tmp_path / "qwen3", "qwen3", rope=yarn))).metadata
    assert metadata["qwen3.rope.scaling.type"] == "yarn" and metadata["qwen3.rope.scaling.factor"] == 4
    assert metadata["qwen3.rope.scaling.original_context_length"] == 256
    windowed = read_header(written(tiny_model(tmp_path / "mistral", "mistral", sliding_window=300))).metadata
    assert windowed["llama.context_length"] == 300, "where llama.cpp would forget the window"


@for_each("family, options, why", [
    ("smollm3", {}, "family smollm3 are not written"),
    ("qwen3_moe", dict(norm_topk_prob=False), "norm_topk_prob is false"),
    ("gemma3_text", dict(query_pre_attn_scalar=77), "query_pre_attn_scalar"),
    ("qwen3", dict(attention_bias=True), "has no tensor for"),
    ("llama", dict(rope=dict(rope_type="dynamic", factor=2.0)), "stretched by dynamic"),
], ids=str)  # fmt: skip
def test_what_llama_cpp_would_compute_otherwise_is_refused(tmp_path, family, options, why):
    source = tiny_model(tmp_path / "model", family, **options)
    with pytest.raises(ConfigError, match=why) as raised:
        written(source)
    assert "llama.cpp's own convert_hf_to_gguf.py" in str(raised.value) or "OUT becomes a folder" in str(raised.value)
    assert list(tmp_path.iterdir()) == [source]


@for_each("lacks", ["experts.0.", "experts.2.", "experts.3."])
def test_a_model_that_lacks_an_expert_is_refused(tmp_path, lacks):
    source = tiny_model(tmp_path / "model", "qwen3_moe", **FAMILIES["qwen3_moe"])
    tensors = load_file(source / "model.safetensors")
    name = f"model.layers.1.mlp.{lacks}down_proj.weight"
    assert name in tensors
    save_file({each: tensor for each, tensor in tensors.items() if each != name}, source / "model.safetensors")
    with pytest.raises(ConfigError, match=r"^blk.1.ffn_down_exps.weight is made of .* Download the model again"):
        written(source)


def test_a_weight_that_is_no_number_is_refused_and_nothing_is_left(tmp_path):
    source = tiny_model(tmp_path / "model", "qwen3", poison=7)
    with pytest.raises(ConfigError, match="embed_tokens.weight holds NaN or infinity"):
        written(source, "q8_0")
    assert list(tmp_path.iterdir()) == [source]
