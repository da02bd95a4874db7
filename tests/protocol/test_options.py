"""Options of a tree are checked at the line that writes them, in their rule's words."""

import msgspec
import pytest
from builders.cases import for_each
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import ConfigError
from penstock.protocol.options.config import _CHECKS, EngineConfig
from penstock.protocol.options.foreign_options import notices


def settled(**options) -> EngineConfig:
    return EngineConfig.from_options("m", **options)


def test_every_option_has_a_check_and_a_sentence():
    fields = msgspec.structs.fields(EngineConfig)
    assert {field.name for field in fields} == set(_CHECKS)
    assert [field.name for field in fields if "description=" not in repr(field.type)] == []


def test_every_spelling_of_an_option_means_the_same_and_survives_the_wire():
    sizes = {"4GiB": 4 * 2**30, "512mib": 512 * 2**20, "2GB": 2 * 10**9, 4096: 4096, "1.5k": 1500}
    assert {text: settled(kv_cache_memory=text).kv_cache_memory for text in sizes} == sizes
    assert {settled(dtype=name).dtype for name in ("bf16", "bfloat16", "torch.bfloat16")} == {"bfloat16"}
    assert settled(max_model_len=-1).max_model_len is None
    settled(quantization=None, connect="never", data_parallel_size=1, splitwise_role="mixed")  # ask for nothing
    config = settled(devices=[0, 1], trace="/x", seed=3, port=8000)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig) == config
    [notice] = notices({"port": 8000, "graph_optimization_config": {"use_cudagraph": True}})
    assert notice.startswith("port has no effect")


@for_each("name, value", [
    ("block_size", 48), ("dtype", "int3"), ("kv_cache_dtype", "fp7"), ("kv_cache_memory", "much"),
    ("gpu_memory_utilization", 1.5), ("tensor_parallel_size", 0), ("max_num_seqs", "many"), ("max_model_len", -7),
    ("max_model_len", 0), ("max_model_len", -2), ("max_model_len", True), ("use_cudagraph", "maybe"),
    *(("data_parallel_size", value) for value in (0, -1, 1.5, "2", True, [2], 10**30)),
    *(("devices", value) for value in ("0,1", [[]], [0, [1]], [[0], []], [[[0]]], [["0"]], [True], [-1], [[1.5]], 3.5)),
    # These are not built, and refused unless they ask for nothing.
    ("data_parallel_rank", 1), ("data_parallel_size_local", 2),
])  # fmt: skip
def test_an_option_that_breaks_its_rule_raises_and_names_itself(name, value):
    with pytest.raises(ConfigError, match=name):
        settled(**{name: value})


@given(value=st.one_of(st.integers(), st.integers(-9, 300), st.floats(), st.text(), st.booleans()))
@example(10**5000)
def test_so_many_ranks_as_no_model_has_heads_are_refused_with_what_limits_them(value):
    if not isinstance(value, bool) and value in range(1, 257):
        assert settled(tensor_parallel_size=value).tensor_parallel_size == value
    else:
        with pytest.raises(ConfigError, match="from 1 to 256 that divides the model's attention heads"):
            settled(tensor_parallel_size=value)


@for_each("options, words", [
    ({"data_parallel_size": 3, "num_threads": 2}, "num_threads=2 is for all trees, and data_parallel_size=3 needs 3"),
    ({"data_parallel_size": 2, "tensor_parallel_size": 2, "num_threads": 3}, "with tensor_parallel_size=2 needs 4"),
    ({"data_parallel_size": 2, "devices": [[0], [1], [2]]}, "a list for each tree"),
    ({"devices": [[0], [1]]}, "data_parallel_size=1"),
    ({"data_parallel_size": 2, "trace": "/x"}, "trace=… writes down one tree"),
    ({"data_parallel_size": 2, "record": "/x"}, "record=… writes down one tree"),
])  # fmt: skip
def test_options_that_several_trees_can_not_share_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        settled(**options)


