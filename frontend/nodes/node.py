"""A machine of a tree that is not its first: it joins, starts its ranks, and hands frames on until the tree ends.

Its ranks end with this process, however that ends. It ends them itself when node 0 says so, falls silent, or closes
the connection, and tells node 0 when one of them ends.
"""

import socket
import time
from contextlib import suppress
from typing import Any

import msgspec
import zmq

from ... import __version__
from ...protocol.errors import (
    ChildFailure,
    EngineDeadError,
    LostRankError,
    OutOfMemoryError,
    PenstockError,
)
from ...protocol.fingerprint import PROTOCOL
from ...protocol.messages import FrontendInbox, Hello, Notice
from ...protocol.options.config import EngineConfig
from ...protocol.options.nodes import node_key, own_address
from ...protocol.processes.launch import Launch
from ...protocol.processes.process import ChildProcess
from ...protocol.processes.runtime_directory import RuntimeDirectory
from ...protocol.processes.sockets import Inbox, encoded_frame, frames_for
from ...protocol.ranks.meeting_file import MeetingFile
from ...protocol.ranks.node_messages import BEAT_SECONDS, NO_BEAT, SILENCE, Join, Kind, why_lost
from ...protocol.ranks.node_sockets import NodeSocket
from ..console import logs
from ..models.digests import digest_of_model
from ..models.model_files import ModelFiles
from ..session.tree.watchdog import pause_of
from .beats import Beats
from .joining import welcome
from .own_ranks import OwnRanks

# Options that each machine has of its own; the others are those of node 0.
OWN_OPTIONS = {
    *("model", "tokenizer", "revision", "devices", "num_threads", "nnodes", "node_rank", "master_addr", "master_port"),
    *("node_key_file", "quiet", "trace", "record", "connect"),
}
_LAST_WORDS_SECONDS = 0.5  # for the last messages of a rank that has ended, and for node 0's answer


class NodeEnded(Exception):
    """The tree has ended as it was asked to."""


