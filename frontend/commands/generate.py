"""Answer prompts: the arguments (- is all of standard input), else the lines of standard input, else those of a JSONL
file (--input). If the model has a chat template, a prompt is a user's message; --raw completes it as it is. A single
answer is printed as it is generated; several are printed in order, or as they complete with --output or in JSON. The
model's sampling defaults apply unless an option or a line sets its own. Thoughts are dimmed on a terminal, separate
in JSON, and otherwise left out. --output collects answers in a .partial file and replaces FILE when all are complete.

Options are made from the fields of `EngineConfig` and `SamplingParams`.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ...protocol.errors import RequestError
from ...protocol.fields.rules import shown
from ...protocol.options.config import EngineConfig
from ...protocol.parameters.sampling import SamplingParams
from ..console import logs
from ..console.progress import Progress
from ..file_replacement import replaceable, status_of
from ..media.sources.source import encoded
from ..models.model_names import BUNDLED, name_of
from ..rows.lines import count_prompts, read_lines
from ..rows.prompts import (
    STANDARD_INPUT,
    USUAL_TOKENS,
    Row,
    from_arguments,
    from_json_lines,
    from_lines,
    require_prompt,
    with_usual_limit,
)
from ..rows.rendering import Rendering
from ..session.tree.tree_files import OPTIONS, is_read
from .generation.endings import Endings
from .generation.job import Job
from .generation.output import OutputFile, OutputStream, is_same_file, output_to
from .shared.loading import load
from .shared.model_options import add_model_options, checked_options, require_model, with_defaults
from .shared.options import add_verbose, obey_verbose
from .shared.termination import orderly_termination

USAGE = "MODEL [PROMPT ...] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    parser.add_argument(
        "prompts",
        metavar="PROMPT",
        nargs="*",
        default=[],  # given, or argparse would call it required if the model is missing
        help="prompts, or - for all of standard input; without any, each line of standard input",
    )
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        help="picture (path or URL) to send with each prompt; may be repeated",
    )
    parser.add_argument("--raw", action="store_true", help="complete prompts as they are, without the chat template")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="JSONL file of texts, of objects with a prompt or messages, or of OpenAI batch lines; - is stdin",
    )
    parser.add_argument("--output", metavar="FILE", help="write answers to this file instead of standard output")
    parser.add_argument(
        "--format",
        choices=("text", "jsonl"),
        default="text",
        help="output format (text); OpenAI batch lines get OpenAI's",
    )
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    add_verbose(parser)
    add_model_options(parser, USUAL_TOKENS)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.resume:
        parser.error("generate doesn't resume; `penstock batch IN OUT` does, after any interruption, when run again")
    if arguments.prompts and arguments.input:
        parser.error("give prompts as arguments or in a file (--input), not both")
    if arguments.raw and arguments.system:
        parser.error("--raw leaves prompts as they are; give it or --system, not both")
    if arguments.image and (arguments.raw or arguments.input):
        parser.error("--image goes with prompts that are messages, not with --raw; lines of --input bring their own")
    obey_verbose(arguments)
    config, options, chosen = checked_options(arguments, parser)
    _require_model_first(config, parser)
    is_quiet = logs.is_quiet(config.quiet)
    with orderly_termination(), ExitStack() as files:
        source, output = _files(arguments, config, parser, files)
        images = _images(arguments.image, parser)
        require_model(config)
        # Counting reads the whole file, so it is done only for a visible bar.
        num_prompts = _num_prompts(arguments, source) if _has_bar(output, is_quiet) else None
        rows = _rows(arguments, source)
        files.enter_context(output)
        if isinstance(output, OutputFile):
            notice = f"Answers gather in {output.partial}, which becomes {output.name} when all are complete."
            logs.say(notice, quiet=is_quiet)
        with load(config.model, options) as llm:
            params = with_defaults(llm, chosen)
            rendering = Rendering(llm._session, is_raw=arguments.raw, system=arguments.system, images=images)
            is_json, model = arguments.format == "jsonl", config.served_model_name or name_of(config.model)
            with _progress(output, num_prompts, is_quiet=is_quiet) as progress:
                job = Job(llm, rendering, output, is_json, model, Endings(), progress)
                job.run(map(with_usual_limit, rows(params)))
        _say_endings(job.endings, is_json=is_json, is_quiet=is_quiet)
        return 1 if job.endings.failed else 0


def _require_model_first(config: EngineConfig, parser: argparse.ArgumentParser) -> None:
    """Refuse a prompt given instead of a model, which would be looked up on the hub. Real names may contain spaces,
    too."""
    is_elsewhere = config.connect != "never" or os.path.exists(os.path.expanduser(config.model))
    if " " in config.model.strip() and not is_elsewhere:
        parser.error(f'{shown(config.model)} is no model. Models stand before prompts: penstock generate pocket "…"')


def _rows(arguments: argparse.Namespace, source: BinaryIO | None) -> Callable[[SamplingParams], Iterator[Row]]:
    """Read the rows; unreadable or empty input is refused before a model is loaded."""
    if source is not None and source.isatty():
        _say_what_is_awaited(arguments)
    if source is None:
        return partial(from_arguments, arguments.prompts)
    if arguments.prompts:
        content = source.read()
        require_prompt([content.decode(errors="replace")], "Standard input", is_json=False)
        return partial(from_arguments, arguments.prompts, standard_input=io.BytesIO(content))
    is_json = arguments.input is not None
    name = arguments.input if is_json and arguments.input != STANDARD_INPUT else "Standard input"
    lines = require_prompt(read_lines(source, name), name, is_json=is_json)
    return partial(from_json_lines if is_json else from_lines, lines)


def _num_prompts(arguments: argparse.Namespace, source: BinaryIO | None) -> int | None:
    if arguments.prompts or source is None:
        return len(arguments.prompts)
    return count_prompts(source, is_json=arguments.input is not None)


def _has_bar(output: OutputStream | OutputFile, is_quiet: bool) -> bool:
    return isinstance(output, OutputFile) and not is_quiet


@contextmanager
def _progress(
    output: OutputStream | OutputFile, num_prompts: int | None, *, is_quiet: bool
) -> Iterator[Progress | None]:
    """Show a bar while answers go to a file, and a line at its end."""
    if not _has_bar(output, is_quiet):
        yield None
        return
    progress = Progress(num_prompts)
    try:
        yield progress
    finally:
        progress.close()
    logs.say(progress.summary(), quiet=False)


def _say_what_is_awaited(arguments: argparse.Namespace) -> None:
    what = "a prompt of any number of lines" if arguments.prompts else "prompts, one a line"
    what = "prompts in JSON, one a line" if arguments.input else what
    advice = f"`penstock chat {arguments.model}` is for talking, `penstock generate --help` lists other ways."
    logs.say(f"Type {what}; Ctrl-D on an empty line is the end. {advice}", quiet=False)


def _say_endings(endings: Endings, *, is_json: bool, is_quiet: bool) -> None:
    if endings.failed and is_json:
        failed = f"{endings.failed:,} of {endings.count:,} prompts failed"
        logs.say(f"penstock: {failed}; the line of each says why.", quiet=False)
    for remark in endings.remarks():
        logs.say(f"penstock: {remark}", quiet=is_quiet)


def _files(
    arguments: argparse.Namespace, config: EngineConfig, parser: argparse.ArgumentParser, files: ExitStack
) -> tuple[BinaryIO | None, OutputStream | OutputFile]:
    """Open the input and output files; if one can't be opened, the command ends before anything is changed."""
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
    if isinstance(output, OutputFile) and is_read(config, output.target, *_model_folders(config)):
        parser.error(f"{output.name} is a file that the model is read from; give --output another name")
    for option, target in traced.items():
        if target is not None and _is_one_of(target, source, output):
            parser.error(f"--{option} {target} is also read or written as --input or --output; give it another name")
    return source, output


