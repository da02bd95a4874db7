"""A job as a call of `LLM` and `AsyncLLM`, with a model that is open already."""

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import ClosedError, RequestError
from ...protocol.fields.rules import FLAG, shown
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ..console import logs
from ..console.progress import Progress
from ..models.model_names import name_of
from ..rows.prompts import Row
from ..rows.texts import TextOptions
from ..session.session import Session
from .job import Job, JobOptions
from .ledger import ledger


class JobResult(NamedTuple):
    num_answers: int
    num_failed: int
    output: Path
    errors: Path  # the file of failed lines; it is there if there are any


def answer_file(
    session: Session[Any],
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    params: SamplingParams | PoolingParams | None,
    *,
    shows_progress: bool,
    accept_change: bool,
    retry_errors: bool,
    raw: bool,
    system: str | None,
    commit_seconds: float,
    replay: str | os.PathLike[str] | None = None,
    is_stopped: threading.Event | None = None,
) -> JobResult:
    """Answer the lines of a file that are left, and write the output; raises what ends the run. With `PoolingParams`
    the lines are texts, and the output has their vectors."""
    session.transport.check()
    paths = {"input": source, "output": output} | ({} if replay is None else {"replay": replay})
    for name, path in paths.items():
        if not isinstance(path, str | os.PathLike):
            raise RequestError(f"{name}={shown(path)}: must be the path of a file.")
    is_shown = FLAG.checked("use_tqdm", shows_progress, RequestError) and not session.is_quiet
    checked = {
        "accepts_change": FLAG.checked("accept_change", accept_change, RequestError),
        "retries_errors": FLAG.checked("retry_errors", retry_errors, RequestError),
        "commit_seconds": _seconds(commit_seconds),
    }
    is_raw = FLAG.checked("raw", raw, RequestError)
    if isinstance(params, PoolingParams):
        if is_raw or system is not None or replay is not None:
            raise RequestError("raw, system and replay are for answers in text: leave them out with PoolingParams.")
        options = JobOptions.of_texts(TextOptions.of(Path(source), params), _name_of_model(session))
    else:
        options = _options(session, params, is_raw, system)
    with Job(source, output, options, **checked, replay=replay) as job:
        if resumed := job.resumed():
            logs.say(resumed, quiet=session.is_quiet)
        if job.is_left:
            job.begin(session)
            progress = Progress(job.num_rows, job.state.num_done, is_shown=is_shown)

            def on_answer(row: Row, answer: RequestOutput) -> None:
                progress.add(answer)

            def check() -> None:
                if is_stopped is not None and is_stopped.is_set():
                    raise ClosedError("The call was cancelled. The same call continues the job.")

            try:
                job.run(session, on_answer, check)
            finally:
                progress.close()
        else:
            job.compare(session)
        written = job.finish()
        if job.replay is not None:
            logs.say(f"{job.replay.summary()}.", quiet=session.is_quiet)
        logs.say(f"{ledger(job.state)}.", quiet=not is_shown)
    return JobResult(written.num_answers, written.num_failed, job.files.output, job.files.errors)


def _options(session: Session[Any], params: SamplingParams | None, is_raw: bool, system: Any) -> JobOptions:
    if params is not None and not isinstance(params, SamplingParams):
        raise RequestError(
            f"sampling_params must be one SamplingParams or PoolingParams for all lines, not {type(params).__name__}."
        )
    if system is not None and not isinstance(system, str):
        raise RequestError(f"system={shown(system)}: must be text.")
    given = {} if params is None else msgspec.structs.asdict(msgspec.structs.replace(params))
    return JobOptions(given, is_raw, system, session.config.seed, _name_of_model(session))


def _name_of_model(session: Session[Any]) -> str:
    return session.config.served_model_name or name_of(session.config.model)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise RequestError(f"commit_seconds={shown(value)}: must be a number of seconds above 0.")
    return min(value, threading.TIMEOUT_MAX)
