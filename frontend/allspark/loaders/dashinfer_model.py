"""`DashInferModel`: a model that `serialize_to_path` wrote, with the settings stored next to it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import BOOLEAN, shown
from ....protocol.options.option_rules import DTYPE, TEXT
from ..configuration.generation_config import ASGenerationConfigBuilder
from ..configuration.model_config import model_folder
from ..configuration.runtime_builder import AsModelRuntimeConfigBuilder
from ..configuration.yaml_text import from_yaml, read_yaml
from ..names import TargetDevice
from .hugging_face_model import CONFIG_FILE, safe_name
from .loader import ModelLoader, say_idle

_CONVERTED = "these weights were converted before"
_PARTS = ("model", "runtime_config", "generation_config")


class DashInferModel(ModelLoader):
    """A model with fixed weights: arguments that ask for other weights have no effect, which is reported."""

    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str = "model",
        config_file_path: str | os.PathLike[str] | None = None,
        config_content: str | None = None,
    ) -> None:
        """The settings are those of `config_content`, else of `config_file_path`, else of the file in the folder."""
        pretrain_model_name = TEXT.checked("pretrain_model_name", pretrain_model_name, ConfigError)
        path = TEXT.checked("pretrain_model_name_or_path", pretrain_model_name_or_path, ConfigError)
        folder = model_folder(path, safe_name(pretrain_model_name))
        super().__init__(folder, pretrain_model_name)
        if config_content is not None:
            content = TEXT.checked("config_content", config_content, ConfigError)
            self.di_model_config = from_yaml(content, "config_content")
        elif config_file_path is not None:
            self.di_model_config = read_yaml(Path(TEXT.checked("config_file_path", config_file_path, ConfigError)))
        else:
            self.di_model_config = read_yaml(_config_file(Path(self._path)))
        for part in _PARTS:
            if not isinstance(self.di_model_config.get(part), Mapping):
                raise ConfigError(f"The settings of {self._path} lack {part}.")
        if (data_type := self.di_model_config["model"].get("data_type")) is not None:
            self.data_type = DTYPE.checked("data_type", data_type, ConfigError)

    @property
    def source(self) -> str:
        return self._path

    def init_quantization(self, enable: bool = True, customized_quant_config: Any = None) -> Self:
        if BOOLEAN.checked("enable", enable, ConfigError) or customized_quant_config is not None:
            say_idle("init_quantization", _CONVERTED)
        return self

    def _serialize_to_memory(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None:
        """Nothing is left to do."""
        self._say_idle(enable_quant=enable, weight_only_quant=weight_only, customized_quant_config=config is not None)

    def _serialize_to_path(
        self, folder: str, skips: bool, enable: bool, weight_only: bool, config: Mapping[str, Any] | None
    ) -> None:
        """Nothing is written: the folder that it was loaded from holds it already."""
        self._say_idle(model_output_dir=bool(folder), skip_if_exists=skips)
        self._serialize_to_memory(enable, weight_only, config)

    @staticmethod
    def _say_idle(**given: bool) -> None:
        for name in (name for name, is_given in given.items() if is_given):
            say_idle(name, _CONVERTED)

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str | None = None,
        device_type: TargetDevice | str | None = None,
        device_ids: Sequence[int] | None = None,
        max_batch: int | None = None,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """A builder with the settings stored next to the weights; given ones have precedence."""
        builder = AsModelRuntimeConfigBuilder().from_dict(self.di_model_config["runtime_config"])
        self.record_in(builder.model_file_path(self.source).new_runtime_cfg)
        if engine_model_name is not None:
            builder.model_name(engine_model_name)
        if device_type is not None:
            builder.compute_unit(device_type, device_ids)
        elif device_ids is not None:
            raise ConfigError(f"device_ids={shown(device_ids)} goes with device_type; give both.")
        if max_batch is not None:
            builder.max_batch(max_batch)
        if max_context_length != -1:
            builder.max_length(max_context_length)
        return builder

    def _generation_defaults(self) -> ASGenerationConfigBuilder:
        """The defaults stored next to the weights."""
        defaults = self.di_model_config["generation_config"]
        builder = ASGenerationConfigBuilder().update(defaults)
        builder.model_defaults = dict(defaults)
        return builder


def _config_file(folder: Path) -> Path:
    """The settings in the folder; raises with the names of the models that lie below it, where one is missing."""
    found = folder / CONFIG_FILE
    if not found.is_file() and (below := sorted(path.parent.name for path in found.parent.glob(f"*/{CONFIG_FILE}"))):
        names = ", ".join(map(repr, below))
        raise ConfigError(f"There is no {found}. Below it are {names}: DashInferModel({str(folder)!r}, {below[0]!r}).")
    return found
