"""The interface of one request on its way, wherever it is computed, and the seed of one that brings none.

A receiving thread fills it and notifies its owner; the owner takes what has come.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ...protocol.errors import PenstockError, RequestError, same_error
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.early_stop import CYCLE_GUARD
from ...protocol.parameters.sampling import SamplingParams
from .prompts import ParsedPrompt

_log = logging.getLogger(__name__)

Output = TypeVar("Output")
Notify = Callable[[Any], None]  # called with the request by a receiving thread; must not block


class Request(ABC):
    __slots__ = ("error", "is_finished", "media_bytes", "notify", "position", "refusal")

    def __init__(self, notify: Notify) -> None:
        self.notify = notify
        self.position = 0  # in the caller's input
        self.is_finished = False
        self.media_bytes = 0  # of the pictures that it brings
        self.error: PenstockError | None = None  # what ended it from without
        self.refusal: RequestError | None = None  # why a door of this process did not let it in

    @property
    @abstractmethod
    def request_id(self) -> int: ...

    @property
    @abstractmethod
    def is_fresh(self) -> bool:
        """Something has come since the last `take`."""

    @abstractmethod
    def take(self) -> RequestOutput:
        """The output since the last `take`."""

    def poll(self, take: Callable[[], Output]) -> Output | None:
        """What one of its `take`s gives, if something has come; raises what ended the request once there is no more."""
        # Looked at first: all that came before an error is there when it is.
        error = self.error
        if self.is_fresh:
            return take()
        if error is not None:
            raise same_error(error)
        return None

    def tell(self) -> None:
        """Notify the owner; an owner whose `notify` fails doesn't keep others from being notified."""
        try:
            self.notify(self)
        except Exception:
            _log.exception("Nobody could be told of request %s", self.request_id)


RequestT = TypeVar("RequestT", bound=Request)


class DoorProtocol(Protocol[RequestT]):
    """What a `Session` needs of its door, which turns prompts into requests."""

    @property
    def defaults(self) -> SamplingParams: ...
    def admit(
        self, prompts: Sequence[ParsedPrompt], notify: Notify, *, is_streamed: bool = False
    ) -> list[RequestT]: ...


def guarded(params: SamplingParams) -> SamplingParams:
    """The parameters of an answer that somebody waits for: unless they say otherwise, it ends once it is a cycle."""
    if params.early_stop is not None or params.ignore_eos:
        return params
    return msgspec.structs.replace(params, early_stop=CYCLE_GUARD)


def counted_seed(seed: int, number: int) -> int:
    """The seed of the n-th request without one of its own, from 0: counted, so that a run repeats."""
    return (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) % 2**63
