"""Quantized checkpoints of mixtures of experts and of layers that keep states or latents: every matrix is read as its
tool wrote it, and the model answers so; as does gpt-oss as it is published, with experts in MXFP4.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import check_answers, converted, drawn, logits_of
from builders.float8_forms import FLOAT8_FORMS, Float8Form
from builders.quantized_model import Form, mixed_model, mxfp4_model, quantization_config, random_blocks
from builders.quantized_parts import floats
from builders.tiny_model import tiny_model

from penstock.kernels.stored.mxfp4 import Mxfp4Part
from penstock.kernels.torch.arrays import array_of
from penstock.worker.ranks.parallel import Parallel
from penstock.worker.start.load import load_model

_HEADS = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": _HEADS | {"intermediate_size": 96},
    "qwen2_moe": _HEADS | dict(moe_intermediate_size=64, shared_expert_intermediate_size=96, intermediate_size=96),
    "qwen3_moe": _HEADS | dict(moe_intermediate_size=64, mlp_only_layers=[0], num_hidden_layers=3, num_experts=6),
    "ernie4_5_moe": _HEADS | dict(moe_intermediate_size=64, intermediate_size=96, moe_num_experts=6),
    "deepseek_v3": dict(
        hidden_size=64, moe_intermediate_size=32, intermediate_size=96, v_head_dim=32, n_routed_experts=8
    ),
}
FLOAT8 = {form.name: form for form in FLOAT8_FORMS}
FORMS: list[Form | Float8Form] = [
    Form("gptq"), Form("gptq", is_symmetric=False, is_ordered=True), Form("awq", is_symmetric=False),
    Form("pack-quantized"), Form("int-quantized", bits=8, group_size=0), FLOAT8["deepseek"],
    FLOAT8["compressed-channel"], FLOAT8["static-inverse"],
]  # fmt: skip
TOKENS = list(range(5, 45))

# Of layers that keep states, and latents; of widths that groups and blocks of scales divide.
OTHERS: dict[str, dict[str, Any]] = {
    "qwen3_next": dict(
        hidden_size=64, num_attention_heads=4, linear_key_head_dim=32, linear_num_value_heads=4,
        linear_value_head_dim=32, moe_intermediate_size=32, shared_expert_intermediate_size=64,
    ),
    "youtu": dict(hidden_size=64, q_lora_rank=64, kv_lora_rank=64, v_head_dim=32, intermediate_size=128),
    "qwen3_5_text": dict(hidden_size=64, intermediate_size=128, linear_key_head_dim=32, linear_value_head_dim=32),
    "lfm2": dict(block_ff_dim=96, block_multiple_of=64),
}  # fmt: skip
# How a form is read and how a family names its matrices are apart: each form has one mixture, and each family a form.
# The families whose rows are put into another order, or cut by head and transposed, have all forms.
PAIRS = [(list(FAMILIES)[2 * number % len(FAMILIES)], form) for number, form in enumerate(FORMS)]
PAIRS += product(("qwen3_next", "youtu"), FORMS)
PAIRS += [
    ("qwen3_5_text", FORMS[1]),
    ("qwen3_5_text", FLOAT8["deepseek"]),
    ("lfm2", FORMS[2]),
    ("lfm2", FLOAT8["deepseek"]),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Path]]:
    """The checkpoint of a family in a form, and its twin in floats; made once, so tests leave them as they are."""
    return cache(lambda family, form: made(tmp_path_factory.mktemp("mixture"), family, form))


def made(folder: Path, family: str, form: Form | Float8Form) -> tuple[Path, Path]:
    config = form.config if isinstance(form, Float8Form) else quantization_config(form)
    return mixed_model(folder, lambda module: form, config, family, **(FAMILIES | OTHERS)[family])


@for_each("family, form", PAIRS)
def test_it_gives_the_logits_of_its_twin_but_for_what_kernels_round(written, family, form):
    model, twin = (load_on("fast", folder) for folder in written(family, form))
    assert model.report.leftovers == twin.report.leftovers
    assert torch.allclose(logits_of(model, TOKENS), logits_of(twin, TOKENS), atol=1e-4)
    similar = torch.cosine_similarity(*(logits_of(load_model(folder), TOKENS) for folder in written(family, form)))
    # Rounding may change which expert a token goes to, which is another answer for that one.
    assert similar.median() > 0.99 and (similar > 0.9).float().mean() > 0.8


INT8_ROWS = Form("int-quantized", bits=8, group_size=0)


def dynamic(module: str) -> Form | None:
    """As GPTQModel's rules below."""
    if re.search(r"layers\.1\..*\.down_proj", module):
        return Form("gptq", bits=8, group_size=32)
    return None if re.search(r"self_attn\.o_proj|experts\.5\.", module) else Form("gptq", group_size=16)


