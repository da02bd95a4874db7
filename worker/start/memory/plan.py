"""The memory plan of one rank, made before allocation: weights, activations, and the blocks and states that fit.

An error names a value that would fit. Weights mapped from a file need not fit: the system rereads pages that it has
dropped, which is slow, so the plan mentions it. Everything else must fit.
"""

from ....protocol.errors import ConfigError
from ....protocol.files.sizes import size
from ....protocol.layer_groups import GroupPlan
from ....protocol.memory_plan import MemoryPlan
from ....protocol.options.config import EngineConfig
from . import errors
from .default_kv_memory import default_kv_bytes, least_kv_bytes
from .profile import MemoryProfile, Size
from .shares import GroupSize, Shares
from .weights_fit import smaller_format

_GIB = 1 << 30
_KINDS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # of unquantized weights


def memory_plan(config: EngineConfig, size: Size, profile: MemoryProfile) -> MemoryPlan:
    """Plan the number of blocks and the longest request; raise if nothing fits."""
    wanted_len, notes = _checked_length(config, profile), list(profile.notes)
    shares = shares_of(config, size, profile.groups)
    num_blocks, max_model_len = _num_blocks(config, size, profile, shares, wanted_len)
    if max_model_len < wanted_len:
        others = "" if shares.is_one_kind else " besides what other requests need"
        notes.append(
            f"max_model_len is cut from {wanted_len:,} to {max_model_len:,}, which is what KV memory holds{others}; "
            f"kv_cache_memory={shares.bytes_beside_others(wanted_len)} holds it all."
        )
    kv_bytes = shares.bytes_of(num_blocks)
    resident = _resident_bytes(config, profile, kv_bytes)
    if resident < profile.mapped_bytes:
        notes.append(_larger_than_memory(profile, resident))
    if profile.stretches and max_model_len > profile.stretches[0]:
        notes.append(_stretched(profile.stretches, max_model_len))
    return MemoryPlan(
        device=profile.device,
        device_name=profile.device_name,
        weight_bytes=profile.weight_bytes,
        activation_bytes=profile.activation_bytes,
        available_bytes=_free_at_start(profile),
        groups=_group_plans(config, profile, num_blocks, kv_bytes),
        max_model_len=max_model_len,
        model_context=profile.model_context,
        vocab_size=profile.vocab_size,
        dtype=profile.dtype,
        kv_dtype=profile.kv_dtype,
        kernels=profile.kernels,
        kernels_digest=profile.kernels_digest,
        notes=notes,
        adapter_bytes=profile.adapter_bytes,
        stretches=list(profile.stretches),
        media=profile.media,
        num_layers=profile.num_layers,
        is_deterministic=profile.is_deterministic,
        layer_keys=profile.layer_keys,
        vector_width=profile.vector_width,
        has_whole_texts=profile.has_whole_texts,
        resident_bytes=profile.weight_bytes - profile.mapped_bytes + min(resident, profile.mapped_bytes),
    )


def _stretched(lengths: tuple[int, ...], max_model_len: int) -> str:
    borders = " and ".join(f"{length:,}" for length in lengths if length < max_model_len)
    return (
        "The angles of positions depend on a request's length (rope type dynamic or longrope): what it has computed is "
        f"computed anew when it grows beyond {borders} tokens."
    )


def shares_of(config: EngineConfig, size: Size, groups: tuple[GroupSize, ...]) -> Shares:
    return Shares(groups, config.block_size, size.num_slots, size.max_num_batched_tokens)


def kv_bytes_at_least(config: EngineConfig, shares: Shares, longest: int, free: int, weight_bytes: int) -> int:
    """One rank's KV memory when mapped weights don't fit: the requested size, or a little."""
    if config.num_gpu_blocks_override:
        length = shares.longest_in_first(config.num_gpu_blocks_override, longest)
        return shares.bytes_of(shares.of_first_group(config.num_gpu_blocks_override, length))
    if config.kv_cache_memory:
        return config.kv_cache_memory
    if config.max_model_len is not None:
        return shares.needed_bytes(config.max_model_len)
    return least_kv_bytes(free, weight_bytes, config)


def swap_bytes(config: EngineConfig) -> int:
    """Bytes of the second tier on each rank."""
    return int((config.swap_space or 0) * _GIB)


def _free_at_start(profile: MemoryProfile) -> int:
    """Memory that was free to this rank before weights were loaded."""
    return profile.available_bytes + profile.weight_bytes + profile.other_mapped_bytes


