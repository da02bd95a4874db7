"""Splits the body of a request into what a model needs: prompt, tools, and sampling parameters.

A body that comes by itself and a line of a batch pass the same functions, so the same bodies are accepted and mean the
same. Limits of a server are checked by its endpoints.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ....protocol.parameters.sampling import SamplingParams
from ..answers.errors import ApiError
from ..schemas.chat import Called, CalledFunction, ChatMessage, ChatRequest, ChosenTool, ContentPart
from ..schemas.completions import CompletionRequest
from ..schemas.responses import FlatChoice, FlatTool, InputItem, InputPart, ResponsesRequest
from .conversation import as_tools, template_options
from .parameters import sampling_params
from .tool_choice import ToolChoice

# OpenAI's limit for answers of /v1/completions that give none.
COMPLETION_TOKENS = 16
_KEPT_NOWHERE = ("previous_response_id", "conversation", "background", "prompt")
_TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


class RequestParts(NamedTuple):
    """A conversation and everything that is said about its answer."""

    messages: list[ChatMessage]
    choice: ToolChoice
    template_options: dict[str, Any]
    params: SamplingParams


def chat_parts(request: ChatRequest, defaults: SamplingParams, salt: str | None, lora_name: str | None) -> RequestParts:
    if request.echo:
        raise ApiError(400, "echo works with /v1/completions only.", param="echo")
    given = request.tool_choice
    choice = ToolChoice.of(given.chosen if isinstance(given, ChosenTool) else given, as_tools(request.tools))
    thinking = thinking_of(request)
    params = sampling_params(
        request,
        defaults,
        salt,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        call_shape=choice.shape,
        reasoning_max_tokens=thinking.max_tokens,
        lora_name=lora_name,
    )
    return RequestParts(request.messages, choice, thinking.template_options, params)


def response_parts(
    request: ResponsesRequest, defaults: SamplingParams, salt: str | None, lora_name: str | None
) -> RequestParts:
    for name in _KEPT_NOWHERE:
        if getattr(request, name):
            raise ApiError(400, f"{name}: this server keeps nothing; send the whole conversation.", param=name)
    given = request.tool_choice
    tools = [_nested(tool) for tool in request.tools or ()]
    choice = ToolChoice.of(given.chosen if isinstance(given, FlatChoice) else given, tools)
    thinking = thinking_of(request)
    params = sampling_params(
        request,
        defaults,
        salt,
        max_tokens=request.max_output_tokens,
        call_shape=choice.shape,
        reasoning_max_tokens=thinking.max_tokens,
        response_format=_response_format(request),
        lora_name=lora_name,
    )
    messages = list(conversation(request.input, request.instructions))
    return RequestParts(messages, choice, thinking.template_options, params)


def completion_params(
    request: CompletionRequest, defaults: SamplingParams, salt: str | None, lora_name: str | None
) -> SamplingParams:
    if request.suffix:
        raise ApiError(400, "suffix: filling a gap is not supported; leave it out.", param="suffix")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise ApiError(400, "best_of must equal n: all answers are returned.", param="best_of")
    if request.receipt and request.echo:
        raise ApiError(400, "receipt: a text that begins with its prompt has none; leave echo out.", param="receipt")
    if request.max_tokens == 0 and not request.echo:
        raise ApiError(400, "max_tokens=0 asks for nothing; it needs echo.", param="max_tokens")
    wants_prompt = request.echo and request.logprobs is not None
    return sampling_params(
        request,
        defaults,
        salt,
        max_tokens=1 if request.max_tokens == 0 else request.max_tokens,  # a request needs one
        logprobs=request.logprobs,
        prompt_logprobs=max(request.logprobs or 0, request.prompt_logprobs or 0) if wants_prompt else None,
        lora_name=lora_name,
    )


def as_prompts(given: str | list[str | int | list[int]], param: str = "prompt") -> list[str | list[int]]:
    """Token ids are one prompt; a list of texts or of lists of ids is several."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise ApiError(400, f"{param}: the list is empty; give at least one text or one list of ids.", param=param)
    if isinstance(given[0], int):
        if not all(isinstance(each, int) for each in given):
            raise ApiError(400, f"{param}: a list that begins with a token id holds token ids alone.", param=param)
        return [given]  # type: ignore[list-item]
    if any(isinstance(each, int) for each in given):
        raise ApiError(400, f"{param}: token ids stand in a list of their own.", param=param)
    return given  # type: ignore[return-value]


# --- how much to think, in all forms that clients of other servers use ------------------------------------------------


class Thinking(NamedTuple):
    template_options: dict[str, Any]  # all given options; a chat template may read them
    max_tokens: int | None


