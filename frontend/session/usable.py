"""Whether a client can still be used: by the process that made it, until it is closed or its other side has ended.

Knows nothing of what the client says, and to whom.
"""

import os

from ...protocol.errors import ClosedError, PenstockError, same_error

CLOSED_MEANWHILE = "The LLM was closed while this request ran."


class Usable:
    def __init__(self) -> None:
        self.error: PenstockError | None = None  # what ended the other side
        self.is_closed = False
        self._owner = os.getpid()

    @property
    def is_forked(self) -> bool:
        """This is a copy in a forked process, where nobody reads."""
        return os.getpid() != self._owner

    @property
    def state(self) -> str:
        """In a few words, for a person."""
        if self.is_forked:
            return "a copy in a forked process"
        if self.error is not None:
            return f"dead ({(str(self.error).splitlines() or [''])[0]})"
        return "closed" if self.is_closed else "ready"

    def check(self) -> None:
        """Raise if this object can no longer be used, with the reason."""
        if self.is_forked:
            raise ClosedError(
                "This LLM belongs to the process that made it; the copy in a forked process cannot use it. "
                "Make the LLM in the process that uses it."
            )
        if self.error is not None:
            raise same_error(self.error)
        if self.is_closed:
            raise ClosedError("This LLM was closed. Make a new one.")
