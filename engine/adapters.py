"""The table of loaded LoRA adapters: their names, their slots in the workers' memory, and who may use them.

Every rank reads an adapter by itself while steps go on; requests may use it once all ranks have answered. An adapter in
use can't be unloaded. A name that is loaded again from other files gets another key, so no request finds keys and
values computed by the old adapter.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..protocol.adapter_messages import (
    NO_ADAPTER,
    AboutAdapters,
    AdapterLoaded,
    AdapterOrder,
    ListLoras,
    LoadAdapter,
    LoadLora,
    LoraAnswer,
    UnloadAdapter,
    UnloadLora,
)
from ..protocol.fields.suggestion import suggestion

TellWorkers = Callable[[AdapterOrder], None]
Answer = Callable[[LoraAnswer], None]


@dataclass(frozen=True, slots=True)
class AdapterReference:
    """A request's reference to its adapter."""

    slot: int = NO_ADAPTER  # in the workers' memory
    key: int | str | None = None  # never reused for another adapter


@dataclass(slots=True)
class _Adapter:
    name: str
    use: AdapterReference
    query: int  # the one that asked to load it
    missing: int  # ranks that have not answered
    failures: list[AdapterLoaded] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        return not self.missing and not self.failures


class AdapterTable:
    def __init__(self, max_loras: int, num_ranks: int, tell_workers: TellWorkers, answer: Answer) -> None:
        """`max_loras` is 0 if the tree takes no adapters."""
        self.max_loras = max_loras
        self.num_ranks = num_ranks
        self._tell_workers = tell_workers
        self._answer = answer
        self._adapters: dict[str, _Adapter] = {}
        self._num_loaded = 0  # since the start, unloaded ones included
        # Called with the key of an adapter from when on requests can use it, and no longer.
        self.on_loaded: Callable[[int | str | None], None] = lambda key: None
        self.on_unloaded: Callable[[int | str | None], None] = lambda key: None

    @classmethod
    def none(cls) -> "AdapterTable":
        """The table of a tree that takes no adapters."""
        return cls(0, 0, lambda message: None, lambda message: None)

    # --- for requests -----------------------------------------------------------------------------------------------

    def find(self, name: str) -> AdapterReference:
        """The adapter of this name; one without a slot if there is none."""
        found = self._adapters.get(name)
        return found.use if found is not None and found.is_ready else AdapterReference()

    def refusal(self, name: str) -> str | None:
        """Why a request cannot use the adapter that it names, in a sentence."""
        if (found := self._adapters.get(name)) is not None:
            if found.is_ready:
                return None
            return f"The adapter {name!r} is still being loaded. Wait until load_lora returns."
        return f"There is no adapter {name!r}. {self._known()}{suggestion(name, self.names())}"

    # --- for the person who loads adapters --------------------------------------------------------------------------

    def take(self, message: AboutAdapters, in_use: Iterable[int]) -> None:
        """Handle a message; `in_use` are the adapter slots of all sequences that have not ended."""
        match message:
            case LoadLora():
                self.load(message)
            case UnloadLora():
                self.unload(message, in_use)
            case ListLoras():
                self._answer(LoraAnswer(message.query, self.names()))
            case AdapterLoaded():
                self.loaded(message)

    def load(self, asked: LoadLora) -> None:
        """Ask every rank to read the adapter; the caller is answered when all ranks have answered."""
        if asked.name in self._adapters:
            self._refuse(asked.query, "loaded", f"There is an adapter {asked.name!r} already. Unload it first.")
        elif len(self._adapters) >= self.max_loras:
            self._refuse(
                asked.query,
                "number",
                f"{len(self._adapters)} adapters are loaded, and max_loras={self.max_loras}. Unload one of "
                f"{', '.join(map(repr, self._adapters))}, or start with a larger max_loras.",
            )
        else:
            use = AdapterReference(self._free_place(), self._num_loaded)
            self._num_loaded += 1
            self._adapters[asked.name] = _Adapter(asked.name, use, asked.query, self.num_ranks)
            self._tell_workers(LoadAdapter(use.slot, asked.folder))

    def loaded(self, answer: AdapterLoaded) -> None:
        """A rank has loaded the adapter or failed to. If any rank failed, all of them unload it."""
        adapter = next(each for each in self._adapters.values() if each.use.slot == answer.adapter)
        adapter.missing -= 1
        if answer.rank == 0 and answer.identity:
            # With its name: readers of KV events tell adapters apart by that.
            adapter.use = AdapterReference(adapter.use.slot, f"{answer.identity} {adapter.name}")
        if answer.reason:
            adapter.failures.append(answer)
        if adapter.missing:
            return
        if adapter.failures:
            del self._adapters[adapter.name]
            self._tell_workers(UnloadAdapter(adapter.use.slot))
            self._refuse(adapter.query, adapter.failures[0].reason, adapter.failures[0].message)
        else:
            self.on_loaded(adapter.use.key)
            self._answer(LoraAnswer(adapter.query, self.names()))

    def unload(self, asked: UnloadLora, in_use: Iterable[int]) -> None:
        """Unload the adapter, unless sequences use it."""
        adapter = self._adapters.get(asked.name)
        if adapter is None:
            hint = suggestion(asked.name, self.names())
            self._refuse(asked.query, "unknown", f"There is no adapter {asked.name!r}. {self._known()}{hint}")
        elif not adapter.is_ready:
            self._refuse(asked.query, "busy", f"The adapter {asked.name!r} is still being loaded.")
        elif users := sum(slot == adapter.use.slot for slot in in_use):
            self._refuse(
                asked.query,
                "busy",
                f"The adapter {asked.name!r} is in use by {users} running or waiting "
                f"{'answers' if users > 1 else 'answer'}. Wait for them, or abort them.",
            )
        else:
            del self._adapters[asked.name]
            self.on_unloaded(adapter.use.key)
            self._tell_workers(UnloadAdapter(adapter.use.slot))
            self._answer(LoraAnswer(asked.query, self.names()))

    def names(self) -> list[str]:
        """The adapters that requests may use, in the order in which they were loaded."""
        return [adapter.name for adapter in self._adapters.values() if adapter.is_ready]

    def _known(self) -> str:
        names = self.names()
        return f"Loaded are {', '.join(map(repr, names))}." if names else "None is loaded: load_lora(name, path) does."

    def _free_place(self) -> int:
        taken = {adapter.use.slot for adapter in self._adapters.values()}
        return next(slot for slot in range(self.max_loras) if slot not in taken)

    def _refuse(self, query: int, reason: str, sentence: str) -> None:
        self._answer(LoraAnswer(query, self.names(), reason, sentence))
