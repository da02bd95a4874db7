"""Order the lines of a file by how well they fit a query, the best first: each with its score and its number. Lines
are texts; those of a .jsonl or .parquet file may be objects with one. FILE may be - for texts from standard input. A
reranker reads the query and a document together; with any other model the score is the cosine of their vectors. Lines
that can't be scored are reported, and the exit status is 1 then.

Options are made from the fields of `EngineConfig` and `PoolingParams`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ....protocol.errors import ConfigError
from ....protocol.parameters.pooling import PoolingParams
from ....protocol.parameters.sampling import SamplingParams
from ...console import logs
from ...console.printable import aligned, on_one_line
from ...jobs.job_input import JobInput
from ...rows.lines import Line, read_lines
from ...rows.prompts import STANDARD_INPUT
from ...rows.texts import TextOptions, TextQuestion, check_text_columns, refuse_array, refuse_json, text_row
from ..shared.loading import load
from ..shared.model_options import (
    add_pooling_options,
    checked_engine_options,
    checked_pooling_params,
    require_numbers,
)
from ..shared.options import add_verbose, obey_verbose
from ..shared.termination import orderly_termination

_MOST_FAULTS = 10  # that are reported one by one
USAGE = "QUERY FILE --model MODEL [options]"


class _Document(NamedTuple):
    number: int  # of its line, from 1
    name: str | float | None
    text: str


class _Ranked(NamedTuple):
    document: _Document
    score: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="what is looked for")
    parser.add_argument("source", metavar="FILE", help="file of documents, one a line; -: standard input")
    parser.add_argument("--model", metavar="MODEL", required=True, help="bundled name, folder, or hub id")
    parser.add_argument("--top-n", metavar="N", type=int, help="print only the best N")
    parser.add_argument("--field", metavar="NAME", help="key of the text in each line of JSON")
    parser.add_argument("--plain", action="store_true", help="take each line as it is, whatever the file's name")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each document")
    add_verbose(parser)
    add_pooling_options(parser, leave_out=("use_activation", "dimensions", "normalize"))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.top_n is not None and arguments.top_n < 1:
        parser.error(f"--top-n={arguments.top_n} must be at least 1")
    if not arguments.query.strip():
        parser.error("the query is empty")
    if arguments.plain and arguments.field is not None:
        parser.error("--field is for lines of JSON, and --plain takes lines as they are: give one of them")
    obey_verbose(arguments)
    config, options = checked_engine_options(arguments, parser)
    params = checked_pooling_params(arguments, parser)
    documents, faults = _documents(arguments)
    require_numbers(config, "rerank")
    with orderly_termination(), load(config.model, options) as llm:
        texts = [document.text for document in documents]
        outputs = llm.score(arguments.query, texts, params, use_tqdm=False) if texts else []
    ranked = []
    for document, output in zip(documents, outputs, strict=True):
        if output.outputs is None:
            faults.append(f"Line {document.number:,}: {output.error_msg}")
        else:
            ranked.append(_Ranked(document, output.outputs.score))
    ranked.sort(key=lambda each: -each.score)
    _print(ranked[: arguments.top_n], as_json=arguments.json)
    for fault in faults[:_MOST_FAULTS]:
        logs.say(f"penstock: {fault}", quiet=False)
    if (num_more := len(faults) - _MOST_FAULTS) > 0:
        logs.say(f"penstock: {num_more:,} more of these.", quiet=False)
    return 1 if faults else 0


def _documents(arguments: argparse.Namespace) -> tuple[list[_Document], list[str]]:
    """The texts of the file, and what is wrong with its other lines."""
    source, params = arguments.source, PoolingParams()
    options = TextOptions.of(Path(source), params, plain=arguments.plain, field=arguments.field)
    found: list[_Document] = []
    faults: list[str] = []
    for number, line in _lines(source, options):
        if not (found or faults or options.is_certain) and options.is_plain:
            refuse_json(Path(source), [line])
        elif not (found or faults or options.is_plain):
            refuse_array(Path(source), [line])
        row = text_row(number, line, options, SamplingParams())
        if isinstance(row.prompt, Exception):
            faults.append(str(row.prompt))
        elif not isinstance(row.prompt, str):
            faults.append(f"Line {number}: its text is token ids.")
        elif isinstance(row.question, TextQuestion) and (own := row.question.own_parameters(params)):
            faults.append(f"Line {number}: {own[0]} is for the query and all documents; give it as an option.")
        else:
            found.append(_Document(number, row.name, row.prompt))
    if not found and not faults:
        raise ConfigError(f"{source} is empty, so there is no document to score. Write one a line.")
    return found, faults


def _lines(source: str, options: TextOptions) -> Iterator[tuple[int, Line]]:
    if source == STANDARD_INPUT:
        lines: Iterator[tuple[int, Line]] = enumerate(read_lines(sys.stdin.buffer, "standard input"), start=1)
        yield from ((number, line) for number, line in lines if not isinstance(line, str) or line.strip())
        return
    for each in JobInput(Path(source), check_text_columns(options.field)).lines():
        yield each.number, each.line


def _print(ranked: list[_Ranked], *, as_json: bool) -> None:
    if as_json:
        for document, score in ranked:
            print(json.dumps(_record(document, score), ensure_ascii=False))
        return
    rows = [[f"{score:.4f}", f"{document.number:,}", on_one_line(document.text)] for document, score in ranked]
    for row in aligned(rows, right=(0, 1)) if rows else []:
        print(row)


def _record(document: _Document, score: float) -> dict[str, Any]:
    name = {} if document.name is None else {"id": document.name}
    return {"line": document.number, **name, "relevance_score": score, "text": document.text}
