"""`penstock.records.dataclass` makes classes that behave like those of the standard library."""

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from builders.cases import for_each

from penstock.records import dataclass

OPTIONS = [
    dict(zip(("frozen", "eq", "slots", "kw_only"), (bool(bits >> place & 1) for place in range(4)), strict=True))
    for bits in range(16)
]


def classes(options: dict[str, bool]) -> list[type[Any]]:
    """The same class from either decorator; the standard one is second."""

    def made(decorator: Any) -> type[Any]:
        @decorator(**options)
        class Pair:
            first: int
            second: list[int] = dataclasses.field(default_factory=list, compare=False)
            hidden: str = dataclasses.field(default="", repr=False)

            def doubled(self) -> int:
                return 2 * self.first

        globals()["Pair"] = Pair  # where pickle looks for it
        Pair.__qualname__ = "Pair"
        return Pair

    return [made(dataclass), made(dataclasses.dataclass)]


def outcome(call: Any) -> Any:
    """The result of a call, or the kind of error that it raised."""
    try:
        return call()
    except Exception as error:
        return type(error)


@for_each("options", OPTIONS)
def test_records_compare_hash_change_and_show_themselves_like_standard_ones(options):
    seen = []
    for kind in classes(options):
        one, other = kind(first=1), kind(first=1, second=[2])
        changed = dataclasses.replace(one, first=3)
        globals()["Pair"] = kind
        copies = [copy.copy(other), copy.deepcopy(other), pickle.loads(pickle.dumps(other))]
        seen.append([
            one == other, one == changed, one == 1, repr(changed), [repr(each) for each in copies],
            outcome(lambda one=one, other=other: hash(one) == hash(other)),
            outcome(lambda one=one: setattr(one, "first", 4)), one.first,
            outcome(lambda one=one: delattr(one, "hidden")),
            outcome(lambda kind=kind: repr(kind(1))), outcome(lambda kind=kind: kind()), changed.doubled(),
            [field.name for field in dataclasses.fields(kind)], kind.__match_args__,
        ])  # fmt: skip
    assert seen[0] == seen[1]


def test_a_record_keeps_the_methods_that_it_defines_and_those_of_its_base():
    @dataclass(frozen=True)
    class Base:
        a: int

        def __repr__(self) -> str:
            return "mine"

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True)
    class Derived(Base):
        b: int = 2

    assert repr(Base(1)) == "mine" and hash(Base(1)) == 5
    assert repr(Derived(1)).endswith("Derived(a=1, b=2)")
    assert Derived(1) == Derived(1, 2) != Derived(1, 3) and Derived(1) != Base(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived(1).c = 3  # type: ignore[attr-defined]
