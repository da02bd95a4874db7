"""A model that sees pictures answers texts as transformers does: its decoder is read, and what pictures need is not."""

import json
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.hand_driven import HandDriven
from builders.tiny_configs import COMMON, FAMILIES

from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import read_config

VISION = dict(
    model_type="pixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, head_dim=16,
    patch_size=4, image_size=16,
)  # fmt: skip
YARN = {
    "rope_type": "yarn", "type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 20,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
# By the decoder's model_type, what Mistral 3's configs say of it.
DECODERS: dict[str, dict[str, Any]] = {
    "mistral": {"tie_word_embeddings": False},
    "ministral3": {"tie_word_embeddings": True, "rope_parameters": YARN},
}
PROMPTS = [[7, 8, 9], list(range(20, 60)), [11] * 17]


def written(folder, decoder: str):
    from transformers import AutoConfig, Mistral3Config, Mistral3ForConditionalGeneration

    text = {**COMMON, **FAMILIES[decoder], **DECODERS[decoder], "pad_token_id": 0, "initializer_range": 0.2}
    config = Mistral3Config(
        text_config=AutoConfig.for_model(**text), vision_config=AutoConfig.for_model(**VISION), image_token_index=3,
        tie_word_embeddings=text["tie_word_embeddings"],
    )  # fmt: skip
    torch.manual_seed(1)
    model = Mistral3ForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    # As published: the class has the head tied, whatever the decoder's own says, unless there is one that differs.
    said = json.loads((folder / "config.json").read_text())
    said.pop("tie_word_embeddings", None)
    said["text_config"]["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(said))
    return model


@pytest.mark.parametrize("decoder", DECODERS)
def test_mistral_3_answers_texts_as_transformers_does(tmp_path, decoder):
    reference = written(tmp_path, decoder)
    model = load_on("native", tmp_path, dtype="float32")
    assert all(name.startswith("visual.") for name in model.report.leftovers)
    driven = HandDriven(model)
    rows = [driven.add(prompt) for prompt in PROMPTS]
    driven.greedy(rows, 24, budget=32)
    for row, prompt in zip(rows, PROMPTS, strict=True):
        whole = driven.histories[row]
        with torch.inference_mode():
            logits = reference(torch.tensor([whole])).logits[0]
        assert logits.argmax(-1)[len(prompt) - 1 : -1].tolist() == whole[len(prompt) :]


def test_a_decoder_that_is_not_known_is_refused_by_its_name(tmp_path):
    written(tmp_path, "mistral")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["model_type"] = "mixtral"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="text_config has model_type 'mixtral', and only mistral, ministral3"):
        read_config(tmp_path)
