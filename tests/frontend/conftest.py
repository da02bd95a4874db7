"""The shell of the tests of the command line, whose trees and whose small model all of them share."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders.shell import Shell, open_shell
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
