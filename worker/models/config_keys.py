"""Whether the keys of a config.json that nothing reads change the model's answers; those that do are refused by name.

Reading a config through `ReadKeys` records which keys were read. Each of the others is, in this order,

- fixed by the family (`family_keys.py`): accepted with the values that it has there,
- harmless, because it concerns training, generation or bookkeeping (`HARMLESS`, `HARMLESS_WORDS`),
- a feature: accepted with the value that changes nothing, else refused (`FEATURES`),
- a size under another family's name (`OTHER_NAMES`): accepted if it says the same as the name that is read,
- refused if a word in its name stands for a computation (`COMPUTATIONS`), unless it is switched off,
- unknown, and accepted: published configs carry whatever their authors' tools wrote into them.

All families' tables are in `key_tables.py`. Imports no torch.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from .family_keys import FAMILY_KEYS, FamilyKeys
from .key_tables import COMPUTATIONS, FEATURES, HARMLESS, HARMLESS_WORDS, OTHER_NAMES
from .origin import Origin

_WORD = re.compile(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*")
_SHOWN = 4  # keys that one sentence names


class ReadKeys(dict[str, Any]):
    """A config that knows which of its keys were read. What is made of it with `|` counts as the same config."""

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
    what: str  # that it asks for

    def __str__(self) -> str:
        return f"{self.key}={shown(self.value)}"


def unsupported_keys(
    given: Mapping[str, Any], config: ReadKeys, family: str, idle: frozenset[str] = frozenset()
) -> list[Unsupported]:
    """Of the `given` keys those that were not read and change the answers; `config` has the family's defaults too.

    What `idle` names is switched off in this config by a key that was read.
    """
    plain = dict(config)  # so that judging reads nothing
    # What a family fixes is read for the sake of others.
    unread = given.keys() - (config.read - _own_keys(family).fixed.keys())
    found = (_judged(key, value, plain, family) for key, value in given.items() if key in unread)
    return [one for one in found if one is not None and one.what not in idle]


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


def _judged(key: str, value: Any, config: Mapping[str, Any], family: str) -> Unsupported | None:
    """None where the answers don't depend on the key."""
    own = _own_keys(family)
    if key in own.fixed:
        values = own.fixed[key]
        fits = value is None or any(value == each and type(value) is type(each) for each in values)
        return None if fits else Unsupported(key, value, f"something else than {' or '.join(map(shown, values))}")
    name, words = key.lstrip("_"), words_of(key)
    if key in own.harmless.split() or HARMLESS_WORDS.search(words):
        return None
    if twin := own.other_names.get(key):
        told = config.get(twin)
        return None if value in (None, told) else Unsupported(key, value, f"another {twin} than {shown(told)}")
    if HARMLESS.fullmatch(key):
        return None
    if feature := FEATURES.get(name):
        return None if feature.changes_nothing(value, config) else Unsupported(key, value, feature.what)
    if twin := OTHER_NAMES.get(name):
        told = config.get(twin)
        return None if value in (None, told) else Unsupported(key, value, f"another {twin} than {shown(told)}")
    computation = next((one for one in COMPUTATIONS if one.words.search(words)), None)
    if computation is None or computation.changes_nothing(value, config):
        return None
    return Unsupported(key, value, computation.what)


def _own_keys(family: str) -> FamilyKeys:
    return FAMILY_KEYS.get(family, FamilyKeys())


def words_of(key: str) -> str:
    """Small letters without digits, with spaces between: "attn logit softcapping" of `attnLogit_softcapping2`."""
    return " ".join(_WORD.findall(key)).lower()
