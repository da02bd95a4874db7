"""Every error that Penstock raises for its users, and how an error travels between processes.

A child's exception goes up as `ChildFailure` (its class name, message and traceback) and is raised in the caller as the
matching class here, with the child's own traceback as the cause. The daemon sends an error to its clients as `Failure`.
"""

from typing import Any

import msgspec

from .wire import Part


class PenstockError(Exception):
    """The base of all errors that Penstock raises on purpose."""

    # Results that a batch call had finished before it was interrupted (also set on KeyboardInterrupt).
    results: list[Any]


class ConfigError(PenstockError, ValueError):
    """An option, or a combination of options, that cannot work."""


class RequestError(PenstockError, ValueError):
    """A request that is invalid, by itself or for this model."""


class LimitError(RequestError):
    """A request for more than this model, or its options, allow."""


class AdapterError(ConfigError):
    """A LoRA adapter cannot be loaded, or cannot be unloaded now."""

    def __init__(self, message: str, reason: str) -> None:
        """`reason` is for programs: "files", "rank", "number", "loaded", "unknown", "busy" or "disabled"."""
        super().__init__(message)
        self.reason = reason


class ModelNotFoundError(PenstockError, FileNotFoundError):
    """No model was found; the message lists the paths that were searched."""

    def __str__(self) -> str:  # FileNotFoundError would print an errno
        return str(self.args[0]) if self.args else ""


class OutOfMemoryError(PenstockError, MemoryError):
    """The memory plan does not fit, or the kernel ended a process for memory."""


class EngineDeadError(PenstockError, RuntimeError):
    """A process of the tree has died or hung; the cause is its own traceback if it left one."""


class LostRankError(EngineDeadError):
    """A rank has noticed the end of another, whose cause is told elsewhere."""


class ClosedError(PenstockError, RuntimeError):
    """The object was closed, or is a copy in a forked process."""


class BusyError(PenstockError, RuntimeError):
    """Too many requests of this kind are waiting; try again a little later."""


def same_error(error: PenstockError) -> PenstockError:
    """A new exception with the same message and cause: one instance raised twice would pile up tracebacks."""
    again = type(error)(*error.args)
    again.__cause__ = error.__cause__
    return again


class ChildTraceback(Exception):
    """The traceback of a child process, shown as the cause of the caller's error."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class ChildFailure(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message that a child sends when an exception ends it."""

    role: str
    error: str  # class name
    message: str
    traceback: str


# Errors that keep their class on the way up; any other becomes an EngineDeadError.
_TRAVELLING: tuple[type[PenstockError], ...] = (ConfigError, EngineDeadError, ModelNotFoundError, OutOfMemoryError)


def raised_by(failure: ChildFailure) -> PenstockError:
    """The exception to raise in the caller for a child's failure, with the child's traceback where it is unforeseen."""
    known = {kind.__name__: kind for kind in _TRAVELLING}
    if failure.error in known:
        return known[failure.error](failure.message)
    error = EngineDeadError(f"The {failure.role} process ended with {failure.error}: {failure.message}")
    error.__cause__ = ChildTraceback(failure.traceback)
    return error


class Failure(Part):
    """One of these errors, sent by the daemon to a client."""

    kind: str  # class name
    message: str
    reason: str = ""  # for an AdapterError
    cause: str = ""  # a formatted traceback

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS), "PenstockError")
        cause = str(error.__cause__).strip() if isinstance(error.__cause__, ChildTraceback) else ""
        return cls(kind, str(error) or type(error).__name__, getattr(error, "reason", ""), cause)

    def error(self) -> PenstockError:
        kind = _KINDS.get(self.kind, PenstockError)
        error = AdapterError(self.message, self.reason) if kind is AdapterError else kind(self.message)
        if self.cause:
            error.__cause__ = ChildTraceback(self.cause)
        return error


# fmt: off
_KINDS: dict[str, type[PenstockError]] = {
    kind.__name__: kind
    for kind in (
        AdapterError, BusyError, ClosedError, ConfigError, EngineDeadError, LimitError, ModelNotFoundError,
        OutOfMemoryError, PenstockError, RequestError,
    )
}
# fmt: on
