"""Loads a model for a command, and shows progress on the terminal.

Progress is measured by the memory of the model's processes.
"""

import threading
import time
from typing import Any

import psutil

from ....protocol.files.sizes import size
from ...console import logs
from ...console.standard_error import clear_status, show_status, takes_status
from ...llm import LLM
from ...models.model_names import name_of

# A faster start shows nothing.
_STEP_SECONDS = 1.0


def load(model: str, options: dict[str, Any]) -> LLM:
    """Load a model; returns when it is ready."""
    if logs.is_quiet(bool(options.get("quiet"))) or not takes_status():
        return _opened(model, options)
    is_ready = threading.Event()
    thread = threading.Thread(target=_say, args=(name_of(model), is_ready), name="penstock-loading", daemon=True)
    thread.start()
    try:
        return _opened(model, options)
    finally:
        is_ready.set()
        thread.join()
        clear_status()


def _opened(model: str, options: dict[str, Any]) -> LLM:
    llm = LLM(model, **options)
    llm._says_failures = False  # commands report each prompt's error themselves
    return llm


def _say(name: str, is_ready: threading.Event) -> None:
    start = time.monotonic()
    while not is_ready.wait(_STEP_SECONDS):
        show_status(f"Loading {name}: {time.monotonic() - start:.0f} s, {size(_resident_bytes())} in memory")


def _resident_bytes() -> int:
    """The memory of all processes started by this one."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.Error:
            continue
    return total
