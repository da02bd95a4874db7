"""Starts a worker, from a `Launch` to a runner: device, ranks, weights, memory plan, KV memory.

The engine stands between the plan and the allocation, since all ranks have to agree.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from ...protocol.adapter_messages import AdapterLoaded
from ...protocol.errors import OutOfMemoryError
from ...protocol.files.prefix_folder import FLUSH_SECONDS, prefix_folder
from ...protocol.layer_groups import AboutDisk
from ...protocol.memory_plan import MemoryPlan
from ...protocol.messages import Allocate, Drafts
from ...protocol.processes.exit_status import inherited_limits
from ...protocol.processes.faults import point
from ...protocol.processes.launch import Launch
from ...protocol.processes.trace import Trace
from ..backends.backend import BackendOptions, ReportProgress
from ..backends.select import chosen_device, require_torch
from ..disk.disk import WorkerDisk
from ..drafting.drafting import Drafting
from ..drafting.methods import drafter_of
from ..kv.model_memory import ModelMemory
from ..kv.second_tier import SecondTier
from ..lora.lora_thread import AdapterThread
from ..ranks.host_ranks import HostRanks
from ..ranks.parallel import Parallel
from ..runner import Runner
from ..sampler import LogitsProcessors
from ..steps.logprobs import Reported
from ..steps.slots import SlotTable
from .device_memory import DeviceMemory, HostMemory
from .load import load_model, opened_again
from .memory.media import media_plan
from .model import Model

if TYPE_CHECKING:
    from ..drafting.models.draft_model import DraftModel


class Start:
    """The start of one rank, up to its runner."""

    def __init__(self, launch: Launch, rank: int, directory: Path) -> None:
        self.launch = launch
        self.config = launch.config
        if self.config.keeps_prefixes:
            prefix_folder(self.config)  # an error comes before the weights are read
        self.rank = rank
        self.device = chosen_device(self.config, rank)
        self.ranks = self._met(directory / "ranks")
        self.memory = self._memory(directory)
        # Rank 0 samples for all.
        names = self.config.logits_processors if rank == 0 else None
        self.processors = LogitsProcessors.load(names) if names else None
        before = self.memory.used_bytes()
        self.model = self._load_models(launch)
        self.weight_bytes = max(0, self.memory.used_bytes() - before)
        self.kv_kind = self.model.kv_kind(self.config.kv_cache_dtype)
        self.groups = self.model.groups(self.memory.longest(self.model.config))  # groups of layers
        self.disk: WorkerDisk | None = None

    def _met(self, path: Path) -> Parallel:
        """Meet the other ranks, if there are any."""
        config, address = self.config, self.launch.address
        size, is_ordered = config.tensor_parallel_size, bool(config.deterministic)
        per_node = config.ranks_per_node if config.nnodes > 1 else 0
        if size == 1:
            return Parallel()
        if not self.device.is_asynchronous:
            if not per_node:
                return HostRanks.meet(self.rank, size, path)
            require_torch("ranks of CPUs on several machines exchange numbers through its Gloo")
            from ..backends.torch.gloo_ranks import GlooRanks  # imports torch

            return GlooRanks.meet(self.rank, size, per_node, path, address)
        from ..backends.torch.device import torch_device  # imports torch
        from ..backends.triton.card_ranks import CardRanks

        device = torch_device(self.device)
        sees_peers = not is_ordered and not config.disable_custom_all_reduce and not per_node
        return CardRanks.meet(self.rank, size, path, device, is_ordered, sees_peers, per_node, address)

    def _memory(self, directory: Path) -> DeviceMemory:
        if self.device.kind == "cpu":
            return HostMemory(self.config, self.device, self.ranks, directory)
        from .card.card_memory import CardMemory  # imports torch

        return CardMemory(self.config, self.device, self.ranks, directory)

    def _load_models(self, launch: Launch) -> Model:
        """The model, with the one that drafts for it if there is one."""
        load = partial(
            load_model,
            device=self.device,
            dtype=self.config.dtype,
            load_format=self.config.load_format,
            options=BackendOptions(
                deterministic=bool(self.config.deterministic),
                portable=self.config.deterministic == "portable",
                captures_steps=not self.config.enforce_eager,
                captured_rows=tuple(self.config.graph_batch_sizes or ()),
                captured_tokens=self.memory.size.max_num_batched_tokens,
                drafts=self.config.drafts,
            ),
            num_threads=launch.threads_per_rank,
        )
        model = load(
            Path(launch.model_folder),
            ranks=self.ranks,
            quantization=self.config.quantization,
            lm_head_fp32=self.config.lm_head_fp32,
            max_loras=self.config.max_loras if self.config.enable_lora else 0,
            max_lora_rank=self.config.max_lora_rank,
            expert_parallel=self.config.enable_expert_parallel,
            rope_scaling=self.config.rope_scaling,
            sees=self.config.enable_mm is not False,
            check_room=self.memory.check_room,
            pooling=launch.pooling,
        )
        if (speculation := self.config.speculative_config) is None:
            return model
        quantization = speculation.quantization or self.config.quantization
        if speculation.method == "mtp":
            from .draft_heads import with_draft_heads

            folder = Path(launch.model_folder)
            return with_draft_heads(model, folder, partial(opened_again, folder, model, self.ranks), quantization)
        if not launch.draft_folder:
            return model
        if speculation.method == "eagle3":
            from .eagle_heads import with_eagle_heads

            return with_eagle_heads(model, Path(launch.draft_folder), quantization)
        from .draft_model import with_draft_model

        # Ranks agree about room, and this is rank 0's alone.
        check_room = self.memory.check_room if self.ranks.size == 1 else None
        load_draft = partial(load, sees=False, quantization=quantization, check_room=check_room)
        return with_draft_model(model, Path(launch.draft_folder), self.rank, load_draft)

    @property
    def is_asynchronous(self) -> bool:
        """Whether steps run in parallel with the host, which waits for them."""
        return self.device.is_asynchronous

    def device_end(self) -> Callable[[], object]:
        """A function that waits for all that the device has been given so far, and raises what has failed there."""
        device = self.model.backend.device
        return device.host_copy(device.zeros((1,), numpy.int64))

    def plan(self) -> MemoryPlan:
        """Make this rank's memory plan."""
        return self.memory.plan(self.model, self.weight_bytes)

    def runner(
        self, allocate: Allocate, trace: Trace, on_progress: ReportProgress = lambda number, total: None
    ) -> Runner:
        """Build the runner. `on_progress` gets the number of graphs captured so far and the total."""
        table = SlotTable(
            num_slots=self.memory.size.num_slots,
            max_model_len=allocate.max_model_len,
            num_blocks=allocate.num_blocks,
            block_size=self.config.block_size,
            vocab_size=self.model.vocab_size,
            device=self.model.backend.device,
            processors=self.processors,
            shifts_rotations=self.model.shifts_rotations,
            media_tokens=self.model.config.media_tokens,
            groups=self.groups,
            rows_of_type=self.model.rows_of_type,
            padding_token=self.model.padding_token,
        )
        memory, cells = self._allocated(allocate)
        media = media_plan(self.model.config.vision, self.model.backend.activations.itemsize, self.config)
        if self.memory.graph_bytes is not None:
            self.model.backend.capture(
                self.model.forward_pass,
                self.model.sample,
                table,
                memory,
                self.ranks,
                self.memory.graph_bytes,
                on_progress,
            )
        self.memory.on_allocated()
        runner = Runner(
            self.model.forward_pass,
            memory,
            table,
            self.ranks,
            trace=trace,
            sampling=self.model.backend.sampling,
            fast_decode=self.model.fast_decode(memory, table, self.ranks, trace),
            second_tiers=cells,
            media=None if media is None else self.model.kept_media(media.num_rows),
            batch=self.model.backend.batch,
            sample=self.model.sample,
            reported=Reported.of(self.config.logprobs_mode),
        )
        if (pooler := self.model.pooler()) is not None:
            runner.pooling = pooler
        return runner

    def begin_background_work(self, runner: Runner) -> None:
        """Start work that can run during the first requests."""
        self.memory.begin_background_work(self.model, runner)
        for cache in self.model.caches:
            cache.write_in_background()

    def adapter_thread(self, answer: Callable[[AdapterLoaded], None]) -> AdapterThread | None:
        """The thread that loads LoRA adapters, if the model may have any."""
        return None if self.model.adapters is None else AdapterThread(self.model.adapters, self.rank, answer)

    def open_disk(
        self, runner: Runner, answer: Callable[[AboutDisk], None], fail: Callable[[BaseException], None]
    ) -> None:
        """Let the runner keep blocks on disk between runs."""
        from .kept_prefixes import open_disk

        self.disk = runner.disk = open_disk(self.launch, self.model, self.rank, self.groups, runner, answer, fail)

    @property
    def drafts(self) -> bool:
        """Whether tokens may be drafted: not where a row's bits depend on how many of its tokens a step has."""
        return self.config.drafts and self.model.backend.is_deterministic

    def open_drafting(self, runner: Runner, send: Callable[[Drafts], None]) -> None:
        """Let the runner draft for its rows."""
        speculation, draft = self.config.speculative_config, self.model.draft
        proposer = None if draft is None else self._proposer(draft, runner)
        drafter = drafter_of(speculation, proposer) if self.rank == 0 else None
        runner.drafting = Drafting(runner.table, self.ranks, drafter, send, proposer)

    def _proposer(self, draft: Model, runner: Runner) -> "DraftModel":
        speculation, num_layers = self.config.speculative_config, self.model.config.num_layers
        most = None if speculation is None else speculation.num_speculative_tokens
        if self.model.reads_states:
            from .draft_heads import draft_heads_of

            return draft_heads_of(draft, num_layers, runner, most)
        from .draft_model import draft_model_of

        return draft_model_of(draft, num_layers, runner, most)

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close(FLUSH_SECONDS)
        for cache in self.model.caches:
            cache.close()
        self.memory.close()
        self.model.backend.forget_captured(self.model.forward_pass)
        self.ranks.leave()

    def _allocated(self, allocate: Allocate) -> tuple[ModelMemory, list[SecondTier]]:
        try:
            point("worker.allocate")
            memory = self.model.memory(self.groups, allocate.num_blocks, self.config.block_size, self.kv_kind)
        except (MemoryError, OSError, RuntimeError) as error:
            limits = inherited_limits()
            bound = f", or this process's own limits leave less ({limits})" if limits else ""
            raise OutOfMemoryError(
                f"{_counts(allocate.num_blocks)} KV blocks were planned and could not be allocated on {self.device} "
                f"({error}). Something else has taken the memory meanwhile{bound}; free it, or give a smaller "
                "kv_cache_memory."
            ) from error
        try:
            return memory, self.model.second_tiers(memory, allocate.num_cpu_blocks)
        except (MemoryError, OSError, RuntimeError) as error:
            raise OutOfMemoryError(
                f"{_counts(allocate.num_cpu_blocks)} KV blocks in CPU memory were planned and could not be allocated "
                f"({error}). Give a smaller swap_space, or free memory."
            ) from error


def _counts(of_groups: Sequence[int]) -> str:
    return " and ".join(f"{count:,}" for count in of_groups)
