"""What computes a model on this device: torch's operations, or on a CPU the native kernels where they are at hand.

Chosen once, when a model loads; with it go the number formats that it multiplies. Knows nothing of layers.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from ...kernels import DTYPES, FAST, INVARIANT, Operations, TorchOperations, WeightForm, multiplies_bfloat16
from ...kernels.cpu.kv_memory import HEAD_DIM_STEP, LARGEST_HEAD_DIM
from ...kernels.cpu.library import Library, LibraryError, load
from ...kernels.cpu.operations import NativeOperations
from ...kernels.cpu.weights import DEFAULT_GROUP_SIZE
from ...protocol.errors import ConfigError
from ..kv_cache import AnyKVCache, KVCache, KVShape, NativeKVCache
from ..packed_cache import PackedCache
from ..parallel import Parallel
from ..weight_files import weight_files
from .config import ModelConfig
from .decoder import Decoder
from .recorded import RecordedDecoder

_WORTH_KEEPING = 64 << 20  # bytes of a checkpoint; less is packed in a blink
# By the option's value. "w" asks for weights alone, and on a CPU the products take activations as int8 anyway.
_QUANTIZED = {"int8": WeightForm("int8"), "int4": WeightForm("int4", DEFAULT_GROUP_SIZE)}
_QUANTIZED |= {f"w{kind}": form for kind, form in _QUANTIZED.items()}


@dataclass(frozen=True)
class Backend:
    device: torch.device
    ops: Operations
    form: WeightForm  # of matrices that are not quantized
    activations: torch.dtype  # between the products
    library: Library | None = None  # of native kernels
    missing: str = ""  # why there is none, on a CPU

    @property
    def is_deterministic(self) -> bool:
        """Whether answers are free of their company's influence."""
        return self.library is not None or (isinstance(self.ops, TorchOperations) and self.ops.set is INVARIANT)

    def use_threads(self, count: int) -> None:
        """Two pools in one process would fight over the cores, so torch's rests where the library has one."""
        torch.set_num_threads(count if self.library is None else 1)
        if self.library is not None:
            self.library.set_threads(count)

    def quantized(self, name: str) -> WeightForm:
        if self.library is None:
            raise ConfigError(f"quantization={name!r} needs kernels that are not here: {self._lack()}")
        return _QUANTIZED[name]

    def cache(self, model_folder: Path, form: WeightForm, ranks: Parallel) -> PackedCache | None:
        """Where packed weights of this model are kept, if that saves more than it takes."""
        stored = sum(path.stat().st_size for path in weight_files(model_folder))
        if self.library is None or stored < _WORTH_KEEPING:
            return None
        return PackedCache.of(model_folder, self.library.identity, form, ranks.rank, ranks.size)

    def kv_kind(self, kind: str) -> str:
        """This number format of keys and values, if it can be had here."""
        if self.library is None and kind not in DTYPES:
            raise ConfigError(f"kv_cache_dtype={kind!r} needs kernels that are not here: {self._lack()}")
        return kind

    def kv_bytes_per_token(self, shape: KVShape, kind: str) -> int:
        return shape.bytes_per_token(DTYPES[kind]) if self.library is None else shape.native_bytes_per_token(kind)

    def kv_memory(self, shape: KVShape, num_blocks: int, block_size: int, kind: str) -> AnyKVCache:
        if self.library is None:
            return KVCache.allocate(shape, num_blocks, block_size, DTYPES[kind], self.device)
        return NativeKVCache.allocate(shape, num_blocks, block_size, kind)

    def _lack(self) -> str:
        return self.missing or "the GPU's are not built yet."

    def runs(self, decoder: Decoder) -> Decoder | RecordedDecoder:
        return RecordedDecoder(decoder, self.ops) if isinstance(self.ops, NativeOperations) else decoder


def chosen_backend(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, ranks: Parallel, deterministic: bool
) -> Backend:
    missing = ""
    if device.type == "cpu":
        try:
            return _native(load(), config, device, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return _torch(device, dtype, ranks, deterministic, missing)


def _native(
    library: Library, config: ModelConfig, device: torch.device, dtype: torch.dtype, ranks: Parallel
) -> Backend:
    if config.head_dim % HEAD_DIM_STEP or config.head_dim > LARGEST_HEAD_DIM:
        raise LibraryError(
            f"their attention takes heads of a multiple of {HEAD_DIM_STEP} up to {LARGEST_HEAD_DIM} numbers, and this "
            f"model's have {config.head_dim}."
        )
    return Backend(device, NativeOperations(library, ranks), WeightForm.of(dtype), torch.float32, library)


def _torch(device: torch.device, dtype: torch.dtype, ranks: Parallel, deterministic: bool, missing: str) -> Backend:
    """On a CPU activations are float32, and so are the matrices of a half format that its units can't multiply: torch
    multiplies those at a fraction of float32's speed.
    """
    activations = dtype
    if device.type == "cpu":
        is_multiplied = dtype == torch.bfloat16 and multiplies_bfloat16()
        dtype, activations = (torch.bfloat16 if is_multiplied else torch.float32), torch.float32
    ops = TorchOperations(INVARIANT if deterministic else FAST, device, activations, ranks)
    return Backend(device, ops, WeightForm.of(dtype), activations, missing=missing)
