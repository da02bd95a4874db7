"""Which layers of a model share a memory, whose heads may differ, and which read the keys and values of others."""

import json
from dataclasses import replace

import pytest
from builders.tiny_model import tiny_model

from penstock.worker.models.config import ModelConfig, read_config
from penstock.worker.models.groups import groups_of
from penstock.worker.models.mixers import ShortConvolution


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> ModelConfig:
    return read_config(tiny_model(tmp_path_factory.mktemp("model"), "llama", num_hidden_layers=6))


def shapes(config: ModelConfig, max_model_len: int = 1000, **options) -> list[tuple]:
    found = groups_of(config, max_model_len, **options)
    return [(group.kind, group.window, group.layers) for group in found]


def test_full_attention_comes_first_then_windows_the_widest_first_then_states_by_shape(config):
    short, long = ShortConvolution(3, 8), ShortConvolution(4, 8)
    config = replace(config, windows=(16, None, 99, 16, None, None), mixers=(None, None, None, None, short, None))
    assert shapes(config) == [
        ("full", None, (1, 5)), ("window", 99, (2,)), ("window", 16, (0, 3)), ("state", None, (4,)),
    ]  # fmt: skip
    config = replace(config, windows=(None,) * 6, mixers=(short, None, long, short, None, long))
    assert [layers for _, _, layers in shapes(config)] == [(1, 4), (0, 3), (2, 5)]


def test_layers_alike_and_windows_that_no_request_leaves_or_gives_back_are_one_group(config):
    one = [("full", None, (0, 1, 2, 3, 4, 5))]
    assert shapes(config) == one
    config = replace(config, windows=(16, None) * 3)
    assert shapes(config, 16) == shapes(config, 1) == shapes(config, gives_back=False) == one
    assert len(shapes(config, 17)) == 2


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
