"""Metrics for Prometheus, per model: its engine's statistics, and durations and sizes of requests over HTTP.

They are written in Prometheus' text format, also under the names that vLLM has for them (`vllm_names.py`); the page
draws its plots from the same text.
"""

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...protocol.outputs import RequestMetrics
from ...protocol.stats import Stats
from ..requests.budget import Budget
from .vllm_names import OF_REQUESTS, PREFIX, REASONS, described_rows, escaped, special_lines

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)

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
_STORED = {
    "stored_bytes": "Bytes counted for clients' files",
    "batches_unfinished": "Batches that haven't ended",
    "batches_running": "Batches that are being answered",
}
# Meaning and upper limits.
_HISTOGRAMS: dict[str, tuple[str, Sequence[float]]] = {
    "time_to_first_token_seconds": ("From a request's arrival to its first token", _SECONDS),
    "time_between_tokens_seconds": ("Between two tokens of a streamed answer", _SECONDS),
    "request_seconds": ("From a request's arrival to its end", _SECONDS),
    "request_queue_seconds": ("From a request's arrival to its first step", _SECONDS),
    "request_prompt_seconds": ("From a request's first step to its first token", _SECONDS),
    "request_answer_seconds": ("From a request's first token to its last", _SECONDS),
    "request_inference_seconds": ("From a request's first step to its last token", _SECONDS),
    "request_seconds_per_token": ("The same as request_answer_seconds, for each token after the first", _SECONDS),
    "request_prompt_tokens": ("Tokens of a prompt", _TOKENS),
    "request_generated_tokens": ("Tokens of a prompt's answers", _TOKENS),
}


class Histogram:
    def __init__(self, bounds: Sequence[float] = _SECONDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    def take(self, other: "Histogram") -> None:
        """Count what another one has counted, too."""
        self.counts = list(map(sum, zip(self.counts, other.counts)))
        self.total += other.total

    def lines(self, name: str, labels: str) -> Iterator[str]:
        so_far = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self.counts):
            so_far += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {so_far}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {so_far}"


