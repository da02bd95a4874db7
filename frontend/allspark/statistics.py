"""`AsEngineStat`: statistics of one model of an engine, under DashInfer's names."""

from dataclasses import asdict, dataclass
from typing import Any

from ...protocol.stats import Stats


@dataclass
class AsEngineStat:
    """All is 0 while the model isn't running; counts are since its last start."""

    model_name: str = ""
    free_token: int = 0  # of KV memory
    total_token: int = 0
    pendding_request: int = 0
    running_request: int = 0
    total_generated_token: int = 0
    total_prefill_token: int = 0
    generate_token_persec: float = 0.0  # of the time in which steps ran
    process_token_persec: float = 0.0  # prompts counted too
    total_device_memory_pool_size: int = 0  # bytes of KV memory, of all groups of layers
    used_device_memory_pool_size: int = 0
    prefix_cache_hit_token: int = 0
    prefix_cache_miss_token: int = 0
    prefix_cache_hit_rate: float = 0.0
    prefix_cache_miss_rate: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    dict = to_dict

    def ToString(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.to_dict().items())


def engine_stat(name: str, stats: Stats, block_size: int) -> AsEngineStat:
    hits, misses = stats.cached_tokens, stats.prompt_tokens - stats.cached_tokens
    seconds, prompts = stats.step_seconds or float("inf"), stats.prompt_tokens or 1
    return AsEngineStat(
        model_name=name,
        free_token=stats.free_blocks * block_size,
        total_token=stats.blocks * block_size,
        pendding_request=stats.waiting,
        running_request=stats.running,
        total_generated_token=stats.generated_tokens,
        total_prefill_token=stats.prompt_tokens,
        generate_token_persec=stats.generated_tokens / seconds,
        process_token_persec=(stats.generated_tokens + misses) / seconds,
        total_device_memory_pool_size=stats.kv_bytes,
        used_device_memory_pool_size=stats.used_kv_bytes,
        prefix_cache_hit_token=hits,
        prefix_cache_miss_token=misses,
        prefix_cache_hit_rate=hits / prompts,
        prefix_cache_miss_rate=misses / prompts,
    )
