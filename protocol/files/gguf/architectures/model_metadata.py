"""The metadata of a GGUF file, read by key and checked for type; used by the facts of families.

Keys are named as in llama.cpp's converters, without the architecture prefix. Floats are float32 in the file and are
returned as the shortest decimal that is the same float32: 1e-06, not 9.999999974752427e-07.
"""

import math
import os
import re
import struct
from typing import Any

from ....fields.rules import shown
from ..parts import GgufModel
from ..refusals import UNSUPPORTED, MalformedError

Config = dict[str, Any]  # the content of a published config.json

ARCHITECTURE_KEY = "general.architecture"
_MOST_LAYERS = 4096
_LARGEST = 1 << 31
_MOST_FACTORS = 8192  # of a head's rotation
_ARCHITECTURE = re.compile(r"[\w.-]{1,64}")  # used as a prefix of keys and in error messages


class ModelMetadata:
    """The metadata of a model's header, and its tensors."""

    def __init__(self, model: GgufModel) -> None:
        self._metadata = model.metadata
        self._tensors = model.tensors
        self.architecture = architecture_of(model.metadata)
        self.num_layers = self.count("block_count") - self.count("nextn_predict_layers", 0)
        if not 0 < self.num_layers <= _MOST_LAYERS:
            raise MalformedError(f"has {self.num_layers:,} layers, and a model has 1 to {_MOST_LAYERS:,}")

    def has(self, key: str) -> bool:
        return self._name(key) in self._metadata

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number, 0 or more; or a list with the same number for all layers."""
        value = self._value(key, default)
        if isinstance(value, list) and value and all(each == value[0] for each in value):
            value = value[0]
        return self._count(key, value)

    def counts(self, key: str, default: int | None = None) -> list[int]:
        """A whole number for each layer; a single number applies to all."""
        value = self._value(key, default)
        if not isinstance(value, list):
            return [self._count(key, value)] * self.num_layers
        if len(value) < self.num_layers:
            raise MalformedError(f"has {len(value):,} values of {self._name(key)}, and {self.num_layers:,} layers")
        return [self._count(key, each) for each in value[: self.num_layers]]

    def most(self, key: str, default: int | None = None) -> int:
        """The largest count of all layers."""
        return max(self.counts(key, default))

    @property
    def head_dim(self) -> int:
        hidden, heads = self.count("embedding_length"), self.most("attention.head_count")
        return self.count("attention.key_length", hidden // max(heads, 1))

    def flags(self, key: str) -> list[bool] | None:
        """True or false for each layer; None if there is no such list."""
        value = self._metadata.get(self._name(key))
        if not isinstance(value, list):
            return None
        if len(value) < self.num_layers or not all(each in (0, 1) for each in value):
            raise MalformedError(f"must have true or false for each of {self.num_layers:,} layers at {self._name(key)}")
        return [bool(each) for each in value[: self.num_layers]]

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise MalformedError(f"has {self._name(key)}={shown(value)} where a number belongs")
        return shortest(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if type(value) is not bool:
            raise MalformedError(f"has {self._name(key)}={shown(value)} where true or false belongs")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise MalformedError(f"has {self._name(key)}={shown(value)} where a text belongs")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty if there is none."""
        value = self._metadata.get(self._name(key), [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise MalformedError(f"has {self._name(key)}={shown(value)} where texts belong")
        return value

    def has_tensor(self, *names: str) -> bool:
        """Whether the file has any of these."""
        return any(name in self._tensors for name in names)

    def has_in_layers(self, *parts: str) -> list[bool]:
        """For each layer, whether it has any of these tensors (names without the layer)."""
        return [self.has_tensor(*(f"blk.{layer}.{part}" for part in parts)) for layer in range(self.num_layers)]

    def has_in_any_layer(self, *parts: str) -> bool:
        return any(self.has_in_layers(*parts))

    def rows(self, name: str) -> int:
        """The number of rows of a matrix that every model has."""
        placed = self._tensors.get(name)
        if placed is None or len(placed.info.shape) != 2:
            raise MalformedError(f"has no matrix {name}, which every model has")
        return placed.info.shape[0]

    def factors(self, name: str) -> list[float] | None:
        """The numbers of a short float32 vector, if the file has it."""
        if name not in self._tensors:
            return None
        file, info = self._tensors[name]
        count = info.nbytes // 4
        if info.type != "F32" or count > _MOST_FACTORS:
            raise MalformedError(f"has {name} in {info.type}, with {info.nbytes:,} bytes; it must be a vector of F32")
        with open(file, "rb") as opened:
            content = os.pread(opened.fileno(), info.nbytes, info.offset)
        if len(content) < info.nbytes:
            raise MalformedError("was cut short while it was read")
        found = struct.unpack(f"<{count}f", content)
        if not all(math.isfinite(each) and each > 0 for each in found):
            raise MalformedError(f"has {name} with values that are not above 0")
        return [shortest(each) for each in found]

    def _name(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def _value(self, key: str, default: Any) -> Any:
        value = self._metadata.get(self._name(key), default)
        if value is None:
            raise MalformedError(f"has no {self._name(key)} in its metadata")
        return value

    def _count(self, key: str, value: Any) -> int:
        if isinstance(value, list):
            raise MalformedError(f"has {self._name(key)} differ by layer, which its family hasn't", UNSUPPORTED)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise MalformedError(f"has {self._name(key)}={shown(value)} where a count belongs")
        return value


# Files of other types, and what to do with them.
_ENCODER = "holds what a model sees or hears with (mmproj), not the model", "Give the model's own file."
_OTHER_TYPES = {
    "mmproj": _ENCODER,
    "adapter": (
        "is a LoRA adapter",
        "Give the model that it was trained on, with enable_lora=True, and the adapter to load_lora().",
    ),
    "imatrix": ("holds an importance matrix, by which models are quantized", "Give a model's own file."),
}
_OTHER_ARCHITECTURES = {"clip": _ENCODER}  # in files from before there were types


def architecture_of(metadata: dict[str, Any]) -> str:
    kind, found = metadata.get("general.type", "model"), metadata.get(ARCHITECTURE_KEY)
    for value, others in ((kind, _OTHER_TYPES), (found, _OTHER_ARCHITECTURES)):
        if isinstance(value, str) and value in others:
            raise MalformedError(*others[value])
    if not isinstance(found, str) or not _ARCHITECTURE.fullmatch(found):
        raise MalformedError(f"has {ARCHITECTURE_KEY}={shown(found)} where the name of one belongs")
    return found


def shortest(value: float) -> float:
    """The decimal with the fewest digits that is the same float32."""
    if isinstance(value, int) or abs(value) > 3e38:
        return value
    stored = struct.pack("<f", value)
    for digits in range(1, 10):
        found = float(f"{value:.{digits}g}")
        if abs(found) < 3.4e38 and struct.pack("<f", found) == stored:
            return found
    return value
