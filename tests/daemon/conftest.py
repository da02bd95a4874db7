"""One daemon with pocket for the tests that leave it as they found it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.daemon import RunningDaemon, running_daemon

from penstock import LLM

SMALL = ("--max-model-len", "512", "--num-gpu-blocks-override", "96")


@pytest.fixture(scope="session")
def daemon() -> Iterator[RunningDaemon]:
    with TemporaryDirectory(prefix="pd") as folder, running_daemon(Path(folder), "pocket", *SMALL) as running:
        yield running


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., RunningDaemon]]:
    """Daemons from the text of a configuration; all have ended afterwards."""
    with ExitStack() as running:
        count = itertools.count()

        def started(text: str, *words: str) -> RunningDaemon:
            number = next(count)
            config = tmp_path / f"{number}.toml"
            config.write_text(text)
            folder = tmp_path / f"d{number}"
            folder.mkdir(mode=0o700)
            daemon = running.enter_context(running_daemon(folder, "--config", str(config), *words))
            daemon.config = config
            return daemon

        yield started


@pytest.fixture(scope="module")
def attached(daemon: RunningDaemon) -> Iterator[LLM]:
    with daemon.attach() as llm:
        yield llm


@pytest.fixture(scope="session")
def private() -> Iterator[LLM]:
    with LLM("pocket", max_model_len=512, num_gpu_blocks_override=96, quiet=True) as llm:
        yield llm