def test_devices_are_given_for_all_trees_or_for_each():
    assert settled(devices=2).own_devices == [2] and settled(devices=[[1, 2]]).own_devices == [1, 2]
    each = settled(data_parallel_size=2, devices=((0, 1), range(2, 4)))
    assert each.devices == [[0, 1], [2, 3]] and each.own_devices == [0, 1, 2, 3]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=EngineConfig) == each


@for_each("written", [True, False, 1, 0])
def test_cudagraphs_are_the_opposite_of_eager_steps(written):
    assert settled(use_cudagraph=written).enforce_eager is not bool(written)
    assert EngineConfig.given({"use_cudagraph": written, "quiet": None}) == {"enforce_eager": not written}
    assert settled(use_cudagraph=None, enforce_eager=True).enforce_eager
    with pytest.raises(ConfigError, match="use_cudagraph"):
        settled(use_cudagraph=written, enforce_eager=bool(written))


def test_the_utilization_can_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("BFC_MEM_RATIO", "0.5")
    assert settled().gpu_memory_utilization == 0.5
    assert settled(gpu_memory_utilization=0.7).gpu_memory_utilization == 0.7
    monkeypatch.setenv("BFC_MEM_RATIO", "half")
    with pytest.raises(ConfigError, match="gpu_memory_utilization='half'"):
        settled()


@for_each("written, own", [
    ({"load_choices": "default_v1"}, {"load_format": "auto"}), ({"load_choices": "dummy"}, {"load_format": "dummy"}),
    ({"enable_early_stop": True}, {"early_stop_config": {}}),
    ({"enable_early_stop": True, "early_stop_config": {"window_size": 9}}, {"early_stop_config": {"window_size": 9}}),
    ({"graph_optimization_config": {"use_cudagraph": False}}, {"enforce_eager": True}),
    ({"graph_optimization_config": '{"cudagraph_capture_sizes": [1, 2]}'}, {"graph_batch_sizes": [1, 2]}),
    ({"graph_optimization_config": {"use_cudagraph": True, "graph_opt_level": 0}}, {"enforce_eager": False}),
    ({"quantization": {"dense_quant_type": "wint8", "moe_quant_type": "wint4"}},
     {"quantization": {"*": "wint8", "*.experts.*": "wint4"}}),
    ({"tool_parser": "hermes"}, {"tool_call_parser": "hermes"}), ({"guided_decoding_backend": "xgrammar"}, {}),
])  # fmt: skip
def test_fastdeploys_form_of_an_option_means_the_same(written, own):
    assert settled(**written) == settled(**own)


@for_each("is_on, config", [(False, {"window_size": 9}), (True, {"enable_early_stop": False})])
def test_a_switch_that_contradicts_its_configuration_is_refused(is_on, config):
    with pytest.raises(ConfigError, match=f"enable_early_stop={is_on} contradicts"):
        settled(enable_early_stop=is_on, early_stop_config=config)


@for_each("name, value, words", [
    ("graph_optimization_config", "nonsense", "must be a dict"), ("graph_optimization_config", 5, "must be a dict"),
    ("graph_optimization_config", {"use_cudagrap": True}, "Did you mean use_cudagraph"),
    ("guided_decoding_backend", "nonsense", "must be one of auto, off"), ("load_choices", "fast", "must be one of"),
    ("enable_early_stop", "yes", "True or False"), ("quantization", {"dense_quant_type": "w4a8"}, "w4a8"),
    ("quantization", {"dense_quant_typ": "wint8", "moe_quant_type": "wint4"}, "Did you mean dense_quant_type"),
    ("quantization", {"quantization": "mix_quant"}, "give dense_quant_type, moe_quant_type or both: int8"),
])  # fmt: skip
def test_a_form_that_fastdeploy_has_not_either_is_refused(name, value, words):
    with pytest.raises(ConfigError, match=words):
        settled(**{name: value})
    if name == "guided_decoding_backend":
        assert [line.split(" has")[0] for line in notices({name: "xgrammar"})] == [name]
        assert notices({name: "auto", "port": None}) == []
