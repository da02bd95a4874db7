"""The command `penstock` as a test calls it: in this process, over trees that stay open.

A `Shell` runs a command with streams of its own and lends it a tree that an earlier command has started. What starts,
ends and kills of whole processes do is tested with real ones (`builders/starts.py`).
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO
from unittest import mock

import pytest
from builders.warm_trees import LentTrees

from penstock.frontend import cli
from penstock.frontend.models import conversion
from penstock.protocol.conversion import Conversion, ConversionMessage, ConversionRefusal
from penstock.protocol.errors import PenstockError

BOUND = 180  # seconds; a wait never ends a test that passes
SLOW = {"PENSTOCK_FAULTS": "worker.step=delay:0.05"}
STAND_IN = ("--load-format", "stand-in", "--ignore-eos")


class Shell:
    """Runs commands one after another; each opens the models that it names on trees of its shell's."""

    def __init__(self) -> None:
        self.trees = LentTrees()

    def run(
        self, *words: object, stdin: str | bytes | IO[bytes] = "", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        with self.trees.in_place(), mock.patch.dict(os.environ, environment):
            return run_here(*words, stdin=stdin)

    def interrupted(
        self, number: signal.Signals, holds: Callable[[], bool], *words: object, stdin: str = "", **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """The same; once `holds()` is true this process, which is the command's, gets the signal."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(0.01):
                if holds():
                    os.kill(os.getpid(), number)
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            return self.run(*words, stdin=stdin, **environment)
        finally:
            is_over.set()
            thread.join()


@contextmanager
def open_shell() -> Iterator[Shell]:
    shell = Shell()
    try:
        yield shell
    finally:
        shell.trees.close()


def run_here(*words: object, stdin: str | bytes | IO[bytes] = "") -> "subprocess.CompletedProcess[str]":
    """A command whose three descriptors are files; an answer is written to the second by its number."""
    with ExitStack() as files:
        given, out, err = (files.enter_context(TemporaryFile()) for _ in range(3))
        if isinstance(stdin, (str, bytes)):
            given.write(stdin.encode() if isinstance(stdin, str) else stdin)
            given.seek(0)
        else:
            given = stdin
        with standard_streams(given.fileno(), out.fileno(), err.fileno()):
            status = status_of(*words)
        texts = [text_of(file) for file in (out, err)]
    return subprocess.CompletedProcess(list(map(str, words)), status, *texts)


@contextmanager
def standard_streams(*descriptors: int, is_buffered: bool = True) -> Iterator[None]:
    """Within it these are this process's standard input, output and error, whatever pytest has made of them."""
    kept = [os.dup(number) for number in range(3)]
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    streams = {
        "stdin": open(0, encoding="utf-8", closefd=False),
        "stdout": open(1, "w", encoding="utf-8", closefd=False),
        "stderr": open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False),
    }
    streams["stdout"].reconfigure(write_through=not is_buffered)
    try:
        with mock.patch.multiple(sys, **streams):
            yield
    finally:
        for stream in streams.values():
            with suppress(OSError):  # a full disk
                stream.close()
        for number, descriptor in enumerate(kept):
            os.dup2(descriptor, number)
            os.close(descriptor)


def status_of(*words: object) -> int:
    try:
        status = cli.main(list(map(str, words)))
    except SystemExit as end:
        status = int(end.code or 0)
    if sys.stdout is not None:
        sys.stdout.flush()
    sys.stderr.flush()
    return status


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def convert_here(patch: pytest.MonkeyPatch) -> None:
    """From now on models are converted in this process, and not in one of their own that would import torch anew."""
    from penstock.worker.convert.convert import convert

    def messages(asked: Conversion) -> Iterator[ConversionMessage]:
        said: list[ConversionMessage] = []
        try:
            said.append(convert(asked, said.append))
        except (PenstockError, OSError) as error:
            said.append(ConversionRefusal(str(error)))
        yield from said

    patch.setattr(conversion, "_messages", messages)