def thinking_of(request: ChatRequest | ResponsesRequest) -> Thinking:
    """Combine all fields; contradictory ones are refused. Options that the request gives to the template by name have
    precedence."""
    reasoning, thinking = request.reasoning, request.thinking
    is_enabled = {
        "enable_thinking": request.enable_thinking,
        "think": request.think,
        "thinking": None if thinking is None else {"enabled": True, "disabled": False}.get(thinking.type or ""),
        "reasoning": None if reasoning is None else False if reasoning.effort == "none" else reasoning.enabled,
        "reasoning_effort": False if request.reasoning_effort == "none" else None,
    }
    effort = {"reasoning_effort": request.reasoning_effort, "reasoning": reasoning and reasoning.effort}
    budget = {"thinking": thinking and thinking.budget_tokens, "reasoning": reasoning and reasoning.max_tokens}
    options = {
        "enable_thinking": _only(is_enabled),
        "reasoning_effort": _only(effort),
        "verbosity": request.verbosity,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return Thinking({**given, **template_options(request.chat_template_kwargs)}, _only(budget))


def _only(said: dict[str, Any]) -> Any:
    """The value that they agree on; None if none is set."""
    given = {name: value for name, value in said.items() if value is not None}
    if any(value != next(iter(given.values())) for value in given.values()):
        raise ApiError(400, f"{' and '.join(given)} contradict one another; give one of them.", param=next(iter(given)))
    return next(iter(given.values()), None)


# --- the input of /v1/responses, as a conversation --------------------------------------------------------------------


def conversation(given: str | list[InputItem], instructions: str | None = None) -> Iterable[ChatMessage]:
    if instructions:
        yield ChatMessage(role="system", content=instructions)
    if isinstance(given, str):
        yield ChatMessage(role="user", content=given)
        return
    turn = _Turn()
    for item in given:
        if not turn.takes(item):
            yield from turn.messages()
            turn = _Turn()
        match item.type:
            case "function_call" | "reasoning":
                turn.add(item)
            case None | "message" if item.role == "assistant":
                turn.content = _content(item.content, "content")
            case None | "message":
                yield ChatMessage(role=_role(item), content=_content(item.content, "content"))
            case "function_call_output":
                yield ChatMessage(role="tool", content=_content(item.output, "output"), tool_call_id=item.call_id)
            case other:
                raise ApiError(400, f"input: an item of the type {other!r} is not supported.", param="input")
    yield from turn.messages()


class _Turn:
    """Items of one turn of the model: a thought, a text, calls, in this order.

    With calls they are one message: the thought stays with the calls that it led to, and the template drops past ones.
    A thought that led to no call is not shown again.
    """

    def __init__(self) -> None:
        self.content: str | list[ContentPart] | None = None
        self._thought: str | None = None
        self._calls: list[Called] = []

    def takes(self, item: InputItem) -> bool:
        if item.type == "function_call":
            return True
        is_begun = bool(self._calls) or self.content is not None
        is_text = item.type in (None, "message") and item.role == "assistant"
        return not is_begun and (is_text or item.type == "reasoning")

    def add(self, item: InputItem) -> None:
        if item.type == "function_call":
            function = CalledFunction(name=item.name or "", arguments=item.arguments or "{}")
            self._calls.append(Called(function=function, id=item.call_id))
        elif item.content is not None:
            parts = _content(item.content, "content")
            self._thought = parts if isinstance(parts, str) else "".join(part.text or "" for part in parts)

    def messages(self) -> Iterable[ChatMessage]:
        if self._calls:
            yield ChatMessage(
                role="assistant",
                content="" if self.content is None else self.content,
                reasoning_content=self._thought,
                tool_calls=self._calls,
            )
        elif self.content is not None:
            yield ChatMessage(role="assistant", content=self.content)


def _role(item: InputItem) -> str:
    if item.role is None:
        raise ApiError(400, "input: a message needs a role.", param="input")
    return "system" if item.role == "developer" else item.role


def _content(content: str | list[InputPart] | None, name: str) -> str | list[ContentPart]:
    if content is None:
        raise ApiError(400, f"input: an item has no {name}, which must be text or a list of text parts.", param="input")
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: InputPart) -> ContentPart:
    if part.type in _TEXT_PARTS:
        return ContentPart(type="text", text=part.text)
    if part.type == "input_json":
        return ContentPart(type="text", text=msgspec.json.encode(part.data).decode())
    if part.type == "refusal":
        return ContentPart(type="refusal", refusal=part.refusal)
    return ContentPart(type=part.type, image_url=part.image_url, detail=part.detail, file_id=part.file_id)


def _nested(tool: FlatTool) -> dict[str, Any]:
    described = {name: value for name, value in msgspec.to_builtins(tool).items() if value is not None}
    described.pop("type")
    return {"type": "function", "function": described}


def _response_format(request: ResponsesRequest) -> dict[str, Any] | None:
    form = request.text.format if request.text is not None else None
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema", "schema": schema} if schema is not None:
            return {"type": "json_schema", "json_schema": {name: each for name, each in form.items() if name != "type"}}
        case {"type": "json_object" | "structural_tag"}:
            return form
    raise ApiError(
        400,
        'text.format must be {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "schema": …} or '
        '{"type": "structural_tag", …}.',
    )
