"""The text of `repr(llm)`: model, state, device and memory, from this process's own knowledge.

It asks no other process and never raises: a debugger shows objects that are half made, closed, dead, or copies in
forked processes.
"""

from typing import TYPE_CHECKING, Any

from ...protocol.files.sizes import size
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from .start_table import each_of

if TYPE_CHECKING:
    from ..session.session import Session


def shown_model(kind: str, model: str, session: "Session[Any] | None", state: str = "") -> str:
    """`state` is for a model that isn't open; an open one has its transport's state."""
    if session is None:
        return f"<{kind} {model!r}: {state}>"
    parts = [f"{kind} {session.config.served_model_name or session.config.model!r}: {state or session.transport.state}"]
    if session.plan is not None:
        parts += _memory(session.config, session.plan)
    if session.daemon is not None:
        parts.append(f"held by the daemon at {session.daemon}")
    return f"<{', '.join(parts)}>"


def _memory(config: EngineConfig, plan: MemoryPlan) -> list[str]:
    return [
        f"{plan.device} ({plan.device_name}){each_of(config)}",
        f"{size(plan.weight_bytes)} {plan.dtype} weights",
        f"{size(plan.kv_bytes)} KV cache",
    ]