def _resident_bytes(config: EngineConfig, profile: MemoryProfile, kv_bytes: int) -> int:
    """Bytes left for this rank's mapped weights once everything else is allocated."""
    ranks = config.tensor_parallel_size
    other_bytes = profile.beside_bytes + kv_bytes + swap_bytes(config)
    return max(0, profile.available_bytes + profile.mapped_in_all - ranks * other_bytes) // ranks


def _larger_than_memory(profile: MemoryProfile, resident: int) -> str:
    smaller = smaller_format(profile.mapped_bytes, resident, _KINDS.get(profile.dtype, profile.dtype))
    return (
        f"The model is larger than memory: its weights are mapped from the disk, and of {size(profile.mapped_bytes)} "
        f"about {size(resident)} ({resident * 100 // profile.mapped_bytes} %) stay in memory. The rest is read from "
        f"there again for the tokens that need it, which is slow. Use {smaller}a smaller model, or more memory."
    )


def host_bytes_of(plan: MemoryPlan) -> int:
    """CPU memory that the plan takes from now on."""
    if plan.device != "cpu":
        return plan.swap_bytes
    media = 0 if plan.media is None else plan.media.kept_bytes
    return plan.swap_bytes + plan.kv_bytes + plan.adapter_bytes + media


def _checked_length(config: EngineConfig, profile: MemoryProfile) -> int:
    wanted = config.max_model_len or profile.model_context
    if wanted > profile.model_context:
        context = f"the model's own context of {profile.model_context:,}"
        if profile.context_cut:
            context = f"the {profile.model_context:,} tokens up to which attention is exact: {profile.context_cut}"
        raise ConfigError(
            f"max_model_len={wanted:,} is more than {context}. Use max_model_len={profile.model_context:,} or less."
        )
    return wanted


def _num_blocks(
    config: EngineConfig, size: Size, profile: MemoryProfile, shares: Shares, wanted_len: int
) -> tuple[list[int], int]:
    """The blocks that the options ask for, which must all fit, or by default as many as are useful; and the length
    that they hold."""
    if profile.room < shares.needed_bytes(1):
        raise errors.no_room(config, size, profile, shares)
    if count := config.num_gpu_blocks_override:
        length = shares.longest_in_first(count, wanted_len)
        num_blocks = shares.of_first_group(count, length)
        if shares.bytes_of(num_blocks) > profile.room:
            raise errors.too_many_blocks(config, profile, shares, wanted_len)
    else:
        num_bytes = config.kv_cache_memory or _default_kv_bytes(config, profile, shares, wanted_len)
        longest = shares.longest_beside_others if config.max_model_len is None else shares.longest
        length = longest(num_bytes, wanted_len)
        if config.kv_cache_memory:
            if not length:
                raise errors.too_few_bytes(config, shares)
            if num_bytes > profile.room:
                raise errors.too_many_bytes(config, profile, shares.of_bytes(num_bytes, length))
        num_blocks = shares.of_bytes(num_bytes, length)
    if config.max_model_len is not None and length < wanted_len:
        raise errors.too_long(config, profile, shares, num_blocks, length)
    return num_blocks, length


def _default_kv_bytes(config: EngineConfig, profile: MemoryProfile, shares: Shares, wanted_len: int) -> int:
    """The default size of KV memory."""
    if profile.device != "cpu":
        return profile.room
    return default_kv_bytes(
        config,
        shares,
        wanted_len,
        free_at_start=_free_at_start(profile),
        weight_bytes=profile.weight_bytes,
        room=profile.room,
        mapped_bytes=profile.mapped_in_all if profile.mapped_bytes else 0,
    )


def _group_plans(config: EngineConfig, profile: MemoryProfile, num_blocks: list[int], kv_bytes: int) -> list[GroupPlan]:
    """Add cells of the second tier: each group's share of swap_space equals its share of KV memory."""
    swap, plans = swap_bytes(config), []
    for group, count in zip(profile.groups, num_blocks, strict=True):
        cells = swap * count // kv_bytes
        size = group.num_layers, group.block_bytes, count
        plans.append(GroupPlan(group.kind, *size, group.window, cells, group.is_drafting))
    if swap:
        _check_swap(config, profile, plans, kv_bytes)
    return plans


def _check_swap(config: EngineConfig, profile: MemoryProfile, plans: list[GroupPlan], kv_bytes: int) -> None:
    """Check that all cells fit into free CPU memory and that each group has one."""
    if not all(plan.num_cpu_blocks for plan in plans):
        raise errors.no_cell(config, max(-(-kv_bytes // plan.num_blocks) for plan in plans))
    left = max(0, profile.host_bytes if profile.device != "cpu" else profile.room - kv_bytes)
    if sum(plan.num_cpu_blocks * plan.block_bytes for plan in plans) > left:
        raise errors.no_room_to_swap(config, left)
