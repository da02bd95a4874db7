"""A config that is accepted gives transformers' answers, whichever of its keys is changed.

For each family every key of transformers' class is given other values. Each is refused, or the logits agree. Keys of
other families' classes are given all at once, those that are accepted: transformers' class doesn't compute with them.
"""

import dataclasses
import json
from contextlib import suppress

import pytest
import torch
from builders.backends import load_on
from builders.compared_models import check_answers, drawn
from builders.tiny_configs import FAMILIES as TINY
from builders.tiny_configs import class_of
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config

# Where the default is None, or says nothing about what else there may be.
BY_NAME = {
    "sliding_window": [5], "head_dim": [8, 32], "layer_types": [
        ["sliding_attention", "full_attention"], ["full_attention"] * 3, ["conv", "full_attention", "conv"],
        ["linear_attention", "linear_attention", "full_attention"],
    ],
    "mlp_layer_types": [["dense", "sparse"], ["dense", "dense"]], "mlp_only_layers": [[0]], "clip_qkv": [0.5],
    "hidden_act": ["gelu", "relu", "swish"], "num_key_value_heads": [1, None], "q_lora_rank": [None, 24],
    "topk_method": ["group_limited_greedy", "noaux_tc"], "scoring_func": ["softmax", "sigmoid"],
    "per_layer_config": [{"0": {"sliding_window": 4}}], "is_causal": [False], "attention_chunk_size": [8],
    "partial_rotary_factor": [0.5], "dtype": ["bfloat16"],
    "rope_parameters": [{"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}],
}  # fmt: skip
# Without meaning for a config that describes one fixed model.
LEFT_OUT = {
    "architectures", "model_type", "transformers_version", "id2label", "label2id", "problem_type", "eos_token_id",
    "decoder",  # for transformers a config within the config
}  # fmt: skip


def others(key, value) -> list:
    """Plausible other values."""
    if key in BY_NAME:
        return [other for other in BY_NAME[key] if other != value]
    if isinstance(value, bool) or value is None:
        return [not value]
    if isinstance(value, int):
        return [2 * value if value > 0 else 1]
    return [1.5 * value if value else 0.5] if isinstance(value, float) else []


def agree(folder) -> bool | None:
    """None if it is refused, or if transformers can't compute it either."""
    from transformers import AutoModelForCausalLM

    try:
        model = load_on("fast", folder, dtype="float32")
    except ConfigError:
        return None
    try:
        reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        reference(torch.tensor([[5, 6, 7]]))
    except Exception:  # whatever its checks and its shapes say
        return None
    try:
        check_answers(model, reference, drawn(33), 3)
    except AssertionError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("family", TINY)
def test_a_changed_key_is_refused_or_gives_the_answers_of_transformers(family, tmp_path):
    kind = class_of(family)
    base = TINY[family]
    keys = {field.name: field.default for field in dataclasses.fields(kind)} | dict.fromkeys(kind.attribute_map)
    keys |= dict.fromkeys(BY_NAME) | {key: value for key, value in base.items() if key in keys}
    wrong = []
    for key, value in keys.items():
        for number, other in enumerate(others(key, value) if key not in LEFT_OUT else []):
            folder = tmp_path / f"{key}-{number}"
            try:
                tiny_model(folder, family, **{key: other})
            except Exception:  # no such checkpoint can be written
                continue
            if agree(folder) is False:
                wrong.append((key, other))
    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("family", TINY)
def test_accepted_keys_of_other_families_change_no_answer(family, tmp_path):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    own = {field.name for field in dataclasses.fields(class_of(family))} | set(class_of(family).attribute_map)
    own.add("head_dim")  # classes with latent attention set it themselves, to the width that rotates
    path = tiny_model(tmp_path, family) / "config.json"
    whole, expected = json.loads(path.read_text()), read_config(tmp_path)
    accepted: dict = {}
    for model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        for field in dataclasses.fields(CONFIG_MAPPING[model_type]):
            if field.name in own | LEFT_OUT or field.name in accepted or field.name.endswith(("config", "types")):
                continue
            for value in others(field.name, field.default):
                path.write_text(json.dumps(whole | {field.name: value}))
                with suppress(ConfigError):
                    if read_config(tmp_path) == expected:  # or it is read for this family too
                        accepted[field.name] = value
    path.write_text(json.dumps(whole | accepted))
    assert agree(tmp_path) is True, sorted(accepted)
