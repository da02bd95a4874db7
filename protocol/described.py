"""What stands on a parameter's field, and who asks for it: its meaning, its rule, or that it is another one's name.

From there the checks, the command line, HTTP's schemas, the page's bounds and docs/configuration.md are made
(docs/adding-a-parameter.md). Knows no parameter.
"""

from typing import Annotated, Any, get_origin

import msgspec
from msgspec import Meta

from .rules import Rule


def described(meaning: str, rule: Rule | None = None) -> Meta:
    """What stands on a field. The rule is no bound of `Meta`'s own, of which decoders would speak in their words."""
    return Meta(description=meaning, extra=None if rule is None else {"rule": rule})


def another_name_of(name: str) -> Meta:
    return Meta(description=f"another name of {name}", extra={"stands_for": name})


def rules_of(struct: type[msgspec.Struct]) -> dict[str, Rule]:
    """By the fields' names, in their order."""
    return _extra(struct, "rule")


def other_names_in(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Of fields that stand for another one: that one's name."""
    return _extra(struct, "stands_for")


def _extra(struct: type[msgspec.Struct], key: str) -> dict[str, Any]:
    metas = ((field.name, field.type.__metadata__[0]) for field in msgspec.structs.fields(struct)
             if get_origin(field.type) is Annotated)  # fmt: skip
    return {name: meta.extra[key] for name, meta in metas if meta.extra and key in meta.extra}
