"""`LLM.get_metrics()`: the engine's statistics as a list of objects, as vLLM's call of that name returns them.

What vLLM counts, too, has vLLM's name; the rest has the name that it has at /metrics.
"""

from dataclasses import dataclass
from itertools import accumulate

from ..protocol.stats import STEP_TOKENS, Stats
from .http import vllm_names
from .http.metrics import OF_THE_ENGINE


@dataclass
class Metric:
    name: str
    labels: dict[str, str]


@dataclass
class Counter(Metric):
    """A number that only grows."""

    value: float


@dataclass
class Gauge(Metric):
    """A number that rises and falls."""

    value: float


@dataclass
class Vector(Metric):
    """Counters in an order."""

    values: list[int]


@dataclass
class Histogram(Metric):
    """Observations, counted by their upper limits: each limit's count includes those of the smaller ones."""

    count: int
    sum: float
    buckets: dict[str, int]


def metrics_of(stats: Stats, model: str) -> list[Metric]:
    labels = {"model_name": model}
    kinds = {"counter": Counter, "gauge": Gauge}
    own = [
        kinds[kind](f"penstock_{name}".removesuffix("_total"), labels, found(stats))
        for name, kind, _, found in OF_THE_ENGINE
    ]
    others = [
        kinds[kind](f"vllm:{name}".removesuffix("_total"), labels, found(stats))
        for name, kind, _, found in vllm_names.OF_THE_ENGINE
    ]
    taken = Vector("vllm:spec_decode_num_accepted_tokens_per_pos", labels, list(stats.accepted_by_position))
    so_far = dict(zip((*map(str, STEP_TOKENS), "+Inf"), accumulate(stats.steps_by_tokens)))
    steps = Histogram("vllm:iteration_tokens_total", labels, stats.steps, stats.step_tokens, so_far)
    return [*others, taken, steps, *own]
