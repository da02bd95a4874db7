"""The interface between a model and the backend that computes it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...kernels import Operations, WeightFormat
from ...kernels.arrays import FLOAT32, Array, DType
from ...kernels.cpu.library import Library
from ...kernels.operands import Kind
from ...kernels.sampling import Sampling
from ...protocol.errors import ConfigError
from ...protocol.processes.trace import Trace
from ...records import dataclass
from ..description.config import ModelConfig
from ..device import Device
from ..kv.kv_cache import Blocks, KVShape
from ..kv.model_memory import ModelMemory
from ..kv.second_tier import HostTier, SecondTier
from ..layers.decoder import Decoder
from ..media.encoder import Encoder
from ..media.encoder_pass import EncoderPass
from ..ranks.parallel import Parallel
from ..sampler import Sampler, sample
from ..steps.batch import step_batch
from ..steps.forward_pass import FastDecode, ForwardPass
from ..steps.slots import SlotTable
from ..weights.layer_formats import LayerFormats
from ..weights.packed.cache import NotKept, PackedCache
from ..weights.weights import Placement

if TYPE_CHECKING:
    from ..weights.gguf.checkpoint import GgufCheckpoint

ReportProgress = Callable[[int, int], None]  # number of captured steps, and their total


@dataclass(frozen=True)
class BackendOptions:
    """Options for computing a model."""

    deterministic: bool = False  # None and False: only if it costs nothing; native kernels always are
    pooled: bool = False  # vectors are kept and compared, so torch computes them deterministically in any case
    portable: bool = False  # with the same bits on every kind of CPU
    captures_steps: bool = True  # and replays them, if the backend can
    captured_rows: tuple[int, ...] = ()  # numbers of rows; empty: the backend chooses
    captured_tokens: int = 0  # of a step with prompts, at most; 0: none is captured
    drafts: bool = False  # steps may have drafts


@dataclass(frozen=True)
class Backend(ABC):
    device: Device
    ops: Operations[Any, Any]
    format: WeightFormat  # of unquantized matrices
    activations: DType  # between products

    # Makes the inputs of a step's forward pass.
    batch = staticmethod(step_batch)

    # For a CPU's native kernels.
    library: Library | None = None
    # Whether there are integer products.
    multiplies_integers: ClassVar[bool] = True
    # What a checkpoint's 8-bit floats become, where there are.
    float8: ClassVar[Kind] = "int8"
    # For MXFP4 weights, if there are products for them.
    mxfp4: ClassVar[WeightFormat | None] = None
    # Whether blocks outside a window are freed for others, in groups with their own tables.
    gives_back: ClassVar[bool] = True
    # Why this runs slower than possible, if it does.
    missing: str = ""

    @property
    @abstractmethod
    def kernels(self) -> str:
        """The name of the kernels, in a word or two."""

    @property
    @abstractmethod
    def kernels_digest(self) -> str:
        """Identifies the sources of the kernels, whose answers may differ in their bits from those of others."""

    @property
    @abstractmethod
    def is_deterministic(self) -> bool:
        """Whether a row's answer is the same in any batch."""

    @abstractmethod
    def use_threads(self, count: int) -> None: ...

    @property
    @abstractmethod
    def sampling(self) -> Sampling:
        """The operations on logits."""

    @abstractmethod
    def quantized(self, name: str) -> WeightFormat:
        """The weight format for this kind of the option `quantization`."""

    def float32_head(self) -> WeightFormat:
        """The format of the head's matrix if it must be float32."""
        if self.activations != FLOAT32:
            raise ConfigError(
                f"lm_head_fp32=True needs activations in float32, and here they are {self.activations}, as they are on "
                "a GPU. Leave it out, or use dtype='float32'."
            )
        return WeightFormat("fp32")

    def stored_formats(
        self, formats: LayerFormats, config: ModelConfig, source: "GgufCheckpoint", keeps_head: bool
    ) -> LayerFormats:
        """The formats of layers from a GGUF file: those of its blocks, if there are products for them;
        `keeps_head`: except the head, whose format was requested."""
        return formats

    def cache(
        self, model_folder: Path, formats: LayerFormats, ranks: Parallel, expert_parallel: bool = False
    ) -> PackedCache:
        """The cache of this model's packed weights. Raises `NotKept`."""
        raise NotKept(f"only native kernels of a CPU map them, and here are {self.kernels}")

    def own_kv_kind(self, kind: str) -> str:
        """The number format of keys and values for "auto", of a model in this one."""
        return kind

    def kv_kind(self, kind: str) -> str:
        """Check that this backend has this number format for keys and values."""
        return kind

    def kv_bytes_per_token(self, shape: KVShape, kind: str) -> int:
        return shape.packed_bytes_per_token(kind)

    @abstractmethod
    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> Blocks: ...

    def on_host(self, memory: Iterable[Any]) -> Iterable[Array]:
        """The parts of a CPU's memory as arrays."""
        return memory

    def second_tier(self, blocks: Blocks, num_cells: int) -> SecondTier:
        return HostTier(blocks.parts, num_cells)

    @abstractmethod
    def forward_pass(self, decoder: Decoder) -> ForwardPass:
        """The forward pass that computes batches of this model."""

    def encoder_placement(self, placement: Placement) -> Placement:
        """The placement of an encoder's weights: every rank has all of them."""
        return replace(placement, ops=self.encoder_operations(), ranks=Parallel(), adapters=None)

    @abstractmethod
    def encoder_operations(self) -> Operations[Any, Any]:
        """Operations of a single rank."""

    @abstractmethod
    def encoder_pass(self, encoder: Encoder) -> EncoderPass:
        """The pass that computes the encoder's stages."""

    def sample(self, forward_pass: ForwardPass) -> Sampler:
        """The sampler of tokens from the forward pass's logits."""
        return partial(sample, self.sampling)

    def capture(
        self,
        forward_pass: ForwardPass,
        sample: Sampler,
        table: SlotTable,
        memory: ModelMemory,
        ranks: Parallel,
        most_bytes: int,
        on_progress: ReportProgress,
    ) -> None:
        """Capture steps before the first request, within so many bytes, if the backend captures steps."""
        return

    def forget_captured(self, forward_pass: ForwardPass) -> None:
        """Free the captured steps. Ranks do so before leaving their group, because NCCL waits for captured steps."""
        return

    def fast_decode(
        self,
        forward_pass: ForwardPass,
        sample: Sampler,
        memory: ModelMemory,
        table: SlotTable,
        ranks: Parallel,
        trace: Trace,
    ) -> FastDecode | None:
        """The fast path for pure decode steps, if this backend has one."""
        return None
