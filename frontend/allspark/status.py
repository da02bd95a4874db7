"""`AsStatus`: the result of every call on an `Engine`, with a message for people if it failed.

Two statuses are equal if they have the same name, whatever their sentences say, so that one compares as a member of an
enum does. `StatusError` carries one from where a fault is found to the call that returns it.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from ...protocol.errors import (
    AdapterError,
    BusyError,
    ClosedError,
    EngineDeadError,
    LimitError,
    OutOfMemoryError,
    PenstockError,
)


class AsStatus:
    """One status; `message` describes the fault in a sentence."""

    __slots__ = ("message", "name")

    ALLSPARK_SUCCESS: ClassVar["AsStatus"]
    ALLSPARK_PARAM_ERROR: ClassVar["AsStatus"]
    ALLSPARK_EXCEED_LIMIT_ERROR: ClassVar["AsStatus"]
    ALLSPARK_INVALID_CALL_ERROR: ClassVar["AsStatus"]
    ALLSPARK_ALLSPARK_INVALID_CALL_ERROR: ClassVar["AsStatus"]  # another name of the same
    ALLSPARK_REQUEST_DENIED: ClassVar["AsStatus"]
    ALLSPARK_LORA_NOT_FOUND: ClassVar["AsStatus"]
    ALLSPARK_LORA_ALREADY_LOADED: ClassVar["AsStatus"]
    ALLSPARK_LORA_IN_USE: ClassVar["AsStatus"]
    ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR: ClassVar["AsStatus"]
    ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR: ClassVar["AsStatus"]
    ALLSPARK_STREAMING: ClassVar["AsStatus"]

    def __init__(self, name: str, message: str = "") -> None:
        self.name = name
        self.message = message

    @property
    def value(self) -> int:
        """DashInfer's number; -1 where it has none."""
        return _CODES.get(self.name, -1)

    def __int__(self) -> int:
        return self.value

    @property
    def is_success(self) -> bool:
        return self.name == "ALLSPARK_SUCCESS"

    def because(self, message: str) -> "AsStatus":
        """The same status with a sentence."""
        return AsStatus(self.name, message)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, AsStatus) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<AsStatus.{self.name}{': ' + self.message if self.message else ''}>"

    def __str__(self) -> str:
        return f"AsStatus.{self.name}"


_CODES = {
    "ALLSPARK_SUCCESS": 0,
    "ALLSPARK_PARAM_ERROR": 2,
    "ALLSPARK_EXCEED_LIMIT_ERROR": 7,
    "ALLSPARK_INVALID_CALL_ERROR": 8,
    "ALLSPARK_REQUEST_DENIED": 12,
    "ALLSPARK_LORA_NOT_FOUND": 13,
    "ALLSPARK_STREAMING": 200,
}
_NAMES = [name for name in AsStatus.__annotations__ if name.startswith("ALLSPARK_")]
for _name in _NAMES:
    setattr(AsStatus, _name, AsStatus(_name))
AsStatus.ALLSPARK_ALLSPARK_INVALID_CALL_ERROR = AsStatus.ALLSPARK_INVALID_CALL_ERROR


class StatusError(PenstockError):
    """Ends a call of the `Engine` with a status and its sentence."""

    def __init__(self, status: AsStatus, message: str) -> None:
        super().__init__(message)
        self.status = status.because(message)


def invalid_call(message: str) -> StatusError:
    return StatusError(AsStatus.ALLSPARK_INVALID_CALL_ERROR, message)


def wrong_argument(message: str) -> StatusError:
    return StatusError(AsStatus.ALLSPARK_PARAM_ERROR, message)


def denied(message: str) -> StatusError:
    return StatusError(AsStatus.ALLSPARK_REQUEST_DENIED, message)


def shutting_down() -> StatusError:
    return denied("The engine is shutting down.")


# The message if a tree was closed during a call.
_STOPPED_MEANWHILE = "The model was stopped meanwhile."
# By `AdapterError.reason`.
_STATUS_BY_REASON = {
    "loaded": AsStatus.ALLSPARK_LORA_ALREADY_LOADED,
    "unknown": AsStatus.ALLSPARK_LORA_NOT_FOUND,
    "busy": AsStatus.ALLSPARK_LORA_IN_USE,
    "number": AsStatus.ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR,
    "disabled": AsStatus.ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR,
    "rank": AsStatus.ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR,
    "files": AsStatus.ALLSPARK_PARAM_ERROR,
}
# The first row that an error is an instance of; any other error means that an argument was wrong.
_STATUS_BY_ERROR: tuple[tuple[type[Exception], Callable[[Any], AsStatus]], ...] = (
    (StatusError, lambda error: error.status),
    (AdapterError, lambda error: _STATUS_BY_REASON[error.reason]),
    (LimitError, lambda error: AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
    (OutOfMemoryError, lambda error: AsStatus.ALLSPARK_EXCEED_LIMIT_ERROR),
    (BusyError, lambda error: AsStatus.ALLSPARK_REQUEST_DENIED),
    (ClosedError, lambda error: AsStatus.ALLSPARK_INVALID_CALL_ERROR),
    (EngineDeadError, lambda error: AsStatus.ALLSPARK_INVALID_CALL_ERROR),
    (Exception, lambda error: AsStatus.ALLSPARK_PARAM_ERROR),
)


def status_of(error: Exception) -> AsStatus:
    """The status of the table in which an error ends a call."""
    chosen = next(status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind))
    # Half a surrogate pair, which a name may contain, can't be written to any log.
    return chosen(error).because(_sentence(error).encode(errors="backslashreplace").decode())


def _sentence(error: Exception) -> str:
    if isinstance(error, ClosedError):
        return _STOPPED_MEANWHILE
    if isinstance(error, PenstockError):
        return str(error)
    try:
        return f"This call can't work with these arguments: {type(error).__name__}: {error}"
    except Exception:  # of an error whose own methods fail
        return f"This call can't work with these arguments: {type(error).__name__}."
