"""Refuses weights that don't fit into memory before any of them is read, with the reason and a way out."""

from ....protocol.errors import OutOfMemoryError
from ....protocol.files.sizes import exact_size
from ....protocol.options.config import EngineConfig
from ...weights.weight_bytes import BITS


def check_weights(
    need: int, free: int, kind: str, device_name: str, config: EngineConfig, not_mapped: str = ""
) -> None:
    """Refuse weights that would fill the memory before they are all there; `not_mapped` says why that isn't spared."""
    if need <= free:
        return
    reason = f" They can't be mapped from the disk: {not_mapped}." if not_mapped else ""
    way_out = f"{smaller_format(need, free, kind)}a smaller model, or free memory"
    raise OutOfMemoryError(
        f"The weights of {config.model} need {exact_size(need)} in {kind}, and {exact_size(free)} are free on "
        f"{device_name}.{reason} Use {way_out}. Nothing was read."
    )


def check_rest(need: int, free: int, config: EngineConfig) -> None:
    """Refuse a model of which too much must be in memory, even if its weights are mapped."""
    if need <= free:
        return
    raise OutOfMemoryError(
        f"The weights of {config.model} don't fit into memory. Mapped from the disk they would run, but their largest "
        f"matrix while it is packed, activations and KV memory need {exact_size(need)}, and {exact_size(max(free, 0))} "
        "are free. Use a smaller max_num_batched_tokens, max_model_len or kv_cache_memory, or free memory. Nothing was "
        "read."
    )


def smaller_format(need: int, free: int, kind: str) -> str:
    """The format in which weights that need so many bytes in this one fit, if one does."""
    # Of several kinds it isn't known how much smaller one for all would be.
    bits = BITS.get(kind, 0)
    smaller = {name: int(need * BITS[name] / bits) for name in ("int8", "int4") if BITS[name] < bits}
    fitting = [name for name, size in smaller.items() if size < free]
    return f"quantization={fitting[0]!r}, " if fitting else ""
