"""Facts, of which rows are made: each reads keys of a published config from a header, and many write the header too.

A fact that can't be written is a plain function of the header.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from .....records import dataclass
from .model_metadata import Config, ModelMetadata

Fact = Callable[[ModelMetadata], Config]
Reading = Callable[[ModelMetadata, str, Any], Any]
FULL, SLIDING = "full_attention", "sliding_attention"


class WritableFact(ABC):
    """A fact for both directions: calling it reads the config's keys, and `write` takes a config with those keys."""

    @abstractmethod
    def __call__(self, given: ModelMetadata) -> Config: ...

    @abstractmethod
    def write(self, config: Config) -> dict[str, Any]:
        """The header's keys, without the architecture prefix."""


@dataclass(frozen=True)
class Key(WritableFact):
    """A key of the config, and the header's key with the same value."""

    config: str
    header: str
    read: Reading = ModelMetadata.count
    default: Any = None  # if the header has no such key: a value or a function of the header; None: it is required
    meaning: Mapping[Any, Any] = field(default_factory=dict)  # header values that the config writes differently
    always: Any = None  # written if the config has none: llama.cpp requires the key
    is_read: bool = True  # False: other keys are read instead
    is_written: bool = True  # False: another fact writes it

    def __call__(self, given: ModelMetadata) -> Config:
        if not self.is_read:
            return {}
        default = self.default(given) if callable(self.default) else self.default
        value = self.read(given, self.header, default)
        return {self.config: self.meaning.get(value, value)}

    def write(self, config: Config) -> dict[str, Any]:
        value = config.get(self.config, self.always)
        return {self.header: value} if self.is_written and value is not None else {}


def number(config: str, header: str, default: Any = None, meaning: Mapping[Any, Any] = {}) -> Key:
    return Key(config, header, ModelMetadata.number, default, meaning)


@dataclass(frozen=True)
class Windows(WritableFact):
    """Which layers have a window, and its size. By default, all but one of every few layers have it."""

    all_but_every: int

    def __call__(self, given: ModelMetadata) -> Config:
        window, key = given.count("attention.sliding_window", 0), "attention.sliding_window_pattern"
        slides = given.flags(key)
        if slides is None:
            slides = self._usual(given.num_layers, given.count(key, self.all_but_every))
        kinds = [SLIDING if each and window else FULL for each in slides]
        return {"layer_types": kinds, "sliding_window": window or None}

    def write(self, config: Config) -> dict[str, Any]:
        if not config.get("sliding_window"):
            return {}
        slides = [kind == SLIDING for kind in config["layer_types"]]
        is_usual = slides == self._usual(len(slides), self.all_but_every)
        pattern = {} if is_usual else {"attention.sliding_window_pattern": slides}
        return {"attention.sliding_window": config["sliding_window"], **pattern}

    @staticmethod
    def _usual(num_layers: int, every: int) -> list[bool]:
        return [every == 0 or (layer + 1) % every != 0 for layer in range(num_layers)]


def has(config: str, *tensors: str) -> Fact:
    """A key that is true if any layer has one of these tensors (names without the layer)."""
    return lambda given: {config: given.has_in_any_layer(*tensors)}


ATTENTION_BIAS = has("attention_bias", "attn_q.bias", "attn_qkv.bias")
ALL_BIASES = (ATTENTION_BIAS, has("mlp_bias", "ffn_up.bias"))  # as in Llama's configs
LAYER_NORM = number("layer_norm_eps", "attention.layer_norm_epsilon")
