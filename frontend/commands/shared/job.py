"""Options, run, status and export of the commands that run a job."""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError, EngineDeadError
from ....protocol.options.config import EngineConfig
from ....protocol.outputs import RequestOutput
from ...console import logs
from ...console.command_line import RareHelp
from ...console.progress import Progress
from ...jobs.job import Job, JobOptions
from ...jobs.job_files import JobFiles, Written
from ...jobs.job_input import JobInput
from ...jobs.journal.journal import is_open_elsewhere
from ...jobs.journal.records import JobState
from ...jobs.ledger import ledger
from ...rows.prompts import STANDARD_INPUT, Row
from ...session.attached import attach
from ...session.private import PrivateSession
from ..generation.endings import Endings
from .loading import load
from .model_options import require_model
from .options import add_verbose
from .termination import orderly_termination

_SOME_FAILED = 3
_MOST_DEATHS = 3  # of the model, one after another, without any answer between them


def add_job_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="MODEL", help="bundled name, folder, or hub id; default: the lines' own")
    parser.add_argument("--retry-errors", action="store_true", help="ask the lines that have failed again")
    parser.add_argument("--accept-change", action="store_true", help="continue though the input or the model changed")
    parser.add_argument(
        "--commit-seconds",
        metavar="X",
        type=float,
        default=1.0,
        help=RareHelp("seconds of work that a crash may lose (1.0)"),
    )
    parser.add_argument("--price", metavar="P", type=float, help=RareHelp("price of a machine's hour, for the ledger"))
    parser.add_argument("--json", action="store_true", help="print the status as JSON")
    add_verbose(parser)


def check_job_options(arguments: argparse.Namespace, parser: argparse.ArgumentParser, command: str) -> None:
    """Refuse impossible ones; without a model, take the one that the lines name."""
    if arguments.json:
        parser.error(f"--json goes with `penstock {command} status OUT`")
    if arguments.source == STANDARD_INPUT:
        parser.error("a job reads its input again when it goes on: write standard input to a file first")
    if not arguments.commit_seconds > 0:
        parser.error(f"--commit-seconds={arguments.commit_seconds:g} must be more than 0")
    if arguments.price is not None and not 0 <= arguments.price < math.inf:
        parser.error(f"--price={arguments.price:g} must be a number that isn't negative")
    if arguments.model is None:
        arguments.model = _model_of_lines(arguments.source)


def answer_job(
    arguments: argparse.Namespace,
    config: EngineConfig,
    options: dict[str, Any],
    given: JobOptions,
    *,
    replay: str | None = None,
    remarks: Callable[[Job], Iterator[str]] = lambda job: iter(()),
    run: Callable[[Job, Progress], None] | None = None,
) -> int:
    """Answer what is left of a job and write its output; returns the exit status. `remarks` are said at the end.
    `run` answers it elsewhere than with a model of this command's own."""
    is_quiet = logs.is_quiet(config.quiet)
    changes = {"accepts_change": arguments.accept_change, "retries_errors": arguments.retry_errors}
    further = {"commit_seconds": arguments.commit_seconds, "replay": replay}
    with (
        orderly_termination(),
        Job(arguments.source, arguments.output, given, **changes, **further) as job,
    ):
        if resumed := job.resumed():
            logs.say(resumed, quiet=is_quiet)
        if job.is_left:
            require_model(config)
            if run is None:
                endings = _run(job, config.model, options, is_quiet=is_quiet)
                for remark in endings.remarks():
                    logs.say(f"penstock: {remark}", quiet=is_quiet)
            else:
                with _progress(job, is_quiet=is_quiet) as progress:
                    run(job, progress)
        else:
            _compare(job, config, options)
        written = job.finish()
        for remark in (*_without_receipt(job.files, written), *remarks(job)):
            logs.say(f"penstock: {remark}", quiet=is_quiet)
        if job.replay is not None:
            logs.say(f"{job.replay.summary()}.", quiet=is_quiet)
        logs.say(f"{ledger(job.state, arguments.price)}.", quiet=is_quiet)
    if written.num_failed:
        failed = f"{written.num_failed:,} of {written.num_failed + written.num_answers:,} lines failed"
        logs.say(f"penstock: {failed}; {job.files.errors} says why. --retry-errors asks them again.", quiet=False)
        return _SOME_FAILED
    return 0


