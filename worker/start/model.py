"""A loaded model: its decoder, the forward pass that computes its batches, and the memory of its layers."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy

from ...kernels import WeightFormat
from ...kernels.arrays import Array, DeviceArray, DType
from ...protocol.pooling.form import PoolingForm
from ...protocol.processes.trace import Trace
from ...records import dataclass
from ..backends.backend import Backend
from ..description.config import ModelConfig
from ..description.groups import LayerGroup, groups_of, with_draft_groups
from ..kv.model_memory import ModelMemory
from ..kv.second_tier import SecondTier
from ..lora.adapters import AdapterBank
from ..media.encoder_pass import EncoderPass
from ..media.rows import KeptMedia
from ..pooling.head import Layer
from ..pooling.pooling import Pooling
from ..ranks.parallel import Parallel
from ..sampler import Sampler
from ..steps.forward_pass import FastDecode, ForwardPass
from ..steps.slots import SlotTable
from ..weights.packed.cache import PackedCache
from ..weights.weights import Placement
from .demand import kv_kind
from .group_memory import allocated, block_bytes


@dataclass(frozen=True)
class LoadReport:
    """A report on what this rank has loaded."""

    bytes_read: int
    leftovers: list[str]  # tensors that no layer needs, such as heads for speculative decoding
    kinds: tuple[str, ...]  # number formats of the projections; empty: only the model's own


class Layers(Protocol):
    """A decoder, or a head that drafts."""

    @property
    def placement(self) -> Placement: ...

    @property
    def layers(self) -> Sequence[Any]: ...


@dataclass(frozen=True)
class Model:
    """A loaded model and its properties that the engine and memory plan need."""

    config: ModelConfig
    decoder: Layers
    forward_pass: ForwardPass  # computes a batch: the decoder, or its recorded or captured form
    sample: Sampler  # chooses tokens from its logits
    backend: Backend
    dtype: DType  # the model's number format, in which its keys and values are stored by default
    report: LoadReport
    cache: PackedCache | None = None  # of packed weights; new ones wait to be written
    adapters: AdapterBank | None = None  # of LoRA, if enabled
    encoding: EncoderPass | None = None  # of pictures, if the model has vision
    kv_default: str = ""  # number format of keys and values for "auto"
    draft_config: ModelConfig | None = None  # of the model that drafts for it
    draft: "Model | None" = None  # that model, on rank 0
    reads_states: bool = False  # it is heads that read this model's hidden states
    pooling: PoolingForm | None = None  # if it gives vectors instead of logits
    head: Sequence[Layer] = ()  # behind the pooled rows

    @property
    def caches(self) -> list[PackedCache]:
        """The packed weights of this model and of the one that drafts for it, where they are kept."""
        of_draft = [] if self.draft is None else self.draft.caches
        return of_draft if self.cache is None else [self.cache, *of_draft]

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_position(self) -> int:
        """The config's context in tokens."""
        return self.config.max_position

    @property
    def stretches(self) -> tuple[int, ...]:
        """The lengths that positions are rotated for, if that depends on a request's length."""
        return self.config.ropes.stretches

    @property
    def shifts_rotations(self) -> bool:
        """Whether a position's row in the rotary tables may differ from the position."""
        return bool(self.stretches) or any(rope.axes for rope in self.config.ropes.ropes)

    @property
    def rows_of_type(self) -> int:
        """Rows of each type of text in the table of learned positions; 0: all texts are of one type."""
        form = self.config.text_embedding
        return 0 if form is None or form.num_types < 2 else form.num_positions

    @property
    def padding_token(self) -> int | None:
        """The token that takes none of the learned positions, if there is one."""
        return None if self.config.text_embedding is None else self.config.text_embedding.padding_token

    def kv_kind(self, wanted: str = "auto") -> str:
        """The number format of keys and values: the requested one, or the model's own."""
        own = self.kv_default or WeightFormat.of(self.dtype).kind
        return kv_kind(self.config, self.backend, own, wanted)

    def groups(self, max_model_len: int) -> tuple[LayerGroup, ...]:
        """The groups of layers with a memory of their own, for requests up to this length."""
        own = groups_of(self.config, max_model_len, self.backend.gives_back)
        if self.draft_config is None:
            return own
        return with_draft_groups(own, self.config.num_layers, self.draft_config)

    def block_bytes(self, group: LayerGroup, block_size: int, kind: str) -> int:
        """Bytes of one block or state in all layers of the group on this rank."""
        return block_bytes(group, self.backend, self._ranks, block_size, kind)

    def memory(
        self, groups: Sequence[LayerGroup], num_blocks: Sequence[int], block_size: int, kind: str | None = None
    ) -> ModelMemory:
        """Allocate the memory; `num_blocks` by group."""
        sources = [heads.source for heads in self.config.heads]
        if self.draft_config is not None:
            offset, of_draft = len(sources), (heads.source for heads in self.draft_config.heads)
            sources += [None if source is None else offset + source for source in of_draft]
        return allocated(groups, num_blocks, self.backend, self._ranks, block_size, kind or self.kv_kind(), sources)

    def plain_memory(self, num_blocks: int, block_size: int, kind: str | None = None) -> ModelMemory:
        """The same number of blocks in each group, with windows keeping all tokens: for use without an engine."""
        groups = groups_of(self.config, self.max_position, gives_back=False)
        return self.memory(groups, [num_blocks] * len(groups), block_size, kind)

    def second_tiers(self, memory: ModelMemory, num_cells: Sequence[int]) -> list[SecondTier]:
        """Make a tier for each group of layers, or none if there are no cells."""
        if not any(num_cells):
            return []
        return [self.backend.second_tier(*each) for each in zip(memory.groups, num_cells, strict=True)]

    def kept_media(self, num_rows: int) -> KeptMedia | None:
        """Memory for so many rows of media, if the model has vision."""
        return None if self.encoding is None else KeptMedia(self.encoding, num_rows)

    def pooler(self) -> Pooling | None:
        """What gathers the rows of its prompts, if it gives vectors."""
        if self.pooling is None:
            return None
        host = self.backend.device

        def states_of(hidden: DeviceArray, rows: Array) -> Array:
            states = host.host_copy(self.forward_pass.logits(hidden, host.put(rows)))()
            return numpy.array(states, numpy.float32)  # a copy: the next call writes over them

        return Pooling(self.pooling, self.head, states_of)

    def fast_decode(self, memory: ModelMemory, table: SlotTable, ranks: Parallel, trace: Trace) -> FastDecode | None:
        return self.backend.fast_decode(self.forward_pass, self.sample, memory, table, ranks, trace)

    @property
    def _ranks(self) -> Parallel:
        return self.decoder.placement.ranks
