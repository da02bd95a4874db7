"""A loaded model: its decoder, what computes batches of it, and the memory that its layers keep."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ...kernels import WeightFormat
from ...protocol.processes.trace import Trace
from ..backends.backend import Backend
from ..description.config import ModelConfig
from ..description.groups import LayerGroup, groups_of
from ..kv.model_memory import ModelMemory
from ..layers.decoder import Decoder
from ..lora.adapters import AdapterBank
from ..media.encoder_pass import EncoderPass
from ..media.rows import KeptMedia
from ..ranks.parallel import Parallel
from ..sampler import Sampler
from ..steps.forward_pass import FastDecode, ForwardPass
from ..steps.slots import SlotTable
from ..weights.packed.cache import PackedCache
from .demand import kv_kind
from .group_memory import allocated, block_bytes


@dataclass(frozen=True)
class LoadReport:
    """What loading read on this rank."""

    bytes_read: int
    leftovers: list[str]  # tensors in the checkpoint that no layer needs, such as heads that guess further tokens
    kinds: tuple[str, ...]  # of numbers that the projections are computed with; none: the model's own alone


@dataclass(frozen=True)
class Model:
    """A loaded model, and what its surroundings ask of it."""

    config: ModelConfig
    decoder: Decoder
    forward_pass: ForwardPass  # what computes a batch: the decoder, or what replaces it
    sample: Sampler  # how tokens are chosen from its logits
    backend: Backend
    dtype: torch.dtype  # the model's number format, in which its keys and values are stored by default
    report: LoadReport
    cache: PackedCache | None = None  # of packed weights; what is new in it waits to be written
    adapters: AdapterBank | None = None  # of LoRA, where there may be any
    encoding: EncoderPass | None = None  # of pictures, where the model sees
    kv_default: str = ""  # the format of keys and values that "auto" means

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_position(self) -> int:
        """Tokens of context that the config gives."""
        return self.config.max_position

    @property
    def stretches(self) -> tuple[int, ...]:
        """The lengths that positions are rotated for, where that depends on a request's length."""
        return self.config.ropes.stretches

    @property
    def shifts_rotations(self) -> bool:
        """Whether positions may have other rows in rotary tables than their own."""
        return bool(self.stretches) or any(rope.axes for rope in self.config.ropes.ropes)

    def kv_kind(self, wanted: str = "auto") -> str:
        """The number format of keys and values: the one asked for, or the model's own."""
        own = self.kv_default or WeightFormat.of(self.dtype).kind
        return kv_kind(self.config, self.backend, own, wanted)

    def groups(self, max_model_len: int) -> tuple[LayerGroup, ...]:
        """The groups of layers that have a memory of their own where no request is longer."""
        return groups_of(self.config, max_model_len, self.backend.gives_back)

    def block_bytes(self, group: LayerGroup, block_size: int, kind: str) -> int:
        """Of one block, or state, in all layers of the group on this rank."""
        return block_bytes(group, self.backend, self._ranks, block_size, kind)

    def memory(
        self, groups: Sequence[LayerGroup], num_blocks: Sequence[int], block_size: int, kind: str | None = None
    ) -> ModelMemory:
        """`num_blocks` are those of each group."""
        sources = [heads.source for heads in self.config.heads]
        return allocated(groups, num_blocks, self.backend, self._ranks, block_size, kind or self.kv_kind(), sources)

    def plain_memory(self, num_blocks: int, block_size: int, kind: str | None = None) -> ModelMemory:
        """As many blocks in each group, windows keeping all tokens: for those who drive a model without an engine."""
        groups = groups_of(self.config, self.max_position, gives_back=False)
        return self.memory(groups, [num_blocks] * len(groups), block_size, kind)

    def kept_media(self, num_rows: int) -> KeptMedia | None:
        """Memory for so many rows of media, if the model sees."""
        return None if self.encoding is None else KeptMedia(self.encoding, num_rows)

    def fast_decode(self, memory: ModelMemory, table: SlotTable, ranks: Parallel, trace: Trace) -> FastDecode | None:
        return self.backend.fast_decode(self.forward_pass, self.sample, memory, table, ranks, trace)

    @property
    def _ranks(self) -> Parallel:
        return self.decoder.placement.ranks
