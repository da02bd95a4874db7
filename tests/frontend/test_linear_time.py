"""What reads answers takes a time in proportion to their length, whatever stands in them and however they come.

Without a clock: counted is what the package does with text. A call is one, and so is each character of the texts that
it is given. What a call makes of a text is not seen, so a text that is given again and again counts each time.
"""

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from builders.answers import CALLS, SCRAPS, broken
from builders.cases import for_each
from builders.tokenizer_kinds import KINDS

import penstock
from penstock.frontend.parsing import REASONING, TOOL_CALLS, Parsing
from penstock.frontend.text.incremental import Decoding
from penstock.frontend.text.stop_strings import StopChecker

ROOT = str(Path(penstock.__file__).parent / "frontend")
TOOLS = {"f": {"a": {"type": "integer"}, "b": {"type": "string"}}}
# Short texts are followed a little way from each of their marks, so these are long.
SHORT, LONG = 1_500, 6_000
QUICK = 800, 3_200  # enough for the texts that are read always
# Of a text four times as long; twice that much more would be work that grows with the square.
MOST = 6.0


def texts(name, length):
    """Each beginning of a family's call with a scrap or a mark behind it again and again."""
    right = CALLS[name][0]
    beginnings = [right[:end] for end in range(0, len(right), len(right) // 7)]
    for head, tail in itertools.product(beginnings, (*SCRAPS, *filter(None, broken(TOOL_CALLS[name].shown)))):
        yield f"{head!r} and {tail!r}", (head + tail * (length // len(tail) + 1))[:length]


def reading(parsing, text, piece):
    def read():
        reader = parsing.reader("", TOOLS, str)
        for start in range(0, len(text), piece):
            reader.feed(text[start : start + piece])
        reader.feed("", is_last=True)

    return read


class Parameters(dict[CodeType, tuple[str, ...] | None]):
    """The names of what each function of the package is given; None for all other functions."""

    def __missing__(self, code: CodeType) -> tuple[str, ...] | None:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return self.setdefault(code, names if code.co_filename.startswith(ROOT) else None)


PARAMETERS = Parameters()


def operations(work: Callable[[], Any]) -> int:
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        """Called for every call and return of every function, so it looks at no more than it counts."""
        nonlocal count
        if event == "c_call":
            if PARAMETERS[frame.f_code] is not None:
                owner = argument.__self__
                count += 1 + (len(owner) if isinstance(owner, (str, bytes)) else 0)
        elif event == "call" and (names := PARAMETERS[frame.f_code]) is not None:
            count += 1
            given = frame.f_locals
            for name in names:
                if isinstance(text := given[name], (str, bytes, list, tuple)):
                    count += len(text)
            count += getattr(given.get("self"), "length", 0) if frame.f_code.co_name == "__str__" else 0

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def check(short, long, what):
    few, many = operations(short), operations(long)
    assert many <= MOST * few, f"{what}: {few:,} operations, and {many:,} for a text four times as long"


# Where a call may begin at each mark and is none, each would be followed to the text's end.
@for_each("name, unit", [
    ("hermes", "<tool_call>"), ("hermes", "<tool_call>{"),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": '),
    ("ernie", '<tool_call>"'), ("glm45", "<tool_call>"), ("qwen3-coder", "<tool_call><function="),
    ("minimax-m2", '<minimax:tool_call><invoke name="f">'), ("llama3", '\n{"name":"'), ("mistral", "[TOOL_CALLS]f"),
    ("kimi-k2", "<|tool_call_begin|>f"), ("hunyuan", "<tool_calls>[{"), ("pythonic", "\n[f("),
    ("gpt-oss", "<|channel|>"), ("gpt-oss", "<|channel|>commentary to=f<|message|>"),
    ("gpt-oss", "<|channel|>commentary to=f json "), ("gpt-oss", "<|start|>assistant "),
])  # fmt: skip
def test_what_could_be_a_call_again_and_again_is_read_in_linear_time(name, unit):
    parsing = Parsing(None, TOOL_CALLS[name])
    short, long = (unit * (length // len(unit) + 1) for length in QUICK)
    check(reading(parsing, short, LONG), reading(parsing, long, LONG), f"{unit!r} of {name}")


@pytest.mark.long
@pytest.mark.parametrize("piece", [1, 5, LONG])
@pytest.mark.parametrize("name", TOOL_CALLS)
def test_calls_of_every_family_are_read_in_linear_time(name, piece):
    parsing, pairs = Parsing(None, TOOL_CALLS[name]), list(zip(texts(name, SHORT), texts(name, LONG), strict=True))
    for (what, short), (_, long) in pairs if piece == LONG else random.Random(name).sample(pairs, 100):
        check(reading(parsing, short, piece), reading(parsing, long, piece), f"{name}, {what}, by {piece}")


@for_each("name, unit", [
    *itertools.product(("qwen3", "ernie-x1", "granite"), ("<", "mark")),
    *itertools.product(("qwen3",), (" ", "\n", "x", "think> ")),
])  # fmt: skip
def test_thoughts_are_read_in_linear_time_though_they_come_letter_by_letter(name, unit):
    row = REASONING[name]
    unit = row.opening[:-1] if unit == "mark" else unit
    short, long = (unit * (length // len(unit)) for length in (300, 1_200))
    check(reading(Parsing(row, None), short, 1), reading(Parsing(row, None), long, 1), f"{unit!r} of {name}")


@for_each("unit", ["a", "ab", "b", "a" * 30 + "c"])
def test_stop_strings_are_looked_for_in_linear_time(unit):
    def checking(length):
        checker = StopChecker(["a" * 64 + "b", "ab" * 32 + "c", "x"])
        return lambda: [checker.feed(character) for character in (unit * length)[:length]]

    check(checking(500), checking(2_000), f"{unit!r}")


@for_each("kind", KINDS)
def test_tokens_become_text_in_linear_time_though_none_of_them_says_anything(kind):
    backend = KINDS[kind]()
    unknown = backend.get_vocab_size() + 5
    for token_ids in ([unknown], backend.encode(" ", add_special_tokens=False).ids, [3], [unknown, 3]):

        def decoding(length, token_ids=token_ids):
            decoder = Decoding(backend).decoder()
            return lambda: [decoder.feed((token_id,)) for _ in range(length) for token_id in token_ids]

        check(decoding(200), decoding(800), f"{kind}, {token_ids}")
