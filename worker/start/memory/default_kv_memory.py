"""The default size of KV memory on a CPU, for each rank of each tree: as much as is useful, within bounds.

The bounds are a share of the free memory, to leave some for others, and a multiple of the weights, to keep a small
model small. Imports no torch: `penstock models` shows in advance how much a start would take.
"""

from ....protocol.options.config import EngineConfig
from .shares import Shares

_GIB = 1 << 30
_MOST = 2 * _GIB
_SHARE_OF_FREE = 4  # one part in so many
_TIMES_WEIGHTS = 4
_OF_SMALL_MODELS = 256 << 20  # if four times the weights are less
_LEAST = 4  # one part in so many of that is taken even if mapped weights leave less


def default_kv_bytes(
    config: EngineConfig,
    shares: Shares,
    wanted_len: int,
    *,
    free_at_start: int,
    weight_bytes: int,
    room: int,
    mapped_bytes: int = 0,
) -> int:
    """`room` is the most that KV memory may take if all ranks' mapped weights are dropped."""
    most = _most_kv_bytes(free_at_start, weight_bytes, config)
    num_bytes = min(shares.useful_bytes(wanted_len), most)
    if mapped_bytes:
        # A default must not displace mapped weights, but some KV memory is needed.
        num_bytes = min(num_bytes, max(room - mapped_bytes, most // _LEAST))
    least = wanted_len if config.max_model_len is not None else 1
    return min(max(num_bytes, shares.needed_bytes(least)), room)


def least_kv_bytes(free: int, weight_bytes: int, config: EngineConfig) -> int:
    """The least that is taken when mapped weights don't fit."""
    return _most_kv_bytes(free, weight_bytes, config) // _LEAST


def _most_kv_bytes(free: int, weight_bytes: int, config: EngineConfig) -> int:
    by_weights = max(_OF_SMALL_MODELS, _TIMES_WEIGHTS * weight_bytes * config.tensor_parallel_size)
    return min(_MOST, free // _SHARE_OF_FREE, by_weights) // (config.tensor_parallel_size * config.data_parallel_size)