DYNAMIC = quantization_config(Form("gptq", group_size=16)) | {
    "dynamic": {
        r"-:.*\.mlp\.gate.*": {},
        r"-:.*self_attn\.o_proj.*": {},
        r"-:.*experts\.5\..*": {},
        r".*layers\.1\..*\.down_proj.*": {"bits": 8, "group_size": 32},
        r"+:.*\.mlp\..*": {"bits": 4},  # the first pattern that fits counts
    }
}


def awq_experts(module: str) -> Form | None:
    return Form("awq", is_symmetric=False) if ".experts." in module else None


AWQ_EXPERTS = quantization_config(Form("awq")) | {
    "modules_to_not_convert": ["self_attn", "mlp.gate", "lm_head", "model.layers.0"]
}


def groups(module: str) -> Form | Float8Form | None:
    """As several `config_groups` of compressed-tensors."""
    if re.search(r".*experts.*down_proj$", module):
        return INT8_ROWS
    return Form("pack-quantized") if ".experts." in module else FLOAT8["compressed-channel"]


def _group(form: Form | Float8Form, *targets: str) -> dict[str, Any]:
    config = form.config if isinstance(form, Float8Form) else quantization_config(form)
    return config["config_groups"]["group_0"] | {"targets": list(targets), "format": config["format"]}


GROUPS = {
    "quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {
        "group_0": _group(Form("pack-quantized"), "re:.*experts.*(gate|up)_proj$"),
        "group_1": _group(INT8_ROWS, "re:.*experts.*down_proj$"),
        "group_2": _group(FLOAT8["compressed-channel"], "re:.*self_attn.*", "Linear"),
    },
    "quantization_status": "compressed",
}  # fmt: skip

MIXED = {"dynamic": (dynamic, DYNAMIC), "awq experts": (awq_experts, AWQ_EXPERTS), "groups": (groups, GROUPS)}


@for_each("name, family", [("dynamic", "qwen3_moe"), ("awq experts", "qwen2_moe"), ("groups", "qwen3_moe")])
def test_projections_may_have_bits_and_layouts_of_their_own(tmp_path, name, family):
    """Also experts of one layer, some of which a tool may have left as they were."""
    form_of, config = MIXED[name]
    folders = mixed_model(tmp_path, form_of, config, family, **FAMILIES[family])
    model, twin = (load_on("fast", folder) for folder in folders)
    assert model.report.leftovers == []
    assert torch.allclose(logits_of(model, TOKENS), logits_of(twin, TOKENS), atol=1e-4)
    similar = torch.cosine_similarity(*(logits_of(load_model(folder)) for folder in folders))
    assert similar.median() > 0.99


@for_each("form", [FORMS[0], FORMS[3]], ids=str)
def test_ranks_divide_inner_layers_where_a_group_ends(tmp_path, form):
    """Of experts, and in dense layers, whose last group here is shorter."""
    given = FAMILIES["qwen3_moe"] | {"moe_intermediate_size": 96, "intermediate_size": 112}
    folder, _ = mixed_model(tmp_path, lambda module: form, quantization_config(form), "qwen3_moe", **given)
    ranks = [load_on("fast", folder, ranks=Parallel(rank, 2)) for rank in range(2)]
    assert [model.decoder.layers[1].mlp.experts.width for model in ranks] == [32, 64]
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(0))
    whole = load_on("fast", folder).decoder.layers
    dense = [model.decoder.layers[0].mlp.of_rank(x) for model in ranks]
    assert torch.allclose(dense[0] + dense[1], whole[0].mlp(x), atol=1e-5)
    sparse = [
        layer.mlp.ops.experts(x, layer.mlp.router(x), layer.mlp.experts)
        for layer in (model.decoder.layers[1] for model in ranks)
    ]
    assert torch.allclose(sparse[0] + sparse[1], whole[1].mlp(x), atol=1e-5)


