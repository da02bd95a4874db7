"""Writes a copy of a model, quantized or unchanged: safetensors, which Penstock and other engines load, or one GGUF
file, which llama.cpp and its relatives load.

A worker's process, which may import torch, does the work; this one shows progress. The target appears under its name
only when it is complete. The unfinished copy next to it is removed at once or, if this process is killed, by the next
conversion to that name.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tqdm import tqdm

from ...protocol.conversion import (
    DEFAULT_GROUP_SIZE,
    GGUF_KINDS,
    Conversion,
    ConversionMessage,
    ConversionRefusal,
    ConversionResult,
)
from ...protocol.errors import ConfigError, EngineDeadError
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.parts import SUFFIX
from ...protocol.files.utf8 import names_in_utf8
from ...protocol.options.option_rules import COUNT, QUANTIZATION, RANKS
from ...protocol.processes.process import ChildProcess, inherited_path, start_process, wait_for_ends
from ..console.standard_error import StandardError
from .gguf.translated import is_translated
from .model_files import find_model
from .pooled_model import PooledModel, find_pooled_model

_MODULE = "penstock.worker.convert"
_SECONDS_TO_END = 10


@dataclass(frozen=True)
class ConvertedModel:
    """A folder or file with everything that is needed to load a model."""

    path: Path
    before: int  # bytes of the original's weights
    after: int  # bytes of the converted weights
    notice: str = ""  # what the copy doesn't have


def convert_model(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    quantization: str | Mapping[str, str | None] | None,
    group_size: int = DEFAULT_GROUP_SIZE,
    tensor_parallel_size: int = 1,
    per_rank: bool = False,
    tokenizer: str | os.PathLike[str] | None = None,
    revision: str | None = None,
    quiet: bool = True,
) -> ConvertedModel:
    """Write `model` into the folder `out`, which must not exist; or into a GGUF file, if `out` ends with .gguf.

    `quantization` is as for `LLM` or, for a GGUF file, one of GGUF_KINDS; None copies the model's own numbers.
    `group_size` inputs of int4 share a scale. `per_rank` splits the weights for exactly `tensor_parallel_size` ranks.
    `tokenizer` is its folder, if it isn't with the model. Raises `PenstockError`, also if the converting process dies.
    """
    is_gguf = is_gguf_name(out)
    kinds = None if quantization is None else checked_kind(quantization, is_gguf=is_gguf)
    group_size = COUNT.checked("group_size", group_size, ConfigError)
    num_ranks = RANKS.checked("tensor_parallel_size", tensor_parallel_size, ConfigError)
    if per_rank and num_ranks == 1:
        raise ConfigError("per_rank=True needs tensor_parallel_size=2 or more.")
    if is_gguf and (num_ranks > 1 or group_size != DEFAULT_GROUP_SIZE):
        raise ConfigError("A GGUF file is for any number of ranks, and has groups of its own.")
    target = Path(os.path.expanduser(out)).absolute()
    if os.path.lexists(target):  # a dangling link, too
        raise ConfigError(f"{target} exists, and is not written over. Remove it, or give another name.")
    files = find_model(model, tokenizer, revision, is_quiet=quiet)
    if is_translated(files.folder):
        raise ConfigError(
            f"{shown(files.name)} is a GGUF file, whose blocks no conversion changes. Convert the model that it was "
            "made of, or run the file as it is."
        )
    pooled = find_pooled_model(files.folder, "auto")
    conversion = Conversion(
        source=str(files.folder),
        tokenizer=str(files.tokenizer_folder),
        target=str(target),
        quantization=kinds,
        group_size=group_size,
        tensor_parallel_size=num_ranks,
        is_cut=per_rank,
        is_gguf=is_gguf,
        pooling=None if pooled is None else pooled.form,
        model=files.name,
        revision=revision,
    )
    with closing(_messages(conversion)) as messages:
        made = _shown(messages, quiet)
    return ConvertedModel(target, made.before, made.after, _notice(pooled) if is_gguf else "")


def _notice(pooled: PooledModel | None) -> str:
    if pooled is None or not pooled.prompts:
        return ""
    names = ", ".join(sorted(pooled.prompts))
    usual = f" {pooled.default_prompt} stood before every text." if pooled.default_prompt else ""
    return (
        f"GGUF files have no prompts: this model's own ({names}) are not in the copy.{usual} Write their words before "
        "the texts, or give instruction."
    )


def is_gguf_name(out: str | os.PathLike[str]) -> bool:
    return os.fspath(out).endswith(SUFFIX)


def checked_kind(kind: object, *, is_gguf: bool) -> str:
    """The kind as a `Conversion` has it; raises ConfigError."""
    if not is_gguf and kind in GGUF_KINDS:
        raise ConfigError(f"{kind} is a kind of GGUF file: OUT must end with .gguf.")
    if not is_gguf:
        return str(QUANTIZATION.checked("quantization", kind, ConfigError))
    if not isinstance(kind, str) or kind.lower() not in GGUF_KINDS:
        raise ConfigError(f"A GGUF file is written as {', '.join(GGUF_KINDS)} or none, not {shown(kind)}.")
    return kind.lower()


def _shown(messages: Iterator[ConversionMessage], is_quiet: bool) -> ConversionResult:
    """Follow the worker to its end, with a progress bar."""
    on_stderr = StandardError()
    with tqdm(desc="Weights", unit="B", unit_scale=True, dynamic_ncols=True, disable=is_quiet, file=on_stderr) as bar:
        for each in messages:
            if isinstance(each, ConversionResult):
                return each
            if isinstance(each, ConversionRefusal):
                bar.leave = False
                raise ConfigError(each.text)
            bar.total = each.total
            bar.update(each.done - bar.n)
    raise EngineDeadError("The converting process ended without a word.")


def _messages(conversion: Conversion) -> Generator[ConversionMessage]:
    """The messages of the worker's process; raises an error about its end if it fails."""
    with names_in_utf8():
        encoded = msgspec.json.encode(conversion)
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
            stdin, stdout = worker.popen.stdin, worker.popen.stdout
            if stdin is None or stdout is None:
                raise ValueError("the converting process was started without its pipes")
            with suppress(BrokenPipeError):  # if it has died already, the reason is raised below
                stdin.write(encoded + b"\n")
                stdin.flush()
            for line in stdout:
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
    """End the worker, which first removes its unfinished copy."""
    for pipe in (worker.popen.stdin, worker.popen.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        wait_for_ends([worker], _SECONDS_TO_END)
    finally:
        worker.close()
