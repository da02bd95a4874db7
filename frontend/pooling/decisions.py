"""Decisions: questions about one text, answered by the probabilities of a few labels instead of words.

A question is a `predicate` (how likely is it true), a `choice` among options or a `score` on a scale, in the form of
OpenAI's /v1/decisions. The text comes first in the prompt and the question last, so that all questions share what is
computed for the text. `decide.py` runs them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.outputs import PlainOutput

_MOST_QUESTIONS = 400
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Every question begins so, whatever it asks: the tokens before it are the same for all.
_OPENING = "Question: "


@dataclass(frozen=True)
class Option:
    label: str  # what the model is to write for it
    value: str | bool | int  # what the answer has for it
    words: str
    description: str = ""


@dataclass(frozen=True)
class Question:
    type: str
    name: str | None
    words: str  # the text of the question in the prompt
    options: tuple[Option, ...]


@dataclass(slots=True)
class OptionProbability(PlainOutput):
    value: str | bool | int
    probability: float
    label: str | None = None  # set for score levels


@dataclass(slots=True)
class PredicateAnswer(PlainOutput):
    """How likely a statement about the text is true."""

    name: str | None
    probability: float
    label_mass: float  # the probability of all labels together, of everything that the model could write
    type: str = "predicate"


@dataclass(slots=True)
class ChoiceAnswer(PlainOutput):
    name: str | None
    choice: str | bool
    confidence: float  # its probability
    probabilities: list[OptionProbability]
    label_mass: float
    type: str = "choice"


@dataclass(slots=True)
class ScoreAnswer(PlainOutput):
    name: str | None
    score: float  # the expected level, counted from 0
    confidence: float  # the probability of the likeliest level
    probabilities: list[OptionProbability]
    label_mass: float
    type: str = "score"


Answer = PredicateAnswer | ChoiceAnswer | ScoreAnswer


@dataclass(slots=True)
class Decision(PlainOutput):
    """The answers about one text, in the order of the questions; none if it failed, as `error_msg` says."""

    answers: list[Answer]
    num_prompt_tokens: int = 0  # of all questions' prompts together
    num_cached_tokens: int = 0  # of these, computed for another question or an earlier call
    error_code: int = 200
    error_msg: str | None = None
    receipt: str | None = None  # if it was asked for


# --- questions -------------------------------------------------------------------------------------------------------


def parsed_questions(given: Any) -> list[Question]:
    """Check questions in the form of OpenAI's /v1/decisions."""
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= _MOST_QUESTIONS:
        raise RequestError(f"questions must be a list of 1 to {_MOST_QUESTIONS} questions.")
    return [_question(each, f"questions[{number}]") for number, each in enumerate(given)]


def _question(given: Any, where: str) -> Question:
    kinds = {"predicate": _predicate, "choice": _choice, "score": _score}
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind not in kinds:
        raise RequestError(f"{where}: type must be one of {', '.join(kinds)}, not {shown(kind)}.")
    known = {"type", "instructions", "name"} | {"predicate": set(), "choice": {"choices"}, "score": {"levels"}}[kind]
    if unknown := sorted(map(str, given.keys() - known)):
        raise RequestError(f"{where}: a {kind} has no {unknown[0]}; it has {', '.join(sorted(known))}.")
    instructions, name = _text(given.get("instructions")), given.get("name")
    if not isinstance(instructions, str) or not instructions.strip():
        raise RequestError(f"{where}: instructions must be a text that says what to judge.")
    if name is not None and not isinstance(name, str):
        raise RequestError(f"{where}: name must be text, not {shown(name)}.")
    words, options = kinds[kind](given, where)
    return Question(kind, name, f"{_OPENING}{instructions.strip()}\n{words}", tuple(options))


def _text(given: Any) -> Any:
    """A text, which may be given in parts; anything else as it is."""
    if not isinstance(given, list | tuple):
        return given
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in given]
    return "\n".join(texts) if all(isinstance(text, str) for text in texts) else None  # type: ignore[arg-type]


def _predicate(given: Mapping[str, Any], where: str) -> tuple[str, list[Option]]:
    return "Is that true? Answer with Yes or No alone.", [Option("Yes", True, ""), Option("No", False, "")]


def _choice(given: Mapping[str, Any], where: str) -> tuple[str, list[Option]]:
    entries = [_entry(each, "value", (str, bool), f"{where}.choices") for each in _list(given, "choices", where, 255)]
    if len({(type(value), value) for value, _ in entries}) < len(entries):
        raise RequestError(f"{where}: each of its choices must be another one.")
    # Numbers of one length: none is the beginning of another.
    labels = _LETTERS if len(entries) <= len(_LETTERS) else [str(number) for number in range(101, 101 + len(entries))]
    options = [
        Option(label, value, str(value), description)
        for label, (value, description) in zip(labels, entries, strict=False)
    ]
    kind = "letter" if labels is _LETTERS else "number"
    return f"Options:\n{_listed(options)}\nAnswer with the {kind} of one option alone.", options


def _score(given: Mapping[str, Any], where: str) -> tuple[str, list[Option]]:
    levels = given.get("levels")
    if type(levels) is int and 2 <= levels <= 10:
        options = [Option(str(level), level, str(level)) for level in range(levels)]
        return f"Answer with a level from 0 (lowest) to {levels - 1} (highest), its number alone.", options
    entries = [_entry(each, "label", (str,), f"{where}.levels") for each in _list(given, "levels", where, 10)]
    options = [Option(str(level), level, str(label), description) for level, (label, description) in enumerate(entries)]
    return f"Levels, from the lowest:\n{_listed(options)}\nAnswer with the number of one level alone.", options


def _list(given: Mapping[str, Any], name: str, where: str, most: int) -> Sequence[Any]:
    found = given.get(name)
    if not isinstance(found, list | tuple) or not 2 <= len(found) <= most:
        raise RequestError(f"{where}: {name} must be a list of 2 to {most}.")
    return found


def _entry(given: Any, name: str, types: tuple[type, ...], where: str) -> tuple[Any, str]:
    """Return the value and the description of an option, which may be the value alone."""
    value, description = (given.get(name), given.get("description")) if isinstance(given, Mapping) else (given, None)
    if not isinstance(value, types) or not (description is None or isinstance(description, str)):
        raise RequestError(
            f"{where}: each must be a text, or {{{name!r}: …, 'description': text}}; not {shown(given)}."
        )
    return value, description or ""


def _listed(options: Sequence[Option]) -> str:
    return "\n".join(
        f"{each.label}. {each.words}{f': {each.description}' if each.description else ''}" for each in options
    )


# --- answers ---------------------------------------------------------------------------------------------------------


def answer_of(question: Question, logprobs: Sequence[float]) -> Answer:
    """Make the answer from the log-probability of each option's label."""
    highest = max(logprobs)
    shares = [math.exp(each - highest) for each in logprobs]
    probabilities = [share / sum(shares) for share in shares]
    mass = min(1.0, math.exp(highest) * sum(shares))
    if question.type == "predicate":
        return PredicateAnswer(question.name, probabilities[0], mass)
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    is_score = question.type == "score"
    listed = [
        OptionProbability(option.value, probability, option.words if is_score else None)
        for option, probability in zip(question.options, probabilities, strict=True)
    ]
    if is_score:
        expected = sum(level * probability for level, probability in enumerate(probabilities))
        return ScoreAnswer(question.name, expected, probabilities[best], listed, mass)
    value: Any = question.options[best].value
    return ChoiceAnswer(question.name, value, probabilities[best], listed, mass)
