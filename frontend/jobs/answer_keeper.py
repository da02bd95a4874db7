"""Keeps a run's answers in the job's journal, each in its row's own form and with its receipt.

Of answers that aren't finished yet it keeps what they have said.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...protocol.outputs import RequestOutput
from ...protocol.wire import column
from ..receipts.receipt import PLAIN, Receipt, ReceiptDraft
from ..replay.answers import keys_of_line
from ..requests.continuation import since
from ..rows.prompts import Row
from ..rows.records import prompt_of, record_of
from ..session.session import Session
from .job_input import InputLine
from .journal.kept_receipts import ReceiptKeeper
from .journal.records import Answered, Continued, JobState, Progressed, Record
from .ledger import EnergyMeter, memory_of_processes
from .number_rows import NumberRow

if TYPE_CHECKING:
    from ..replay.finder import AnswerFinder
    from ..rows.batch_line import LineIdentity
    from .job import JobOptions

_NOT_ANSWERED = (499, 503)  # aborted, or shutting down: to be asked again
_JSON = msgspec.json.Encoder()

OnAnswer = Callable[[Row, RequestOutput], None]


class RowsOfJob(Protocol):
    """A job, or the part of one that another machine answers."""

    options: "JobOptions"
    state: JobState
    replay: "AnswerFinder | None"
    commit_seconds: float

    @property
    def num_rows(self) -> int: ...
    @property
    def input_digest(self) -> str: ...
    @property
    def input(self) -> Any: ...
    @property
    def journal(self) -> Any: ...
    def append(self, record: Record) -> None: ...
    def check_complete(self) -> None: ...


class AnswerKeeper:
    """`on_answer` hears of each answer before it is in the journal."""

    def __init__(self, job: RowsOfJob, session: Session[Any], on_answer: OnAnswer) -> None:
        self.job = job
        self.session = session
        self.on_answer = on_answer
        self.receipts = ReceiptKeeper(job.state, job.append)
        self.drafts: dict[int, ReceiptDraft] = {}  # by row, of answers that have just ended
        self._began = time.monotonic()
        self._energy = EnergyMeter()

    def keep(self, line: InputLine, row: Row, output: RequestOutput) -> None:
        if output.error_code in _NOT_ANSWERED:
            return
        self.on_answer(row, output)
        num_cached, output.num_cached_tokens = output.num_cached_tokens, 0  # it depends on what ran before
        num_output = sum(len(answer.token_ids) for answer in output.outputs)
        draft, written = self.drafts.pop(line.row, None), output.receipt
        receipt = draft.after(output) if draft is not None else None if written is None else Receipt.read(written)
        output.receipt = None  # the line gets it when it is written
        text = self._line(line, row, output)
        num_prompt = len(output.prompt_token_ids)
        record = Answered(line.row, line.digest, output.error_code, num_prompt, num_cached, num_output, text)
        if row.batch is not None and not record.has_failed:
            record.token_ids = [column(answer.token_ids) for answer in output.outputs]
            record.prompt_keys = sorted(keys_of_line(prompt_of(row)))
        if (metrics := output.metrics) is not None:
            record.num_draft_tokens, record.num_accepted_tokens = metrics.num_draft_tokens, metrics.num_accepted_tokens
        if receipt is not None:
            view = PLAIN if row.batch is None else row.batch.view
            self.receipts.keep(record, receipt, view, is_shown=row.params.receipt)
        self.job.append(record)

    def keep_numbers(self, numbers: NumberRow) -> None:
        """Keep a row's answer in numbers, of which all prompts are computed."""
        if (failure := numbers.failure) is not None:
            self.keep(numbers.line, numbers.row, failure)
            return
        self.on_answer(numbers.row, numbers.summary())
        self.job.append(numbers.answered(self.job.options.model, self._identity(numbers.line)))

    def keep_unfinished(self, row: int, said: Sequence[Any]) -> None:
        """Keep what the samples of a running answer have said beyond what is kept already."""
        before = self.job.state.said.get(row)
        new = said if before is None else [since(*pair) for pair in zip(said, before, strict=False)]
        if any(each.token_ids for each in new):
            self.job.append(Continued(row, list(new)))

    def keep_progress(self, num_in_flight: int) -> None:
        memory = memory_of_processes() if self.session.daemon is None else 0
        seconds = time.monotonic() - self._began
        self.job.append(Progressed(seconds, num_in_flight, memory, self._energy.joules()))

    def _line(self, line: InputLine, row: Row, output: RequestOutput) -> bytes:
        """The answer in the row's own form; a failure in that of OpenAI's error files."""
        if row.batch is None and output.error_code == 200:
            record = record_of(line.row, row, output)
            try:
                return _JSON.encode(record) + b"\n"
            except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only escape
                return json.dumps(record).encode() + b"\n"
        from ..rows.batch_line import BatchLine  # slow to import

        batch = row.batch or BatchLine.failed(str(line.row if row.name is None else row.name), output)
        answer = batch.answer(output, self.job.options.model, self.session.num_tokens, self._identity(line))
        return answer.encode(errors="backslashreplace")

    def _identity(self, line: InputLine) -> "LineIdentity":
        from ..rows.batch_line import LineIdentity  # slow to import

        label = f"{self.job.input_digest} {self.job.options.seed} {line.row}".encode()
        return LineIdentity(hashlib.blake2b(label, digest_size=12).hexdigest(), 0)
