"""Answer every line of the file IN, and write the answers to the file OUT in the same order. Lines are those of
`penstock generate --input`, OpenAI's batch lines among them; either file may be compressed (.gz, .zst) or a table
(.parquet). What is done is kept in OUT.journal: after a crash, a kill or a full disk, the same command continues, and
OUT is what a single run would have made. Lines that fail are in OUT.errors.jsonl. `penstock batch status OUT` shows how
far a job is, also while it runs; `penstock batch export OUT` writes the answers that are there, with --receipt so that
each can be verified. Exit status: 0, or 3 if lines have failed.

Options are made from the fields of `EngineConfig` and `SamplingParams`.
"""

import argparse
from functools import partial
from typing import Any

from ..console.command_line import RareHelp
from ..console.progress import Progress
from ..jobs.job import Job, JobOptions
from ..jobs.job_files import JobFiles
from ..models.model_names import name_of
from ..rows.prompts import USUAL_TOKENS
from .shared.job import add_job_options, answer_job, check_job_options, export, show_status
from .shared.model_options import add_model_options, checked_options
from .shared.options import obey_verbose

USAGE = "IN OUT [--model MODEL] [options] | status OUT [--json] | export OUT [--receipt]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="file of prompts or of OpenAI batch lines")
    parser.add_argument("output", metavar="OUT", help="file of answers")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--raw", action="store_true", help="complete prompts as they are: no chat template")
    parser.add_argument("--replay", metavar="LAST", help="an earlier run's output: same answers, sooner")
    ray = parser.add_argument_group("on a Ray cluster")
    ray.add_argument("--ray", metavar="ADDRESS", help="answer on this cluster; auto: the one that runs here")
    ray.add_argument("--num-replicas", metavar="N", type=int, help=RareHelp("copies of the model (one per node)"))
    cores = RareHelp("cores of each (a node's, divided by its copies)")
    ray.add_argument("--num-cpus", metavar="N", type=int, help=cores)
    add_job_options(parser)
    add_model_options(parser, USUAL_TOKENS)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.source == "status":
        return show_status(JobFiles.of(arguments.output), as_json=arguments.json)
    if arguments.source == "export":
        return export(JobFiles.of(arguments.output), with_receipts=getattr(arguments, "receipt", False))
    check_job_options(arguments, parser, "batch")
    obey_verbose(arguments)
    config, options, chosen = checked_options(arguments, parser)
    given = JobOptions(
        chosen, arguments.raw, arguments.system, config.seed, config.served_model_name or name_of(config.model)
    )
    if arguments.ray is None:
        if arguments.num_replicas is not None or arguments.num_cpus is not None:
            parser.error("--num-replicas and --num-cpus go with --ray")
        return answer_job(arguments, config, options, given, replay=arguments.replay)
    if arguments.replay is not None:
        parser.error("--replay is for one machine: leave it out, or --ray")
    return answer_job(arguments, config, options, given, run=partial(_run_on_ray, arguments, options))


def _run_on_ray(arguments: argparse.Namespace, options: dict[str, Any], job: Job, progress: Progress) -> None:
    from ...cluster.sharded_run import answer_on_ray  # needs the extra

    answer_on_ray(
        job,
        arguments.ray,
        arguments.model,
        options,
        num_replicas=arguments.num_replicas,
        num_cpus=arguments.num_cpus,
        on_answer=lambda answer: progress.count(answer.num_prompt, answer.num_cached, answer.num_output, answer.status),
    )
