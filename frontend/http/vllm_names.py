"""Metrics under the names that vLLM gives them, which dashboards, llm-d and vLLM's production stack read.

Each row says which of our figures has that name. What we don't measure has no row. Names that earlier versions of vLLM
had are rows of their own, because dashboards still read them.
"""

import time
from collections.abc import Callable, Iterator

from ...protocol.stats import STEP_TOKENS, Stats

PREFIX = "vllm:"

# Name, kind, meaning, and how to compute it from an engine's statistics.
OF_THE_ENGINE: tuple[tuple[str, str, str, Callable[[Stats], float]], ...] = (
    ("num_requests_running", "gauge", "Sequences in computation", lambda s: s.running),
    ("num_requests_waiting", "gauge", "Sequences that wait for room", lambda s: s.waiting),
    ("kv_cache_usage_perc", "gauge", "Share of KV memory in use, 1 at most", lambda s: s.kv_usage),
    ("num_preemptions_total", "counter", "Sequences that had to give up their blocks", lambda s: s.preemptions),
    ("prompt_tokens_total", "counter", "Prompt tokens of admitted requests", lambda s: s.prompt_tokens),
    ("prompt_tokens_cached_total", "counter", "Those found in the prefix cache", lambda s: s.cached_tokens),
    ("generation_tokens_total", "counter", "Tokens generated", lambda s: s.generated_tokens),
    ("prefix_cache_queries_total", "counter", "Tokens looked for in the prefix cache", lambda s: s.prompt_tokens),
    ("prefix_cache_hits_total", "counter", "Tokens found there", lambda s: s.cached_tokens),
    ("spec_decode_num_drafts_total", "counter", "Drafts checked, of one token or more", lambda s: s.drafts),
    ("spec_decode_num_draft_tokens_total", "counter", "Tokens drafted", lambda s: s.draft_tokens),
    (
        "spec_decode_num_accepted_tokens_total", "counter", "Drafts that were the tokens sampled",
        lambda s: s.accepted_tokens,
    ),
)  # fmt: skip
# Earlier names, each with the present one.
EARLIER = {
    "gpu_cache_usage_perc": "kv_cache_usage_perc",
    "gpu_prefix_cache_queries_total": "prefix_cache_queries_total",
    "gpu_prefix_cache_hits_total": "prefix_cache_hits_total",
}
# Histograms of requests: vLLM's name, and ours in `metrics.py`.
OF_REQUESTS = {
    "time_to_first_token_seconds": "time_to_first_token_seconds",
    "inter_token_latency_seconds": "time_between_tokens_seconds",
    "time_per_output_token_seconds": "time_between_tokens_seconds",  # an earlier name
    "e2e_request_latency_seconds": "request_seconds",
    "request_queue_time_seconds": "request_queue_seconds",
    "request_prefill_time_seconds": "request_prompt_seconds",
    "request_decode_time_seconds": "request_answer_seconds",
    "request_inference_time_seconds": "request_inference_seconds",
    "request_time_per_output_token_seconds": "request_seconds_per_token",
    "request_prompt_tokens": "request_prompt_tokens",
    "request_generation_tokens": "request_generated_tokens",
}
# Reasons that vLLM counts requests by; others of ours are counted under their own names.
REASONS = ("stop", "length", "abort", "error")


def described_rows() -> Iterator[tuple[str, str, str, Callable[[Stats], float]]]:
    """All rows of engines, earlier names included."""
    yield from OF_THE_ENGINE
    present = {row[0]: row for row in OF_THE_ENGINE}
    for earlier, name in EARLIER.items():
        _, kind, meaning, found = present[name]
        yield earlier, kind, f"{meaning} (an earlier name of {PREFIX}{name})", found


def special_lines(engines: dict[str, Stats]) -> Iterator[str]:
    """The metrics of engines that are no single number; `engines` by their labels."""
    for name, kind, meaning, lines in (
        ("iteration_tokens_total", "histogram", "Tokens of each step", _steps),
        ("spec_decode_num_accepted_tokens_per_pos_total", "counter", "Accepted drafts by position", _accepted),
        ("cache_config_info", "gauge", "Sizes of the KV cache, as labels", _cache),
        ("lora_requests_info", "gauge", "Adapters in use, as labels; the value is the time", _adapters),
    ):
        found = [line for labels, stats in engines.items() for line in lines(labels, stats)]
        if found:
            yield f"# HELP {PREFIX}{name} {meaning}"
            yield f"# TYPE {PREFIX}{name} {kind}"
            yield from (f"{PREFIX}{name}{line}" for line in found)


def _steps(labels: str, stats: Stats) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*map(str, STEP_TOKENS), "+Inf"), stats.steps_by_tokens):
        so_far += count
        yield f'_bucket{{{labels},le="{bound}"}} {so_far}'
    yield f"_sum{{{labels}}} {stats.step_tokens}"
    yield f"_count{{{labels}}} {so_far}"


def _accepted(labels: str, stats: Stats) -> Iterator[str]:
    for position, count in enumerate(stats.accepted_by_position):
        yield f'{{{labels},position="{position}"}} {count}'


def _cache(labels: str, stats: Stats) -> Iterator[str]:
    if not stats.blocks:
        return  # a tree that is being started again
    sizes = f'block_size="{stats.block_size}",num_gpu_blocks="{stats.blocks}"'
    yield f'{{{labels},{sizes},enable_prefix_caching="{stats.shares_prefixes}"}} 1'


def _adapters(labels: str, stats: Stats) -> Iterator[str]:
    if stats.max_loras:
        running, waiting = (escaped(",".join(names)) for names in (stats.running_loras, stats.waiting_loras))
        names = f'running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
        yield f'{{{labels},max_lora="{stats.max_loras}",{names}}} {time.time():.3f}'


def escaped(label: str) -> str:
    """A label's value as Prometheus' format has it."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
