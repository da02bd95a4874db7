"""What a loader records of the weights, and the folders that it writes and reads again."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from builders.shell import convert_here
from builders.tiny_model import tiny_model

from penstock import ConfigError
from penstock.allspark import DashInferModel, HuggingFaceModel, TargetDevice
from penstock.frontend.allspark.configuration.yaml_text import read_yaml, write_yaml
from penstock.frontend.allspark.loaders import hugging_face_model

INT8 = {"weight_format": "int8"}


@pytest.fixture(scope="module", autouse=True)
def converting_here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        convert_here(patch)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("published") / "model"
    return str(tiny_model(folder, "qwen3", dtype="bfloat16", intermediate_size=128, head_dim=32))


@pytest.fixture(scope="module")
def written_once(model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("written")
    HuggingFaceModel(model, "m", user_set_data_type="fp32").serialize_to_path(None, out, customized_quant_config=INT8)
    return out


@pytest.fixture
def written(written_once, tmp_path) -> Path:
    """Where a loader has written the model in int8."""
    return shutil.copytree(written_once, tmp_path / "written")


@pytest.fixture
def conversions(monkeypatch) -> list[str]:
    """The folders that are written from now on."""
    folders = []

    def convert_model(model, out, **options):
        folders.append(str(out))
        return real(model, out, **options)

    real = hugging_face_model.convert_model
    monkeypatch.setattr(hugging_face_model, "convert_model", convert_model)
    return folders


def recorded(loader: HuggingFaceModel):
    return loader.create_reference_runtime_config_builder("m", TargetDevice.CPU, [0], 4).build()


def is_int8(folder: Path) -> bool:
    return "quantization_config" in json.loads((folder / "config.json").read_text())


def test_without_a_dict_a_model_becomes_int8_as_with_enable_quant(model):
    assert recorded(HuggingFaceModel(model, "m").init_quantization()).quantization == "int8"
    assert recorded(HuggingFaceModel(model, "m").serialize_to_memory(None, enable_quant=True)).quantization == "int8"
    loader = HuggingFaceModel(model, "m").init_quantization().serialize_to_memory(None)
    assert recorded(loader).quantization == "int8"
    loader.serialize_to_memory(None, enable_quant=True, weight_only_quant=True)
    assert recorded(loader).quantization == "wint8"
    assert recorded(HuggingFaceModel(model, "m").init_quantization(enable=False)).quantization is None


def test_other_groups_than_those_of_loading_need_a_folder(model):
    grouped = {"weight_format": "uint4", "group_size": 32}
    with pytest.raises(ConfigError, match="group_size=32: .* groups of 64. serialize_to_path"):
        HuggingFaceModel(model, "m").serialize_to_memory(None, customized_quant_config=grouped)
    with pytest.raises(ConfigError, match="group_size=32"):
        recorded(HuggingFaceModel(model, "m").init_quantization(customized_quant_config=grouped))
    assert recorded(HuggingFaceModel(model, "m").init_quantization(customized_quant_config=INT8 | {"group_size": 32}))


def test_a_written_model_comes_back_with_its_data_type_and_is_loaded_as_it_is(written, monkeypatch):
    monkeypatch.setenv("HOME", str(written))
    assert DashInferModel("~", "m").source == str(written / "m") == DashInferModel("~/m").source
    loader = HuggingFaceModel(written / "m", "m").init_quantization().serialize_to_memory(None, enable_quant=True)
    assert recorded(loader).quantization is None
    settings = (written / "m" / "dimodel_config.yaml").read_text()
    with pytest.raises(ConfigError, match="data_type='float31'"):
        DashInferModel(written, "m", config_content=settings.replace("data_type: float32", "data_type: float31"))
    read = DashInferModel(written, "m")
    assert read.data_type == read.create_reference_runtime_config_builder().build().data_type == "float32"


def test_settings_that_cannot_be_written_leave_those_that_are_there(tmp_path):
    settings = tmp_path / "settings.yaml"
    write_yaml(settings, {"a": 1})
    with pytest.raises(yaml.YAMLError):
        write_yaml(settings, {"a": object()})
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_yaml(tmp_path / "none" / "settings.yaml", {})
    assert read_yaml(settings) == {"a": 1} and list(tmp_path.iterdir()) == [settings]


def test_a_second_run_takes_what_is_there_and_writes_settings_that_are_missing_or_new(model, written, conversions):
    settings = written / "m" / "dimodel_config.yaml"
    before = settings.read_text()
    loader = HuggingFaceModel(model, "m", user_set_data_type="fp32")
    config = recorded(loader.serialize_to_path(None, written, customized_quant_config=INT8))
    assert (config.model_path, config.quantization) == (str(written / "m"), None)
    assert settings.read_text() == before and not conversions
    settings.unlink()
    for data_type in ("fp32", "bf16", "fp32"):
        loader = HuggingFaceModel(model, "m", user_set_data_type=data_type)
        loader.serialize_to_path(None, written, customized_quant_config=INT8)
        assert DashInferModel(written, "m").data_type == loader.data_type
    assert settings.read_text() == before and not conversions
    assert sorted(path.name for path in settings.parent.glob("dimodel*")) == ["dimodel_config.yaml"]


def test_another_conversion_or_folder_of_that_name_is_left_alone(model, written, tmp_path):
    with pytest.raises(ConfigError, match=r"m holds .* as wint8, and .* as wint4 in groups of 64 is to be written"):
        HuggingFaceModel(model, "m").serialize_to_path(None, written, customized_quant_config={"weight_format": "int4"})
    (tmp_path / "m").mkdir()
    with pytest.raises(ConfigError, match="exists, and is not written over"):
        HuggingFaceModel(model, "m").serialize_to_path(None, tmp_path)


def test_a_second_folder_is_quantized_as_the_first(model, written, tmp_path, conversions):
    loader = HuggingFaceModel(model, "m").init_quantization(customized_quant_config=INT8)
    loader.serialize_to_path(None, written).serialize_to_path(None, tmp_path, enable_quant=True)
    assert conversions == [str(tmp_path / "m")] and is_int8(tmp_path / "m")
    assert recorded(loader).model_path == str(tmp_path / "m") and recorded(loader).quantization is None
