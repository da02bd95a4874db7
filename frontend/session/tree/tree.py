"""One process tree: starts the children of a model, waits until they are ready, and ends them.

The children are the engine, the detokenizer, a worker for each rank of this machine, and `link` if there are others,
which start their own ranks (`frontend/nodes`). Once the tree is ready, its transport reads the messages.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ....protocol.errors import (
    ChildFailure,
    ChildTraceback,
    ConfigError,
    EngineDeadError,
    LostRankError,
    OutOfMemoryError,
    PenstockError,
    raised_by,
)
from ....protocol.files.prefix_folder import FLUSH_SECONDS
from ....protocol.memory_plan import MemoryPlan
from ....protocol.messages import FrontendInbox, Hello, Notice, Ready, Stop
from ....protocol.options.config import EngineConfig
from ....protocol.options.nodes import node_key, own_address, require_front_end
from ....protocol.pooling.form import PoolingForm
from ....protocol.processes.descriptors import require_descriptors
from ....protocol.processes.heartbeat import Heartbeats
from ....protocol.processes.launch import Launch, LaunchFile
from ....protocol.processes.process import ASK_SECONDS, ChildProcess, end_children, wait_for_ends
from ....protocol.processes.runtime_directory import RuntimeDirectory
from ....protocol.processes.sockets import Inbox, Outbox
from ....protocol.processes.trace import Trace
from ....protocol.ranks.nccl_failures import explained
from ....protocol.ranks.node_messages import BEAT_SECONDS, SILENCE, TreeEnds, TreeReady
from ....protocol.stats import StartProgress
from ...console import logs
from ...console.progress import StartBar
from .ranks import QUIET_LIBRARIES, start_part, start_ranks, threads_per_rank
from .roll_call import RollCall
from .tree_files import TreeFiles
from .vital_signs import is_stopped, oom_kills

# After a child has ended, its last messages and those of the others are awaited this long.
_LAST_WORDS_SECONDS = 0.3
_OTHERS_SECONDS = SILENCE + 2 * BEAT_SECONDS  # until the link knows that a machine is lost
_LOG_BYTES = 1 << 17  # at its end, in which the reason of an abort is looked for
# Descriptors that a tree needs in this process (each child needs fewer), with a few spare ones for files being read.
_DESCRIPTORS, _DESCRIPTORS_PER_CHILD = 24, 4


class Tree:
    """Its processes run from construction on: call `launch`, `wait_until_ready`, then read `inbox`; `close` from any
    state."""

    def __init__(self, config: EngineConfig) -> None:
        """Start the processes. They import what they need until they are told what to load."""
        self.config = config
        require_front_end(config)
        if config.nnodes > 1:
            node_key(config)  # an error comes before anything is started
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
        self.cause = ""  # why it has ended, for other machines
        self.link: Outbox | None = None  # to the process that connects other machines
        self.machines: dict[str, Hello] = {}  # by the role of a rank that is elsewhere
        self._oom_kills = oom_kills()
        try:
            self.inbox = Inbox[FrontendInbox](self.directory.path, "frontend", FrontendInbox)
            self.engine = Outbox(self.directory.path, "engine")
            with self._writing():
                self._launch_file = LaunchFile(self.directory.path)
            self._start()
            self.roll_call = RollCall(self.directory.path, self.roles, self.heartbeats)
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
        config, start = self.config, partial(start_part, directory=self.directory.path, log=self.log, page=self._page)
        # Workers first: they take longest.
        for child in start_ranks(config, range(config.ranks_per_node), self.directory.path, self.log, self._page):
            self.children.append(child)
        self.children.append(start("engine", "penstock.engine", QUIET_LIBRARIES))
        self.children.append(start("detokenizer", "penstock.frontend.text.detokenizer", QUIET_LIBRARIES))
        if config.nnodes > 1:
            self.link = Outbox(self.directory.path, "link")
            self.children.append(start("link", "penstock.frontend.nodes.link", QUIET_LIBRARIES))
        self.heartbeats.close_descriptor()

    @property
    def roles(self) -> list[str]:
        """All its processes, those on other machines included."""
        return [*(child.role for child in self.children), *(f"worker {rank}" for rank in self.remote_ranks)]

    @property
    def remote_ranks(self) -> range:
        """The ranks on other machines."""
        return range(self.config.ranks_per_node, self.config.tensor_parallel_size)

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
            address = own_address(config) if config.nnodes > 1 else ""
            launch = Launch(self.files.config, *folders, threads, list(shown), self._page, drafting, address, pooling)
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
        if self.link is not None:
            self.link.send(TreeReady())
        self.trace.reached("wait")
        self.trace.close()
        return plan

    def note(self, message: FrontendInbox) -> None:
        """Take in a message that is not about a request; raises a child's own error."""
        if isinstance(message, Notice):
            logs.say(f"{message.role}: {message.text}", quiet=False)
        elif isinstance(message, Hello) and message.machine:
            self.machines[message.role] = message
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
        error = self._found_error(failure)
        self.cause = str(error)
        return error

    def _found_error(self, failure: ChildFailure | None) -> PenstockError:
        if self.hang is None:
            wait_for_ends(self.children, _LAST_WORDS_SECONDS / 3 if failure else 0)
            if failure is not None and failure.error == LostRankError.__name__ and self.link is not None:
                failure = self._cause_elsewhere() or failure
        if self.hang is not None:
            return self.hang
        ended = [child for child in self.children if child.has_ended]
        killed = [child for child in ended if child.was_killed]
        if failure is not None and not killed:
            return raised_by(failure)
        error = self._error_of(next(iter(killed or ended), None))
        if failure is not None:
            error.__cause__ = ChildTraceback(failure.traceback)
        return error

    def _cause_elsewhere(self) -> ChildFailure | None:
        """Wait for another machine, or the link to it, to say what a rank here only noticed; None if nobody does."""
        deadline = time.monotonic() + _OTHERS_SECONDS
        while (left := deadline - time.monotonic()) > 0 and not any(child.was_killed for child in self.children):
            if (hang := self.hang or self.stopped_link()) is not None:
                self.hang = hang
                break
            message = self.inbox.receive(min(left, _LAST_WORDS_SECONDS))
            if isinstance(message, ChildFailure) and message.error != LostRankError.__name__:
                return message
        return None

    def stopped_link(self) -> EngineDeadError | None:
        """The error about the process that connects other machines, if that is stopped."""
        if (pid := next((child.popen.pid for child in self.children if child.role == "link"), 0)) and is_stopped(pid):
            return EngineDeadError(
                f"The link process (pid {pid}) has been stopped (SIGSTOP); other machines give this one up "
                f"after {SILENCE:.0f} s. {self._where_its_log_is}"
            )
        return None

    def _error_of(self, ended: ChildProcess | None) -> PenstockError:
        if ended is None:
            return EngineDeadError(f"The process tree has ended. {self._where_its_log_is}")
        what = ended.describe_end()
        if oom_kills() > self._oom_kills:
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
        self._tell_others(str(error))
        for child in self.children:
            if child.role != "link":
                child.send(signal.SIGKILL)  # the only signal that acts on a stopped process

    def close(self, *, ask: bool = True) -> None:
        """End every child and remove the folder; safe to call twice, and bounded in time."""
        if self.is_closed:
            return
        self.is_closed = True
        # An incomplete tree would not pass the message on.
        can_ask = ask and self.is_ready and not any(child.has_ended for child in self.children)
        names = ("engine", "link", "inbox", "roll_call", "trace", "files", "_launch_file")
        opened = [each for name in names if (each := getattr(self, name, None)) is not None]
        try:
            self._tell_others("" if can_ask else self.cause or "The front end has closed the tree.")
            asked = (lambda: self.engine.send(Stop())) if can_ask else None
            end_children(self.children, asked, ASK_SECONDS + (FLUSH_SECONDS if self.config.keeps_prefixes else 0))
        finally:  # also after a Ctrl-C while waiting
            self.heartbeats.close()
            for each in opened:
                each.close()
            self.directory.remove()
            if not hasattr(self, "files"):  # it was never told what to load: only so many logs are kept
                with suppress(OSError):
                    if self.log.is_file():
                        self.log.unlink()

    def _tell_others(self, cause: str) -> None:
        """Tell other machines why the tree ends, before the link ends; an empty cause means that it was closed."""
        if self.link is None:
            return
        self.link.send(TreeEnds(cause))
        if cause:
            wait_for_ends([child for child in self.children if child.role == "link"], _LAST_WORDS_SECONDS)
