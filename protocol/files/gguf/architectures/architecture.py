"""Rows of the table: llama.cpp's architectures, and the published model families in their files."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from .....records import dataclass
from .common import COMMON
from .facts import Fact, WritableFact
from .model_metadata import Config, ModelMetadata

_Kind = TypeVar("_Kind")


class Family:
    """A published class of models: the keys of its configs, in addition to or instead of those of all families."""

    def __init__(
        self,
        published_class: str,  # without its purpose behind it
        model_type: str,
        *facts: Fact,
        when: Callable[[ModelMetadata], bool] = lambda given: True,
        purpose: str = "ForCausalLM",
        **constants: Any,
    ) -> None:
        self.model_type = model_type
        self.facts = facts
        self.fits = when  # for a variant: recognizes its headers
        self.constants = {"architectures": [f"{published_class}{purpose}"], "model_type": model_type, **constants}

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header describes."""
        found: Config = {}
        for fact in (*COMMON, lambda _: self.constants, *self.facts):
            found |= fact(given)
        return found

    def write(self, config: Config) -> dict[str, Any]:
        """The header's keys, without the architecture prefix."""
        found: dict[str, Any] = {}
        for fact in (*COMMON, *self.facts):
            if isinstance(fact, WritableFact):
                found |= fact.write(config)
        return found

    def fact(self, kind: type[_Kind]) -> _Kind | None:
        """The family's fact of this kind, if it has one."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)


@dataclass(frozen=True)
class Architecture:
    """llama.cpp's form of a family, and variants of it that headers distinguish."""

    name: str
    family: Family
    variants: tuple[Family, ...] = ()  # the first one that fits a header is used, otherwise the family
    pairs_rows: bool = False  # in queries and keys, adjacent rows rotate together
    deals_value_heads: bool = False  # in delta nets: the first of each key head, then the second of each
    # The layers behind a pooled row, by their names in the file, as published checkpoints have them.
    behind: Mapping[str, str] = field(default_factory=lambda: {"cls.output": "score"})
    # For writing, since llama.cpp refuses tensors that an architecture doesn't have:
    parts: frozenset[str] = frozenset()  # of a layer; empty: `penstock convert` can't write it
    biased: frozenset[str] = frozenset()  # parts that may have a bias
    ties_head: bool = False  # it has no separate head
    has_head_dim: bool = True  # otherwise the head size is hidden size / heads
    also: tuple[str, ...] = ()  # further families that are written like this one

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header describes."""
        return next((family for family in self.variants if family.fits(given)), self.family).read(given)

    def written_as(self, model_type: str) -> Family:
        return next((family for family in self.variants if family.model_type == model_type), self.family)
