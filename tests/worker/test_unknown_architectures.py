"""A model of an unknown architecture is refused with what it is and which known one is nearest."""

import inspect
import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tiny_configs import change_config
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.description.nearest_family import PARENTS


@for_each("config, words", [
    ({"architectures": ["LlamaForCausallM"]}, ["Did you mean LlamaForCausalLM?"]),
    ({"architectures": ["LLaMAForCausalLM"]}, ["Did you mean LlamaForCausalLM?"]),
    ({"architectures": ["Qwen4ForCausalLM"], "model_type": "qwen4"}, ["The nearest is Qwen"]),
    (
        {"architectures": ["Qwen3MambaForCausalLM"], "mamba_d_conv": 4, "linear_conv_kernel_dim": 4},
        ["The nearest is Qwen3", "mamba_d_conv", "use a model of that family"],
    ),
    ({"architectures": ["LlamaForSequenceClassification"]}, ["a classifier", "such as those of LlamaForCausalLM"]),
    ({"architectures": ["LlamaModel"]}, ["a model without a head"]),
    ({"architectures": ["BertForMaskedLM"]}, ["a model that doesn't continue texts"]),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, ["heads that draft for a model", '"method": "eagle3"']),
    ({"architectures": ["Eagle3DraftModel"]}, ["heads that draft for a model"]),
    (
        {"architectures": ["Qwen2VisionForConditionalGeneration"], "vision_config": {"depth": 32}},
        ["a model that sees pictures: use one that sees", "Qwen2ForCausalLM.", "that see pictures are", "Qwen3VL"],
    ),
    ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, ["a model with an encoder"]),
    ({"architectures": ["Qwen2_5_VLForConditionalGenaration"]}, ["Did you mean Qwen2_5_VLForConditional"]),
    (
        {"architectures": ["LlavaForConditionalGeneration"], "text_config": {"model_type": "qwen2"}},
        ["takes more than text: use one that sees", "for text alone use one of Qwen2ForCausalLM"],
    ),
    (
        {"architectures": ["AForConditionalGeneration"], "audio_config": {"a": 1}},
        ["hears sound: for text alone use one of Llama"],
    ),
    # By what its class is made of, not by how it is spelt; and text isn't told of what sees.
    ({"architectures": ["CwmForCausalLM"], "model_type": "cwm"}, ["The nearest is LlamaForCausalLM"]),
    ({"architectures": ["Qwen3SomethingForCausalLM"]}, ["The nearest is Qwen3ForCausalLM"]),
    ({"architectures": ["MiMoForCausalLM"], "model_type": "mimo"}, ["The nearest is LlamaForCausalLM"]),
    ({"architectures": ["YiForCausalLM"], "model_type": "Yi"}, ["if it is the same model, write that name"]),
    ({"architectures": None, "model_type": "qwen3"}, ["By its model_type 'qwen3'", "Qwen3ForCausalLM"]),
    ({"architectures": []}, ["names the architecture none"]),
    # Nobody is told to write another name over that of a model that computes something else.
    *(
        ({"architectures": [f"{name}ForCausalLM"], "model_type": name.lower()}, ["use a model of that family"])
        for name in ("Olmo", "Exaone", "Phi3V", "Zamba2", "KimiLinear")
    ),
    ({"architectures": [7, None, "x" * 3000]}, ["names the architecture 7"]),
])  # fmt: skip
def test_an_unknown_architecture_is_refused_with_what_it_is_and_the_nearest(tmp_path, config, words):
    folder = change_config(tiny_model(tmp_path, "llama"), **({"model_type": None} | config))
    with pytest.raises(ConfigError) as refusal:
        read_config(folder)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.long
def test_no_model_that_transformers_has_a_class_for_is_to_get_the_name_of_another(tmp_path):
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    advised = []
    for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        with suppress(Exception):  # of classes that have no defaults
            config = AutoConfig.for_model(kind).to_dict() | {"architectures": [name]}
            (tmp_path / "config.json").write_text(json.dumps(config, default=str))
            try:
                read_config(tmp_path)
            except ConfigError as error:
                advised += [name] * ("write that name" in str(error))
    assert advised == []


def test_the_nearest_family_is_one_whose_classes_its_own_are_made_of():
    """Or the other way round. Those that transformers derives in `modular_*.py`; others have no such file."""
    import transformers

    folder = Path(inspect.getfile(transformers)).parent / "models"
    text = "\n".join(path.read_text() for path in folder.glob("*/modular_*.py"))
    bases = {name: re.findall(r"\w+", names) for name, names in re.findall(r"^class (\w+)\(([^)]*)\):", text, re.M)}

    def above(name):
        return {base for each in bases.get(name, []) for base in (each, *above(each))}

    def is_made_of(name, other):
        parts = [each for each in bases if each.startswith(name)]
        return not parts or any(each.startswith(other) for part in parts for each in above(part))

    of = {name: parent.removesuffix("ForCausalLM") for name, parent in PARENTS.items()}
    assert [name for name in of if not is_made_of(name, of[name]) and not is_made_of(of[name], name)] == []
