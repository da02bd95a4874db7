"""Thoughts and calls on their way into results: from the door to what `take()` hands over."""

import json
from dataclasses import asdict

import pytest
from builders.tokenizer_kinds import write_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.requests.door import Door
from penstock.frontend.requests.pending_request import PendingRequest
from penstock.frontend.requests.prompts import RenderedPrompt
from penstock.frontend.text.chat import render
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.messages import Delta, sequence_id
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.outputs import CompletionOutput, RequestOutput
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column

ANSWER = (
    "<think>\nTwo cities.\n</think>\n\nLet me look.\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "北京"}}\n</tool_call>'
)
BOTH = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
PLAN = MemoryPlan("cpu", "a CPU", 0, 0, 0, [GroupPlan("full", 2, 1, 64)], 512, 512, 10_000, "float32", "float32")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return Tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), "byte_level"))


@pytest.fixture
def admit(tokenizer):
    def admit(prompt, n=1, seed=0, **options) -> PendingRequest:
        door = Door(EngineConfig.from_options("m", **options), tokenizer, PLAN, SamplingParams())
        [request] = door.admit(list(door.parse([prompt], SamplingParams(n=n, seed=seed))), lambda request: None)
        return request

    return admit


def answered(request: PendingRequest, text: str, sample: int = 0, **end) -> CompletionOutput:
    """The result of a request that got this answer."""
    request.add(delta(request, text, sample, **{"finish_reason": "stop", **end}))
    return request.take().outputs[sample]


def delta(request: PendingRequest, text: str, sample: int = 0, finish_reason=None, stop_reason=None) -> Delta:
    return Delta(sequence_id(request.prompt.request_id, sample), text, column([1]), 0, finish_reason, stop_reason)


def test_thought_answer_and_calls_come_apart_and_are_none_where_they_do_not_occur(admit):
    answer = answered(admit(RenderedPrompt("Weather?"), **BOTH), ANSWER)
    assert (answer.reasoning_content, answer.text) == ("Two cities.", "Let me look.")
    assert [call.function.name for call in answer.tool_calls] == ["weather", "weather"]
    assert [json.loads(call.function.arguments) for call in answer.tool_calls] == [{"city": "Paris"}, {"city": "北京"}]
    assert [(call.index, call.type) for call in answer.tool_calls] == [(0, "function"), (1, "function")]
    assert answer.finish_reason == "tool_calls"
    for options, text in (({}, ANSWER), (BOTH, "Hi.")):
        answer = answered(admit(RenderedPrompt("Weather?"), **options), text)
        assert (answer.text, answer.reasoning_content, answer.tool_calls) == (text, None, None)
        assert answer.finish_reason == "stop"


def test_tool_calls_is_the_reason_where_a_chat_ended_by_itself_with_whole_calls(admit):
    def reason(text, prompt=None, **end):
        return answered(admit(prompt or RenderedPrompt("x"), **BOTH), text, **end).finish_reason

    assert reason(ANSWER) == reason(ANSWER, stop_reason=7) == "tool_calls"
    assert reason(ANSWER, stop_reason="</tool_call>") == "stop"
    assert (reason(ANSWER, finish_reason="length"), reason(ANSWER, finish_reason="abort")) == ("length", "abort")
    assert reason(ANSWER[:-17]) == reason("<tool_call>no</tool_call>") == reason(ANSWER, "x") == "stop"


def test_samples_are_read_each_for_itself(admit):
    request = admit(RenderedPrompt("x"), n=2, **BOTH)
    request.add(delta(request, "<think>One", 0))
    request.add(delta(request, "Two", 1))
    first = request.take().outputs
    assert [(answer.reasoning_content, answer.text) for answer in first] == [("One", ""), (None, "Two")]
    request.add(delta(request, "</think>1", 0, "stop"))
    request.add(delta(request, "</think>2", 1, "stop"))
    second = request.take().outputs
    assert [(answer.reasoning_content, answer.text) for answer in second] == [(None, "1"), (None, "</think>2")]


@given(st.lists(st.integers(1, 12), max_size=30), st.lists(st.booleans(), min_size=31, max_size=31))
def test_whenever_a_stream_is_read_its_deltas_add_up_to_the_batch_result(tokenizer, lengths, reads):
    door = Door(EngineConfig.from_options("m", **BOTH), tokenizer, PLAN, SamplingParams(seed=3))
    prompts = [RenderedPrompt("x")]
    [stream], [batch] = (door.admit(list(door.parse(prompts, None)), lambda request: None) for _ in range(2))
    rest, outputs = ANSWER, []
    for length, is_read in zip(lengths, reads):
        stream.add(delta(stream, rest[:length]))
        rest = rest[length:]
        if is_read:
            outputs.append(stream.take())
    stream.add(delta(stream, rest, 0, "stop"))
    outputs.append(stream.take())
    batch.add(delta(batch, ANSWER, 0, "stop"))
    result = batch.take()
    assert joined(outputs) == joined([result])
    assert all(call.id and call.function.name for call in result.outputs.tool_calls)


