"""Configurations of models and of requests: every key, in every form, and a sentence for what can't be."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders.cases import for_each

from penstock import ConfigError
from penstock.allspark import AsModelRuntimeConfigBuilder as Builder
from penstock.allspark import AsStatus, DashInferModel, HuggingFaceModel, RoPEScaleMethod, TargetDevice
from penstock.frontend import machine
from penstock.frontend.allspark.configuration import compute_unit
from penstock.frontend.allspark.configuration.model_config import checked_config, engine_options, say_notices
from penstock.frontend.allspark.configuration.quantization import quantization_of
from penstock.frontend.allspark.loaders.hugging_face_model import safe_name
from penstock.protocol.survey import GpuSurvey


def test_a_status_compares_by_its_name_whatever_its_sentence():
    wrong = AsStatus.ALLSPARK_PARAM_ERROR
    assert wrong.because("Why.") == wrong and {wrong.because("Why."): 1}[wrong] == 1
    assert wrong != AsStatus.ALLSPARK_SUCCESS and wrong != "ALLSPARK_PARAM_ERROR"
    assert AsStatus.ALLSPARK_ALLSPARK_INVALID_CALL_ERROR == AsStatus.ALLSPARK_INVALID_CALL_ERROR


def test_each_module_has_every_name_and_imports_neither_torch_nor_transformers():
    script = (
        "import sys, penstock.allspark as a, penstock.allspark.engine as b, penstock.allspark.model_loader as c\n"
        "assert all(hasattr(each, name) for each in (a, b, c) for name in a.__all__)\n"
        "assert a.__all__ == b.__all__ == c.__all__ and 'HuggingFaceModel' in a.__all__\n"
        "assert not {'torch', 'transformers'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def every_setting() -> Builder:
    builder = Builder().model_name("m").model_file_path("pocket").compute_unit("cpu_numa", [0, 1], 3)
    builder.max_length("1024").max_batch(7).max_prefill_length(256).prefill_cache(False).prefix_cache_ttl(60)
    builder.kv_cache_mode("AsCacheQuantU4").kv_cache_span_size(64).set_span_init_size(0)
    return builder.lora_max_rank(8).lora_max_num(2).enable_sparsity_matmul(False)


def test_every_setting_becomes_an_option():
    options = engine_options(every_setting().build(), context=2048)
    assert options == {
        "device": "cpu", "devices": [0, 1], "tensor_parallel_size": 2, "num_threads": 6, "max_model_len": 1024,
        "max_num_seqs": 7, "max_num_batched_tokens": 256, "enable_prefix_caching": False, "prefix_cache_ttl": 60,
        "kv_cache_dtype": "uint4", "block_size": 64, "enable_lora": True, "max_loras": 2, "max_lora_rank": 8,
        "dtype": None, "quantization": None, "revision": None, "served_model_name": "m",
    }  # fmt: skip


def test_settings_come_back_from_a_dict_and_from_yaml_and_from_text(tmp_path):
    config = every_setting().build()
    again = Builder().model_file_path("pocket").from_dict(config.to_dict()).build()
    assert again == config
    written = Builder().build()
    written.engine_max_length, written.cache_span_size = "512", 64.0
    options = engine_options(checked_config(written), context=2048)
    assert (options["max_model_len"], options["block_size"]) == (512, 64)
    (tmp_path / "model.yaml").write_text(config.to_yaml())
    for source in (config.to_yaml(), tmp_path / "model.yaml"):
        assert Builder().model_file_path("pocket").from_yaml(source).build() == config
    for size in (64, 64.0, "64"):
        called = Builder().kv_cache_span_size(size).max_batch(size)
        updated = Builder().update_from_dict({"kv_cache_span_size": size, "engine_max_batch": size})
        for made in (called.new_runtime_cfg, updated.new_runtime_cfg):
            assert (made.cache_span_size, made.engine_max_batch) == (64, 64)
    for text, unit in (("CUDA:0,1", "CUDA:0,1"), ("cpu:3", "CPU:0"), ("CPU_NUMA:1", "CPU_NUMA:1")):
        assert Builder().set_compute_unit_from_str(text).build().compute_unit == unit


def test_settings_without_effect_give_one_notice_each(capsys):
    builder = Builder().model_name("m").update_from_dict({"rope_scaling": None, "lora_names": []})
    for more in ({"cuda_mem": "8GB", "eviction_strategy": "MaxLength"}, {"cuda_mem": "9GB"}):
        builder.update_from_dict(more)
    say_notices(builder.enable_sparsity_matmul(True).build(), context=4096)
    notices = capsys.readouterr().err.splitlines()
    assert [line.split(" has no effect: ")[0] for line in notices] == [
        "m: enable_sparsity_matmul", "m: cuda_mem", "m: eviction_strategy",
    ]  # fmt: skip
    say_notices(builder.build(), context=4096)
    assert not capsys.readouterr().err


def test_a_loaders_scaling_of_positions_is_the_models_and_lengthens_its_context():
    scaling = {"factor": 4.0, "original_max_position_embeddings": 32768}
    loader = HuggingFaceModel("pocket", "pocket")
    loader.set_rope_scale_method(RoPEScaleMethod.YaRN, {"type": "yarn", **scaling})
    assert loader.get_model_context_length() == 131_072
    config = loader.create_reference_runtime_config_builder("pocket", "CPU", [0], 2).build()
    assert engine_options(config, 131_072)["rope_scaling"] == {"rope_type": "yarn", **scaling}
    again = Builder().from_dict(config.to_dict()).build()
    assert again.options == config.options and again.engine_max_length == 131_072
    for wrong in ({"type": "linear"}, {"factr": 4}, 5):
        with pytest.raises(ConfigError, match="parameter_dict"):
            loader.set_rope_scale_method(RoPEScaleMethod.YaRN, wrong)


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert Builder().model_dir("~/models").build().model_path == str(tmp_path / "models")
    own = Builder().model_dir("~/models", "mine").build().model_path
    assert own == str(tmp_path / "models" / "mine")
    (tmp_path / "m.yaml").write_text(every_setting().build().to_yaml())
    assert Builder().from_yaml("~/m.yaml").build().model_name == "m"


def test_a_builder_starts_afresh_and_has_the_defaults():
    builder = every_setting()
    builder.build()
    config = builder.build()
    assert (config.model_name, config.engine_max_length, config.engine_max_batch) == ("", 2048, 32)
    assert (config.prefix_cache_ttl, config.cache_span_size) == (300, 32)
    assert (config.lora_max_rank, config.lora_max_num) == (64, 5)
    assert engine_options(config, context=2048)["max_model_len"] is None, "the whole context is the memory plan's"
    assert engine_options(config, context=4096)["max_model_len"] == 2048


NO_PLAIN_YAML = [
    "a: &x [1]\nb: *x", "model_name: 2001-99-99", "model_name: !!bool foo", "model_name: !!int ''",
    "model_name: !!timestamp x", "model_name: !!python/object/apply:os.system [true]", "model_name: " + "9" * 5000,
    "a: " + "[" * 3000,
]  # fmt: skip


@for_each("call, words", [
    (lambda builder: builder.compute_unit("TPU"), "must be one of CUDA, CPU, CPU_NUMA"),
    (lambda builder: builder.set_compute_unit_from_str("CUDA"), "such as CUDA:0,1"),
    (lambda builder: builder.compute_unit(TargetDevice.CUDA, [0, 0]), "twice"),
    (lambda builder: builder.max_batch(0), "engine_max_batch=0"),
    (lambda builder: builder.max_length(True), "engine_max_length=True"),
    (lambda builder: builder.max_batch(2.7), "engine_max_batch=2.7"),
    (lambda builder: builder.kv_cache_span_size(48), "16, 32, 64, 128"),
    (lambda builder: builder.update_from_dict({"kv_cache_span_size": "48"}), "16, 32, 64, 128"),
    (lambda builder: builder.update_from_dict({"rope_scaling": 4}), "rope_scaling=4"),
    (lambda builder: builder.model_file_path("/a/model", "/b/model"), "in the model's folder, /a/model"),
    (lambda builder: builder.from_yaml("not-there.yaml"), "There is no not-there.yaml"),
    (lambda builder: builder.from_yaml(""), "names and values"),
    (lambda builder: builder.kv_cache_mode("AsCacheQuantI4"), "Did you mean AsCacheQuant"),
    (lambda builder: builder.update_from_dict({"engine_max_bach": 3}), "Did you mean engine_max_batch"),
    (lambda builder: builder.from_dict({"model_name": "m"}), "needs compute_unit"),
    (lambda builder: builder.from_yaml("- a\n- b\n"), "names and values"),
    *((lambda builder, text=text: builder.from_yaml(text), "is no YAML of plain values") for text in NO_PLAIN_YAML),
])  # fmt: skip
def test_a_setting_that_cannot_be_raises_where_it_is_given(call, words):
    with pytest.raises(ConfigError, match=words):
        call(Builder())


def test_memory_of_a_card_is_shared_as_the_environment_says(monkeypatch):
    monkeypatch.setattr(compute_unit, "has_visible_card", lambda: True)
    monkeypatch.setattr(compute_unit, "cards", lambda: [GpuSurvey("a card", 10_000 << 20, 9_000 << 20)] * 2)
    monkeypatch.setenv("BFC_MEM_RATIO", "0.5")
    monkeypatch.setenv("BFC_LEFTOVER_MB", "1000")
    options = engine_options(Builder().compute_unit("CUDA", [0, 1]).build(), context=2048)
    assert options["tensor_parallel_size"] == 2 and options["devices"] == [0, 1]
    assert options["gpu_memory_utilization"] == pytest.approx(0.45)
    monkeypatch.setenv("BFC_LEFTOVER_MB", "10000")
    with pytest.raises(ConfigError, match="a card has"):
        engine_options(Builder().build(), context=2048)


@for_each("visible", ["", "-1", " ,0"])
def test_cards_that_are_all_hidden_or_missing_leave_the_cpu(monkeypatch, visible, capsys):
    monkeypatch.setattr(machine, "has_driver", lambda: True)
    compute_unit._warn_of_no_gpu.cache_clear()
    capsys.readouterr()
    monkeypatch.setattr(machine.Path, "glob", lambda folder, pattern: iter([folder / "nvidia0"]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    config = Builder().compute_unit("CUDA").build()
    assert engine_options(config, context=2048)["device"] == "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert engine_options(config, context=2048)["device"] == "cpu"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(machine.Path, "glob", lambda folder, pattern: iter([]))
    assert [engine_options(config, context=2048)["device"] for _ in range(2)] == ["cpu", "cpu"]
    assert capsys.readouterr().err.count("models run on the CPU") == 1


@for_each(
    "config, found",
    [
        ({"quant_method": "instant_quant", "weight_format": "int8"}, "wint8"),
        ({"weight_format": "int8", "compute_method": "activate_quant"}, "int8"),
        ({"weight_format": "uint4", "group_size": 64}, "wint4"),
        ({"weight_format": "uint4", "layers": {"lm_head": "int8", "*.q_proj": None}},
         {"*": "wint4", "lm_head": "wint8", "*.q_proj": None}),
        ({"layers": {"*.down_proj": "int8"}}, {"*.down_proj": "wint8"}),
        ({"weight_format": "int8", "activate_format": "bfloat16"}, "wint8"),
        ({"weight_format": "int8", "activate_format": "int8", "compute_method": "activate_quant"}, "int8"),
        ({"weight_format": "fp8_e4m3"}, ConfigError("int8, uint8, int4, uint4")),
        ({"weight_format": "uint8", "compute_method": "activate_quant"}, ConfigError("must be one of int8, int4")),
        ({"weight_format": "int8", "quant_method": "gptq"}, ConfigError("loaded as it is")),
        ({"weight_format": "int8", "group_size": 7}, ConfigError("group_size=7")),
        ({"weight_format": "int8", "group_settings": {}}, ConfigError("use group_size")),
        ({"weight_format": "int8", "activate_format": "nonsense"}, ConfigError("float32, float16, bfloat16 for")),
        ({"weight_format": "int8", "activate_format": "int8"}, ConfigError("for compute_method=weight_only")),
        ({"weight_fromat": "int8"}, ConfigError("Did you mean weight_format")), ({}, ConfigError("needs weight_for")),
    ],
)  # fmt: skip
def test_a_quantization_of_dashinfer_becomes_the_option_or_is_refused(config, found):
    if isinstance(found, ConfigError):
        with pytest.raises(ConfigError, match=str(found)):
            quantization_of(config)
    else:
        assert quantization_of(config) == found


def test_a_loader_reads_the_model_and_runs_none_of_its_code():
    loader = HuggingFaceModel("pocket", "pocket", in_memory_serialize=True).load_model().serialize(None).free_model()
    assert loader.get_model_context_length() == loader.get_model_config()["max_position_embeddings"]
    assert loader.get_tokenizer() is None and loader.init_tokenizer().get_tokenizer().vocab_size > 0
    config = loader.create_reference_runtime_config_builder("p", TargetDevice.CPU, [0], max_batch=8).build()
    generation = loader.create_reference_generation_config_builder(config).build()
    assert generation["max_length"] == loader.get_model_context_length()
    with pytest.raises(ConfigError, match="never run"):
        HuggingFaceModel("pocket", "pocket", trust_remote_code=True)


@for_each("name", ["..", ".", "", "a/b", "\0x", "x" * 300])
def test_a_models_name_is_one_folder_when_it_is_written(name):
    assert Path("/tmp/out", safe_name(name)).parent == Path("/tmp/out") and 0 < len(safe_name(name)) < 100


def test_a_folder_above_a_written_model_says_where_it_lies(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "dimodel_config.yaml").write_text("model: {}")
    with pytest.raises(ConfigError, match=r"Below it are 'mine': DashInferModel\("):
        DashInferModel(tmp_path)
