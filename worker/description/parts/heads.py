"""The key-value heads of each layer: how many, how large, and which layer's they are.

Most models have the same in all layers. Reads no weights and imports no torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ....protocol.fields.rules import shown
from ....records import dataclass

Count = Callable[[Mapping[str, Any], str], int]  # reads a key that is a positive whole number


@dataclass(frozen=True)
class LayerHeads:
    """Key-value heads of one layer, over all ranks."""

    num_kv_heads: int
    head_dim: int
    values_are_keys: bool = False  # one projection gives both
    source: int | None = None  # the earlier layer whose keys and values this one reads; None: it has its own

    @property
    def num_projected(self) -> int:
        """How many of keys and values have their own projection: 0, 1 or 2."""
        if self.source is not None:
            return 0
        return 1 if self.values_are_keys else 2


Heads = Callable[[Mapping[str, Any], LayerHeads, tuple[int | None, ...], Count], tuple[LayerHeads, ...]]


def alike(
    config: Mapping[str, Any], usual: LayerHeads, windows: tuple[int | None, ...], count: Count
) -> tuple[LayerHeads, ...]:
    return (usual,) * len(windows)


def heads_by_kind(
    config: Mapping[str, Any], usual: LayerHeads, windows: tuple[int | None, ...], count: Count
) -> tuple[LayerHeads, ...]:
    """Layers without a window have different heads, and the last layers read the keys and values of earlier ones."""
    own = _of_each(config, windows, count)
    keys_serve = bool(config.get("attention_k_eq_v"))
    heads = [
        LayerHeads(
            count(own[layer], "num_key_value_heads") if "num_key_value_heads" in own[layer] else usual.num_kv_heads,
            count(own[layer], "head_dim") if "head_dim" in own[layer] else usual.head_dim,
            values_are_keys=keys_serve and window is None,
        )
        for layer, window in enumerate(windows)
    ]
    num_readers = config.get("num_kv_shared_layers") or 0
    if type(num_readers) is not int or not 0 <= num_readers < len(windows):
        raise ValueError(
            f"num_kv_shared_layers must be a whole number below that of layers ({len(windows)}), and is "
            f"{shown(num_readers)}"
        )
    first = len(windows) - num_readers
    for layer in range(first, len(windows)):
        heads[layer] = replace(heads[layer], source=_source(layer, first, windows, heads))
    return tuple(heads)


def _of_each(config: Mapping[str, Any], windows: tuple[int | None, ...], count: Count) -> list[dict[str, Any]]:
    """The overrides for each layer: by its number, or for all layers without a window."""
    head_dim, num_heads = config.get("global_head_dim"), config.get("num_global_key_value_heads")
    by_number = config.get("per_layer_config")
    if by_number is None:
        given = {"head_dim": head_dim, "num_key_value_heads": num_heads if config.get("attention_k_eq_v") else None}
        full = {key: value for key, value in given.items() if value is not None}
        return [full if window is None else {} for window in windows]
    if not isinstance(by_number, dict) or not all(isinstance(each, dict) for each in by_number.values()):
        raise ValueError(f"per_layer_config must have an object for some layers, and is {shown(by_number)}")
    found: list[dict[str, Any]] = [{} for _ in windows]
    for number, said in by_number.items():
        if not str(number).isdecimal() or int(number) >= len(windows):
            raise ValueError(
                f"per_layer_config names layer {shown(number)}, and the layers are 0 to {len(windows) - 1}"
            )
        if unknown := said.keys() - {"head_dim", "num_key_value_heads"}:
            raise ValueError(f"per_layer_config has {shown(min(unknown))}, which can't differ by layer")
        found[int(number)] = said
    return found


def _source(layer: int, first: int, windows: tuple[int | None, ...], heads: list[LayerHeads]) -> int:
    """The last layer of the same kind that has keys and values of its own."""
    source = next((each for each in reversed(range(first)) if windows[each] == windows[layer]), None)
    if source is None or heads[source] != heads[layer]:
        raise ValueError(
            f"num_kv_shared_layers lets layer {layer} read keys and values of an earlier layer, and none of the first "
            f"{first} is of its kind"
        )
    return source
