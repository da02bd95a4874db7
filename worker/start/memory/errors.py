"""The errors of an impossible memory plan: the need, the free memory, and a value that would fit."""

from collections.abc import Sequence

from ....protocol.errors import ConfigError, OutOfMemoryError
from ....protocol.files.sizes import exact_size
from ....protocol.options.config import EngineConfig
from .profile import MemoryProfile, Size
from .shares import Shares, largest

_GIB = 1 << 30


def too_many_blocks(config: EngineConfig, profile: MemoryProfile, shares: Shares, wanted_len: int) -> OutOfMemoryError:
    asked = config.num_gpu_blocks_override or 0

    def bytes_of(count: int) -> int:
        return shares.bytes_of(shares.of_first_group(count, shares.longest_in_first(count, wanted_len)))

    fits = largest(asked, lambda count: bytes_of(count) <= profile.room)
    return OutOfMemoryError(
        f"num_gpu_blocks_override={asked:,} needs {exact_size(bytes_of(asked))}, and {_left(profile)}. "
        f"Use num_gpu_blocks_override={fits:,} or less."
    )


def too_many_bytes(config: EngineConfig, profile: MemoryProfile, num_blocks: Sequence[int]) -> OutOfMemoryError:
    asked = config.kv_cache_memory or 0
    return OutOfMemoryError(
        f"kv_cache_memory={asked:,} is {exact_size(asked)} in {num_blocks[0]:,} KV blocks, and {_left(profile)}. "
        f"Use kv_cache_memory={profile.room:,} or less."
    )


def too_few_bytes(config: EngineConfig, shares: Shares) -> ConfigError:
    needs, least = _least("one", config, shares), shares.needed_bytes(1)
    return ConfigError(
        f"kv_cache_memory={config.kv_cache_memory} holds no KV block: {needs} {exact_size(least)}. "
        f"Use {least} or more, or leave it out."
    )


def no_room(config: EngineConfig, size: Size, profile: MemoryProfile, shares: Shares) -> OutOfMemoryError:
    left = profile.room + profile.activation_bytes + profile.adapter_bytes
    free, activations = exact_size(max(left, 0)), exact_size(profile.activation_bytes)
    if profile.activation_bytes > left:
        return OutOfMemoryError(
            f"A step of max_num_batched_tokens={size.max_num_batched_tokens:,} needs {activations} for activations, "
            f"and {free} are free besides the weights. Use a smaller max_num_batched_tokens, or free memory."
        )
    needs, need = _least("One KV block", config, shares), exact_size(shares.needed_bytes(1))
    return OutOfMemoryError(
        f"{needs} {need}, and {_left(profile)}. Free memory, or use a smaller model or max_num_batched_tokens."
    )


def too_long(
    config: EngineConfig, profile: MemoryProfile, shares: Shares, num_blocks: Sequence[int], fits: int
) -> Exception:
    wanted = config.max_model_len or 0
    needed, need_bytes = shares.needed(wanted), shares.needed_bytes(wanted)
    are = "is" if num_blocks[0] == 1 else "are"
    sentence = (
        f"max_model_len={wanted:,} needs {needed[0]:,} KV blocks{_beside(shares)} ({exact_size(need_bytes)}), "
        f"and there {are} {num_blocks[0]:,} ({exact_size(shares.bytes_of(num_blocks))}). "
        f"Use max_model_len={fits:,} or less"
    )
    if config.num_gpu_blocks_override:
        return ConfigError(f"{sentence}, or num_gpu_blocks_override={needed[0]:,}.")
    if config.kv_cache_memory:
        return ConfigError(f"{sentence}, or kv_cache_memory={need_bytes:,}.")
    if profile.device == "cpu":
        return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or free memory.")
    return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or raise gpu_memory_utilization.")


def no_cell(config: EngineConfig, least: int) -> ConfigError:
    return ConfigError(
        f"swap_space={config.swap_space:,} GiB holds no KV block: one needs {exact_size(least)}. "
        "Raise it, or leave it out."
    )


def no_room_to_swap(config: EngineConfig, left: int) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"swap_space={config.swap_space:,} GiB is more than the {exact_size(left)} that are left in CPU memory. "
        f"Use swap_space={left * 100 // _GIB / 100:g} or less, or free memory."
    )


def _least(block: str, config: EngineConfig, shares: Shares) -> str:
    """The beginning of a sentence about the least that a plan needs, which continues with the bytes."""
    if len(shares.groups) == 1:
        return f"{block} of {config.block_size} tokens needs"
    states = ", with two states," if any(group.kind == "state" for group in shares.groups) else ""
    return f"{block} of {config.block_size} tokens in each group of layers{states} needs"


def _beside(shares: Shares) -> str:
    kinds = {group.kind for group in shares.groups[1:]}
    names = " and ".join(name for kind, name in (("window", "windows"), ("state", "states")) if kind in kinds)
    return f", and what its {names} take" if names else ""


def _left(profile: MemoryProfile) -> str:
    taken = "weights and activations"
    if profile.adapter_bytes:
        adapters = exact_size(profile.adapter_bytes)
        taken = f"weights, activations and {adapters} for adapters (max_loras x max_lora_rank)"
    return f"{exact_size(max(profile.room, 0))} are left besides {taken}"
