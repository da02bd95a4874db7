"""Each call returns all that it promises, through the real processes; and answers are ended before their time."""

import itertools

import msgspec
import pytest
from builders.watching import stopped, tree_processes, wait_until

from penstock import LLM, RequestError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def generate(llm, prompts, params=GREEDY, **options):
    return llm.generate(prompts, params, use_tqdm=False, **options)


def test_results_come_in_the_order_of_the_prompts_with_every_field(llm):
    prompts = [f"number {number} Straße 漢字 🙂 " * (1 + number % 5) for number in range(20)]
    outputs = generate(llm, prompts)
    assert [output.prompt for output in outputs] == prompts
    for output in outputs:
        assert output.finished
        assert (output.error_code, output.error_msg) == (200, None)
        assert output.outputs.finish_reason == "length"
        assert len(output.outputs.token_ids) == 12
        assert output.prompt_token_ids == llm.get_tokenizer().encode(output.prompt)
        metrics = output.metrics
        assert metrics.num_prompt_tokens == len(output.prompt_token_ids)
        assert metrics.num_output_tokens == 12
        assert 0 <= metrics.time_in_queue <= metrics.first_token_time
        assert metrics.model_forward_time > 0
        assert metrics.model_execute_time > 0
        assert (
            llm.get_tokenizer().decode(output.prompt_token_ids + output.outputs.token_ids).endswith(output.outputs.text)
        )


def test_the_forms_of_a_prompt_mean_the_same_and_prompts_and_parameters_come_in_pairs_or_nothing_runs(llm):
    ids = llm.get_tokenizer().encode("one two three")
    forms = ["one two three", ids, {"prompt": "one two three"}, {"prompt_token_ids": ids}]
    answers = [generate(llm, form) for form in forms]
    assert [len(answer) for answer in answers] == [1, 1, 1, 1]
    assert len({tuple(answer[0].outputs.token_ids) for answer in answers}) == 1
    assert len(generate(llm, [ids, ids])) == 2
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (1, 4, 2)]
    outputs = generate(llm, ["a", "b", "c"], params)
    assert [len(output.outputs.token_ids) for output in outputs] == [1, 4, 2]
    assert generate(llm, []) == []
    with pytest.raises(RequestError, match="3 prompts and 2"):
        generate(llm, ["a", "b", "c"], [GREEDY, GREEDY])
    with pytest.raises(TypeError, match="prompts"):
        generate(llm, 3.5)


def test_samples_of_one_request_are_a_sequence_and_the_deltas_of_a_stream_add_up_to_the_batch_answer(llm):
    [output] = generate(llm, ["tell"], SamplingParams(n=3, seed=5, max_tokens=8, ignore_eos=True))
    assert [answer.index for answer in output.outputs] == [0, 1, 2]
    assert output.outputs.text == output.outputs[0].text
    assert len({tuple(answer.token_ids) for answer in output.outputs}) == 3, "samples draw independently"
    [again] = generate(llm, ["tell"], SamplingParams(n=3, seed=5, max_tokens=8, ignore_eos=True))
    assert [answer.token_ids for answer in again.outputs] == [answer.token_ids for answer in output.outputs]
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=30, ignore_eos=True)
    [whole] = generate(llm, ["stream me 🙂"], params)
    deltas = list(llm.stream("stream me 🙂", params))
    assert "".join(delta.outputs.text for delta in deltas) == whole.outputs.text
    assert [token for delta in deltas for token in delta.outputs.token_ids] == whole.outputs.token_ids
    assert [delta.outputs.send_idx for delta in deltas] == list(range(len(deltas)))
    assert [delta.finished for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].outputs.finish_reason == "length"


def test_an_iterable_is_consumed_in_a_window_not_at_once_and_the_short_ones_may_come_first(stand_in):
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield [taken % 200 + 1, 7]

    run = stand_in.generate_iter(endless(), SamplingParams(max_tokens=1, ignore_eos=True))
    outputs = list(itertools.islice(run, 3000))
    run.close()
    assert [output.prompt_token_ids[0] for output in outputs] == [number % 200 + 1 for number in range(1, 3001)]
    assert taken <= 3000 + 2 * 1024
    params = [SamplingParams(max_tokens=count, ignore_eos=True) for count in (300, 1, 40)]
    run = stand_in.generate_iter([[1], [2], [3]], params, ordered=False)
    assert [len(output.outputs.token_ids) for output in run] == [1, 40, 300]


