"""How many replicas of a model a cluster gets, and the cores and cards of each."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray

from ..protocol.errors import ConfigError
from ..protocol.fields.rules import shown
from ..protocol.options.config import EngineConfig


class Replicas(NamedTuple):
    number: int
    num_cpus: float
    num_gpus: float

    @classmethod
    def of(cls, config: EngineConfig, number: int | None, num_cpus: float | None) -> "Replicas":
        """By default each node gets one, with all of its cores; several of a node share them."""
        _check(number, num_cpus)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else []
        cores = [node["CPU"] for node in nodes if node.get("CPU")] or [float(len(os.sched_getaffinity(0)))]
        if num_cpus is None:
            of_a_node = 1 if number is None else math.ceil(number / len(cores))
            num_cpus = max(1, int(min(cores) // of_a_node))
        if number is None:
            number = max(1, sum(int(each // num_cpus) for each in cores))
        has_cards = any(node.get("GPU", 0) for node in nodes)
        needs_cards = config.device == "cuda" or (config.device == "auto" and has_cards)
        return cls(number, float(num_cpus), float(config.tensor_parallel_size if needs_cards else 0))

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one replica, all on one node."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A tree's options, with as many threads as a replica has cores, unless others are given."""
        return {"num_threads": max(1, int(self.num_cpus)), "quiet": True, **options}

    def actor(self, kind: type, **options: Any) -> Any:
        return ray.remote(kind).options(num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_restarts=-1, **options)


def _check(number: Any, num_cpus: Any) -> None:
    if number is not None and (type(number) is not int or number < 1):
        raise ConfigError(f"num_replicas={shown(number)}: must be a whole number, 1 or more.")
    is_number = isinstance(num_cpus, int | float) and not isinstance(num_cpus, bool)
    if num_cpus is not None and not (is_number and 0 < num_cpus < math.inf):
        raise ConfigError(f"num_cpus={shown(num_cpus)}: must be a number of cores above 0.")
