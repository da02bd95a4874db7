"""Better errors for a call with an unknown argument: they say where the argument belongs, or which one was meant.

The decorator keeps signature and docstring, so that editors, checkers and `help()` see the function as it is written.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..protocol.fields.suggestion import nearest, suggestion
from ..protocol.parameters.beams import BeamSearchParams
from ..protocol.parameters.sampling import SamplingParams

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def named_arguments(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Raises `TypeError` for an unknown argument as Python does, with what to write instead."""
    names = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def called(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        if unknown := named.keys() - set(names):
            raise TypeError(_refusal(function.__qualname__, names, min(unknown)))
        return function(*arguments, **named)

    return called


def _refusal(function: str, names: list[str], name: str) -> str:
    refusal = f"{function}() has no argument {name!r}."
    if (kind := _params_of(names)) is not None:
        field = name if name in kind.__struct_fields__ else None
        # Another engine's name of a field, or a slip of the hand that is near to none of the call's own.
        if field is None and nearest(name, names) is None:
            field = nearest(name, kind.__struct_fields__)
        if field is not None:
            call = function.rpartition(".")[2]
            return f"{refusal} It is a field of {kind.__name__}: {call}(…, {kind.__name__}({field}=…))."
    return refusal + suggestion(name, names)


def _params_of(names: list[str]) -> type[SamplingParams] | type[BeamSearchParams] | None:
    if "sampling_params" in names:
        return SamplingParams
    return BeamSearchParams if "params" in names else None
