"""A job: every row of a file answered once, through any interruption.

What is done is in the journal; the output is made from it at the end. A run submits the rows that are left, within a
window, and appends each answer as it completes. An answer depends on its row and on the facts of the journal's head
alone, so any number of runs make the file that a single one would have made.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...protocol.errors import ClosedError, ConfigError
from ...protocol.options.config import hindrance_of_drafts
from ..rows.prompts import check_columns
from ..rows.texts import TextOptions, check_text_columns, refuse_array, refuse_json
from ..session.session import Session
from .answer_keeper import OnAnswer
from .formats.formats import require_format
from .head import (
    ChangedFactsError,
    asked_of,
    differences,
    facts_before_loading,
    facts_of_model,
    facts_of_settings,
    without_model,
)
from .job_files import JobFiles, Written
from .job_input import InputLine, JobInput
from .journal.checked_records import checked
from .journal.journal import Journal
from .journal.records import Began, Forgotten, Head, JobState, Record, packed
from .number_rows import check_texts_model, width_of
from .run import JobRun

if TYPE_CHECKING:
    from ..replay.finder import AnswerFinder

_GROUP = 1024  # rows in a record
_RECEIPT = "receipt"


@dataclass(frozen=True)
class JobOptions:
    """The options of a job besides its files; all but `receipt` are part of the head."""

    sampling: Mapping[str, Any] = field(default_factory=dict)  # over the model's defaults
    is_raw: bool = False
    system: str | None = None
    seed: int = 0
    model: str = ""  # its name in the output
    texts: TextOptions | None = None  # of a job that embeds texts; None: its lines say what they ask for
    limits_answers: bool = True  # to the usual length of a command's answers, where none is given

    @classmethod
    def of_texts(cls, texts: TextOptions, model: str) -> "JobOptions":
        """Of a job that embeds texts, which nothing of a chat or of sampling concerns."""
        return cls(is_raw=True, model=model, texts=texts)

    @property
    def sampling_of_lines(self) -> dict[str, Any]:
        """Without `receipt`: the journal has all receipts, and each run decides whether its output shows them."""
        return {name: value for name, value in self.sampling.items() if name != _RECEIPT}


class JobFacts(NamedTuple):
    """What a journal's head says of the model that answers a run."""

    facts: dict[str, str]
    asked: dict[str, str]
    is_daemon: bool

    @classmethod
    def of(cls, session: Session[Any]) -> "JobFacts":
        return cls(facts_of_model(session), asked_of(session), session.daemon is not None)


