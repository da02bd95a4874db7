"""Whatever stands in the place of a prompt: that request ends alone, with a sentence, and the others are answered.

The hard cases; tests/daemon/test_anything_among_good.py makes up any number of others, by every way in.
"""

import io
import json
import os
import signal
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from builders.cases import for_each
from builders.random_values import NAMES
from builders.starts import STAND_IN
from builders.tiny_model import tiny_model
from builders.watching import tree_processes, wait_until

from penstock import LLM, BeamSearchParams, ConfigError, EngineDeadError, RequestError, SamplingParams
from penstock.frontend.console import logs
from penstock.frontend.rows.prompts import from_json_lines
from penstock.frontend.session.window import Window
from penstock.frontend.text.end_tokens import notice
from penstock.frontend.text.tokenizer import Tokenizer

# Without `ignore_eos`: the stand-in worker looks for a token that its mask allows, and the end is always one.
PARAMS = SamplingParams(temperature=0, max_tokens=2)
GOOD = [7, 8, 9]


def answered(llm: LLM, prompts: list[Any], params: Any = PARAMS) -> list[Any]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for output in outputs:
        assert output.finished and output.error_code in (200, 400), output
        assert output.error_code == 200 or output.error_msg, output
    return outputs


def undescribed(city: str) -> None:
    """A tool whose docstring says nothing of its argument."""


HELLO = {"role": "user", "content": "x"}
# What a person may write in the place of one conversation, with the call's other arguments.
MISTAKEN: list[tuple[Any, dict[str, Any], str]] = [
    ([{"role": 3, "content": "x"}], {}, "the role of this one is int"), ([{"content": "x"}], {}, "no role"),
    ([{"role": "user", "content": 5}], {}, "int"), ([], {}, "empty"),
    ([{**HELLO, "tool_calls": [{"function": {"name": "f"}}]}], {}, "tool_calls belong to the assistant"),
    ([{**HELLO, "contnet": "y"}], {}, "no 'contnet'. Did you mean content"),
    ([{"role": "user", "content": [{"type": "text", "text": "a", "txet": 1}]}], {}, "no 'txet'. Did you mean text"),
    *[([HELLO], {"tools": [{"type": "function", "function": {"name": "f"} | given}]}, words) for given, words in (
        ({"paramaters": {}}, "Did you mean parameters"), ({"name": None}, "must be text, not None"),
        ({"parameters": "x"}, "a JSON schema"), ({"parameters": {"type": "objekt"}}, "Did you mean object"),
        ({"parameters": {"properties": {"type": {"items": {"type": ["strng"]}}}}}, "Did you mean string"),
    )],
    ([HELLO], {"tools": [undescribed]}, "'city'"), ([HELLO], {"tools": [{"name": "f"}]}, "not in the form"),
    ([HELLO], {"chat_template_kwargs": {"add_generation_promt": 1}}, "Did you mean add_generation_prompt"),
    ([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}], {}, "sees nothing"),
]  # fmt: skip


