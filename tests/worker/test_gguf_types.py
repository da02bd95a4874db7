"""Types of a GGUF file's tensors, mixed as files mix them; and tensors and metadata of two models, which are refused in
a sentence that names the file and no folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.gguf_file import Octets, write_gguf, zeros
from builders.gguf_models import as_gguf, q4_k_m
from builders.native_variants import available_variants, needs_variant
from builders.quantized_parts import floats
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model

from penstock.kernels.stored.ggml import GgmlPart
from penstock.kernels.stored.ggml_blocks import TYPES
from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import read_header
from penstock.protocol.files.gguf.types import BY_NAME
from penstock.worker.description.config import read_config
from penstock.worker.description.linked_files import LinkedFiles, linked_files
from penstock.worker.survey import survey
from penstock.worker.weights.gguf.checkpoint import GgufCheckpoint
from penstock.worker.weights.gguf.tensors import GgufTensors

from .test_gguf_families import logits_of

K_SHAPES = {"hidden_size": 256, "intermediate_size": 512}
SHAPES = {"hidden_size": 64, "intermediate_size": 96}


def of_each_kind(name: str) -> str:
    """A type of its own for each part of a layer."""
    kinds = {"attn_q.": "Q8_0", "attn_k.": "Q4_0", "attn_v.": "Q5_1", "attn_output": "Q5_0", "ffn_gate": "F16"}
    kinds |= {"ffn_up": "BF16", "ffn_down": "Q4_1", "token_embd": "Q8_0", "output.": "Q4_1"}
    return next((kind for part, kind in kinds.items() if part in name), "F32")


# The family, what its checkpoint has otherwise, and what its tensors are stored as.
MIXTURES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "qwen3, Q4_K_M": ("qwen3", K_SHAPES | {"head_dim": 64}, q4_k_m),
    "llama, Q5_K": ("llama", K_SHAPES | {"num_attention_heads": 4, "head_dim": 64}, lambda name: "Q5_K"),
    "llama, a type a part": ("llama", SHAPES | {"num_attention_heads": 4}, of_each_kind),
    "phi3, a type a part": ("phi3", SHAPES, of_each_kind),
    "gemma2, Q8_0": ("gemma2", SHAPES, lambda name: "Q8_0"),
    "qwen3 moe, Q4_K_M": ("qwen3_moe", K_SHAPES | {"moe_intermediate_size": 256, "head_dim": 64}, q4_k_m),
    "deepseek v3, Q8_0": (
        "deepseek_v3", SHAPES | {"kv_lora_rank": 32, "qk_nope_head_dim": 32, "moe_intermediate_size": 32},
        lambda name: "Q8_0",
    ),
    "gpt-oss, MXFP4": ("gpt_oss", SHAPES, lambda name: "MXFP4" if "_exps" in name else "Q8_0"),
    "qwen3.5, Q8_0": ("qwen3_5_text", SHAPES | {"linear_value_head_dim": 32}, lambda name: "Q8_0"),
}  # fmt: skip


@for_each("name", MIXTURES)
def test_numbers_in_blocks_are_computed_with_as_they_are(name: str, tmp_path: Path):
    family, overrides, types = MIXTURES[name]
    checkpoint = tiny_model(tmp_path / "checkpoint", family, **overrides)
    in_blocks = as_gguf(checkpoint, tmp_path / "in blocks", types)
    widened = as_gguf(checkpoint, tmp_path / "widened", types, is_widened=True)
    expected = logits_of(widened)
    torch.testing.assert_close(logits_of(in_blocks), expected, atol=2e-5, rtol=2e-5)
    if available_variants():
        # Rows become 8-bit integers in groups where they meet blocks, and a token may choose another expert for it.
        found = logits_of(in_blocks, "native")
        assert (found - expected).abs().median() < 0.03 * expected.std()


def opened(folder: Path) -> GgufCheckpoint:
    return GgufCheckpoint(folder, linked_files(folder), read_config(folder))


def test_a_matrix_comes_in_blocks_and_a_cut_through_them_comes_as_floats(tmp_path: Path):
    folder = as_gguf(tiny_model(tmp_path / "checkpoint", "llama", **K_SHAPES), tmp_path / "model", q4_k_m)
    checkpoint, name, shape = opened(folder), "model.layers.1.mlp.down_proj.weight", (256, 512)
    whole = checkpoint.matrix(name, shape)
    assert isinstance(whole, GgmlPart)
    half = checkpoint.matrix(name, shape, (1, 256, 512))
    assert isinstance(half, GgmlPart)
    assert torch.equal(floats(half), floats(whole)[:, 256:])
    for first, last in ((0, 100), (200, 300), (300, 512)):
        cut = checkpoint.matrix(name, shape, (1, first, last))
        assert not isinstance(cut, GgmlPart)
        assert torch.equal(floats(cut), floats(whole)[:, first:last])
    rows = checkpoint.matrix(name, shape, (0, 17, 40))
    assert isinstance(rows, GgmlPart)
    assert torch.equal(floats(rows), floats(whole)[17:40])
    assert checkpoint.group_size("model.layers.1.mlp.down_proj") == 256
    assert checkpoint.group_size("model.layers.1.input_layernorm") == 0


@needs_variant
def test_layers_have_the_kinds_of_their_tensors(tmp_path: Path):
    checkpoint = tiny_model(tmp_path / "checkpoint", "qwen3", **K_SHAPES, head_dim=64, tie_word_embeddings=False)
    folder = as_gguf(checkpoint, tmp_path / "model", lambda name: "BF16" if "ffn_down" in name else q4_k_m(name))

    def kinds(**options: Any) -> dict[str, str]:
        formats = load_on("native", folder, **options).decoder.placement.formats
        return {layer: format.kind for layer, format in formats.named.items() if ".layers.1." not in layer}

    inner = {f"model.layers.0.self_attn.{part}_proj": "q4_k" for part in "qko"}
    inner |= {f"model.layers.0.mlp.{part}_proj": "q4_k" for part in ("gate", "up")}
    outer = {"model.embed_tokens": "q6_k", "model.layers.0.self_attn.v_proj": "q6_k"}
    asked = {"model.layers.0.mlp.down_proj": "bf16", "lm_head": "q6_k"}
    assert kinds() == inner | outer | asked
    assert kinds(quantization="int8") == inner | outer | asked | {"model.layers.0.mlp.down_proj": "int8"}
    assert kinds(lm_head_fp32=True) == inner | outer | asked | {"lm_head": "fp32"}


def test_blocks_are_as_large_as_headers_take_them_for():
    sizes = {name: (BY_NAME[name].block_elements, BY_NAME[name].block_bytes) for name in TYPES}
    assert {name: (each.block, each.nbytes) for name, each in TYPES.items()} == sizes


# --- tensors and metadata of two models -------------------------------------------------------------------------------


def file_of(folder: Path) -> Path:
    return linked_files(folder).files[0]


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The folder's file with other tensors."""
    path = file_of(folder)
    header, content = read_header(path), path.read_bytes()
    tensors: dict[str, Any] = {
        each.name: Octets(each.shape, each.type, content[each.offset : each.offset + each.nbytes])
        for each in header.tensors
    }
    change(tensors)
    write_gguf(path, header.metadata, tensors)


