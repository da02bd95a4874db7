"""The progress of a long start, for the person at the keyboard."""

from .wire import Message


class StartProgress(Message):
    """A child → front end: how far its start has come."""

    what: str
    done: int
    total: int
