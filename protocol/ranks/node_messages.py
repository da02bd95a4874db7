"""What the machines of one tree say to one another.

A message is a few frames: its kind, then what belongs to it. Node 0 has the `link` process; each other one has a
`penstock worker`, which joins it.
"""

from typing import Any

import msgspec

from ..processes.heartbeat import HeartbeatLine, Vitals
from ..wire import Message


class Kind:
    """The first frame of a message, and what follows it."""

    JOIN = b"join"  # node → link: a `Join` in JSON
    WELCOME = b"welcome"  # link → node: the `Launch`
    REFUSED = b"refused"  # link → node: why, as a sentence
    FRAME = b"frame"  # both ways: an inbox's name, and a frame for it
    MEETING = b"meeting"  # both ways: bytes for the file by which the ranks find one another
    BEAT = b"beat"  # link → node: b"1" while somebody watches; node → link: `Signs`
    READY = b"ready"  # link → node: the tree is
    END = b"end"  # link → node: why the tree has ended; empty if it was told to


SILENCE = 4.0  # seconds without a byte after which a connection counts as cut
# Seconds without a beat over a connection that is alive, after which a machine counts as lost: a busy one may have no
# core for its beat, while ZeroMQ's thread, which needs next to nothing, answers for it.
NO_BEAT = 30.0
BEAT_SECONDS = 1.0
JOIN_SECONDS = 600.0  # for which machines wait for one another


def why_lost(name: str, silence: float) -> str:
    """Why a machine is gone that was last heard so many seconds ago, as sentences."""
    if silence < SILENCE - BEAT_SECONDS:
        why = "has closed the connection: it has ended, or a byte on the way was damaged. It says more itself"
    else:
        why = f"has not been heard of for {silence:.0f} s: it has died or is stopped, or the network is cut"
    return f"{name} {why}. Start the tree again on all machines."


class Join(msgspec.Struct):
    """A machine that wants to join. Its first fields stay as they are, so that other versions can be told apart."""

    protocol: str
    version: str
    node_rank: int = 0
    nnodes: int = 0
    host: str = ""
    digest: str = ""  # of the model's files
    options: dict[str, Any] = {}  # those given there that have to agree


class Signs(msgspec.Struct, array_like=True):
    """The lines and vitals of a machine's ranks, in their order. Times in a line are ages: clocks differ."""

    lines: list[HeartbeatLine]
    vitals: list[Vitals]


class TreeReady(Message):
    """Front end → link."""


class TreeEnds(Message):
    """Front end → link: why; empty if it was told to."""

    cause: str = ""


LinkInbox = TreeReady | TreeEnds
