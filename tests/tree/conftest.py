"""Process trees shared by a whole test session, and what the tests of this folder look at them with.

A test that only needs a tree uses `stand_in`, which computes nothing; `llm` where the worker's arithmetic is the point,
`split` where two ranks' is, `pocket_llm` where answers must make sense. A tree of its own is for a test of how one
starts or ends, of its environment, or of an option that no request can give.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from builders.tiny_model import tiny_model

from penstock import LLM


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model(folder, "qwen3")
    return folder


@pytest.fixture(scope="session")
def adapters(model_folder, tmp_path_factory) -> dict[str, Path]:
    """For that model, by the name that tests give them."""
    from builders.adapters import adapter  # imports torch, which few of these tests need

    base = tmp_path_factory.mktemp("adapters")
    given = {"first": {"rank": 8}, "second": {"rank": 16, "modules": ("q_proj", "down_proj")}}
    return {
        name: adapter(base / name, model_folder, seed=seed, **own) for seed, (name, own) in enumerate(given.items())
    }


@pytest.fixture(scope="session")
def llm(model_folder) -> Iterator[LLM]:
    """A real tree on a tiny model whose answers do not depend on company."""
    with LLM(model_folder, deterministic=True, max_model_len=512, kv_cache_memory="64MiB", quiet=True) as llm:
        yield llm


@pytest.fixture(scope="session")
def split(model_folder) -> Iterator[LLM]:
    """The same model over two ranks, with room for adapters, and so few blocks that prompts move to CPU memory."""
    blocks = {"block_size": 16, "num_gpu_blocks_override": 16, "swap_space": 0.01}
    room = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}
    options = {"tensor_parallel_size": 2, "deterministic": True, "max_model_len": 256, "num_threads": 2, "quiet": True}
    with LLM(model_folder, **options, **blocks, **room) as llm:
        yield llm


@pytest.fixture(scope="session")
def stand_in(model_folder) -> Iterator[LLM]:
    """A tree without torch: its worker makes tokens up from the history alone."""
    with LLM(model_folder, load_format="stand-in", max_model_len=512, num_gpu_blocks_override=512, quiet=True) as llm:
        yield llm


@pytest.fixture(scope="session")
def pocket_llm() -> Iterator[LLM]:
    """The bundled model, which writes sense, with a parser of its thoughts and room for two adapters."""
    options = {"max_model_len": 512, "block_size": 16, "kv_cache_memory": "64MiB", "deterministic": True}
    room = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
    with LLM("pocket", reasoning_parser="qwen3", quiet=True, **options, **room) as llm:
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
            left = psutil.Process(popen.pid).children(recursive=True)
            popen.kill()
            for process in filter(psutil.Process.is_running, left):
                process.kill()
        popen.wait(60)
        # Closed without being read to their end: whoever was forked may hold the other ends.
        for stream in (popen.stdin, popen.stdout, popen.stderr):
            with suppress(BrokenPipeError):
                stream.close()
