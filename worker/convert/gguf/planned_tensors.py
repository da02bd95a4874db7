"""Plans the tensors of a GGUF file: which of the model's lie in each, one behind the other, and how they are changed.

    experts       [experts, outputs, inputs] of the matrices of all of a layer
    fused         the rows of several, as Phi-3 has them
    pairs         rows of queries and keys, so that numbers rotate against their neighbours, not against the other half
    norms         with the 1 that Gemma's are stored without

It works on names and shapes and reads no weights.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ....protocol.errors import ConfigError
from ...layers.rope import inverse_frequencies
from ...models.config import ModelConfig
from ...models.text_config import PICTURE_TENSORS
from ..conversion_plan import StoredTensor
from .architectures import Architecture, experts_of

TypeOf = Callable[[str, tuple[int, ...]], str]

_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"(.+)\.(\d+)\.([^.]+)")
_NOT_READ = ("rotary_emb.inv_freq",)


@dataclass(frozen=True)
class PlannedTensor:
    """One tensor of the file."""

    shape: tuple[int, ...]
    sources: tuple[StoredTensor, ...] = ()  # their rows one behind the other
    head_dim: int = 0  # rows are put in pairs within heads of so many; 0: they stay in order
    added: float = 0.0  # to all numbers
    values: Tensor | None = None  # in place of sources: float32, as it is written


class _Place(NamedTuple):
    """Where a tensor goes: within which one, and before or behind which others of it."""

    name: str
    order: int = 0
    is_stacked: bool = False


def planned_tensors(
    config: ModelConfig, architecture: Architecture, stored: Iterable[StoredTensor]
) -> dict[str, PlannedTensor]:
    """By their names in the file, in its order."""
    places = _Places(config, architecture)
    found: dict[str, list[tuple[_Place, StoredTensor]]] = {}
    for source in stored:
        if (place := places.of(source.name)) is not None:
            found.setdefault(place.name, []).append((place, source))
    planned = {name: _planned(name, parts, config, architecture) for name, parts in found.items()}
    return dict(sorted((planned | _of_positions(config)).items(), key=_order))


def _order(item: tuple[str, PlannedTensor]) -> tuple[int, str]:
    """Those of no layer first, then layer by layer, as they are read."""
    match = re.match(r"blk\.(\d+)\.", item[0])
    return (int(match[1]) if match else -1, item[0])


class _Places:
    def __init__(self, config: ModelConfig, architecture: Architecture) -> None:
        self._config, self._architecture = config, architecture
        self._experts = experts_of(config)
        self._own_names = {
            part: (name, order) for name, parts in architecture.fused.items() for order, part in enumerate(parts)
        }

    def of(self, name: str) -> _Place | None:
        """None: it isn't part of the file. Raises where llama.cpp has no place for it."""
        is_head = name.startswith("lm_head.")
        if PICTURE_TENSORS.match(name) or name.endswith(_NOT_READ) or (is_head and self._config.tie_word_embeddings):
            return None
        if (match := _LAYER.fullmatch(name)) is None:
            if name in _TOP:
                return _Place(_TOP[name])
        elif int(match[1]) >= self._config.num_layers:  # of what guesses further tokens
            return None
        elif place := self._in_layer(match[2]):
            return place._replace(name=f"blk.{match[1]}.{place.name}")
        raise ConfigError(
            f"The model has {name}, for which llama.cpp's architecture {self._architecture.name} has no place, so it "
            "is not written as GGUF."
        )

    def _in_layer(self, name: str) -> _Place | None:
        experts = self._config.experts
        if experts is not None and name == f"{experts.names.block}.{experts.names.choice_bias}":
            return _Place("exp_probs_b.bias")
        module, _, kind = name.rpartition(".")
        if (match := _EXPERT.fullmatch(module)) and kind == "weight":
            stack = self._experts.get(f"{match[1]}.{match[3]}")
            return None if stack is None else _Place(f"{stack}.weight", int(match[2]), is_stacked=True)
        own = self._architecture.modules.get(module) or self._experts.get(module)
        if own is None or (kind == "bias" and own not in self._architecture.biased) or kind not in ("weight", "bias"):
            return None
        whole, order = self._own_names.get(own, (own, 0))
        return _Place(f"{whole}.{kind}", order)


def _planned(
    name: str, parts: list[tuple[_Place, StoredTensor]], config: ModelConfig, architecture: Architecture
) -> PlannedTensor:
    parts = sorted(parts, key=lambda part: part[0].order)
    sources = tuple(source for _, source in parts)
    part = re.sub(r"^blk\.\d+\.", "", name)
    planned = PlannedTensor(_shape(name, parts, config), sources)
    if part.endswith("_norm.weight") and config.family.norm.is_stored_less_one:
        return replace(planned, added=1.0)
    if architecture.rotates_pairs and part.partition(".")[0] in ("attn_q", "attn_k"):
        return replace(planned, head_dim=config.heads[0].head_dim)
    return planned


def _shape(name: str, parts: list[tuple[_Place, StoredTensor]], config: ModelConfig) -> tuple[int, ...]:
    shapes = {source.shape for _, source in parts}
    *rows, inputs = shape = parts[0][1].shape
    if parts[0][0].is_stacked:
        count = config.experts.num_experts if config.experts is not None else 0
        if len(shapes) > 1 or [place.order for place, _ in parts] != list(range(count)):
            raise ConfigError(f"For {name} the model holds {len(parts)} experts, not {count} of one shape.")
        return (count, *shape)
    if name.endswith(("_shexp.weight", "exp_probs_b.bias")) and rows == [1]:
        return (inputs,)
    return shape if len(parts) == 1 else (sum(source.shape[0] for _, source in parts), *shape[1:])


def _of_positions(config: ModelConfig) -> dict[str, PlannedTensor]:
    """What angles are divided by, where llama.cpp reads that as a tensor."""
    rope = config.ropes.ropes[0]
    if rope.kind == "llama3":
        plain = inverse_frequencies(replace(rope, kind="default"), rope.max_position)
        return {"rope_freqs.weight": _values(plain / inverse_frequencies(rope, rope.max_position))}
    if rope.kind == "longrope":
        return {
            f"rope_factors_{length}.weight": _values(torch.tensor(rope.figures[f"{length}_factor"]))
            for length in ("long", "short")
        }
    return {}


def _values(numbers: Tensor) -> PlannedTensor:
    return PlannedTensor(tuple(numbers.shape), values=numbers.float())
