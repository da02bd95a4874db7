"""Process trees shared by a whole test session, and what the tests of this folder look at them with."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model(folder, "qwen3")
    return folder


@pytest.fixture(scope="session")
def llm(model_folder) -> Iterator[LLM]:
    """A real tree on a tiny model whose answers do not depend on company."""
    with LLM(model_folder, deterministic=True, max_model_len=512, kv_cache_memory="64MiB", quiet=True) as llm:
        yield llm


@pytest.fixture(scope="session")
def split(model_folder) -> Iterator[LLM]:
    """The same model over two ranks."""
    options = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2}
    with LLM(model_folder, tensor_parallel_size=2, quiet=True, **options) as llm:
        yield llm


@pytest.fixture(scope="session")
def stand_in(model_folder) -> Iterator[LLM]:
    """A tree without torch: its worker makes tokens up from the history alone."""
    with LLM(model_folder, load_format="stand-in", max_model_len=512, num_gpu_blocks_override=512, quiet=True) as llm:
        yield llm


@pytest.fixture
def start_script(model_folder, tmp_path) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Run a script in a process of its own; its standard output is read line by line."""
    started: list[subprocess.Popen[str]] = []

    def start(body: str, **environment: str) -> "subprocess.Popen[str]":
        path = tmp_path / f"script{len(started)}.py"
        path.write_text(f"MODEL = {str(model_folder)!r}\n{body}")
        popen = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        started.append(popen)
        return popen

    yield start
    for popen in started:
        if popen.poll() is None:
            popen.kill()
        popen.communicate()
