"""Check that answers are what a model says. FILE is the output of `penstock batch --receipt`, lines of `penstock
generate --receipt --format jsonl`, or lines of HTTP bodies that have a receipt. Prompt and answer are computed like a
prompt, so this is faster than answering. Each answer that isn't proved gets a line, with its custom_id: it differs at a
token, or it can't be judged here, and why. The model is the bodies' own unless --model names one, with the options that
the answers were made with. Exit status: 0 if all are proved, else 1.

Options are made from the fields of `EngineConfig`.
"""

import argparse
import json
from collections import Counter
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig
from ..requests.receipt import Receipt
from ..verify.judging import verdicts
from ..verify.lines import from_file, model_of
from .shared.loading import load
from .shared.model_options import checked_options, require_model
from .shared.options import add_options, add_verbose, obey_verbose
from .shared.termination import orderly_termination

USAGE = "FILE [--model MODEL] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="answers with receipts, one a line")
    parser.add_argument("--model", metavar="MODEL", help="bundled name, folder, or hub id; default: the lines' own")
    parser.add_argument("--json", action="store_true", help="print a JSON object for every answer")
    add_verbose(parser)
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    obey_verbose(arguments)
    try:
        with open(arguments.file, "rb") as file:
            model, receipt = model_of(from_file(file, arguments.file), arguments.file, arguments.model)
    except OSError as error:
        raise ConfigError(f"{arguments.file} cannot be read: {error.strerror}.") from error
    arguments.model = model
    config, options, _ = checked_options(arguments, parser)
    require_model(config)
    options = options if config.connect != "never" else {**_options_of(receipt), **options}
    counts: Counter[str] = Counter()
    with orderly_termination(), load(config.model, options) as llm, open(arguments.file, "rb") as file:
        for verdict in verdicts(llm._session, from_file(file, arguments.file)):
            counts[verdict.status] += 1
            if arguments.json:
                print(verdict.to_json(), flush=True)
            elif verdict.status != "proved":
                print(f"{verdict.custom_id}: {verdict.sentence}", flush=True)
    if not arguments.json:
        print(f"{counts['proved']:,} proved, {counts['differs']:,} differ, {counts['not judged']:,} not judged.")
    return 0 if set(counts) == {"proved"} else 1


def _options_of(receipt: Receipt) -> dict[str, Any]:
    """The options that the answers were made with, as far as they aren't files."""
    found: dict[str, Any] = {}
    for name, value in receipt.facts.items():
        if name.startswith("option "):
            try:
                found[name.removeprefix("option ")] = json.loads(value)
            except ValueError:
                continue
    return found
