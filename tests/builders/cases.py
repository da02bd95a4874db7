"""One test over many cases that names every one that fails.

`@for_each("name", VALUES)` is written like `pytest.mark.parametrize` and may be stacked like it, above a `@given`, but
all cases run within one test, which is a function. A case is cheap to collect, report and send between processes only
if it is not a test of its own. Values that take long to make are given as a function, which is called when the test
runs.
Each case gets a `monkeypatch` and a `tmp_path` of its own where the test asks for one. A case that is skipped ends
alone; the test is skipped if all of them are.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from _pytest.mark import ParameterSet


class Case(NamedTuple):
    label: str
    values: dict[str, Any]


class Axis(NamedTuple):
    names: list[str]
    cases: Callable[[], list[Case]]


def for_each(
    names: str,
    values: Iterable[Any] | Callable[[], Iterable[Any]],
    ids: Iterable[str] | Callable[[Any], Any] | None = None,
) -> Callable:
    """Run the decorated test once for each value, or each tuple of values if there are several names."""
    separate = [name.strip() for name in names.split(",")]
    if callable(values):
        axis = Axis(separate, lambda: list(cases_of(separate, list(values()), ids)))
    else:
        cases = list(cases_of(separate, list(values), ids))
        assert cases, f"there is no case of {names}"
        axis = Axis(separate, lambda: cases)

    def decorate(test: Callable) -> Callable:
        inner = getattr(test, "loops_over", None)
        function, axes = inner if inner else (test, [])
        return looped(function, [axis, *axes])

    return decorate


def cases_of(names: list[str], values: list[Any], ids: Iterable[str] | Callable[[Any], Any] | None) -> Iterator[Case]:
    labels = list(ids) if ids is not None and not callable(ids) else [None] * len(values)
    for value, given in zip(values, labels, strict=True):
        parameters = ParameterSet.extract_from(value, force_tuple=len(names) == 1)
        assert not parameters.marks, f"a case of {names} has marks; only a test can be skipped or selected"
        count = len(parameters.values)
        assert count == len(names), f"a case of {names} has {count} value(s): {parameters.values}"
        single = parameters.values[0] if len(names) == 1 else parameters.values
        label = given or parameters.id or (ids(single) if callable(ids) else None)
        shown = ", ".join(map(repr, parameters.values))
        yield Case(str(label) if label else shown[:200], dict(zip(names, parameters.values, strict=True)))


def looped(function: Callable, axes: list[Axis]) -> Callable:
    signature = inspect.signature(function)
    filled = {name for axis in axes for name in axis.names}
    unknown = filled - signature.parameters.keys()
    assert not unknown, f"{function.__name__} doesn't take {unknown}"

    @functools.wraps(function)
    def test(**fixtures: Any) -> None:
        count, failed, failures, skipped = 0, [], [], []
        for cases in itertools.product(*(axis.cases() for axis in axes)):
            count += 1
            values = {name: value for case in cases for name, value in case.values.items()}
            try:
                with ExitStack() as own:
                    function(**values, **fixtures_of_a_case(fixtures, count, own))
            except pytest.skip.Exception as reason:
                skipped.append(f"{' | '.join(case.label for case in cases)}: {reason}")
            except (Exception, pytest.fail.Exception) as error:
                failed.append(" | ".join(case.label for case in cases))
                error.add_note(f"The case: {failed[-1]}")
                failures.append(error)
        if failures:
            raise BaseExceptionGroup(f"{len(failed)} of {count} cases failed: {'; '.join(failed)}", failures)
        if len(skipped) == count:
            pytest.skip("; ".join(skipped))

    parameters = [parameter for name, parameter in signature.parameters.items() if name not in filled]
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    test.loops_over = (function, axes)  # type: ignore[attr-defined]
    return test


def fixtures_of_a_case(fixtures: dict[str, Any], count: int, own: ExitStack) -> dict[str, Any]:
    """The test's fixtures, with those that a case changes replaced by its own."""
    given = dict(fixtures)
    if "monkeypatch" in given:
        given["monkeypatch"] = own.enter_context(given["monkeypatch"].context())
    if "tmp_path" in given:
        given["tmp_path"] = given["tmp_path"] / str(count)
        given["tmp_path"].mkdir()
    return given
