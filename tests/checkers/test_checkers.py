"""The scripts that a type checker reads are complete, and it finds the package as it is installed.

mypy itself reads both scripts and the package next to the tests (scripts/test).
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import penstock

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def test_the_right_script_uses_every_name_of_the_package():
    names = (FOLDER / "right_script.py").read_text()
    assert [name for name in penstock.__all__ if not re.search(rf"\b{name}\b", names)] == []
    assert (Path(penstock.__file__).parent / "py.typed").exists()


@pytest.mark.long
def test_an_editable_installation_is_followed_too(tmp_path):
    """As scripts/setup makes it: found from the environment alone."""
    venv.create(tmp_path / "environment", symlinks=True)
    subprocess.run([ROOT / "scripts" / "link_package", tmp_path / "environment"], check=True)
    script = tmp_path / "script.py"
    script.write_text('from penstock import SamplingParams\nSamplingParams(temperature="hot")\n')
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", "--config-file="]
    python = f"--python-executable={tmp_path / 'environment' / 'bin' / 'python'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, python, str(script)],
        cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert re.findall(r"script.py:(\d+): error", done.stdout) == ["2"], done.stdout + done.stderr
