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
from hashlib import blake2b
from typing import Any, Self

from msgspec.structs import replace

from ..frontend.async_llm import AsyncLLM
from ..frontend.commands.shared.options import add_options, given
from ..frontend.models.model_files import find_model
from ..frontend.models.model_names import name_of
from ..protocol.errors import ConfigError, EngineDeadError, PenstockError, RequestError
from ..protocol.options.config import EngineConfig as TreeConfig
from ..protocol.options.kv_events import KvEventsConfig, as_kv_events
from ..protocol.outputs import CompletionOutput
from ..protocol.parameters.guided import GuidedDecodingParams
from ..protocol.parameters.sampling import SamplingParams

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
_SALT_MARK = "dynamo-cache-salt:"
# Fields of a request that are ours under the same name, and those that have another one here.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
             "logit_bias", "n")  # fmt: skip
_STOPPING = {"max_tokens": "max_tokens", "min_tokens": "min_tokens", "ignore_eos": "ignore_eos",
             "max_thinking_tokens": "reasoning_max_tokens"}  # fmt: skip
_GUIDED = ("json", "regex", "choice", "grammar", "structural_tag")
_REFUSED = {
    "prefill_result": "prefill and decode aren't split",
    "bootstrap_info": "prefill and decode aren't split",
    "multi_modal_data": "this worker takes text only",
    "encoder_result": "this worker takes text only",
}


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
        token_ids = _token_ids(request.get("token_ids"))
        params = params_of(request, self._defaults, request_id)
        self._running[request_id] = stopped = asyncio.Event()
        self._idle.clear()
        num_output = 0
        stream: Any = self._llm.stream({"prompt_token_ids": token_ids}, params)
        try:
            while (output := await _next(stream, stopped)) is not None:
                if output.error_code not in (200, 499):
                    raise _fault(output.error_code)(output.error_msg)
                for sample in output.outputs:
                    num_output += len(sample.token_ids)
                    chunk = _chunk(sample, params)
                    if output.finished and sample is output.outputs[-1]:
                        chunk["completion_usage"] = _usage(len(token_ids), num_output, output.num_cached_tokens)
                    if chunk["token_ids"] or "finish_reason" in chunk:
                        yield chunk
                if output.finished:
                    return
            reason = {"finish_reason": "cancelled", "completion_usage": _usage(len(token_ids), num_output, 0)}
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


def params_of(request: Mapping[str, Any], defaults: SamplingParams, request_id: str) -> SamplingParams:
    """A request's parameters; raises `InvalidArgument` for what can't be met. Stop strings are Dynamo's own work."""
    for name, why in _REFUSED.items():
        if request.get(name):
            raise InvalidArgument(f"{name}: {why}.")
    sampling, stopping, shown = (
        request.get(name) or {} for name in ("sampling_options", "stop_conditions", "output_options")
    )
    fields = {name: sampling[name] for name in _SAMPLING if sampling.get(name) is not None}
    fields |= {ours: stopping[name] for name, ours in _STOPPING.items() if stopping.get(name) is not None}
    if ids := [*(stopping.get("stop_token_ids") or ()), *(stopping.get("stop_token_ids_hidden") or ())]:
        fields["stop_token_ids"] = sorted(set(ids))
    seed = sampling.get("seed")
    # Dynamo gives a request that moves to another worker the same id.
    fields["seed"] = _seed_of(request_id) if seed is None else seed
    if (salt := _salt_of(request)) is not None:
        fields["cache_salt"] = salt
    if shown.get("prompt_logprobs") is not None:
        raise InvalidArgument("prompt_logprobs: this worker gives log-probabilities of the answer only.")
    if shown.get("logprobs") is not None:
        fields["logprobs"] = shown["logprobs"]
    try:
        if guided := {name: value for name in _GUIDED if (value := (sampling.get("guided_decoding") or {}).get(name))}:
            fields["guided_decoding"] = GuidedDecodingParams(**guided)
        return SamplingParams(**{**_given(defaults), **fields, "detokenize": False})
    except (RequestError, TypeError) as error:
        raise InvalidArgument(str(error)) from error


def _given(defaults: SamplingParams) -> dict[str, Any]:
    """The model's own sampling, which holds where a request says nothing."""
    return {name: getattr(defaults, name) for name in _SAMPLING if name != "n"}


def _seed_of(request_id: str) -> int:
    return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest()) >> 1


def _salt_of(request: Mapping[str, Any]) -> str | None:
    """The request's cache salt, marked so that Dynamo's router finds it among an event's keys."""
    for nvext in (request.get("nvext"), (request.get("extra_args") or {}).get("nvext")):
        if isinstance(nvext, Mapping) and (salt := nvext.get("cache_salt")):
            return f"{_SALT_MARK}{salt}"
    return None


def _token_ids(found: Any) -> list[int]:
    """Token ids as a list; Dynamo may also send them as packed 32-bit numbers."""
    if isinstance(found, (bytes, bytearray, memoryview)):
        if len(memoryview(found).cast("B")) % 4:
            raise InvalidArgument("token_ids: packed ones have 4 bytes each.")
        packed = bytes(found)
        return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]
    if not found:
        raise InvalidArgument("token_ids: there are none.")
    return list(found)


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


def _chunk(sample: CompletionOutput, params: SamplingParams) -> dict[str, Any]:
    chunk: dict[str, Any] = {"token_ids": sample.token_ids, "index": sample.index}
    if sample.finish_reason is not None:
        chunk["finish_reason"] = "cancelled" if sample.finish_reason == "abort" else sample.finish_reason
    if params.logprobs is not None and sample.logprobs:
        tops = [
            [
                {"rank": each.rank, "token_id": token, "token": each.decoded_token, "logprob": each.logprob}
                for token, each in by_token.items()
            ]
            for by_token in sample.logprobs
        ]
        chunk["log_probs"] = [by_token[token].logprob for token, by_token in zip(sample.token_ids, sample.logprobs)]
        chunk["top_logprobs"] = tops
    return chunk


def _usage(num_prompt: int, num_output: int, num_cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_output,
        "total_tokens": num_prompt + num_output,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }


def _fault(error_code: int) -> type[Exception]:
    kind: type[Exception] = InvalidArgument if 400 <= error_code < 500 else RuntimeError
    return kind


def _reachable(endpoint: str) -> str:
    """An address to connect to, from one to bind to."""
    return endpoint.replace("tcp://*:", "tcp://127.0.0.1:").replace("tcp://0.0.0.0:", "tcp://127.0.0.1:")


def main() -> None:
    from dynamo.common.backend.run import run

    run(Engine)


if __name__ == "__main__":
    main()
