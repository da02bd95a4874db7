"""The memory plan of one rank, made before anything is taken: weights, activations, and the KV blocks that fit.

What doesn't fit is refused with the figure that would. Weights that are mapped from a file need not fit: the system
reads again what it has dropped of them, which is slow, so the plan says it. Everything else must.
"""

from dataclasses import dataclass

from ...protocol.errors import ConfigError, OutOfMemoryError
from ...protocol.files.sizes import exact_size, size
from ...protocol.layer_groups import GroupPlan
from ...protocol.messages import MemoryPlan
from ...protocol.options.config import EngineConfig
from .weights_fit import smaller_format

_GIB = 1 << 30
_KINDS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # of weights that are not quantized
_MOST_UNASKED = 2 * _GIB  # of KV memory on a CPU, where nobody said how much
_SHARE_UNASKED = 4  # and at most one part in so many of what is free
_LEAST_UNASKED = 4  # one part in so many of that is taken even where mapped weights leave less


@dataclass(frozen=True)
class Size:
    """The limits of a step's size."""

    max_num_seqs: int
    max_num_batched_tokens: int

    @classmethod
    def of(cls, config: EngineConfig, device_type: str) -> "Size":
        return cls(*config.step_limits(device_type))

    @property
    def num_slots(self) -> int:
        """The most sequences that are computed at once: each gets a token in every step."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """What a rank has measured once its weights are loaded."""

    device: str
    device_name: str
    weight_bytes: int
    mapped_bytes: int = 0  # of the weights, those in a file
    other_mapped_bytes: int = 0  # of ranks that share the memory
    activation_bytes: int
    available_bytes: int  # free, the weights being in already; less than nothing where those that are mapped are not
    block_bytes: int
    num_layers: int
    model_context: int
    vocab_size: int
    dtype: str
    kv_dtype: str
    kernels: str = ""
    host_bytes: int = 0  # free in CPU memory beside a card's
    adapter_bytes: int = 0
    stretches: tuple[int, ...] = ()  # lengths that positions are rotated for, where there are several
    notes: tuple[str, ...] = ()


def memory_plan(config: EngineConfig, size: Size, profile: MemoryProfile) -> MemoryPlan:
    """How many blocks there will be and how long a request may get; raises where that can't be."""
    wanted_len = _checked_length(config, profile)
    num_blocks, notes = _num_blocks(config, size, profile, wanted_len), list(profile.notes)
    if num_blocks < 1:
        raise _no_room(config, size, profile)
    holds = num_blocks * config.block_size
    if config.max_model_len is not None and holds < wanted_len:
        raise _too_long(config, profile, wanted_len, num_blocks)
    if holds < wanted_len:
        notes.append(
            f"max_model_len is cut from {wanted_len:,} to {holds:,}, which is what {num_blocks:,} KV blocks hold; "
            f"kv_cache_memory={-(-wanted_len // config.block_size) * profile.block_bytes} holds it all."
        )
    resident = _resident_bytes(config, profile, num_blocks)
    if resident < profile.mapped_bytes:
        notes.append(_larger_than_memory(profile, resident))
    max_model_len = min(wanted_len, holds)
    if profile.stretches and max_model_len > profile.stretches[0]:
        notes.append(_stretched(profile.stretches, max_model_len))
    num_cells = _num_cpu_blocks(config, profile, num_blocks)
    group = GroupPlan("full", profile.num_layers, profile.block_bytes, num_blocks, num_cpu_blocks=num_cells)
    return MemoryPlan(
        device=profile.device,
        device_name=profile.device_name,
        weight_bytes=profile.weight_bytes,
        activation_bytes=profile.activation_bytes,
        available_bytes=_free_at_start(profile),
        groups=[group],
        max_model_len=max_model_len,
        model_context=profile.model_context,
        vocab_size=profile.vocab_size,
        dtype=profile.dtype,
        kv_dtype=profile.kv_dtype,
        kernels=profile.kernels,
        notes=notes,
        adapter_bytes=profile.adapter_bytes,
        stretches=list(profile.stretches),
        resident_bytes=profile.weight_bytes - profile.mapped_bytes + min(resident, profile.mapped_bytes),
    )


