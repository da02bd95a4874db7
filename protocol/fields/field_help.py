"""Describes options for `help()`, notebooks and editors: docstrings and signatures made from the fields."""

import textwrap
from collections.abc import Collection, Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeVar, get_origin

import msgspec

Class = TypeVar("Class", bound=type[msgspec.Struct])

_WIDTH = 108


def explain_fields(kind: Class) -> Class:
    """Decorate a struct: append its fields to its docstring."""
    kind.__doc__ = f"{kind.__doc__ or ''}\n\nFields:\n\n{in_words(kind)}\n"
    return kind


def in_words(struct: type[msgspec.Struct], leave_out: Collection[str] = ()) -> str:
    """Describe each documented field in a line or two: name, default and meaning."""
    lines: list[str] = []
    for field in _described(struct, leave_out):
        default = "" if field.default is msgspec.NODEFAULT else f" = {field.default!r}"
        words = f"{field.name}{default}: {field.type.__metadata__[0].description}"
        lines += textwrap.wrap(words, _WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def parameters(struct: type[msgspec.Struct], leave_out: Collection[str] = ()) -> list[Parameter]:
    """The fields as keyword parameters, with types that are easier to read than `Annotated`."""
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=_default(field), annotation=field.type.__origin__)
        for field in _described(struct, leave_out)
    ]


def signature(struct: type[msgspec.Struct]) -> Signature:
    return Signature(parameters(struct))


def _described(struct: type[msgspec.Struct], leave_out: Collection[str]) -> Iterator[Any]:
    for field in msgspec.structs.fields(struct):
        if get_origin(field.type) is Annotated and field.name not in leave_out:
            yield field


def _default(field: Any) -> Any:
    return Parameter.empty if field.default is msgspec.NODEFAULT else field.default
