"""The process of node 0 that hands frames on between its own processes and the ranks of other machines.

It admits the machines one by one, stops listening once all have joined, and copies their heartbeats into the tree's
page. If one falls silent, this process fails, and with it the tree.
"""

import logging
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

from ... import __version__
from ...protocol.errors import ConfigError, EngineDeadError
from ...protocol.fingerprint import PROTOCOL
from ...protocol.options.nodes import is_loopback, node_key
from ...protocol.processes.child import Child, run_child
from ...protocol.processes.heartbeat import CopiedLines, Heartbeat, Ping, WatchedInbox
from ...protocol.processes.sockets import frames_for, frames_to
from ...protocol.ranks.meeting_file import MeetingFile
from ...protocol.ranks.node_messages import (
    BEAT_SECONDS,
    JOIN_SECONDS,
    NO_BEAT,
    Join,
    Kind,
    LinkInbox,
    Signs,
    TreeEnds,
    TreeReady,
    why_lost,
)
from ...protocol.ranks.node_sockets import LinkSocket
from ...records import dataclass
from ..models.digests import digest_of_model
from .beats import Beats

_LOG = logging.getLogger(__name__)
_WATCHED_SECONDS = 3.0  # after a ping for which somebody watches
_INBOXES = (b"engine", b"frontend")  # that a machine may have frames for


@dataclass
class JoinedNode:
    """A machine that has joined."""

    number: int
    identity: bytes  # of its connection
    host: str
    heard: float  # when, by `Beats.now`
    is_connected: bool = True

    def __str__(self) -> str:
        return f"Node {self.number} ({self.host})"


class LinkedInbox(WatchedInbox[LinkInbox]):
    """The inbox of this process, which notes when it was pinged: somebody watches the tree then."""

    pinged = 0.0

    def _taken(self) -> Any:
        message: Any = super()._taken()
        if type(message) is Ping:
            self.pinged = time.monotonic()
        return message


