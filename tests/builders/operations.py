"""Counts what the package does with text: a call is one, and so is each character of the texts that it is given.

What a call makes of a text that it is given is not seen, so a text that is given again and again counts each time: work
that grows faster than its text is found, without a clock.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import penstock

ROOT = str(Path(penstock.__file__).parent / "frontend")


def operations(work: Callable[[], Any]) -> int:
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if not frame.f_code.co_filename.startswith(ROOT):
            return
        if event == "call":
            given = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
            texts = (frame.f_locals.get(name) for name in given)
            count += 1 + sum(len(text) for text in texts if isinstance(text, (str, bytes, list, tuple)))
            count += getattr(frame.f_locals.get("self"), "length", 0) if frame.f_code.co_name == "__str__" else 0
        elif event == "c_call":
            owner = getattr(argument, "__self__", None)
            count += 1 + (len(owner) if isinstance(owner, (str, bytes)) else 0)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
