"""Models that keep latents: their memory, checkpoints that are quantized, and what is refused."""

import pytest
from builders.backends import BACKENDS, load_on
from builders.cases import for_each
from builders.compared_models import logits_of
from builders.float8_forms import FLOAT8_FORMS
from builders.quantized_model import Form, float8_model, quantized_model
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError

SIZES = {"hidden_size": 64, "q_lora_rank": 64, "kv_lora_rank": 64, "v_head_dim": 32, "intermediate_size": 128}
FORMS = [Form("gptq"), Form("gptq", is_symmetric=False, is_ordered=True), Form("awq", is_symmetric=False),
         Form("pack-quantized", is_symmetric=False), Form("int-quantized", bits=8, group_size=0)]  # fmt: skip


def difference(folders, backend):
    found, expected = (logits_of(load_on(backend, folder, dtype="float32"), range(5, 45)) for folder in folders)
    return ((found - expected).norm() / expected.norm()).item()


# Native products round their rows to 8 bits.
@for_each("backend, limit", [("native", 0.05), ("invariant", 1e-4)])
@for_each("form", FORMS)
def test_a_quantized_checkpoint_answers_as_its_twin_in_floats(form, backend, limit, tmp_path):
    assert difference(quantized_model(tmp_path, form, "youtu", **SIZES), backend) < limit


@for_each("form", [form for form in FLOAT8_FORMS if min(form.block) > 1])
def test_blocks_of_8_bit_floats_are_cut_by_head_and_transposed(form, tmp_path):
    assert difference(float8_model(tmp_path, form, "youtu", **SIZES), "invariant") < 1e-4


@for_each("backend", BACKENDS)
def test_a_token_takes_one_latent_and_one_key_in_each_layer(backend, tmp_path):
    model = load_on(backend, tiny_model(tmp_path, "youtu"))
    [group] = model.groups(64)
    assert model.block_bytes(group, 16, "bf16") == 16 * 2 * (48 + 16) * 2
    memory = model.memory([group], [10], 16, "bf16")
    assert sum(tensor.nbytes for tensor in memory.tensors) == 10 * model.block_bytes(group, 16, "bf16")
    with pytest.raises(ConfigError, match="keeps latents in place of keys and values .* Use fp32, fp16, bf16"):
        model.kv_kind("int8")
