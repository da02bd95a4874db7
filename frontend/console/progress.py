"""Progress on stderr: bars of a start and of a batch call with its requests and tokens per second; at a call's end how
many prompts failed.
"""

import time
from typing import Any

from ...protocol.outputs import RequestOutput
from ...protocol.pooling.outputs import PoolingRequestOutput
from ...protocol.stats import StartProgress
from ...records import dataclass
from . import logs
from .standard_error import StandardError

_ABORTED = 499  # by a call of the user's own
_MOST_REASON = 400  # characters
_STEP_SECONDS = 0.1  # between two figures of a bar


class StartBar:
    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._bar: Any = None

    def show(self, progress: StartProgress) -> None:
        if not self._is_shown:
            return
        if self._bar is None:
            from tqdm import tqdm  # slow to import, and most starts show no bar

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
    def __init__(self, total: int | None, num_before: int = 0, *, is_shown: bool = True) -> None:
        """`num_before` prompts were done by an earlier run, which says nothing about the others' speed."""
        from tqdm import tqdm  # slow to import, and not needed without a bar

        self.bar = tqdm(
            total=total,
            initial=num_before,
            desc="Prompts",
            unit="",
            dynamic_ncols=True,
            file=StandardError(),
            disable=not is_shown,
        )
        self.start = self._due = time.monotonic()
        self.tokens_in = self.tokens_cached = self.tokens_out = self.num_failed = 0

    def add(self, output: RequestOutput | PoolingRequestOutput[Any]) -> None:
        num_output = 0 if output.metrics is None else output.metrics.num_output_tokens
        self.count(len(output.prompt_token_ids), output.num_cached_tokens, num_output, output.error_code)

    def count(self, num_prompt: int, num_cached: int, num_output: int, error_code: int) -> None:
        self.tokens_in += num_prompt
        self.tokens_cached += num_cached
        self.tokens_out += num_output
        self.num_failed += error_code != 200
        if (now := time.monotonic()) >= self._due:
            self._due = now + _STEP_SECONDS
            self.bar.set_postfix_str(self._rates(), refresh=False)
        self.bar.update()

    def close(self) -> None:
        self.bar.close()

    def summary(self) -> str:
        """One line on the prompts of this run."""
        count = self.bar.n - self.bar.initial
        seconds = time.monotonic() - self.start
        return f"{count:,} prompt{'' if count == 1 else 's'} in {seconds:,.1f} s: {self._rates()}."

    def _rates(self) -> str:
        seconds = max(time.monotonic() - self.start, 1e-9)
        rates = f"in {self.tokens_in / seconds:,.0f} tokens/s, out {self.tokens_out / seconds:,.0f} tokens/s"
        cached = f", {100 * self.tokens_cached / self.tokens_in:.0f} % cached" if self.tokens_cached else ""
        return f"{rates}{cached}" + (f", {self.num_failed:,} failed" if self.num_failed else "")


@dataclass(slots=True)
class Failures:
    """The failed prompts of a call. They are reported once, at its end: a failed answer is an empty text, which is
    easily overlooked."""

    failed: int = 0
    reason: str = ""

    def add(self, output: RequestOutput | PoolingRequestOutput[Any]) -> None:
        """Count an output whose `error_code` isn't 200."""
        if output.error_code != _ABORTED:
            self.failed += 1
            self.reason = self.reason or " ".join((output.error_msg or "").split())[:_MOST_REASON]

    def say(self, total: int) -> None:
        """Report how many of the prompts have failed."""
        who = "The prompt" if total == 1 else f"{self.failed:,} of {total:,} prompts"
        logs.say(f"{who} failed: {self.reason.rstrip('.')}; see `.error_msg`.", quiet=False)
