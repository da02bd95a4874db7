"""One process tree: starts the children of a model, waits until they are ready, and ends them.

The children are engine, detokenizer and one worker per rank, all started by this process. All thread counts are decided
here. Once the tree is ready, its transport reads the messages.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ....protocol.errors import (
    ChildFailure,
    ChildTraceback,
    ConfigError,
    EngineDeadError,
    OutOfMemoryError,
    PenstockError,
    raised_by,
)
from ....protocol.files.cache_folder import caches_of_libraries
from ....protocol.files.prefix_folder import FLUSH_SECONDS
from ....protocol.memory_plan import MemoryPlan
from ....protocol.messages import FrontendInbox, Notice, Ready, Stop
from ....protocol.options.config import EngineConfig
from ....protocol.pooling.form import PoolingForm
from ....protocol.processes.descriptors import require_descriptors
from ....protocol.processes.heartbeat import Heartbeats
from ....protocol.processes.launch import Launch, LaunchFile
from ....protocol.processes.process import ASK_SECONDS, ChildProcess, end_children, open_log, start_child, wait_for_ends
from ....protocol.processes.runtime_directory import RuntimeDirectory
from ....protocol.processes.sockets import Inbox, Outbox
from ....protocol.processes.trace import Trace
from ....protocol.ranks.nccl_failures import explained
from ....protocol.stats import StartProgress
from ...console import logs
from ...console.progress import StartBar
from .roll_call import RollCall
from .tree_files import TreeFiles

# After a child has ended, its last messages and those of the others are awaited this long.
_LAST_WORDS_SECONDS = 0.3
_LOG_BYTES = 1 << 17  # at its end, in which the reason of an abort is looked for
# Descriptors that a tree needs in this process (each child needs fewer), with a few spare ones for files being read.
_DESCRIPTORS, _DESCRIPTORS_PER_CHILD = 24, 4


class Tree:
    """Its processes run from construction on: call `launch`, `wait_until_ready`, then read `inbox`; `close` from any
    state."""

    def __init__(self, config: EngineConfig) -> None:
        """Start the processes. They import what they need until they are told what to load."""
        self.config = config
        ranks = config.tensor_parallel_size
        require_descriptors(_DESCRIPTORS + _DESCRIPTORS_PER_CHILD * (ranks + 2), "Another process tree")
        self.log = logs.new_log_file(quiet=logs.is_quiet(config.quiet))
        self.bar = StartBar(is_shown=not logs.is_quiet(config.quiet))
        self.heartbeats = Heartbeats(config.tensor_parallel_size)
        self._page = self.heartbeats.descriptor  # its number in the children
        self.directory = RuntimeDirectory()
        self.children: list[ChildProcess] = []
        self.plan: MemoryPlan | None = None  # once it is ready
        self.is_ready = self.is_closed = False
        self.hang: PenstockError | None = None  # the hang that ended the tree
        self._oom_kills = _oom_kills()
        try:
            self.inbox = Inbox[FrontendInbox](self.directory.path, "frontend", FrontendInbox)
            self.engine = Outbox(self.directory.path, "engine")
            with self._writing():
                self._launch_file = LaunchFile(self.directory.path)
            self._start()
            self.roll_call = RollCall(self.directory.path, [child.role for child in self.children], self.heartbeats)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"{self.directory.path} cannot be written: {error.strerror}"
            raise ConfigError(f"{why}. Set PENSTOCK_RUNTIME_DIR to another folder.") from error

    def _start(self) -> None:
        ranks = range(self.config.tensor_parallel_size)
        stand_in = self.config.load_format == "stand-in"
        # The worker first: it takes longest.
        for rank in ranks:
            module = "penstock.worker.stand_in" if stand_in else "penstock.worker"
            name = f"worker {rank}"
            self._start_child(name, module, _worker_environment(threads_per_rank(self.config)), "--rank", str(rank))
        self._start_child("engine", "penstock.engine", _QUIET_LIBRARIES)
        self._start_child("detokenizer", "penstock.frontend.text.detokenizer", _QUIET_LIBRARIES)
        self.heartbeats.close_descriptor()

    def _start_child(self, role: str, module: str, environment: dict[str, str], *arguments: str) -> None:
        with open_log(self.log) as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            arguments = (str(self.directory.path), *arguments)
            shared = [self._page]
            self.children.append(start_child(role, module, arguments, env=environment, pass_fds=shared, **streams))

    def launch(
        self,
        config: EngineConfig,
        model_folder: Path,
        tokenizer_folder: Path,
        shown: Sequence[str] = (),
        draft_folder: Path | None = None,
        pooling: PoolingForm | None = None,
    ) -> None:
        """Have the processes load this model. `config` is the tree's, with what the model's files settle."""
        self.config = config
        self.files = TreeFiles(config, model_folder, tokenizer_folder)
        self.trace = Trace(self.files.config.trace, "front end")
        self.trace.reached("imports")
        folders = str(model_folder), str(tokenizer_folder)
        with self._writing():
            drafting = "" if draft_folder is None else str(draft_folder)
            threads = threads_per_rank(config)
            launch = Launch(self.files.config, *folders, threads, list(shown), self._page, drafting, pooling)
            self._launch_file.write(launch)

    def wait_until_ready(self) -> MemoryPlan:
        """Wait until every child is ready; raises the error that ended one."""
        if any(child.has_ended for child in self.children):
            raise self.death()
        missing, plan = {"engine", "detokenizer"}, None
        while missing or plan is None:
            message = self.inbox.receive_or([child.pidfd for child in self.children])
            if message is None:
                raise self.death()
            if isinstance(message, Ready):
                missing.discard(message.role)
                plan = message.plan or plan
            else:
                self.note(message)
        self.files.take_names()
        self.plan = plan
        self.is_ready = True
        self.trace.reached("wait")
        self.trace.close()
        return plan

    def note(self, message: FrontendInbox) -> None:
        """Take in a message that is not about a request; raises a child's own error."""
        if isinstance(message, Notice):
            logs.say(f"{message.role}: {message.text}", quiet=False)
        elif isinstance(message, StartProgress):
            self.bar.show(message)
        elif isinstance(message, ChildFailure):
            raise self._error(message)

    def death(self, dispatch: Callable[[FrontendInbox], None] | None = None) -> PenstockError:
        """The error to raise after a child has ended: its own message if it sent one, otherwise how it ended.

        Answers that were still arriving are passed to `dispatch`.
        """
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            message = self.inbox.receive(left)
            if isinstance(message, ChildFailure):
                return self._error(message)
            if message is not None and dispatch is not None:
                dispatch(message)
        return self._error(None)

    def _error(self, failure: ChildFailure | None) -> PenstockError:
        """The error that ended the tree. A killed process comes before the message of one that only noticed."""
        if self.hang is not None:
            return self.hang
        wait_for_ends(self.children, _LAST_WORDS_SECONDS / 3 if failure else 0)
        ended = [child for child in self.children if child.has_ended]
        killed = [child for child in ended if child.was_killed]
        if failure is not None and not killed:
            return raised_by(failure)
        error = self._error_of(next(iter(killed or ended), None))
        if failure is not None:
            error.__cause__ = ChildTraceback(failure.traceback)
        return error

    def _error_of(self, ended: ChildProcess | None) -> PenstockError:
        if ended is None:
            return EngineDeadError(f"The process tree has ended. {self._where_its_log_is}")
        what = ended.describe_end()
        if _oom_kills() > self._oom_kills:
            return OutOfMemoryError(f"{what}: the kernel ended it for want of memory. Use a smaller model or KV cache.")
        # NCCL ends a rank by itself, from a thread of its own: it told the log why.
        aborted = ended.status == -signal.SIGABRT and ended.role.startswith("worker")
        why = f" {words}" if aborted and (words := explained(self._end_of_log())) else ""
        return EngineDeadError(f"{what}.{why} {self._where_its_log_is}")

    def _end_of_log(self) -> str:
        with suppress(OSError), open(self.log, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")
        return ""

    @property
    def _where_its_log_is(self) -> str:
        return f"Its log is {self.log}." if self.log != Path(os.devnull) else "No log of it could be written."

    def terminate(self) -> None:
        """End the tree for everyone who waits for it. Any thread may call this."""
        for child in self.children:
            child.send(signal.SIGTERM)

    def give_up(self, error: PenstockError) -> None:
        """A process has hung: end the tree with that error for everyone who waits for it. Any thread may call this."""
        self.hang = error
        for child in self.children:
            child.send(signal.SIGKILL)  # the only signal that acts on a stopped process

    def close(self, *, ask: bool = True) -> None:
        """End every child and remove the folder; safe to call twice, and bounded in time."""
        if self.is_closed:
            return
        self.is_closed = True
        # An incomplete tree would not pass the message on.
        can_ask = ask and self.is_ready and not any(child.has_ended for child in self.children)
        names = ("engine", "inbox", "roll_call", "trace", "files", "_launch_file")
        opened = [getattr(self, name) for name in names if hasattr(self, name)]
        try:
            asked = (lambda: self.engine.send(Stop())) if can_ask else None
            end_children(self.children, asked, ASK_SECONDS + (FLUSH_SECONDS if self.config.keeps_prefixes else 0))
        finally:  # also after a Ctrl-C while waiting
            self.heartbeats.close()
            for each in opened:
                each.close()
            self.directory.remove()
            if not hasattr(self, "files"):  # it was never told what to load
                self._remove_log()

    def _remove_log(self) -> None:
        """Leave no log of a model that can't be opened: only so many logs are kept."""
        with suppress(OSError):
            if self.log.is_file():
                self.log.unlink()


def threads_per_rank(config: EngineConfig) -> int:
    cores = len(os.sched_getaffinity(0))
    return max(1, (config.num_threads or cores) // config.tensor_parallel_size)


_QUIET_LIBRARIES = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def _worker_environment(threads: int) -> dict[str, str]:
    count = str(threads)
    # Passive: otherwise OpenMP's threads would spin through every gap between two operations.
    threading = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"}
    return {**threading, **caches_of_libraries()}


def _oom_kills() -> int:
    """How many processes the kernel has killed for memory in this control group."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/sys/fs/cgroup/memory.events").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("oom_kill ")).split()[1])
    return 0
