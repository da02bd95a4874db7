"""Type checkers find nothing wrong with the package and a user's script, and find the mistakes in another one."""

import fcntl
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RIGHT, WRONG = FOLDER / "right_script.py", FOLDER / "wrong_script.py"
BOUND = 600

Checker = Callable[[Path], set[int]]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A folder that holds the package under its name, as site-packages does."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "penstock").symlink_to(Path(penstock.__file__).parent)
    return folder


@pytest.fixture(scope="module")
def mypy_errors(tmp_path_factory) -> list[str]:
    """In the package and in both scripts: one run with the settings of pyproject.toml, which remembers for the next."""
    pytest.importorskip("mypy")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    targets = [f"--package={each}" for each in settings["packages"]]
    targets += [f"--module={each}" for each in (*settings["modules"], RIGHT.stem, WRONG.stem)]
    # By the path that stays the same from one run to the next: else nothing that is remembered would hold.
    package = Path(penstock.__file__).parent
    path = os.pathsep.join(map(str, (package.parent, FOLDER)))
    with (ROOT / "pyproject.toml").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a process that has the other tests of this file waits, and finds it done
        found = _run([sys.executable, "-m", "mypy", *targets], folder=ROOT, MYPYPATH=path)
    return [line for line in found.splitlines() if ": error: " in line]


@pytest.fixture(scope="module", params=["mypy", pytest.param("pyright", marks=pytest.mark.long)])
def wrong_lines(request) -> Checker:
    return request.getfixturevalue(f"{request.param}_lines")


@pytest.fixture(scope="module")
def mypy_lines(mypy_errors) -> Checker:
    return lambda script: set(map(int, re.findall(rf"{script.name}:(\d+): error", "\n".join(mypy_errors))))


@pytest.fixture(scope="module")
def pyright_lines(path, tmp_path_factory) -> Checker:
    pytest.importorskip("pyright")
    scratch = tmp_path_factory.mktemp("pyright")
    return lambda script: _pyright(script, path, scratch)


def _pyright(script: Path, path: Path, scratch: Path) -> set[int]:
    settings = {"include": [os.path.relpath(script, scratch)], "extraPaths": [str(path)], "typeCheckingMode": "strict"}
    settings |= {"pythonVersion": "3.11", "reportUnusedExpression": False}
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--project", str(scratch), "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(_run([sys.executable, "-m", "pyright", *options]))
    return {each["range"]["start"]["line"] + 1 for each in found["generalDiagnostics"] if each["severity"] == "error"}


def _run(command: list[str], folder: Path = Path("/"), **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=BOUND
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_nothing_is_wrong_with_the_package_itself(mypy_errors):
    assert [line for line in mypy_errors if not re.search(r"(right|wrong)_script\.py:", line)] == []


def test_nothing_is_wrong_with_a_script_that_uses_everything(wrong_lines):
    assert wrong_lines(RIGHT) == set()


def test_every_mistake_is_found_and_nothing_else(wrong_lines):
    lines = WRONG.read_text().splitlines()
    assert wrong_lines(WRONG) == {number for number, line in enumerate(lines, 1) if re.search(r"#.*wrong$", line)}


def test_that_script_uses_every_name_of_the_package():
    names = RIGHT.read_text()
    assert [name for name in penstock.__all__ if not re.search(rf"\b{name}\b", names)] == []


def test_the_package_says_that_it_is_typed():
    assert importlib.util.find_spec("penstock").submodule_search_locations
    assert (Path(penstock.__file__).parent / "py.typed").exists()


def test_an_editable_installation_is_followed_too(tmp_path):
    """As scripts/setup makes it: found from the environment alone."""
    venv.create(tmp_path / "environment", symlinks=True)
    subprocess.run([FOLDER.parents[1] / "scripts" / "link_package", tmp_path / "environment"], check=True)
    script = tmp_path / "script.py"
    script.write_text('from penstock import SamplingParams\nSamplingParams(temperature="hot")\n')
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    python = f"--python-executable={tmp_path / 'environment' / 'bin' / 'python'}"
    found = _run([sys.executable, "-m", "mypy", *options, python, str(script)], MYPYPATH="", PYTHONPATH="")
    assert re.findall(r"script.py:(\d+): error", found) == ["2"], found
