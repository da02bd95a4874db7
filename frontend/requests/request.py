"""The interface of one pending request, wherever it is computed, and the seed for one without its own.

A receiving thread fills it and notifies its owner, who takes the output.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ...protocol.errors import PenstockError, RequestError, same_error
from ...protocol.messages import Said
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.early_stop import CYCLE_GUARD
from ...protocol.parameters.sampling import SamplingParams
from ..receipts.receipt import ReceiptDraft
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
        self.media_bytes = 0  # of its pictures
        self.error: PenstockError | None = None  # an error that ended it from outside
        self.refusal: RequestError | None = None  # why a door of this process refused it

    @property
    @abstractmethod
    def request_id(self) -> int: ...

    @property
    @abstractmethod
    def is_fresh(self) -> bool:
        """Whether there is output since the last `take`."""

    @abstractmethod
    def take(self) -> RequestOutput:
        """The output since the last `take`."""

    def so_far(self) -> list[Said]:
        """What each sample has said so far, as far as it is known here; leaves it for `take`."""
        return []

    def without_receipt(self) -> ReceiptDraft | None:
        """Let the output come without its receipt. Returns the receipt's draft, if it is made in this process."""
        return None

    def poll(self, take: Callable[[], Output]) -> Output | None:
        """The output of one `take`, if there is any; otherwise raises the error that ended the request."""
        # Read first: all output before an error is there once the error is.
        error = self.error
        if self.is_fresh:
            return take()
        if error is not None:
            raise same_error(error)
        return None

    def fail(self, error: PenstockError) -> None:
        """End the request with an error from outside."""
        self.error = error
        self.tell()

    def tell(self) -> None:
        """Notify the owner; an owner whose `notify` fails doesn't keep others from being notified."""
        try:
            self.notify(self)
        except Exception:
            _log.exception("Nobody could be told of request %s", self.request_id)


RequestT = TypeVar("RequestT", bound=Request)


class EarlierAnswers(Protocol):
    """What an earlier run answered to the same prompts (`frontend/replay/finder.py`)."""

    def begin(self, vocab_size: int, max_model_len: int, tokenizer: Callable[[], Any]) -> None: ...
    def expected(
        self, prompt: ParsedPrompt, name: str | None = None, row: int | None = None, num_rows: int | None = None
    ) -> list[bytes]: ...
    def prepare(self, prompts: Sequence[ParsedPrompt]) -> None:
        """Give the prompts their earlier answers."""

    def close(self) -> None: ...


class DoorProtocol(Protocol[RequestT]):
    """The door of a `Session`, which turns prompts into requests."""

    replay: EarlierAnswers | None

    @property
    def defaults(self) -> SamplingParams: ...
    def admit(
        self, prompts: Sequence[ParsedPrompt], notify: Notify, *, is_streamed: bool = False
    ) -> list[RequestT]: ...


def guarded(params: SamplingParams) -> SamplingParams:
    """The parameters of an interactive answer: unless they say otherwise, it ends once it repeats a cycle."""
    if params.early_stop is not None or params.ignore_eos:
        return params
    return msgspec.structs.replace(params, early_stop=CYCLE_GUARD)


def counted_seed(seed: int, number: int) -> int:
    """The seed of the n-th request (from 0) without one of its own: counted, so that a run repeats."""
    return (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) % 2**63
