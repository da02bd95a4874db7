"""A text ends at its first stop string whatever its tokens, and no part of one is ever shown."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.text.stop_strings import StopChecker


def checked(pieces, stop, **options):
    """(deltas, what was found, number of tokens up to it)."""
    checker = StopChecker(stop, **options)
    deltas = []
    for count, piece in enumerate(pieces, start=1):
        deltas.append(checker.feed(piece))
        if checker.found is not None:
            return deltas, checker.found, count
    return [*deltas, checker.release()], None, len(pieces)


def first_completed(text, stop):
    """(end, start, string) of the stop string that ends first, the longest of those that end there."""
    ends = [(text.find(string) + len(string), text.find(string), string) for string in stop if string in text]
    return min(ends, default=None)


alphabet = st.text("abc", max_size=12)
stops = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


@given(st.lists(st.text("abc", max_size=4), max_size=10), stops, st.booleans())
def test_a_text_ends_at_the_stop_string_that_is_complete_first(pieces, stop, include):
    text = "".join(pieces)
    deltas, found, count = checked(pieces, stop, include_stop_str_in_output=include)
    expected = first_completed(text, stop)
    if expected is None:
        assert ("".join(deltas), found) == (text, None)
    else:
        end, start, string = expected
        assert "".join(deltas) == text[: end if include else start]
        assert found == string
        assert len("".join(pieces[: count - 1])) < end <= len("".join(pieces[:count])), "the token that completed it"


@given(alphabet, stops)
def test_where_a_text_ends_does_not_depend_on_its_tokens(text, stop):
    deltas, found, _ = checked(list(text), stop)
    assert ("".join(deltas), found) == ("".join(checked([text], stop)[0]), checked([text], stop)[1])


@given(st.lists(st.text("abc", max_size=4), max_size=10), stops)
def test_exactly_what_could_become_a_stop_string_is_held_back(pieces, stop):
    deltas, found, count = checked(pieces, stop)
    for number in range(1, count if found else count + 1):
        text, shown = "".join(pieces[:number]), "".join(deltas[:number])
        starts = [string[:length] for string in stop for length in range(len(string))]
        held = max(len(start) for start in starts if text.endswith(start))
        assert shown == text[: len(text) - held]


@given(st.lists(st.text("abc", max_size=4), max_size=10), stops, st.integers(0, 10))
def test_stop_strings_complete_within_min_tokens_are_text(pieces, stop, min_tokens):
    _, found, count = checked(pieces, stop, min_tokens=min_tokens)
    assert found is None or count > min_tokens
    if found is None:
        before = len("".join(pieces[:min_tokens]))
        text = "".join(pieces)
        for string in stop:
            assert text.find(string, max(0, before - len(string) + 1)) < 0
