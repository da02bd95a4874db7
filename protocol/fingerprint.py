"""`PROTOCOL`: a short hash of the source files that define the messages between processes.

Every frame carries its sender's hash: processes with equal hashes understand each other.
"""

import hashlib
from pathlib import Path

_WIRE_FILES = (
    "wire.py",
    "messages.py",
    "adapter_messages.py",
    "layer_groups.py",
    "stats.py",
    "errors.py",
    "processes/heartbeat.py",
    "ranks/node_messages.py",
    "fields/rules.py",
    "parameters/sampling.py",
    "parameters/beams.py",
    "parameters/early_stop.py",
    "parameters/guided.py",
)


def _protocol() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in _WIRE_FILES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


PROTOCOL = _protocol()
