"""The messages about LoRA adapters, between front end, engine and workers.

People name an adapter; the workers number it by the place in their memory that it is in. `reason` is that of an
`AdapterError`, and empty if nothing went wrong.
"""

from .wire import Message

NO_ADAPTER = -1


class LoadLora(Message):
    """Front end → engine: load an adapter under this name."""

    query: int  # the answer repeats it
    name: str
    folder: str


class UnloadLora(Message):
    """Front end → engine: forget the adapter, unless a request uses it."""

    query: int
    name: str


class ListLoras(Message):
    """Front end → engine: which adapters are loaded?"""

    query: int


class LoraAnswer(Message):
    """Engine → front end: the outcome of a query."""

    query: int
    names: list[str]  # adapters that requests may use now
    reason: str = ""
    message: str = ""


class LoadAdapter(Message):
    """Engine → workers: read an adapter into this place, beside the steps. No step uses it before all have answered."""

    adapter: int
    folder: str


class UnloadAdapter(Message):
    """Engine → workers: the place is free; no later step uses what stood there."""

    adapter: int


class AdapterLoaded(Message):
    """Worker → engine: the adapter is loaded or, if there is a reason, is not."""

    rank: int
    adapter: int
    reason: str = ""
    message: str = ""


AboutAdapters = LoadLora | UnloadLora | ListLoras | AdapterLoaded  # all that the engine receives
AdapterOrder = LoadAdapter | UnloadAdapter  # all that the workers receive
