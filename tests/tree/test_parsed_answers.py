"""Thoughts and calls through the real processes: which parser, and marks that the tokenizer would hide."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.tiny_model import CHAT_TEMPLATE, tiny_model

from penstock import LLM, SamplingParams

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


def test_what_generate_gives_stays_as_the_model_wrote_it(unset):
    """Special tokens are left out or shown as the request says, and never for a parser's sake."""
    [hidden] = unset.generate("Hello", always(unset, "<tool_call>"), use_tqdm=False)
    assert parts(hidden) == (None, "")
    shown = always(unset, "</think>")
    shown.skip_special_tokens = False
    [output] = unset.generate("Hello <think>", shown, use_tqdm=False)
    assert parts(output) == (None, "</think>" * 3)
    [streamed] = [output for output in unset.stream("<think>", always(unset, "</think>")) if output.finished]
    assert parts(streamed) == (None, "")


def test_a_bound_of_thought_needs_a_conversation_or_a_parser(unset):
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
