"""`HuggingFaceModel`: a model as it was published, from a folder or Hugging Face's cache.

Only `serialize_to_path` writes anything: the model with the weights that were asked for, beside a YAML file that
`DashInferModel` reads.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ....protocol.conversion import DEFAULT_GROUP_SIZE, ConversionRecord, read_record
from ....protocol.errors import ConfigError
from ....protocol.fields.rules import BOOLEAN
from ....protocol.files.model_file import read_model_settings
from ....protocol.options.option_rules import DTYPE, QUANTIZATION, TEXT
from ...models.conversion import convert_model
from ...models.model_files import find_model
from ..configuration.model_config import AsModelConfig, Quantization
from ..configuration.quantization import group_size_of, has_groups, kind_of_flags, quantization_of
from ..configuration.yaml_text import read_yaml, write_yaml
from ..names import TargetDevice
from .loader import ModelLoader, say_idle

# Beside the weights that `serialize_to_path` writes; DashInfer's name.
CONFIG_FILE = "dimodel_config.yaml"
_LONGEST_NAME = 60  # characters, which file systems take in any script


class HuggingFaceModel(ModelLoader):
    def __init__(
        self,
        pretrain_model_name_or_path: str | os.PathLike[str],
        pretrain_model_name: str,
        in_memory_serialize: bool = False,
        user_set_data_type: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """`pretrain_model_name` names what is serialized, and `in_memory_serialize` chooses what `serialize` does. Code
        from a checkpoint is never run, so `trust_remote_code=True` is refused."""
        path = TEXT.checked("pretrain_model_name_or_path", pretrain_model_name_or_path, ConfigError)
        super().__init__(path, TEXT.checked("pretrain_model_name", pretrain_model_name, ConfigError))
        if trust_remote_code:
            raise ConfigError("trust_remote_code=True: a checkpoint's code is never run, nor needed; leave it out.")
        if user_set_data_type is not None:
            self.data_type = DTYPE.checked("user_set_data_type", user_set_data_type, ConfigError)
        self.in_memory_serialize = BOOLEAN.checked("in_memory_serialize", in_memory_serialize, ConfigError)
        self._quant_config: Mapping[str, Any] | None = None
        self._recorded: Quantization | None = None
        self._written: Path | None = None

    @property
    def source(self) -> str:
        return self._path if self._written is None else str(self._written)

    @cached_property
    def _original(self) -> Path:
        """The folder of the model as it was published."""
        return find_model(self._path).folder

    def init_quantization(self, enable: bool = True, customized_quant_config: Mapping[str, Any] | None = None) -> Self:
        """Record how weights are to be quantized. Without a dict that is int8, of activations too, and a quantized
        checkpoint is loaded as it is."""
        self._record(BOOLEAN.checked("enable", enable, ConfigError), False, customized_quant_config)
        return self

    def _serialize_to_memory(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None:
        """Record what the weights are to become while they load."""
        self._record_asked(enable, weight_only, config)
        self._require_groups_of_loading()
        self._use(None)

    def _serialize_to_path(
        self, folder: str, skips: bool, enable: bool, weight_only: bool, config: Mapping[str, Any] | None
    ) -> None:
        """Use what an equal call has written there or, with `skips`, whatever was written there."""
        if not folder:
            raise ConfigError("model_output_dir: name the folder to write to.")
        self._record_asked(enable, weight_only, config)
        target = Path(os.path.expanduser(folder)) / safe_name(self.name)
        if skips and (target / CONFIG_FILE).is_file():
            self._use(target)
            return
        is_there = self._is_converted(target)
        if not is_there:
            target.parent.mkdir(parents=True, exist_ok=True)
            groups = group_size_of(self._quant_config)
            convert_model(self._path, target, quantization=self.quantization, group_size=groups)
        self._use(target)
        self._describe(target, is_there)

    def record_in(self, config: AsModelConfig) -> None:
        super().record_in(config)
        if self._written is None:
            self._require_groups_of_loading()
        else:  # the weights are what they are to be already
            config.quantization = None

    def _record_asked(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None:
        """Record the quantization that a call to serialize asks for; without one, that of `init_quantization` stays."""
        if enable or config is not None:
            self._record(True, weight_only, config)
            if weight_only and config is not None and config.get("compute_method") == "activate_quant":
                say_idle("weight_only_quant", "compute_method of customized_quant_config says how is computed")
        elif weight_only:
            say_idle("weight_only_quant", "it goes with enable_quant=True")

    def _record(self, enable: bool, weight_only: bool, config: Mapping[str, Any] | None) -> None:
        if config is not None:
            self._recorded, self._quant_config = quantization_of(config), config
        is_as_wanted = enable and self._recorded is None and self._is_quantized
        self.quantization = None if is_as_wanted else kind_of_flags(enable, weight_only, self._recorded)

    @property
    def _is_quantized(self) -> bool:
        return "quantization_config" in read_model_settings(self._original / "config.json")

    def _require_groups_of_loading(self) -> None:
        groups = group_size_of(self._quant_config)
        if groups != DEFAULT_GROUP_SIZE and has_groups(self.quantization):
            raise ConfigError(
                f"group_size={groups}: while a model loads, int4 is made in groups of {DEFAULT_GROUP_SIZE}. "
                "serialize_to_path makes other ones."
            )

    def _is_converted(self, target: Path) -> bool:
        """Whether the folder holds what is to be written; raises where it holds another conversion."""
        found = read_record(target)
        if found is None:
            return False
        kinds = self.quantization and QUANTIZATION.checked("quantization", self.quantization, ConfigError)
        before = read_record(self._original)  # a copy keeps the record of what it was made of
        wanted = ConversionRecord(
            model=self._path,
            quantization=kinds or (before.quantization if before else None),
            group_size=group_size_of(self._quant_config),
        )
        if found != wanted:
            raise ConfigError(
                f"{target} holds {_described(found)}, and {_described(wanted)} is to be written. Remove it, or name "
                "another folder."
            )
        return True

    def _describe(self, target: Path, is_there: bool) -> None:
        """Write the settings; those that are there keep all but what this loader has recorded."""
        model = {
            "name": self.name,
            "max_position_embeddings": self.get_model_context_length(),
            "data_type": self.data_type,
        }
        path = target / CONFIG_FILE
        found = read_yaml(path) if is_there and path.is_file() else self._reference_settings()
        if found.get("model") != model:
            write_yaml(path, {"model": model, **{key: value for key, value in found.items() if key != "model"}})

    def _reference_settings(self) -> dict[str, Any]:
        builder = self.create_reference_runtime_config_builder(self.name, TargetDevice.CPU, [0], max_batch=32)
        runtime = builder.build()
        generation = self.create_reference_generation_config_builder(runtime).build()
        return {"runtime_config": runtime.to_dict(), "generation_config": generation}

    def _use(self, written: Path | None) -> None:
        """Load what was written; None: the original."""
        self._written, self._files = written, None


def _described(record: ConversionRecord) -> str:
    quantization = f"as {record.quantization}" if record.quantization else "as it is"
    groups = f" in groups of {record.group_size}" if "int4" in (record.quantization or "") else ""
    return f"{record.model} {quantization}{groups}"


def safe_name(name: str) -> str:
    """A name that is one folder."""
    safe = name.replace("/", "_").replace("\0", "_")[:_LONGEST_NAME]
    return "model" if safe in ("", ".", "..") else safe
