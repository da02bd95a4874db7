"""Penstock runs large language models on the machine in front of you.

Names are imported when they are first used, so that `import penstock` answers at once and never loads torch.
"""

import importlib
import sys
import time
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
BEGAN = time.monotonic_ns(), time.process_time_ns()  # for the timeline of a start (`protocol/processes/trace.py`)

if not sys.platform.startswith("linux"):
    raise ImportError(f"Penstock supports Linux; this is {sys.platform}. On Windows, use it inside WSL 2.")

if TYPE_CHECKING:
    from .frontend.async_llm import AsyncLLM
    from .frontend.llm import LLM
    from .frontend.text.tokenizer import Ernie4_5Tokenizer, ErnieBotTokenizer, Tokenizer
    from .protocol.errors import (
        AdapterError,
        ClosedError,
        ConfigError,
        EngineDeadError,
        ModelNotFoundError,
        OutOfMemoryError,
        PenstockError,
        RequestError,
    )
    from .protocol.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
    from .protocol.parameters.beams import BeamSearchParams
    from .protocol.parameters.guided import GuidedDecodingParams
    from .protocol.parameters.pooling import PoolingParams
    from .protocol.parameters.sampling import SamplingParams
    from .protocol.pooling.outputs import PoolingRequestOutput

_HOMES = {
    "frontend.async_llm": ("AsyncLLM",),
    "frontend.llm": ("LLM",),
    "frontend.text.tokenizer": ("Tokenizer", "Ernie4_5Tokenizer", "ErnieBotTokenizer"),
    "protocol.parameters.beams": ("BeamSearchParams",),
    "protocol.errors": (
        "AdapterError",
        "ClosedError",
        "ConfigError",
        "EngineDeadError",
        "ModelNotFoundError",
        "OutOfMemoryError",
        "PenstockError",
        "RequestError",
    ),
    "protocol.parameters.guided": ("GuidedDecodingParams",),
    "protocol.outputs": ("CompletionOutput", "Logprob", "RequestMetrics", "RequestOutput"),
    "protocol.parameters.pooling": ("PoolingParams",),
    "protocol.parameters.sampling": ("SamplingParams",),
    "protocol.pooling.outputs": ("PoolingRequestOutput",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Written out for type checkers, which read it and run nothing.
__all__ = [
    "LLM",
    "AdapterError",
    "AsyncLLM",
    "BeamSearchParams",
    "ClosedError",
    "CompletionOutput",
    "ConfigError",
    "EngineDeadError",
    "Ernie4_5Tokenizer",
    "ErnieBotTokenizer",
    "GuidedDecodingParams",
    "Logprob",
    "ModelNotFoundError",
    "OutOfMemoryError",
    "PenstockError",
    "PoolingParams",
    "PoolingRequestOutput",
    "RequestError",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "Tokenizer",
    "__version__",
]

if not TYPE_CHECKING:  # else a checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
