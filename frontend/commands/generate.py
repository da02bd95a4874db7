"""Complete prompts: the arguments, else the lines of standard input, else the lines of a JSONL file (--input).
Answers are printed as they complete. Nothing is added to a prompt; the model's own sampling defaults hold unless an
option or a line says otherwise.

Options are made from the fields of `EngineConfig` and `SamplingParams`. Knows nothing of the tree behind `LLM`.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TextIO

from ...protocol.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.sampling import SamplingParams
from ..llm import LLM
from .answers import as_json, as_text, write
from .chosen import checked_options, with_model_defaults
from .options import add_options
from .prompts import Row, from_arguments, from_json_lines, from_lines

USAGE = "MODEL [PROMPT ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    parser.add_argument("prompts", metavar="PROMPT", nargs="*", help="prompts; else each line of standard input is one")
    parser.add_argument(
        "--input", metavar="FILE", help="JSONL: a prompt, or an object with its parts, a line; - is stdin"
    )
    parser.add_argument("--output", metavar="FILE", help="write answers there instead of to standard output")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="form of the answers (text)")
    # A seed on the command line gives each prompt one of its own; a line of JSONL may bring another.
    add_options(parser, "sampling options", SamplingParams, leave_out=("seed", "frequence_penalty"))
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.prompts and arguments.input:
        parser.error("give prompts as arguments or in a file (--input), not both")
    config, options, chosen = checked_options(arguments, parser)
    with ExitStack() as files:
        try:
            lines = sys.stdin if arguments.input in (None, "-") else files.enter_context(open(arguments.input))
            target = files.enter_context(open(arguments.output, "w")) if arguments.output else sys.stdout
        except OSError as error:
            parser.error(f"{error.filename}: {error.strerror}")
        params = with_model_defaults(config, chosen)
        if arguments.prompts:
            rows = from_arguments(arguments.prompts, params)
        else:
            rows = from_json_lines(lines, params) if arguments.input else from_lines(lines, params)
        return _generate(config.model, options, rows, target, arguments.format)


def _generate(model: str, options: dict[str, object], rows: Iterator[Row], target: TextIO, form: str) -> int:
    """Exit status 1 if any request failed; each failure was shown beside the answers."""
    first = list(itertools.islice(rows, 2))
    is_alone = len(first) == 1
    failed = 0
    names: dict[int, str | int] = {}
    with LLM(model, **options) as llm:
        for number, output in _numbered(llm, itertools.chain(first, rows), names, is_shown=target is not sys.stdout):
            failed += output.error_code != 200
            name = names.pop(number, None)
            if form == "jsonl":
                write(target, as_json(number, name, output))
            else:
                write(target, "".join(as_text(number, name, output, is_alone=is_alone)))
    return 1 if failed else 0


def _numbered(
    llm: LLM, rows: Iterator[Row], names: dict[int, str | int], *, is_shown: bool
) -> Iterator[tuple[int, RequestOutput]]:
    """Outputs as they complete, with their number in the order of the prompts."""

    def noted() -> Iterator[Row]:
        for number, row in enumerate(rows):
            if row.name is not None:
                names[number] = row.name
            yield row

    prompts, params = itertools.tee(noted())
    outputs = llm.generate_iter(
        (row.prompt for row in prompts), (row.params for row in params), use_tqdm=is_shown, ordered=False
    )
    # An LLM numbers its requests from 0 in the order of their prompts, and this one has seen no others.
    return ((int(output.request_id), output) for output in outputs)
