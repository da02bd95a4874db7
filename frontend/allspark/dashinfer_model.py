"""`DashInferModel`: a model that `serialize_to_path` wrote, with the settings that lie beside it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ...protocol.errors import ConfigError
from ...protocol.options.option_rules import DTYPE
from .generation_config import ASGenerationConfigBuilder
from .hugging_face_model import CONFIG_FILE, safe_name
from .loader import ModelLoader
from .model_config import model_folder
from .names import TargetDevice
from .runtime_builder import AsModelRuntimeConfigBuilder
from .yaml_text import from_yaml, read_yaml

_PARTS = ("model", "runtime_config", "generation_config")


class DashInferModel(ModelLoader):
    """Its weights are what they are: what asks for other ones does nothing."""

    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str = "model",
        config_file_path: str | os.PathLike[str] | None = None,
        config_content: str | None = None,
    ) -> None:
        """The settings are those of `config_content`, else of `config_file_path`, else of the file in the folder."""
        folder = model_folder(os.fspath(pretrain_model_name_or_path), safe_name(pretrain_model_name))
        super().__init__(folder, pretrain_model_name)
        if config_content is not None:
            self.di_model_config = from_yaml(config_content, "config_content")
        else:
            self.di_model_config = read_yaml(Path(config_file_path or _config_file(Path(self._path))))
        for part in _PARTS:
            if not isinstance(self.di_model_config.get(part), Mapping):
                raise ConfigError(f"The settings of {self._path} lack {part}.")
        if (data_type := self.di_model_config["model"].get("data_type")) is not None:
            self.data_type = DTYPE.checked("data_type", data_type, ConfigError)

    @property
    def source(self) -> str:
        return self._path

    def init_quantization(self, enable: bool = True, customized_quant_config: Any = None) -> Self:
        return self

    def serialize(self, engine: Any, *arguments: Any, **options: Any) -> Self:
        return self

    serialize_to_memory = serialize_to_path = serialize

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str | None = None,
        device_type: TargetDevice | str | None = None,
        device_ids: Sequence[int] | None = None,
        max_batch: int | None = None,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """A builder with the settings that lie beside the weights; what is given goes before them."""
        builder = AsModelRuntimeConfigBuilder().from_dict(self.di_model_config["runtime_config"])
        self.record_in(builder.model_file_path(self.source).new_runtime_cfg)
        if engine_model_name is not None:
            builder.model_name(engine_model_name)
        if device_type is not None:
            builder.compute_unit(device_type, device_ids)
        if max_batch is not None:
            builder.max_batch(max_batch)
        if max_context_length != -1:
            builder.max_length(max_context_length)
        return builder

    def _generation_defaults(self) -> ASGenerationConfigBuilder:
        """Those that lie beside the weights."""
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