def _stretched(lengths: tuple[int, ...], max_model_len: int) -> str:
    borders = " and ".join(f"{length:,}" for length in lengths if length < max_model_len)
    return (
        "The angles of positions depend on a request's length (rope type dynamic or longrope): what it has computed is "
        f"computed anew when it grows beyond {borders} tokens."
    )


def kv_bytes_at_least(config: EngineConfig, block_bytes: int, free: int) -> int:
    """What one rank's KV memory takes beside mapped weights that don't fit: what is asked for, or a little."""
    if config.num_gpu_blocks_override or config.kv_cache_memory:
        return (config.num_gpu_blocks_override or 0) * block_bytes or config.kv_cache_memory or 0
    if config.max_model_len is not None:
        return -(-config.max_model_len // config.block_size) * block_bytes
    return _most_unasked(free, config) // _LEAST_UNASKED


def swap_bytes(config: EngineConfig) -> int:
    """Of the second tier, on each rank."""
    return int((config.swap_space or 0) * _GIB)


def _free_at_start(profile: MemoryProfile) -> int:
    """What this rank found before any weights were there."""
    return profile.available_bytes + profile.weight_bytes + profile.other_mapped_bytes


def _resident_bytes(config: EngineConfig, profile: MemoryProfile, num_blocks: int) -> int:
    """What memory has for this rank's mapped weights, when all else that is planned is there."""
    ranks = config.tensor_parallel_size
    beside = profile.activation_bytes + profile.adapter_bytes + num_blocks * profile.block_bytes
    beside += swap_bytes(config)
    mapped = profile.mapped_bytes + profile.other_mapped_bytes
    return max(0, profile.available_bytes + mapped - ranks * beside) // ranks


def _larger_than_memory(profile: MemoryProfile, resident: int) -> str:
    smaller = smaller_format(profile.mapped_bytes, resident, _KINDS.get(profile.dtype, profile.dtype))
    return (
        f"The model is larger than memory: its weights are mapped from the disk, and of {size(profile.mapped_bytes)} "
        f"about {size(resident)} ({resident * 100 // profile.mapped_bytes} %) stay in memory. The rest is read from "
        f"there again for the tokens that need it, which is slow. Use {smaller}a smaller model, or more memory."
    )


def host_bytes_of(plan: MemoryPlan) -> int:
    """What the plan takes of CPU memory from now on."""
    cells = plan.swap_bytes
    return cells if plan.device != "cpu" else cells + plan.kv_bytes + plan.adapter_bytes


def _checked_length(config: EngineConfig, profile: MemoryProfile) -> int:
    wanted = config.max_model_len or profile.model_context
    if wanted > profile.model_context:
        raise ConfigError(
            f"max_model_len={wanted:,} is more than the model's own context of {profile.model_context:,}. "
            f"Use max_model_len={profile.model_context:,} or less."
        )
    return wanted


def _num_blocks(config: EngineConfig, size: Size, profile: MemoryProfile, wanted_len: int) -> int:
    """Blocks that the options ask for, all of which must fit, or where they are silent as many as are of use."""
    room = _room(profile)
    if config.num_gpu_blocks_override or config.kv_cache_memory:
        if room < profile.block_bytes:
            raise _no_room(config, size, profile)
        asked = config.num_gpu_blocks_override or (config.kv_cache_memory or 0) // profile.block_bytes
        if not asked:
            raise _too_few_bytes(config, profile)
        if asked * profile.block_bytes > room:
            raise _too_many_blocks(config, profile, asked)
        return asked
    if profile.device != "cpu":
        return room // profile.block_bytes
    a_request = -(-wanted_len // config.block_size)
    most = _most_unasked(_free_at_start(profile), config)
    blocks = min(size.max_num_seqs * a_request, most // profile.block_bytes)
    if profile.mapped_bytes:
        # Nobody asked for so much that mapped weights would have to give way, but a little there must be.
        beside = room - profile.mapped_bytes - profile.other_mapped_bytes
        blocks = min(blocks, max(beside, most // _LEAST_UNASKED) // profile.block_bytes)
    if config.max_model_len is not None:
        blocks = max(blocks, a_request)
    return min(blocks, room // profile.block_bytes)


def _most_unasked(free: int, config: EngineConfig) -> int:
    """Of KV memory on each rank of a CPU."""
    return min(_MOST_UNASKED, free // _SHARE_UNASKED) // config.tensor_parallel_size


def _num_cpu_blocks(config: EngineConfig, profile: MemoryProfile, num_blocks: int) -> int:
    """Cells of the second tier: what swap_space holds, all of which must fit beside whatever else is in CPU memory."""
    asked = swap_bytes(config) // profile.block_bytes
    if config.swap_space and not asked:
        raise ConfigError(
            f"swap_space={config.swap_space:,} GiB holds no KV block: one needs {exact_size(profile.block_bytes)}. "
            "Raise it, or leave it out."
        )
    left = profile.host_bytes if profile.device != "cpu" else _room(profile) - num_blocks * profile.block_bytes
    if asked * profile.block_bytes > max(left, 0):
        raise OutOfMemoryError(
            f"swap_space={config.swap_space:,} GiB is more than the {exact_size(max(left, 0))} that are left in CPU "
            f"memory. Use swap_space={max(left, 0) * 100 // _GIB / 100:g} or less, or free memory."
        )
    return asked


def _room(profile: MemoryProfile) -> int:
    """For KV memory, where mapped weights give way."""
    mapped = profile.mapped_bytes + profile.other_mapped_bytes
    return profile.available_bytes + mapped - profile.activation_bytes - profile.adapter_bytes


def _taken(profile: MemoryProfile) -> str:
    if not profile.adapter_bytes:
        return "weights and activations"
    return f"weights, activations and {exact_size(profile.adapter_bytes)} for adapters (max_loras x max_lora_rank)"


def _too_many_blocks(config: EngineConfig, profile: MemoryProfile, asked: int) -> OutOfMemoryError:
    room, need = _room(profile), exact_size(asked * profile.block_bytes)
    if config.num_gpu_blocks_override:
        wanted, fits = f"num_gpu_blocks_override={asked:,} needs {need}", room // profile.block_bytes
        way_out = f"num_gpu_blocks_override={fits:,}"
    else:
        wanted = f"kv_cache_memory={config.kv_cache_memory:,} is {need} in {asked:,} KV blocks"
        way_out = f"kv_cache_memory={room:,}"
    left = f"{exact_size(room)} are left beside {_taken(profile)}"
    return OutOfMemoryError(f"{wanted}, and {left}. Use {way_out} or less.")


def _too_few_bytes(config: EngineConfig, profile: MemoryProfile) -> ConfigError:
    return ConfigError(
        f"kv_cache_memory={config.kv_cache_memory} holds no KV block: one of {config.block_size} tokens needs "
        f"{exact_size(profile.block_bytes)}. Use {profile.block_bytes} or more, or leave it out."
    )


def _no_room(config: EngineConfig, size: Size, profile: MemoryProfile) -> OutOfMemoryError:
    left = _room(profile) + profile.activation_bytes + profile.adapter_bytes
    free, activations = exact_size(max(left, 0)), exact_size(profile.activation_bytes)
    if profile.activation_bytes > left:
        return OutOfMemoryError(
            f"A step of max_num_batched_tokens={size.max_num_batched_tokens:,} needs {activations} for activations, "
            f"and {free} are free beside the weights. Use a smaller max_num_batched_tokens, or free memory."
        )
    return OutOfMemoryError(
        f"One KV block of {config.block_size} tokens needs {exact_size(profile.block_bytes)}, and "
        f"{exact_size(max(_room(profile), 0))} are left beside {_taken(profile)}. Free memory, or use a smaller model "
        "or max_num_batched_tokens."
    )


def _too_long(config: EngineConfig, profile: MemoryProfile, wanted_len: int, num_blocks: int) -> Exception:
    need = -(-wanted_len // config.block_size)
    sentence = (
        f"max_model_len={wanted_len:,} needs {need:,} KV blocks ({exact_size(need * profile.block_bytes)}), and there "
        f"are {num_blocks:,} ({exact_size(num_blocks * profile.block_bytes)}). "
        f"Use max_model_len={num_blocks * config.block_size:,} or less"
    )
    if config.num_gpu_blocks_override:
        return ConfigError(f"{sentence}, or num_gpu_blocks_override={need:,}.")
    if config.kv_cache_memory:
        return ConfigError(f"{sentence}, or kv_cache_memory={need * profile.block_bytes:,}.")
    if profile.device == "cpu":
        return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or free memory.")
    return OutOfMemoryError(f"{sentence}, a kv_cache_dtype of fewer bytes, or raise gpu_memory_utilization.")
