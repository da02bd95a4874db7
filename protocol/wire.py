"""The base of all messages: structs sent as arrays and distinguished by class name."""

import msgspec


class Message(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Base of everything that is sent on its own."""


class Part(msgspec.Struct, array_like=True, gc=False):
    """Base of everything that is sent inside a message."""