def test_experts_that_were_cut_as_floats_stay_cut_so_beside_groups_of_others(tmp_path):
    sizes = FAMILIES["qwen3_moe"] | {"moe_intermediate_size": 160, "intermediate_size": 128}
    kinds = json.dumps({"*": "int4", "*.experts.*.down_proj": None})
    source = tiny_model(tmp_path / "source", "qwen3_moe", **sizes)
    target = converted(source, tmp_path / "target", kinds, group_size=32, tensor_parallel_size=2, is_cut=True)
    ranks = [load_model(target, ranks=Parallel(rank, 2)) for rank in range(2)]
    assert [model.decoder.layers[1].mlp.experts.width for model in ranks] == [80, 80]


# --- MXFP4, as gpt-oss is published -----------------------------------------------------------------------------------


SHAPES = {
    "6 experts": {},
    "32 experts, heads of 64, 4 layers": dict(
        num_local_experts=32, num_experts_per_tok=4, num_attention_heads=3, num_key_value_heads=1, head_dim=64,
        hidden_size=160, intermediate_size=32, num_hidden_layers=4, swiglu_limit=7.0,
    ),
    "width of 3 blocks, unbiased": dict(intermediate_size=96, attention_bias=False, num_local_experts=4),
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40, "beta_fast": 32.0, "beta_slow": 1.0,
    "truncate": False,
}  # fmt: skip


def test_blocks_mean_what_transformers_says_they_mean_whatever_their_codes_and_exponents():
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    codes, exponents = random_blocks((1, 256, 4))
    exponents[0] = torch.arange(256)[:, None]
    expected = convert_moe_packed_tensors(codes, exponents, dtype=torch.float32)[0].T
    found = floats(Mxfp4Part(array_of(codes[0]), array_of(exponents[0])))
    assert torch.equal(found[:255], expected[:255]) and found[255].isnan().all(), "255 is no number"


QUICK = [*((name, "fast") for name in SHAPES), ("6 experts", "invariant"), ("6 experts", "native")]


@for_each("name, backend", QUICK)
def test_greedy_answers_equal_those_of_transformers(name, backend, tmp_path):
    """Native kernels' too, if they are to widen the blocks."""
    from transformers import AutoModelForCausalLM

    folder = mxfp4_model(tmp_path, rope=YARN, **SHAPES[name])
    model = load_on(backend, folder, dtype="float32", quantization=json.dumps({"*.experts.*": None}))
    assert model.report.leftovers == []
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    check_answers(model, reference, drawn(1, 33, 70), 12, budget=48)


@for_each("name", SHAPES)
def test_native_products_of_blocks_differ_from_transformers_by_the_rounding_of_activations(name, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = mxfp4_model(tmp_path, rope=YARN, **SHAPES[name])
    model, tokens = load_on("native", folder, dtype="float32"), [(11 * place) % 290 + 5 for place in range(70)]
    found = logits_of(model, tokens)
    with torch.inference_mode():
        reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        expected = reference(torch.tensor([tokens])).logits[0]
    similar = torch.cosine_similarity(found, expected)
    # Rounding may change which expert a token goes to, which is another answer for that one.
    assert similar.median() > 0.99 and (similar > 0.9).float().mean() > 0.8


@for_each("given", [{}, {"quantization": "int8"}])
def test_native_kernels_multiply_the_blocks_as_they_are(given, tmp_path):
    model = load_on("native", mxfp4_model(tmp_path, rope=YARN), **given)
    weights = model.decoder.layers[0].mlp.experts
    assert (weights.gate_up.kind, weights.down.kind) == ("mxfp4", "mxfp4")
    assert logits_of(model).isfinite().all()
