"""`RequestHandle`, a caller's reference to a request, and checks of a call's arguments."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...protocol.fields.rules import shown
from .result_queue import ResultQueue
from .status import wrong_argument


class RequestHandle:
    """Opaque to its caller; `name` is the `uuid` that was given."""

    __slots__ = ("__weakref__", "name", "queue")

    def __init__(self, name: str, queue: ResultQueue) -> None:
        self.name = name
        self.queue = queue

    def __repr__(self) -> str:
        return f"<RequestHandle {self.name}>"


def handle_of(handle: Any) -> RequestHandle:
    if not isinstance(handle, RequestHandle):
        raise wrong_argument(f"A request is named by the handle that starting it gave, not by {_type(handle)}.")
    return handle


def one_dimensional(ids: Any) -> list[int]:
    """The token ids of a list, or of anything that makes one of itself."""
    try:
        found = ids.tolist() if hasattr(ids, "tolist") else ids
        if not isinstance(found, Sequence) or isinstance(found, (str, bytes, bytearray)):
            raise TypeError
        numbers = list(found)
    except Exception:  # of a value whose own methods fail
        raise wrong_argument(f"Token ids are a list, or something one-dimensional, not {_type(ids)}.") from None
    if any(isinstance(each, Sequence) for each in numbers):
        raise wrong_argument("Token ids must be one-dimensional: give one row of numbers.")
    return numbers


class _Tensor:
    """A DLPack capsule as numpy takes one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # a CPU


def only_row(inputs: Any) -> list[int]:
    """The token ids of `{"input_ids": …}`, as DashInfer's `start_request` takes them."""
    if not isinstance(inputs, Mapping) or set(inputs) != {"input_ids"}:
        raise wrong_argument(f'inputs={shown(inputs)}: must be {{"input_ids": …}}, one row of token ids.')
    ids = inputs["input_ids"]
    if type(ids).__name__ == "PyCapsule":
        import numpy

        try:
            ids = numpy.from_dlpack(_Tensor(ids))
        except Exception as error:  # it was used before, or is of another kind
            raise wrong_argument(f"inputs: the DLPack capsule can't be read: {error}.") from None
    rows = ids.tolist() if callable(getattr(ids, "tolist", None)) else ids
    has_one_row = isinstance(rows, (list, tuple)) and len(rows) == 1 and isinstance(rows[0], (list, tuple))
    return one_dimensional(rows[0] if has_one_row else rows)


def one_text(text: Any) -> str:
    if not isinstance(text, str):
        raise wrong_argument(f"A prompt is text, or a list of texts that is not empty, not {_type(text)}.")
    return text


def one_name(name: Any) -> str:
    if not isinstance(name, str):
        raise wrong_argument(f"An adapter is named by text, not by {_type(name)}.")
    return name


def one_path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)) or not isinstance(found := os.fspath(path), str):
        raise wrong_argument(f"A folder is given as text or as a path, not as {_type(path)}.")
    try:
        os.fsencode(found)
    except UnicodeEncodeError as error:
        raise wrong_argument(f"{found!a} is no path: it has half of a surrogate pair.") from error
    return found


def _type(value: Any) -> str:
    return type(value).__name__
