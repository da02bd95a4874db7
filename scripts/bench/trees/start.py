"""The start of a tree next to `import torch`, and its use of the CPU when idle.

Whole processes in turns: `import torch`, `import penstock`, and a script from its start to its first token on MODEL (a
tiny one shows the tree's own share). Then the CPU use of an idle tree.
"""

import subprocess
import sys
import time
from functools import partial
from typing import Any

from penstock import LLM

from ..harness import compare, seconds_of
from ..machine import on_cpu

FIRST_TOKEN = """
from penstock import LLM, SamplingParams
llm = LLM({model!r}, max_model_len=512, quiet=True)
next(iter(llm.stream([1, 2, 3], SamplingParams(max_tokens=8, ignore_eos=True))))
import os; os._exit(0)
"""


def run(model: str, rounds: int = 5) -> Any:
    codes = {
        "import torch": "import torch",
        "import penstock": "import penstock",
        "start to first token": FIRST_TOKEN.format(model=model),
    }
    found = compare("whole processes", {name: partial(seconds, code) for name, code in codes.items()}, rounds, "s")
    idle = idle_share(model)
    print(f"an idle tree uses {idle:.2%} of a core")
    return {**found, "idle share of a core": idle}


def seconds(code: str) -> float:
    return seconds_of(lambda: subprocess.run([sys.executable, "-c", code], check=True))


def idle_share(model: str, watched_seconds: float = 5.0) -> float:
    """Cores used by the processes of an idle tree."""
    with LLM(model, max_model_len=512, quiet=True) as llm:
        pids = [child.popen.pid for child in llm._session.transport.tree.children]
        time.sleep(3)  # KV memory is still touched in the background
        before = on_cpu(*pids)
        time.sleep(watched_seconds)
        return (on_cpu(*pids) - before) / watched_seconds
