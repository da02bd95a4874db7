"""A row of the table: an architecture of llama.cpp's, the families that its files hold, and how their tensors lie."""

from collections.abc import Callable
from typing import Any, TypeVar

from .common import COMMON, require_sizes
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
        self.fits = when  # a header, where an architecture has several families
        self.constants = {"architectures": [f"{published_class}ForCausalLM"], "model_type": model_type, **constants}

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header stands for."""
        require_sizes(given)
        found: Config = {}
        for fact in COMMON:
            found |= fact(given)
        found |= self.constants
        for fact in self.facts:
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


class Architecture:
    """How llama.cpp has one family, or a few."""

    def __init__(
        self,
        name: str,
        *families: Family,
        pairs_rows: bool = False,
        deals_value_heads: bool = False,
        parts: frozenset[str] = frozenset(),
        biased: frozenset[str] = frozenset(),
        ties_head: bool = False,
        has_head_dim: bool = True,
        also: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.families = families  # a header is of the first one that it fits
        self.pairs_rows = pairs_rows  # of queries and keys: neighbours rotate against one another
        self.deals_value_heads = deals_value_heads  # of delta nets: the first of each key head, then the second of each
        # For writing it, since llama.cpp refuses tensors that an architecture hasn't:
        self.parts = parts  # of a layer; none: `penstock convert` doesn't write it
        self.biased = biased  # parts that may have a bias
        self.ties_head = ties_head  # it has no head of its own
        self.has_head_dim = has_head_dim  # else heads divide the hidden size
        self.also = also  # further families, which are written as the last one of its own

    def read(self, given: ModelMetadata) -> Config:
        """The config that a header stands for."""
        return next(family for family in self.families if family.fits(given)).read(given)

    def family(self, model_type: str) -> Family:
        """The one that models of this type are written as."""
        return next((family for family in self.families if family.model_type == model_type), self.families[-1])
