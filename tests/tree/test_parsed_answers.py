"""Thoughts and calls through the real processes: which parser, and marks that the tokenizer would hide."""

import json
from collections.abc import Iterator

import pytest
from builders.tiny_model import CHAT_TEMPLATE, tiny_model

from penstock import LLM, SamplingParams

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Begins the thought unless told otherwise, as some models' templates do.
TEMPLATE = CHAT_TEMPLATE.removesuffix("{% endif %}") + (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
    "{% endif %}{# calls stand between <tool_call> and </tool_call> #}"
)
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def llm(tmp_path_factory) -> Iterator[LLM]:
    """A model whose marks are special tokens, with everything on `auto`."""
    folder = tiny_model(tmp_path_factory.mktemp("models") / "thinking", "qwen3")
    path = folder / "tokenizer.json"
    state = json.loads(path.read_text())
    options = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    state["added_tokens"] += [{"id": 280 + number, "content": mark, **options} for number, mark in enumerate(MARKS)]
    path.write_text(json.dumps(state))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    options = {"max_model_len": 512, "kv_cache_memory": "16MiB", "quiet": True, "num_threads": 1}
    with LLM(folder, reasoning_parser="auto", tool_call_parser="auto", **options) as llm:
        yield llm


def always(llm: LLM, token: str, count: int = 3) -> SamplingParams:
    """Nothing but this token, so many times."""
    return SamplingParams(
        temperature=0, max_tokens=count, ignore_eos=True, logit_bias={llm.get_tokenizer().token_to_id(token): 100}
    )


def test_a_thought_begun_by_the_template_is_the_whole_of_an_unfinished_answer(llm):
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, bad_words=["</think>"])
    [thinking] = llm.chat(MESSAGES, params, use_tqdm=False)
    [answering] = llm.chat(MESSAGES, params, use_tqdm=False, chat_template_kwargs={"enable_thinking": False})
    assert thinking.prompt.endswith("<think>\n")
    assert thinking.outputs.reasoning_content
    assert thinking.outputs.text == ""
    assert answering.outputs.reasoning_content is None
    assert answering.outputs.text


def test_marks_that_are_special_tokens_reach_the_parser(llm):
    [output] = llm.chat(MESSAGES, always(llm, "</think>"), use_tqdm=False)
    assert (output.outputs.reasoning_content, output.outputs.text) == (None, "</think></think>")
    [output] = llm.generate("Hello", always(llm, "<tool_call>"), use_tqdm=False)
    assert (output.outputs.text, output.outputs.tool_calls) == ("<tool_call>" * 3, None)


def test_streamed_deltas_add_up_to_the_batch_result(llm):
    params = SamplingParams(max_tokens=40, seed=5, ignore_eos=True, logit_bias={281: 4.0})
    [whole] = llm.chat(MESSAGES, params, use_tqdm=False)
    deltas = [output.outputs[0] for output in llm.stream(MESSAGES, params)]
    assert "".join(delta.reasoning_content or "" for delta in deltas) == (whole.outputs.reasoning_content or "")
    assert "".join(delta.text for delta in deltas) == whole.outputs.text
    assert [token for delta in deltas for token in delta.token_ids] == whole.outputs.token_ids
