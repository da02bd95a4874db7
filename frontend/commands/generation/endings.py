"""Notices of answers that failed or were cut."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ....protocol.outputs import RequestOutput
from ...rows.prompts import Row
from ..repl.conversation import NO_GUARD


@dataclass
class Endings:
    count: int = 0  # of requests
    failed: int = 0
    num_answers: int = 0
    cut_by_context: int = 0
    cut_by_length: int = 0  # max_length
    repetitive: int = 0  # ended by early_stop
    # The number of tokens of each answer that was cut this way.
    cut_by_usual: list[int] = field(default_factory=list)
    cut_by_tokens: list[int] = field(default_factory=list)

    def add_failure(self) -> None:
        self.count += 1
        self.failed += 1

    def add(self, row: Row, output: RequestOutput) -> None:
        if output.error_code != 200:
            self.add_failure()
            return
        self.count += 1
        for answer in output.outputs:
            is_repetitive = answer.stop_reason == "repetition"
            self.add_answer(row, answer.finish_reason, len(answer.token_ids), is_repetitive=is_repetitive)

    def add_answer(self, row: Row, finish_reason: str | None, num_tokens: int, *, is_repetitive: bool) -> None:
        self.num_answers += 1
        self.repetitive += is_repetitive
        if finish_reason != "length":
            return
        if row.params.max_tokens is not None and num_tokens >= row.params.max_tokens:
            (self.cut_by_usual if row.has_usual_limit else self.cut_by_tokens).append(num_tokens)
        elif row.params.max_length is not None:
            self.cut_by_length += 1
        else:
            self.cut_by_context += 1

    def remarks(self) -> Iterator[str]:
        if usual := self.cut_by_usual:
            yield f"{self._which(len(usual))} cut at {_limits(usual)} tokens; --max-tokens allows more."
        if given := self.cut_by_tokens:
            yield f"{self._which(len(given))} cut at {_limits(given)} tokens, the max_tokens that were given."
        if self.cut_by_length:
            yield f"{self._which(self.cut_by_length)} cut at the max_length that was given."
        if self.cut_by_context:
            yield f"{self._which(self.cut_by_context)} cut: the context is full; a larger --max-model-len holds more."
        if self.repetitive:
            yield f"{self._which(self.repetitive)} ended as a repetition; --early-stop '{NO_GUARD}' allows more."

    def _which(self, number: int) -> str:
        if self.num_answers == 1:
            return "the answer was"
        return f"{number:,} of {self.num_answers:,} answers {'was' if number == 1 else 'were'}"


def _limits(lengths: list[int]) -> str:
    least, most = min(lengths), max(lengths)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
