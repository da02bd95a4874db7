"""Loads the library of one variant and calls its functions: each takes one pointer to a struct of its own.

Without a name the best variant for this processor is taken; PENSTOCK_CPU_VARIANT forces one, or "none". A library that
is missing or older than its sources is compiled first where there is a compiler.
"""

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy

from ..arrays import address
from .libraries import BuildFolders, is_current, library_path
from .variants import VARIANTS, executable_variants, needed_features

_LOG = logging.getLogger(__name__)

# Takes the address of the function's arguments.
Function = Callable[[int], None]

# Fields of a struct: what Python reads, and what is stored.
Int32 = Annotated[int, ctypes.c_int32]
Int64 = Annotated[int, ctypes.c_int64]
Float32 = Annotated[float, ctypes.c_float]
Pointer = Annotated[int | None, ctypes.c_void_p]
Bytes = Annotated[bytes | None, ctypes.c_char_p]


class LibraryError(Exception):
    """Why there are no native kernels here, and what to do about it."""


class Struct(ctypes.Structure):
    """What a kernel reads: its arguments, or a part of them."""

    def address_of(self, field: str) -> int:
        return ctypes.addressof(self) + getattr(type(self), field).offset


StructKind = TypeVar("StructKind", bound=Struct)


def fields_of_annotations(kind: type[StructKind]) -> type[StructKind]:
    """The class, whose annotations become its fields in their order."""
    kind._fields_ = [
        (name, *getattr(given, "__metadata__", (given,)))  # a struct within a struct is its own type
        for name, given in kind.__annotations__.items()
    ]
    return kind


def struct_of(kind: type[StructKind], *values: Any, **fields: Any) -> StructKind:
    """A struct of these values. An array's is its address, so it has to outlive the struct; None is null."""
    given = {name: pointer_to(value) for name, value in fields.items()}
    return kind(*map(pointer_to, values), **given)


def pointer_to(value: Any) -> Any:
    """The address of an array's or a buffer's numbers; any other value as it is."""
    if isinstance(value, numpy.ndarray):
        return address(value)
    return value.data_ptr() if hasattr(value, "data_ptr") else value


class Library:
    """One variant, loaded. Functions are looked up once and kept."""

    def __init__(self, variant: str, path: Path) -> None:
        self.variant = variant
        self.path = path
        self._loaded = ctypes.CDLL(str(path))
        self._functions: dict[str, Function] = {}

    def function(self, name: str) -> Function:
        """The function itself, for the address of a struct (or of an array of them, whatever it expects)."""
        if name not in self._functions:
            found = self._symbol(name)
            found.argtypes, found.restype = [ctypes.c_void_p], None
            self._functions[name] = found
        return self._functions[name]

    def call(self, name: str, arguments: Struct) -> None:
        self.function(name)(ctypes.addressof(arguments))

    def address(self, name: str) -> int:
        """Where the function lies, for a recorded list of calls."""
        return ctypes.cast(self._symbol(name), ctypes.c_void_p).value or 0

    @property
    def identity(self) -> str:
        """A digest of what it was made from, as it carries it itself."""
        return ctypes.string_at(self.address("penstock_identity")).decode()

    def set_threads(self, count: int) -> None:
        """How many threads share the work of a kernel, the caller among them."""
        function = self._symbol("penstock_set_threads")
        function.argtypes, function.restype = [ctypes.c_int64], None
        function(count)

    def portable(self) -> "Library":
        """The same library, with the bits that every variant can give."""
        return _PortableLibrary(self.variant, self.path)

    def _symbol(self, name: str) -> "ctypes._NamedFuncPointer":
        try:
            # Not by attribute: that would hand out one object, and whoever sets its types sets them for all.
            return self._loaded[name]
        except AttributeError:
            raise LibraryError(
                f"{self.path.name} has no {name}. If its source did not compile, "
                "python -m penstock.kernels.cpu.build says why."
            ) from None


class _PortableLibrary(Library):
    """Where a variant computes in an order of its own, it also has a function that does so in the others' order."""

    def _symbol(self, name: str) -> "ctypes._NamedFuncPointer":
        return super()._symbol(f"{name}_portable" if hasattr(self._loaded, f"{name}_portable") else name)


def is_compiled(variant: str) -> bool:
    """Whether a library is there that fits the sources, so that loading it compiles nothing."""
    return is_current(variant, BuildFolders.chosen())


@cache
def load(variant: str | None = None) -> Library:
    """The library of this variant, or of the best one; raises `LibraryError` where there is none."""
    folders = BuildFolders.chosen()
    name = variant or chosen_variant()
    if not is_current(name, folders):
        _compile(name, folders)
    return Library(name, library_path(name, folders.libraries))


def chosen_variant() -> str:
    """The variant for this processor, or the one that is asked for; raises `LibraryError` where there can be none."""
    wanted = os.environ.get("PENSTOCK_CPU_VARIANT")
    if wanted == "none":
        raise LibraryError("PENSTOCK_CPU_VARIANT=none: native kernels are switched off; unset it to use them.")
    executable = executable_variants()
    if not executable:
        missing = f"a processor with {needed_features()}" if VARIANTS else "an x86-64 or 64-bit ARM processor"
        raise LibraryError(f"The native kernels need {missing}; torch's own operations serve instead.")
    if wanted and wanted not in executable:
        what = "this processor cannot execute it" if wanted in VARIANTS else "there is no such variant"
        choice = f"Choose {' or '.join(executable)}, or none for torch's operations"
        raise LibraryError(f"PENSTOCK_CPU_VARIANT={wanted}: {what}. {choice}.")
    return wanted or executable[0]


def _compile(variant: str, folders: BuildFolders) -> None:
    if variant not in VARIANTS:
        raise LibraryError(f"There is no variant {variant!r} of the native kernels, only {', '.join(VARIANTS)}.")
    from .build import BuildError, build, compiler  # few starts compile

    if compiler() is not None:
        _LOG.warning("Compiling the native kernels for %s; this happens once", variant)
    try:
        for said in build(variant, folders):  # whole: what is linked counts as current from then on
            _LOG.warning("%s", said)
    except BuildError as error:
        raise LibraryError(f"The native kernels are not compiled for {variant}: {error}") from None
    except OSError as error:
        raise LibraryError(f"The native kernels are not compiled for {variant}, and cannot be: {error}") from None
