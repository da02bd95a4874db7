"""A CPU's answers, which a card's are held against, made beforehand: nobody waits for them while a card is lent.

`scripts/check_gpu prepare` writes them into a folder that travels with the checkout, a file each. Where there is none,
or it was made from other sources, they are computed when they are asked for.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]
FOLDER = _ROOT / "build" / "cpu_answers"
_SOURCES = ("engine", "worker", "kernels", "frontend/pocket", "tests/builders", "tests/gpu")
_MADE = {"__pycache__", "objects"}  # folders of what is compiled
IS_REHEARSAL = os.environ.get("TRITON_INTERPRET") == "1"  # a CPU stands in for the card, with the card's kernels


def on_cpu(name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answers of this name, of plain values; `PENSTOCK_CPU_ANSWERS=prepare` keeps what had to be computed."""
    path = FOLDER / f"{name}.json"
    if IS_REHEARSAL:  # sizes are others, and only the processor's own kernels tell anything
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("TRITON_INTERPRET")
            return compute()
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["sources"] == _sources():
            return kept["answers"]
        print(f"{path} was made from other sources; scripts/check_gpu prepare makes it anew.", file=sys.stderr)
    answers = compute()
    if os.environ.get("PENSTOCK_CPU_ANSWERS") == "prepare":
        FOLDER.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"sources": _sources(), "answers": answers}), encoding="utf-8")
    return answers


@cache
def _sources() -> str:
    """A digest of every file that an answer may depend on."""
    digest = hashlib.sha256()
    for place in _SOURCES:
        found = sorted((_ROOT / place).rglob("*")) if (_ROOT / place).is_dir() else [_ROOT / place]
        for path in found:
            if path.is_file() and path.suffix != ".so" and not _MADE.intersection(path.parts):
                digest.update(str(path.relative_to(_ROOT)).encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