class RequestFigures:
    """What is known of one model's requests."""

    def __init__(self) -> None:
        self.histograms = {name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self.by_reason: Counter[str] = Counter()  # answers that have ended

    def add(self, name: str, value: float, times: int = 1) -> None:
        self.histograms[name].add(value, times)

    def take(self, other: "RequestFigures") -> None:
        """Count what another server has counted of the same model's requests, too."""
        for name, histogram in other.histograms.items():
            self.histograms[name].take(histogram)
        self.by_reason.update(other.by_reason)


class RequestTimer:
    """Measures the answer to one prompt: the time to its first token, between tokens, and to its end."""

    def __init__(self, figures: RequestFigures) -> None:
        self._figures = figures
        self._start = time.perf_counter()
        self._last: float | None = None
        self._has_ended = False

    def piece(self, tokens: int) -> None:
        now = time.perf_counter()
        if self._last is None:
            self._figures.add("time_to_first_token_seconds", now - self._start)
        elif tokens:
            self._figures.add("time_between_tokens_seconds", (now - self._last) / tokens, tokens)
        self._last = now

    def end(self, reasons: Sequence[str], metrics: RequestMetrics | None = None, num_tokens: int = 0) -> None:
        """Note the end of its samples, each with its reason, what the engine and the detokenizer have measured, and how
        many tokens all samples have."""
        self._has_ended = True
        self._figures.add("request_seconds", time.perf_counter() - self._start)
        self._figures.by_reason.update(reasons)
        if metrics is None:
            return
        self._figures.add("request_prompt_tokens", metrics.num_prompt_tokens)
        self._figures.add("request_generated_tokens", num_tokens)
        if metrics.time_in_queue is None or metrics.first_token_time is None:
            return
        if self._last is None:  # it wasn't streamed
            self._figures.add("time_to_first_token_seconds", metrics.first_token_time)
        prompt_seconds = max(0.0, metrics.first_token_time - metrics.time_in_queue)
        self._figures.add("request_queue_seconds", metrics.time_in_queue)
        self._figures.add("request_prompt_seconds", prompt_seconds)
        if metrics.model_execute_time is not None:
            answer_seconds = max(0.0, metrics.model_execute_time - prompt_seconds)
            self._figures.add("request_inference_seconds", metrics.model_execute_time)
            self._figures.add("request_answer_seconds", answer_seconds)
            if (rest := num_tokens // max(len(reasons), 1) - 1) > 0:
                self._figures.add("request_seconds_per_token", answer_seconds / rest)

    def give_up(self) -> None:
        """Note that its client has left, unless it has ended."""
        self._figures.by_reason["abort"] += not self._has_ended


class Metrics:
    """The counters and timers of a server."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._requests: defaultdict[str, RequestFigures] = defaultdict(RequestFigures)
        self._replies: Counter[tuple[str, int]] = Counter()

    def timer(self, model: str) -> RequestTimer:
        return RequestTimer(self._requests[model])

    def count(self, endpoint: str, status: int) -> None:
        self._replies[endpoint, status] += 1

    def figures(self, waiting: int) -> "HttpFigures":
        return HttpFigures(dict(self._requests), self._replies, waiting, self._budget.used, self._budget.total)


@dataclass
class HttpFigures:
    """The counts so far of a server, or of several that look like one."""

    requests: dict[str, RequestFigures] = field(default_factory=dict)  # by model
    replies: Counter[tuple[str, int]] = field(default_factory=Counter)  # by endpoint and status
    waiting: int = 0
    held_bytes: int = 0
    most_held_bytes: int = 0

    @classmethod
    def total(cls, each: Iterable["HttpFigures"]) -> "HttpFigures":
        found = cls()
        for one in each:
            for model, figures in one.requests.items():
                found.requests.setdefault(model, RequestFigures()).take(figures)
            found.replies.update(one.replies)
            found.waiting += one.waiting
            found.held_bytes += one.held_bytes
            found.most_held_bytes += one.most_held_bytes
        return found

    def text(self, engines: Mapping[str, Stats], stored: Mapping[str, int]) -> str:
        own = (*_engines(engines), *_replicas(engines), *self._own(), *_stored(stored))
        return "\n".join((*own, *_engines_as_vllm(engines), *self._requests_as_vllm())) + "\n"

    def _own(self) -> Iterator[str]:
        yield from _head("http_waiting", "gauge", "Requests that wait before they reach a model (max_requests)")
        yield f"penstock_http_waiting {self.waiting}"
        yield from _head("held_bytes", "gauge", "Bytes held for clients of the daemon")
        yield f"penstock_held_bytes {self.held_bytes}"
        yield from _head("held_bytes_limit", "gauge", "The most of these that there may be (max_held_bytes)")
        yield f"penstock_held_bytes_limit {self.most_held_bytes}"
        yield from _head("http_replies_total", "counter", "Replies by endpoint and status")
        for (endpoint, status), count in sorted(self.replies.items()):
            yield f'penstock_http_replies_total{{endpoint="{endpoint}",status="{status}"}} {count}'
        for name, (meaning, _) in _HISTOGRAMS.items():
            yield from _head(name, "histogram", meaning)
            for model, figures in self.requests.items():
                yield from figures.histograms[name].lines(f"penstock_{name}", _label(model))

    def _requests_as_vllm(self) -> Iterator[str]:
        for name, own in OF_REQUESTS.items():
            yield from _head(name, "histogram", _HISTOGRAMS[own][0], prefix=PREFIX)
            for model, figures in self.requests.items():
                yield from figures.histograms[own].lines(PREFIX + name, _vllm_labels(model))
        yield from _head("request_success_total", "counter", "Answers by the reason of their end", prefix=PREFIX)
        for model, figures in self.requests.items():
            for reason in dict.fromkeys((*REASONS, *figures.by_reason)):
                labels = f'{_vllm_labels(model)},finished_reason="{reason}"'
                yield f"{PREFIX}request_success_total{{{labels}}} {figures.by_reason[reason]}"


def _engines(engines: Mapping[str, Stats]) -> Iterator[str]:
    for name, kind, meaning, found in OF_THE_ENGINE:
        yield from _head(name, kind, meaning)
        for model, stats in engines.items():
            yield f"penstock_{name}{{{_label(model)}}} {found(stats)}"


def _replicas(engines: Mapping[str, Stats]) -> Iterator[str]:
    """The same of each tree, where a model has several. Their own names keep sums over all series right."""
    several = {model: stats.replicas for model, stats in engines.items() if stats.replicas}
    for name, kind, meaning, found in OF_THE_ENGINE if several else ():
        yield from _head(f"replica_{name}", kind, f"{meaning}, of one tree")
        for model, replicas in several.items():
            for number, stats in enumerate(replicas):
                yield f'penstock_replica_{name}{{{_label(model)},replica="{number}"}} {found(stats)}'


def _engines_as_vllm(engines: Mapping[str, Stats]) -> Iterator[str]:
    """Each tree is an engine of its own, as each rank of data parallelism is in vLLM."""
    by_labels = {
        _vllm_labels(model, number): each
        for model, stats in engines.items()
        for number, each in enumerate(stats.replicas or [stats])
    }
    for name, kind, meaning, found in described_rows():
        yield from _head(name, kind, meaning, prefix=PREFIX)
        for labels, stats in by_labels.items():
            yield f"{PREFIX}{name}{{{labels}}} {found(stats)}"
    yield from special_lines(by_labels)


def _stored(figures: Mapping[str, int]) -> Iterator[str]:
    for name, figure in figures.items():
        yield from _head(name, "gauge", _STORED[name])
        yield f"penstock_{name} {figure}"


def _head(name: str, kind: str, meaning: str, prefix: str = "penstock_") -> Iterator[str]:
    yield f"# HELP {prefix}{name} {meaning}"
    yield f"# TYPE {prefix}{name} {kind}"


def _label(model: str) -> str:
    return f'model="{escaped(model)}"'


def _vllm_labels(model: str, engine: int = 0) -> str:
    return f'model_name="{escaped(model)}",engine="{engine}"'
