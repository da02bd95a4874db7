"""The bar on a terminal for what a start waits for. Knows nothing of what that is."""

from typing import Any

from ...protocol.start_progress import StartProgress
from .standard_error import StandardError


class StartBar:
    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._bar: Any = None

    def show(self, progress: StartProgress) -> None:
        if not self._is_shown:
            return
        if self._bar is None:
            from tqdm import tqdm  # takes a while, and most starts show no bar

            # Only on a terminal, and gone when it is full.
            self._bar = tqdm(
                total=progress.total, desc=progress.what, leave=False, dynamic_ncols=True, disable=None,
                file=StandardError(),
            )  # fmt: skip
        self._bar.update(progress.done - self._bar.n)
        if progress.done == progress.total:
            self._bar.close()
            self._bar = None
