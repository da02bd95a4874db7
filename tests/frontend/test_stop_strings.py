"""A text ends at its first stop string or stop word whatever its tokens, and no part of one is ever shown."""

from builders.cases import for_each
from builders.detokenized import DECODING, EOS, Caller, ended, ids_of, opened, step, steps_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.frontend.text.stop_strings import StopChecker
from penstock.protocol.messages import Said
from penstock.protocol.wire import column, values


def checked(pieces, stop, **options):
    """(deltas, what was found, number of tokens up to it)."""
    checker = StopChecker(stop, **options)
    deltas = []
    for count, piece in enumerate(pieces, start=1):
        deltas.append(checker.feed(piece))
        if checker.found is not None:
            return deltas, checker.found, count
    return [*deltas, checker.release()], None, len(pieces)


def first_completed(text, stop, after=0):
    """(end, start, string) of the stop string that ends first behind `after`, the longest of those that end there."""
    found = ((text.find(string, max(0, after - len(string) + 1)), string) for string in stop)
    return min(((start + len(string), start, string) for start, string in found if start >= 0), default=None)


stops = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


@given(st.lists(st.text("abc", max_size=4), max_size=10), stops, st.booleans(), st.just(0) | st.integers(1, 10))
def test_a_text_ends_at_the_stop_string_that_is_complete_first_behind_min_tokens(pieces, stop, include, min_tokens):
    text = "".join(pieces)
    deltas, found, count = checked(pieces, stop, include_stop_str_in_output=include, min_tokens=min_tokens)
    expected = first_completed(text, stop, len("".join(pieces[:min_tokens])))
    if expected is None:
        assert ("".join(deltas), found) == (text, None)
    else:
        end, start, string = expected
        assert "".join(deltas) == text[: end if include else start]
        assert found == string and count > min_tokens
        assert len("".join(pieces[: count - 1])) < end <= len("".join(pieces[:count])), "the token that completed it"


@given(st.lists(st.text("abc", max_size=4), max_size=10), stops)
def test_exactly_what_could_become_a_stop_string_is_held_back(pieces, stop):
    deltas, found, count = checked(pieces, stop)
    for number in range(1, count if found else count + 1):
        text, shown = "".join(pieces[:number]), "".join(deltas[:number])
        starts = [string[:length] for string in stop for length in range(len(string))]
        held = max(len(start) for start in starts if text.endswith(start))
        assert shown == text[: len(text) - held]


@for_each("is_streamed", [False, True])
def test_a_stop_string_cuts_text_and_ids_and_aborts_the_engine(is_streamed):
    ids = ids_of("hello world stop more")
    caller = Caller(step(opened=[opened(is_streamed=is_streamed, stop=["rld s"])]), *steps_of(ids, ended()))
    assert (caller.text, caller.end) == ("hello wo", ("stop", "rld s"))
    assert "rld s" in DECODING.backend.decode(caller.token_ids)
    assert "rld s" not in DECODING.backend.decode(caller.token_ids[:-1]), "no token behind the one that completed it"
    assert caller.aborted == [1], "and the engine's own end, which came later, changes nothing"
    params = {"is_streamed": is_streamed, "stop": ["wor"], "include_stop_str_in_output": True}
    assert Caller(step(opened=[opened(**params)]), *steps_of(ids, ended())).text == "hello wor"


@for_each("is_streamed", [False, True])
@for_each("text, params, reason", [
    ("hello world stop more", {"stop": ["rld s"]}, "length"),
    ("hello world stop more", {"stop": ["rld s"], "include_stop_str_in_output": True}, "length"),
    ("stop hello stop hello", {"stop": ["stop"], "min_tokens": 2}, "length"),
    ("an assistant, an assistant", {"stop_words_ids": [ids_of(" assistant")], "stop": ["never"]}, "stop"),
    ("🙂 hello 🙂", {}, "length"),
])  # fmt: skip
def test_an_answer_that_goes_on_has_the_text_and_the_end_that_it_has_without_a_cut(text, params, reason, is_streamed):
    ids, beginning = ids_of(text), opened(is_streamed=is_streamed, **params)

    def gone_on(cut):
        going_on, rest = replace(beginning, said=Said(column(ids[:cut]))), ids[cut:]
        alone = [step({1: [token_id]}) for token_id in rest[:-1]]
        return Caller(step(opened=[going_on]), *alone, step({1: rest[-1:]} if rest else None, ended=[ended(reason)]))

    whole = gone_on(0)
    for cut in range(1, len(whole.token_ids) + 1):
        caller = gone_on(cut)
        assert (caller.text, caller.token_ids, caller.end) == (whole.text, whole.token_ids, whole.end), cut


