"""Reports that a model is ready: in one line, or in a table of device, memory plan and limits.

The table is shown on request, and if there is something unusual to report.
"""

import textwrap

from ...protocol.files.prefix_folder import size_of_folder
from ...protocol.files.sizes import size
from ...protocol.layer_groups import GroupPlan
from ...protocol.memory_plan import MemoryPlan
from ...protocol.options.config import EngineConfig
from ..models.pooled_model import PooledModel
from .number_rows import kind_of, number_rows


def start_words(
    config: EngineConfig,
    plan: MemoryPlan,
    columns: int | None = None,
    pooled: PooledModel | None = None,
    *,
    is_verbose: bool,
) -> str:
    if is_verbose or plan.notes or (pooled is not None and pooled.is_guess):
        return start_table(config, plan, columns, pooled)
    return start_line(config, plan, columns, pooled)


def start_line(
    config: EngineConfig, plan: MemoryPlan, columns: int | None = None, pooled: PooledModel | None = None
) -> str:
    each = each_of(config)
    taken = plan.taken_by(config.tensor_parallel_size, config.data_parallel_size)
    memory = f"{size(taken)} of memory ({size(plan.kv_bytes)}{each} for total_block_num:"
    return _fitted(
        "penstock is ready: ",
        f"{config.served_model_name or config.model} on {plan.device_name}{each}, "
        f"{memory}{plan.num_blocks}), {plan.max_model_len:,} tokens per request"
        + ("" if pooled is None else f", {kind_of(pooled, plan.vector_width)}"),
        columns,
        indent=2,
    )


def start_table(
    config: EngineConfig, plan: MemoryPlan, columns: int | None = None, pooled: PooledModel | None = None
) -> str:
    """Build the table; on a terminal this wide, longer texts are wrapped between words."""
    ranks = config.tensor_parallel_size
    tokens = plan.num_blocks * config.block_size
    rows = [
        ("model", config.served_model_name or config.model),
        ("device", f"{plan.device_name}{each_of(config)}"),
        ("kernels", plan.kernels),
        ("weights", f"{size(plan.weight_bytes)} {plan.dtype}" + (" per rank" if ranks > 1 else "") + _resident(plan)),
        ("KV cache", f"{size(plan.kv_bytes)} {plan.kv_dtype}{_per_tree(config)}, total_block_num:{plan.num_blocks} "
                     f"x {config.block_size} = {tokens:,} tokens"),
        *_groups(config, plan),
        ("context", f"{plan.max_model_len:,} tokens per request" + _cut(plan)),
        *([] if pooled is None else number_rows(pooled, plan.vector_width)),
        *_swap(config, plan),
        *_disk(config),
        *_adapters(config, plan),
        *_drafts(config),
        ("memory", f"{size(plan.available_bytes)} available, {size(plan.activation_bytes)} for activations"),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    lines = [_fitted(f"  {name:<{width}}  ", text, columns) for name, text in rows]
    return "\n".join(["penstock is ready", *lines, *(_fitted("  ", note, columns) for note in plan.notes)])


def each_of(config: EngineConfig) -> str:
    """How often the tree's processes are there: several ranks of several trees."""
    counts = ((config.tensor_parallel_size, "ranks"), (config.data_parallel_size, "trees"))
    return "".join(f" x {count} {what}" for count, what in counts if count > 1)


def _per_tree(config: EngineConfig) -> str:
    return " per tree" if config.data_parallel_size > 1 else ""


def _fitted(before: str, text: str, columns: int | None, indent: int | None = None) -> str:
    if columns is None or len(before + text) <= columns:
        return before + text
    return textwrap.fill(
        text, columns, initial_indent=before, subsequent_indent=" " * (len(before) if indent is None else indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _groups(config: EngineConfig, plan: MemoryPlan) -> list[tuple[str, str]]:
    """The memory of each kind of layers, if there are several."""
    names = ("drafts" if group.is_drafting else group.kind for group in plan.groups)
    rows = zip(names, plan.groups) if len(plan.groups) > 1 else ()
    return [(f"  {name}", _described(config, group)) for name, group in rows]


def _described(config: EngineConfig, group: GroupPlan) -> str:
    layers = f"{group.num_layers} layer" + ("s" if group.num_layers > 1 else "")
    seen = "" if group.window is None else f" with windows of {group.window:,} tokens"
    if group.kind == "state":
        memory = f"{group.num_blocks:,} states of {size(group.block_bytes)}"
    else:
        memory = f"{group.num_blocks:,} blocks of {config.block_size} tokens"
    return f"{size(group.num_blocks * group.block_bytes)} for {layers}{seen}, {memory}"


def _swap(config: EngineConfig, plan: MemoryPlan) -> list[tuple[str, str]]:
    if not plan.num_cpu_blocks:
        return []
    tokens = plan.num_cpu_blocks * config.block_size
    return [("swap", f"{size(plan.swap_bytes)} of CPU memory, {tokens:,} tokens")]


def _disk(config: EngineConfig) -> list[tuple[str, str]]:
    if not config.keeps_prefixes:
        return []
    return [("on disk", f"prefixes, up to {size(size_of_folder(config))} in {config.prefix_cache_dir or 'the cache'}")]


def _adapters(config: EngineConfig, plan: MemoryPlan) -> list[tuple[str, str]]:
    if not config.enable_lora:
        return []
    most = f"up to {config.max_loras} of rank {config.max_lora_rank} or less"
    return [("adapters", f"{size(plan.adapter_bytes)} for {most}")]


def _drafts(config: EngineConfig) -> list[tuple[str, str]]:
    """Where drafts come from, if the user has said so."""
    if (speculation := config.speculative_config) is None:
        return []
    source = speculation.model or speculation.file
    of = "" if source is None else f" of {source}"
    most = speculation.num_speculative_tokens
    return [("drafts", f"{speculation.method}{of}" + ("" if most is None else f", up to {most:,} per step"))]


def _resident(plan: MemoryPlan) -> str:
    if plan.resident_bytes is None or plan.resident_bytes >= plan.weight_bytes:
        return ""
    return f", about {size(plan.resident_bytes)} of them in memory"


def _cut(plan: MemoryPlan) -> str:
    if plan.max_model_len >= plan.model_context:
        return ""
    return f" (the model's maximum: {plan.model_context:,})"
