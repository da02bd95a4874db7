"""The linter and the type checker, which run as tests so that they end, fail and are run again like all others."""

import subprocess
import sys
from pathlib import Path

from builders.cases import for_each

ROOT = Path(__file__).resolve().parents[1]


@for_each("tool, words", [("mypy", []), ("ruff", ["check", "."])])
def test_the_sources_have_no_mistakes_that_a_tool_finds(tool, words):
    told = subprocess.run(
        [sys.executable, "-m", tool, *words],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout
