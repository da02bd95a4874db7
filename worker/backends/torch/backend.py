"""The backend of torch's own operations, on any device: slower than the others, and for float weights only."""

from dataclasses import dataclass, replace
from typing import ClassVar

from ....kernels import DTYPES, TorchOperations, WeightFormat, multiplies_bfloat16
from ....kernels.arrays import BFLOAT16, FLOAT32, DType
from ....kernels.torch.arrays import torch_dtype
from ....protocol.errors import ConfigError
from ...kv.kv_cache import KVCache, KVShape
from ...ranks.parallel import Parallel
from ..backend import Backend
from .device import TensorDevice


@dataclass(frozen=True)
class TorchBackend(Backend):
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
        ops = TorchOperations(device.torch_device, torch_dtype(activations), ranks, deterministic)
        return cls(device, ops, WeightFormat.of(dtype), activations, missing=missing)

    def encoder_operations(self) -> TorchOperations:
        return replace(self.ops, ranks=Parallel())

    @property
    def kernels(self) -> str:
        return "torch"

    @property
    def is_deterministic(self) -> bool:
        return self.ops.is_invariant

    def quantized(self, name: str) -> WeightFormat:
        raise ConfigError(f"quantization={name!r} needs kernels that are not here: {self.missing}")

    def kv_kind(self, kind: str) -> str:
        if kind not in DTYPES:
            raise ConfigError(f"kv_cache_dtype={kind!r} needs kernels that are not here: {self.missing}")
        return kind

    def kv_bytes_per_token(self, shape: KVShape, kind: str) -> int:
        return shape.bytes_per_token(torch_dtype(DTYPES[kind]))

    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> KVCache:
        return KVCache.allocate(shape, num_blocks, block_size, torch_dtype(DTYPES[kind]), self.device.torch_device)
