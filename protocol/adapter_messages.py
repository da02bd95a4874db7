"""The messages about LoRA adapters, between front end, engine and workers.

An adapter has a name for people, and for the workers a place: the number of the memory that it stands in. `reason` is
that of an `AdapterError`, empty where all went well.
"""

from .wire import Message

NO_ADAPTER = -1


class LoadLora(Message):
    """Front end → engine: load an adapter under this name."""

    query: int  # the answer has it, too
    name: str
    folder: str


class UnloadLora(Message):
    """Front end → engine: forget the adapter, unless a request uses it."""

    query: int
    name: str


class ListLoras(Message):
    """Front end → engine."""

    query: int


class LoraAnswer(Message):
    """Engine → front end."""

    query: int
    names: list[str]  # that requests may use now
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
    """Worker → engine: it is there, or with a reason it is not."""

    rank: int
    adapter: int
    reason: str = ""
    message: str = ""


AboutAdapters = LoadLora | UnloadLora | ListLoras | AdapterLoaded  # what the engine hears of them
AdapterOrder = LoadAdapter | UnloadAdapter  # and what it has the workers do
