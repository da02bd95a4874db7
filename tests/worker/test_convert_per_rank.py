"""Weights cut for their ranks: each rank loads from its own folder what it would have taken from the whole."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import check_equal
from builders.compared_models import converted as converted_to
from builders.tiny_configs import MIXTURE
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file

from penstock.protocol.conversion import RECORD
from penstock.protocol.errors import ConfigError
from penstock.worker.convert import conversion_plan, convert
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model

# Tied and untied heads, biases, more ranks than key heads, widths that ranks cannot share evenly.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {"intermediate_size": 128}),
    "llama": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "ernie": ("ernie4_5", {}),
    "youtu": (
        "youtu", dict(kv_lora_rank=64, v_head_dim=32, q_lora_rank=64, hidden_size=64, intermediate_size=128)
    ),
    "gpt-oss": ("gpt_oss", {"head_dim": 32}),
    # Projections of which a rank has several spans of rows.
    "qwen3.5": ("qwen3_5_text", {"hidden_size": 64, "intermediate_size": 128, "linear_value_head_dim": 32}),
    "qwen3-next": ("qwen3_next", {}),
    # Norms by head in one tensor or in many, fused and renamed projections, no gate.
    "glm4": ("glm4", {"head_dim": 32, "attention_bias": True, "intermediate_size": 128}),
    "cohere": ("cohere", {"use_qk_norm": True, "hidden_size": 128, "intermediate_size": 128}),
    "stablelm": ("stablelm", {"qk_layernorm": True, "intermediate_size": 128}),
    "starcoder2": ("starcoder2", {"hidden_size": 128, "intermediate_size": 128}),
    # Heads that differ by layer, and what every rank has whole.
    "gemma4": ("gemma4_text", {"intermediate_size": 128}),
    "gemma4, mixture": ("gemma4_text", MIXTURE | dict(hidden_size=64, intermediate_size=128, moe_intermediate_size=64)),
    "lfm2": ("lfm2", {"block_ff_dim": 192, "block_multiple_of": 64}),
}  # fmt: skip
CASES = [
    ("qwen3", 2, "int8"), ("qwen3", 4, "int4"), ("llama", 6, "int8"), ("ernie", 3, "int8"),
    ("youtu", 2, "int4"), ("youtu", 3, "int8"),
    ("qwen3.5", 2, "int4"), ("qwen3-next", 2, "int8"), ("lfm2", 2, "int4"), ("gemma4", 2, "int8"),
    ("gemma4, mixture", 2, "int4"),
    ("glm4", 2, "int8"), ("cohere", 2, "int8"), ("stablelm", 2, "int4"), ("starcoder2", 2, "int4"),
    ("gpt-oss", 2, "int4"), ("gpt-oss", 2, None),
]  # fmt: skip


def source_of(folder: Path, model: str = "qwen3") -> Path:
    family, options = MODELS[model]
    return tiny_model(folder / "source", family, dtype="bfloat16", **options)


def converted(source: Path, name: str, kind: str | None = "int8", **options: Any) -> Path:
    return converted_to(source, source.with_name(name), kind, group_size=32, **options)


def cut(source: Path, size: int, kind: str | None = "int8", name: str = "cut") -> Path:
    return converted(source, name, kind, tensor_parallel_size=size, is_cut=True)


# A rank's pieces are the same whatever they are packed for: without native kernels, one family of each way of cutting.
WITHOUT_KERNELS = [CASES[1], CASES[4], ("qwen3.5", 2, "int4"), ("gpt-oss", 2, "int4")]


@for_each("model, size, kind", CASES)
@for_each("backend_name", ["native", "invariant"])
def test_every_rank_holds_the_bits_that_it_would_take_from_the_whole(tmp_path, model, size, kind, backend_name):
    if backend_name == "invariant" and (model, size, kind) not in WITHOUT_KERNELS:
        return
    source = source_of(tmp_path, model)
    folders = converted(source, "whole", kind), cut(source, size, kind)
    for rank in sorted({0, 1, size - 1}):
        whole, own = (load_on(backend_name, folder, ranks=Parallel(rank, size)) for folder in folders)
        check_equal(own.decoder, whole.decoder)
        assert own.report.leftovers == []


def test_a_rank_stores_its_share_and_what_all_of_them_need(tmp_path):
    source = source_of(tmp_path, "llama")
    whole = load_file(converted(source, "whole") / "model.safetensors")
    ranks = [load_file(folder / "model.safetensors") for folder in sorted(cut(source, 2).glob("rank-*-of-2"))]
    layer = "model.layers.1."
    for name in ("self_attn.q_proj.weight", "mlp.up_proj.weight_scale", "mlp.gate_proj.bias"):
        assert torch.equal(torch.cat([rank[layer + name] for rank in ranks]), whole[layer + name]), name
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(torch.cat([rank[name] for rank in ranks]), whole[name]), name
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        assert torch.equal(torch.cat([rank[layer + name] for rank in ranks], 1), whole[layer + name]), name
    for name in ("input_layernorm.weight", "mlp.down_proj.weight_scale"):
        assert all(torch.equal(rank[layer + name], whole[layer + name]) for rank in ranks), name
    # The sum's bias is added by one rank.
    assert [layer + "mlp.down_proj.bias" in rank for rank in ranks] == [True, False]


def test_the_folders_of_the_ranks_lie_beside_what_they_share(tmp_path):
    source = source_of(tmp_path)
    table = load_file(source / "model.safetensors")["model.embed_tokens.weight"]
    save_file({"lm_head.weight": table}, source / "more.safetensors")  # which no layer of a tied model asks for
    target = cut(source, 2)
    assert "lm_head.weight" not in load_file(target / "rank-0-of-2" / "model.safetensors")
    shared = {path.name for path in source.iterdir()} - {"model.safetensors", "more.safetensors"}
    assert {path.name for path in target.iterdir()} == shared | {RECORD, "rank-0-of-2", "rank-1-of-2"}
    assert {path.name for path in (target / "rank-1-of-2").iterdir()} == {"model.safetensors", "pieces.json"}
    assert json.loads((target / "rank-1-of-2" / "pieces.json").read_text())[0] == [
        "model.embed_tokens.weight", [307, 64], [0, 153, 307]
    ]  # fmt: skip


def test_pieces_make_the_same_bytes_as_whole_tensors(tmp_path, monkeypatch):
    source = source_of(tmp_path)
    before = cut(source, 2, "int4"), converted(source, "whole", "int4")
    monkeypatch.setattr(convert, "_PIECE", 7 * 128 * 2)
    after = cut(source, 2, "int4", name="cut again"), converted(source, "whole again", "int4")
    for once, again in zip(before, after, strict=True):
        paths = list(once.rglob("model.safetensors"))
        assert paths and all((again / path.relative_to(once)).read_bytes() == path.read_bytes() for path in paths)


def test_a_large_model_or_rank_is_cut_into_files_that_its_own_index_names(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion_plan, "_LARGEST_FILE", 30_000)
    source = source_of(tmp_path)
    whole, target = converted(source, "whole"), cut(source, 2)
    for folder, ranks in ((whole, None), (target / "rank-1-of-2", Parallel(1, 2))):
        assert len(list(folder.glob("model-*.safetensors"))) > 2
        assert load_model(whole if ranks is None else target, ranks=ranks).report.leftovers == []


def test_ranks_that_the_folder_is_not_for_and_pieces_that_layers_do_not_want_are_refused_by_name(tmp_path):
    target = cut(source_of(tmp_path), 2)

    def check_refused(sentence: str, rank: int, size: int = 2) -> None:
        with pytest.raises(ConfigError, match=sentence):
            load_model(target, ranks=Parallel(rank, size))

    for size in (1, 4):
        sentence = rf"cut for 2 ranks, .* is {size}\. Use tensor_parallel_size=2, or .* again for {size}, or"
        check_refused(sentence, 0, size)
    for name in ("model.safetensors", "pieces.json"):
        shutil.copyfile(target / "rank-1-of-2" / name, target / "rank-0-of-2" / name)
    check_refused(r"holds \(0, 153, 307\) of \(307, 64\) of model.embed_tokens.weight, .* want \(0, 0, 153\)", 0)
    for broken in ("[", '[["name"]]', None):
        if broken is None:
            shutil.rmtree(target / "rank-1-of-2")
        else:
            (target / "rank-1-of-2" / "pieces.json").write_text(broken)
        check_refused(r"rank-1-of-2 should hold .* Copy the converted folder again", 1)


def test_a_source_that_lacks_a_tensor_is_refused_before_anything_is_written(tmp_path):
    source = source_of(tmp_path)
    content = (source / "model.safetensors").read_bytes().replace(b"layers.1.mlp.up_proj", b"layers.1.mlp.xx_proj")
    (source / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=r"holds no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        cut(source, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_experts_that_were_cut_by_their_width_are_refused_to_ranks_that_are_to_have_whole_ones(tmp_path):
    cut_experts, cut_mlps = (cut(tiny_model(tmp_path / name / "source", name), 2) for name in ("qwen3_moe", "qwen3"))
    with pytest.raises(ConfigError, match=r"a part of each expert, and enable_expert_parallel=True .* Leave it out"):
        load_model(cut_experts, ranks=Parallel(0, 2), expert_parallel=True)
    load_model(cut_mlps, ranks=Parallel(0, 2), expert_parallel=True)
