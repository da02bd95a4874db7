"""Refuses, by name, keys of a config.json that nothing reads and that change the model's answers.

Reading a config through `ReadKeys` records which keys were read. Keys that transformers' class of the family uses are
read here, or have a row in a table. Any other key is ignored, as that class ignores it, unless it

- contradicts what the family always computes (`family_keys.py`),
- names a mechanism that no tensor shows, such as sparse attention (`mechanisms.py`): it is refused, or, where plain
  attention is exact up to some length, the context ends there,
- is a size under another family's name, and the config has none under the name that is read.

So keys of training, generation and other programs need no row. Imports no torch.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ..origin import Origin
from .family_keys import FAMILY_KEYS, FamilyKeys
from .mechanisms import DETAILS, MECHANISMS, OTHER_NAMES, Mechanism

_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_SHOWN = 4  # keys that one sentence names


class ReadKeys(dict[str, Any]):
    """A config that records which of its keys were read. The result of `|` counts as the same config."""

    def __init__(self, config: Mapping[str, Any], read: set[str] | None = None) -> None:
        super().__init__(config)
        self.read = set() if read is None else read

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __or__(self, other: Mapping[str, Any]) -> "ReadKeys":  # type: ignore[override]
        return ReadKeys({**self, **other}, self.read)

    def __ror__(self, other: Mapping[str, Any]) -> "ReadKeys":  # type: ignore[override]
        return ReadKeys({**other, **self}, self.read)


class Unsupported(NamedTuple):
    """A key that changes the answers and that nothing reads."""

    key: str
    value: Any
    what: str  # the mechanism it asks for
    exact_within: int | None = None  # tokens of context for which answers are right without it

    def __str__(self) -> str:
        return f"{self.key}={shown(self.value)}"


class ContextCut(NamedTuple):
    """Why a context ends before the model's own."""

    tokens: int
    own: int
    key: str  # of config.json
    what: str  # the mechanism it asks for beyond `max_position`

    def __str__(self) -> str:
        return f"beyond that, {self.key} in config.json asks for {self.what}, which is not supported"


def unsupported_keys(
    given: Mapping[str, Any], config: ReadKeys, family: str, idle: frozenset[str] = frozenset()
) -> list[Unsupported]:
    """Return those `given` keys that were not read and change the answers; `config` includes the family's defaults.

    Keys in `idle` are switched off in this config by a key that was read, or are computed in any case.
    """
    plain = dict(config)  # so that judging reads nothing
    # Keys that a family fixes count as read, because other families read them.
    unread = given.keys() - (config.read - _own_keys(family).fixed.keys())
    found = (_judged(key, value, plain, given.keys(), family) for key, value in given.items() if key in unread)
    return [one for one in found if one is not None and one.what not in idle]


def context_cut(found: list[Unsupported], own: int) -> ContextCut | None:
    """The shortest context within which plain attention is equivalent to these mechanisms."""
    cuts = [ContextCut(one.exact_within, own, one.key, one.what) for one in found if one.exact_within is not None]
    return min((cut for cut in cuts if cut.tokens < own), default=None)


def refuse_unsupported(found: list[Unsupported], family: str, origin: Origin) -> None:
    if not found:
        return
    named = ", ".join(map(str, found[:_SHOWN])) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    features = " and ".join(dict.fromkeys(one.what for one in found[:_SHOWN]))
    verb, them = ("ask", "these keys") if len(found) > 1 else ("asks", "this key")
    raise ConfigError(
        f"{origin}: {named} {verb} for {features}, which is not supported for models of {family}, and ignoring it "
        f"would change every answer. If the weights were trained without it, remove {them} from config.json; otherwise "
        "use another model."
    )


def _judged(key: str, value: Any, config: Mapping[str, Any], given: Collection[str], family: str) -> Unsupported | None:
    """Return the unsupported mechanism; None if the answers don't depend on the key."""
    own = _own_keys(family)
    if key in own.fixed:
        values = own.fixed[key]
        fits = value is None or any(value == each and type(value) is type(each) for each in values)
        return None if fits else Unsupported(key, value, f"something else than {' or '.join(map(shown, values))}")
    if key in own.harmless.split():
        return None
    name = key.lstrip("_")
    if twin := own.other_names.get(key) or OTHER_NAMES.get(name):
        told = config.get(twin)
        if value in (None, told) or (key not in own.other_names and (twin in given or told is None)):
            return None
        return Unsupported(key, value, f"another {twin} than {shown(told)}")
    mechanism = mechanism_of(name)
    if mechanism is None or mechanism.changes_nothing(value, config):
        return None
    return Unsupported(key, value, mechanism.what, mechanism.exact_within(value, config))


def mechanism_of(name: str) -> Mechanism | None:
    named = next((each for each in MECHANISMS if name in each.keys), None)
    if named is not None or DETAILS.search(words := words_of(name)):
        return named
    return next((each for each in MECHANISMS if each.words is not None and each.words.search(words)), None)


def _own_keys(family: str) -> FamilyKeys:
    return FAMILY_KEYS.get(family, FamilyKeys())


def words_of(key: str) -> str:
    """Split a key into lower-case words without digits: `attnLogit_softcapping2` gives "attn logit softcapping"."""
    return " ".join(_WORD.findall(key)).lower()
