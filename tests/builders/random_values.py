"""Values of any type, and prompts, conversations and parameters made of them: what a careless caller may hand over."""

import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import pathlib
import random
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy

from penstock import SamplingParams

NAMES = [field.name for field in msgspec.structs.fields(SamplingParams)]
TEXTS = ("", "x", "Hello", "\0", "é你好👍", "\ud800", "{{ 1 }}", "{% for %}", "<think>", "a" * 5000, "0", "nan", "user")


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


class Colour(enum.Enum):
    RED = "red"


class Word(str): ...


@dataclasses.dataclass
class Said:
    role: Any = "user"
    content: Any = "x"


class Broken:
    """Whatever it is asked, it fails."""

    def _fail(self, *arguments: Any, **named: Any) -> Any:
        raise OSError("broken on purpose")

    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = __bool__ = __index__ = __contains__ = __call__ = _fail
    __float__ = __int__ = __eq__ = __lt__ = tolist = item = model_dump = encode = keys = get = items = _fail
    __hash__ = object.__hash__


class BrokenMapping(Broken, Mapping): ...  # type: ignore[misc]


class BrokenList(list):
    __iter__ = __getitem__ = Broken._fail


# Made anew each time: some can be gone through once.
SCALARS: tuple[Callable[[random.Random], Any], ...] = (
    lambda chance: None,
    lambda chance: chance.random() < 0.5,
    lambda chance: chance.randrange(-3, 300),
    lambda chance: chance.choice((10**30, -(10**30), 2**31, 2**63, 2**64, 10**400)),
    lambda chance: chance.choice((0.0, -1.5, 1e308, float("nan"), float("inf"), -float("inf"))),
    lambda chance: chance.choice(TEXTS),
    lambda chance: Word(chance.choice(TEXTS)),
)
OBJECTS: tuple[Callable[[random.Random], Any], ...] = (
    lambda chance: chance.choice((b"", b"abc", b"\xff\xfe")),
    lambda chance: bytearray(b"abc"),
    lambda chance: memoryview(b"abc"),
    lambda chance: chance.choice((1j, decimal.Decimal("sNaN"), decimal.Decimal(5), fractions.Fraction(1, 3))),
    lambda chance: chance.choice((object(), object, len, print, Colour.RED, Colour, ..., NotImplemented)),
    lambda chance: (each for each in (1, 2)),
    lambda chance: chance.choice((range(3), range(10**9), {1, "a"}, frozenset("ab"), deque([1]), slice(1))),
    lambda chance: chance.choice((datetime.datetime(2026, 1, 1), pathlib.Path("/x"), io.StringIO("x"), random)),
    lambda chance: chance.choice((numpy.array(5), numpy.array([1, 2]), numpy.array([["a"]]), numpy.float32(1))),
    lambda chance: chance.choice((numpy.int64(5), numpy.zeros((2, 2)), numpy.array([None, {}], dtype=object))),
    lambda chance: chance.choice((Said(), Said(5, 6), Said, ValueError("x"), SamplingParams(), SamplingParams)),
    lambda chance: chance.choice((Broken(), BrokenMapping(), BrokenList([1, 2]), Broken)),
    lambda chance: chance.choice((UserDict({"role": "user", "content": "x"}), OrderedDict(prompt="x"))),
    lambda chance: chance.choice((DEEP, {"prompt": DEEP}, {"prompt": "x", "cache_salt": DEEP}, {5: DEEP})),
)


def any_value(chance: random.Random, depth: int = 3, *, of_json: bool = False) -> Any:
    """Make a value of Python's types, or of JSON's alone."""
    if depth and chance.random() < 0.35:
        kind = chance.random()
        items = [any_value(chance, depth - 1, of_json=of_json) for _ in range(chance.randrange(4))]
        if kind < 0.1 and not of_json:
            return tuple(items)
        if kind < 0.5:
            return items
        names = (chance.choice(TEXTS) if of_json or chance.random() < 0.8 else chance.choice((1, None, (1, 2), 1.5))
                 for _ in items)  # fmt: skip
        return dict(zip(names, items))
    if of_json or chance.random() < 0.5:
        return chance.choice(SCALARS[:6] if of_json else SCALARS)(chance)
    return chance.choice(OBJECTS)(chance)


def _some_of(chance: random.Random, names: tuple[str, ...], of_json: bool) -> dict[Any, Any]:
    chosen = chance.sample(names, chance.randrange(len(names)))
    return {name: any_value(chance, of_json=of_json) for name in chosen}


def any_prompt(chance: random.Random, *, of_json: bool = False) -> Any:
    kind = chance.random()
    if kind < 0.4:
        return any_value(chance, of_json=of_json)
    if kind < 0.6:
        return [any_value(chance, 1, of_json=of_json) for _ in range(chance.randrange(1, 5))]
    parts = ("prompt", "prompt_token_ids", "priority", "cache_salt", "lora_name", "image", "colour")
    good = {"prompt": "Hello"} if chance.random() < 0.3 else {}
    return {**good, **_some_of(chance, parts, of_json)}


def any_message(chance: random.Random, *, of_json: bool = False) -> Any:
    if chance.random() < 0.2:
        return any_value(chance, of_json=of_json)
    fields = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "thinking", "extra")
    message = {"role": chance.choice(("user", "system", "assistant", "tool")), "content": "Hello"}
    message |= _some_of(chance, fields[chance.randrange(3) :], of_json)
    if chance.random() < 0.4:
        part = {"type": "text", "text": "Hello", **_some_of(chance, ("type", "text", "image_url"), of_json)}
        message["content"] = [part, chance.choice((part, any_value(chance, 2, of_json=of_json)))]
    return message


def any_conversation(chance: random.Random, *, of_json: bool = False) -> Any:
    if chance.random() < 0.15:
        return any_value(chance, of_json=of_json)
    return [any_message(chance, of_json=of_json) for _ in range(chance.randrange(4))]


def any_params(chance: random.Random) -> Any:
    """Make a value in the place of parameters; some were right when they were made."""
    if chance.random() < 0.2:
        return any_value(chance)
    params = SamplingParams(temperature=0, max_tokens=2)
    for name in chance.sample(NAMES, chance.randrange(1, 3)):
        setattr(params, name, any_value(chance, 2))
    return params


def any_fields(chance: random.Random, names: tuple[str, ...] = tuple(NAMES)) -> dict[str, Any]:
    """Parameters by their names, in JSON's types."""
    return {name: any_value(chance, 2, of_json=True) for name in chance.sample(names, chance.randrange(1, 3))}
