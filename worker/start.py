"""From a launch to a runner: device, ranks, weights, memory plan, KV memory.

The engine stands between the plan and the allocation, since all ranks have to agree. Knows nothing of sockets.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from ..protocol.adapter_messages import AdapterLoaded
from ..protocol.cache_folder import cache_folder
from ..protocol.errors import OutOfMemoryError
from ..protocol.faults import point
from ..protocol.launch import Launch
from ..protocol.messages import Allocate, MemoryPlan
from ..protocol.trace import Trace
from .activations import reckoned_activations
from .affinity import pin
from .available_memory import Reservation, available_memory
from .card_turn import CardTurn
from .decode_steps import decode_steps
from .device import card_names, chosen_device, device_name
from .host_memory import BackgroundTouch
from .kv_cache import AnyKVCache
from .lora_thread import AdapterThread
from .memory import Found, Size, host_bytes_of, memory_plan
from .models.graphed import GraphOptions
from .models.load import load_model
from .parallel import Parallel
from .runner import Runner
from .sampler import Processors
from .second_tier import STAGING_BYTES, SecondTier, second_tier
from .slots import SlotTable
from .warm_up import warm_up

_LIBRARIES = 256 << 20  # what a GPU's libraries take when they are first used
_HEAD_START = 1.0  # seconds in which a first request has the memory's bandwidth to itself


class Start:
    """One rank on its way to its first step."""

    def __init__(self, launch: Launch, rank: int, directory: Path) -> None:
        self.config = launch.config
        self.rank = rank
        self.device = chosen_device(self.config, rank)
        if self.device.type == "cpu":
            pin(rank, self.config.tensor_parallel_size, self.config.devices)
        self.size = Size.settled(self.config, self.device.type)
        # NCCL adds up faster than in the order of the ranks.
        is_ordered = self.device.type == "cpu" or bool(self.config.deterministic)
        self.ranks = Parallel.join(rank, self.config.tensor_parallel_size, directory / "ranks", self.device, is_ordered)
        self.reservation = Reservation(directory, rank)
        self.touch: BackgroundTouch | None = None
        self.turn: CardTurn | None = None
        self.directory = directory
        # Rank 0 samples for all.
        self.processors = Processors.load(self.config.logits_processors) if rank == 0 else Processors()
        resident = _resident_bytes()
        # None asks for it where it is free: native kernels always are so, torch's operations never.
        self.model = load_model(
            Path(launch.model_folder),
            device=self.device,
            dtype=self.config.dtype,
            ranks=self.ranks,
            max_model_len=self.config.max_model_len,
            load_format=self.config.load_format,
            deterministic=bool(self.config.deterministic),
            quantization=self.config.quantization,
            num_threads=launch.threads_per_rank,
            max_loras=self.config.max_loras if self.config.enable_lora else 0,
            max_lora_rank=self.config.max_lora_rank,
            graphs=GraphOptions(not self.config.enforce_eager, tuple(self.config.graph_batch_sizes or ())),
        )
        if (library := self.model.backend.library) is not None:
            self.ranks = self.ranks.through_memory(library)
        if self.device.type == "cuda":
            self.weight_bytes = torch.cuda.memory_allocated(self.device)
        else:
            self.weight_bytes = max(0, _resident_bytes() - resident) + self._mapped_bytes
        self.kv_kind = self.model.kv_kind(self.config.kv_cache_dtype)

    def plan(self) -> MemoryPlan:
        """What this rank intends to take; its part of the machine's memory is set aside from now on."""
        if self.device.type == "cuda":
            self._take_turn()
        on_card = self._found_on_card() if self.device.type == "cuda" else None
        with self.reservation.turn() as set_aside:
            # The kernel counts a mapped file as free, but its weights are read in every step.
            host_bytes = available_memory() - set_aside - self._mapped_bytes
            found = self._found_on_cpu(host_bytes) if on_card is None else replace(on_card, host_bytes=host_bytes)
            plan = memory_plan(self.config, self.size, found)
            self.reservation.hold(host_bytes_of(plan))
        return plan

    def allocated(self, allocate: Allocate, trace: Trace) -> Runner:
        block_size = self.config.block_size
        table = SlotTable(
            num_slots=self.size.num_slots,
            max_model_len=allocate.max_model_len,
            num_blocks=allocate.num_blocks,
            block_size=block_size,
            vocab_size=self.model.vocab_size,
            device=self.device,
            processors=self.processors,
        )
        kv = self._kv_memory(allocate.num_blocks)
        if self.turn is not None:
            self.turn.release()
        decodes = decode_steps(self.model, kv, table, self.ranks, trace)
        cells = self._second_tier(kv, allocate.num_cpu_blocks)
        return Runner(self.model, kv, table, self.ranks, trace=trace, decodes=decodes, second_tier=cells)

    def begin_background_work(self, runner: Runner) -> None:
        """What may as well be done while the first requests are served."""
        if self.device.type == "cpu":
            adapters = () if self.model.adapters is None else self.model.adapters.tensors
            cells = () if runner.second_tier is None else runner.second_tier.tensors
            self.touch = BackgroundTouch((*runner.kv.tensors, *adapters, *cells), self.reservation.hold)
            self.touch.start(after=_HEAD_START)
        else:
            self.reservation.hold(0)  # pinned memory is taken already
        if self.model.cache is not None:
            self.model.cache.write_in_background()

    def adapter_thread(self, answer: Callable[[AdapterLoaded], None]) -> AdapterThread | None:
        """What loads LoRA adapters, where there may be any."""
        return None if self.model.adapters is None else AdapterThread(self.model.adapters, self.rank, answer)

    def close(self) -> None:
        if self.touch is not None:
            self.touch.stop()
        if self.model.cache is not None:
            self.model.cache.close()
        self.reservation.release()
        self.ranks.leave()

    def _take_turn(self) -> None:
        """Rank 0 takes the cards for all ranks, which wait for it."""
        if self.rank == 0:
            self.turn = CardTurn(self.directory.parent, card_names(self.config))
        if self.ranks.size > 1:
            self.ranks.exchange([])

    def _kv_memory(self, num_blocks: int) -> AnyKVCache:
        try:
            point("worker.allocate")
            return self.model.kv_memory(num_blocks, self.config.block_size, self.kv_kind)
        except (MemoryError, OSError, RuntimeError) as error:
            raise OutOfMemoryError(
                f"{num_blocks:,} KV blocks were planned and could not be allocated on {self.device} ({error}). "
                "Something else has taken the memory meanwhile; free it, or give a smaller kv_cache_memory."
            ) from error

    def _second_tier(self, kv: AnyKVCache, num_cells: int) -> SecondTier | None:
        try:
            return second_tier(kv, num_cells)
        except (MemoryError, OSError, RuntimeError) as error:
            raise OutOfMemoryError(
                f"{num_cells:,} KV blocks in CPU memory were planned and could not be allocated ({error}). Give a "
                "smaller swap_space, or free memory."
            ) from error

    def _found_on_cpu(self, host_bytes: int) -> Found:
        longest = self.config.max_model_len or self.model.max_position
        activations = reckoned_activations(self.model.config, self.size, longest, self.ranks.size)
        return self._found("cpu", host_bytes, activations)

    @property
    def _mapped_bytes(self) -> int:
        return 0 if self.model.cache is None else self.model.cache.mapped_bytes

    @torch.inference_mode()
    def _found_on_card(self) -> Found:
        longest = self.config.max_model_len or self.model.max_position
        block_size, activations = self.config.block_size, 0
        if self.config.use_warmup:
            kept = cache_folder() / "triton"
            activations = warm_up(self.model, self.size, block_size, longest, self.device, kept)
        free, total = torch.cuda.mem_get_info(self.device)
        # What others hold counts as used, so that trees can share a card.
        available = int(self.config.gpu_memory_utilization * total) - (total - free)
        staging = STAGING_BYTES if self.config.swap_space else 0
        return self._found(str(self.device), available, activations + _LIBRARIES + staging)

    def _found(self, device: str, available_bytes: int, activation_bytes: int) -> Found:
        model = self.model
        return Found(
            device=device,
            device_name=device_name(self.device),
            weight_bytes=self.weight_bytes,
            activation_bytes=activation_bytes,
            available_bytes=available_bytes,
            block_bytes=model.kv_bytes_per_token(self.kv_kind) * self.config.block_size,
            model_context=model.max_position,
            vocab_size=model.vocab_size,
            dtype=self.config.quantization or _name(model.dtype),
            kv_dtype=self.kv_kind,
            kernels=model.backend.kernels,
            adapter_bytes=0 if model.adapters is None else model.adapters.nbytes,
            notes=_notes(model.report.leftovers, model.backend.missing),
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _notes(unread: list[str], missing: str) -> tuple[str, ...]:
    notes = [f"No native kernels, so this runs many times slower than it could: {missing}"] if missing else []
    if unread:
        named = ", ".join(unread[:3]) + (", …" if len(unread) > 3 else "")
        notes.append(f"{len(unread)} tensors of the checkpoint belong to no layer: {named}")
    return tuple(notes)


def _resident_bytes() -> int:
    """Memory of this process's own, without the files that it maps."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1])
