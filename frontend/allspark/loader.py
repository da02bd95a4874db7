"""What the loaders of a model have in common: its tokenizer, its context, and builders that begin with its own files.

A loader reads the small files beside the weights and records what is wanted of the weights; a process of the tree reads
and converts those when the model starts.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...protocol.files.model_file import read_model_settings
from ..models.model_files import ModelFiles, find_model
from .generation_config import ASGenerationConfigBuilder
from .model_config import AsModelConfig, Quantization
from .names import TargetDevice
from .runtime_builder import AsModelRuntimeConfigBuilder

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length")
_NO_LIMIT = 2**31 - 1


class ModelLoader(ABC):
    """Every method that doesn't get something returns the loader."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        self.data_type: str | None = None
        self.quantization: Quantization | None = None
        self._path = path
        self._files: ModelFiles | None = None
        self._tokenizer: Tokenizer | None = None
        self._config: dict[str, Any] | None = None

    @property
    @abstractmethod
    def source(self) -> str:
        """What an engine is to load: a folder, bundled name or hub id."""

    @property
    def files(self) -> ModelFiles:
        """Where the model lies; found, and if need be downloaded, when first asked for."""
        if self._files is None:
            self._files = find_model(self.source)
        return self._files

    def load_model(self, *arguments: Any, **options: Any) -> Self:
        """Make sure that the model is there; its weights are read when it starts."""
        return self.read_model_config()

    def read_model_config(self) -> Self:
        self._config = read_model_settings(self.files.folder / "config.json")
        return self

    def init_tokenizer(self, padding_side: str = "left") -> Self:
        from ..text.tokenizer import Tokenizer

        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.files.tokenizer_folder, self.files.folder)
        return self

    def get_tokenizer(self) -> "Tokenizer | None":
        """None before `init_tokenizer`."""
        return self._tokenizer

    def get_model_config(self) -> dict[str, Any]:
        """What the model's config.json says."""
        if self._config is None:
            self.read_model_config()
        return copy.deepcopy(self._config or {})

    def get_model_context_length(self) -> int:
        """The longest request that the model was made for, in tokens."""
        return context_length(self.get_model_config())

    def free_model(self) -> Self:
        """Nothing is held here, and an engine's copy is its own."""
        return self

    def free_memory_serialize_file(self) -> Self:
        """Likewise: nothing is copied to a file in memory."""
        return self

    def create_reference_runtime_config_builder(
        self,
        engine_model_name: str,
        device_type: TargetDevice | str,
        device_ids: Sequence[int] | None,
        max_batch: int,
        max_context_length: int = -1,
    ) -> AsModelRuntimeConfigBuilder:
        """A builder with all that this loader knows. -1 is the model's own context."""
        length = self.get_model_context_length() if max_context_length == -1 else max_context_length
        builder = AsModelRuntimeConfigBuilder()
        builder.model_name(engine_model_name).model_file_path(self.source).compute_unit(device_type, device_ids)
        self.record_in(builder.max_length(length).max_batch(max_batch).new_runtime_cfg)
        return builder

    def record_in(self, config: AsModelConfig) -> None:
        config.data_type = self.data_type
        config.quantization = self.quantization

    def create_reference_generation_config_builder(
        self, runtime_cfg: AsModelConfig | None = None
    ) -> ASGenerationConfigBuilder:
        """A builder that begins with the model's own defaults, and the longest request of model and engine."""
        builder = self._generation_defaults()
        if runtime_cfg is not None:
            builder.max_length(min(self.get_model_context_length(), runtime_cfg.engine_max_length))
        return builder

    def _generation_defaults(self) -> ASGenerationConfigBuilder:
        """Those of generation_config.json."""
        own = read_model_settings(self.files.folder / "generation_config.json")
        return ASGenerationConfigBuilder(own or None)


def context_length(config: dict[str, Any]) -> int:
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, dict) else {}):
        for key in _CONTEXT_KEYS:
            if isinstance(found := part.get(key), int) and found > 0:
                return found
    return _NO_LIMIT


def context_of(folder: Path) -> int:
    """The context of the model that lies in a folder."""
    return context_length(read_model_settings(folder / "config.json"))
