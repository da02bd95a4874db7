"""The backend of a GPU's kernels in Triton, with captured steps; on a CPU it runs in Triton's interpreter."""

from dataclasses import field, replace
from typing import ClassVar

from ....kernels import WeightFormat
from ....kernels.arrays import DType
from ....kernels.operands import Kind
from ....kernels.paged import KV_DTYPES
from ....kernels.torch.arrays import torch_dtype
from ....kernels.torch.operations import TorchOperations
from ....kernels.triton import is_interpreted
from ....kernels.triton.attention import library
from ....kernels.triton.fused_operations import FusedOperations
from ....kernels.triton.launch.switches import FAST_RANKS, FLOAT8_PRODUCTS, FUSED_PRODUCTS, GRAPHS, PROMPT_GRAPHS
from ....kernels.triton.operations import TritonOperations
from ....kernels.triton.sampling.race import choose
from ....protocol.errors import ConfigError
from ....protocol.processes.trace import Trace
from ....records import dataclass
from ...description.config import ModelConfig
from ...kv.kv_cache import KVShape
from ...kv.model_memory import ModelMemory
from ...layers.decoder import Decoder
from ...ranks.parallel import Parallel
from ...sampler import Sampler
from ...steps.forward_pass import ForwardPass
from ...steps.slots import SlotTable
from ...weights.gguf.checkpoint import GgufCheckpoint
from ...weights.gguf.stored_kinds import with_kinds_of_blocks
from ...weights.layer_formats import LayerFormats
from ...weights.weights import Placement
from ..backend import BackendOptions, ReportProgress
from ..torch.backend import TensorBackend
from ..torch.device import TensorDevice
from ..torch.host_ranks import for_tensors
from ..torch.tensor_cache import DeviceKVCache
from .decoder import GraphedDecoder
from .device_batch import DeviceBatch
from .fast_decode import GraphedFastDecode
from .graph_capture import GraphCapture
from .sampler import GraphedSampler

_GROUP_SIZE = 64
# By the option's value; "w" means weights only.
_QUANTIZED = {
    "int8": WeightFormat("int8", quantizes_rows=True),
    "wint8": WeightFormat("int8"),
    "int4": WeightFormat("int4", _GROUP_SIZE),
    "wint4": WeightFormat("int4", _GROUP_SIZE),
}


@dataclass(frozen=True)
class TritonBackend(TensorBackend):
    batch = DeviceBatch  # type: ignore[assignment]  # for one group of layers

    gives_back: ClassVar[bool] = False  # a graph has one table of blocks
    ops: TritonOperations  # type: ignore[assignment]  # no latents: `select_backend` refuses them
    options: BackendOptions = field(default_factory=BackendOptions)

    @classmethod
    def create(cls, device: TensorDevice, dtype: DType, ranks: Parallel, options: BackendOptions) -> "TritonBackend":
        is_fused = FUSED_PRODUCTS.is_on and not options.deterministic
        form = FusedOperations if is_fused else TritonOperations
        ops = form(device.torch_device, torch_dtype(dtype), for_tensors(ranks), options.deterministic)
        missing = library.lack() if device.kind == "cuda" else ""
        return cls(device, ops, WeightFormat.of(dtype), dtype, options=options, missing=missing)

    @property
    def captures_steps(self) -> bool:
        return self.options.captures_steps and GRAPHS.is_on

    @property
    def float8(self) -> Kind:  # type: ignore[override]  # depends on the options
        """As it is, unless a row's bits must not depend on its company; what no product takes becomes int8."""
        return "fp8" if FLOAT8_PRODUCTS.is_on and not self.options.deterministic else "int8"

    @property
    def kernels(self) -> str:
        return "triton, interpreted" if is_interpreted() else "triton"

    def quantized(self, name: str) -> WeightFormat:
        return _QUANTIZED[name]

    def stored_formats(
        self, formats: LayerFormats, config: ModelConfig, source: GgufCheckpoint, keeps_head: bool
    ) -> LayerFormats:
        return with_kinds_of_blocks(formats, config, source, keeps_head)

    def kv_kind(self, kind: str) -> str:
        if kind not in KV_DTYPES:
            raise ConfigError(f"kv_cache_dtype={kind!r} is for processors; a GPU has {', '.join(KV_DTYPES)}.")
        return kind

    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> DeviceKVCache:
        return DeviceKVCache.allocate(shape, num_blocks, block_size, kind, self.device.torch_device)

    def forward_pass(self, decoder: Decoder) -> GraphedDecoder:
        options, captures_drafts = self.options, self.options.drafts and self.is_deterministic
        most_tokens = options.captured_tokens if PROMPT_GRAPHS.is_on else 0
        return GraphedDecoder(
            decoder, self.device, self.captures_steps, options.captured_rows, captures_drafts, most_tokens
        )

    def encoder_placement(self, placement: Placement) -> Placement:
        return replace(super().encoder_placement(placement), formats=LayerFormats(self.format))

    def encoder_operations(self) -> TorchOperations:
        """Torch's operations, which compute the encoder from floats."""
        return TorchOperations(self.device.torch_device, self.ops.activations, Parallel(), self.ops.is_invariant)

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
        GraphCapture(forward_pass, sample, table, memory, ranks).capture_all(most_bytes, on_progress)

    def forget_captured(self, forward_pass: GraphedDecoder) -> None:  # type: ignore[override]  # made above
        forward_pass.forget()

    def sample(self, forward_pass: GraphedDecoder) -> Sampler:  # type: ignore[override]  # made above
        return GraphedSampler(forward_pass, self.sampling, choose)

    def fast_decode(  # type: ignore[override]  # takes what `forward_pass` has returned
        self,
        forward_pass: GraphedDecoder,
        sample: Sampler,
        memory: ModelMemory,
        table: SlotTable,
        ranks: Parallel,
        trace: Trace,
    ) -> GraphedFastDecode | None:
        if not self.captures_steps or (ranks.size > 1 and not FAST_RANKS.is_on):
            return None
        return GraphedFastDecode(forward_pass, sample, memory, table, ranks, trace)
