"""Check that answers are what a model says. FILE is the output of `penstock batch` with its journal next to it or with
receipts, a job's journal, lines of `penstock generate --receipt --format jsonl`, or lines of HTTP bodies that have a
receipt. Prompt and answer are computed like a prompt, so this is faster than answering. Each answer that isn't proved
gets a line, with its custom_id: it differs at a token, or it can't be judged here, and why. The model is the bodies'
own unless --model names one, with the options that made the answers. Exit status: 0 if all are proved, else 1.

Options are made from the fields of `EngineConfig`.
"""

import argparse
import json
from collections import Counter
from contextlib import suppress
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.options.config import EngineConfig
from ..console.printable import on_one_line
from ..receipts.receipt import ReceiptOfModel
from ..session.session import Session
from ..verify.judging import seeing_prompts, verdicts
from ..verify.lines import LedBodies, from_file, opened
from .shared.loading import load
from .shared.model_options import checked_options, require_model
from .shared.options import add_options, add_verbose, obey_verbose
from .shared.termination import orderly_termination

# Options that a receipt's facts may set: they change bits, and are numbers, switches or names that the package knows.
_TAKEN = (
    "quantization", "rope_scaling", "tensor_parallel_size", "block_size", "deterministic", "reasoning_parser",
    "tool_call_parser", "early_stop_config", "guided_decoding_disable_any_whitespace", "enable_expert_parallel",
    "enable_mm",
)  # fmt: skip
_OF_FACTS = {"dtype": "dtype", "kv_cache_dtype": "KV cache"}

USAGE = "FILE [--model MODEL] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="answers with receipts, one a line")
    parser.add_argument("--model", metavar="MODEL", help="bundled name, folder, or hub id; default: the lines' own")
    parser.add_argument("--input", metavar="IN", help="file that was answered, for prompts with pictures or videos")
    parser.add_argument("--json", action="store_true", help="print a JSON object for every answer")
    add_verbose(parser)
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    obey_verbose(arguments)
    with opened(arguments.file) as file:
        led = LedBodies.of(from_file(file, arguments.file), arguments.file, arguments.model)
        arguments.model = led.model
        config, options, _ = checked_options(arguments, parser)
        require_model(config)
        if config.connect == "never":
            options = {**options_of(config.model, led.receipt), **options}
        with orderly_termination(), load(config.model, options) as llm:
            counts = _shown(llm._session, led, arguments)
    if not arguments.json:
        print(f"{counts['proved']:,} proved, {counts['differs']:,} differ, {counts['not judged']:,} not judged.")
    return 0 if set(counts) == {"proved"} else 1


def _shown(session: Session[Any], led: LedBodies, arguments: argparse.Namespace) -> Counter[str]:
    """Print the verdicts, and count them."""
    counts: Counter[str] = Counter()
    prompts = seeing_prompts(session, arguments.file, arguments.input) if arguments.input is not None else {}
    for verdict in verdicts(session, led.bodies, prompts):
        counts[verdict.status] += 1
        if arguments.json:
            print(verdict.to_json(), flush=True)
        elif verdict.status != "proved":
            print(on_one_line(f"{verdict.custom_id}: {verdict.sentence}"), flush=True)
    return counts


def options_of(model: str, receipt: ReceiptOfModel) -> dict[str, Any]:
    """The options that the answers were made with. Whoever wrote the file chose them, so none that names a file or
    code is taken, and none that isn't valid."""
    given = {name: receipt.facts.get(f"option {name}") for name in _TAKEN}
    given |= {name: json.dumps(receipt.facts.get(fact)) for name, fact in _OF_FACTS.items()}
    found: dict[str, Any] = {}
    for name, text in given.items():
        with suppress(ConfigError, ValueError, RecursionError, TypeError):
            option = {name: json.loads(text or "null")}
            EngineConfig.from_options(model, **option)
            found |= {name: value for name, value in option.items() if value is not None}
    return found
