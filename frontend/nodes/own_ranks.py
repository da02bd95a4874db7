"""The ranks that a machine which has joined runs for the tree: starts and ends them, and reads their signs of life.

What `frontend/session/tree/tree.py` does with node 0's own ranks, next to its other processes.
"""

from contextlib import suppress
from pathlib import Path

import msgspec
import zmq

from ...protocol.messages import Stop
from ...protocol.processes.heartbeat import Heartbeats, Vitals, aged
from ...protocol.processes.launch import Launch, LaunchFile
from ...protocol.processes.process import ASK_SECONDS, ChildProcess, end_children
from ...protocol.processes.sockets import encoded_frame, frames_to
from ...protocol.ranks.nccl_failures import explained
from ...protocol.ranks.node_messages import Signs
from ..console import logs
from ..models.model_files import ModelFiles
from ..session.tree.ranks import start_ranks, threads_per_rank
from ..session.tree.vital_signs import Process, Progress

_LAST_BYTES = 1 << 17  # of a log, in which a rank that was killed has said why


class OwnRanks:
    """Call `start`; `close` from any state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inboxes: dict[bytes, zmq.Socket[bytes]] = {}
        self.children: list[ChildProcess] = []

    def start(self, launch: Launch, files: ModelFiles) -> None:
        self.config = config = launch.config
        self.log = logs.new_log_file(quiet=logs.is_quiet(config.quiet))
        self.numbers = range(config.node_rank * config.ranks_per_node, (config.node_rank + 1) * config.ranks_per_node)
        self._heartbeats = Heartbeats(config.tensor_parallel_size)
        page = self._heartbeats.descriptor
        own = {"model_folder": str(files.folder), "tokenizer_folder": str(files.tokenizer_folder), "heartbeats": page}
        launch = msgspec.structs.replace(launch, threads_per_rank=threads_per_rank(config), **own)
        LaunchFile(self.folder).write(launch)
        for child in start_ranks(config, self.numbers, self.folder, self.log, page):
            self.children.append(child)
        self._heartbeats.close_descriptor()
        self.inboxes = {f"worker{rank}".encode(): frames_to(self.folder, f"worker{rank}") for rank in self.numbers}
        self._processes = [Process(child.popen.pid) for child in self.children]
        self._vitals = [Vitals(process.pid) for process in self._processes]
        self.watch()

    def __str__(self) -> str:
        numbers = f"{self.numbers[0]} to {self.numbers[-1]}" if len(self.numbers) > 1 else f"{self.numbers[0]}"
        return f"rank {numbers} of {self.config.tensor_parallel_size}"

    @property
    def ended(self) -> list[ChildProcess]:
        return [child for child in self.children if child.has_ended]

    @property
    def killed(self) -> ChildProcess | None:
        return next((child for child in self.children if child.was_killed), None)

    def end_of(self, ended: ChildProcess) -> str:
        """How one has ended, as sentences."""
        why = explained(self._last_words()) if ended.was_killed else None
        return f"{ended.describe_end()}. {f'{why} ' if why else ''}Its log is {self.log} there."

    def _last_words(self) -> str:
        with suppress(OSError):
            return self.log.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
        return ""

    # --- signs of life ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Begin to count anew what the ranks do: somebody has begun to watch, or has ceased."""
        self._progress = Progress()
        self._vitals = [each._replace(missed=0, is_stopped=0, is_traced=0) for each in self._vitals]

    def look(self, seconds: float) -> None:
        """See whether the ranks could have worked in the last seconds, and did."""
        self._progress.count([process.pid for process in self._processes], seconds)
        missed = int(self._progress.missed * 1e9)
        for place, process in enumerate(self._processes):
            chance, before = process.chance(seconds), self._vitals[place].chance
            counted = before + int(chance.seconds * 1e9)
            self._vitals[place] = Vitals(process.pid, counted, missed, int(chance.is_stopped), int(chance.is_traced))

    def signs(self) -> Signs:
        return Signs([aged(self._heartbeats.read(child.role)) for child in self.children], self._vitals)

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask the ranks to end, and end those that don't."""
        end_children(self.children, self._ask, ASK_SECONDS)

    def _ask(self) -> None:
        for inbox in self.inboxes.values():
            inbox.send(encoded_frame(Stop()))

    def close(self) -> None:
        try:
            end_children(self.children, None)
        finally:
            for inbox in self.inboxes.values():
                inbox.close(linger=0)
