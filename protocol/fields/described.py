"""Metadata on a parameter's field, and its readers: meaning, rule, and whether the field is an alias of another.

The checks, the command line, HTTP's schemas, the page's bounds and docs/configuration.md are all made from it
(docs/adding-a-parameter.md).
"""

from typing import Annotated, Any, get_origin

import msgspec
from msgspec import Meta

from .rules import Rule


def described(meaning: str, rule: Rule | None = None) -> Meta:
    """Metadata for a field. The rule isn't put into `Meta`'s own bounds: decoders would report those in their own
    words."""
    return Meta(description=meaning, extra=None if rule is None else {"rule": rule})


def another_name_of(name: str) -> Meta:
    return Meta(description=f"another name of {name}", extra={"stands_for": name})


def rules_of(struct: type[msgspec.Struct]) -> dict[str, Rule]:
    """The rules by field name, in the order of the fields."""
    return _extra(struct, "rule")


def other_names_in(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The fields that are aliases, each with the field it stands for."""
    return _extra(struct, "stands_for")


def _extra(struct: type[msgspec.Struct], key: str) -> dict[str, Any]:
    metas = ((field.name, field.type.__metadata__[0]) for field in msgspec.structs.fields(struct)
             if get_origin(field.type) is Annotated)  # fmt: skip
    return {name: meta.extra[key] for name, meta in metas if meta.extra and key in meta.extra}
