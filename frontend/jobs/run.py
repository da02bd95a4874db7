"""One run of a job with one model: submits the rows that are left, and has each answer kept as it completes.

Rows are submitted in the order of their prefixes (`rows/order.py`), a window of them at a time. A row in
flight at two deaths is computed alone at the end; if the model dies again, the row has failed.
"""

import hashlib
import itertools
import queue
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import msgspec

from ...protocol.errors import EngineDeadError, RequestError
from ...protocol.outputs import CompletionOutput, RequestOutput, Samples
from ..console import logs
from ..requests.continuation import Continuation
from ..requests.prompts import ParsedPrompt, parse_checked
from ..requests.request import Request
from ..rows.order import in_prefix_order
from ..rows.prompts import Row, json_row, with_usual_limit
from ..rows.rendering import Rendering
from ..rows.texts import text_row
from ..session.session import Session
from ..session.window import Window
from .answer_keeper import AnswerKeeper, OnAnswer, RowsOfJob
from .job_input import InputLine
from .journal.records import Died
from .number_rows import NumberRow

# A row that was computed at so many deaths of the model is computed alone; if that kills the model too, it has failed.
_DEATHS_IN_COMPANY = 2
_REFUSED = 400
_DELTA_TOKENS = 32  # between two looks at an unfinished answer
_TRIED_ROWS = 64  # whose earlier answers are looked for before anything is computed


