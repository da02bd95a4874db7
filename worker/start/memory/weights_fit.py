"""Refuses weights that don't fit into memory before any of them is read, with the reason and a way out."""

from ....protocol.errors import OutOfMemoryError
from ....protocol.files.sizes import exact_size
from ....protocol.options.config import EngineConfig
from ...weights.weight_bytes import BITS

_MOST_CARDS = 64


def check_weights(
    need: int, free: int, kind: str, device_name: str, config: EngineConfig, not_mapped: str = "", num_cards: int = 0
) -> None:
    """Refuse weights that don't fit into memory; `not_mapped` is the reason why they can't be mapped instead.

    On cards, `num_cards` is how many share the model now.
    """
    if need <= free:
        return
    reason = f" They can't be mapped from the disk: {not_mapped}." if not_mapped else ""
    way_out = f"{smaller_format(need, free, kind)}{_more_cards(need, free, num_cards)}a smaller model, or free memory"
    raise OutOfMemoryError(
        f"The weights of {config.model} need {exact_size(need)} in {kind}, and {exact_size(free)} are free on "
        f"{device_name}.{reason} Use {way_out}. Nothing was read."
    )


def check_rest(need: int, free: int, config: EngineConfig) -> None:
    """Refuse a model that needs too much memory even with mapped weights."""
    if need <= free:
        return
    raise OutOfMemoryError(
        f"The weights of {config.model} don't fit into memory. Mapped from the disk they would run, but their largest "
        f"matrix while it is packed, activations and KV memory need {exact_size(need)}, and {exact_size(max(free, 0))} "
        "are free. Use a smaller max_num_batched_tokens, max_model_len or kv_cache_memory, or free memory. Nothing was "
        "read."
    )


def _more_cards(need: int, free: int, num_cards: int) -> str:
    """A number of cards that would hold the weights, if each has as much free as this one; "" if there is none."""
    enough = num_cards
    while 0 < enough <= _MOST_CARDS and need * num_cards > free * enough:
        enough *= 2  # few sizes divide a model's heads
    return f"tensor_parallel_size={enough} if there are as many cards, " if 0 < enough <= _MOST_CARDS else ""


def smaller_format(need: int, free: int, kind: str) -> str:
    """A smaller format in which the weights would fit, if there is one."""
    # For mixed formats the savings of a single one are unknown.
    bits = BITS.get(kind, 0)
    smaller = {name: int(need * BITS[name] / bits) for name in ("int8", "int4") if BITS[name] < bits}
    fitting = [name for name, size in smaller.items() if size < free]
    return f"quantization={fitting[0]!r}, " if fitting else ""
