"""A worker of NVIDIA Dynamo: its `LLMEngine`, with a process tree behind it.

    python -m penstock.cluster.dynamo Qwen/Qwen3-0.6B --namespace dynamo

Dynamo's frontend has the templates, tokenizers and HTTP; its router reads this tree's KV events. Requests and answers
are token ids. When a worker dies, Dynamo asks another one to go on from prompt and said tokens: seeds depend on the
request alone, so the rest of the answer has the bits that it would have had.
"""

import argparse
import asyncio
import logging
import os
import signal
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Self

from msgspec.structs import replace

from ..frontend.async_llm import AsyncLLM
from ..frontend.commands.shared.options import add_options, given
from ..frontend.models.model_files import find_model
from ..frontend.models.model_names import name_of
from ..protocol.errors import ConfigError, EngineDeadError, PenstockError, RequestError
from ..protocol.options.config import EngineConfig as TreeConfig
from ..protocol.options.kv_events import KvEventsConfig, as_kv_events
from ..protocol.parameters.sampling import SamplingParams
from .dynamo_requests import chunk_of, params_of, token_ids_of, usage

try:
    from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
    from dynamo.common.backend.health_check import build_health_check_payload
    from dynamo.common.backend.publisher import ComponentSnapshot, ZmqSource
    from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup, DynamoRuntimeConfig
    from dynamo.common.utils.runtime import parse_endpoint
    from dynamo.llm.exceptions import EngineShutdown, InvalidArgument
except ImportError as error:
    needed = f"NVIDIA Dynamo's workers need further packages ({error.name} is missing)"
    raise ConfigError(f"{needed}: pip install 'penstock[dynamo]'.") from error

_log = logging.getLogger(__name__)
_SNAPSHOT_SECONDS = 1.0


