"""One daemon, and one tree beside it, for the tests that leave them as they found them; neither computes anything."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from builders.daemon import RunningDaemon, models, running_daemon
from builders.daemon_numbers import daemon_of_numbers

from penstock import LLM
from penstock.frontend import cli
from penstock.frontend.daemon.background import stop_daemon

OPTIONS = {"max_model_len": 512, "num_gpu_blocks_override": 128, "limit_logprobs": 20_000}


@pytest.fixture(scope="session")
def daemon() -> Iterator[RunningDaemon]:
    # In the runtime folder of this run, which goes whatever ends the run; a socket's path has to be short.
    with TemporaryDirectory(dir=os.environ["PENSTOCK_RUNTIME_DIR"]) as folder:
        config = Path(folder, "c.toml")
        more = "limit_logprobs = 20000\n"
        config.write_text(models("pocket", more=more).replace("= 1024", "= 512"))
        with running_daemon(Path(folder), "--config", str(config), "--http", "127.0.0.1:0") as running:
            yield running


@pytest.fixture(scope="session")
def numbers_daemon(tmp_path_factory) -> Iterator[RunningDaemon]:
    with daemon_of_numbers(tmp_path_factory.mktemp("n")) as running:
        yield running


@pytest.fixture(scope="session")
def vectors(numbers_daemon) -> Iterator[LLM]:
    with numbers_daemon.attach("vectors") as llm:
        yield llm


@pytest.fixture(scope="session")
def http(numbers_daemon) -> Iterator[httpx.Client]:
    """To the daemon of numbers."""
    with httpx.Client(base_url=numbers_daemon.status().http, timeout=60) as client:
        yield client


@pytest.fixture
def address(tmp_path) -> Iterator[Path]:
    """For a daemon that commands start; it is ended afterwards."""
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    yield folder / "socket"
    if (folder / "socket").exists():
        stop_daemon(folder / "socket", 0.0)


@pytest.fixture
def said(capsys) -> Callable[..., tuple[int, str]]:
    """Run a command line in this process: its status, and all that it has written."""

    def run(*words: object) -> tuple[int, str]:
        status = cli.main(list(map(str, words)))
        told = capsys.readouterr()
        return status, told.out + told.err

    return run


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., RunningDaemon]]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def start_shared(tmp_path_factory) -> Iterator[Callable[..., RunningDaemon]]:
    with starter(tmp_path_factory.mktemp("shared")) as started:
        yield started


@contextmanager
def starter(folder: Path) -> Iterator[Callable[..., RunningDaemon]]:
    with ExitStack() as running:
        count = itertools.count()

        def started(text: str, *words: str) -> RunningDaemon:
            number = next(count)
            config = folder / f"{number}.toml"
            config.write_text(text)
            own = folder / f"d{number}"
            own.mkdir(mode=0o700)
            daemon = running.enter_context(running_daemon(own, "--config", str(config), *words))
            daemon.config = config
            return daemon

        yield started


@pytest.fixture(scope="session")
def attached(daemon: RunningDaemon) -> Iterator[LLM]:
    with daemon.attach() as llm:
        yield llm


@pytest.fixture(scope="session")
def private() -> Iterator[LLM]:
    with LLM("pocket", load_format="stand-in", quiet=True, **OPTIONS) as llm:
        yield llm
