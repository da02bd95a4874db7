"""`PROTOCOL`: a short hash of the files that say what crosses a border between two processes.

Every frame carries its sender's: equal hashes understand each other. Knows nothing of what the files
say.
"""

import hashlib
from pathlib import Path

_WIRE_FILES = (
    "wire.py",
    "messages.py",
    "adapter_messages.py",
    "heartbeat.py",
    "sampling.py",
    "rules.py",
    "beams.py",
    "early_stop.py",
    "errors.py",
    "thought.py",
    "guided.py",
)


def _protocol() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in _WIRE_FILES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()


PROTOCOL = _protocol()