def test_an_end_in_the_step_of_a_stop_string_is_no_abort_and_an_eos_behind_it_is_not_reached():
    for ids in (ids_of("hello world"), [*ids_of("hello world"), EOS]):
        caller = Caller(step(opened=[opened(stop=["world"])]), step({1: ids}, ended=[ended("stop")]))
        assert (caller.text, caller.end, caller.aborted) == ("hello ", ("stop", "world"), [])
        assert EOS not in caller.token_ids
    ids = ids_of("stop hello stop hello")
    caller = Caller(step(opened=[opened(stop=["stop"], min_tokens=len(ids_of("stop")))]), *steps_of(ids, ended()))
    assert (caller.text, caller.end) == ("stop hello ", ("stop", "stop")), "none is looked for within min_tokens"


ASSISTANT = ids_of(" assistant")  # three tokens: " ass", "ist", "ant"
WORLD = ids_of(" world")  # two
SMILE = ids_of("🙂")  # three, each a part of the character


def stopped(ids, sizes=(), *, words=(ASSISTANT, [*WORLD, EOS]), reason="stop", is_streamed=False, **params):
    """What the caller gets if the engine ends the answer with the last of these ids."""
    messages, first = [step(opened=[opened(is_streamed=is_streamed, stop_words_ids=list(words), **params)])], 0
    for size in sizes:
        if first + size < len(ids):
            messages.append(step({1: ids[first : first + size]}))
            first += size
    stop_reason = ids[-1] if reason == "stop" else None
    return Caller(*messages, step({1: ids[first:]}, ended=[ended(reason, stop_reason=stop_reason)]))


SIZES = st.lists(st.integers(1, 4), max_size=12)


@for_each("stop", [None, ["@@never@@"]])
def test_a_stop_word_keeps_what_is_no_part_of_it(stop):
    """Such as a character that it breaks off, or its first tokens where it is not completed."""
    ids = [*ids_of("hello"), *SMILE]
    for sizes in ((), [1] * 8):
        assert stopped(ids, sizes, words=[SMILE[1:]], stop=stop, is_streamed=True).text == "hello\ufffd"
    ids = [*ASSISTANT[:2], *ASSISTANT[:2]]
    caller = stopped(ids, [1] * 4, reason="length", is_streamed=True, stop=stop)
    assert [delta.text for delta in caller.deltas] == ["", "", " assist", " assist"]
    assert [list(values(delta.token_ids)) for delta in caller.deltas] == [[token_id] for token_id in ids]
    shown = stopped(ids, [1] * 4, reason="length", is_streamed=True, stop=stop, include_stop_str_in_output=True)
    assert [delta.text for delta in shown.deltas] == [" ass", "ist", " ass", "ist"], "what is shown is not held back"


def text_of(ids):
    decoder = DECODING.decoder(ids_of("a prompt"))
    return decoder.feed(ids), decoder.flush()


PIECES = st.sampled_from([*ids_of("hello"), *WORLD, *SMILE])


@given(
    ids=st.lists(PIECES, min_size=1, max_size=12) | st.just([*ids_of("hello 🙂"), *WORLD]),
    words=st.just([WORLD, [*ids_of("hello"), EOS]])
    | st.lists(st.lists(PIECES, min_size=2, max_size=4), min_size=1, max_size=3),
    stop=st.lists(st.sampled_from(["ll", "ohe", "o w", "🙂", "dhel", "@@"]), max_size=2),
    sizes=SIZES,
    is_streamed=st.booleans(),
)
def test_an_answer_ends_at_the_stop_word_or_string_that_is_complete_first(ids, words, stop, sizes, is_streamed):
    ends = [(end, word) for end in range(1, len(ids) + 1) for word in words if ids[:end][-len(word) :] == word]
    end = min(ends, default=(len(ids), []))[0]
    hidden = max((len(word) for at, word in ends if at == end), default=0)
    before = [text_of(ids[:count])[0] for count in range(end if hidden else end + 1)]
    reason = "stop" if hidden else "length"
    expected = "".join(text_of(ids[: end - hidden])), ids[:end], (reason, ids[end - 1] if hidden else None)
    for count, text in enumerate(before):
        if (first := first_completed(text, stop)) is not None:
            expected = text[: first[1]], ids[:count], ("stop", first[2])
            break
    caller = stopped(ids[:end], sizes, words=words, reason=reason, stop=stop or None, is_streamed=is_streamed)
    assert (caller.text, caller.token_ids, caller.end) == expected
