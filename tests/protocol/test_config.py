"""Options of a tree: checked when written, foreign ones accepted with a notice or refused with a sentence."""

import msgspec
import pytest

from penstock.protocol.errors import ConfigError
from penstock.protocol.options.config import _CHECKS, EngineConfig


def test_every_option_has_a_check_and_a_sentence():
    fields = msgspec.structs.fields(EngineConfig)
    assert {field.name for field in fields} == set(_CHECKS)
    assert [field.name for field in fields if "description=" not in repr(field.type)] == []


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 * 2**30), ("512mib", 512 * 2**20), ("2GB", 2 * 10**9), (4096, 4096), ("1.5k", 1500)]
)
def test_a_size_is_bytes_or_text_with_a_unit(text, size):
    assert EngineConfig.from_options("m", kv_cache_memory=text).kv_cache_memory == size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", 48),
        ("dtype", "int3"),
        ("kv_cache_dtype", "fp7"),
        ("kv_cache_memory", "much"),
        ("gpu_memory_utilization", 1.5),
        ("tensor_parallel_size", 0),
        ("max_num_seqs", "many"),
        ("max_model_len", -7),
    ],
)
def test_an_option_that_breaks_its_rule_raises_and_names_itself(name, value):
    with pytest.raises(ConfigError, match=name):
        EngineConfig.from_options("m", **{name: value})


def test_an_unknown_option_names_the_nearest_known_one():
    with pytest.raises(TypeError, match="Did you mean max_model_len"):
        EngineConfig.from_options("m", max_modellen=5)


def test_the_spellings_of_a_dtype_mean_the_same():
    assert {EngineConfig.from_options("m", dtype=name).dtype for name in ("bf16", "bfloat16", "torch.bfloat16")} == {
        "bfloat16"
    }


def test_minus_one_is_the_models_own_context():
    assert EngineConfig.from_options("m", max_model_len=-1).max_model_len is None
    for wrong in (0, -2, True):
        with pytest.raises(ConfigError, match="max_model_len"):
            EngineConfig.from_options("m", max_model_len=wrong)


def test_server_options_are_accepted_with_a_notice_each():
    options = {"port": 8000, "graph_optimization_config": {}}
    EngineConfig.from_options("m", **options)
    [notice] = EngineConfig.notices(options)
    assert notice.startswith("port has no effect")


@pytest.mark.parametrize("written", [True, False, 1, 0])
def test_cudagraphs_are_the_opposite_of_eager_steps(written):
    assert EngineConfig.from_options("m", use_cudagraph=written).enforce_eager is not bool(written)
    assert EngineConfig.given({"use_cudagraph": written, "quiet": None}) == {"enforce_eager": not written}
    assert EngineConfig.from_options("m", use_cudagraph=None, enforce_eager=True).enforce_eager
    with pytest.raises(ConfigError, match="use_cudagraph"):
        EngineConfig.from_options("m", use_cudagraph=written, enforce_eager=bool(written))
    with pytest.raises(ConfigError, match="use_cudagraph"):
        EngineConfig.from_options("m", use_cudagraph="maybe")


@pytest.mark.parametrize("option", [{"speculative_config": {"method": "ngram"}}, {"data_parallel_size": 2}])
def test_what_is_not_built_is_refused_unless_it_asks_for_nothing(option):
    with pytest.raises(ConfigError):
        EngineConfig.from_options("m", **option)
    EngineConfig.from_options("m", quantization=None, connect="never", data_parallel_size=1, splitwise_role="mixed")


def test_the_utilization_can_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("BFC_MEM_RATIO", "0.5")
    assert EngineConfig.from_options("m").gpu_memory_utilization == 0.5
    assert EngineConfig.from_options("m", gpu_memory_utilization=0.7).gpu_memory_utilization == 0.7
    monkeypatch.setenv("BFC_MEM_RATIO", "half")
    with pytest.raises(ConfigError, match="gpu_memory_utilization='half'"):
        EngineConfig.from_options("m")


def test_the_config_survives_the_wire():
    config = EngineConfig.from_options("m", devices=[0, 1], trace="/x", seed=3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
