"""The rows of the table: architectures of llama.cpp's, and the published families that their files hold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .common import COMMON
from .facts import Fact, WritableFact
from .model_metadata import Config, ModelMetadata

_Kind = TypeVar("_Kind")


class Family:
    """A published class of models: which keys its configs have, beside those of all families or in their place."""

    def __init__(
        self,
        published_class: str,  # without ForCausalLM behind it
        model_type: str,
        *facts: Fact,
        when: Callable[[ModelMetadata], bool] = lambda given: True,
        **constants: Any,
    ) -> None:
        self.model_type = model_type
        self.facts = facts
        self.fits = when  # whether a header is of this family, where an architecture has several
        self.constants = {"architectures": [f"{published_class}ForCausalLM"], "model_type": model_type, **constants}

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header stands for."""
        found: Config = {}
        for fact in (*COMMON, lambda _: self.constants, *self.facts):
            found |= fact(given)
        return found

    def write(self, config: Config) -> dict[str, Any]:
        """The header's keys, without the architecture before them."""
        found: dict[str, Any] = {}
        for fact in (*COMMON, *self.facts):
            if isinstance(fact, WritableFact):
                found |= fact.write(config)
        return found

    def fact(self, kind: type[_Kind]) -> _Kind | None:
        """Its fact of this kind, if it has one."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)


@dataclass(frozen=True)
class Architecture:
    """An architecture of llama.cpp's: a family of models, and variants of it that headers tell apart."""

    name: str
    family: Family
    variants: tuple[Family, ...] = ()  # a header is of the first one that it fits, and else of the family
    pairs_rows: bool = False  # of queries and keys: neighbours rotate against one another
    deals_value_heads: bool = False  # of delta nets: the first of each key head, then the second of each
    # For writing it, since llama.cpp refuses tensors that an architecture hasn't:
    parts: frozenset[str] = frozenset()  # of a layer; none: `penstock convert` doesn't write it
    biased: frozenset[str] = frozenset()  # parts that may have a bias
    ties_head: bool = False  # it has no head of its own
    has_head_dim: bool = True  # else heads divide the hidden size
    also: tuple[str, ...] = ()  # further families, which are written as this one

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header stands for."""
        return next((family for family in self.variants if family.fits(given)), self.family).read(given)

    def written_as(self, model_type: str) -> Family:
        return next((family for family in self.variants if family.model_type == model_type), self.family)
