"""Progress bars on stderr: of a start, and of a batch call with its requests and tokens per second."""

import time
from typing import Any

from ...protocol.outputs import RequestOutput
from ...protocol.stats import StartProgress
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


class Progress:
    def __init__(self, total: int | None) -> None:
        from tqdm import tqdm  # takes a while, and who looks at no bar need not wait for it

        self.bar = tqdm(total=total, desc="Prompts", unit="", dynamic_ncols=True, file=StandardError())
        self.start = time.monotonic()
        self.tokens_in = self.tokens_out = 0

    def add(self, output: RequestOutput) -> None:
        self.tokens_in += len(output.prompt_token_ids)
        self.tokens_out += sum(len(answer.token_ids) for answer in output.outputs)
        seconds = max(time.monotonic() - self.start, 1e-9)
        rates = f"in {self.tokens_in / seconds:,.0f} tokens/s, out {self.tokens_out / seconds:,.0f} tokens/s"
        self.bar.set_postfix_str(rates, refresh=False)
        self.bar.update()

    def close(self) -> None:
        self.bar.close()
