"""Published configs of models that see are read, and those that would compute something else are refused by name; of
those whose encoder is not computed, the decoder is read and answers texts as transformers does.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.compared_models import PROMPTS, check_answers
from builders.published_configs import PICTURES
from builders.tiny_configs import COMMON, FAMILIES

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import ModelConfig, read_config

SMOLVLM_256M, GEMMA_3_4B, ERNIE_VL_28B, QWEN2_VL, QWEN2_5_VL = PICTURES.values()


def read(folder: Path, config: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(config))
    return read_config(folder)


def test_rows_of_squares_patches_and_the_axes_of_positions_are_as_published(tmp_path):
    for config, rows_of_a_side, layers in ((SMOLVLM_256M, 8, 12), (GEMMA_3_4B, 16, 27)):
        vision = read(tmp_path, config).vision
        assert (vision.table_side // vision.merge, vision.num_layers) == (rows_of_a_side, layers)
    for config in (QWEN2_VL, QWEN2_5_VL):
        found = read(tmp_path, config)
        assert found.vision.patch_size == 14 and found.vision.head_dim == 80
        assert found.ropes.ropes[0].axes == (0,) * 16 + (1,) * 24 + (2,) * 24
        assert read_config(tmp_path, sees=False).vision is None


@for_each("of_paddle", [{}, {"fuse_rope": True, "weight_share_add_bias": True, "dtype": "bfloat16"}])
def test_ernies_two_kinds_of_experts_are_told_apart(tmp_path, of_paddle):
    config = read(tmp_path, ERNIE_VL_28B | of_paddle)
    assert (config.experts.width, config.experts.of_media.width, config.experts.num_experts) == (1536, 512, 64)
    assert config.experts.is_sparse == (False, *[True] * 27)
    assert config.ropes.ropes[0].axes == (1, 2) * 22 + (0,) * 20
    assert {100_295, 101_304, 101_307} <= set(config.media_tokens)


@for_each("config, changed, sentence", [
    (ERNIE_VL_28B, {"moe_num_experts": [64, 32]}, "only as many of text as of media"),
    (ERNIE_VL_28B, {"temporal_conv_size": 4}, "temporal_conv_size is 4, and only 2"),
    (ERNIE_VL_28B, {"vision_config": {"temporal_merge_size": 3}}, "temporal_merge_size=3"),
    (GEMMA_3_4B, {"mm_tokens_per_image": 100}, "64 patches along a side can't become the 10"),
    (QWEN2_VL, {"vision_config": QWEN2_VL["vision_config"] | {"spatial_patch_size": 16}}, "spatial_patch_size"),
    (QWEN2_5_VL, {"vision_config": QWEN2_5_VL["vision_config"] | {"in_chans": 1}}, "in_channels"),
    (SMOLVLM_256M, {"vision_config": {"hidden_act": "mish"}}, "hidden_act='mish' is not supported"),
])  # fmt: skip
def test_another_model_is_refused_by_name(tmp_path, config, changed, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, {**config, **changed})


# --- texts without an encoder ---------------------------------------------------------------------------------------

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


def written(folder: Path, decoder: str) -> Any:
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


@for_each("decoder", DECODERS)
def test_mistral_3_answers_texts_as_transformers_does_and_another_decoder_is_refused(tmp_path, decoder):
    reference = written(tmp_path, decoder)
    model = load_on("native", tmp_path, dtype="float32")
    assert all(name.startswith("visual.") for name in model.report.leftovers)
    check_answers(model, reference, PROMPTS, 12, budget=32)
    config = json.loads((tmp_path / "config.json").read_text())
    config["text_config"]["model_type"] = "mixtral"
    with pytest.raises(ConfigError, match="text_config has model_type 'mixtral', and only mistral, ministral3"):
        read(tmp_path, config)
