"""The shell of the tests of the command line, whose trees and whose small model all of them share."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders.shell import STAND_IN, Shell, open_shell
from builders.tiny_model import tiny_model

from penstock.frontend import machine
from penstock.worker.survey import survey


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """Commands in this process, over trees without a model's arithmetic."""
    with open_shell() as shell:
        yield shell


@pytest.fixture(scope="session")
def shell_model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("shell") / "tiny", "qwen3")


@pytest.fixture
def batch(shell, shell_model) -> Callable[..., Any]:
    """Run a job of the small model, or of whatever the words name."""

    def batch(*words: object, **environment: str) -> Any:
        return shell.run("batch", *words, "--model", shell_model, *STAND_IN, "--quiet", **environment)

    return batch


@pytest.fixture
def generated(shell, shell_model) -> Callable[..., Any]:
    """Answer prompts with the small model, in this process."""

    def generated(*words: object, stdin: str | bytes = "", is_quiet: bool = True) -> Any:
        quietly = ["--quiet"] if is_quiet else []
        return shell.run("generate", shell_model, *STAND_IN, *quietly, *words, stdin=stdin)

    return generated


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> Path:
    """A folder of the test's own for what the package keeps."""
    (folder := tmp_path / "cache").mkdir(exist_ok=True)
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    return folder / "penstock"


@pytest.fixture(autouse=True)
def surveys_here(monkeypatch) -> None:
    """The worker looks at models in this process; for torch it does in one of its own (test_cli_doctor.py)."""
    run_to_end = machine.run_to_end

    def surveyed(start: "partial[Any]", seconds: float) -> Any:
        words = start.args[1]
        if "penstock.worker.survey" not in words or "--torch" in words:
            return run_to_end(start, seconds)
        folders = [word for word in words[words.index("penstock.worker.survey") + 1 :] if not word.startswith("--")]
        found = survey(folders, with_torch=False, without_weights="--without-weights" in words)
        return SimpleNamespace(output=msgspec.json.encode(found), errors=b"", status=0)

    monkeypatch.setattr(machine, "run_to_end", surveyed)
