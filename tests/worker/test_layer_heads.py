"""Heads that differ by layer, and layers that read the keys and values of others: what a config may say of them."""

import json

import pytest
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.models.config import read_config
from penstock.worker.models.groups import groups_of


def test_layers_that_read_others_keep_nothing_and_the_rest_are_grouped_by_their_heads(tmp_path):
    config = read_config(tiny_model(tmp_path, "gemma4_text"))
    assert [heads.source for heads in config.heads] == [None] * 4 + [3, 3, 2]
    full, window = groups_of(config, config.max_position)
    assert (full.layers, full.num_kv_heads, full.head_dim) == ((2,), 1, 48)
    assert (window.layers, window.num_kv_heads, window.head_dim) == ((0, 1, 3), 1, 16)


def test_heads_said_by_number_are_those_said_by_kind(tmp_path):
    by_kind = {"attention_k_eq_v": True, "num_key_value_heads": 4, "num_global_key_value_heads": 2}
    folder = tiny_model(tmp_path, "gemma4_text", **by_kind)
    expected = read_config(folder).heads
    said = json.loads((folder / "config.json").read_text())
    said["per_layer_config"] = {
        number: {"head_dim": said.pop("global_head_dim", 48), "num_key_value_heads": 2} for number in ("2", "6")
    }
    (folder / "config.json").write_text(json.dumps(said))
    assert read_config(folder).heads == expected


@pytest.mark.parametrize(
    "key, value, reason",
    [
        ("num_kv_shared_layers", 7, "must be a whole number below that of layers"),
        ("num_kv_shared_layers", 5, "none of the first 2 is of its kind"),
        ("per_layer_config", {"9": {}}, "the layers are 0 to 6"),
        ("per_layer_config", {"2": {"sliding_window": 3}}, "can't differ by layer"),
        ("per_layer_config", {"0": {"num_key_value_heads": 3}}, "4 attention heads can't share 3 key-value heads"),
        ("vocab_size_per_layer_input", 300, "300 of 307 tokens"),
        ("use_bidirectional_attention", "all", "something else than 'vision'"),
        ("enable_moe_block", True, "num_experts must be a positive whole number"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(tmp_path, key, value, reason):
    folder = tiny_model(tmp_path, "gemma4_text")
    said = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match=reason):
        read_config(folder)
