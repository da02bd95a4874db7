"""Shapes asked of a real tree: in every way, in company, streamed, with several samples, and behind a thought."""

import json
import os
import re
import signal

import psutil
import pytest
from builders.watching import assert_gone, tree_processes

from penstock import LLM, GuidedDecodingParams, SamplingParams

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "favourite_colour": {"enum": ["red", "green", "blue"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "favourite_colour", "age"],
    "additionalProperties": False,
}
# With its thought behind it: a model that may begin one first, might.
PROMPT = "Describe a person.\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def pocket():
    with LLM("pocket", max_model_len=512, kv_cache_memory="64MiB", reasoning_parser="qwen3", quiet=True) as llm:
        yield llm


def params(**options) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 120, "seed": 1, **options})


def answers(llm: LLM, *asked: SamplingParams) -> list:
    outputs = llm.generate([PROMPT] * len(asked), list(asked), use_tqdm=False)
    assert all(output.error_code == 200 for output in outputs), [output.error_msg for output in outputs]
    return [output.outputs for output in outputs]


def test_every_form_shapes_the_answer_and_company_changes_none(pocket):
    asked = [
        params(guided_json=PERSON),
        params(guided_regex=r"[a-z]{3,8}@[a-z]{2,9}\.com"),
        params(guided_choice=["quite sure", "not sure at all"]),
        params(guided_grammar='root ::= item ("," item){1,3}\nitem ::= [a-f] [0-9]{2}\n'),
        params(response_format={"type": "json_schema", "json_schema": {"schema": PERSON}}, seed=2),
        params(max_tokens=30),
    ]
    together = answers(pocket, *asked)
    texts = [answer.text for answer in together]
    assert json.loads(texts[0]).keys() == PERSON["properties"].keys() == json.loads(texts[4]).keys()
    assert re.fullmatch(r"[a-z]{3,8}@[a-z]{2,9}\.com", texts[1])
    assert texts[2] in ("quite sure", "not sure at all")
    assert re.fullmatch(r"[a-f]\d\d(,[a-f]\d\d){1,3}", texts[3])
    assert {answer.finish_reason for answer in together[:5]} == {"stop"}
    for one, answer in zip(asked, together, strict=True):
        [alone] = answers(pocket, one)
        assert list(alone.token_ids) == list(answer.token_ids)


def test_samples_follow_the_grammar_each_in_its_own_way(pocket):
    [samples] = answers(pocket, params(guided_json=PERSON, n=6))
    texts = [sample.text for sample in samples]
    assert all(json.loads(text)["favourite_colour"] for text in texts) and len(set(texts)) > 1


def test_a_stream_brings_the_same_answer(pocket):
    [whole] = answers(pocket, params(guided_json=PERSON))
    deltas = list(pocket.stream(PROMPT, params(guided_json=PERSON)))
    assert "".join(delta.outputs.text for delta in deltas) == whole.text
    assert [token for delta in deltas for token in delta.outputs.token_ids] == list(whole.token_ids)


def test_tokens_that_are_forced_carry_log_probabilities_and_count(pocket):
    bare, told, cut = answers(
        pocket,
        params(guided_json=PERSON),
        params(guided_json=PERSON, logprobs=2),
        params(guided_json=PERSON, max_tokens=9),
    )
    assert list(told.token_ids) == list(bare.token_ids)
    assert [next(iter(position)) for position in told.logprobs] == list(told.token_ids)
    assert (list(cut.token_ids), cut.finish_reason) == (list(bare.token_ids)[:9], "length")


def test_stop_strings_and_bounds_still_end_an_answer(pocket):
    whole, stopped, never_ending = answers(
        pocket,
        params(guided_json=PERSON),
        params(guided_json=PERSON, stop=["favourite"]),
        params(guided_json=PERSON, ignore_eos=True),
    )
    assert stopped.text == whole.text.partition("favourite")[0] and stopped.stop_reason == "favourite"
    assert (never_ending.text, never_ending.finish_reason) == (whole.text, "stop")


def test_a_thought_comes_first_and_the_shape_after_it(pocket):
    prompt = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    [output] = pocket.generate(
        [prompt], params(guided_choice=["five", "six"], reasoning_max_tokens=6, max_tokens=40), use_tqdm=False
    )
    answer = output.outputs
    assert answer.text in ("five", "six") and answer.finish_reason == "stop"
    assert len(pocket.get_tokenizer().encode(answer.reasoning_content or "")) <= 6


def test_a_thought_is_closed_in_time_without_a_shape_too(pocket):
    question = "Count the letters in strawberry."
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    outputs = pocket.generate(
        [prompt] * 2, [params(max_tokens=30), params(max_tokens=30, reasoning_max_tokens=4)], use_tqdm=False
    )
    closing = pocket.get_tokenizer().token_to_id("</think>")
    free, closed = (list(output.outputs.token_ids) for output in outputs)
    assert free[:4] == closed[:4] and closing in closed[4:8]


def test_a_bad_grammar_ends_its_request_alone(pocket):
    good = params(guided_choice=["yes"])
    outputs = pocket.generate(
        [PROMPT] * 3, [good, params(guided_decoding=GuidedDecodingParams(regex="a(?=b)")), good], use_tqdm=False
    )
    assert [output.error_code for output in outputs] == [200, 400, 200]
    assert "look-around" in outputs[1].error_msg
    assert outputs[0].outputs.text == outputs[2].outputs.text == "yes"


def test_the_process_that_tries_grammars_ends_with_the_engine():
    with LLM("pocket", max_model_len=256, kv_cache_memory="16MiB", quiet=True) as llm:
        answers(llm, params(guided_choice=["yes"]))
        engine = psutil.Process(tree_processes(llm)["engine"])
        trials = engine.children()
        assert len(trials) == 1
        os.kill(engine.pid, signal.SIGKILL)
        assert_gone([trials[0].pid])
