"""Layers of one model rotate by several ropes, or not at all."""

import json
from dataclasses import replace

import pytest
import torch
from builders.cases import for_each
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.description.families.dense import LLAMA
from penstock.worker.description.families.table import FAMILIES
from penstock.worker.description.layer_ropes import LayerRopes
from penstock.worker.description.parts.rope import RopeConfig
from penstock.worker.layers.rope import Rope, Ropes

CPU = torch.device("cpu")
WINDOWS = (7, None, 7)
TWO_ROPES = replace(
    LLAMA, windows=lambda config, num_layers: WINDOWS, ropes_by_kind=True, window_theta=("rope_local_base_freq", 500.0),
    has_whole_context=True,
)  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 8.0}


@pytest.fixture(autouse=True)
def two_ropes(monkeypatch):
    monkeypatch.setitem(FAMILIES, "LlamaForCausalLM", TWO_ROPES)


def written(folder, **keys):
    """With these keys on rotary positions, and no others."""
    path = tiny_model(folder, "llama", num_hidden_layers=len(WINDOWS)) / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("rope_")}
    path.write_text(json.dumps(config | keys))
    return folder


SPELLINGS = {
    "transformers 4": {"rope_theta": 1e6, "rope_local_base_freq": 300.0, "rope_scaling": LINEAR},
    "transformers 5": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, **LINEAR},
            "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"},
        }
    },
    "the bases beside the figures": {
        "rope_theta": 1e6, "rope_local_base_freq": 300.0,
        "rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}},
    },
}  # fmt: skip


@for_each("spelling", SPELLINGS)
def test_every_spelling_gives_each_layer_its_own_rope_and_an_option_is_that_of_layers_without_a_window(
    tmp_path, spelling
):
    folder = written(tmp_path, **SPELLINGS[spelling])
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
    for option, expected in ((None, ("linear", 1e6, 8.0, 1024)), (yarn, ("yarn", 1e6, 2.0, 256))):
        config = read_config(folder, rope_scaling=option)
        window, full = config.ropes.ropes
        assert config.ropes.by_layer == (0, 1, 0)
        assert (window.kind, window.theta, window.factor) == ("default", 300.0, 1.0)
        assert (full.kind, full.theta, full.factor) == expected[:3]
        assert (full.original_context if option else config.max_position) == expected[3]


def test_layers_with_a_window_have_the_familys_base_where_none_is_given_and_one_rope_for_all_is_refused(tmp_path):
    config = read_config(written(tmp_path))
    assert [config.ropes.of(layer).theta for layer in range(3)] == [500.0, 10_000.0, 500.0]
    with pytest.raises(ConfigError, match="should have an object for each of full_attention, sliding_attention"):
        read_config(written(tmp_path, rope_parameters=LINEAR))


def test_a_rope_beside_one_that_is_stretched_has_the_same_rows_with_its_own_angles():
    dynamic = RopeConfig("dynamic", 1e4, 16, 16, 3.0, trained_context=64, original_context=64, figures={})
    plain = RopeConfig("default", 500.0, 32, 32, 1.0, trained_context=64, original_context=64, figures={})
    ropes = Ropes(LayerRopes((dynamic, plain), (0, None, 1)), False)
    first, none, other = ropes.by_layer(ropes.tables)
    alone, whole = Rope(plain, False), Rope(dynamic, False)
    for each in (ropes, alone, whole):
        each.grow_to(64 + 128 + 192)
    assert none is None
    rows, positions = [0, 63, 64, 64 + 100, 64 + 128 + 150], [0, 63, 0, 100, 150]
    assert (other.cos[rows] == alone.cos[positions]).all() and (other.sin[rows] == alone.sin[positions]).all()
    assert (first.cos == whole.cos).all() and (first.sin == whole.sin).all()
