"""The memory that a model is loaded into, a CPU's or a GPU's (`card/`): how much is used, free and reserved.

It makes the memory plan of its rank, reserves the part that is not allocated yet against other processes, and then
starts background work.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

from ...kernels.cpu.calls.experts import pair_memory_bytes
from ...protocol.memory_plan import MOST_LAYERED, MemoryPlan
from ...protocol.options.config import EngineConfig
from ..description.config import ModelConfig
from ..description.groups import LayerGroup, groups_of
from ..description.products import layer_keys
from ..device import Device
from ..drafting.suffix import STORE_BYTES
from ..kv.host_memory import BackgroundTouch
from ..ranks.affinity import pin
from ..ranks.parallel import Parallel
from ..runner import Runner
from ..steps.logprobs import piece_length
from .demand import Demand
from .memory.available import Reservation, available_memory
from .memory.media import encoder_bytes, kept_media_bytes, media_plan
from .memory.plan import host_bytes_of, kv_bytes_at_least, memory_plan, shares_of, swap_bytes
from .memory.profile import MemoryProfile, Size
from .memory.shares import GroupSize
from .memory.weights_fit import check_rest, check_weights
from .model import Model
from .notes import (
    notes_on_context,
    notes_on_drafts,
    notes_on_experts,
    notes_on_weights,
    notes_on_windows,
    number_formats,
)

_FLOAT = 4
_LOGITS_AT_ONCE = 4  # copies: the model's, for log-probabilities, and weights and order while choosing a token
_HEAD_START = 1.0  # seconds for which a first request has the memory bandwidth to itself


class DeviceMemory(ABC):
    def __init__(self, config: EngineConfig, device: Device, ranks: Parallel, directory: Path) -> None:
        self.config = config
        self.device = device
        self.size = Size.of(config, device.kind)
        self.ranks = ranks
        self.reservation = Reservation(directory, ranks.rank)
        self.graph_bytes: int | None = None  # planned for captured steps; None: captured when first used

    def plan(self, model: Model, weight_bytes: int) -> MemoryPlan:
        """Make this rank's plan and reserve its memory from now on."""
        profile = self._profile(model, weight_bytes)
        with self.reservation.turn() as set_aside:
            profile = self._with_host_memory(profile, available_memory() - set_aside)
            plan = memory_plan(self.config, self.size, profile)
            self.reservation.hold(host_bytes_of(plan))
        return plan

    @abstractmethod
    def check_room(self, demand: Demand) -> bool:
        """Refuse weights that don't fit, before any is read. Return whether they fit only if they are mapped."""

    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes of the weights' kind of memory that this process uses."""

    @abstractmethod
    def _profile(self, model: Model, weight_bytes: int) -> MemoryProfile:
        """The profile, except for free CPU memory."""

    @abstractmethod
    def _with_host_memory(self, profile: MemoryProfile, free: int) -> MemoryProfile: ...

    @abstractmethod
    def on_allocated(self) -> None:
        """Called once everything planned is allocated."""

    @abstractmethod
    def begin_background_work(self, model: Model, runner: Runner) -> None:
        """Start work that can run during the first requests."""

    def close(self) -> None:
        self.reservation.release()

    def described(self, model: Model, weight_bytes: int, activation_bytes: int) -> MemoryProfile:
        kind = model.kv_kind(self.config.kv_cache_dtype)
        return MemoryProfile(
            device=str(self.device),
            device_name=self.device.name,
            weight_bytes=weight_bytes,
            activation_bytes=activation_bytes,
            available_bytes=0,
            groups=tuple(
                _size_of(group, model.block_bytes(group, self.config.block_size, kind))
                for group in model.groups(self.longest(model.config))
            ),
            model_context=model.max_position,
            context_cut=str(model.config.cut or ""),
            vocab_size=model.vocab_size,
            dtype=number_formats(model),
            kv_dtype=kind,
            kernels=model.backend.kernels,
            kernels_digest=model.backend.kernels_digest,
            adapter_bytes=0 if model.adapters is None else model.adapters.nbytes,
            media=media_plan(model.config.vision, model.backend.activations.itemsize, self.config),
            # Heads read the hidden states of whole steps.
            num_layers=0 if model.reads_states else model.config.num_layers,
            is_deterministic=model.backend.is_deterministic,
            layer_keys=layer_keys(model.config),
            vector_width=0 if model.pooling is None else model.pooling.width(model.config.hidden_size),
            has_whole_texts=model.config.is_two_sided,
            stretches=model.stretches,
            notes=(
                *notes_on_weights(model.report.leftovers, model.backend.missing),
                *notes_on_context(model.config),
                *notes_on_windows(model, self.longest(model.config)),
                *notes_on_experts(model),
                *notes_on_drafts(self.config, model.backend.is_deterministic),
            ),
        )

    def longest(self, model: ModelConfig) -> int:
        """The longest request in tokens, before the capacity of its memory is known."""
        return min(self.config.max_model_len or model.max_position, model.max_position)


