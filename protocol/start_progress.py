"""What the person at the keyboard may see of a long start."""

from .wire import Message


class StartProgress(Message):
    """A child → front end: how far it is with what its start waits for."""

    what: str
    done: int
    total: int