@for_each("family, tensor, shape", [
    ("llama", "blk.1.attn_q.weight", (48, 48)),  # fewer rows than its order of heads has
    ("gpt_oss", "blk.0.ffn_gate_exps.bias", (64, 6)),  # two that are made one
    ("qwen3_5_text", "blk.0.ssm_out.weight", (1,)),  # no matrix
    ("llama", "blk.0.ffn_up.weight", ()),
])  # fmt: skip
def test_a_tensor_of_another_shape_is_named_with_what_it_was_to_give(
    family: str, tensor: str, shape: tuple[int, ...], tmp_path: Path
):
    folder = as_gguf(tiny_model(tmp_path / "checkpoint", family), tmp_path / "model")
    rewrite(folder, lambda tensors: tensors.update({tensor: zeros(shape)}))
    with pytest.raises(ConfigError) as raised:
        load_on("fast", folder)
    assert tensor in str(raised.value) and file_of(folder).name in str(raised.value)
    assert str(tmp_path) not in str(raised.value)


def test_what_is_wrong_with_a_translated_folder_is_said_of_the_file(tmp_path: Path):
    folder = as_gguf(tiny_model(tmp_path / "checkpoint", "llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    change_config(folder, intermediate_size=0)
    refusal = survey([str(folder)], with_torch=False).models[0].refusal
    assert refusal == f"{file_of(folder).name}'s metadata: intermediate_size must be a positive whole number, and is 0."
    change_config(folder, **config | {"num_hidden_layers": 1})
    with pytest.raises(ConfigError) as raised:
        load_on("fast", folder)
    assert str(raised.value).startswith(f"{file_of(folder).name} has tensors of 2 layers")
    assert "config.json" not in str(raised.value) and str(tmp_path) not in str(raised.value)
    change_config(folder, **config)
    rewrite(folder, lambda tensors: tensors.update({"blk.0.of_nobody": zeros((1,))}))
    with pytest.raises(ConfigError, match=f"^{file_of(folder).name} has tensors that no layer of llama reads"):
        load_on("fast", folder)


def test_an_encoder_takes_the_place_of_no_tensor_of_the_model(tmp_path: Path):
    own = write_gguf(tmp_path / "own.gguf", {}, {"output_norm.weight": zeros((4,))})
    other = write_gguf(tmp_path / "mmproj.gguf", {}, {"output_norm.weight": zeros((4,)), "v.x": zeros((1,))})
    with pytest.raises(ConfigError, match=r"^mmproj.gguf has 'output_norm.weight', as own.gguf has"):
        GgufTensors(LinkedFiles((own,), other))
