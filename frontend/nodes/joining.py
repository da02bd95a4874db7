"""How a machine joins a tree, the other end of `frontend/nodes/link.py`: it asks until that says what is to be loaded,
or why not.
"""

import time

import msgspec
import zmq

from ...protocol.errors import ConfigError, EngineDeadError
from ...protocol.processes.launch import Launch
from ...protocol.ranks.node_messages import BEAT_SECONDS, JOIN_SECONDS, Join, Kind
from ...protocol.ranks.node_sockets import NodeSocket
from ..console import logs

_MOST_REFUSALS = 8  # handshakes in a row, within ten seconds: what forwards to node 0 may have started before it
_PATIENCE = 10.0  # seconds without an answer before a word about it, or after node 0 has closed the connection


def welcome(link: NodeSocket, poller: zmq.Poller, join: Join, *, quiet: bool) -> Launch:
    """Join, and wait for what is to be loaded."""
    logs.say(f"Joining node 0 at {link.where} as node {join.node_rank} ({join.host}).", quiet=quiet)
    began = connected = time.monotonic()
    num_asked, has_said = 0, False
    while (now := time.monotonic()) < began + JOIN_SECONDS:
        if link.events in dict(poller.poll(int(1000 * BEAT_SECONDS))):
            link.note_event()
        while (message := link.receive()) is not None:
            if (launch := _launch(*message)) is not None:
                return launch
        if link.num_connections > num_asked:  # what was asked over an earlier one may be lost with it
            num_asked = link.num_connections
            link.send(Kind.JOIN, msgspec.json.encode(join))
        if not link.is_cut:
            connected = now
        elif now - connected > _PATIENCE:
            raise EngineDeadError(f"{link.where} has closed the connection and opens no other. Node 0 says why.")
        if link.num_refusals >= _MOST_REFUSALS:
            raise ConfigError(
                f"What listens at {link.where} breaks off: it has another key (node_key_file, PENSTOCK_NODE_KEY), is "
                "no node 0 of Penstock, or forwards to where nobody listens."
            )
        if now - began > _PATIENCE and not has_said:
            has_said = True
            logs.say("Node 0 hasn't answered yet. It listens until all its machines have joined.", quiet=quiet)
    raise ConfigError(
        f"Nobody has answered at {link.where} for {JOIN_SECONDS / 60:.0f} minutes. Start the model there with the same "
        "nnodes, master_addr and master_port, and see that no firewall is between the machines. Node 0 stops listening "
        "once all have joined, so a machine can't join a tree that runs."
    )


def _launch(kind: bytes, *frames: bytes) -> Launch | None:
    """Return what is to be loaded, if the message says so; raise if it ends the joining."""
    if kind == Kind.REFUSED:
        raise ConfigError(f"Node 0 refuses this machine: {frames[0].decode()}")
    if kind == Kind.END:
        raise EngineDeadError(f"The tree has ended. Node 0 says: {frames[0].decode()}")
    return msgspec.msgpack.decode(frames[0], type=Launch) if kind == Kind.WELCOME else None
