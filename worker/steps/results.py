"""Sends step results to the engine, in order: at once on a CPU, from a thread that waits for each on a GPU.

So the next plan is received, and its step launched, while the one before still runs.
"""

import queue
import threading
from collections.abc import Callable

from ...protocol.messages import StepResult

Finish = Callable[[], StepResult]


class Results:
    def __init__(self, send: Callable[[StepResult], None], fail: Callable[[BaseException], None], beside: bool) -> None:
        """`beside`: steps are waited for in a thread; what goes wrong there is handed to `fail`."""
        self._send = send
        self._fail = fail
        self._launched: queue.SimpleQueue[Finish] | None = None
        if beside:
            self._launched = queue.SimpleQueue()
            threading.Thread(target=self._run, name="results", daemon=True).start()

    def take(self, finish: Finish) -> None:
        """Take the result of a step that was launched after all that were taken before."""
        if self._launched is None:
            self._send(finish())
        else:
            self._launched.put(finish)

    def _run(self) -> None:
        try:
            while True:
                self._send(self._launched.get()())  # type: ignore[union-attr]
        except BaseException as error:
            self._fail(error)
