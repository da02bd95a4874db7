"""Shapes asked of a real tree: in every way, streamed, with several samples, and behind a thought.

Thoughts and calls through the real processes: which parser, and marks that the tokenizer would hide.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from builders.cases import for_each
from builders.starts import STAND_IN
from builders.tiny_model import CHAT_TEMPLATE, tiny_model
from builders.watching import BOUND_SECONDS, assert_gone, loop_face, tree_processes

from penstock import LLM, SamplingParams

PROPERTIES = {
    "name": {"type": "string", "maxLength": 12}, "favourite_colour": {"enum": ["red", "green", "blue"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
}  # fmt: skip
PERSON = {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES], "additionalProperties": False}
# With its thought behind it: a model that may begin one first, might.
PROMPT = "Describe a person.\n<think>\n\n</think>\n\n"


def params(**options) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 120, "seed": 1, **options})


def answers(llm: LLM, *asked: SamplingParams) -> list:
    outputs = llm.generate([PROMPT] * len(asked), list(asked), use_tqdm=False)
    assert all(output.error_code == 200 for output in outputs), [output.error_msg for output in outputs]
    return [output.outputs for output in outputs]


def test_samples_streams_log_probabilities_stop_strings_and_bounds_are_as_without_a_shape(pocket_llm):
    further = ({}, {"n": 6}, {"logprobs": 2}, {"max_tokens": 9}, {"stop": ["favourite"]}, {"ignore_eos": True})
    asked = [params(guided_json=PERSON, **each) for each in further]
    bare, samples, told, cut, stopped, never_ending = answers(pocket_llm, *asked)
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


def test_the_process_that_tries_grammars_ends_with_the_engine():
    with LLM("pocket", quiet=True, **STAND_IN) as llm:
        answers(llm, params(guided_choice=["yes"]))
        engine = psutil.Process(tree_processes(llm)["engine"])
        [trial] = engine.children()
        os.kill(engine.pid, signal.SIGKILL)
        assert_gone([trial.pid])


# --- ambiguous grammars, whose masks take ever longer, beside a plain answer: it goes on at its own pace --------------

AMBIGUOUS = "start: s\ns: /[a-z]/ s /[a-z]/ | /[a-z]/ | s s | \n"
NUM_GUIDED, NUM_PLAIN = 12, 150


def guided(seed, max_tokens):
    return SamplingParams(temperature=1.0, seed=seed, guided_grammar=AMBIGUOUS, max_tokens=max_tokens)


def test_a_plain_answer_does_not_keep_step_with_ambiguous_grammars(pocket_llm):
    """In one step with them each of them would have as many new tokens as it has."""

    async def run():
        llm = loop_face(pocket_llm)
        before = (await llm.stats()).generated_tokens
        params = [guided(seed, 400) for seed in range(NUM_GUIDED)]
        others = [asyncio.create_task(llm.generate("x", each)) for each in params]
        async with asyncio.timeout(BOUND_SECONDS):
            while (await llm.stats()).generated_tokens - before < 15 * NUM_GUIDED:  # they have begun to be dear
                await asyncio.sleep(0.01)
        plain = SamplingParams(temperature=0, max_tokens=NUM_PLAIN, ignore_eos=True)
        before = (await llm.stats()).generated_tokens
        [output] = await llm.generate("What is", plain)
        assert len(output.outputs.token_ids) == NUM_PLAIN
        num_guided = (await llm.stats()).generated_tokens - before - NUM_PLAIN
        for other in others:
            other.cancel()
        return num_guided

    assert asyncio.run(run()) < 0.8 * NUM_GUIDED * NUM_PLAIN


def test_an_ambiguous_answer_is_the_same_alone_and_among_others(pocket_llm):
    def ambiguous(*seeds):
        outputs = pocket_llm.generate(["x"] * len(seeds), [guided(seed, 16) for seed in seeds], use_tqdm=False)
        return [list(output.outputs.token_ids) for output in outputs]

    many = ambiguous(*range(12))
    assert [*ambiguous(3), *ambiguous(11)] == [many[3], many[11]]


# --- thoughts and calls -----------------------------------------------------------------------------------------------


MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Begins the thought unless told otherwise, as some models' templates do.
TEMPLATE = CHAT_TEMPLATE.removesuffix("{% endif %}") + (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}{# calls stand between <tool_call> and </tool_call> #}"
)
MESSAGES = [{"role": "user", "content": "Hello"}]


OPTIONS = {"max_model_len": 512, "kv_cache_memory": "16MiB", "quiet": True, "num_threads": 1}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model whose marks are special tokens."""
    folder = tiny_model(tmp_path_factory.mktemp("models") / "thinking", "qwen3")
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    options = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    state["added_tokens"] += [{"id": 280 + number, "content": mark, **options} for number, mark in enumerate(MARKS)]
    path.write_text(json.dumps(state))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    return folder


