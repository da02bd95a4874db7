"""The items of a response while they grow: thought, message, calls, in the order in which the model writes them.

Gives the events that OpenAI's clients expect around each, and the finished items. Knows nothing of requests.
"""

import secrets
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from ...protocol.outputs import CompletionOutput, ToolCall
from .schemas.responses import OutputItem, ResponseEvent, TextPart


class Items:
    def __init__(self) -> None:
        self.done: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._call_index = -1

    @property
    def thought(self) -> str:
        return "".join(part.text for item in self.done if item.type == "reasoning" for part in item.content or ())

    def feed(self, answer: CompletionOutput) -> Iterator[ResponseEvent]:
        """What this much more of the answer tells."""
        if answer.reasoning_content:
            yield from self._text("reasoning", answer.reasoning_content)
        if answer.text:
            yield from self._text("message", answer.text)
        for call in answer.tool_calls or ():
            yield from self._call(call)

    def close(self, status: str = "completed") -> Iterator[ResponseEvent]:
        """End the item that is open."""
        item, self._open = self._open, None
        if item is None:
            return
        item.status = status  # type: ignore[assignment]
        place = {"item_id": item.id, "output_index": len(self.done)}
        if item.type == "function_call":
            yield ResponseEvent(
                type="response.function_call_arguments.done", name=item.name, arguments=item.arguments, **place
            )
        else:
            part = item.content[0]
            kind = f"response.{part.type}.done"
            logprobs = [] if item.type == "message" else UNSET
            yield ResponseEvent(type=kind, text=part.text, content_index=0, logprobs=logprobs, **place)
            yield ResponseEvent(type="response.content_part.done", part=part, content_index=0, **place)
        yield ResponseEvent(type="response.output_item.done", item=item, output_index=len(self.done))
        self.done.append(item)

    def _text(self, kind: str, text: str) -> Iterator[ResponseEvent]:
        if self._open is None or self._open.type != kind:
            yield from self.close()
            yield from self._opened(_empty(kind))
            part = self._open.content[0]
            place = {"item_id": self._open.id, "output_index": len(self.done)}
            yield ResponseEvent(type="response.content_part.added", part=_copy(part), content_index=0, **place)
        part = self._open.content[0]
        part.text += text
        place = {"item_id": self._open.id, "output_index": len(self.done)}
        logprobs = [] if kind == "message" else UNSET
        yield ResponseEvent(
            type=f"response.{part.type}.delta", delta=text, content_index=0, logprobs=logprobs, **place
        )

    def _call(self, call: ToolCall) -> Iterator[ResponseEvent]:
        if self._open is None or self._open.type != "function_call" or call.index != self._call_index:
            yield from self.close()
            self._call_index = call.index
            item = OutputItem(
                id=_id("fc"), type="function_call", status="in_progress", call_id=call.id or _id("call"),
                name=call.function.name or "", arguments="",
            )  # fmt: skip
            yield from self._opened(item)
        self._open.arguments += call.function.arguments
        if call.function.arguments:
            yield ResponseEvent(
                type="response.function_call_arguments.delta",
                delta=call.function.arguments,
                item_id=self._open.id,
                output_index=len(self.done),
            )

    def _opened(self, item: OutputItem) -> Iterator[ResponseEvent]:
        self._open = item
        shown = msgspec.structs.replace(item)
        if item.type != "function_call":
            shown.content = []
        yield ResponseEvent(type="response.output_item.added", item=shown, output_index=len(self.done))


def _empty(kind: str) -> OutputItem:
    if kind == "reasoning":
        content = [TextPart(text="", type="reasoning_text")]
        return OutputItem(id=_id("rs"), type="reasoning", status="in_progress", summary=[], content=content)
    content = [TextPart(text="", type="output_text", annotations=[], logprobs=[])]
    return OutputItem(id=_id("msg"), type="message", status="in_progress", role="assistant", content=content)


def _copy(part: TextPart) -> TextPart:
    return msgspec.structs.replace(part)


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