class JobRun:
    def __init__(
        self,
        job: RowsOfJob,
        session: Session[Any],
        on_answer: OnAnswer = lambda row, output: None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.job = job
        self.session = session
        self.check = check
        options = job.options
        self._rendering = Rendering(session, is_raw=options.is_raw, system=options.system)
        self._params = msgspec.structs.replace(session.door.defaults, **options.sampling_of_lines)
        self._limit = with_usual_limit if options.limits_answers else _as_it_is
        self._limited = self._limit(Row("", self._params))
        self._replay = job.replay or session.door.replay
        self._keeper = AnswerKeeper(job, session, on_answer)
        self._in_flight: dict[int, tuple[InputLine, Row]] = {}  # by position in the window
        self._numbers: dict[int, tuple[NumberRow, int]] = {}  # likewise, with the number of the prompt
        self._done: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._refused: set[int] = set()  # rows that could not go on from what they had said
        self._looked = time.monotonic()  # at the unfinished answers

    def run(self) -> None:
        """Answer the rows that are left; raises if some had to be left out."""
        self._answer(in_prefix_order(self._rows_in_company()))
        if self._refused:
            self._answer(self._rows_in_company())
        if self.job.state.deaths:
            self._answer(self._rows_alone(), 1)
        self.job.journal.commit()
        # A record behind the synced ones, by which damage to any of them is known.
        self._keeper.keep_progress(len(self._in_flight))
        self.job.check_complete()

    def warn_of_useless_replay(self) -> None:
        """Warn if none of the first lines has an answer in the job's earlier run, and say why."""
        if (replay := self.job.replay) is None:
            return
        for line, row in islice(self._rows_in_company(), _TRIED_ROWS):
            self._prompt(line, row)  # which looks for its answer
            if replay.num_found:
                return
        if replay.num_lines:
            found = f"none of the first {replay.num_lines:,} lines is found in {replay.name}"
            logs.say(f"penstock: {found}: {replay.reason()}.", quiet=self.session.is_quiet)

    def _rows_in_company(self) -> Iterator[tuple[InputLine, Row]]:
        state = self.job.state
        for line in self.job.input.lines():
            if line.row in state.done or state.deaths.get(line.row, 0) >= _DEATHS_IN_COMPANY:
                continue
            yield line, self._row(line)

    def _rows_alone(self) -> Iterator[tuple[InputLine, Row]]:
        state = self.job.state
        for line in self.job.input.lines():
            if line.row in state.done:
                continue
            if state.deaths.get(line.row, 0) > _DEATHS_IN_COMPANY:
                self._keeper.keep(line, self._row(line), _died(state.cause))
            else:
                yield line, self._row(line)

    def _row(self, line: InputLine) -> Row:
        if isinstance(line.line, RequestError):
            return Row(line.line, self._params)
        if (texts := self.job.options.texts) is not None:
            return text_row(line.number, line.line, texts, self._params)
        row = json_row(line.number, line.line, self._params)
        if row.question is not None:
            return row
        if row.params is self._params:  # of most lines, which share them
            return row._replace(params=self._limited.params, has_usual_limit=self._limited.has_usual_limit)
        return self._limit(row)

    def _seeded(self, line: InputLine, row: Row) -> int:
        """The row's own seed, or one that depends on the job's seed, the row's number and its `custom_id`."""
        if row.params.seed is not None:
            return row.params.seed
        return seed_of(self.job.options.seed, line.row, "" if row.batch is None else row.batch.custom_id)

    def _answer(self, rows: Iterator[tuple[InputLine, Row]], most: int = sys.maxsize) -> None:
        self._in_flight.clear()
        self._numbers.clear()
        session = self.session
        session.transport.check()
        window = Window(session.transport, session.door, self._parsed(rows), self._done.put, most, ordered=False)
        try:
            while not window.is_over:
                window.size = min(most, session.window_size)  # which is another one when other jobs come or go
                window.fill()
                self.check()  # before what was filled is kept: it is refused where the session has just been closed
                while not self._done.empty():
                    self._finish(window, self._done.get())
                for position, output in window.ready():
                    line, row = self._in_flight.pop(position)
                    if (found := self._numbers.pop(position, None)) is not None:
                        self._take(*found, output)
                        continue
                    if output.error_code == _REFUSED and line.row in self.job.state.said.keys() - self._refused:
                        self._refused.add(line.row)  # its record is damaged, or it can't go on: it is asked anew
                        continue
                    self._keeper.keep(line, row, output)
                if time.monotonic() >= self._looked + self.job.commit_seconds:
                    self._keep_unfinished(window)
                if window.running:
                    self._wait(window)
        except EngineDeadError as error:
            if session.daemon is None or session.transport.error is None:  # else only the daemon has died
                self._died(window, error)
            raise
        finally:
            window.abandon()

    def _wait(self, window: Window[Any]) -> None:
        with suppress(queue.Empty):
            self._finish(window, self._done.get(timeout=self.job.commit_seconds))

    def _finish(self, window: Window[Any], request: Request) -> None:
        if (draft := request.without_receipt()) is not None:
            self._keeper.drafts[self._in_flight[request.position][0].row] = draft
        window.finish(request)

    def _parsed(self, rows: Iterator[tuple[InputLine, Row]]) -> Iterator[ParsedPrompt]:
        positions = itertools.count()
        for line, row in rows:
            if row.question is None:
                self._in_flight[next(positions)] = line, row
                yield self._prompt(line, row)
                continue
            numbers = NumberRow(line, row, row.question)
            for number, prompt in enumerate(numbers.prompts(self.session, self.job.options.model)):
                position = next(positions)
                self._in_flight[position], self._numbers[position] = (line, row), (numbers, number)
                yield prompt

    def _prompt(self, line: InputLine, row: Row) -> ParsedPrompt:
        prompt = self._rendering.prompt(row)
        if isinstance(prompt, RequestError):
            self.session.transport.check()  # it may be refused because the model has just died
        if line.row in self.job.state.said and line.row not in self._refused:
            prompt = Continuation(prompt, self.job.state.said[line.row])
        parsed = parse_checked(prompt, self._keeper.receipts.asking(row.params))
        parsed.seed, parsed.delta_tokens = self._seeded(line, row), _DELTA_TOKENS
        if self._replay is not None:
            parsed.expected = self._replay.expected(parsed, _name(row), line.row, self.job.num_rows)
        return parsed

    def _take(self, numbers: NumberRow, number: int, output: Any) -> None:
        """Take the result of one of a row's prompts, and keep the row's answer if it was the last one."""
        numbers.outputs[number] = output
        if numbers.is_complete:
            self._keeper.keep_numbers(numbers)

    def _keep_unfinished(self, window: Window[Any]) -> None:
        """Keep what the running answers have said since the last time."""
        self._looked = time.monotonic()
        for request in window.running.values():
            row = self._in_flight[request.position][0].row
            if not request.is_finished and row not in self._refused:  # a finished one is about to be kept
                self._keeper.keep_unfinished(row, request.so_far())
        self._keeper.keep_progress(len(self._in_flight))
        self.job.journal.commit()

    def _died(self, window: Window[Any], error: EngineDeadError) -> None:
        """Remember the rows that were being computed. The engine takes them in their order."""
        most = self.session.tree_config.step_limits(self.session.plan.device if self.session.plan else "cpu")[0]
        positions = sorted(self._in_flight)[:most]
        rows = dict.fromkeys(self._in_flight[position][0].row for position in positions)
        self.job.append(Died(list(rows), str(error)))
        self.job.journal.commit()


def _name(row: Row) -> str | None:
    if row.batch is not None:
        return row.batch.custom_id
    return None if row.name is None else str(row.name)


def _as_it_is(row: Row) -> Row:
    return row


def seed_of(seed: int, row: int, custom_id: str) -> int:
    """The seed of a row without one of its own."""
    label = f"{seed} {row} {custom_id}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(label, digest_size=8).digest(), "little") >> 1


def _died(cause: str) -> RequestOutput:
    message = f"The model's processes died whenever they computed this line, at last with this line alone: {cause}"
    samples = Samples([CompletionOutput(finish_reason="error")])
    return RequestOutput("", None, [], samples, finished=True, error_code=500, error_msg=message)