class Engine(LLMEngine):  # type: ignore[misc]  # Dynamo's class has no types here
    def __init__(self, model: str, options: dict[str, Any], served_model_name: str) -> None:
        self._model, self._name = model, served_model_name
        self._options = options
        self._llm: AsyncLLM | None = None
        self._defaults = SamplingParams()
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # with the socket of its KV events
        self._events: KvEventsConfig | None = None
        self._running: dict[str, asyncio.Event] = {}  # of each request by its context: set when it is aborted
        self._idle = asyncio.Event()
        self._idle.set()
        self._snapshots_end = threading.Event()
        self._snapshots: threading.Thread | None = None

    # --- its life -----------------------------------------------------------------------------------------------------

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[Self, WorkerConfig]:
        """Read a command line: Dynamo's own options and those of `penstock generate`; the model first."""
        parser = argparse.ArgumentParser(prog="python -m penstock.cluster.dynamo", allow_abbrev=False)
        parser.add_argument("model", help="bundled name, folder, or hub id")
        DynamoRuntimeArgGroup().add_arguments(parser)
        add_options(parser, "engine options", TreeConfig, leave_out=("model", "connect"))
        arguments = parser.parse_args(argv)
        options = {name: value for name, value in given(arguments, TreeConfig).items() if name != "model"}
        runtime = DynamoRuntimeConfig.from_cli_args(arguments)
        runtime.validate()
        address = runtime.endpoint or f"dyn://{runtime.namespace}.backend.generate"
        runtime.namespace, runtime.component, runtime.endpoint = parse_endpoint(address)
        config = TreeConfig.from_options(arguments.model, **options)
        if config.data_parallel_size > 1:
            raise ConfigError("Dynamo's router chooses among workers: start one for each tree (data_parallel_size=1).")
        name = config.served_model_name or name_of(config.model)
        folder = await asyncio.to_thread(find_model, config.model, config.tokenizer, config.revision)
        worker = WorkerConfig.from_runtime_config(runtime, model_name=str(folder.folder), served_model_name=name)
        return cls(arguments.model, options, name), worker

    async def start(self, worker_id: int) -> EngineConfig:
        """Start the tree; returns what Dynamo's router has to know of it."""
        options = {"quiet": True, **self._options, "connect": "never"}
        config = TreeConfig.from_options(self._model, **options)
        if config.enable_prefix_caching:
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-dynamo-")
            own = {"endpoint": f"ipc://{self._folder.name}/kv-events"}
            given = as_kv_events(own) if config.kv_events_config is None else config.kv_events_config
            if given is not None:
                # Its router finds prompts by their tokens.
                self._events = options["kv_events_config"] = replace(given, token_ids=True)
        self._llm = AsyncLLM(self._model, **options)
        session, stats = await self._llm.ready_session(), await self._llm.stats()
        self._defaults = await self._llm.get_default_sampling_params()
        if (plan := session.plan) is None:
            raise ConfigError("The tree has no memory plan. Please report it.")
        num_seqs, num_tokens = config.step_limits(plan.device)
        return EngineConfig(
            model=str(session.model_folders[0]),
            served_model_name=self._name,
            llm=LlmRegistration(
                context_length=plan.max_model_len,
                kv_cache_block_size=config.block_size,
                total_kv_blocks=stats.blocks,
                max_num_seqs=num_seqs,
                max_num_batched_tokens=num_tokens,
            ),
        )

    async def is_quiescent(self) -> bool:
        return not self._running

    async def drain(self) -> None:
        """Wait until all requests have ended."""
        await self._idle.wait()

    async def cleanup(self) -> None:
        """End the tree; safe at any time, and twice."""
        self._snapshots_end.set()
        llm, self._llm = self._llm, None
        folder, self._folder = self._folder, None
        snapshots, self._snapshots = self._snapshots, None
        if llm is not None:
            await llm.close()
        if snapshots is not None:
            await asyncio.to_thread(snapshots.join, 2 * _SNAPSHOT_SECONDS)
        if folder is not None:
            folder.cleanup()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def generate(self, request: Mapping[str, Any], context: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Yield chunks of token ids; the last one of each sample has its reason, and the very last one the usage."""
        if self._llm is None:
            raise EngineShutdown("The worker isn't running.")
        request_id = context.id()
        try:
            token_ids, params = token_ids_of(request), params_of(request, self._defaults, request_id)
        except RequestError as error:
            raise InvalidArgument(str(error)) from error
        self._running[request_id] = stopped = asyncio.Event()
        self._idle.clear()
        num_output = 0
        stream: Any = self._llm.stream({"prompt_token_ids": token_ids}, params)
        try:
            while (output := await _next(stream, stopped)) is not None:
                if output.error_code not in (200, 499):
                    raise (RequestError if output.error_code < 500 else RuntimeError)(output.error_msg)
                for sample in output.outputs:
                    num_output += len(sample.token_ids)
                    chunk = chunk_of(sample, params)
                    if output.finished and sample is output.outputs[-1]:
                        chunk["completion_usage"] = usage(len(token_ids), num_output, output.num_cached_tokens)
                    if chunk["token_ids"] or "finish_reason" in chunk:
                        yield chunk
                if output.finished:
                    return
            reason = {"finish_reason": "cancelled", "completion_usage": usage(len(token_ids), num_output, 0)}
            yield {"token_ids": [], "index": 0, **reason}
        except EngineDeadError as error:
            self._end_worker(error)
            raise EngineShutdown(str(error)) from error  # Dynamo asks another worker to go on
        except RequestError as error:
            raise InvalidArgument(str(error)) from error
        finally:
            with suppress(PenstockError):
                await stream.aclose()
            self._running.pop(request_id, None)
            if not self._running:
                self._idle.set()

    async def abort(self, context: Any) -> None:
        if (stopped := self._running.get(context.id())) is not None:
            stopped.set()

    def _end_worker(self, error: EngineDeadError) -> None:
        """End this process in Dynamo's own way: whoever supervises it starts another one."""
        if self._llm is not None and not self._snapshots_end.is_set():
            _log.error("The tree has ended, and this worker with it: %s", error)
            self._snapshots_end.set()
            os.kill(os.getpid(), signal.SIGTERM)

    # --- what Dynamo's router and monitors read -----------------------------------------------------------------------

    async def kv_event_sources(self) -> list[ZmqSource]:
        if (events := self._events) is None:
            return []
        return [ZmqSource(endpoint=_reachable(events.endpoint), topic=events.topic, dp_rank=0)]

    def component_metrics_dp_ranks(self) -> list[int]:
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        self._snapshots = threading.Thread(target=self._tell, args=(publisher,), name="snapshots", daemon=True)
        self._snapshots.start()

    def _tell(self, publisher: Any) -> None:
        while not self._snapshots_end.wait(_SNAPSHOT_SECONDS):
            llm = self._llm
            with suppress(PenstockError):
                if llm is None or (session := llm.loaded_session()) is None:
                    return
                stats = session.transport.stats()
                used, asked = stats.blocks - stats.free_blocks, stats.prompt_tokens
                hits = stats.cached_tokens / asked if asked else None
                publisher.publish(0, ComponentSnapshot(used, stats.blocks, stats.kv_usage, 0, hits))

    async def health_check_payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = build_health_check_payload(bos_token_id=1)
        return payload


async def _next(stream: Any, stopped: asyncio.Event) -> Any:
    """The stream's next output; None if the request is aborted first, or it has ended."""
    coming, ending = asyncio.ensure_future(anext(stream, None)), asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((coming, ending), return_when=asyncio.FIRST_COMPLETED)
        return None if stopped.is_set() else await coming
    finally:
        for task in (coming, ending):
            task.cancel()
        await asyncio.gather(coming, ending, return_exceptions=True)


def _reachable(endpoint: str) -> str:
    """An address to connect to, from one to bind to."""
    return endpoint.replace("tcp://*:", "tcp://127.0.0.1:").replace("tcp://0.0.0.0:", "tcp://127.0.0.1:")


def main() -> None:
    from dynamo.common.backend.run import run

    run(Engine)


if __name__ == "__main__":
    main()