class Link:
    def __init__(self, child: Child) -> None:
        self.config, self.launch = child.launch.config, child.launch
        self.lines = CopiedLines(self.launch.heartbeats, self.config.tensor_parallel_size)
        self.inbox = LinkedInbox(child.directory, "link", LinkInbox, Heartbeat.of("link", self.launch.heartbeats))
        self.own = {name: frames_to(child.directory, name.decode()) for name in _INBOXES}
        size, per_node = self.config.tensor_parallel_size, self.config.ranks_per_node
        self.ranks = {rank: frames_for(child.directory, f"worker{rank}") for rank in range(per_node, size)}
        self.nodes: dict[int, JoinedNode] = {}
        self.meeting = MeetingFile(child.directory / "ranks")
        self.beats = Beats()
        self.is_over = False
        self.digest = digest_of_model(Path(self.launch.model_folder))
        self.socket = LinkSocket(self.config.master_addr, self.config.master_port, node_key(self.config))
        self.poller = zmq.Poller()
        for each in (self.socket.socket, self.socket.questions, self.inbox.socket):
            self.poller.register(each, zmq.POLLIN)

    def run(self) -> None:
        start = self.beats.now()
        has_asked = False
        while not self.is_over:
            self._take(dict(self.poller.poll(self.beats.pause)))
            is_due = self.beats.due() > 0
            if is_due or not self.beats.is_ready:
                self._tell_meeting(self.meeting.appended())
            if is_due:
                self._beat(self.beats.now())
            waited = self.beats.now() - start
            if self.missing and not has_asked and waited > BEAT_SECONDS:
                has_asked = True
                _LOG.warning("%s", self._request())
            if self.missing and waited > JOIN_SECONDS:
                raise ConfigError(f"Nobody has joined for {JOIN_SECONDS / 60:.0f} minutes. {self._request()}")

    @property
    def missing(self) -> list[int]:
        return [number for number in range(1, self.config.nnodes) if number not in self.nodes]

    def end(self, cause: str) -> None:
        """Tell the other machines why the tree ends."""
        self._tell(Kind.END, cause.encode())
        self.is_over = True

    def _request(self) -> str:
        model, number = self.config.model, self.missing[0]
        only_here = " Other machines can't reach that address: it is a loopback address."
        return (
            f"Waiting for node {', '.join(map(str, self.missing))} of nnodes={self.config.nnodes}: run there, with the "
            f"same key, `penstock worker {model} --nnodes {self.config.nnodes} --node-rank {number} --master-addr "
            f"{self.config.master_addr} --master-port {self.config.master_port}`."
            f"{only_here if is_loopback(self.config.master_addr) else ''}"
        )

    def _take(self, ready: dict[Any, int]) -> None:
        """Take in what has come."""
        if self.socket.questions in ready:
            self.socket.answer()
        while (message := self.socket.receive()) is not None:
            self._hear(*message)
        while (order := self.inbox.receive(0)) is not None:
            if isinstance(order, TreeEnds):
                self.end(order.cause)
            elif isinstance(order, TreeReady):
                self.beats.is_ready = True
                self._tell(Kind.READY)
        for rank, frames in self.ranks.items():
            if frames in ready and (node := self.nodes.get(rank // self.config.ranks_per_node)) is not None:
                self._hand_on(frames, node, f"worker{rank}".encode())

    def _hand_on(self, frames: "zmq.Socket[bytes]", node: JoinedNode, name: bytes) -> None:
        while True:
            try:
                self._send(node, Kind.FRAME, name, frames.recv(zmq.NOBLOCK))
            except zmq.Again:
                return

    def _hear(self, identity: bytes, kind: bytes, *frames: bytes) -> None:
        """A message from another machine, which has the key."""
        node = next((node for node in self.nodes.values() if node.identity == identity), None)
        if node is None:
            if kind == Kind.JOIN:
                self._admit(identity, b"".join(frames))
            return
        node.heard = self.beats.now()
        if kind == Kind.FRAME and frames[0] in self.own:
            self.own[frames[0]].send(frames[1])
        elif kind == Kind.MEETING:
            news = self.meeting.append(frames[0])
            self._tell(Kind.MEETING, frames[0], without=node)
            self._tell_meeting(news)
        elif kind == Kind.BEAT:
            self._copy(node, msgspec.msgpack.decode(frames[0], type=Signs))

    def _copy(self, node: JoinedNode, signs: Signs) -> None:
        first = node.number * self.config.ranks_per_node
        for rank, (line, vitals) in enumerate(zip(signs.lines, signs.vitals, strict=True), first):
            self.lines.write(rank, line, vitals)

    def _admit(self, identity: bytes, content: bytes) -> None:
        try:
            join = msgspec.json.decode(content, type=Join)
            why = self._refusal(join)
        except msgspec.MsgspecError as error:
            join, why = (
                Join("", ""),
                f"it says what node 0 can't read ({error}). Install the same version on all machines.",
            )
        if why:
            _LOG.warning("A machine (%s) that wanted to join was refused: %s", join.host, why)
            self.socket.send(identity, Kind.REFUSED, why.encode())
            return
        node = self.nodes[join.node_rank] = JoinedNode(join.node_rank, identity, join.host, self.beats.now())
        self._tell_meeting(self.meeting.appended(), without=node)
        self._send(node, Kind.WELCOME, msgspec.msgpack.encode(self.launch))
        self._send(node, Kind.MEETING, self.meeting.everything())
        first = node.number * self.config.ranks_per_node
        for rank in range(first, first + self.config.ranks_per_node):
            self.poller.register(self.ranks[rank], zmq.POLLIN)
        if not self.missing:
            self.socket.stop_listening()
        _LOG.info("%s has joined", node)

    def _refusal(self, join: Join) -> str:
        """Why a machine can't join, as a sentence; "" if it can."""
        config = self.config
        if (join.protocol, join.version) != (PROTOCOL, __version__):
            return (
                f"it runs Penstock {join.version} ({join.protocol}), and node 0 {__version__} ({PROTOCOL}). Install "
                "the same version on all machines."
            )
        if join.nnodes != config.nnodes:
            return f"it was told nnodes={join.nnodes}, and node 0 nnodes={config.nnodes}."
        if not 0 < join.node_rank < config.nnodes:
            return f"node_rank={join.node_rank} is none of 1 to {config.nnodes - 1}."
        if (node := self.nodes.get(join.node_rank)) is not None:
            return f"node_rank={join.node_rank} has joined already, from {node.host}. Give every machine its own."
        if join.digest != self.digest:
            return (
                f"its files of {config.model} are not those of node 0 (SHA-256 {join.digest[:12]}…, and "
                f"{self.digest[:12]}… there). Copy the same model to all machines."
            )
        own = msgspec.json.decode(msgspec.json.encode(config))
        defaults = {each.name: each.default for each in msgspec.structs.fields(type(config))}
        for name, value in join.options.items():
            if value != (here := own.get(name, defaults.get(name))):
                return f"it was told {name}={value!r}, and node 0 {name}={here!r}. Leave it out: node 0 says it."
        return ""

    def _tell_meeting(self, news: bytes, without: JoinedNode | None = None) -> None:
        if news:
            self._tell(Kind.MEETING, news, without=without)

    def _tell(self, *frames: bytes, without: JoinedNode | None = None) -> None:
        for node in self.nodes.values():
            if node is not without:
                self._send(node, *frames)

    def _send(self, node: JoinedNode, *frames: bytes) -> None:
        node.is_connected &= self.socket.send(node.identity, *frames)

    def _beat(self, now: float) -> None:
        is_watched = time.monotonic() - self.inbox.pinged < _WATCHED_SECONDS
        self._tell(Kind.BEAT, b"1" if is_watched else b"")
        for node in self.nodes.values():
            silence = now - node.heard
            if not node.is_connected or silence > NO_BEAT:
                raise EngineDeadError(why_lost(str(node), silence))


def main(child: Child) -> None:
    link = Link(child)
    try:
        link.run()
    except BaseException as error:
        link.end(str(error))
        raise


if __name__ == "__main__":
    run_child("link", main)
