"""Shapes as long as may be are read, or refused, in a time in proportion to their length, whatever stands in them."""

import json
import signal
from contextlib import contextmanager

import pytest

from penstock.frontend.structured import grammar_of
from penstock.frontend.structured.shape import MOST_BYTES, MOST_REGEX_BYTES
from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.guided import GuidedDecodingParams

# A tenth of it is enough; with the square of the length it is minutes.
CPU_SECONDS = 10


@contextmanager
def processor_time(seconds):
    """Of this process, from here on; beyond it whatever runs is interrupted."""

    def interrupt(number, frame):
        pytest.fail(f"it takes more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read(**form):
    """The refusal, or None."""
    with processor_time(CPU_SECONDS):
        try:
            grammar_of(GuidedDecodingParams(**form))
        except RequestError as refusal:
            return str(refusal)
    return None


def filled(head, unit, tail=""):
    """Of the length that is let in."""
    return head + unit * ((MOST_BYTES - len(head) - len(tail)) // len(unit.encode())) + tail


@pytest.mark.parametrize(
    ("head", "unit", "word"),
    [
        ("root ::= ", "(*", "comment"),
        ('root ::= "a" (* ', "(*", "comment"),
        ('root ::= "a"{', " ", "nothing of EBNF begins with"),
        ('root ::= "a"{', "1", "nothing of EBNF begins with"),
        ('root ::= "a"{', "\n", "nothing of EBNF begins with"),
        ("root ::= ", "(", "levels"),
        ('root ::= "', "\\a", "nothing of EBNF begins with"),
        ("root ::= [", "a", "nothing of EBNF begins with"),
    ],
)
def test_ebnf_that_opens_without_end_is_refused(head, unit, word):
    assert word in read(grammar=filled(head, unit))


def test_comments_that_are_closed_are_passed_over():
    assert read(grammar=filled('root ::= "a" ', "(**)")) is None
    assert read(grammar=filled('root ::= "a" (*', "(*", "*)")) is None


@pytest.mark.long
@pytest.mark.parametrize("tail", ["", "]", '"', "}", "*)"])
@pytest.mark.parametrize(
    "head", ["", "root ::= ", 'root ::= "', "root ::= [", "root ::= {", "root ::= <", "?", "root ::= 'a' (* "]
)
def test_grammars_of_whatever_is_repeated_are_read_or_refused(head, tail):
    units = [
        "(", "( ", "(*", "(**)", '"', "'", "\\", '"\\', '"\\"', "[", "[a", "[]", "{", " ", "{ ", "{1,", "a", "a ",
        "a\n", "\n", "a\n\n", "<", "<a", ":", "::", "::=", "a::=", 'a ::= "x"\n', "#", "# \n", ".", "|", ";", "*",
        "?a:", "?a\n", "?", "!?", "a ::= (\n", "[\\x41]", '"\\x41"', "A-", "\t", "a::=a\n", "?a.1 ", "x*", "_", "é",
    ]  # fmt: skip
    for unit in units:
        read(grammar=filled(head, unit, tail))


def tags(begins, triggers):
    structures = [{"begin": begin, "end": ""} for begin in begins]
    return json.dumps({"structures": structures, "triggers": triggers}, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [
        tags(["z"] * 9_000, ["a"] * 60_000 + ["z"]),
        tags(["z"] * 9_000, [f"{number:x}" for number in range(30_000)] + ["z"]),
        tags(["a" * 700 + "b"] * 350, ["a" * length for length in range(700, 0, -1)]),
        tags(["a" * 250_000], ["a" * length for length in range(700, 0, -1)]),
        tags(["a"] * 19_000, ["a"]),
    ],
    ids=["one trigger again and again", "many triggers", "many lengths", "a long tag", "many tags"],
)
def test_structural_tags_are_read_or_refused(text):
    assert 380_000 < len(text) <= MOST_BYTES
    read(structural_tag=text)


def test_a_schemas_long_names_are_not_written_again_for_everything_that_is_in_them():
    """The text of a place would be a megabyte long, for each of 8,000 keywords."""
    inner = {f"{number:x}": {"a": 0, "b": 0} for number in range(8_000)}
    schema = {"properties": {"n\U0001f600" * 30_000: {"properties": inner}}}
    assert read(json=json.dumps(schema, ensure_ascii=False, separators=(",", ":"))) is None


@pytest.mark.parametrize("unit", ['{"items":', '{"a":{},"items":', "[", '{"anyOf":['])
@pytest.mark.parametrize("tail", ["", "0"])
def test_a_schema_that_never_ends_is_refused(unit, tail):
    assert "json" in read(json=filled("", unit, tail))


def test_choices_and_expressions_beyond_the_limit_are_refused():
    assert "524,288" in read(choice=["."] * 1_000_000)
    assert "16,384" in read(regex="." * MOST_BYTES)
    assert read(regex="(" * MOST_REGEX_BYTES) is None  # the engine's compiler says what is wrong with it


def test_a_refusal_is_short_whatever_it_quotes():
    for form in (
        {"json": {"x" * 500_000: 0, "properties": {"x" * 400_000: 5}}},
        {"structural_tag": tags(["a" * 400_000], ["b"])},
        {"structural_tag": {"format": {"type": "a" * 400_000}}},
        {"grammar": "root ::= " + "a" * 400_000},
        {"grammar": 'root ::= "' + "a" * 400_000 + '\\uD800"'},
    ):
        assert len(read(**form)) < 1_100
