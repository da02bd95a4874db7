"""Checks a client's options against those of a model that is shared: each option given must equal the model's."""

from typing import Any

from ....protocol.fields.suggestion import suggestion
from ....protocol.messages import MemoryPlan
from ....protocol.options.config import EngineConfig


def disagreement(written: EngineConfig, config: EngineConfig, plan: MemoryPlan, given: dict[str, Any]) -> str:
    """A sentence that names every option that differs; empty if all agree.

    `written` is what the model's owner gave, `config` what the model's files have made of it. `watchdog_timeout` isn't
    compared, since each client may wait as long as it likes.
    """
    if unknown := [name for name in given if name not in EngineConfig.__struct_fields__]:
        hint = suggestion(unknown[0], EngineConfig.__struct_fields__)
        return f"The daemon's models have no option {', '.join(map(repr, unknown))}.{hint}"
    different = [
        f"{name}={value!r} (here {has(config, plan, name)!r})"
        for name, value in given.items()
        if name != "watchdog_timeout"
        and value not in (getattr(written, name), getattr(config, name), has(config, plan, name))
    ]
    if not different:
        return ""
    advice = f"Leave {'that' if len(different) == 1 else 'those'} out to share it."
    return f"The daemon's model was loaded with other options than {', '.join(different)}. {advice}"


def has(config: EngineConfig, plan: MemoryPlan, name: str) -> Any:
    """The value that an option has in the running model, also where it was unset or "auto"."""
    num_seqs, num_tokens = config.step_limits(plan.device)
    settled = {
        "max_model_len": plan.max_model_len,
        "max_num_seqs": num_seqs,
        "max_num_batched_tokens": num_tokens,
        "num_gpu_blocks_override": plan.num_blocks,
        "kv_cache_memory": plan.num_blocks * plan.block_bytes,
        "device": plan.device.split(":")[0],
        "dtype": plan.dtype,
        "kv_cache_dtype": plan.kv_dtype,
    }
    return settled.get(name, getattr(config, name))
