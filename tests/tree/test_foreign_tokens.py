"""Tokens that a model's files name and its vocabulary has not: neither the engine nor a request ends by them."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.starts import STAND_IN
from builders.tiny_model import tiny_model

from penstock import LLM, BeamSearchParams, ConfigError, SamplingParams
from penstock.frontend.text.end_tokens import notice
from penstock.frontend.text.tokenizer import Tokenizer

PROMPT = [7, 8, 9]
# Some of them in the last bits of a mask, which has more than the vocabulary's 307.
FOREIGN = [307, 318, 5000, 2**31, 10**24, -1]
WORDS = [*(f"word{number}" for number in range(60)), "</think>"]


def write(folder: Path, name: str, **content: Any) -> None:
    path = folder / name
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **content}))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Iterator[LLM]:
    """A model that names such tokens wherever it can, with a tokenizer that has more tokens than the model."""
    folder = tiny_model(tmp_path_factory.mktemp("models") / "tiny", "qwen3")
    write(folder, "generation_config.json", eos_token_id=[2, *FOREIGN])
    described = json.loads((folder / "tokenizer.json").read_text())
    size = len(described["model"]["vocab"])
    options = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    further = [{"id": size + number, "content": word, **options} for number, word in enumerate(WORDS)]
    write(folder, "tokenizer.json", added_tokens=described["added_tokens"] + further)
    told = io.StringIO()
    with redirect_stderr(told):
        llm = LLM(folder, reasoning_parser="qwen3", **STAND_IN)
    with llm:
        llm.told = told.getvalue()
        yield llm


ANSWERED = {
    "plain": SamplingParams(max_tokens=4),
    "no end before": SamplingParams(max_tokens=4, min_tokens=3),
    "samples": SamplingParams(max_tokens=4, logprobs=3, n=2),
    "a choice": SamplingParams(max_tokens=40, guided_choice=["a"]),
    "an object": SamplingParams(max_tokens=40, guided_json={"type": "object"}),
    "an expression": SamplingParams(max_tokens=40, guided_regex="(x|y)*"),
    "such words": SamplingParams(max_tokens=40, guided_choice=[f"{WORDS[-1]} {WORDS[-2]} {WORDS[-3]} and more"]),
    "no such words": SamplingParams(max_tokens=4, bad_words=[WORDS[0], WORDS[-1]]),
    "beams": BeamSearchParams(beam_width=2, max_tokens=3),
}


@for_each("params", ANSWERED.values(), ids=ANSWERED)
def test_every_kind_of_request_is_answered(foreign, params):
    [output] = foreign.generate([PROMPT], params, use_tqdm=False)
    assert output.error_code == 200, output.error_msg
    assert max(token for answer in output.outputs for token in answer.token_ids) < 307


@for_each("name", ["stop_token_ids", "eos_token_id", "logit_bias", "bad_words_ids"])
@for_each("token", [307, 318, 5000])
def test_what_a_request_names_itself_ends_it_alone(foreign, name, token):
    value = {"logit_bias": {token: 1.0}, "bad_words_ids": [[5, token]]}.get(name, [token])
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=2, guided_choice=["a"], **{name: value})]
    good, bad = foreign.generate([PROMPT, PROMPT], params, use_tqdm=False)
    assert good.error_code == 200
    assert bad.error_code == 400 and name in bad.error_msg and str(token) in bad.error_msg


def test_a_thought_that_cannot_be_closed_has_no_limit_and_a_text_in_them_is_refused_with_the_token(foreign):
    bounded = SamplingParams(max_tokens=2, reasoning_max_tokens=1)
    outputs = foreign.generate([PROMPT, f"hello {WORDS[-1]}"], [bounded, None], use_tqdm=False)
    for output, words in zip(outputs, ("lacks the mark", "is not in the vocabulary"), strict=True):
        assert output.error_code == 400 and words in output.error_msg


def test_each_is_named_once_with_its_file_when_the_model_is_loaded_and_a_model_without_another_is_told_so(foreign):
    where = f"({foreign._session.files.folder / 'generation_config.json'}: eos_token_id)"
    assert foreign.told.count("\n") == foreign.told.count("\n", 0, foreign.told.index("End tokens")) + 1  # one line
    assert all(f" {token} {where}" in foreign.told for token in FOREIGN) and f" 2 {where}" not in foreign.told
    assert notice({5: "here"}, 6) is None and notice({}, 6) is None
    assert "6 (here)" in notice({5: "here", 6: "here"}, 6) and "max_tokens" not in notice({5: "here", 6: "here"}, 6)
    assert "every answer goes on to its max_tokens" in notice({6: "here", -1: "there"}, 6)


@for_each("file", ["generation_config.json", "config.json"])
@for_each("value", ["</s>", True, 2.0, [None], [[2]], [2, "2"]])
def test_a_value_that_is_no_token_is_refused_with_its_file(tmp_path, file, value):
    folder = tiny_model(tmp_path, "qwen3")
    (folder / "generation_config.json").unlink()
    write(folder, file, eos_token_id=value)
    with pytest.raises(ConfigError, match=f"{file}: eos_token_id=.* must be a token id or a list") as refused:
        Tokenizer(folder)
    assert repr(value) in str(refused.value)
