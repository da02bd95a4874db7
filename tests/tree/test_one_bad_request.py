"""What is wrong with one request ends that request, and no other."""

import pytest

from penstock import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)

BAD = {
    "empty text": ("", GREEDY, "empty"),
    "no ids": ([], GREEDY, "empty"),
    "too long": ([5] * 600, GREEDY, "600"),
    "id beyond the vocabulary": ([1, 10**6], GREEDY, "vocabulary"),
    "negative id": ([1, -1], GREEDY, "vocabulary"),
    "not an id": ({"prompt_token_ids": [1, "x"]}, GREEDY, "whole numbers"),
    "too many characters": ("x" * 100_000, GREEDY, "characters"),
    "unknown adapter": ({"prompt": "x", "lora_name": "nobody"}, GREEDY, "nobody"),
    "multimodal data": ({"prompt": "x", "multimodal_data": {"image": []}}, GREEDY, "sees no pictures"),
    "unknown part": ({"prompt": "x", "colour": 1}, GREEDY, "colour"),
    "neither text nor ids": ({"priority": 1}, GREEDY, "prompt"),
    "stop id beyond the vocabulary": ("x", SamplingParams(stop_token_ids=[10**6]), "stop_token_ids"),
    "bias beyond the vocabulary": ("x", SamplingParams(logit_bias={10**6: 1.0}), "logit_bias"),
    "too many stop strings": ("x", SamplingParams(stop=["s"] * 65), "stop"),
    "no room left": ([5] * 20, SamplingParams(max_length=20), "max_length"),
    "a schema that nothing fits": ("x", SamplingParams(guided_json={"not": {}}), "schema is false"),
    "a regular expression that is none": ("x", SamplingParams(guided_regex="(a"), "unclosed"),
    "a thought nobody knows": ("x", SamplingParams(reasoning_max_tokens=3), "reasoning_parser"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_bad_request_among_a_hundred_good_ones_ends_alone(llm, case):
    prompt, params, word = BAD[case]
    good = [[number, number + 1, 9] for number in range(1, 101)]
    expected = [output.outputs.token_ids for output in llm.generate(good, GREEDY, use_tqdm=False)]
    mixed = [*good[:50], prompt, *good[50:]]
    outputs = llm.generate(mixed, [GREEDY] * 50 + [params] + [GREEDY] * 50, use_tqdm=False)
    bad = outputs.pop(50)
    assert bad.error_code == 400
    assert word in bad.error_msg
    assert bad.outputs.finish_reason == "error"
    assert bad.finished
    assert [output.outputs.token_ids for output in outputs] == expected


def test_a_conversation_that_its_template_refuses_ends_alone(llm):
    good = [{"role": "user", "content": "hello"}]
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]
    outputs = llm.chat([good, picture, good], GREEDY, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 400, 200]
    assert outputs[0].outputs.token_ids == outputs[2].outputs.token_ids


def test_a_bad_request_in_a_stream_is_its_only_output(llm):
    [output] = llm.stream([10**6], GREEDY)
    assert (output.error_code, output.finished) == (400, True)


def test_a_row_that_went_wrong_ends_its_request_and_the_engine_lives(model_folder, monkeypatch):
    from penstock import LLM

    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.logits=nan@3")
    with LLM(model_folder, max_model_len=256, kv_cache_memory="16MiB", quiet=True) as llm:
        [output] = llm.generate([[1, 2, 3]], GREEDY, use_tqdm=False)
        assert (output.error_code, output.outputs.finish_reason) == (500, "error")
        assert len(output.outputs.token_ids) == 2
        assert llm.generate([[1, 2, 3]], GREEDY, use_tqdm=False)[0].error_code == 200
