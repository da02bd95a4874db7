"""The blocks of an answer of /v1/messages while they grow: thoughts, texts and calls, in order of arrival.

Each part of the answer becomes the events that Anthropic's clients expect around their blocks.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from ....protocol.outputs import CompletionOutput, ToolCall
from ..schemas.messages import (
    Block,
    Delta,
    Message,
    MessageEvent,
    MessagesRequest,
    MessageUsage,
    StopReason,
    ThinkingDetails,
)
from ..schemas.sampling import Usage

# What ended an answer in a loop; neither Anthropic nor Ollama has a name for this.
_LOOP = "repetition"
# The key, as Anthropic's documents propose it, of arguments that were cut off, or aren't an object.
_INVALID = "INVALID_JSON"


class MessageBlocks:
    def __init__(self, request: MessagesRequest, digits: str | None = None) -> None:
        """Ids that the parser has not given end with `digits`, by default with random ones."""
        choice = request.tool_choice
        self._shows_thoughts = request.shows_thoughts
        self._has_one_call = choice is not None and choice.disable_parallel_tool_use is True
        self._digits = digits or secrets.token_hex(12)
        self._open: Block | None = None
        self._text = ""  # of the open block: its text, thought, or arguments
        self._spaces = ""  # that may yet come before a text; alone they are no block
        self._call_index = -1
        self.done: list[Block] = []
        self.thought = ""  # of all blocks

    @property
    def has_calls(self) -> bool:
        return any(block.type == "tool_use" for block in self.done)

    def feed(self, answer: CompletionOutput) -> Iterator[MessageEvent]:
        """The events for a new part of the answer."""
        if answer.reasoning_content:
            yield from self._think(answer.reasoning_content)
        if answer.text:
            yield from self._write(answer.text)
        for call in answer.tool_calls or ():
            if call.index == 0 or not self._has_one_call:
                yield from self._call(call)

    def close(self) -> Iterator[MessageEvent]:
        """End the open block."""
        block, self._open = self._open, None
        self._spaces = ""
        if block is None:
            return
        match block.type:
            case "text":
                block.text = self._text
            case "thinking":
                block.thinking = self._text if self._shows_thoughts else ""
                block.signature = _signature(self._text)
                yield self._delta(Delta(type="signature_delta", signature=block.signature))
            case "tool_use":
                block.input = arguments_of(self._text)
        yield MessageEvent(type="content_block_stop", index=len(self.done))
        self.done.append(block)

    def _think(self, text: str) -> Iterator[MessageEvent]:
        yield from self._begin("thinking", Block(type="thinking", thinking="", signature=""))
        self._text += text
        self.thought += text
        if self._shows_thoughts:
            yield self._delta(Delta(type="thinking_delta", thinking=text))

    def _write(self, text: str) -> Iterator[MessageEvent]:
        if (self._open is None or self._open.type != "text") and not text.strip():
            self._spaces += text
            return
        text, spaces = self._spaces + text, ""
        yield from self._begin("text", Block(type="text", text=""))
        self._spaces = spaces
        self._text += text
        yield self._delta(Delta(type="text_delta", text=text))

    def _call(self, call: ToolCall) -> Iterator[MessageEvent]:
        if call.index != self._call_index:
            yield from self.close()
            self._call_index = call.index
            name, call_id = call.function.name or "", call.id or f"toolu_{self._digits}{call.index or ''}"
            yield from self._begin("tool_use", Block(type="tool_use", id=call_id, name=name, input={}))
        if more := call.function.arguments:
            self._text += more
            yield self._delta(Delta(type="input_json_delta", partial_json=more))

    def _begin(self, kind: Literal["text", "thinking", "tool_use"], block: Block) -> Iterator[MessageEvent]:
        """Open the block, unless one of this kind is open."""
        if self._open is not None and self._open.type == kind:
            return
        yield from self.close()
        self._open, self._text = block, ""
        yield MessageEvent(type="content_block_start", index=len(self.done), content_block=block)

    def _delta(self, delta: Delta) -> MessageEvent:
        return MessageEvent(type="content_block_delta", index=len(self.done), delta=delta)


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call as an object."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {_INVALID: text}


def _signature(thought: str) -> str:
    """Clients send it back with the thought. It only shows whether a thought is still the same: it is no secret."""
    return base64.b64encode(hashlib.blake2b(thought.encode(), digest_size=24).digest()).decode()


def stop_of(
    request: MessagesRequest, reason: str | None, stop: int | str | None, num_tokens: int, *, has_calls: bool
) -> tuple[StopReason, str | None]:
    """Anthropic's name for the reason, and the stop string that was found."""
    if reason == "length":
        is_context = request.max_tokens is None or num_tokens < request.max_tokens
        return ("model_context_window_exceeded" if is_context else "max_tokens"), None
    if isinstance(stop, str) and stop in request.stops:
        return "stop_sequence", stop
    return ("tool_use" if has_calls else "end_turn"), None


def message_usage(usage: Usage, num_thought: int) -> MessageUsage:
    cached = usage.prompt_tokens_details.cached_tokens
    return MessageUsage(
        input_tokens=usage.prompt_tokens - cached,
        output_tokens=usage.completion_tokens,
        cache_read_input_tokens=cached,
        output_tokens_details=ThinkingDetails(thinking_tokens=num_thought) if num_thought else None,
    )


def whole_message(
    request: MessagesRequest,
    blocks: MessageBlocks,
    answer: CompletionOutput,
    usage: Usage,
    message_id: str,
    model: str,
    num_tokens: Callable[[str], int],
) -> Message:
    """The message of an answer whose blocks have ended; `answer` says why."""
    message = new_message(request, blocks, usage, message_id, model, num_tokens)
    message.content = blocks.done
    message.notice = joined_notices(message.notice, loop_notice(answer, request.stops))
    message.stop_reason, message.stop_sequence = stop_of(
        request, answer.finish_reason, answer.stop_reason, usage.completion_tokens, has_calls=blocks.has_calls
    )
    return message


def new_message(
    request: MessagesRequest,
    blocks: MessageBlocks,
    usage: Usage,
    message_id: str,
    model: str,
    num_tokens: Callable[[str], int],
) -> Message:
    """A message without its blocks, as it is known so far."""
    num_thought = num_tokens(blocks.thought) if blocks.thought else 0
    return Message(
        id=message_id,
        model=request.model or model,
        content=[],
        usage=message_usage(usage, num_thought),
        notice=joined_notices(request.unread_notice),
    )


def loop_notice(answer: CompletionOutput, stops: Sequence[str] = ()) -> str:
    """A sentence about an answer that was ended because it repeated itself; empty for others."""
    if answer.stop_reason != _LOOP or _LOOP in stops:
        return ""
    return "The answer was ended because it had become a loop; early_stop: false turns that off."


def joined_notices(*notices: Any) -> Any:
    """One notice of several, of which each may be unset or empty."""
    return " ".join(each for each in notices if each and each is not UNSET) or UNSET
