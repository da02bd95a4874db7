"""A session that a thread opens and starts while the program's event loop goes on, for `frontend/async_llm.py`."""

import asyncio
import os
from concurrent.futures import Future
from threading import Thread
from typing import Any

from . import open_model
from .session import Session


class OpeningSession:
    """Call `begin`; `close` from any state."""

    def __init__(self) -> None:
        self._opened: Future[Session[Any]] = Future()
        self._started: Future[None] = Future()

    def begin(self, model: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Open it here if no daemon is asked first, which takes a moment; all else is the thread's."""
        if options.get("connect", "never") in (None, "never"):
            self._opened.set_result(open_model(model, options))
        Thread(target=self._start, args=(model, options), name="penstock-start", daemon=True).start()

    def _start(self, model: str | os.PathLike[str], options: dict[str, Any]) -> None:
        try:
            if not self._opened.done():
                self._opened.set_result(open_model(model, options))
            self._opened.result().wait_until_ready()
            self._started.set_result(None)
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            self._started.set_exception(error)

    async def ready(self) -> None:
        """Wait until the model is loaded."""
        # Shielded: if one caller is cancelled, the start continues for the others.
        await asyncio.shield(asyncio.wrap_future(self._started))

    @property
    def session(self) -> Session[Any]:
        """Waits until it is opened."""
        return self._opened.result()

    @property
    def loaded(self) -> Session[Any] | None:
        """None while the model is loading. Raises what its start has failed with."""
        if not self._started.done():
            return None
        self._started.result()
        return self.session

    @property
    def state(self) -> tuple[Session[Any] | None, str]:
        """The session, if it is open, and what keeps it from being ready."""
        is_open = self._opened.done() and self._opened.exception() is None
        if not self._started.done():
            return self._opened.result() if is_open else None, "starting"
        if (error := self._started.exception()) is not None:
            return None, f"failed ({(str(error).splitlines() or [''])[0]})"
        return self._opened.result(), ""

    def close(self) -> None:
        """Close the session; one that is still being opened is closed as soon as it is open."""
        self._opened.add_done_callback(_close)


def _close(opened: "Future[Session[Any]]") -> None:
    if opened.exception() is None:
        opened.result().transport.close()
