"""Write a model with smaller weights, as plain safetensors that Penstock and other engines load.

A worker's process does it, which may import torch; this one shows how far it is. The target appears under its name
when it is complete: whatever ends either process before leaves nothing there. What was begun beside it is removed at
once, or, where this process is killed, by the next conversion to that name.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from tqdm import tqdm

from ...protocol.conversion import Conversion, ConversionMessage, ConversionRefusal, ConversionResult
from ...protocol.errors import ConfigError, EngineDeadError
from ...protocol.files.sizes import exact_size
from ...protocol.files.utf8 import names_in_utf8
from ...protocol.processes.process import ChildProcess, inherited_path, start_process, wait_for_ends
from ..console.standard_error import StandardError
from ..models.model_files import find_model

USAGE = "MODEL OUT --quantization int8|int4 [options]"
_KINDS = {"int8": "int8", "wint8": "int8", "int4": "int4", "wint4": "int4"}
_MODULE = "penstock.worker.convert"
_SECONDS_TO_END = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    parser.add_argument("out", metavar="OUT", help="folder to be made; it must not exist")
    parser.add_argument("--quantization", required=True, choices=_KINDS, help="int8 or int4")
    parser.add_argument("--group-size", type=int, default=64, metavar="N", help="of int4: 32, 64 (default) or 128")
    parser.add_argument(
        "--tensor-parallel-size", type=int, default=1, metavar="N", help="check that so many ranks can share the groups"
    )
    parser.add_argument(
        "--per-rank", action="store_true", help="cut the weights for exactly so many ranks, into a folder for each"
    )
    parser.add_argument("--revision", metavar="TEXT", help="branch, tag or commit of a hub id")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    for name in ("group_size", "tensor_parallel_size"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if arguments.per_rank and arguments.tensor_parallel_size == 1:
        parser.error("--per-rank needs --tensor-parallel-size 2 or more")
    target = Path(os.path.expanduser(arguments.out)).absolute()
    if os.path.lexists(target):  # a link that leads nowhere, too
        raise ConfigError(f"{target} exists, and is not written over. Remove it, or name another folder.")
    files = find_model(arguments.model, revision=arguments.revision, is_quiet=arguments.quiet)
    asked = Conversion(
        source=str(files.folder),
        tokenizer=str(files.tokenizer_folder),
        target=str(target),
        kind=_KINDS[arguments.quantization],
        group_size=arguments.group_size,
        tensor_parallel_size=arguments.tensor_parallel_size,
        is_cut=arguments.per_rank,
    )
    with _ended_by_signals():
        made = _shown(_said(asked), arguments.quiet)
    print(f"{target}: {exact_size(made.after)} of weights, {exact_size(made.before)} before")
    return 0


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Also where this process is told to end, or its terminal closes, the worker gets to remove what it has begun."""
    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: sys.exit(128 + number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(said: Iterator[ConversionMessage], is_quiet: bool) -> ConversionResult:
    """Follows the worker to its end, with a bar."""
    on_stderr = StandardError()
    with tqdm(desc="Weights", unit="B", unit_scale=True, dynamic_ncols=True, disable=is_quiet, file=on_stderr) as bar:
        for each in said:
            if isinstance(each, ConversionResult):
                return each
            if isinstance(each, ConversionRefusal):
                bar.disable = True
                raise ConfigError(each.text)
            bar.total = each.total
            bar.update(each.done - bar.n)
    raise EngineDeadError("The converting process ended without a word.")


def _said(asked: Conversion) -> Iterator[ConversionMessage]:
    """What the worker's process says; raises how it ended where it fails."""
    with names_in_utf8():
        encoded = msgspec.json.encode(asked)
    with tempfile.TemporaryFile() as errors:
        worker = start_process(
            "converting",
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(inherited_path())},
        )
        try:
            told, says = worker.popen.stdin, worker.popen.stdout
            if told is None or says is None:
                raise ValueError("the converting process was started without its pipes")
            with suppress(BrokenPipeError):  # one that has died already says below why
                told.write(encoded + b"\n")
                told.flush()
            for line in says:
                yield msgspec.json.decode(line, type=ConversionMessage)
            wait_for_ends([worker], _SECONDS_TO_END)
            worker.close()
            if worker.status != 0:
                errors.seek(0)
                last = (errors.read().decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                raise EngineDeadError(f"{worker.describe_end()}: {last}")
        finally:
            _end(worker)


def _end(worker: ChildProcess) -> None:
    """End the worker, which first removes what it has begun."""
    for pipe in (worker.popen.stdin, worker.popen.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        wait_for_ends([worker], _SECONDS_TO_END)
    finally:
        worker.close()