class HostMemory(DeviceMemory):
    """The memory of a CPU, which is first touched long after it was planned."""

    def __init__(self, config: EngineConfig, device: Device, ranks: Parallel, directory: Path) -> None:
        super().__init__(config, device, ranks, directory)
        self._touch: BackgroundTouch | None = None
        pin(ranks.rank - ranks.on_this_node[0], len(ranks.on_this_node), config.own_devices)

    def check_room(self, demand: Demand) -> bool:
        """All ranks come to the same result, from the free memory of each machine and its ranks' needs."""
        free, own = 0, self.ranks.on_this_node
        if self.ranks.rank == own[0]:
            with self.reservation.turn() as set_aside:
                free = max(0, available_memory() - set_aside)
        of_rank = [free, demand.is_kept, demand.weight_bytes, demand.largest_bytes, bool(demand.not_mapped)]
        found = self.ranks.exchange([int(each) for each in of_rank])
        of_nodes = [found[first : first + len(own)] for first in range(0, len(found), len(own))]
        # No machine's ranks go on where another's don't fit, and all map their weights or none.
        are_mapped = [self._is_mapped(demand, of_ranks) for of_ranks in of_nodes]
        return any(are_mapped)

    def _is_mapped(self, demand: Demand, of_ranks: list[list[int]]) -> bool:
        """Check the room of one machine. Return whether its weights fit only if they are mapped."""
        free, fresh = of_ranks[0][0], [each for each in of_ranks if not each[1]]
        need, largest = sum(each[2] for each in fresh), sum(each[3] for each in fresh)
        rest = len(of_ranks) * self._bytes_beside_weights(demand, free)
        if not fresh or need + rest <= free:
            return False
        if any(each[4] for each in fresh):
            reason = demand.not_mapped or "another rank's can't be"
            check_weights(need, free, demand.kinds, self.device.name, self.config, reason)
            return False  # the rest is checked once they are loaded
        check_rest(largest + rest, free, self.config)
        return True

    def _bytes_beside_weights(self, demand: Demand, free: int) -> int:
        """The least that this rank needs in addition to its weights."""
        longest, options = self.longest(demand.config), self.config
        groups = tuple(
            _size_of(group, demand.block_bytes(group, options.block_size, options.kv_cache_dtype))
            for group in groups_of(demand.config, longest, demand.gives_back)
        )
        activations = _estimated_activations(demand.config, self.size, longest, options) + self._store_bytes
        shares = shares_of(options, self.size, groups)
        kv_bytes = kv_bytes_at_least(options, shares, longest, free, demand.weight_bytes)
        return activations + kv_bytes + swap_bytes(options) + kept_media_bytes(demand.config.vision, _FLOAT, options)

    @property
    def _store_bytes(self) -> int:
        """What rank 0 keeps of finished answers, to draft from. The texts of those that run are a thousandth of their
        keys and values."""
        return STORE_BYTES if self.config.drafts and self.ranks.rank == 0 else 0

    def used_bytes(self) -> int:
        """Used bytes, without mapped files."""
        status = Path("/proc/self/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1])

    def _profile(self, model: Model, weight_bytes: int) -> MemoryProfile:
        configs = [model.config] if model.draft is None else [model.config, model.draft.config]
        longest = self.longest(model.config)
        activations = sum(_estimated_activations(each, self.size, longest, self.config) for each in configs)
        activations += self._store_bytes
        mapped = sum(cache.mapped_bytes for cache in model.caches)
        own = self.ranks.on_this_node
        of_ranks = [rank[0] for rank in self.ranks.exchange([mapped])[own[0] : own[-1] + 1]]
        profile = self.described(model, weight_bytes + mapped, activations)
        return replace(profile, mapped_bytes=mapped, other_mapped_bytes=sum(of_ranks) - mapped)

    def _with_host_memory(self, profile: MemoryProfile, free: int) -> MemoryProfile:
        # The kernel counts a mapped file as free, but its weights are read in every step.
        return replace(profile, available_bytes=free - profile.mapped_bytes - profile.other_mapped_bytes)

    def on_allocated(self) -> None:
        pass  # it is touched later, so it stays reserved

    def begin_background_work(self, model: Model, runner: Runner) -> None:
        adapters = () if model.adapters is None else model.adapters.untouched
        cells = (each for tier in runner.second_tiers for each in tier.cells)
        layers = (layer for part in model.backend.on_host(runner.memory.parts) for layer in part)
        own = (*layers, *adapters, *cells)
        self._touch = BackgroundTouch(own, self.reservation.hold, runner.is_busy)
        self._touch.start(after=_HEAD_START)

    def close(self) -> None:
        if self._touch is not None:
            self._touch.stop()
        super().close()


def _size_of(group: LayerGroup, block_bytes: int) -> GroupSize:
    return GroupSize(group.kind, len(group.layers), block_bytes, group.window, group.is_drafting)


def _estimated_activations(config: ModelConfig, size: Size, max_model_len: int, options: EngineConfig) -> int:
    """Bytes of the largest step on a CPU, with float32 values between products."""
    ranks, rows = options.tensor_parallel_size, size.max_num_batched_tokens
    if config.is_two_sided:  # the longest text has a step of its own
        rows = max(rows, max_model_len)
    tokens = rows + min(rows, MOST_LAYERED)
    queries = config.num_heads * (1 + config.family.gates_attention)
    heads = max((queries + each.num_projected * each.num_kv_heads) * each.head_dim for each in config.heads)
    heads = max(heads, *(mixer.width for mixer in config.mixers if mixer is not None), 0)
    inner = max(*map(config.mlp_width, range(config.num_layers)), 0)
    inner = max(inner, config.experts.shared_width if config.experts is not None else 0)
    a_token = 4 * config.hidden_size + (2 * heads + 3 * inner) // ranks
    if (inputs := config.token_inputs) is not None:
        a_token += 2 * config.num_layers * inputs.width
    rows = max(size.num_slots, min(piece_length(config.vocab_size), rows))
    histories = size.num_slots * max_model_len * _FLOAT
    mixture = 0
    if (experts := config.experts) is not None:
        width = experts.width if options.enable_expert_parallel else -(-experts.width // ranks)
        mixture = pair_memory_bytes(width, config.hidden_size, experts.top_k, tokens)
        a_token += experts.num_experts + 2 * experts.top_k
    # The encoder and the text part run one after the other, each with its own memory.
    mixture += encoder_bytes(config.vision, _FLOAT)
    return _FLOAT * (tokens * a_token + _LOGITS_AT_ONCE * rows * config.vocab_size) + histories + mixture
