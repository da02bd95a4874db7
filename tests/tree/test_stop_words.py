"""`stop_words_ids`: sequences of token ids end an answer, and none of their text is shown, in streams neither."""

from penstock import LLM, SamplingParams

PROMPT = [5, 6, 7, 8]


def answer(llm: LLM, **fields):
    [output] = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, **fields), False)
    assert output.error_code == 200, output.error_msg
    return output.outputs


def test_an_answer_ends_with_the_sequence_and_its_text_before_it(stand_in):
    whole = answer(stand_in).token_ids
    ended = answer(stand_in, stop_words_ids=[whole[9:12], [*whole[3:5], 306]])
    assert ended.token_ids == whole[:12]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", whole[11])
    assert ended.text == answer(stand_in, max_length=len(PROMPT) + 9).text
    shown = answer(stand_in, stop_words_ids=[whole[9:12]], include_stop_str_in_output=True)
    assert shown.text == answer(stand_in, max_length=len(PROMPT) + 12).text


def test_a_sequence_of_one_token_is_a_stop_token(stand_in):
    whole = answer(stand_in).token_ids
    assert answer(stand_in, stop_words_ids=[[whole[6]]]) == answer(stand_in, stop_token_ids=[whole[6]])


def test_a_sequence_counts_only_from_min_tokens_on(stand_in):
    whole = answer(stand_in).token_ids
    assert answer(stand_in, stop_words_ids=[whole[2:4]], min_tokens=5).token_ids == whole


def test_a_stream_gives_tokens_at_once_and_no_text_of_the_sequence(stand_in):
    whole = answer(stand_in).token_ids
    # The beginning of the second sequence comes, and its end doesn't: its text is held back, and shown then.
    words = [whole[9:12], [*whole[3:5], 306]]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop_words_ids=words)
    deltas = [output.outputs for output in stand_in.stream(PROMPT, params)]
    assert [token for delta in deltas for token in delta.token_ids] == whole[:12]
    assert "".join(delta.text for delta in deltas) == answer(stand_in, stop_words_ids=words).text


def test_too_many_sequences_and_unknown_tokens_are_refused(stand_in):
    for words in ([[5, number] for number in range(65)], [[5, 10**6]]):
        [output] = stand_in.generate([PROMPT], SamplingParams(stop_words_ids=words), False)
        assert output.error_code == 400 and "stop_words_ids" in output.error_msg
