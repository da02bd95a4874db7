"""gpt-oss as it is published, with experts in MXFP4: transformers' answers, on one rank and on several."""

import json

import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import check_answers, drawn, logits_of
from builders.quantized_model import mxfp4_model, random_blocks
from builders.quantized_parts import floats

from penstock.kernels.stored.mxfp4 import Mxfp4Part
from penstock.kernels.torch.arrays import array_of

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
