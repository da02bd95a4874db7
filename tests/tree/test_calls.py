"""Each call returns all that it promises, through the real processes; and answers are ended before their time."""

import itertools

import pytest
from builders.watching import stopped, tree_processes, wait_until

from penstock import LLM, RequestError, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def generate(llm, prompts, params=GREEDY, **options):
    return llm.generate(prompts, params, use_tqdm=False, **options)


def test_results_come_in_the_order_of_the_prompts_with_every_field(llm):
    prompts = [f"number {number} Straße 漢字 🙂 " * (1 + number % 5) for number in range(20)]
    params = [SamplingParams(temperature=0, max_tokens=1 + number % 12, ignore_eos=True) for number in range(20)]
    outputs, tokenizer = generate(llm, prompts, params), llm.get_tokenizer()
    assert [output.prompt for output in outputs] == prompts
    for output, own in zip(outputs, params):
        assert (output.finished, output.error_code, output.error_msg) == (True, 200, None)
        assert (output.outputs.finish_reason, len(output.outputs.token_ids)) == ("length", own.max_tokens)
        assert output.prompt_token_ids == tokenizer.encode(output.prompt)
        metrics = output.metrics
        assert metrics.num_prompt_tokens == len(output.prompt_token_ids)
        assert metrics.num_output_tokens == own.max_tokens
        assert 0 <= metrics.time_in_queue <= metrics.first_token_time
        assert metrics.model_forward_time > 0 and metrics.model_execute_time > 0
        assert tokenizer.decode(output.prompt_token_ids + output.outputs.token_ids).endswith(output.outputs.text)
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
        wait_until(lambda: (stats := stand_in.stats()).running == stats.waiting == 0, "it has ended")
        stats = stand_in.stats()
        assert stats.free_blocks == stats.blocks
        return was_running and stats.generated_tokens - before < 8 * 500

    assert any(left() for _ in range(50))


PROMPT = [5, 6, 7, 8]


def answer(llm: LLM, **fields):
    [output] = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, **fields), False)
    assert output.error_code == 200, output.error_msg
    return output.outputs


def test_a_sequence_of_tokens_ends_an_answer_and_its_text_never_shows(stand_in):
    whole = answer(stand_in).token_ids
    # The beginning of the second sequence comes, and its end doesn't: its text is held back, and shown then.
    ended = answer(stand_in, stop_words_ids=[whole[9:12], [*whole[3:5], 306]])
    assert ended.token_ids == whole[:12]
    assert (ended.finish_reason, ended.stop_reason) == ("stop", whole[11])
    assert ended.text == answer(stand_in, max_length=len(PROMPT) + 9).text
    assert answer(stand_in, stop_words_ids=[[whole[6]]]) == answer(stand_in, stop_token_ids=[whole[6]])
    assert answer(stand_in, stop_words_ids=[whole[2:4]], min_tokens=5).token_ids == whole
    for wrong in ([[5, number] for number in range(65)], [[5, 10**6]]):
        [output] = stand_in.generate([PROMPT], SamplingParams(stop_words_ids=wrong), False)
        assert output.error_code == 400 and "stop_words_ids" in output.error_msg
