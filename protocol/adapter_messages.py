"""Messages about LoRA adapters, between front end, engine and workers.

People name an adapter; workers number it by its slot in their memory. `reason` is that of an `AdapterError`, and empty
if nothing went wrong.
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
    """Engine → front end: the result of a query."""

    query: int
    names: list[str]  # adapters that requests may use now
    reason: str = ""
    message: str = ""


class LoadAdapter(Message):
    """Engine → workers: read an adapter into this slot while steps go on. No step uses it before all workers have
    answered."""

    adapter: int
    folder: str


class UnloadAdapter(Message):
    """Engine → workers: free the slot; no later step uses its adapter."""

    adapter: int


class AdapterLoaded(Message):
    """Worker → engine: the adapter is loaded, or `reason` says why not."""

    rank: int
    adapter: int
    reason: str = ""
    message: str = ""
    identity: str = ""  # of its files; blocks computed with the same adapter can be used by later runs


AboutAdapters = LoadLora | UnloadLora | ListLoras | AdapterLoaded  # received by the engine
AdapterOrder = LoadAdapter | UnloadAdapter  # received by the workers
