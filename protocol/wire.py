"""What all messages are made of: structs that travel as arrays, told apart by their class name.

Knows no message.
"""

import msgspec


class Message(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Base of all that travels on its own."""


class Part(msgspec.Struct, array_like=True, gc=False):
    """Base of what travels inside a message."""
