"""A conversation with one model: the messages so far, and the last answer with its counts and times.

A turn is kept once part of its answer has arrived, even if it was stopped. A message without an answer is not part of
the history that the model sees; it is kept until it is retried, undone, or replaced by another.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....protocol.errors import RequestError
from ....protocol.outputs import CompletionOutput, RequestOutput
from ....protocol.parameters.sampling import SamplingParams
from ...llm import LLM
from .content import Content, content_of

NO_GUARD = '{"enable_early_stop": false}'  # lets an answer repeat itself


class AnswerDelta(NamedTuple):
    """The new part of an answer, or all of it."""

    thought: str
    text: str

    @classmethod
    def of(cls, answer: CompletionOutput) -> "AnswerDelta":
        """Take from an output; a tool call is shown as its name and arguments."""
        calls = (f"{call.function.name or ''}{call.function.arguments}" for call in answer.tool_calls or ())
        return cls(answer.reasoning_content or "", answer.text + "".join(calls))


@dataclass
class Answer:
    """An answer so far, and how long it took; seconds count from the question."""

    thought: str = ""
    text: str = ""
    num_prompt: int = 0
    num_cached: int = 0
    num_output: int = 0
    finish_reason: str | None = None  # None: stopped before its end
    is_cycle: bool = False  # it was ended because it repeated itself
    error: str | None = None
    first_seconds: float = 0.0
    seconds: float = 0.0
    asked_at: float = field(default_factory=time.monotonic)

    def add(self, output: RequestOutput) -> AnswerDelta:
        new = output.outputs[0]
        piece = AnswerDelta.of(new)
        self.seconds = time.monotonic() - self.asked_at
        if not self.num_output:
            self.first_seconds = self.seconds
        self.thought += piece.thought
        self.text += piece.text
        self.num_output += len(new.token_ids)
        self.num_prompt = len(output.prompt_token_ids)
        self.num_cached = max(self.num_cached, output.num_cached_tokens)
        self.finish_reason, self.error = new.finish_reason, output.error_msg
        self.is_cycle = new.stop_reason == "repetition"
        return piece

    @property
    def within(self) -> str:
        """The part of the answer before its text."""
        return " within its thoughts" if self.thought and not self.text else ""

    def ending(self) -> str:
        return f"stopped{self.within}" if self.finish_reason is None else f"ended: {self.finish_reason}"

    def message(self) -> dict[str, str]:
        thought = {"reasoning_content": self.thought} if self.thought else {}
        return {"role": "assistant", "content": self.text, **thought}


class Conversation:
    def __init__(self, llm: LLM, params: SamplingParams) -> None:
        self.llm = llm
        self.params = params
        self.system = ""
        self.turns: list[dict[str, Any]] = []
        self.template_options: dict[str, Any] = {}
        self.answer: Answer | None = None  # the last one
        self.unanswered: Content | None = None  # the last message, if no answer arrived
        self.added: list[dict[str, Any]] = []  # pictures and videos for the next message

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages, including the last one if it has no answer."""
        return self._told() + ([_question(self.unanswered)] if self.unanswered is not None else [])

    def _told(self) -> list[dict[str, Any]]:
        return ([{"role": "system", "content": self.system}] if self.system else []) + self.turns

    def reset(self) -> None:
        """Start again; the system message is kept."""
        self.turns.clear()
        self.added.clear()
        self.answer = self.unanswered = None

    def ask(self, text: str) -> Iterator[AnswerDelta]:
        """Ask, and yield the answer in pieces; closing the iterator stops it, also before the first piece is
        requested."""
        self.answer = Answer()
        self.unanswered = content = content_of(self.added, text)
        self.added = []
        return self._answered(content, self.answer, replaces=False)

    def retry(self) -> Iterator[AnswerDelta] | None:
        """Ask the last message again, if there is one; the earlier answer is kept if no new one arrives."""
        content = self.unanswered
        if content is None and (last := self._last_turn()):
            content = last[0]["content"]
        if content is None:
            return None
        self.answer = Answer()
        return self._answered(content, self.answer, replaces=self.unanswered is None)

    def undo(self) -> Content | None:
        """Forget the last message and everything after it; returns its content."""
        content = self.unanswered
        if content is None and (last := self._last_turn()):
            content = last[0]["content"]
            del self.turns[len(self.turns) - len(last) :]
        self.answer = self.unanswered = None
        return content

    def _last_turn(self) -> list[dict[str, Any]]:
        """The messages from the user's last one on."""
        starts = [index for index, message in enumerate(self.turns) if message["role"] == "user"]
        return self.turns[starts[-1] :] if starts else []

    def _answered(self, content: Content, answer: Answer, *, replaces: bool) -> Iterator[AnswerDelta]:
        replaced = self._last_turn() if replaces else []
        del self.turns[len(self.turns) - len(replaced) :]
        question = _question(content)
        try:
            outputs = self.llm.stream(
                [*self._told(), question], self.params, chat_template_kwargs=self.template_options
            )
            with closing(outputs):
                for output in outputs:
                    yield answer.add(output)
        except RequestError as error:  # the template refuses the conversation
            answer.error = str(error)
        finally:
            is_kept = bool(answer.text) or answer.finish_reason == "stop"
            self.turns += [question, answer.message()] if is_kept else replaced
            self.unanswered = None if is_kept or replaced else content

    def remark(self) -> str | None:
        """A remark about how the last answer ended, if one is needed."""
        answer = self.answer
        if answer is None:
            return None
        if answer.error is not None:
            if self.unanswered is None:
                return answer.error
            waits = "The message has no answer: /retry asks it again, /reset starts a new conversation."
            return answer.error + ("\n" if "\n" in answer.error else " ") + waits
        if answer.finish_reason == "stop":
            if answer.is_cycle:
                return f"ended{answer.within}: it repeated itself; /set early_stop {NO_GUARD} lets it go on"
            return None if answer.text else f"ended{answer.within} without an answer"
        ended = self._cut(answer) if answer.finish_reason == "length" else answer.ending()
        if answer.text:
            return ended
        return f"{ended}; {'the answer before stays' if self.unanswered is None else '/retry asks the message again'}"

    def _cut(self, answer: Answer) -> str:
        if self.params.max_tokens is not None and answer.num_output >= self.params.max_tokens:
            more = "; /set max_tokens allows more" if answer.within else ""
            return f"cut{answer.within} at {answer.num_output:,} tokens (--max-tokens){more}"
        return (
            f"cut{answer.within}: the context is full with {answer.num_prompt + answer.num_output:,} tokens; /reset "
            "starts a new conversation, a larger --max-model-len holds a longer one"
        )


def _question(content: Content) -> dict[str, Any]:
    return {"role": "user", "content": content}