def _run(job: Job, model: str, options: dict[str, Any], *, is_quiet: bool) -> Endings:
    """Answer what is left; a model that dies is started again."""
    endings, num_fruitless = Endings(), 0
    while True:
        num_done = job.state.num_done
        try:
            with load(model, options) as llm:
                job.begin(llm._session)
                with _progress(job, is_quiet=is_quiet) as progress:

                    def on_answer(row: Row, output: RequestOutput) -> None:
                        endings.add(row, output)
                        progress.add(output)

                    job.run(llm._session, on_answer)
            return endings
        except EngineDeadError as error:
            num_fruitless = num_fruitless + 1 if job.state.num_done == num_done else 0
            if num_fruitless >= _MOST_DEATHS:
                raise
            logs.say(f"penstock: {error} The model is started again.", quiet=False)


def _compare(job: Job, config: EngineConfig, options: dict[str, Any]) -> None:
    """Compare a finished job with the daemon's model, if it is to have it, else with one that isn't loaded for it."""
    attached = attach(config.model, options) if config.connect != "never" else None
    if attached is None:
        job.compare(PrivateSession(config.model, options))
        return
    try:
        job.compare(attached)
    finally:
        attached.transport.close()


@contextmanager
def _progress(job: Job, *, is_quiet: bool) -> Iterator[Progress]:
    progress = Progress(job.num_rows, job.state.num_done, is_shown=not is_quiet)
    try:
        yield progress
    finally:
        progress.close()


def _model_of_lines(source: str) -> str:
    """The model that the lines' bodies name, which must be the same in all of them."""
    names = JobInput(Path(source)).models()
    if len(names) == 1:
        return names.pop()
    if not names:
        raise ConfigError(f"The lines of {source} name no model: give --model.")
    raise ConfigError(
        f"The lines of {source} name several models ({', '.join(sorted(names)[:3])}, …). Give --model to answer all of "
        "them with one, or a file for each."
    )


# --- status and export ------------------------------------------------------------------------------------------------


def show_status(files: JobFiles, *, as_json: bool) -> int:
    state, is_running = files.state(), is_open_elsewhere(files.journal)
    status = {
        "total": state.num_rows,
        "done": state.num_done,
        "failed": state.num_failed,
        "half_done": len(state.said),
        "running": state.now.num_running if is_running else 0,
        "tokens_per_second": round(state.tokens_per_second, 1) if is_running else 0.0,
        "is_running": is_running,
        "seconds": round(state.machine_seconds, 1),
        "prompt_tokens": state.num_prompt,
        "cached_tokens": state.num_cached,
        "output_tokens": state.num_output,
        "draft_tokens": state.num_draft_tokens,
        "accepted_tokens": state.num_accepted_tokens,
        "peak_bytes": state.peak_bytes,
        "joules": round(state.joules, 1),
    }
    if as_json:
        print(json.dumps(status))
        return 0
    done = f"{state.num_done:,} of {state.num_rows:,} lines done, {state.num_failed:,} of them failed"
    half_done = f", {len(state.said):,} half done" if state.said else ""
    print(f"{done}{half_done}: {_what(state, is_running)}")
    print(ledger(state))
    return 0


def _what(state: JobState, is_running: bool) -> str:
    if is_running:
        return f"{state.now.num_running:,} running, {state.tokens_per_second:,.0f} tokens/s."
    is_complete = state.head is not None and state.num_done == state.num_rows
    return "complete." if is_complete else "not running; the same command continues it."


def export(files: JobFiles, *, with_receipts: bool) -> int:
    """Write what is done so far; a run that goes on writes it anew at its end."""
    written = files.export(with_receipts=with_receipts)
    failures = f"{written.num_failed:,} failures in {files.errors}" if written.num_failed else "no failures"
    print(f"{written.num_answers:,} answers in {files.output}, {failures}.")
    for remark in _without_receipt(files, written):
        print(remark)
    return 0


def _without_receipt(files: JobFiles, written: Written) -> Iterator[str]:
    """Why answers that should have a receipt have none."""
    if written.num_without_receipt:
        yield f"{written.num_without_receipt:,} have no receipt: an earlier version of Penstock has answered them."
    if damaged := written.damaged_receipts:
        lines = ", ".join(f"{line:,}" for line in damaged[:3]) + (", …" if len(damaged) > 3 else "")
        yield f"{len(damaged):,} have no receipt, since {files.journal} has a damaged one for each: lines {lines}."