def joined(outputs: list[RequestOutput]) -> tuple:
    answers = [output.outputs[0] for output in outputs]
    calls: dict[int, list[str]] = {}
    for call in (call for answer in answers for call in answer.tool_calls or []):
        whole = calls.setdefault(call.index, ["", "", ""])
        for place, part in enumerate((call.id, call.function.name, call.function.arguments)):
            whole[place] += part or ""
    thought, text = ("".join(getattr(each, name) or "" for each in answers) for name in ("reasoning_content", "text"))
    return thought, text, calls, answers[-1].finish_reason


def test_ids_of_calls_differ_but_repeat_with_the_request(admit):
    def ids(prompt: str, seed: int = 0, sample: int = 0) -> list[str]:
        request = admit(RenderedPrompt(prompt), n=2, seed=seed, **BOTH)
        return [call.id for call in answered(request, ANSWER, sample=sample).tool_calls]

    found = [*ids("x"), *ids("y"), *ids("x", seed=1), *ids("x", sample=1)]
    assert len(set(found)) == 8
    assert ids("x") == found[:2]


def test_a_call_can_be_put_back_into_the_conversation(admit):
    answer = answered(admit(RenderedPrompt("x"), **BOTH), ANSWER)
    call = "{{ call.id }} {{ call.function.name }}{{ call.function.arguments }}"
    template = "{% for call in messages[0].tool_calls %}" + call + "\n{% endfor %}"
    message = {"role": "assistant", "content": answer.text, "tool_calls": answer.tool_calls}
    as_dicts = {**message, "tool_calls": [asdict(call) for call in answer.tool_calls]}
    first, second = answer.tool_calls
    expected = f'{first.id} weather{{"city": "Paris"}}\n{second.id} weather{{"city": "北京"}}\n'
    assert render(template, [message]) == render(template, [as_dicts]) == expected


def test_a_prompt_says_whether_its_answer_begins_within_a_thought(admit, tokenizer):
    for prompt, is_open, can_begin in (
        ("Well?", False, True), ("<think>\n", True, True), ("<think>\n\n</think>\n\n", False, False)
    ):  # fmt: skip
        thought = admit(RenderedPrompt(prompt), reasoning_parser="qwen3").prompt.thought
        assert (thought.is_open, bool(thought.openings)) == (is_open, can_begin)
        assert admit(RenderedPrompt(prompt)).prompt.thought is None
        assert admit(RenderedPrompt(prompt), tool_parser="hermes").prompt.thought is None
    assert admit(RenderedPrompt("Well?"), reasoning_parser="deepseek-r1").prompt.thought.is_open
    text = "assistant\n<think>\n"
    ids = tokenizer.encode(text, add_special_tokens=False)
    for prompt in (RenderedPrompt(text), text, {"prompt_token_ids": ids}):
        answer = answered(admit(prompt, reasoning_parser="qwen3"), "Hm.\n</think>\n\nYes.")
        assert (answer.reasoning_content, answer.text) == ("Hm.", "Yes.")


def test_a_mark_that_is_a_token_has_one_spelling_and_any_other_all_that_are_usual(admit, tokenizer):
    thought = admit(RenderedPrompt("x"), reasoning_parser="qwen3").prompt.thought
    assert thought.openings == [[tokenizer.token_to_id("<think>")]]
    for text in ("Hm.\n</think>\n\nYes", "Hm. </think>Yes", "</think>\nYes"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert any(ids[at : at + len(end)] == end for end in thought.closings for at in range(len(ids))), text
    assert tokenizer.decode(thought.forced) == "\n</think>\n\n"
    granite = admit(RenderedPrompt("x"), reasoning_parser="granite").prompt.thought
    assert tokenizer.decode(granite.forced) == "\n\nHere is my response:"


def test_a_plugins_reader_that_raises_fails_its_request_alone_and_hands_the_text_over(admit, tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from penstock.frontend.parsing import CallForm, CallMarks\n"
        "def reader(tools): raise KeyError('oh')\n"
        'TOOL_CALLS = {"own": CallMarks((CallForm("<call>", reader, "</call>"),))}\n'
    )
    options = {"tool_parser": "own", "tool_parser_plugin": str(path)}
    request = admit(RenderedPrompt("x"), **options)
    request.add(delta(request, "<call>", 0))
    assert request.take().error_msg == "The parser of this model's answers failed: KeyError: 'oh'"
    request.add(delta(request, "f</call>", 0, "stop"))
    output = request.take()
    assert (output.error_code, output.outputs.text, output.outputs.finish_reason) == (500, "f</call>", "error")
    assert answered(admit(RenderedPrompt("y"), **options), "Hi.").text == "Hi."
