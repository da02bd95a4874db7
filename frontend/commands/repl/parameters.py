"""The sampling parameters that a user sets during a chat: read as loosely as typed, checked as in scripts.

They are kept apart from the model's own defaults, so that they survive a change of models.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ....protocol.errors import RequestError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.parameters.sampling import SamplingParams
from ...console.printable import aligned
from ..shared.options import KINDS, kind_and_description

# Parameters that are of no use if one person reads one answer; for `seed` there is the engine's option.
NO_USE_HERE = (
    "seed", "frequence_penalty", "n", "logprobs", "prompt_logprobs", "detokenize", "priority", "prediction",
)  # fmt: skip
_ALIASES = {
    "max_thinking_tokens": "reasoning_max_tokens",
    "structural_tag": "guided_structural_tag",
    "frequence_penalty": "frequency_penalty",
    "bad_words_token_ids": "bad_words_ids",
}
DEFAULT = "default"
_TRUTHS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


class Parameter(NamedTuple):
    kind: Any
    description: str


def _parameters() -> Iterator[tuple[str, Parameter]]:
    for field in msgspec.structs.fields(SamplingParams):
        kind, description = kind_and_description(field.type)
        if description is not None and field.name not in (*NO_USE_HERE, *_ALIASES):
            yield field.name, Parameter(kind, description)


PARAMETERS = dict(_parameters())


class Parameters:
    def __init__(self, chosen: dict[str, Any], defaults: SamplingParams) -> None:
        self.chosen = chosen
        self.defaults = defaults  # the model's own

    @property
    def params(self) -> SamplingParams:
        return msgspec.structs.replace(self.defaults, **self.chosen)

    def set(self, name: str, text: str) -> str:
        """Set a parameter; raises `RequestError` for an invalid value and then changes nothing."""
        chosen = {other: value for other, value in self.chosen.items() if other != name}
        if text != DEFAULT:
            chosen[name] = _value(name, text)
        msgspec.structs.replace(self.defaults, **chosen)
        self.chosen = chosen
        return f"{name} is {self._shown(name)} from the next message on."

    def about(self, name: str) -> str:
        value = self._shown(name)
        whose = "" if name in self.chosen else ", as the model has it"
        return f"{name} is {value}{whose}: {PARAMETERS[name].description}. /set {name} {DEFAULT} takes a value back."

    def table(self) -> str:
        """A table of all parameters with their values; those set by the user are marked with a star."""
        rows = [
            (f"{'*' if name in self.chosen else ' '} {name}", self._shown(name), parameter.description)
            for name, parameter in PARAMETERS.items()
        ]
        return "\n".join(aligned(rows))

    def _shown(self, name: str) -> str:
        """The value as it was set: some parameters are aliases of others."""
        return _shown(self.chosen[name] if name in self.chosen else getattr(self.params, name))


def named(text: str) -> str:
    """The parameter with this name or alias, with hyphens or underscores; raises for unknown names, with
    suggestions."""
    name = text.replace("-", "_")
    name = _ALIASES.get(name, name)
    if name in PARAMETERS:
        return name
    if name in NO_USE_HERE:
        command = "chat" if name == "seed" else "generate"  # a seed is an option of the engine
        raise RequestError(f"{name} can't be set in a chat. `penstock {command}` takes --{name.replace('_', '-')}.")
    near = [known for known in PARAMETERS if name and name in known][:3]
    hint = f" Did you mean {' or '.join(near)}?" if near else suggestion(name, PARAMETERS) or " /set lists them."
    raise RequestError(f"There is no parameter {shown(text)}.{hint}")


def values(name: str) -> list[str]:
    """A parameter's possible values, if they are words."""
    is_truth = name in PARAMETERS and PARAMETERS[name].kind is bool
    return ["on", "off", DEFAULT] if is_truth else [DEFAULT]


def _value(name: str, text: str) -> Any:
    kind = PARAMETERS[name].kind
    if kind is bool:
        if text.lower() not in _TRUTHS:
            raise RequestError(f"{name}={shown(text)}: must be on or off.")
        return _TRUTHS[text.lower()]
    if text.startswith("[") and kind in (list[str], list[int]):
        kind = dict[str, Any]  # as JSON
    form = KINDS[kind]
    try:
        value = form.read(text)
    except argparse.ArgumentTypeError as error:
        raise RequestError(f"{name}: {error}") from None
    return [value] if form.action == "append" else value


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    return shown(value) if isinstance(value, msgspec.Struct) else json.dumps(value, ensure_ascii=False, default=repr)