def test_a_mistake_in_one_conversation_raises_and_among_several_it_is_said_once(stand_in, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(logs, "say", lambda text, *, quiet: told.append(text))
    monkeypatch.setattr(stand_in._session, "is_quiet", False)
    for messages, named, words in MISTAKEN:
        for call in (stand_in.chat, stand_in.stream) if messages else (stand_in.chat,):
            with pytest.raises(RequestError, match=words):
                call(messages, PARAMS, **named)
    assert told == []
    wrong = [messages for messages, named, _ in MISTAKEN if not named]
    outputs = stand_in.chat([[HELLO], *wrong], PARAMS, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200] + [400] * len(wrong)
    assert str(outputs[1].outputs.text) == "" and "role" in outputs[1].error_msg
    [line] = told
    assert line.startswith("8 of 9 prompts failed: A message is a dict")
    assert line.endswith("; see `.error_msg`.")
    with pytest.raises(RequestError, match="list of 2; lists go to generate and chat"):
        stand_in.stream([[HELLO], [HELLO]], PARAMS)


def test_an_interrupted_call_hands_on_what_had_arrived_and_nobody_had_taken(stand_in, monkeypatch):
    def ready(window: Window[Any]) -> Any:
        if len(window._done) == 3:
            raise KeyboardInterrupt
        return iter(())

    monkeypatch.setattr(Window, "ready", ready)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        stand_in.generate([[7, 8], [7, 9], [8, 9]], PARAMS, use_tqdm=False)
    assert [output.prompt_token_ids for output in interrupted.value.results] == [[7, 8], [7, 9], [8, 9]]


# A prompt, its parameters, and a word of the sentence that refuses it.
BAD = {
    "empty text": ("", PARAMS, "empty"),
    "no ids": ([], PARAMS, "empty"),
    "too long": ([5] * 600, PARAMS, "600"),
    "id beyond the vocabulary": ([1, 10**6], PARAMS, "vocabulary"),
    "negative id": ([1, -1], PARAMS, "vocabulary"),
    "not an id": ({"prompt_token_ids": [1, "x"]}, PARAMS, "whole numbers"),
    "too many characters": ("x" * 100_000, PARAMS, "characters"),
    "unknown adapter": ({"prompt": "x", "lora_name": "nobody"}, PARAMS, "nobody"),
    "multimodal data": ({"prompt": "x", "multimodal_data": {"image": ["a.png"]}}, PARAMS, "sees no pictures"),
    "unknown part": ({"prompt": "x", "colour": 1}, PARAMS, "colour"),
    "both text and ids": ({"prompt": "x", "prompt_token_ids": [5]}, PARAMS, "give one of them"),
    "neither text nor ids": ({"priority": 1}, PARAMS, "prompt"),
    "stop id beyond the vocabulary": ("x", SamplingParams(stop_token_ids=[10**6]), "stop_token_ids"),
    "bias beyond the vocabulary": ("x", SamplingParams(logit_bias={10**6: 1.0}), "logit_bias"),
    "too many stop strings": ("x", SamplingParams(stop=["s"] * 65), "stop"),
    "no room left": ([5] * 20, SamplingParams(max_length=20), "max_length"),
    "a schema that nothing fits": ("x", SamplingParams(guided_json={"not": {}}), "schema is false"),
    "a regular expression that is none": ("x", SamplingParams(guided_regex="(a"), "unclosed"),
    "a thought nobody knows": ("x", SamplingParams(reasoning_max_tokens=3), "reasoning_parser"),
}


def test_bad_requests_among_a_hundred_good_ones_end_alone(stand_in):
    good = [[number, number + 1, 9] for number in range(1, 101)]
    expected = [output.outputs.token_ids for output in answered(stand_in, good)]
    prompts, params = list(good), [PARAMS] * 100
    for place, (prompt, own, _) in enumerate(BAD.values()):
        prompts.insert(6 * place, prompt)
        params.insert(6 * place, own)
    outputs = stand_in.generate(prompts, params, use_tqdm=False)
    for place, (name, (_, _, word)) in enumerate(BAD.items()):
        bad = outputs.pop(5 * place)
        assert bad.error_code == 400 and word in bad.error_msg, (name, bad.error_msg)
        assert bad.outputs.finish_reason == "error" and bad.finished, name
    assert [output.outputs.token_ids for output in outputs] == expected
    [output] = stand_in.stream([10**6], PARAMS)
    assert (output.error_code, output.finished) == (400, True)


VALUES = [
    None, True, False, 0, -1, 1.5, 10**30, "", "x", "\0", "(", "{", [], [[]], [1, "a"], [[1], []], ["x", None], {},
    {"x": 1}, {"5": 1e300}, {"type": 5}, {"type": []}, {"$ref": 5}, {"$ref": "#"}, {"properties": 5}, {"enum": {}},
    {"anyOf": 5}, {"structures": [5], "triggers": [5]}, {"structures": [{"begin": 1, "schema": 1, "end": 1}],
    "triggers": ["x"]}, {"format": 5}, {"format": {"type": "triggered_tags", "tags": 5, "triggers": 5}},
    {"type": "json_schema", "json_schema": 5}, {"type": "json_schema", "json_schema": {"schema": 5}},
    {"type": "structural_tag"}, {"window_size": "x"}, {"window_size": 10**9, "threshold": []}, {"json": {"x": 1}},
    {"format": []}, {"minItems": 1e308}, '{"minItems": 1e999}', '{"minimum": NaN}', {"json": 5}, {"regex": []},
    {"choice": {"a": 1}}, {"grammar": "start: "}, {"a": 1, "b": 2},
]  # fmt: skip


def test_any_value_of_any_parameter_fails_alone(stand_in):
    lines = [json.dumps({"prompt_token_ids": GOOD, name: value}) for name in NAMES for value in VALUES]
    rows = list(from_json_lines(lines, PARAMS))
    outputs = answered(stand_in, [row.prompt for row in rows], [row.params for row in rows])
    assert len(outputs) == len(NAMES) * len(VALUES)
    assert 0.05 < sum(output.error_code == 200 for output in outputs) / len(outputs) < 0.6


def test_a_death_hands_on_everything_that_had_finished(model_folder, monkeypatch):
    """Results that nobody had taken yet are among them: the caller comes back to them after the death."""
    monkeypatch.setenv("PENSTOCK_FAULTS", "worker.step=delay:0.2")
    with LLM(model_folder, quiet=True, **STAND_IN) as llm:
        lengths = [1, 4, 4, 4, 4, 900]
        params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
        run = llm.generate_iter([GOOD] * len(lengths), params, ordered=False)
        finished = [next(run)]
        client = llm._session.transport
        wait_until(lambda: len(client._pending) == 1, "all but the long one have come")
        os.kill(tree_processes(llm)["worker 0"], signal.SIGKILL)
        wait_until(lambda: client.error is not None, "the death is known")
        with pytest.raises(EngineDeadError, match="SIGKILL"):
            for output in run:
                finished.append(output)
    assert sorted(len(output.outputs.token_ids) for output in finished) == [1, 4, 4, 4, 4]


# --- tokens that a model's files name and its vocabulary has not ------------------------------------------------------


PROMPT = [7, 8, 9]
# Some of them in the last bits of a mask, which has more than the vocabulary's 307.
FOREIGN = [307, 318, 5000, 2**31, 10**24, -1]
WORDS = [*(f"word{number}" for number in range(60)), "</think>"]


def write(folder: Path, name: str, **content: Any) -> None:
    path = folder / name
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | content))


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


