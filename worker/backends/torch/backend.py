"""The backend of torch's own operations, on any device: slower than the others, and for float weights only.

`TensorBackend` is what it shares with Triton's: how tensors are sampled from, encoded with and kept.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ....kernels import DTYPES, WeightFormat
from ....kernels.arrays import BFLOAT16, FLOAT32, Array, DType
from ....kernels.torch.arrays import array_of, torch_dtype
from ....kernels.torch.operations import TorchOperations
from ....kernels.torch.packed.torch_weights import multiplies_bfloat16
from ....kernels.torch.sampling import TensorSampling
from ....protocol.errors import ConfigError
from ....protocol.processes.heap import give_large_blocks_back
from ....records import dataclass
from ...kv.kv_cache import Blocks, KVShape
from ...kv.second_tier import SecondTier
from ...layers.decoder import Decoder
from ...media.encoder import Encoder
from ...ranks.parallel import Parallel
from ..backend import Backend
from .decoder import TensorDecoder
from .device import TensorDevice
from .encoder import TensorPass
from .host_ranks import for_tensors
from .staged_tier import second_tier
from .tensor_cache import KVCache

# On a CPU torch takes the results of its operations from glibc's heap, where logits of 32 MiB come and go between small
# results that stay: it took 335 MiB where 92 are enough. Smaller blocks are used again too often to give them back.
_LARGE_BLOCK = 16 << 20


@dataclass(frozen=True)
class TensorBackend(Backend):
    device: TensorDevice

    @property
    def kernels_digest(self) -> str:
        return f"torch {torch.__version__}"

    @property
    def sampling(self) -> TensorSampling:
        return TensorSampling()

    @property
    def is_deterministic(self) -> bool:
        return bool(self.ops.is_invariant)  # type: ignore[attr-defined]  # of operations on tensors

    def use_threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def on_host(self, memory: Iterable[Tensor]) -> Iterable[Array]:
        return map(array_of, memory)

    def second_tier(self, blocks: Blocks, num_cells: int) -> SecondTier:
        return second_tier(blocks.parts, num_cells)

    def encoder_pass(self, encoder: Encoder) -> TensorPass:
        return TensorPass(encoder, self.device)


@dataclass(frozen=True)
class TorchBackend(TensorBackend):
    ops: TorchOperations
    multiplies_integers: ClassVar[bool] = False

    @classmethod
    def create(
        cls, device: TensorDevice, dtype: DType, ranks: Parallel, deterministic: bool, missing: str
    ) -> "TorchBackend":
        """On a CPU activations are float32, and so are matrices in a 16-bit format that the CPU can't multiply: torch
        multiplies those at a fraction of float32's speed.
        """
        activations = dtype
        if device.kind == "cpu":
            is_multiplied = dtype == BFLOAT16 and multiplies_bfloat16()
            dtype, activations = (BFLOAT16 if is_multiplied else FLOAT32), FLOAT32
            give_large_blocks_back(_LARGE_BLOCK)
        ops = TorchOperations(device.torch_device, torch_dtype(activations), for_tensors(ranks), deterministic)
        return cls(device, ops, WeightFormat.of(dtype), activations, missing=missing)

    def forward_pass(self, decoder: Decoder) -> TensorDecoder:
        return TensorDecoder(decoder, self.device)

    def encoder_operations(self) -> TorchOperations:
        return replace(self.ops, ranks=Parallel())

    @property
    def kernels(self) -> str:
        return "torch"

    def quantized(self, name: str) -> WeightFormat:
        raise ConfigError(f"quantization={name!r} needs kernels that are not here: {self.missing}")

    def kv_kind(self, kind: str) -> str:
        if kind not in DTYPES:
            raise ConfigError(f"kv_cache_dtype={kind!r} needs kernels that are not here: {self.missing}")
        return kind

    def kv_bytes_per_token(self, shape: KVShape, kind: str) -> int:
        return shape.bytes_per_token(DTYPES[kind])

    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> KVCache:
        return KVCache.allocate(shape, num_blocks, block_size, DTYPES[kind], self.device.torch_device)