@pytest.fixture(scope="module")
def unset(folder) -> Iterator[LLM]:
    """No parser was chosen: conversations are told apart as by `auto`."""
    with LLM(folder, **OPTIONS) as llm:
        yield llm


def always(llm: LLM, token: str, count: int = 3) -> SamplingParams:
    """Nothing but this token, so many times."""
    return SamplingParams(
        temperature=0, max_tokens=count, ignore_eos=True, logit_bias={llm.get_tokenizer().token_to_id(token): 100}
    )


def test_a_thought_begun_by_the_template_is_all_of_an_unfinished_answer_and_special_marks_reach_the_parser(unset):
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, bad_words=["</think>"])
    [thinking] = unset.chat(MESSAGES, params, use_tqdm=False)
    [answering] = unset.chat(MESSAGES, params, use_tqdm=False, chat_template_kwargs={"enable_thinking": False})
    assert thinking.prompt.endswith("<think>\n")
    assert thinking.outputs.reasoning_content
    assert thinking.outputs.text == ""
    assert answering.outputs.reasoning_content is None
    assert answering.outputs.text
    [output] = unset.chat(MESSAGES, always(unset, "</think>"), use_tqdm=False)
    assert (output.outputs.reasoning_content, output.outputs.text) == (None, "</think></think>")


# --- where nothing was chosen -----------------------------------------------------------------------------------------


def parts(output) -> tuple[str | None, str]:
    return output.outputs.reasoning_content, output.outputs.text


@for_each("tools", [None, TOOLS])
def test_calls_are_looked_for_where_there_are_tools(unset, tools):
    """Without tools an answer that looks like a call is an answer."""
    params = SamplingParams(guided_regex=r'\{"name": "look", "arguments": \{\}\}', max_tokens=64, temperature=0)
    closed = {"chat_template_kwargs": {"enable_thinking": False}, "use_tqdm": False}
    [output] = unset.chat(MESSAGES, params, tools=tools, **closed)
    assert output.outputs.text == '{"name": "look", "arguments": {}}'
    request = next(iter(unset._session.door.parse(unset._session.render_batch([MESSAGES], tools=tools), params)))
    parsing = unset._session.parsings.of_chat(has_tools=bool(request.tools))
    assert (parsing.calls is not None) == (tools is not None)


def test_what_generate_gives_stays_as_the_model_wrote_it_and_a_bound_of_thought_needs_a_conversation_or_a_parser(unset):
    """Special tokens are left out or shown as the request says, and never for a parser's sake."""
    [hidden] = unset.generate("Hello", always(unset, "<tool_call>"), use_tqdm=False)
    assert parts(hidden) == (None, "")
    shown = always(unset, "</think>")
    shown.skip_special_tokens = False
    [output] = unset.generate("Hello <think>", shown, use_tqdm=False)
    assert parts(output) == (None, "</think>" * 3)
    [streamed] = [output for output in unset.stream("<think>", always(unset, "</think>")) if output.finished]
    assert parts(streamed) == (None, "")
    params = SamplingParams(max_tokens=12, reasoning_max_tokens=2, ignore_eos=True, temperature=0)
    [output] = unset.chat(MESSAGES, params, use_tqdm=False)
    assert output.outputs.token_ids.index(unset.get_tokenizer().token_to_id("</think>")) <= 3  # a line break before it
    [refused] = unset.generate("Hello", params, use_tqdm=False)
    assert refused.error_code == 400 and "reasoning_parser" in refused.error_msg


def test_none_switches_it_off(folder):
    with LLM(folder, reasoning_parser="none", tool_parser="none", **{**OPTIONS, "load_format": "stand-in"}) as llm:
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
        [output] = llm.chat(MESSAGES, params, use_tqdm=False, tools=TOOLS)
        [plain] = llm.generate(output.prompt, params, use_tqdm=False)
        assert output.prompt.endswith("<think>\n") and parts(output) == parts(plain) == (None, plain.outputs.text)
