"""Compares what stands in a body with the answer that was drawn again: the body's form is made of it once more.

Texts, thoughts, calls, reasons, counts and log-probabilities are compared as JSON prints them. Ids, times, the model's
name, how much of a prompt was cached and which drafts came true say nothing about an answer, and aren't. What a
body repeats of its request is compared with the receipt (`repeated.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...protocol.outputs import CompletionOutput, RequestOutput
from ..http.answers.logprobs import Section, chat_logprobs, completion_logprobs, prompt_logprobs
from ..http.answers.long_json import LongJson
from ..http.answers.response_items import ResponseItems
from ..http.endpoints.chat import choice_of
from ..http.requests.tool_choice import CallParser
from ..http.schemas.chat import ChatCompletion
from ..http.schemas.completions import Completion, CompletionChoice
from ..receipts.receipt import Receipt
from ..rows.line_forms import ObjectPositions, usage_of
from ..rows.prompts import Row
from ..rows.records import record_of

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer

_SAYS_NOTHING = {"id", "call_id", "cached_tokens", "completion_tokens_details", "send_idx"}


class Difference(NamedTuple):
    path: str
    had: Any
    expected: Any


class Answered(NamedTuple):
    """What was drawn again for a body."""

    outputs: Sequence[RequestOutput]  # of each prompt
    receipts: Sequence[Receipt]
    tokenizer: "Callable[[], Tokenizer]"


def difference(body: Mapping[str, Any], answered: Answered) -> Difference | None:
    """The first difference between a body and what it would be of these answers."""
    kind = next(kind for kind in _KINDS if kind.fits(body))
    expected = kind.expected(answered)
    found = {name: body.get(name) for name in expected}
    return differing(expected, found, _is_same)


def is_known(body: Mapping[str, Any]) -> bool:
    return any(kind.fits(body) for kind in _KINDS)


def differing(expected: Any, found: Any, is_same: Callable[[Any, Any], bool], path: str = "") -> Difference | None:
    """The first difference between values as JSON has them; `is_same` compares those that have no parts."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = [*expected, *(name for name in found if name not in expected)]
        pairs = ((f"{path}.{name}" if path else name, name) for name in names if name not in _SAYS_NOTHING)
        each = (differing(expected.get(name), found.get(name), is_same, place) for place, name in pairs)
    elif isinstance(expected, list) and isinstance(found, list):
        places = zip(count(), expected, found)
        each = (differing(mine, theirs, is_same, f"{path}[{index}]") for index, mine, theirs in places)
        if (first := next(filter(None, each), None)) is None and len(expected) != len(found):
            place = min(len(expected), len(found))
            return Difference(f"{path}[{place}]", _at(found, place), _at(expected, place))
        return first
    else:
        return None if is_same(expected, found) else Difference(path, found, expected)
    return next(filter(None, each), None)


def _is_same(expected: Any, found: Any) -> bool:
    return type(expected) is type(found) and repr(expected) == repr(found)  # of numbers each bit


def _at(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else None


# --- the forms --------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    fits: Callable[[Mapping[str, Any]], bool]
    expected: Callable[[Answered], dict[str, Any]]


def _chat(answered: Answered) -> dict[str, Any]:
    [output], [receipt], json = answered.outputs, answered.receipts, LongJson()
    view, top = receipt.view, receipt.params.get("logprobs", 0)
    choices = []
    for answer in output.outputs:
        _show(answer, receipt)
        if view.hides_thoughts:
            answer.reasoning_content = None
        found = answer.logprobs
        choices.append(choice_of(answer, None if found is None else chat_logprobs(found, top, json)))
    completion = ChatCompletion(id="", created=0, model="", choices=choices, usage=usage_of(output))
    if output.prompt_logprobs is not None:
        completion.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), json)
    return _only(json, completion, "choices", "usage", "prompt_logprobs")


def _completion(answered: Answered) -> dict[str, Any]:
    long, numbers, choices = LongJson(), count(), []
    for output, receipt in zip(answered.outputs, answered.receipts, strict=True):
        for answer in output.outputs:
            choice = CompletionChoice(
                index=next(numbers), text=answer.text, finish_reason=answer.finish_reason,
                stop_reason=answer.stop_reason,
            )  # fmt: skip
            if answer.logprobs is not None:
                sections = [Section(ObjectPositions(answer.logprobs))]
                choice.logprobs = completion_logprobs(sections, receipt.params.get("logprobs", 0), long)
            if output.prompt_logprobs is not None:
                choice.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), long)
            choices.append(choice)
    usages = [usage_of(output) for output in answered.outputs]
    usage = usages[0]
    for other in usages[1:]:
        usage.prompt_tokens += other.prompt_tokens
        usage.completion_tokens += other.completion_tokens
        usage.total_tokens += other.total_tokens
        usage.prompt_tokens_details.image_tokens += other.prompt_tokens_details.image_tokens
        usage.prompt_tokens_details.video_tokens += other.prompt_tokens_details.video_tokens
    return _only(long, Completion(id="", created=0, model="", choices=choices, usage=usage), "choices", "usage")


def _response(answered: Answered) -> dict[str, Any]:
    [output], [receipt], items = answered.outputs, answered.receipts, ResponseItems()
    [answer] = output.outputs
    _show(answer, receipt)
    is_cut = answer.finish_reason == "length"
    list(items.feed(answer))
    list(items.close("incomplete" if is_cut else "completed"))
    usage = usage_of(output)
    thought = items.thought
    num_thought = len(answered.tokenizer().encode(thought, add_special_tokens=False)) if thought else 0
    return {
        "output": msgspec.to_builtins(items.done),
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
            "input_tokens_details": {},
            "output_tokens_details": {"reasoning_tokens": num_thought},
        },
    }


def _record(answered: Answered) -> dict[str, Any]:
    """A line of `penstock generate`; what the prompt was made of isn't known here."""
    [output] = answered.outputs
    record = json.loads(json.dumps(record_of(0, Row(None, answered.receipts[0].sampling), output)))
    return {name: value for name, value in record.items() if name in ("outputs", "usage", "prompt_logprobs")}


def _output(answered: Answered) -> dict[str, Any]:
    """A `RequestOutput` as a dict."""
    [output] = answered.outputs
    whole = output.to_dict()
    names = ("prompt_token_ids", "outputs", "prompt_logprobs", "finished", "error_code", "error_msg")
    return {name: whole[name] for name in (*names, "num_input_image_tokens", "num_input_video_tokens")}


_KINDS = (
    _Kind(lambda body: body.get("object") == "chat.completion", _chat),
    _Kind(lambda body: body.get("object") == "text_completion", _completion),
    _Kind(lambda body: body.get("object") == "response", _response),
    _Kind(lambda body: "prompt_token_ids" in body and "outputs" in body, _output),
    _Kind(lambda body: "outputs" in body and "usage" in body, _record),
)


def _show(answer: CompletionOutput, receipt: Receipt) -> None:
    """Show an answer that had to be a call as that call."""
    if receipt.view.named is not None or receipt.view.is_call:
        CallParser(receipt.view.named, "").take(answer)


def _only(long: LongJson, body: msgspec.Struct, *names: str) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.json.decode(b"".join(long.pieces(body)))
    return {name: whole.get(name) for name in names}