def test_leaving_a_stream_aborts_its_request(stand_in):
    def left() -> bool:
        """Whether it was left before it had ended by itself."""
        before = stand_in.stats().generated_tokens
        next(stream := stand_in.stream([1, 2], SamplingParams(max_tokens=500, ignore_eos=True, n=8)))
        with stopped(tree_processes(stand_in)["worker 0"]):
            was_running = stand_in.stats().running
            stream.close()
            stand_in.stats()  # the engine takes the abort before it
        wait_until(lambda: (stats := stand_in.stats()).running == stats.waiting == 0, 60, "it has ended")
        stats = stand_in.stats()
        assert stats.free_blocks == stats.blocks
        return was_running and stats.generated_tokens - before < 8 * 500

    assert any(left() for _ in range(50))


def test_a_stop_string_ends_the_answer_and_never_shows(llm):
    [free] = generate(llm, ["go"], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    stop = free.outputs.text[6:9]
    [cut] = generate(llm, ["go"], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, stop=stop))
    assert cut.outputs.text == free.outputs.text[: free.outputs.text.index(stop)]
    assert (cut.outputs.finish_reason, cut.outputs.stop_reason) == ("stop", stop)
    assert cut.outputs.token_ids == free.outputs.token_ids[: len(cut.outputs.token_ids)]
    streamed = list(llm.stream("go", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, stop=stop)))
    assert "".join(delta.outputs.text for delta in streamed) == cut.outputs.text


def test_chat_sends_exactly_what_the_template_renders_and_leaves_the_messages_alone(llm):
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好"}]
    before = msgspec.json.encode(conversation)
    text = llm.apply_chat_template(conversation)
    outputs = llm.chat([conversation, conversation], GREEDY, use_tqdm=False)
    assert [output.prompt for output in outputs] == [text, text]
    assert llm.chat(conversation, GREEDY, use_tqdm=False)[0].outputs.text == outputs[0].outputs.text
    parts = [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in conversation]
    assert llm.chat(parts, GREEDY, use_tqdm=False)[0].prompt == text
    assert msgspec.json.encode(conversation) == before


PROMPT = [5, 6, 7, 8]


def answer(llm: LLM, **fields):
    [output] = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, **fields), False)
    assert output.error_code == 200, output.error_msg
    return output.outputs


def test_a_sequence_of_tokens_ends_an_answer_and_its_text_never_shows(stand_in):
    whole = answer(stand_in).token_ids
    # The beginning of the second sequence comes, and its end doesn't: its text is held back, and shown then.
    words = [whole[9:12], [*whole[3:5], 306]]
    ended = answer(stand_in, stop_words_ids=words)
    assert ended.token_ids == whole[:12]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", whole[11])
    assert ended.text == answer(stand_in, max_length=len(PROMPT) + 9).text
    shown = answer(stand_in, stop_words_ids=[whole[9:12]], include_stop_str_in_output=True)
    assert shown.text == answer(stand_in, max_length=len(PROMPT) + 12).text
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, stop_words_ids=words)
    deltas = [output.outputs for output in stand_in.stream(PROMPT, params)]
    assert [token for delta in deltas for token in delta.token_ids] == whole[:12]
    assert "".join(delta.text for delta in deltas) == ended.text
    single = answer(stand_in, stop_words_ids=[[whole[6]]])
    assert single == answer(stand_in, stop_token_ids=[whole[6]])
    assert single.token_ids == whole[: whole.index(whole[6]) + 1] and single.stop_reason == whole[6]
    assert answer(stand_in, stop_words_ids=[whole[2:4]], min_tokens=5).token_ids == whole
    for wrong in ([[5, number] for number in range(65)], [[5, 10**6]]):
        [output] = stand_in.generate([PROMPT], SamplingParams(stop_words_ids=wrong), False)
        assert output.error_code == 400 and "stop_words_ids" in output.error_msg
