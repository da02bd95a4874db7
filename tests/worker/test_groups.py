"""Which layers of a model share a memory."""

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


def test_a_model_of_layers_alike_has_one_group(config):
    assert shapes(config) == [("full", None, (0, 1, 2, 3, 4, 5))]


def test_full_attention_comes_first_then_windows_the_widest_first_then_states(config):
    state = ShortConvolution(3, 8)
    config = replace(config, windows=(16, None, 99, 16, None, None), mixers=(None, None, None, None, state, None))
    assert shapes(config) == [
        ("full", None, (1, 5)), ("window", 99, (2,)), ("window", 16, (0, 3)), ("state", None, (4,)),
    ]  # fmt: skip


def test_states_of_different_shapes_are_groups_of_their_own(config):
    short, long = ShortConvolution(3, 8), ShortConvolution(4, 8)
    config = replace(config, mixers=(short, None, long, short, None, long))
    assert [layers for _, _, layers in shapes(config)] == [(1, 4), (0, 3), (2, 5)]


@pytest.mark.parametrize("length", [16, 15, 1])
def test_a_window_that_no_request_leaves_counts_as_full(config, length):
    config = replace(config, windows=(16, None) * 3)
    assert shapes(config, length) == [("full", None, (0, 1, 2, 3, 4, 5))]
    assert len(shapes(config, 17)) == 2


def test_where_nothing_is_given_back_windows_keep_all_tokens(config):
    config = replace(config, windows=(16, None, 32) * 2)
    assert shapes(config, gives_back=False) == [("full", None, (0, 1, 2, 3, 4, 5))]
