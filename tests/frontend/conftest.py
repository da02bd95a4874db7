"""The shell of the tests of the command line, whose trees and whose small model all of them share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.shell import Shell, open_shell
from builders.tiny_model import tiny_model


@pytest.fixture(scope="session")
def shell() -> Iterator[Shell]:
    """Commands in this process, over trees without a model's arithmetic."""
    with open_shell() as shell:
        yield shell


@pytest.fixture(scope="session")
def shell_model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("shell") / "tiny", "qwen3")
