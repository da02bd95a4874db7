"""`HuggingFaceModel`: a model as it was published, from a folder or Hugging Face's cache.

Only `serialize_to_path` writes anything: the model with the weights that were asked for, beside a YAML file that
`DashInferModel` reads.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from ...protocol.errors import ConfigError
from ...protocol.options.option_rules import DTYPE
from ..models.conversion import convert_model
from .loader import ModelLoader
from .model_config import Quantization
from .names import TargetDevice
from .quantization import group_size_of, kind_of_flags, quantization_of
from .yaml_text import as_yaml

# Beside the weights that `serialize_to_path` writes; DashInfer's name.
CONFIG_FILE = "dimodel_config.yaml"


class HuggingFaceModel(ModelLoader):
    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str,
        in_memory_serialize: bool = False,
        user_set_data_type: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """`pretrain_model_name` names what is serialized. Nothing depends on `in_memory_serialize`: memory is copied
        nowhere. Code from a checkpoint is never run, so `trust_remote_code=True` is refused."""
        super().__init__(os.fspath(pretrain_model_name_or_path), pretrain_model_name)
        if trust_remote_code:
            raise ConfigError("trust_remote_code=True: code from a checkpoint is never run; no family here needs it.")
        if user_set_data_type is not None:
            self.data_type = DTYPE.checked("user_set_data_type", user_set_data_type, ConfigError)
        self.in_memory_serialize = in_memory_serialize
        self._quant_config: Mapping[str, Any] | None = None
        self._recorded: Quantization | None = None
        self._written: Path | None = None

    @property
    def source(self) -> str:
        return self._path if self._written is None else str(self._written)

    def init_quantization(self, enable: bool = True, customized_quant_config: Mapping[str, Any] | None = None) -> Self:
        """Record how weights are to be quantized; without a dict a quantized checkpoint is loaded as it is."""
        if customized_quant_config is not None:
            self._recorded = quantization_of(customized_quant_config)
            self._quant_config = customized_quant_config
            self.quantization = self._recorded if enable else None
        elif "quantization_config" not in self.get_model_config():
            raise ConfigError(
                f"{self._path} is not quantized. customized_quant_config says how it is to be, such as "
                '{"quant_method": "instant_quant", "weight_format": "int8"}.'
            )
        return self

    def serialize(
        self,
        engine: Any,
        model_output_dir: str | os.PathLike[str] = "",
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        customized_quant_config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> Self:
        """`serialize_to_memory` if the loader was made so, else `serialize_to_path`."""
        how = (enable_quant, weight_only_quant, customized_quant_config)
        if self.in_memory_serialize:
            return self.serialize_to_memory(engine, *how)
        return self.serialize_to_path(engine, model_output_dir, *how)

    def serialize_to_memory(
        self,
        engine: Any,
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        customized_quant_config: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> Self:
        """Record what the weights are to become while they load."""
        self._record(enable_quant, weight_only_quant, customized_quant_config)
        return self

    def serialize_to_path(
        self,
        engine: Any,
        model_output_dir: str | os.PathLike[str],
        enable_quant: bool = False,
        weight_only_quant: bool = False,
        customized_quant_config: Mapping[str, Any] | None = None,
        skip_if_exists: bool = False,
        **others: Any,
    ) -> Self:
        """Write the model below `model_output_dir`, in a folder of its name, from which it is loaded from then on."""
        if not os.fspath(model_output_dir):
            raise ConfigError("model_output_dir: name the folder to write to.")
        self._record(enable_quant, weight_only_quant, customized_quant_config)
        target = Path(os.path.expanduser(model_output_dir)) / safe_name(self.name)
        if not (skip_if_exists and (target / CONFIG_FILE).is_file()):
            target.parent.mkdir(parents=True, exist_ok=True)
            groups = group_size_of(self._quant_config)
            convert_model(self._path, target, quantization=self.quantization, group_size=groups, revision=self.revision)
            self._describe(target)
        self._use(target)
        return self

    def _record(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None:
        if config is not None:
            self._recorded, self._quant_config = quantization_of(config), config
        if not enable and config is None and self.quantization is not None:
            return  # `init_quantization` has said it
        self.quantization = kind_of_flags(enable or config is not None, weight_only, self._recorded)

    def _describe(self, target: Path) -> None:
        builder = self.create_reference_runtime_config_builder(self.name, TargetDevice.CPU, [0], max_batch=32)
        runtime = builder.build()
        generation = self.create_reference_generation_config_builder(runtime).build()
        described = {
            "model": {"name": self.name, "max_position_embeddings": self.get_model_context_length()},
            "runtime_config": runtime.to_dict(),
            "generation_config": generation,
        }
        (target / CONFIG_FILE).write_text(as_yaml(described), encoding="utf-8")

    def _use(self, target: Path) -> None:
        """Load what was written instead of the original; its weights are what they are to be already."""
        self._written, self._files, self._tokenizer = target, None, None
        self.quantization = self.revision = None


def safe_name(name: str) -> str:
    """A name that is one folder."""
    return name.replace("/", "_") or "model"