class Node:
    """Call `run`; `close` from any state."""

    def __init__(self, config: EngineConfig, files: ModelFiles, options: dict[str, Any]) -> None:
        self.config, self.files = config, files
        self.name = f"node {config.node_rank} ({socket.gethostname()})"
        self.is_quiet = logs.is_quiet(config.quiet)
        key = node_key(config)
        self.address = own_address(config)
        self.join = Join(
            PROTOCOL,
            __version__,
            config.node_rank,
            config.nnodes,
            socket.gethostname(),
            digest_of_model(files.folder),
            {name: msgspec.to_builtins(value) for name, value in options.items() if name not in OWN_OPTIONS},
        )
        self.poller = zmq.Poller()
        # Before the folder: an address that can't be found leaves none behind.
        self.link = NodeSocket(config.master_addr, config.master_port, key)
        self.directory = RuntimeDirectory()
        self.ranks = OwnRanks(self.directory.path)
        self.meeting = MeetingFile(self.directory.path / "ranks")
        self.engine = frames_for(self.directory.path, "engine")
        self.frontend = Inbox[FrontendInbox](self.directory.path, "frontend", FrontendInbox)
        self.failure: ChildFailure | None = None  # of a rank here
        self.is_watched = False
        for each in (self.link.socket, self.link.events, self.engine, self.frontend.socket):
            self.poller.register(each, zmq.POLLIN)

    def run(self) -> None:
        """Returns when the tree has ended as it was asked to; raises the error that ended it."""
        try:
            self._start(welcome(self.link, self.poller, self.join, quiet=self.is_quiet))
            self.beats = Beats(pause_of(self.ranks.config.watchdog_timeout) or BEAT_SECONDS)
            self.heard = self.beats.now()
            self._serve()
        except NodeEnded:
            return
        except PenstockError:  # node 0 knows
            raise
        except Exception as error:
            self._tell(EngineDeadError(f"It has failed there: {type(error).__name__}: {error}."))
            raise
        except BaseException as error:  # Ctrl-C, SIGTERM
            self._tell(EngineDeadError(f"It was ended there ({type(error).__name__})."))
            raise

    # --- the start ---------------------------------------------------------------------------------------------------

    def _start(self, launch: Launch) -> None:
        """Start this machine's ranks, with its own folders, devices and threads."""
        own = {name: getattr(self.config, name) for name in ("devices", "num_threads", "node_rank", "quiet")}
        config = msgspec.structs.replace(launch.config, **own, trace=None, record=None)
        try:
            self.ranks.start(msgspec.structs.replace(launch, config=config, address=self.address), self.files)
        except PenstockError as error:
            self._tell(error)
            raise
        for child in self.ranks.children:
            self.poller.register(child.pidfd, zmq.POLLIN)
        logs.say(f"Joined. Loading {self.ranks}.", quiet=self.is_quiet)

    # --- serving ----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            ready = dict(self.poller.poll(self.beats.pause))
            self._hand_on()
            if self.link.events in ready:
                self.link.note_event()
            while (message := self.link.receive()) is not None:
                self._hear(*message)
            if ended := self.ranks.ended:
                self._lose(ended)
            passed = self.beats.due()
            if (passed or not self.beats.is_ready) and (news := self.meeting.appended()):
                self.link.send(Kind.MEETING, news)
            silence = self.beats.now() - self.heard
            if passed:
                self._beat(passed)
            if self.link.is_cut or silence > NO_BEAT:
                raise EngineDeadError(why_lost("Node 0", silence))

    def _hand_on(self) -> None:
        """Hand on what the ranks have for the engine and the front end."""
        with suppress(zmq.Again):
            while True:
                self.link.send(Kind.FRAME, b"engine", self.engine.recv(zmq.NOBLOCK))
        while (message := self.frontend.receive(0)) is not None:
            if isinstance(message, ChildFailure):
                message = msgspec.structs.replace(message, message=f"On {self.name}: {message.message}")
                if self.failure is None or self.failure.error == LostRankError.__name__:
                    self.failure = message
            elif isinstance(message, Notice):
                logs.say(f"{message.role}: {message.text}", quiet=False)
            elif isinstance(message, Hello):
                message = msgspec.structs.replace(message, machine=self.name, log=str(self.ranks.log))
            self.link.send(Kind.FRAME, b"frontend", encoded_frame(message))

    def _hear(self, kind: bytes, *frames: bytes) -> None:
        self.heard = self.beats.now()
        if kind == Kind.FRAME:
            self.ranks.inboxes[frames[0]].send(frames[1])
        elif kind == Kind.MEETING:
            if news := self.meeting.append(frames[0]):
                self.link.send(Kind.MEETING, news)
        elif kind == Kind.BEAT:
            if (is_watched := bool(frames[0])) != self.is_watched:
                self.ranks.watch()
            self.is_watched = is_watched
        elif kind == Kind.READY:
            self.beats.is_ready = True
            logs.say("The tree is ready.", quiet=self.is_quiet)
        elif kind == Kind.END:
            self._end(frames[0].decode())

    def _end(self, cause: str) -> None:
        """The tree ends: the ranks are asked to, if it was."""
        if cause:
            raise EngineDeadError(f"The tree has ended. Node 0 says: {cause}")
        self.ranks.stop()
        raise NodeEnded

    def _lose(self, ended: list[ChildProcess]) -> None:
        """A rank has ended. If it hasn't told why, or only that another was lost, another one or node 0 may know."""
        if all(child.status == 0 for child in ended):  # asked to, by the engine: node 0's word is on its way
            self._await_end(SILENCE)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while not self._is_explained and (left := deadline - time.monotonic()) > 0:
            self.frontend.socket.poll(int(1000 * min(left, 0.05)))
            self._hand_on()
        if self.ranks.killed is None and self.failure is not None:
            is_cause = self.failure.error != LostRankError.__name__
            self._await_end(_LAST_WORDS_SECONDS if is_cause else SILENCE + 2 * BEAT_SECONDS)
            raise EngineDeadError(self.failure.message)
        error = EngineDeadError(self.ranks.end_of(self.ranks.killed or ended[0]))
        self._tell(error)
        self._await_end(_LAST_WORDS_SECONDS)
        raise error

    @property
    def _is_explained(self) -> bool:
        """Whether a rank was killed, or has told more than that another was lost."""
        told = self.failure is not None and self.failure.error != LostRankError.__name__
        return told or self.ranks.killed is not None

    def _await_end(self, seconds: float) -> None:
        """Wait for node 0 to say how the tree ends; returns if it doesn't."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.link.is_cut:
            self.link.socket.poll(int(1000 * min(left, 0.1)))
            if self.link.events.poll(0):
                self.link.note_event()
            while (message := self.link.receive()) is not None:
                if message[0] == Kind.END:
                    self._end(message[1].decode())

    def _tell(self, error: PenstockError) -> None:
        """Tell node 0 why this machine leaves."""
        kind = OutOfMemoryError if isinstance(error, OutOfMemoryError) else EngineDeadError
        failure = ChildFailure(self.name, kind.__name__, f"On {self.name}: {error}", "")
        self.link.send(Kind.FRAME, b"frontend", encoded_frame(failure))

    def _beat(self, passed: float) -> None:
        if self.is_watched:
            self.ranks.look(passed)
        self.link.send(Kind.BEAT, msgspec.msgpack.encode(self.ranks.signs()))

    def close(self) -> None:
        try:
            self.ranks.close()
        finally:
            self.link.close()
            self.frontend.close()
            self.engine.close(linger=0)
            self.meeting.close()
            self.directory.remove()