class Job:
    """Open it, `begin` and `run` it with a model while rows are left, and `finish` it; then close it."""

    replay: "AnswerFinder | None" = None  # of an earlier run, if one is named

    def __init__(
        self,
        source: str | os.PathLike[str],
        output: str | os.PathLike[str],
        options: JobOptions,
        *,
        accepts_change: bool = False,
        retries_errors: bool = False,
        commit_seconds: float = 1.0,
        replay: str | os.PathLike[str] | None = None,
    ) -> None:
        """Refuses what can be refused without the model. `replay` is the output of an earlier run."""
        self.options = options
        self.files = JobFiles.of(output)
        texts = options.texts
        require_format(self.files.output, is_vectors=texts is not None)
        self.input = JobInput(Path(source), check_columns if texts is None else check_text_columns(texts.field))
        self.commit_seconds = commit_seconds
        self._refuse_same_file()
        self.journal = Journal.open(self.files.journal, commit_seconds)
        try:
            survey = self.input.survey()
            self.num_rows, self.num_empty = survey.num_rows, survey.num_empty
            if texts is not None and texts.is_plain and not texts.is_certain:
                refuse_json(self.input.path, (line.line for line in self.input.lines()))
            elif texts is not None and not texts.is_plain:
                refuse_array(self.input.path, (line.line for line in self.input.lines()))
            self.state = JobState.of(record for _, record in checked(self.files.journal, self.journal.records()))
            settings = facts_of_settings(
                input=survey.digest,
                sampling_options=options.sampling_of_lines,
                raw=options.is_raw,
                system_prompt=options.system or "",
                seed=options.seed,
                model=options.model,
                **({} if texts is None else texts.settings),
            )
            self._settings = settings
            self._accepts_change = accepts_change
            self._retries_errors = retries_errors
            if self.state.head is not None:
                earlier = {name: value for name, value in self.state.head.facts.items() if name in settings}
                self._compare(earlier, settings)
            if replay is not None and self.is_left:
                from ..replay.finder import AnswerFinder  # few jobs have one

                self.replay = AnswerFinder(replay)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        if self.replay is not None:
            self.replay.close()
        self.journal.close()

    @property
    def is_left(self) -> bool:
        """Whether there are rows to answer."""
        head = self.state.head
        changed = head is None or head.facts.get("input") != self._settings["input"]
        retries = self._retries_errors and self.state.num_failed > 0
        return changed or retries or self.state.num_done < self.num_rows

    def resumed(self) -> str:
        """A sentence about what earlier runs have done; empty for a new job."""
        if self.state.head is None:
            return ""
        return f"resumed: {self.state.num_done:,} of {self.num_rows:,} done, {len(self.state.said):,} half done"

    @property
    def input_digest(self) -> str:
        return self._settings["input"]

    # --- the head ---------------------------------------------------------------------------------------------------

    def begin(self, session: Session[Any]) -> None:
        """Compare the head with this model, or write it; refuses a model with other facts."""
        if self.options.texts is not None:
            check_texts_model(session, self.options.texts.params)
        if self.replay is not None and session.plan is not None:
            if (why := hindrance_of_drafts(session.tree_config)) is not None:
                raise ConfigError(
                    f"{self.replay.name} can't be replayed: {why}. Leave that out, or --replay (replay=)."
                )
            self.replay.begin(session.plan.vocab_size, session.plan.max_model_len, lambda: session.tokenizer)
        self.begin_with(JobFacts.of(session), partial(self._check_width, session))
        if self.replay is not None:
            JobRun(self, session).warn_of_useless_replay()

    def begin_with(self, model: JobFacts, check_change: Callable[[], None] = lambda: None) -> None:
        """The same for a model of which the facts are known; `check_change` refuses changes that nobody can accept."""
        facts, head = self._settings | model.facts, self.state.head
        phrases = [] if head is None else self._compare(head.facts, facts)
        if phrases:
            check_change()
        if head is not None and phrases and head.facts.get("input") != facts["input"]:
            self._forget(list(self._changed_rows()))
        if self._retries_errors:
            self._forget([row for row in range(self.num_rows) if row in self.state.failed])
            self._retries_errors = False
        if head is None or phrases:
            self.append(Head(facts, self.num_rows))
        self.append(Began(model.is_daemon, model.asked))
        self.journal.commit()

    def _check_width(self, session: Session[Any]) -> None:
        if self.options.texts is not None:
            self._require_width(width_of(session, self.options.texts.params))

    def compare(self, session: Session[Any]) -> None:
        """Refuse a model with other facts where no row is left for it. It need not be loaded for that: what its run
        has asked is compared then."""
        if (head := self.state.head) is None:
            return
        if self._accepts_change and (texts := self.options.texts) is not None:
            self._require_width(width_of(session, texts.params))
        if session.plan is not None:
            facts = self._settings | facts_of_model(session)
            if self._compare(head.facts, facts):
                self.append(Head(facts, self.num_rows))
            return
        facts, asked = facts_before_loading(session), asked_of(session) if self.state.asked else {}
        earlier = without_model(head.facts, facts)
        if self._compare(earlier | self.state.asked, facts | asked):
            kept = {name: value for name, value in head.facts.items() if name not in earlier}
            self.append(Head(kept | facts, self.num_rows))
            self.append(Began(self.state.is_daemon, asked))

    def _compare(self, earlier: Mapping[str, str], facts: Mapping[str, str]) -> list[str]:
        """How these facts differ from earlier ones; refuses them unless a change is accepted."""
        phrases = differences(earlier, facts)
        if phrases and not self._accepts_change:
            raise ChangedFactsError(phrases)
        return phrases

    def _require_width(self, width: int) -> None:
        """Refuse an accepted change after which vectors have another length; 0 if that isn't known."""
        if width and (earlier := self.files.vector_width()) not in (0, width):
            raise ConfigError(
                f"The vectors in {self.files.journal} have {earlier:,} numbers, and those of this run {width:,}, so "
                "one file can't hold both. Give another output, or move the journal away to begin anew."
            )

    def _changed_rows(self) -> Iterator[int]:
        """Rows that were answered for another line than the input has now."""
        digests = self.files.line_digests()
        for line in self.input.lines():
            if line.row < len(digests) and digests[line.row] not in (0, line.digest):
                yield line.row
        yield from (row for row in range(self.num_rows, len(digests)) if digests[row])

    def _forget(self, rows: list[int]) -> None:
        for start in range(0, len(rows), _GROUP):
            self.append(Forgotten(rows[start : start + _GROUP]))

    def _refuse_same_file(self) -> None:
        for path in self.files:
            if path.exists() and os.path.samefile(path, self.input.path):
                raise ConfigError(f"{self.input.path} is read and would be written. Give the output another name.")

    def append(self, record: Record) -> None:
        self.state.take(record)
        self.journal.append(packed(record))

    # --- the rows ---------------------------------------------------------------------------------------------------

    def run(self, session: Session[Any], on_answer: OnAnswer, check: Callable[[], None] = lambda: None) -> None:
        """Answer the rows that are left. If the model dies, the rows that it was computing are remembered. `check` is
        called every now and then; the run ends with the error that it raises."""
        JobRun(self, session, on_answer, check).run()

    def lines_left(self) -> Iterator[InputLine]:
        return (line for line in self.input.lines() if line.row not in self.state.done)

    def check_complete(self) -> None:
        """Raise if a run had to leave rows out."""
        if (num_left := self.num_rows - self.state.num_done) > 0:
            raise ClosedError(f"{num_left:,} lines were aborted. The same command continues the job.")

    def finish(self) -> Written:
        """Write the output from the journal."""
        self.journal.commit()
        return self.files.write(with_receipts=bool(self.options.sampling.get(_RECEIPT)))
