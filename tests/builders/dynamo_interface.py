"""NVIDIA Dynamo's interface for workers, as far as a worker sees it, written from its documents (1.6).

A class that lacks a method which Dynamo calls, or a chunk with a field that it doesn't know, fails here.
"""

import argparse
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

CHUNK = {"token_ids", "index", "finish_reason", "completion_usage", "log_probs", "top_logprobs", "engine_data"}
REASONS = {"stop", "length", "cancelled", "error"}


class DynamoError(Exception):
    pass


class InvalidArgument(DynamoError):
    pass


class EngineShutdown(DynamoError):
    pass


class LLMEngine(ABC):
    @classmethod
    @abstractmethod
    async def from_args(cls, argv: list[str] | None = None) -> Any: ...
    @abstractmethod
    async def start(self, worker_id: int) -> Any: ...
    @abstractmethod
    async def generate(self, request: dict, context: Any) -> Any: ...
    @abstractmethod
    async def cleanup(self) -> None: ...


@dataclass
class LlmRegistration:
    context_length: int | None = None
    kv_cache_block_size: int | None = None
    total_kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


@dataclass
class EngineConfig:
    model: str
    served_model_name: str | None = None
    llm: LlmRegistration | None = None


@dataclass
class WorkerConfig:
    namespace: str
    component: str
    endpoint: str
    model_name: str
    served_model_name: str | None

    @classmethod
    def from_runtime_config(cls, runtime: Any, model_name: str, served_model_name: str | None) -> "WorkerConfig":
        return cls(runtime.namespace, runtime.component, runtime.endpoint, model_name, served_model_name)


@dataclass(frozen=True)
class ZmqSource:
    endpoint: str
    topic: str = ""
    dp_rank: int = 0


@dataclass
class ComponentSnapshot:
    kv_used_blocks: int
    kv_total_blocks: int
    gpu_cache_usage: float
    dp_rank: int
    kv_cache_hit_rate: float | None = None


@dataclass
class Published:
    snapshots: list[ComponentSnapshot] = field(default_factory=list)

    def publish(self, rank: int, snapshot: ComponentSnapshot) -> None:
        assert rank == snapshot.dp_rank == 0
        self.snapshots.append(snapshot)


class DynamoRuntimeArgGroup:
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--namespace", default="dynamo")
        parser.add_argument("--endpoint", default=None)


class DynamoRuntimeConfig:
    @classmethod
    def from_cli_args(cls, arguments: argparse.Namespace) -> "DynamoRuntimeConfig":
        found = cls()
        found.__dict__.update(vars(arguments))
        return found

    def validate(self) -> None: ...


class Context:
    def __init__(self, request_id: str) -> None:
        self._id = request_id

    def id(self) -> str:
        return self._id


def checked(chunk: dict) -> dict:
    """A chunk, if Dynamo would take it."""
    assert chunk.keys() <= CHUNK and chunk["index"] >= 0 and all(isinstance(each, int) for each in chunk["token_ids"])
    assert chunk.get("finish_reason", "stop") in REASONS
    for name in ("log_probs", "top_logprobs"):
        assert len(chunk.get(name, chunk["token_ids"])) == len(chunk["token_ids"])
    return chunk


def _parse_endpoint(address: str) -> tuple[str, ...]:
    return tuple(address.removeprefix("dyn://").split("."))


def _probe(bos_token_id: int) -> dict:
    return {"token_ids": [bos_token_id], "stop_conditions": {"max_tokens": 1}, "sampling_options": {"temperature": 0.0}}


MODULES = {
    "dynamo.common.backend": {
        "LLMEngine": LLMEngine, "EngineConfig": EngineConfig, "LlmRegistration": LlmRegistration,
        "WorkerConfig": WorkerConfig,
    },
    "dynamo.common.backend.health_check": {"build_health_check_payload": _probe},
    "dynamo.common.backend.publisher": {"ZmqSource": ZmqSource, "ComponentSnapshot": ComponentSnapshot},
    "dynamo.common.configuration.groups.runtime_args": {
        "DynamoRuntimeArgGroup": DynamoRuntimeArgGroup, "DynamoRuntimeConfig": DynamoRuntimeConfig,
    },
    "dynamo.common.utils.runtime": {"parse_endpoint": _parse_endpoint},
    "dynamo.llm.exceptions": {"InvalidArgument": InvalidArgument, "EngineShutdown": EngineShutdown},
}  # fmt: skip


@contextmanager
def installed() -> Iterator[None]:
    """Dynamo can be imported while the context is open; what was imported with it is forgotten afterwards."""
    before = dict(sys.modules)
    for name, contents in MODULES.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        vars(sys.modules[name]).update(contents)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "dynamo" or name.endswith("cluster.dynamo")]:
            if name not in before:
                del sys.modules[name]
