"""Metrics for Prometheus, per model: its engine's statistics, and durations of requests over HTTP.

They are written in Prometheus' text format; the page draws its plots from the same text.
"""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from ...protocol.stats import Stats
from ..requests.budget import Budget

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

# Name, kind, meaning, and how to compute it from an engine's statistics.
OF_THE_ENGINE: tuple[tuple[str, str, str, Callable[[Stats], float]], ...] = (
    ("requests_running", "gauge", "Sequences in computation", lambda s: s.running),
    ("requests_waiting", "gauge", "Sequences that wait for room", lambda s: s.waiting),
    ("kv_blocks", "gauge", "KV blocks there are", lambda s: s.blocks),
    ("kv_blocks_used", "gauge", "KV blocks held by sequences", lambda s: s.blocks - s.free_blocks),
    ("kv_usage_ratio", "gauge", "Share of KV memory in use", lambda s: s.kv_usage),
    ("steps_total", "counter", "Steps computed", lambda s: s.steps),
    ("step_seconds_total", "counter", "Seconds spent in them", lambda s: s.step_seconds),
    ("prompt_tokens_total", "counter", "Prompt tokens of admitted requests", lambda s: s.prompt_tokens),
    ("prefix_hit_tokens_total", "counter", "Prompt tokens found in the prefix cache", lambda s: s.cached_tokens),
    ("generated_tokens_total", "counter", "Tokens generated", lambda s: s.generated_tokens),
    ("draft_tokens_total", "counter", "Tokens drafted", lambda s: s.draft_tokens),
    ("accepted_tokens_total", "counter", "Drafts that were the tokens sampled", lambda s: s.accepted_tokens),
    ("preemptions_total", "counter", "Sequences that had to give up their blocks", lambda s: s.preemptions),
    ("kv_blocks_saved_total", "counter", "KV blocks moved to CPU memory", lambda s: s.saved_blocks),
    ("kv_blocks_loaded_total", "counter", "KV blocks found there and moved back", lambda s: s.loaded_blocks),
    ("kv_blocks_stored_total", "counter", "KV blocks written to disk", lambda s: s.stored_blocks),
    ("kv_blocks_fetched_total", "counter", "KV blocks found on disk and read", lambda s: s.fetched_blocks),
    ("media_usage_ratio", "gauge", "Share of the memory of encoded pictures in use", lambda s: s.media_usage),
    ("media_encoded_total", "counter", "Pictures and videos encoded", lambda s: s.encoded_media),
    ("media_kept", "gauge", "Pictures and videos whose rows are on disk", lambda s: s.kept_media),
    ("media_fetched_total", "counter", "Pictures and videos found on disk and read", lambda s: s.fetched_media),
)
# The same under the names that vLLM's dashboards read.
OF_VLLM: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("spec_decode_num_drafts_total", "Drafts checked, of one token or more", lambda s: s.drafts),
    ("spec_decode_num_draft_tokens_total", "Tokens drafted", lambda s: s.draft_tokens),
    ("spec_decode_num_accepted_tokens_total", "Drafts that were the tokens sampled", lambda s: s.accepted_tokens),
)
_STORED = {
    "stored_bytes": "Bytes counted for clients' files",
    "batches_unfinished": "Batches that haven't ended",
    "batches_running": "Batches that are being answered",
}
_HISTOGRAMS = {
    "time_to_first_token_seconds": "From a request's arrival to its first token",
    "time_between_tokens_seconds": "Between two tokens of a streamed answer",
    "request_seconds": "From a request's arrival to its end",
}


class Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(_SECONDS, seconds)] += times
        self.total += seconds * times

    def lines(self, name: str, labels: str) -> Iterator[str]:
        so_far = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self.counts):
            so_far += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {so_far}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {so_far}"


class RequestTimer:
    """Measures one answer: the time to its first token, between tokens, and to its end."""

    def __init__(self, histograms: Mapping[str, Histogram]) -> None:
        self._histograms = histograms
        self._start = time.perf_counter()
        self._last: float | None = None

    def piece(self, tokens: int) -> None:
        now = time.perf_counter()
        if self._last is None:
            self._histograms["time_to_first_token_seconds"].add(now - self._start)
        elif tokens:
            self._histograms["time_between_tokens_seconds"].add((now - self._last) / tokens, tokens)
        self._last = now

    def end(self) -> None:
        self._histograms["request_seconds"].add(time.perf_counter() - self._start)


class Metrics:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._histograms: dict[str, dict[str, Histogram]] = defaultdict(
            lambda: {name: Histogram() for name in _HISTOGRAMS}
        )
        self._replies: Counter[tuple[str, int]] = Counter()

    def timer(self, model: str) -> RequestTimer:
        return RequestTimer(self._histograms[model])

    def count(self, endpoint: str, status: int) -> None:
        self._replies[endpoint, status] += 1

    def text(self, engines: Mapping[str, Stats], waiting: int, stored: Mapping[str, int]) -> str:
        return "\n".join((*_engines(engines), *_as_vllm(engines), *self._own(waiting), *_stored(stored))) + "\n"

    def _own(self, waiting: int) -> Iterator[str]:
        yield from _head("http_waiting", "gauge", "Requests that wait before they reach a model (max_requests)")
        yield f"penstock_http_waiting {waiting}"
        yield from _head("held_bytes", "gauge", "Bytes held for clients of the daemon")
        yield f"penstock_held_bytes {self._budget.used}"
        yield from _head("held_bytes_limit", "gauge", "The most of these that there may be (max_held_bytes)")
        yield f"penstock_held_bytes_limit {self._budget.total}"
        yield from _head("http_replies_total", "counter", "Replies by endpoint and status")
        for (endpoint, status), count in sorted(self._replies.items()):
            yield f'penstock_http_replies_total{{endpoint="{endpoint}",status="{status}"}} {count}'
        for name, meaning in _HISTOGRAMS.items():
            yield from _head(name, "histogram", meaning)
            for model, histograms in list(self._histograms.items()):
                yield from histograms[name].lines(f"penstock_{name}", _label(model))


def _engines(engines: Mapping[str, Stats]) -> Iterator[str]:
    for name, kind, meaning, found in OF_THE_ENGINE:
        yield from _head(name, kind, meaning)
        for model, stats in engines.items():
            yield f"penstock_{name}{{{_label(model)}}} {found(stats)}"


def _as_vllm(engines: Mapping[str, Stats]) -> Iterator[str]:
    for name, meaning, found in OF_VLLM:
        yield from _head(name, "counter", meaning, prefix="vllm:")
        for model, stats in engines.items():
            yield f"vllm:{name}{{{_label(model, 'model_name')}}} {found(stats)}"


def _stored(figures: Mapping[str, int]) -> Iterator[str]:
    for name, figure in figures.items():
        yield from _head(name, "gauge", _STORED[name])
        yield f"penstock_{name} {figure}"


def _head(name: str, kind: str, meaning: str, prefix: str = "penstock_") -> Iterator[str]:
    yield f"# HELP {prefix}{name} {meaning}"
    yield f"# TYPE {prefix}{name} {kind}"


def _label(model: str, name: str = "model") -> str:
    escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'
