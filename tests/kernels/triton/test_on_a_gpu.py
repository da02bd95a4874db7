"""On a card, every operation's version agrees with its reference; runs only where there is one (`-m gpu`).

In a process of its own, since in this one kernels are interpreted.
"""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "builders" / "gpu_versions.py"


@pytest.mark.gpu
def test_every_version_agrees_with_its_reference_on_a_gpu():
    told = subprocess.run([sys.executable, "-P", str(PROGRAM), "cuda"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr[-3000:]
