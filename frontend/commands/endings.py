"""How answers ended, for what is said when all are there: those that failed, and those that were cut.

Knows nothing of what is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...protocol.outputs import RequestOutput
from ...protocol.sampling import SamplingParams

# Of a shell's answers where nobody said how long they may be: a model may go on for ever.
USUAL_TOKENS = 512


@dataclass
class Endings:
    usual: int | None  # the limit that nobody chose, if it holds
    count: int = 0  # of requests
    failed: int = 0
    num_answers: int = 0
    cut_by_usual: int = 0
    cut_by_context: int = 0

    def add_failure(self) -> None:
        self.count += 1
        self.failed += 1

    def add(self, params: SamplingParams, output: RequestOutput) -> None:
        if output.error_code != 200:
            self.add_failure()
            return
        self.count += 1
        for answer in output.outputs:
            self.add_answer(params, answer.finish_reason, len(answer.token_ids))

    def add_answer(self, params: SamplingParams, finish_reason: str | None, num_tokens: int) -> None:
        self.num_answers += 1
        if finish_reason != "length":
            return
        if num_tokens == self.usual:
            self.cut_by_usual += 1
        elif params.max_length is None and (params.max_tokens is None or num_tokens < params.max_tokens):
            self.cut_by_context += 1

    def remarks(self) -> Iterator[str]:
        """A limit that somebody chose needs no words."""
        if self.cut_by_usual:
            yield f"{self._which(self.cut_by_usual)} cut at {self.usual:,} tokens; --max-tokens allows more."
        if self.cut_by_context:
            yield f"{self._which(self.cut_by_context)} cut: the context is full; a larger --max-model-len holds more."

    def _which(self, number: int) -> str:
        if self.num_answers == 1:
            return "the answer was"
        return f"{number:,} of {self.num_answers:,} answers {'was' if number == 1 else 'were'}"
