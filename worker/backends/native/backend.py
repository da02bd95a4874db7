"""The backend of a CPU's native kernels: recorded steps, and packed weights that are kept for the next start."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from ....kernels import WeightFormat
from ....kernels.arrays import FLOAT32, DType
from ....kernels.cpu.kv_memory import HEAD_DIM_STEP, LARGEST_HEAD_DIM, LARGEST_LATENT
from ....kernels.cpu.library import Library, LibraryError
from ....kernels.cpu.operations import NativeOperations
from ....kernels.cpu.sampling import NativeSampling
from ....kernels.cpu.weights.packed import DEFAULT_GROUP_SIZE
from ....kernels.stored.mxfp4 import BLOCK
from ....protocol.errors import ConfigError
from ....protocol.files.sizes import exact_size
from ....protocol.processes.trace import Trace
from ....records import dataclass
from ...description.config import ModelConfig
from ...device import HostDevice
from ...kv.kv_cache import KVShape, NativeKVCache
from ...kv.model_memory import ModelMemory
from ...layers.decoder import Decoder
from ...media.encoder import Encoder
from ...ranks.host_ranks import HostRanks
from ...ranks.parallel import Parallel
from ...sampler import Sampler
from ...steps.slots import SlotTable
from ...weights.files.weight_files import weight_files
from ...weights.layer_formats import LayerFormats
from ...weights.packed.cache import NotKept, PackedCache
from ..backend import Backend
from .decoder import Recordable, RecordedDecoder, RecordedStream
from .encoder import RecordedPass
from .fast_decode import RecordedFastDecode

if TYPE_CHECKING:
    from ...weights.gguf.checkpoint import GgufCheckpoint

_LOG = logging.getLogger(__name__)
_WORTH_KEEPING = 64 << 20  # bytes of a checkpoint; packing less takes no time
# By the option's value. "w" means weights only, but on a CPU products use int8 activations anyway.
_QUANTIZED = {"int8": WeightFormat("int8"), "int4": WeightFormat("int4", DEFAULT_GROUP_SIZE)}
_QUANTIZED |= {f"w{kind}": format for kind, format in _QUANTIZED.items()}


@dataclass(frozen=True)
class NativeBackend(Backend):
    library: Library
    ops: NativeOperations
    mxfp4: ClassVar[WeightFormat | None] = WeightFormat("mxfp4", BLOCK)

    @classmethod
    def create(cls, library: Library, config: ModelConfig, dtype: DType, ranks: Parallel) -> "NativeBackend":
        _check_heads(config)
        if isinstance(ranks, HostRanks):
            ranks.use_kernels(library)
        return cls(HostDevice(), NativeOperations(library, ranks), WeightFormat.of(dtype), FLOAT32, library)

    @property
    def kernels(self) -> str:
        return f"native, {self.library.variant}"

    @property
    def kernels_digest(self) -> str:
        return self.library.identity

    @property
    def is_deterministic(self) -> bool:
        return True

    @property
    def sampling(self) -> NativeSampling:
        return NativeSampling(self.library)

    def use_threads(self, count: int) -> None:
        # Two thread pools in one process would compete for cores, so torch's, where it is loaded, gets one thread.
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(1)
        self.library.set_threads(count)

    def quantized(self, name: str) -> WeightFormat:
        return _QUANTIZED[name]

    def stored_formats(
        self, formats: LayerFormats, config: ModelConfig, source: "GgufCheckpoint", keeps_head: bool
    ) -> LayerFormats:
        from ...weights.gguf.stored_kinds import with_stored_kinds

        return with_stored_kinds(formats, config, source, keeps_head)

    def cache(
        self, model_folder: Path, formats: LayerFormats, ranks: Parallel, expert_parallel: bool = False
    ) -> PackedCache:
        stored = sum(path.stat().st_size for path in weight_files(model_folder))
        if stored < _WORTH_KEEPING:
            raise NotKept(f"a checkpoint of less than {exact_size(_WORTH_KEEPING)} is not kept")
        try:
            return PackedCache.of(model_folder, self.library.identity, formats, ranks.rank, ranks.size, expert_parallel)
        except (ConfigError, OSError) as error:
            _LOG.info("Packed weights are not kept for the next start: %s", error)
            raise NotKept(str(error).rstrip(".")) from error

    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> NativeKVCache:
        return NativeKVCache.allocate(shape, num_blocks, block_size, kind)

    def forward_pass(self, decoder: Decoder) -> RecordedDecoder:
        return RecordedDecoder(decoder, self.ops)

    def record(self, head: Recordable) -> RecordedStream:
        """The forward pass of a head that drafts."""
        return RecordedStream(head, self.ops)

    def encoder_operations(self) -> NativeOperations:
        return NativeOperations(self.library, Parallel())

    def encoder_pass(self, encoder: Encoder) -> RecordedPass:
        ops, kv_kind = cast(NativeOperations, encoder.placement.ops), self.own_kv_kind(self.format.kind)
        return RecordedPass(encoder, ops, kv_kind)

    def fast_decode(  # type: ignore[override]  # takes what `forward_pass` has returned
        self,
        forward_pass: RecordedDecoder,
        sample: Sampler,
        memory: ModelMemory,
        table: SlotTable,
        ranks: Parallel,
        trace: Trace,
    ) -> RecordedFastDecode:
        return RecordedFastDecode(forward_pass, memory, table, ranks, trace)


def _check_heads(config: ModelConfig) -> None:
    sizes: tuple[int, ...] = tuple(dict.fromkeys(heads.head_dim for heads in config.heads))
    largest, what = LARGEST_HEAD_DIM, "heads"
    if config.latent is not None:
        sizes, largest, what = (
            (config.latent.rank, config.latent.width),
            LARGEST_LATENT,
            "latents, alone and with a key,",
        )
    if any(size % HEAD_DIM_STEP or size > largest for size in sizes):
        raise LibraryError(
            f"their attention takes {what} of a multiple of {HEAD_DIM_STEP} up to {largest} numbers, and this model's "
            f"have {' and '.join(map(str, sizes))}."
        )
