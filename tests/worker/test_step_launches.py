"""A step launches what the page about GPUs says, in kernels of ours and operations of torch, whatever the form of the
model: the table there is what `tests/builders/step_launches.py FOLDER` prints.

On a card that is not there, in a process of its own.
"""

from builders import interpreted  # noqa: F401  isort: skip  before anything that imports triton

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.step_launches import COUNTED

TESTS = Path(__file__).parents[1]


@pytest.mark.long
def test_a_step_launches_what_the_page_says(tmp_path):
    command = [sys.executable, "-P", str(TESTS / "builders" / "step_launches.py"), str(tmp_path), *COUNTED]
    paths = filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))  # an empty one would be the checkout itself
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=800)
    assert told.returncode == 0, told.stderr[-3000:]
    page = (TESTS.parent / "docs" / "gpu.md").read_text(encoding="utf-8").splitlines()
    assert not [row for row in told.stdout.splitlines() if row not in page]
    assert len(told.stdout.splitlines()) == len(COUNTED)
