"""Splits a body of /v1/messages into what a model needs, as `request_parts.py` does for OpenAI's forms.

Blocks that the model would have to read, and that can't be shown to it, are refused. Left out are only thoughts that
Anthropic has encrypted, and lines for its billing.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ....protocol.fields.rules import shown
from ....protocol.parameters.sampling import SamplingParams
from ..answers.errors import ApiError
from ..schemas.chat import Called, CalledFunction, ChatMessage, ChosenFunction, ContentPart
from ..schemas.messages import InputBlock, InputMessage, MessagesRequest, MessageTool, MessageToolChoice
from .conversation import template_options
from .parameters import sampling_params
from .request_parts import RequestParts
from .tool_choice import ToolChoice

# Claude Code begins its system prompt with such a line for Anthropic's billing. It differs in each request, so that no
# prefix would ever be found again.
_LINES_FOR_ANTHROPIC = re.compile(r"(?:x-anthropic-[\w-]+:[^\n]*\n*)*", re.IGNORECASE)
_HAS_THOUGHTS = {"enabled": True, "adaptive": True, "disabled": False}


def message_parts(
    request: MessagesRequest, defaults: SamplingParams, salt: str | None, lora_name: str | None
) -> RequestParts:
    if request.receipt:
        raise ApiError(400, "receipt: /v1/messages gives none; /v1/chat/completions does.", param="receipt")
    choice = ToolChoice.of(_chosen(request.tool_choice), [_tool(tool) for tool in request.tools or ()])
    _check_shapes(request)
    output, thinking = request.output_config, request.thinking
    shape = request.output_format or (output and output.format)
    params = sampling_params(
        request,
        defaults,
        salt,
        max_tokens=request.max_tokens,
        stop=request.stops or None,
        call_shape=choice.shape,
        reasoning_max_tokens=thinking and thinking.budget_tokens,
        response_format=shape and {"type": "json_schema", "json_schema": {"schema": shape.schema}},
        lora_name=lora_name,
    )
    messages = _conversation(request)
    if shape and continues_last(messages):
        why = (
            "output_config.format holds a whole answer, so the last message can't be the assistant's, to be continued."
        )
        raise ApiError(400, why, param="output_config")
    return RequestParts(messages, choice, _template_options(request), params)


def _check_shapes(request: MessagesRequest) -> None:
    """Refuse what would be given twice, of which one would have no effect."""
    output = request.output_config
    if request.stop and request.stop_sequences:
        raise ApiError(400, "stop is another name of stop_sequences; give one of them.", param="stop")
    if output is not None and output.format is not None and request.output_format is not None:
        why = "output_format is another name of output_config.format; give one of them."
        raise ApiError(400, why, param="output_format")


def continues_last(messages: list[ChatMessage]) -> bool:
    """Whether the answer continues the conversation's last message, which is the model's own text."""
    last = messages[-1]
    return last.role == "assistant" and bool(last.content) and not last.tool_calls


def _template_options(request: MessagesRequest) -> dict[str, Any]:
    """A model thinks only if it is asked to, as Anthropic's do; clients read the first block as the answer."""
    options: dict[str, Any] = {
        "enable_thinking": request.thinking is not None and _HAS_THOUGHTS[request.thinking.type],
        "reasoning_effort": request.output_config and request.output_config.effort,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return {**given, **template_options(request.chat_template_kwargs)}


# --- tools ------------------------------------------------------------------------------------------------------------


def _tool(tool: MessageTool) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise ApiError(
            400,
            f"tools: {shown(tool.type)} is a tool of Anthropic's own, which isn't known here; describe it with name, "
            "description and input_schema, without a type.",
            param="tools",
        )
    described = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
    given = {name: value for name, value in described.items() if value is not None}
    return {"type": "function", "function": {"name": tool.name, **given}}


def _chosen(choice: MessageToolChoice | None) -> Any:
    if choice is None or choice.type != "tool":
        return None if choice is None else {"auto": "auto", "any": "required", "none": "none"}[choice.type]
    if choice.name is None:
        raise ApiError(400, "tool_choice needs name, the tool to call.", param="tool_choice")
    return ChosenFunction(name=choice.name)


# --- the conversation -------------------------------------------------------------------------------------------------


def _conversation(request: MessagesRequest) -> list[ChatMessage]:
    """The messages, consecutive ones of a role joined, as templates that want turns to alternate need them."""
    system, rest = _system_texts(request)
    messages = [ChatMessage(role="system", content="\n\n".join(system))] if system else []
    tool_names: dict[str, str] = {}  # by the ids of calls, in their order
    for is_assistant, turn in groupby(rest, lambda message: message.role == "assistant"):
        if is_assistant:
            messages.append(_assistant([_turn_blocks(message) for message in turn], tool_names))
        else:
            messages += _user([block for message in turn for block in _turn_blocks(message)], tool_names)
    if all(message.role == "system" for message in messages):
        raise ApiError(400, "messages: there is no message of a user to answer.", param="messages")
    return messages


def _system_texts(request: MessagesRequest) -> tuple[list[str], list[InputMessage]]:
    """The texts of the system prompt and of the system messages at the beginning, and the messages after these."""
    texts, rest = _texts(request.system or "", "system"), list(request.messages)
    while rest and rest[0].role == "system":
        texts += _texts(rest.pop(0).content, "messages")
    return [kept for text in texts if (kept := _without_billing(text))], rest


def _without_billing(text: str) -> str:
    found = _LINES_FOR_ANTHROPIC.match(text)
    return text[found.end() :] if found else text


def _turn_blocks(message: InputMessage) -> list[InputBlock]:
    if message.role != "system":
        return _blocks(message.content)
    text = "\n\n".join(_texts(message.content, "messages"))  # most templates take one at the beginning alone
    return [InputBlock(type="text", text=f"<system>\n{text}\n</system>")]


def _user(blocks: list[InputBlock], tool_names: Mapping[str, str]) -> Iterator[ChatMessage]:
    """Results of calls, each a message, and then the rest. Their pictures are part of the rest, since few templates
    show pictures in a result."""
    parts: list[ContentPart] = []
    for block in _in_order_of_calls(blocks, tool_names):
        if block.type != "tool_result":
            parts += _parts(block)
            continue
        found = [part for each in _blocks(block.content) for part in _parts(each)]
        text = "\n".join(part.text for part in found if part.text is not None)
        yield ChatMessage(
            role="tool",
            content=f"Error: {text}" if block.is_error else text,
            tool_call_id=block.tool_use_id,
            name=tool_names.get(block.tool_use_id or ""),
        )
        parts += [part for part in found if part.text is None]
    if parts:
        is_text = len(parts) == 1 and parts[0].text is not None
        yield ChatMessage(role="user", content=parts[0].text if is_text else parts)


def _in_order_of_calls(blocks: list[InputBlock], tool_names: Mapping[str, str]) -> list[InputBlock]:
    """Results first, each for its call: most templates show no ids, so that the order says which is whose."""
    places = {call_id: place for place, call_id in enumerate(tool_names)}
    results = [block for block in blocks if block.type == "tool_result"]
    if (lost := next((block for block in results if block.tool_use_id not in places), None)) is not None:
        raise ApiError(
            400,
            f"messages: no tool_use before it has the id of a tool_result, tool_use_id={shown(lost.tool_use_id)}.",
            param="messages",
        )
    results.sort(key=lambda block: places[block.tool_use_id or ""])
    return results + [block for block in blocks if block.type != "tool_result"]


def _assistant(messages: list[list[InputBlock]], tool_names: dict[str, str]) -> ChatMessage:
    thoughts: list[str] = []
    texts: list[str] = [""]  # of each message
    calls: list[Called] = []
    for block, is_first in ((block, index == 0) for blocks in messages for index, block in enumerate(blocks)):
        if is_first:
            texts.append("")
        match block.type:
            case "text":
                texts[-1] += block.text or ""
            case "thinking":
                thoughts.append(block.thinking or "")
            case "redacted_thinking":  # only Anthropic can read it
                pass
            case "tool_use":
                function = CalledFunction(name=block.name or "", arguments=block.input or {})
                calls.append(Called(function=function, id=block.id))
                tool_names[block.id or ""] = function.name
            case _:
                raise _unusable(block, "a message of the assistant")
    thought = "\n".join(filter(None, thoughts))
    text = "\n\n".join(filter(None, texts))
    return ChatMessage(role="assistant", content=text, reasoning_content=thought or None, tool_calls=calls or None)


# --- blocks -----------------------------------------------------------------------------------------------------------


def _blocks(content: str | list[InputBlock] | None) -> list[InputBlock]:
    return [InputBlock(type="text", text=content)] if isinstance(content, str) else content or []


def _texts(content: str | list[InputBlock], field: str) -> list[str]:
    """The texts of a system prompt."""
    blocks = _blocks(content)
    if (other := next((block for block in blocks if block.type != "text"), None)) is not None:
        raise _unusable(other, "a system prompt", field)
    return [block.text or "" for block in blocks]


def _parts(block: InputBlock) -> Iterator[ContentPart]:
    """A block of a user's message, or of a result, as OpenAI's parts."""
    match block.type:
        case "text":
            yield ContentPart(type="text", text=block.text or "")
        case "image":
            yield ContentPart(type="image_url", image_url=_picture(block))
        case "document":
            yield from _document(block)
        case "search_result":
            source = block.source if isinstance(block.source, str) else ""
            texts = (each.text or "" for each in _blocks(block.content))
            yield ContentPart(type="text", text="\n".join(filter(None, (block.title, source, *texts))))
        case "tool_reference":
            yield ContentPart(type="text", text=f"The tool {block.tool_name} can be used.")
        case _:
            raise _unusable(block, "a message of a user")


def _picture(block: InputBlock) -> str:
    match block.source if not isinstance(block.source, str) else None:
        case source if source is not None and source.type == "base64" and source.data is not None:
            return f"data:{source.media_type or 'image/png'};base64,{source.data}"
        case source if source is not None and source.type == "url" and source.url is not None:
            return source.url
    raise ApiError(
        400,
        'messages: a picture\'s source is {"type": "base64", "media_type": …, "data": …}, or {"type": "url", "url": …} '
        "with a data: URL.",
        param="messages",
    )


def _document(block: InputBlock) -> Iterator[ContentPart]:
    source = block.source if not isinstance(block.source, str) else None
    heading = "\n".join(filter(None, (block.title, block.context)))
    match source and source.type:
        case "text":
            inner = [InputBlock(type="text", text=source.data if source else "")]
        case "content":
            inner = _blocks(source.content if source else None)
        case kind:
            raise ApiError(
                400,
                f"messages: a document with the source {shown(kind)} can't be read here; send its text as "
                '{"type": "text", "media_type": "text/plain", "data": …}.',
                param="messages",
            )
    if heading:
        yield ContentPart(type="text", text=heading)
    for each in inner:
        yield from _parts(each)


def _unusable(block: InputBlock, where: str, field: str = "messages") -> ApiError:
    sentence = f"{field}: a block of the type {shown(block.type)} can't be in {where}, or isn't supported here."
    return ApiError(400, sentence, param=field)
