"""Published configs of models that see are read, and those that would compute something else are refused by name."""

import json
from typing import Any

import pytest
from builders.published_sight import ERNIE_VL_28B, GEMMA_3_4B, SMOLVLM_256M

from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import ModelConfig, read_config


def read(folder, config: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(config))
    return read_config(folder)


@pytest.mark.parametrize(
    ("config", "rows_of_a_side", "layers"),
    [(SMOLVLM_256M, 8, 12), (GEMMA_3_4B, 16, 27)],
    ids=["SmolVLM-256M", "Gemma 3 4B"],
)
def test_squares_have_as_many_rows_as_published(tmp_path, config, rows_of_a_side, layers):
    vision = read(tmp_path, config).vision
    assert (vision.table_side // vision.merge, vision.num_layers) == (rows_of_a_side, layers)


@pytest.mark.parametrize("of_paddle", [{}, {"fuse_rope": True, "weight_share_add_bias": True, "dtype": "bfloat16"}])
def test_ernies_two_kinds_of_experts_are_told_apart(tmp_path, of_paddle):
    config = read(tmp_path, ERNIE_VL_28B | of_paddle)
    assert (config.experts.width, config.experts.of_media.width, config.experts.num_experts) == (1536, 512, 64)
    assert config.experts.is_sparse == (False, *[True] * 27)
    assert config.ropes.ropes[0].axes == (1, 2) * 22 + (0,) * 20
    assert {100_295, 101_304, 101_307} <= set(config.media_tokens)


@pytest.mark.parametrize(
    ("config", "changed", "sentence"),
    [
        (ERNIE_VL_28B, {"moe_num_experts": [64, 32]}, "only as many of text as of media"),
        (ERNIE_VL_28B, {"temporal_conv_size": 4}, "temporal_conv_size is 4, and only 2"),
        (ERNIE_VL_28B, {"vision_config": {"temporal_merge_size": 3}}, "temporal_merge_size=3"),
        (GEMMA_3_4B, {"mm_tokens_per_image": 100}, "64 patches along a side can't become the 10"),
        (SMOLVLM_256M, {"vision_config": {"hidden_act": "mish"}}, "hidden_act='mish' is not supported"),
    ],
)
def test_another_model_is_refused_by_name(tmp_path, config, changed, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read(tmp_path, {**config, **changed})
