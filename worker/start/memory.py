"""The memory plan of one rank, made before anything is taken: weights, activations, and the KV blocks that fit.

What doesn't fit is refused with the figure that would.
"""

from dataclasses import dataclass

from ...protocol.errors import ConfigError, OutOfMemoryError
from ...protocol.files.sizes import exact_size
from ...protocol.messages import MemoryPlan
from ...protocol.options.config import EngineConfig
from ..weights.weight_bytes import BITS

_GIB = 1 << 30
_MOST_UNASKED = 2 * _GIB  # of KV memory on a CPU, where nobody said how much
_SHARE_UNASKED = 4  # and at most one part in so many of what is free


@dataclass(frozen=True)
class Size:
    """The limits of a step's size."""

    max_num_seqs: int
    max_num_batched_tokens: int

    @classmethod
    def settled(cls, config: EngineConfig, device_type: str) -> "Size":
        return cls(*config.step_limits(device_type))

    @property
    def num_slots(self) -> int:
        """The most sequences that are computed at once: each gets a token in every step."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a rank has measured once its weights are loaded."""

    device: str
    device_name: str
    weight_bytes: int
    activation_bytes: int
    available_bytes: int  # free, the weights being in already
    block_bytes: int
    model_context: int
    vocab_size: int
    dtype: str
    kv_dtype: str
    kernels: str = ""
    host_bytes: int = 0  # free in CPU memory beside a card's
    adapter_bytes: int = 0
    stretches: tuple[int, ...] = ()  # lengths that positions are rotated for, where there are several
    notes: tuple[str, ...] = ()


def memory_plan(config: EngineConfig, size: Size, found: Found) -> MemoryPlan:
    """How many blocks there will be and how long a request may get; raises where that can't be."""
    wanted_len = _checked_length(config, found)
    num_blocks, notes = _num_blocks(config, size, found, wanted_len), list(found.notes)
    if num_blocks < 1:
        raise _no_room(config, size, found)
    holds = num_blocks * config.block_size
    if config.max_model_len is not None and holds < wanted_len:
        raise _too_long(config, found, wanted_len, num_blocks)
    if holds < wanted_len:
        notes.append(
            f"max_model_len is cut from {wanted_len:,} to {holds:,}, which is what {num_blocks:,} KV blocks hold; "
            f"kv_cache_memory={-(-wanted_len // config.block_size) * found.block_bytes} holds it all."
        )
    max_model_len = min(wanted_len, holds)
    if found.stretches and max_model_len > found.stretches[0]:
        notes.append(
            f"Beyond the trained context of {found.stretches[0]:,} tokens a request's positions are stretched (dynamic "
            "rope), and what it has computed is computed anew whenever its length has doubled."
        )
    return MemoryPlan(
        device=found.device,
        device_name=found.device_name,
        weight_bytes=found.weight_bytes,
        activation_bytes=found.activation_bytes,
        available_bytes=found.available_bytes + found.weight_bytes,
        block_bytes=found.block_bytes,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        model_context=found.model_context,
        vocab_size=found.vocab_size,
        dtype=found.dtype,
        kv_dtype=found.kv_dtype,
        kernels=found.kernels,
        notes=notes,
        adapter_bytes=found.adapter_bytes,
        num_cpu_blocks=_num_cpu_blocks(config, found, num_blocks),
        stretches=list(found.stretches),
    )


