"""Rewrites what strings and numbers must not be as what they may be."""

from collections.abc import Sequence
from dataclasses import replace

from ....protocol.errors import RequestError
from .assertion import Expansion
from .automata import Unreadable
from .branches import KeywordValue, Number, String
from .document import Refusal
from .expressions import other_texts


def finished(branch: String, expansion: Expansion) -> Sequence[String]:
    """The same strings, said without a negation."""
    unwanted = [each for each in branch.no_patterns if each.value is not None]
    if len(unwanted) < len(branch.no_patterns):
        place = next(each.place for each in branch.no_patterns if each.value is None)
        raise Refusal(place, "there is no expression for what is not of that format")
    patterns = list(branch.patterns)
    for each in unwanted:
        try:
            patterns.append(KeywordValue(expansion.expression((), (each.value,)), each.place))
        except Unreadable as error:
            raise Refusal(each.place, f"the contrary of this expression can't be written: {error}") from None
    if branch.values is None and branch.no_values:
        try:
            others = other_texts(tuple(each.value for each in branch.no_values))
            patterns.append(KeywordValue(others, branch.no_values[0].place))
        except Unreadable as error:
            raise Refusal(branch.no_values[0].place, f"all other strings can't be written: {error}") from None
    return (replace(branch, patterns=tuple(patterns), no_patterns=(), no_values=()),)


def finished_number(branch: Number) -> Sequence[Number]:
    if branch.values is None and branch.no_integer:
        raise Refusal(branch.no_integer.place, "numbers can't be told from integers by what they may be")
    if branch.values is None and branch.no_multiples:
        raise Refusal(branch.no_multiples[0].place, "there is no way to write what is no multiple")
    if not branch.is_integer and branch.values is None and _is_beside_an_integer(branch):
        raise RequestError(
            f"json: numbers between {branch.low} and {branch.high} without the integer itself (exclusiveMinimum or "
            "exclusiveMaximum) can't be held exactly, and it is not ignored."
        )
    return (replace(branch, no_integer=None, no_multiples=()),)


def _is_beside_an_integer(branch: Number) -> bool:
    """Between an integer that is not meant and the next one: there the compiler lets the integer in."""
    if branch.low is None or branch.high is None:
        return False
    is_above = branch.is_above_low and branch.low >= 0 and branch.low % 1 == 0 and branch.high < branch.low + 1
    return is_above or (
        branch.is_below_high and branch.high <= 0 and branch.high % 1 == 0 and branch.low > branch.high - 1
    )
