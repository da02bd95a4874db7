"""Converting experts that lie in one tensor, and 8-bit floats: they become integers, or stay, or the reason is said."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import assert_same_files, converted, logits_of
from builders.float8_forms import FLOAT8_FORMS
from builders.native_variants import needs_variant
from builders.quantized_model import Form, float8_model, mxfp4_model, quantized_model
from builders.tiny_model import tiny_model
from safetensors.torch import load_file

from penstock.protocol.errors import ConfigError
from penstock.worker.description.products import HEAD
from penstock.worker.start.load import load_model

from .test_experts import fused
from .test_hybrid_models import as_published
from .test_quantized_mixtures import FAMILIES as MIXTURES
from .test_quantized_mixtures import made as mixture

STACK = "model.layers.0.mlp.experts.gate_up_proj"
FORMS = [form for form in FLOAT8_FORMS if form.name in ("deepseek", "modelopt-own-file")]
DEEPSEEK = FORMS[0]
SHAPE = {"hidden_size": 64, "intermediate_size": 128}


def latents(folder: Path) -> Path:
    sizes = dict(hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_attention_heads=4)
    sizes |= dict(kv_lora_rank=64, q_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32)
    more = dict(num_key_value_heads=4, num_nextn_predict_layers=0, dtype="bfloat16")
    return tiny_model(folder, "deepseek_v3", **sizes, **more)


def hybrid_that_sees(folder: Path) -> Path:
    folder.mkdir()
    return as_published("Qwen3.5-35B-A3B", folder)[0]


EXPERTS_IN_FLOATS = '{"*": "int8", "*.experts.*": null}'
MODELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "latents, int8": (latents, "int8"),
    "latents, int4": (latents, "int4"),
    "a hybrid that sees": (hybrid_that_sees, "int8"),
    "fused experts": (lambda folder: fused(tiny_model(folder, "qwen3_moe")), "int8"),
    "stacked experts": (partial(tiny_model, family="gpt_oss", dtype="bfloat16"), "int8"),
    **{
        f"{family} in 8-bit floats": (lambda folder, family=family: mixture(folder, family, DEEPSEEK)[0], "int8")
        for family in MIXTURES
        if family != "deepseek_v3"
    },
    "mixtral, whose experts stay floats": (lambda folder: mixture(folder, "mixtral", DEEPSEEK)[0], EXPERTS_IN_FLOATS),
}


@needs_variant
@for_each("name", MODELS)
def test_a_converted_model_answers_as_where_it_is_quantized_while_loading(tmp_path, name):
    write, kind = MODELS[name]
    source = write(tmp_path / "source")
    target = converted(source, tmp_path / "target", kind)
    found = load_model(target, dtype="float32")
    assert torch.equal(logits_of(found), logits_of(load_model(source, dtype="float32", quantization=kind)))
    assert [each for each in found.report.leftovers if not each.startswith("mtp.")] == []
    if "8-bit floats" in name:
        ignored = json.loads((target / "config.json").read_text())["quantization_config"]["ignore"]
        assert any(module.endswith((".mlp.gate", "block_sparse_moe.gate")) for module in ignored)


# --- gpt-oss, whose experts lie in one tensor -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("gpt-oss") / "source", "gpt_oss", dtype="bfloat16")


@for_each("kind, least, largest", [("int8", 0.99, 0.65), ("int4", 0.8, 0.45)])
def test_they_take_the_room_of_their_integers_and_are_near_the_original_without_native_kernels(
    source, tmp_path, kind, least, largest
):
    target = converted(source, tmp_path / "made", kind, group_size=32)
    before, after = ((folder / "model.safetensors").stat().st_size for folder in (source, target))
    assert after < largest * before
    made, original = (load_on("invariant", folder) for folder in (target, source))
    assert made.report.leftovers == []
    assert torch.cosine_similarity(logits_of(made), logits_of(original)).median() > least


def test_each_expert_has_its_own_rows_of_gate_and_up_and_its_bias_stays(source, tmp_path):
    target = converted(source, tmp_path / "made", "int8")
    before, after = (load_file(folder / "model.safetensors") for folder in (source, target))
    for expert in range(6):
        for first, part in enumerate(("gate", "up")):
            name = f"model.layers.0.mlp.experts.{expert}.{part}_proj"
            found = after[f"{name}.weight"] * after[f"{name}.weight_scale"]
            expected = before[STACK][expert, :, first::2].T.float()
            assert (found - expected).abs().max() < 0.01 * expected.abs().max()
    assert torch.equal(after[f"{STACK}_bias"], before[f"{STACK}_bias"])
    assert json.loads((target / "config.json").read_text())["quantization_config"]["format"] == "int-quantized"


@needs_variant
@for_each("quantization", [None, '{"*": "int8", "*.experts.*": null}'])
def test_experts_that_get_no_kind_stay_together(source, tmp_path, quantization):
    target = converted(source, tmp_path / "made", quantization)
    names = load_file(target / "model.safetensors")
    assert STACK in names and not any(".experts.0." in name for name in names)
    found, expected = load_model(target), load_model(source, quantization=quantization)
    assert torch.equal(logits_of(found), logits_of(expected))


@needs_variant
def test_mxfp4_is_copied_and_neither_changed_nor_cut_for_a_reason_that_is_said(tmp_path):
    source = mxfp4_model(tmp_path / "source")
    for options in ({"quantization": "int8"}, {"quantization": None, "is_cut": True}):
        with pytest.raises(ConfigError, match="experts in MXFP4, which no conversion changes or cuts"):
            converted(source, tmp_path / "made", tensor_parallel_size=2, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    assert_same_files((source, converted(source, tmp_path / "copy")))
    assert torch.equal(logits_of(load_model(tmp_path / "copy")), logits_of(load_model(source)))


# --- 8-bit floats -----------------------------------------------------------------------------------------------------

KINDS = ["int8", "int4", '{"*.mlp.*": "int4"}', '{"*": null}', '{"*": "int8", "*.down_proj": null, "lm_head": null}']


@needs_variant
@for_each("form, kind", [*((FORMS[0], kind) for kind in KINDS), *((FORMS[1], kind) for kind in KINDS[:1] + KINDS[3:4])])
def test_8_bit_floats_answer_as_their_source_does_with_the_same_quantization(tmp_path, form, kind):
    source, _ = float8_model(tmp_path, form, **SHAPE)
    target = converted(source, tmp_path / "made", kind)
    written = load_model(target)
    assert written.report.leftovers == []
    assert torch.equal(logits_of(written), logits_of(load_model(source, quantization=kind)))
    dtypes = {tensor.dtype for tensor in load_file(target / "model.safetensors").values()}
    assert not dtypes & {torch.float8_e4m3fn, torch.float8_e5m2}
    config = json.loads((target / "config.json").read_text())
    assert config.get("quantization_config", {}).get("quant_method") in (None, "compressed-tensors")


@for_each("form", [*FORMS, Form("gptq"), Form("pack-quantized")], ids=str)
def test_a_copy_of_8_bit_floats_or_of_integers_holds_the_same_numbers(tmp_path, form):
    write = quantized_model if isinstance(form, Form) else float8_model
    source, _ = write(tmp_path, form, **SHAPE)
    target = converted(source, tmp_path / "copy")
    assert_same_files((source, target))
    assert torch.equal(logits_of(load_model(source)), logits_of(load_model(target)))


@needs_variant
def test_8_bit_floats_are_cut_for_ranks_as_integers_and_not_as_they_are(tmp_path):
    source, _ = float8_model(tmp_path, DEEPSEEK, **SHAPE)
    target = converted(source, tmp_path / "cut", "int8", tensor_parallel_size=2, is_cut=True)
    for rank in range(2):
        names = load_file(target / f"rank-{rank}-of-2" / "model.safetensors")
        assert names["model.layers.0.mlp.down_proj.weight"].shape == (64, 64)
        assert f"{HEAD}.weight_scale_inv" not in names
    with pytest.raises(ConfigError, match="8-bit floats, which are not cut for ranks. Convert it to int8 or int4"):
        converted(source, tmp_path / "refused", tensor_parallel_size=2, is_cut=True)