def check_weights(need: int, free: int, kind: str, device_name: str, config: EngineConfig) -> None:
    """Refuse weights that would fill the memory before they are all there."""
    if need <= free:
        return
    smaller = {name: need * BITS[name] // BITS[kind] for name in ("int8", "int4") if BITS[name] < BITS[kind]}
    fitting = [name for name, size in smaller.items() if size < free]
    way_out = f"quantization={fitting[0]!r}, " if fitting else ""
    raise OutOfMemoryError(
        f"The weights of {config.model} need {exact_size(need)} in {kind}, and {exact_size(free)} are free on "
        f"{device_name}. Use {way_out}a smaller model, or free memory. Nothing was read."
    )


def host_bytes_of(plan: MemoryPlan) -> int:
    """What the plan takes of CPU memory from now on."""
    cells = plan.num_cpu_blocks * plan.block_bytes
    return cells if plan.device != "cpu" else cells + plan.num_blocks * plan.block_bytes + plan.adapter_bytes


def _checked_length(config: EngineConfig, found: Found) -> int:
    wanted = config.max_model_len or found.model_context
    if wanted > found.model_context:
        raise ConfigError(
            f"max_model_len={wanted:,} is more than the model's own context of {found.model_context:,}. "
            f"Use max_model_len={found.model_context:,} or less."
        )
    return wanted


def _num_blocks(config: EngineConfig, size: Size, found: Found, wanted_len: int) -> int:
    """Blocks that the options ask for, all of which must fit, or where they are silent as many as are of use."""
    room = _room(found)
    if config.num_gpu_blocks_override or config.kv_cache_memory:
        if room < found.block_bytes:
            raise _no_room(config, size, found)
        asked = config.num_gpu_blocks_override or (config.kv_cache_memory or 0) // found.block_bytes
        if not asked:
            raise _too_few_bytes(config, found)
        if asked * found.block_bytes > room:
            raise _too_many_blocks(config, found, asked)
        return asked
    if found.device != "cpu":
        return room // found.block_bytes
    a_request = -(-wanted_len // config.block_size)
    at_start = found.available_bytes + found.weight_bytes
    most = min(_MOST_UNASKED, at_start // _SHARE_UNASKED) // config.tensor_parallel_size
    blocks = min(size.max_num_seqs * a_request, most // found.block_bytes)
    if config.max_model_len is not None:
        blocks = max(blocks, a_request)
    return min(blocks, room // found.block_bytes)


def _num_cpu_blocks(config: EngineConfig, found: Found, num_blocks: int) -> int:
    """Cells of the second tier: what swap_space holds, all of which must fit beside whatever else is in CPU memory."""
    asked = int((config.swap_space or 0) * _GIB) // found.block_bytes
    if config.swap_space and not asked:
        raise ConfigError(
            f"swap_space={config.swap_space:,} GiB holds no KV block: one needs {exact_size(found.block_bytes)}. "
            "Raise it, or leave it out."
        )
    left = found.host_bytes if found.device != "cpu" else _room(found) - num_blocks * found.block_bytes
    if asked * found.block_bytes > max(left, 0):
        raise OutOfMemoryError(
            f"swap_space={config.swap_space:,} GiB is more than the {exact_size(max(left, 0))} that are left in CPU "
            f"memory. Use swap_space={max(left, 0) * 100 // _GIB / 100:g} or less, or free memory."
        )
    return asked


def _room(found: Found) -> int:
    return found.available_bytes - found.activation_bytes - found.adapter_bytes


def _taken(found: Found) -> str:
    if not found.adapter_bytes:
        return "weights and activations"
    return f"weights, activations and {exact_size(found.adapter_bytes)} for adapters (max_loras x max_lora_rank)"


def _too_many_blocks(config: EngineConfig, found: Found, asked: int) -> OutOfMemoryError:
    room, need = _room(found), exact_size(asked * found.block_bytes)
    if config.num_gpu_blocks_override:
        wanted, fits = f"num_gpu_blocks_override={asked:,} needs {need}", room // found.block_bytes
        way_out = f"num_gpu_blocks_override={fits:,}"
    else:
        wanted = f"kv_cache_memory={config.kv_cache_memory:,} is {need} in {asked:,} KV blocks"
        way_out = f"kv_cache_memory={room:,}"
    left = f"{exact_size(room)} are left beside {_taken(found)}"
    return OutOfMemoryError(f"{wanted}, and {left}. Use {way_out} or less.")


def _too_few_bytes(config: EngineConfig, found: Found) -> ConfigError:
    return ConfigError(
        f"kv_cache_memory={config.kv_cache_memory} holds no KV block: one of {config.block_size} tokens needs "
        f"{exact_size(found.block_bytes)}. Use {found.block_bytes} or more, or leave it out."
    )


def _no_room(config: EngineConfig, size: Size, found: Found) -> OutOfMemoryError:
    free, activations = exact_size(found.available_bytes), exact_size(found.activation_bytes)
    if found.activation_bytes > found.available_bytes:
        return OutOfMemoryError(
            f"A step of max_num_batched_tokens={size.max_num_batched_tokens:,} needs {activations} for activations, "
            f"and {free} are free beside the weights. Use a smaller max_num_batched_tokens, or free memory."
        )
    return OutOfMemoryError(
        f"One KV block of {config.block_size} tokens needs {exact_size(found.block_bytes)}, and "
        f"{exact_size(max(_room(found), 0))} are left beside {_taken(found)}. Free memory, or use a smaller model or "
        "max_num_batched_tokens."
    )


def _too_long(config: EngineConfig, found: Found, wanted_len: int, num_blocks: int) -> Exception:
    need = -(-wanted_len // config.block_size)
    sentence = (
        f"max_model_len={wanted_len:,} needs {need:,} KV blocks ({exact_size(need * found.block_bytes)}), and there "
        f"are {num_blocks:,} ({exact_size(num_blocks * found.block_bytes)}). "
        f"Use max_model_len={num_blocks * config.block_size:,} or less"
    )
    if config.num_gpu_blocks_override:
        return ConfigError(f"{sentence}, or num_gpu_blocks_override={need:,}.")
    if config.kv_cache_memory:
        return ConfigError(f"{sentence}, or kv_cache_memory={need * found.block_bytes:,}.")
    if found.device == "cpu":
        return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or free memory.")
    return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or raise gpu_memory_utilization.")
