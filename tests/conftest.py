"""The surroundings of every test: folders of this run's own, nothing from the network, repeatable examples.

Also decides which tests stay together when several processes share them, and says how long each folder took.
"""

import gc
import os
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders.left_behind import ended_with_this_process
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# `python -m pytest` puts the checkout itself on the path, where transformers takes our `kernels` for a package of that
# name.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT]
# Read by huggingface_hub and transformers when they are imported, here and in children.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
# What Triton compiles stays away from the user's own; a run with another Triton has named a folder.
os.environ.setdefault("TRITON_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "triton_of_tests"))
# Before torch is imported: its idle threads would spin on cores that the next test or process needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# In the background of a script, or under nohup, they are ignored, some daemons ignore or block others, and so would all
# that the tests start.
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGCHLD, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # this process goes on, and those that it starts begin anew
    signal.signal(signal.SIGHUP, lambda number, frame: None)
# A socket's path has 107 bytes at most, of which those of the tests' own folders take up to 80.
if len(os.fsencode(tempfile.gettempdir())) > 24:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"
# The size of pytest's own window, which its readline hands on to the processes that share the tests; proxies, which
# can't reach this machine's own servers, the only ones that tests ask; and what a person has set for commands by hand.
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
BY_HAND = ("PENSTOCK_FAULTS", "PENSTOCK_LOG", "NO_COLOR", "PYTHONSAFEPATH", "PYTHONIOENCODING", "PYTHONOPTIMIZE")
for name in ("COLUMNS", "LINES", *PROXIES, *map(str.upper, PROXIES), *BY_HAND):
    os.environ.pop(name, None)

# Fixtures that keep a process tree for the whole run, and the group of tests that shares a process because of them: so
# each tree starts once. Of a file whose tests use several the first one here counts.
SHARED_TREES = {
    "daemon": "daemon", "private": "daemon", "numbers_daemon": "daemon", "pocket": "http_server",
    "paced": "http_server", "quick": "quick",
    "llm": "tree", "split": "tree", "pocket_llm": "pocket_llm", "stand_in": "stand_in",
    "shell": "shell", "bundled_trees": "docs",
}  # fmt: skip
# Folders whose tests mostly wait for processes come first, and the many small ones fill what is left at the end.
ORDER = ("daemon", "tree", "http_server", "chaos", "docs", "worker", "kernels", "frontend")
# Before them the files with tests that take a minute or more, so that no run ends with one process at work on them.
LONGEST = (
    "test_check_gpu.py", "test_checks.py", "engine/test_beams.py", "engine/test_engine_properties.py",
    "engine/test_grammar_schemas.py", "engine/test_grammar_steps.py", "frontend/test_linear_time.py",
    "kernels/test_cpu_emulated_avx512.py", "kernels/triton/test_every_kernel.py",
    "worker/test_nothing_compiles_late.py",
)  # fmt: skip
KINDS = ("long", "soak", "ray", "gpu")  # each left out unless it is asked for (pytest.ini)
seconds_of_parts: Counter[str] = Counter()

# While thousands of tests are collected, whose objects stay until the end: see `pytest_collection_finish`.
gc.disable()

settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
# Hypothesis also draws what it finds written in the modules that are loaded, so the tests that share a process would
# change one another's examples. There is no setting for it, and its list of them stays as it begins, empty.
assert not providers._local_constants and callable(providers._get_local_constants)
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backwards", action="store_true", help="the last test first: shows which of them need another")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fixtures: defaultdict[Path, set[str]] = defaultdict(set)
    shares: set[Path] = set()  # files with a fixture that is made once for all of their tests
    for item in items:
        assert isinstance(item, pytest.Function)
        fixtures[item.path].update(item.fixturenames)
        if any(made[-1].scope == "module" for made in item._fixtureinfo.name2fixturedefs.values()):
            shares.add(item.path)
    for number, item in enumerate(items):
        tree = next((name for name in SHARED_TREES if name in fixtures[item.path]), None)
        if tree is not None:
            item.add_marker(pytest.mark.xdist_group(SHARED_TREES[tree]))
        elif item.get_closest_marker("long") is not None and item.path not in shares:
            item.add_marker(pytest.mark.xdist_group(f"long {number}"))  # one by one, to whoever has nothing to do
    ranks = {folder: rank for rank, folder in enumerate(ORDER)}

    def rank(item: pytest.Item) -> int:
        return -1 if item.nodeid.startswith(LONGEST) else ranks.get(part_of(item.nodeid), len(ORDER))

    items.sort(key=rank)
    if config.option.backwards:
        items.reverse()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadGroupScheduling

    class ByTreeOrFile(LoadGroupScheduling):
        """Where a test is in no group, those of its file are one: the quick ones, and those that share a fixture."""

        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).split("::")[0]

        def _reschedule(self, node: Any) -> None:
            """Of two processes that replace others, one may still be collecting."""
            if node in self.registered_collections:
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """A test that has ended its process would end that of whoever does the rest of its file, too."""
            ended: str | None = super().remove_node(node)
            for unit in self.workqueue.values():
                if ended in unit:
                    unit[ended] = True
            return ended

    return ByTreeOrFile(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that too many processes have left before its end has not merely failed: .ci/run tells both apart."""
    distributed = session.config.pluginmanager.get_plugin("dsession")
    if distributed is not None and distributed.sched is not None and distributed.sched.has_pending:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


def part_of(nodeid: str) -> str:
    folder, slash, _ = nodeid.partition("/")
    return folder if slash else "others"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ and report.nodeid.rfind("@") > report.nodeid.rfind("]"):
        report.nodeid = report.nodeid.rpartition("@")[0]  # --last-failed knows a test without its group
    seconds_of_parts[part_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    left_out = terminalreporter.stats.get("deselected", [])
    kinds = [{f"-m {kind}" for kind in KINDS if item.get_closest_marker(kind)} for item in left_out]
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and left_out and all(kinds):
        asked = " or ".join(sorted(set().union(*kinds)))
        terminalreporter.write_line(f'None of these tests is a quick one: {asked}, or -m "" for whatever there is.')
    took = ", ".join(f"{part} {seconds:.0f}" for part, seconds in seconds_of_parts.most_common() if seconds >= 1)
    if took:
        terminalreporter.write_line(f"seconds in each folder, waiting included: {took}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been imported and collected is never garbage, and looking through it again took a tenth of the run."""
    if session.config.getoption("loadgroup", False):
        grouped = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group") is not None]
        assert all("@" in each for each in grouped), "This pytest-xdist doesn't pass on which tests share a process."
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    if "PYTEST_XDIST_WORKER" in os.environ and "torch" in sys.modules:
        # As many processes as cores and more share them: threads of one operation would wait for one another's turn.
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def folders_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches, logs, sockets and files of the trees under test stay away from the user's own."""
    with pytest.MonkeyPatch.context() as environment, TemporaryDirectory(prefix="pt") as runtime:
        # Short: a socket's path has 107 bytes at most.
        environment.setenv("PENSTOCK_RUNTIME_DIR", runtime)
        environment.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("PENSTOCK_LOG_DIR", str(tmp_path_factory.mktemp("logs")))
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with ended_with_this_process(runtime):
            yield
