"""`NamedFields`: the base of structs that people fill in by hand. Using a field that doesn't exist raises an error with
the name and the one that was probably meant, whether the struct is made, read or changed.

Decoders have refusals of their own (`decoding_fault.py`).
"""

from inspect import Signature
from typing import TYPE_CHECKING, Any

import msgspec

from .field_help import signature
from .suggestion import suggestion


class _Made(msgspec.StructMeta):
    if not TYPE_CHECKING:  # type checkers know the fields from the class itself, here as below

        def __call__(cls, *values: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*values, **fields)
            except TypeError:
                for name in fields:
                    if name not in cls.__struct_fields__:
                        raise TypeError(_no_field(cls, name)) from None
                raise

        @property
        def __signature__(cls) -> Signature:
            return signature(cls)


class NamedFields(msgspec.Struct, metaclass=_Made):
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(_no_field(type(self), name))

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in self.__struct_fields__:
                raise AttributeError(_no_field(type(self), name))
            super().__setattr__(name, value)


def _no_field(kind: type[msgspec.Struct], name: str) -> str:
    return f"{kind.__name__} has no field {name!r}.{suggestion(name, kind.__struct_fields__)}"
