"""Runs `penstock generate` once the model is loaded: submits the prompts and writes the answers.

A single answer is written as it is generated; several are written in order or, in JSON and files, as they complete.
"""

import itertools
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.outputs import RequestOutput
from ...console import logs
from ...console.progress import Progress
from ...llm import LLM
from ...requests.request import guarded
from ...rows.prompts import Row
from ...rows.records import as_json
from ...rows.rendering import Rendering
from ..repl.answer_text import AnswerText, takes_colours
from ..repl.conversation import Answer, AnswerDelta
from .endings import Endings
from .output import OutputFile, OutputStream


class _TitledAnswer(NamedTuple):
    """One answer with its heading."""

    heading: str
    piece: AnswerDelta


@dataclass
class Job:
    llm: LLM
    rendering: Rendering
    output: OutputStream | OutputFile
    is_json: bool
    model: str  # its name, for batches
    endings: Endings
    progress: Progress | None = None
    _asked: dict[int, tuple[int, Row]] = field(default_factory=dict)  # by the number of the request
    _has_text: bool = False  # plain text is or will be written among the lines of a batch

    def run(self, rows: Iterator[Row]) -> None:
        numbered = enumerate(rows)
        first = list(itertools.islice(numbered, 2))
        is_alone = len(first) == 1
        self._has_text = any(row.batch is None for _, row in first)
        if is_alone and self._can_stream(first[0][1]):
            self._stream(first[0][1])
            return
        for number, row, output in self._answered(itertools.chain(first, numbered)):
            self.endings.add(row, output)
            self._write(number, row, output, is_alone=is_alone)
            if self.progress is not None:
                self.progress.add(output)

    # --- one answer, streamed ---------------------------------------------------------------------------------------

    def _can_stream(self, row: Row) -> bool:
        return isinstance(self.output, OutputStream) and not self.is_json and row.batch is None and row.params.n == 1

    def _stream(self, row: Row) -> None:
        answer = Answer()
        with closing(self.llm.stream(self.rendering.prompt(row), guarded(row.params))) as outputs:
            self._show(answer.add(output) for output in outputs)
        if answer.error is not None:
            self.endings.add_failure()
            logs.say(f"penstock: {answer.error}", quiet=False)
        else:
            self.endings.count += 1
            self.endings.add_answer(row, answer.finish_reason, answer.num_output, is_repetitive=answer.is_cycle)

    def _show(self, pieces: Iterator[AnswerDelta]) -> None:
        """Show a part of the answer. People see thoughts, dimmed; a pipe gets the answer alone."""
        if self._is_terminal:
            screen = AnswerText(takes_colours())
            try:
                for piece in pieces:
                    screen.write(piece)
            finally:
                screen.end()
            return
        last = "\n"
        for piece in pieces:
            last = piece.text or last
            self.output.write(piece.text)
        if not last.endswith("\n"):
            self.output.write("\n")

    @property
    def _is_terminal(self) -> bool:
        return isinstance(self.output, OutputStream) and self.output.is_standard and sys.stdout.isatty()

    # --- any number of answers --------------------------------------------------------------------------------------

    def _answered(self, numbered: Iterator[tuple[int, Row]]) -> Iterator[tuple[int, Row, RequestOutput]]:
        is_file = isinstance(self.output, OutputFile)
        prompts, params = itertools.tee(self._noted(numbered))
        outputs = self.llm.generate_iter(
            map(self.rendering.prompt, prompts),
            (row.params for row in params),
            ordered=not is_file and not self.is_json,
        )
        # An LLM numbers its requests from 0 in the order of their prompts, and this one has had no others.
        return ((*self._asked.pop(int(output.request_id)), output) for output in outputs)

    def _noted(self, numbered: Iterator[tuple[int, Row]]) -> Iterator[Row]:
        for request, (number, row) in enumerate(numbered):
            self._asked[request] = number, row
            yield row

    def _write(self, number: int, row: Row, output: RequestOutput, *, is_alone: bool) -> None:
        if row.batch is not None:
            heading = _heading_of(number, row) if self._has_text and not self.is_json else ""
            self.output.write(heading + row.batch.answer(output, self.model, self.llm._session.num_tokens))
        elif self.is_json:
            self.output.write(as_json(number, row, output))
        elif output.error_code != 200:
            logs.say(f"penstock: prompt {_title(number, row)}: {output.error_msg}", quiet=False)
        else:
            self._has_text = True
            self._write_text(_titled(number, row, output, is_alone=is_alone))

    def _write_text(self, answers: Iterator[_TitledAnswer]) -> None:
        if not self._is_terminal:
            self.output.write(_as_text(answers))
            return
        for heading, piece in answers:
            sys.stdout.write(heading)
            self._show(iter([piece]))


# --- answers as text for people ---------------------------------------------------------------------------------------


def _titled(number: int, row: Row, output: RequestOutput, *, is_alone: bool) -> Iterator[_TitledAnswer]:
    """The bare answer if there is only one; otherwise each under a heading."""
    for answer in output.outputs:
        heading = ""
        if not is_alone or len(output.outputs) > 1:
            sample = f", answer {answer.index}" if len(output.outputs) > 1 else ""
            heading = _heading_of(number, row, sample)
        yield _TitledAnswer(heading, AnswerDelta.of(answer))


def _heading_of(number: int, row: Row, sample: str = "") -> str:
    return f"==> {_title(number, row)}{sample} <==\n"


def _title(number: int, row: Row) -> str | float:
    if row.batch is not None:
        return row.batch.custom_id
    return number if row.name is None else row.name


def _as_text(answers: Iterator[_TitledAnswer]) -> str:
    """Format as text, without thoughts."""
    return "".join(heading + (text if text.endswith("\n") else text + "\n") for heading, (_, text) in answers)
