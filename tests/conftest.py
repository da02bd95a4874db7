"""The surroundings of every test: folders of this run's own, nothing from the network, repeatable examples."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

# `python -m pytest` puts the checkout itself on the path, where transformers takes our `kernels` for a package of that
# name.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT]
# Read by huggingface_hub and transformers when they are imported, here and in children.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
# Before torch is imported: its idle threads would spin on cores that the next test or process needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# In the background of a script, or under nohup, they are ignored, and so they would be by all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# The size of pytest's own window, which its readline hands on to the processes that share the tests.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# While thousands of tests are collected, whose objects stay until the end: see `pytest_collection_finish`.
gc.disable()

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """What has been imported and collected is never garbage, and looking through it again took a tenth of the run."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        # As many processes as cores and more share them: threads of one operation would wait for one another's turn.
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def folders_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches, logs and sockets of the trees under test stay away from the user's own."""
    with pytest.MonkeyPatch.context() as environment, TemporaryDirectory(prefix="pt") as runtime:
        # Short: a socket's path has 107 bytes at most.
        environment.setenv("PENSTOCK_RUNTIME_DIR", runtime)
        environment.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("PENSTOCK_LOG_DIR", str(tmp_path_factory.mktemp("logs")))
        yield
