"""The memory of a GPU, which is taken as soon as it is planned. Imports torch."""

from dataclasses import replace
from pathlib import Path

import torch

from ....protocol.files.cache_folder import cache_folder
from ....protocol.options.config import EngineConfig
from ...backends.torch.card import allocated_bytes, card_names, free_and_total_bytes
from ...backends.torch.device import torch_device
from ...backends.torch.staged_tier import STAGING_BYTES
from ...device import Device
from ...ranks.parallel import Parallel
from ...runner import Runner
from ..demand import Demand
from ..device_memory import DeviceMemory
from ..memory.available import CardLocks
from ..memory.media import encoder_bytes
from ..memory.profile import MemoryProfile
from ..memory.weights_fit import check_weights
from ..model import Model
from .warm_up import warm_up

_LIBRARIES = 256 << 20  # memory that its libraries take on first use


class CardMemory(DeviceMemory):
    """The memory of a GPU; its first rank holds the locks of all of this machine's until their memory is taken."""

    def __init__(self, config: EngineConfig, device: Device, ranks: Parallel, directory: Path) -> None:
        super().__init__(config, device, ranks, directory)
        self._locks: CardLocks | None = None
        if ranks.rank == ranks.on_this_node[0]:
            self._locks = CardLocks(directory.parent, card_names(config))
        ranks.exchange([])  # nobody loads earlier

    def check_room(self, demand: Demand) -> bool:
        # Every rank looks at its own card: another process may hold most of one, and cards may differ.
        free, total = free_and_total_bytes(torch_device(self.device))
        free = int(self.config.gpu_memory_utilization * total) - (total - free)
        name = f"{self.device.name} (rank {self.ranks.rank})" if self.ranks.size > 1 else self.device.name
        check_weights(demand.weight_bytes, free, demand.kinds, name, self.config, demand.not_mapped, self.ranks.size)
        self.ranks.exchange([])  # nobody loads earlier, so that free memory stays free
        return False

    def used_bytes(self) -> int:
        return allocated_bytes(torch_device(self.device))

    @torch.inference_mode()
    def _profile(self, model: Model, weight_bytes: int) -> MemoryProfile:
        activations = _LIBRARIES + encoder_bytes(model.config.vision, model.backend.activations.itemsize)
        activations += STAGING_BYTES if self.config.swap_space else 0
        if self.config.use_warmup:
            longest, kept = self.longest(model.config), cache_folder() / "triton"
            groups, kind = model.groups(longest), model.kv_kind(self.config.kv_cache_dtype)
            memory = model.memory(groups, [1] * len(groups), self.config.block_size, kind)
            needed = warm_up(model, self.size, memory, longest, self.device, kept, self.ranks)
            activations += sum(needed)
            self.graph_bytes = needed.graphs
            del memory
        free, total = free_and_total_bytes(torch_device(self.device))
        # Memory of other processes counts as used, so that trees can share a card.
        available = int(self.config.gpu_memory_utilization * total) - (total - free)
        return replace(self.described(model, weight_bytes, activations), available_bytes=available)

    def _with_host_memory(self, profile: MemoryProfile, free: int) -> MemoryProfile:
        return replace(profile, host_bytes=free)

    def on_allocated(self) -> None:
        self.reservation.hold(0)  # pinned memory is taken at once
        if self._locks is not None:
            self._locks.release()

    def begin_background_work(self, model: Model, runner: Runner) -> None:
        pass  # a card's memory is used as soon as it is allocated