@for_each("name, token", zip(["stop_token_ids", "eos_token_id", "logit_bias", "bad_words_ids"], [307, 318, 5000, 307]))
def test_what_a_request_names_itself_ends_it_alone(foreign, name, token):
    value = {"logit_bias": {token: 1.0}, "bad_words_ids": [[5, token]]}.get(name, [token])
    params = [SamplingParams(max_tokens=2), SamplingParams(max_tokens=2, guided_choice=["a"], **{name: value})]
    good, bad = foreign.generate([PROMPT, PROMPT], params, use_tqdm=False)
    assert good.error_code == 200
    assert bad.error_code == 400 and name in bad.error_msg and str(token) in bad.error_msg


def test_each_such_token_is_named_once_with_its_file_and_a_text_in_them_or_a_bound_of_thought_is_refused(foreign):
    bounded = SamplingParams(max_tokens=2, reasoning_max_tokens=1)
    outputs = foreign.generate([PROMPT, f"hello {WORDS[-1]}"], [bounded, None], use_tqdm=False)
    for output, words in zip(outputs, ("lacks the mark", "is not in the vocabulary"), strict=True):
        assert output.error_code == 400 and words in output.error_msg
    where = f"({foreign._session.files.folder / 'generation_config.json'}: eos_token_id)"
    [line] = [line for line in foreign.told.splitlines() if "End tokens" in line]
    assert all(f" {token} {where}" in line for token in FOREIGN) and f" 2 {where}" not in line
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
