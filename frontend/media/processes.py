"""Decodes media in helper processes, one for each medium at a time, so that a bomb ends only a process and one request.

A process is started when it is first needed and is kept. There are as many as slots (`places.py`), so slow media hold
up nobody. The family is sent with each job; the answer is a short head, then the raw pixels.
"""

import importlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import cache
from itertools import islice
from typing import TypeVar

import msgspec

from ...protocol.errors import LimitError, RequestError
from ...protocol.processes.bounded_process import BoundedPool, Bounds, JobDiedError, serve
from .decoded import DecodedMedium, Layout
from .families.family import Family
from .places import Places, Turn
from .sources.encoded_media import EncodedMedium

BOUNDS = Bounds(cpu_seconds=60, memory_bytes=3 << 30, wall_seconds=600.0, nice=5)
_HEAD_BYTES = 4
_PATIENCE, _LATER = 120.0, "Ask again later."

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Job(msgspec.Struct, array_like=True):
    kind: tuple[str, str]  # the family's module and class: a helper imports no other
    family: msgspec.Raw
    medium: EncodedMedium


class _Head(msgspec.Struct, array_like=True):
    """The head before the pixels; a refusal has no pixels."""

    layout: Layout | None = None
    refusal: str = ""
    is_limit: bool = False


class MediaProcesses:
    """The pool of one model."""

    def __init__(self, family: Family, bounds: Bounds = BOUNDS, places: Places | None = None) -> None:
        self._family = family
        self._places = places or Places()
        self._pool = BoundedPool("media", __name__, bounds)

    def decode(
        self, medium: EncodedMedium, spend: Callable[[float], None] = lambda seconds: None
    ) -> DecodedMedium | RequestError:
        """Decode a medium; blocks until it is decoded or refused. `spend` is called with the processor time."""
        kind = type(self._family)
        job = msgspec.msgpack.encode([(kind.__module__, kind.__name__), self._family, medium])
        try:
            answer = self._answer(job, self._places.begin_short(), spend)
            if answer is None:
                if (turn := self._places.begin_long(_PATIENCE)) is None:
                    return LimitError(f"Decoding this {medium.kind} takes long, as does what came before it. {_LATER}")
                answer = self._answer(job, turn, spend)
        except JobDiedError as error:
            return LimitError(f"Decoding this {medium.kind} {error}.")
        return _read(medium, answer or bytearray())

    def _answer(self, job: bytes, turn: Turn, spend: Callable[[float], None]) -> bytearray | None:
        """The answer; None if it was stopped in a short slot."""
        helper = self._pool.take()
        turn.stop = helper.close
        try:
            answer = helper.ask(job)
            spend(helper.processor_seconds)
            return answer
        except JobDiedError:
            if turn.was_stopped:
                return None
            raise
        finally:
            self._places.end(turn)
            if turn.was_stopped:
                self._pool.forget(helper)
            else:
                self._pool.give_back(helper)

    def close(self) -> None:
        """End all processes; media being decoded are refused."""
        self._pool.close()


def _read(medium: EncodedMedium, answer: bytearray) -> DecodedMedium | RequestError:
    """Read the answer of a process that has read a stranger's file, and so isn't trusted either."""
    start = _HEAD_BYTES + int.from_bytes(answer[:_HEAD_BYTES], "little")
    try:
        head = msgspec.msgpack.decode(answer[_HEAD_BYTES:start], type=_Head)
    except msgspec.DecodeError:
        return RequestError(f"This {medium.kind} breaks what decodes it.")
    if head.layout is None:
        return (LimitError if head.is_limit else RequestError)(head.refusal)
    pixels = bytes(memoryview(answer)[start:])
    frames, height, width = head.layout.shape
    if len(pixels) != frames * height * width * 3 or min(head.layout.shape) < 1:
        return RequestError(f"This {medium.kind} breaks what decodes it.")
    return DecodedMedium.of(medium.kind, pixels, head.layout)


def ahead(work: Callable[[Item], Result], items: Sequence[Item], count: int) -> Iterator[Result]:
    """Yield the results in order, working on up to `count` at a time. If the reader stops, no more than these have
    begun."""
    rest = iter(items)
    begun: deque[Future[Result]] = deque()
    while True:
        begun += [_begun(work, item) for item in islice(rest, count - len(begun))]
        if not begun:
            return
        yield begun.popleft().result()


def _begun(work: Callable[[Item], Result], item: Item) -> "Future[Result]":
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(item))
        except BaseException as error:
            future.set_exception(error)

    # A daemon thread: slow work doesn't delay the end of the process.
    threading.Thread(target=run, name="penstock-ahead", daemon=True).start()
    return future


# --- the process -----------------------------------------------------------------------------------------------------


def _load() -> Callable[[bytes], bytes]:
    from .decoding.decode import decoded_frames

    decoder = msgspec.msgpack.Decoder(_Job)

    @cache
    def family_class(module: str, name: str) -> type[Family]:
        found: type[Family] = getattr(importlib.import_module(module), name)
        return found

    def work(content: bytes) -> bytes:
        job = decoder.decode(content)
        family = msgspec.msgpack.decode(job.family, type=family_class(*job.kind))
        try:
            frames = decoded_frames(family, job.medium)
        except RequestError as error:
            return _answer(_Head(None, str(error), isinstance(error, LimitError)))
        except MemoryError:
            return _answer(_Head(None, f"This {job.medium.kind} takes more memory than one may.", True))
        except Exception as error:  # caused by files or settings that nobody has thought of
            return _answer(_Head(None, f"This {job.medium.kind} can't be read: {type(error).__name__}."))
        return _answer(_Head(frames.layout)) + frames.pixels.tobytes()

    return work


def _answer(head: _Head) -> bytes:
    encoded = msgspec.msgpack.encode(head)
    return len(encoded).to_bytes(_HEAD_BYTES, "little") + encoded


if __name__ == "__main__":
    serve(_load)
