"""Rewrites keywords that count properties, or require that some exist, as lists of an object's properties."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import comb

from .assertion import Expansion
from .automata import Unreadable
from .branches import Member, Object, Somewhere
from .document import ANYTHING, NOTHING, Literals, Refusal, both
from .objects import LAST, met, with_member, without_member

_MOST_WAYS = 128


def finished(branch: Object, expansion: Expansion) -> list[Object]:
    branches = [replace(branch, somewhere=())]
    for somewhere in branch.somewhere:
        branches = [found for each in branches for found in _found(each, somewhere, expansion)]
        if len(branches) > _MOST_WAYS:
            raise Refusal(somewhere.location, f"it could hold in more than {_MOST_WAYS} ways")
    return [found for each in branches for found in _counted(each, expansion)]


# --- some property ----------------------------------------------------------------------------------------------------


def _found(branch: Object, somewhere: Somewhere, expansion: Expansion) -> Iterator[Object]:
    """Make one branch for each property that may be the required one."""
    for name, member in branch.members.items():
        if member.literals is not NOTHING and _is_meant(somewhere, name, expansion):
            yield with_member(branch, name, somewhere.literals, somewhere.location, expansion)
    for name in branch.required:
        if name not in branch.members and _is_meant(somewhere, name, expansion):
            yield with_member(branch, name, somewhere.literals, somewhere.location, expansion)
    literals = [*branch.patterns.values(), branch.rest]
    if all(expansion.is_empty(both(each, somewhere.literals)) for each in literals):
        return
    yield from _with_another(branch, somewhere, expansion)


def _is_meant(somewhere: Somewhere, name: str, expansion: Expansion) -> bool:
    try:
        if somewhere.pattern is not None:
            return expansion.matches(somewhere.pattern, name)
        return name not in somewhere.names and not any(expansion.matches(each, name) for each in somewhere.patterns)
    except Unreadable as error:
        raise Refusal(somewhere.location, f"whether it applies to {name[:200]!r} is unclear: {error}") from None


def _with_another(branch: Object, somewhere: Somewhere, expansion: Expansion) -> Iterator[Object]:
    """Require a property that the branch has no name for, by requiring more properties than it has names."""
    is_any = somewhere.literals == () and somewhere.pattern is None and not somewhere.patterns
    if not is_any or branch.patterns:
        raise Refusal(somewhere.location, "whether some other property fits is not known before all are written")
    named = {name: Member(LAST, ANYTHING) for name in sorted(somewhere.names - {*branch.members, *branch.required})}
    branch = met(branch, (named, {}, ANYTHING), somewhere.location, expansion)
    optional = [
        name
        for name, member in branch.members.items()
        if name not in branch.required and member.literals is not NOTHING
    ]
    if 1 << len(optional) > _MOST_WAYS:
        raise Refusal(somewhere.location, f"it could hold in more than {_MOST_WAYS} ways")
    for number in range(len(optional) + 1):
        for chosen in combinations(optional, number):
            found = _with_exactly(branch, optional, chosen, somewhere.location, expansion)
            yield replace(
                found, least=max(found.least, len(found.required) + 1), counted=found.counted or somewhere.location
            )


def _with_exactly(
    branch: Object, optional: list[str], chosen: tuple[str, ...], location: str, expansion: Expansion
) -> Object:
    for name in optional:
        if name in chosen:
            branch = with_member(branch, name, (), location, expansion)
        else:
            branch = without_member(branch, name, location, expansion)
    return branch


# --- counted properties -----------------------------------------------------------------------------------------------


def _counted(branch: Object, expansion: Expansion) -> list[Object]:
    """Keep counts if every named property is required or absent; drop those that restrict nothing."""
    if branch.least == 0 and branch.most is None:
        return [branch]
    optional = [
        name
        for name, member in branch.members.items()
        if name not in branch.required and not expansion.is_empty(member.literals)
    ]
    is_closed = all(expansion.is_empty(each) for each in (*branch.patterns.values(), branch.rest))
    least = max(branch.least - len(branch.required), 0)
    most = None if branch.most is None else branch.most - len(branch.required)
    if is_closed and most is not None and most >= len(optional):
        most = None
    if (most is not None and most < 0) or (is_closed and least > len(optional)):
        return []
    if least == 0 and most is None:
        return [replace(branch, least=0, most=None)]
    if not optional:
        return [branch]
    if is_closed:
        return list(_subsets(replace(branch, least=0, most=None), optional, least, most))
    if most is None:
        return list(_with_others(branch, optional, least))
    return list(_each_subset(branch, optional, most))


def _check(ways: int, branch: Object) -> None:
    if ways > _MOST_WAYS:
        raise Refusal(branch.counted, f"the properties could be chosen in more than {_MOST_WAYS} ways")


def _subsets(branch: Object, optional: list[str], least: int, most: int | None) -> Iterator[Object]:
    """Without other properties: require some, and allow no more of the optional ones than the maximum."""
    if most is None:
        _check(comb(len(optional), least), branch)
        for chosen in combinations(optional, least):
            yield _required(branch, chosen)
        return
    _check(comb(len(optional), most) * comb(most, least), branch)
    for allowed in combinations(optional, most):
        narrowed = _forbidden(branch, [name for name in optional if name not in allowed])
        for chosen in combinations(allowed, least):
            yield _required(narrowed, chosen)


def _with_others(branch: Object, optional: list[str], least: int) -> Iterator[Object]:
    """At least this many properties, some of which may be other ones."""
    most = min(least, len(optional))
    _check(sum(comb(len(optional), number) for number in range(most + 1)), branch)
    for number in range(most + 1):
        for chosen in combinations(optional, number):
            found = _required(branch, chosen)
            if number < least:
                yield _forbidden(found, [name for name in optional if name not in chosen])
            else:
                yield replace(found, least=0)


def _each_subset(branch: Object, optional: list[str], most: int) -> Iterator[Object]:
    numbers = range(min(most, len(optional)) + 1)
    _check(sum(comb(len(optional), number) for number in numbers), branch)
    for number in numbers:
        for chosen in combinations(optional, number):
            yield _forbidden(_required(branch, chosen), [name for name in optional if name not in chosen])


def _required(branch: Object, names: tuple[str, ...]) -> Object:
    return replace(branch, required=(*branch.required, *names))


def _forbidden(branch: Object, names: list[str]) -> Object:
    forbidden: dict[str, Literals] = dict.fromkeys(names, NOTHING)
    members = {
        name: Member(member.path, forbidden.get(name, member.literals)) for name, member in branch.members.items()
    }
    return replace(branch, members=members)
