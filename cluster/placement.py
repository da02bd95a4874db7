"""How many replicas of a model a cluster gets, and the cores and cards of each."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_type_hints

import ray

from ..frontend.console import logs
from ..protocol.errors import ConfigError
from ..protocol.fields.rules import shown
from ..protocol.fields.suggestion import nearest
from ..protocol.options.config import EngineConfig


class Placement(NamedTuple):
    num_replicas: int
    num_cpus: float  # of each
    num_gpus: float

    @classmethod
    def of(cls, config: EngineConfig, num_replicas: int | None, num_cpus: float | None) -> "Placement":
        """Share the nodes out: by default each gets one replica with all of its cores; several of a node share them.

        Connects to the cluster that `serve.run` would take, if nobody has yet: its nodes decide.
        """
        check_numbers(num_replicas, num_cpus)
        if not ray.is_initialized():
            ray.init(namespace="serve")
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cores = [node["CPU"] for node in nodes if node.get("CPU")] or [1.0]
        if num_cpus is None:
            of_a_node = 1 if num_replicas is None else math.ceil(num_replicas / len(cores))
            num_cpus = max(1, int(min(cores) // of_a_node))
        if num_replicas is None:
            num_replicas = max(1, sum(int(each // num_cpus) for each in cores))
        cards = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
        needs_cards = config.device == "cuda" or (config.device == "auto" and cards > 0)
        found = cls(num_replicas, float(num_cpus), float(config.tensor_parallel_size if needs_cards else 0))
        if found.num_cpus > max(cores) or found.num_gpus > cards:
            logs.say(
                f"No node of the cluster has what a replica is to get ({found}), at most {max(cores):g} cores and "
                f"{cards:g} GPUs, so replicas wait until one comes. num_cpus and tensor_parallel_size say what.",
                quiet=False,
            )
        return found

    def __str__(self) -> str:
        return f"{self.num_cpus:g} cores" + (f" and {self.num_gpus:g} GPUs" if self.num_gpus else "")

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of one replica, all on one node."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {})

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """A tree's options, with as many threads as a replica has cores, unless others are given."""
        return {"num_threads": max(1, int(self.num_cpus)), "quiet": True, **options}

    def actor(self, kind: type, **options: Any) -> Any:
        return ray.remote(kind).options(num_cpus=self.num_cpus, num_gpus=self.num_gpus, max_restarts=-1, **options)


def check_numbers(num_replicas: Any, num_cpus: Any) -> None:
    if num_replicas is not None and (type(num_replicas) is not int or num_replicas < 1):
        raise ConfigError(f"num_replicas={shown(num_replicas)}: must be a whole number, 1 or more.")
    is_number = isinstance(num_cpus, int | float) and not isinstance(num_cpus, bool)
    if num_cpus is not None and not (is_number and 0 < num_cpus < math.inf):
        raise ConfigError(f"num_cpus={shown(num_cpus)}: must be a number of cores above 0.")


def checked_config(model: str, options: Mapping[str, Any], *, beside: Iterable[str] = ()) -> EngineConfig:
    """The options of the trees; refuses those that mean one process on one machine. `beside` are the caller's own."""
    for name in options:
        if name not in get_type_hints(EngineConfig) and (near := nearest(name, beside)) is not None:
            raise ConfigError(f"There is no option {shown(name)}. Did you mean {near}?")
    if options.get("connect", "never") != "never":
        raise ConfigError("connect is for a daemon on this machine; a cluster's models are Ray's: leave it out.")
    if alone := next((name for name in ("record", "trace") if options.get(name)), None):
        raise ConfigError(f"{alone} writes down one tree on one machine: leave it out on a cluster.")
    return EngineConfig.from_options(model, **options)
