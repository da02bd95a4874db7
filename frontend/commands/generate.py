"""Complete prompts: the arguments, else the lines of standard input, else the lines of a JSONL file (--input).
Answers are printed as they complete. Nothing is added to a prompt; the model's own sampling defaults hold unless an
option or a line says otherwise. What stands under the name of --output stays there until all answers are complete;
until then they gather in a file beside it, whose name ends with .partial.

Options are made from the fields of `EngineConfig` and `SamplingParams`. Knows nothing of the tree behind `LLM`.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ...protocol.config import EngineConfig
from ...protocol.outputs import RequestOutput
from ...protocol.sampling import SamplingParams
from .. import logs
from ..beside import replaceable, status_of
from ..llm import LLM
from ..model_files import BUNDLED
from ..tree_files import OPTIONS, is_read
from .answers import as_json, as_text
from .chosen import checked_options, require_model, with_defaults
from .lines import read_lines
from .options import add_options
from .output import Replacement, Stream, is_same_file, output_to
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
        source, output = _files(arguments, config, parser, files)
        require_model(config)
        if source is None:
            rows = partial(from_arguments, arguments.prompts)
        else:
            lines = read_lines(source, arguments.input or "Standard input")
            first = list(itertools.islice(lines, 1))  # a file that can't be read is refused before a model is loaded
            rows = partial(from_json_lines if arguments.input else from_lines, itertools.chain(first, lines))
        files.enter_context(output)
        if isinstance(output, Replacement):
            notice = f"Answers gather in {output.partial}, which becomes {output.name} when all are complete."
            logs.say(notice, quiet=logs.is_quiet(config.quiet))
        with LLM(config.model, **options) as llm:
            failed, count = _generate(llm, rows(with_defaults(llm, chosen)), output, arguments.format)
        if failed and arguments.format == "jsonl":
            words = f"penstock: {failed:,} of {count:,} prompts failed; error_msg beside each says why."
            logs.say(words, quiet=logs.is_quiet(config.quiet))
        return 1 if failed else 0


def _files(
    arguments: argparse.Namespace, config: EngineConfig, parser: argparse.ArgumentParser, files: ExitStack
) -> tuple[BinaryIO | None, Stream | Replacement]:
    """What is read and what is written; what cannot be ends the command before anything is changed."""
    if (arguments.output is None and sys.stdout is None) or _lacks_input(arguments):
        parser.error("standard input or output is closed; give --input and --output")
    try:
        source = _source(arguments, files)
        output = output_to(arguments.output)
        traced = {option: replaceable(name) for option in OPTIONS if (name := getattr(config, option))}
    except OSError as error:
        parser.error(f"{error.filename or arguments.output or '--output'}: {error.strerror}")
    if source is not None and is_same_file(source, output):
        parser.error(f"{output.name} is also what is read; give --output another name")
    if isinstance(output, Replacement) and is_read(config, output.target, *_model_folders(config)):
        parser.error(f"{output.name} is a file that the model is read from; give --output another name")
    for option, target in traced.items():
        if target is not None and _is_one_of(target, source, output):
            parser.error(f"--{option} {target} is also read or written as --input or --output; give it another name")
    return source, output


def _model_folders(config: EngineConfig) -> list[Path]:
    """Those that are named by their paths, or come with the package."""
    names = (name for name in (config.model, config.tokenizer) if name is not None)
    paths = [BUNDLED.get(name) or Path(os.path.expanduser(name)) for name in names]
    return [path.parent if path.is_file() else path for path in paths]


def _lacks_input(arguments: argparse.Namespace) -> bool:
    return not arguments.prompts and arguments.input in (None, "-") and sys.stdin is None


def _source(arguments: argparse.Namespace, files: ExitStack) -> BinaryIO | None:
    """None where the prompts are arguments."""
    if arguments.prompts:
        return None
    if arguments.input in (None, "-"):
        return sys.stdin.buffer
    return files.enter_context(open(arguments.input, "rb"))


def _is_one_of(target: Path, source: BinaryIO | None, output: Stream | Replacement) -> bool:
    if (status := status_of(target)) is None:
        return isinstance(output, Replacement) and output.target == target
    others = [None if source is None else os.fstat(source.fileno()), output.file_status]
    return any(other is not None and os.path.samestat(status, other) for other in others)


def _generate(llm: LLM, rows: Iterator[Row], output: Stream | Replacement, form: str) -> tuple[int, int]:
    """How many have failed, of how many; each failure was shown beside the answers, or in its place among them."""
    first = list(itertools.islice(rows, 2))
    is_alone = len(first) == 1
    failed = count = 0
    names: dict[int, str | float] = {}
    is_shown = isinstance(output, Replacement)
    for number, answer in _numbered(llm, itertools.chain(first, rows), names, is_shown=is_shown):
        count += 1
        failed += answer.error_code != 200
        name = names.pop(number, None)
        if form == "jsonl":
            output.write(as_json(number, name, answer))
        else:
            output.write("".join(as_text(number, name, answer, is_alone=is_alone)))
    return failed, count


def _numbered(
    llm: LLM, rows: Iterator[Row], names: dict[int, str | float], *, is_shown: bool
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
