"""Shapes asked of a real tree: in every way, in company, streamed, with several samples, and behind a thought."""

import asyncio
import json
import os
import re
import signal

import psutil
from builders.starts import STAND_IN
from builders.watching import assert_gone, loop_face, tree_processes

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


def params(**options) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 120, "seed": 1, **options})


def answers(llm: LLM, *asked: SamplingParams) -> list:
    outputs = llm.generate([PROMPT] * len(asked), list(asked), use_tqdm=False)
    assert all(output.error_code == 200 for output in outputs), [output.error_msg for output in outputs]
    return [output.outputs for output in outputs]


def test_every_form_shapes_the_answer_and_company_changes_none(pocket_llm):
    asked = [
        params(guided_json=PERSON),
        params(guided_regex=r"[a-z]{3,8}@[a-z]{2,9}\.com"),
        params(guided_choice=["quite sure", "not sure at all"]),
        params(guided_grammar='root ::= item ("," item){1,3}\nitem ::= [a-f] [0-9]{2}\n'),
        params(response_format={"type": "json_schema", "json_schema": {"schema": PERSON}}, seed=2),
        params(max_tokens=30),
    ]
    together = answers(pocket_llm, *asked)
    texts = [answer.text for answer in together]
    assert json.loads(texts[0]).keys() == PERSON["properties"].keys() == json.loads(texts[4]).keys()
    assert re.fullmatch(r"[a-z]{3,8}@[a-z]{2,9}\.com", texts[1])
    assert texts[2] in ("quite sure", "not sure at all")
    assert re.fullmatch(r"[a-f]\d\d(,[a-f]\d\d){1,3}", texts[3])
    assert {answer.finish_reason for answer in together[:5]} == {"stop"}
    for one, answer in zip(asked, together, strict=True):
        [alone] = answers(pocket_llm, one)
        assert list(alone.token_ids) == list(answer.token_ids)


def test_samples_streams_log_probabilities_stop_strings_and_bounds_are_as_without_a_shape(pocket_llm):
    bare, samples, told, cut, stopped, never_ending = answers(
        pocket_llm,
        params(guided_json=PERSON),
        params(guided_json=PERSON, n=6),
        params(guided_json=PERSON, logprobs=2),
        params(guided_json=PERSON, max_tokens=9),
        params(guided_json=PERSON, stop=["favourite"]),
        params(guided_json=PERSON, ignore_eos=True),
    )
    whole = bare[0]
    texts = [sample.text for sample in samples]
    assert all(json.loads(text)["favourite_colour"] for text in texts) and len(set(texts)) > 1
    deltas = list(pocket_llm.stream(PROMPT, params(guided_json=PERSON)))
    assert "".join(delta.outputs.text for delta in deltas) == whole.text
    assert [token for delta in deltas for token in delta.outputs.token_ids] == list(whole.token_ids)
    assert list(told.token_ids) == list(bare.token_ids), "tokens that are forced have log-probabilities and count"
    assert [next(iter(position)) for position in told.logprobs] == list(told.token_ids)
    assert (list(cut.token_ids), cut.finish_reason) == (list(bare.token_ids)[:9], "length")
    assert stopped.text == whole.text.partition("favourite")[0] and stopped.stop_reason == "favourite"
    assert (never_ending.text, never_ending.finish_reason) == (whole.text, "stop")


def test_a_thought_comes_first_and_the_shape_after_it(pocket_llm):
    prompt = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    [output] = pocket_llm.generate(
        [prompt], params(guided_choice=["five", "six"], reasoning_max_tokens=6, max_tokens=40), use_tqdm=False
    )
    answer = output.outputs
    assert answer.text in ("five", "six") and answer.finish_reason == "stop"
    assert len(pocket_llm.get_tokenizer().encode(answer.reasoning_content or "")) <= 6


def test_a_thought_is_closed_in_time_without_a_shape_too(pocket_llm):
    question = "Count the letters in strawberry."
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    outputs = pocket_llm.generate(
        [prompt] * 2, [params(max_tokens=30), params(max_tokens=30, reasoning_max_tokens=4)], use_tqdm=False
    )
    closing = pocket_llm.get_tokenizer().token_to_id("</think>")
    free, closed = (list(output.outputs.token_ids) for output in outputs)
    assert free[:4] == closed[:4] and closing in closed[4:8]


def test_a_bad_grammar_ends_its_request_alone(pocket_llm):
    good = params(guided_choice=["yes"])
    outputs = pocket_llm.generate(
        [PROMPT] * 3, [good, params(guided_decoding=GuidedDecodingParams(regex="a(?=b)")), good], use_tqdm=False
    )
    assert [output.error_code for output in outputs] == [200, 400, 200]
    assert "look-around" in outputs[1].error_msg
    assert outputs[0].outputs.text == outputs[2].outputs.text == "yes"


def test_the_process_that_tries_grammars_ends_with_the_engine():
    with LLM("pocket", quiet=True, **STAND_IN) as llm:
        answers(llm, params(guided_choice=["yes"]))
        engine = psutil.Process(tree_processes(llm)["engine"])
        [trial] = engine.children()
        os.kill(engine.pid, signal.SIGKILL)
        assert_gone([trial.pid])


# --- ambiguous grammars, whose masks take ever longer, beside a plain answer: it goes on at its own pace --------------

AMBIGUOUS = "start: s\ns: /[a-z]/ s /[a-z]/ | /[a-z]/ | s s | \n"
NUM_GUIDED, NUM_PLAIN = 24, 150


def guided(seed, max_tokens):
    return SamplingParams(temperature=1.0, seed=seed, guided_grammar=AMBIGUOUS, max_tokens=max_tokens)


def test_a_plain_answer_does_not_keep_step_with_ambiguous_grammars(pocket_llm):
    """In one step with them it would have as many tokens as they have, and they would end first."""

    async def run():
        llm = loop_face(pocket_llm)
        before = (await llm.stats()).generated_tokens
        params = [guided(seed, 120) for seed in range(NUM_GUIDED)]
        others = [asyncio.create_task(llm.generate("x", each)) for each in params]
        while (await llm.stats()).generated_tokens - before < 15 * NUM_GUIDED:  # they have begun to be dear
            await asyncio.sleep(0.01)
        plain = SamplingParams(temperature=0, max_tokens=NUM_PLAIN, ignore_eos=True)
        [output] = await llm.generate("What is", plain)
        assert len(output.outputs.token_ids) == NUM_PLAIN
        num_running = sum(not other.done() for other in others)
        for other in others:
            other.cancel()
        return num_running

    assert asyncio.run(run()) == NUM_GUIDED


def test_an_ambiguous_answer_is_the_same_alone_and_among_others(pocket_llm):
    def ambiguous(*seeds):
        outputs = pocket_llm.generate(["x"] * len(seeds), [guided(seed, 16) for seed in seeds], use_tqdm=False)
        return [list(output.outputs.token_ids) for output in outputs]

    many = ambiguous(*range(12))
    assert [*ambiguous(3), *ambiguous(11)] == [many[3], many[11]]
