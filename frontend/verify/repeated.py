"""Compares what a body repeats of its request with the receipt: its question, and the parameters of /v1/responses.

Only what the receipt binds is compared, and that is all that decides tokens. A body may leave parameters out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import RequestError
from ...protocol.parameters.sampling import SamplingParams
from ..http.answers.errors import ApiError
from ..http.requests.request_parts import response_parts
from ..http.schemas.responses import ResponsesRequest
from ..receipts.receipt import MAX_LENGTH, Receipt, View
from ..requests.tool_schemas import described_functions
from .bodies import Difference

if TYPE_CHECKING:
    from ..text.tokenizer import Tokenizer


# --- the parameters ---------------------------------------------------------------------------------------------------


def foreign_parameter(body: Mapping[str, Any], receipt: Receipt) -> Difference | None:
    """The first parameter of a body that isn't the receipt's; None if there is none."""
    if body.get("object") != "response":
        return None
    params = receipt.sampling
    for name in ("temperature", "top_p"):
        if name in body and not _is_number(had := body[name], expected := getattr(params, name)):
            return Difference(name, had, expected)
    most = body.get("max_output_tokens")
    if most is not None and not _is_limit(most, params.max_tokens or 0, receipt):
        return Difference("max_output_tokens", most, params.max_tokens)
    return _foreign_tools(body, receipt)


def _is_number(found: Any, expected: Any) -> bool:
    return not isinstance(found, bool) and isinstance(found, int | float) and found == expected


def _is_limit(found: Any, settled: int, receipt: Receipt) -> bool:
    """Whether a limit is the receipt's, which is shorter where the prompt left less of the model's length. Earlier
    receipts don't say how long that was."""
    whole = str(len(receipt.prompt_ids) + settled)
    is_cut = receipt.facts.get(MAX_LENGTH, whole) == whole
    return _is_number(found, settled) or (type(found) is int and found > settled and is_cut)


def _foreign_tools(body: Mapping[str, Any], receipt: Receipt) -> Difference | None:
    given, chosen = body.get("tools"), body.get("tool_choice")
    try:
        request = msgspec.convert({"input": "", "tools": given, "tool_choice": chosen}, ResponsesRequest)
        choice = response_parts(request, SamplingParams(), None, None).choice
        view, functions = choice.view(hides_thoughts=False), described_functions(choice.tools)
    except (msgspec.ValidationError, ApiError, RequestError):  # no request has these
        return Difference("tools", given, receipt.tools)
    if "tool_choice" in body and view != receipt.view:
        return Difference("tool_choice", chosen, _choice_of(receipt.view))
    tools = [{"type": "function", "function": function} for function in functions.values()]
    return None if tools == receipt.tools or "tools" not in body else Difference("tools", given, receipt.tools)


def _choice_of(view: View) -> Any:
    if view.named is not None:
        return {"type": "function", "name": view.named}
    return "required" if view.is_call else "auto"


# --- the question -----------------------------------------------------------------------------------------------------


def foreign_question(body: Mapping[str, Any], receipt: Receipt, tokenizer: "Tokenizer") -> tuple[str, Any] | None:
    """The place and the value of a question in a body that isn't the receipt's; None if there is none.

    Ids must be the receipt's. The text of a prompt or of what a user says must stand somewhere in the receipt's prompt,
    for only the model's template knows where. White space doesn't count, since templates trim it.
    """
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return None if prompt == receipt.prompt_ids else ("prompt", prompt)
    texts = list(_texts(body))
    whole = without_spaces(tokenizer.decode(receipt.prompt_ids, skip_special_tokens=False)) if texts else ""
    for place, text in texts:
        # As the tokenizer has it, which may not know each character.
        ids = tokenizer.encode(text, add_special_tokens=False)
        if without_spaces(tokenizer.decode(ids, skip_special_tokens=False)) not in whole:
            return place, text
    return None


def is_rendered(body: Mapping[str, Any], place: str, text: Any, render: Callable[[Any], str]) -> bool:
    """Whether this model's template, which is the receipt's, leaves the text of a question in a prompt as it is."""
    asked = {"role": "user", "content": text}
    conversations = {"prompt": [asked], "instructions": [{**asked, "role": "system"}, {**asked, "content": "."}]}
    if not isinstance(text, str):  # ids, which no template has seen
        return True
    try:
        rendered = render(conversations.get(place, body.get("messages")))
    except RequestError:
        return False
    return without_spaces(text) in without_spaces(rendered)


def _texts(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if isinstance(prompt := body.get("prompt"), str):
        yield "prompt", prompt
    if isinstance(instructions := body.get("instructions"), str):
        yield "instructions", instructions
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else []):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield f"messages[{index}]", part["text"]


def without_spaces(text: str) -> str:
    return "".join(text.split())