def _images(names: Sequence[str], parser: argparse.ArgumentParser) -> list[bytes]:
    """Read the pictures; a file that is no picture is refused before a model is loaded."""
    images: list[bytes] = []
    if names:
        from ..media.decoding.images import refuse_others  # imports Pillow
    for name in names:
        try:
            images.append(encoded("image", name, may_open=True).data)
            refuse_others(images[-1])
        except RequestError as error:
            parser.error(f"--image {name}: {error}")
    return images


def _model_folders(config: EngineConfig) -> list[Path]:
    """The folders of models given by path, or bundled with the package."""
    names = (name for name in (config.model, config.tokenizer) if name is not None)
    paths = [BUNDLED.get(name) or Path(os.path.expanduser(name)) for name in names]
    return [path.parent if path.is_file() else path for path in paths]


def _lacks_input(arguments: argparse.Namespace) -> bool:
    return _reads_standard_input(arguments) and sys.stdin is None


def _reads_standard_input(arguments: argparse.Namespace) -> bool:
    if arguments.prompts:
        return STANDARD_INPUT in arguments.prompts
    return arguments.input in (None, STANDARD_INPUT)


def _source(arguments: argparse.Namespace, files: ExitStack) -> BinaryIO | None:
    """The file of prompts; None if all prompts are arguments."""
    if _reads_standard_input(arguments):
        return sys.stdin.buffer
    if arguments.prompts:
        return None
    try:
        return files.enter_context(open(arguments.input, "rb"))
    except FileNotFoundError as error:
        error.strerror = f'{error.strerror}. --input names a file; a prompt is an argument: generate MODEL "…"'
        raise


def _is_one_of(target: Path, source: BinaryIO | None, output: OutputStream | OutputFile) -> bool:
    if (status := status_of(target)) is None:
        return isinstance(output, OutputFile) and output.target == target
    others = [None if source is None else os.fstat(source.fileno()), output.file_status]
    return any(other is not None and os.path.samestat(status, other) for other in others)
