"""Embed every text of the file FILE, and write the vectors to a file: an array of numpy (.npy, one float32 row for
each line, in order), a table (.parquet) or lines of JSON (.jsonl). Lines of .jsonl and .parquet files are texts or
objects with one; those of any other file are texts as they are. Empty lines are skipped. What is done is kept in
OUT.journal: after a crash, a kill or a full disk, the same command continues, and OUT is what a single run would have
made. Lines that fail are in OUT.errors.jsonl, and are NaN in an array. Exit status: 0, or 3 if lines have failed.

Options are made from the fields of `EngineConfig` and `PoolingParams`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ...jobs.job import Job, JobOptions
from ...jobs.job_files import JobFiles
from ...models.model_names import name_of
from ...rows.texts import TextOptions
from ..shared.job import add_job_options, answer_job, check_job_options, export, show_status
from ..shared.model_options import (
    add_pooling_options,
    checked_engine_options,
    checked_pooling_params,
    require_numbers,
)
from ..shared.options import obey_verbose

USAGE = "FILE --output OUT [--model MODEL] [options] | status OUT [--json] | export OUT"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", help="file of texts, or of OpenAI batch lines; or status, export")
    parser.add_argument("positional", metavar="OUT", nargs="?", help="the same as --output")
    parser.add_argument("--output", "-o", metavar="OUT", help="file of vectors: .npy, .parquet or .jsonl")
    parser.add_argument("--field", metavar="NAME", help="key of the text in each line; its other keys are ignored")
    parser.add_argument("--plain", action="store_true", help="embed each line as it is, whatever the file's name")
    add_job_options(parser)
    add_pooling_options(parser, leave_out=("use_activation",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if (arguments.output is None) == (arguments.positional is None):
        parser.error("give one output: --output vectors.npy")
    arguments.output = arguments.output or arguments.positional
    if arguments.source == "status":
        return show_status(JobFiles.of(arguments.output), as_json=arguments.json)
    if arguments.source == "export":
        return export(JobFiles.of(arguments.output), with_receipts=False)
    if arguments.plain and arguments.field is not None:
        parser.error("--field is for lines of JSON, and --plain takes lines as they are: give one of them")
    check_job_options(arguments, parser, "embed")
    obey_verbose(arguments)
    config, options = checked_engine_options(arguments, parser)
    params = checked_pooling_params(arguments, parser)
    require_numbers(config, "embed")
    texts = TextOptions.of(Path(arguments.source), params, plain=arguments.plain, field=arguments.field)
    given = JobOptions.of_texts(texts, config.served_model_name or name_of(config.model))
    return answer_job(arguments, config, options, given, remarks=_remarks)


def _remarks(job: Job) -> Iterator[str]:
    if job.num_empty:
        lines = f"{job.num_empty:,} empty line{' has' if job.num_empty == 1 else 's have'}"
        yield f"{lines} no vector: vectors are numbered by the lines that aren't empty."
