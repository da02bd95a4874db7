"""Loads a model folder as a model that runs batches: number formats, ranks, weights, and a report of what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...kernels import DTYPES, LoraConfig, WeightFormat, triton
from ...kernels.cpu.library import LibraryError
from ...kernels.cpu.library import load as load_library
from ...protocol.conversion import read_record
from ...protocol.errors import ConfigError
from ...protocol.options.quantization import named_layers
from ...protocol.processes.trace import Trace
from ..backends.backend import Backend, BackendOptions, FastDecode, ForwardPass
from ..backends.native.backend import NativeBackend
from ..backends.torch.backend import TorchBackend
from ..device import kind_of
from ..kv.group_shapes import allocated, block_bytes
from ..kv.model_memory import ModelMemory
from ..lora.adapters import AdapterBank
from ..media.encoder import Encoder
from ..media.encoder_pass import EncoderPass
from ..media.rows import KeptMedia
from ..parallel import Parallel
from ..sampler import Sampler
from ..steps.slots import SlotTable
from ..weights.checkpoint import Checkpoint
from ..weights.cut_checkpoint import CutCheckpoint
from ..weights.dummy_source import DummySource
from ..weights.file_checks import check_weight_files
from ..weights.find_layout import own_layout
from ..weights.gguf.checkpoint import GgufCheckpoint, views_of
from ..weights.gguf.linked_files import linked_files
from ..weights.layer_formats import LayerFormats
from ..weights.own_head import with_head_as_stored
from ..weights.packed_cache import PackedCache
from ..weights.tensor_names import check_biases, check_layers, check_unread
from ..weights.weight_files import check_cut, ranks_cut_for
from ..weights.weights import Placement, Source, Weights
from .config import ModelConfig, read_config
from .decoder import Decoder
from .demand import CheckRoom, demand_of, kept_weights, kv_kind, write_through
from .groups import LayerGroup, groups_of
from .origin import origin_of
from .products import HEAD, expert_layers, quantized_kinds
from .split import check_split

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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


def load_model(
    model_folder: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str = "auto",
    ranks: Parallel | None = None,
    load_format: str = "auto",
    options: BackendOptions | None = None,
    quantization: str | None = None,
    lm_head_fp32: bool = False,
    num_threads: int | None = None,
    max_loras: int = 0,
    max_lora_rank: int = 64,
    expert_parallel: bool = False,
    sees: bool = True,
    check_room: CheckRoom | None = None,
    rope_scaling: Mapping[str, Any] | None = None,
) -> Model:
    """Read this rank's share of the model in `model_folder`; `dtype` "auto" is the checkpoint's.

    Before anything is read, `check_room` hears what the model will take, and says whether packed weights are to be
    written and mapped one by one. `num_threads` pack the weights and compute afterwards; None leaves the threads as
    they are. There is room for `max_loras` adapters. Without `sees` a model that could see is loaded without its
    encoder. `rope_scaling` goes before the config's own.
    """
    config = read_config(model_folder, sees, rope_scaling)
    ranks = ranks or Parallel()
    check_split(config, ranks.size, expert_parallel)
    device = torch.device(device)
    number = resolve_dtype(dtype, config)
    backend = select_backend(config, device, number, ranks, options or BackendOptions())
    if num_threads is not None:
        backend.use_threads(num_threads)
    formats = _layer_formats(config, backend, quantization or _converted_with(model_folder, backend), lm_head_fp32)
    gguf = None if load_format == "dummy" else _opened_gguf(model_folder, config)
    if gguf is not None:
        formats = backend.stored_formats(formats, config, gguf, lm_head_fp32)
    cache, not_kept = kept_weights(load_format, backend, model_folder, formats, ranks, expert_parallel)
    demand = demand_of(config, backend, formats, ranks, cache, not_kept, number)
    is_written_through = check_room is not None and check_room(demand)
    source: Source = gguf or DummySource(device, _missing_tensors(config))
    if gguf is None and load_format != "dummy":
        source, config = _opened(model_folder, config, ranks, expert_parallel)
    # Kept as the model's own weights would be, were they not quantized.
    lora = LoraConfig(DTYPES[backend.format.kind], max_loras, max_lora_rank)
    views = partial(views_of, config=config)
    adapters = AdapterBank(lora, backend.ops, own_layout(config), views) if max_loras else None
    placement = Placement(device, formats, backend.activations, backend.ops, ranks, cache, adapters, expert_parallel)
    if cache is not None and is_written_through:
        write_through(cache, demand.weight_bytes)
    decoder, encoder, unread = _read(source, placement, backend, config, model_folder)
    forward_pass = backend.forward_pass(decoder)
    return Model(
        config=config,
        decoder=decoder,
        forward_pass=forward_pass,
        sample=backend.sample(forward_pass),
        backend=backend,
        dtype=number,
        report=LoadReport(source.bytes_read, unread, tuple(placement.kinds)),
        cache=cache,
        adapters=adapters,
        encoding=None if encoder is None else backend.encoder_pass(encoder),
    )


def _read(
    source: Source, placement: Placement, backend: Backend, config: ModelConfig, model_folder: Path
) -> tuple[Decoder, Encoder | None, list[str]]:
    """The layers with their weights, those of an encoder too, and the tensors that none of them needs."""
    encoder, origin = None, origin_of(model_folder)
    try:
        decoder = Decoder(Weights(source, placement), config)
        if config.vision is not None:
            encoder = Encoder(Weights(source, backend.encoder_placement(placement)), config.vision)
        unread = check_unread(origin, source.leftovers(), config)
        check_biases(origin, source.names, config)
    except BaseException:
        if placement.cache is not None:
            placement.cache.close()  # what is half written
        raise
    if placement.cache is not None:
        placement.cache.complete()
    return decoder, encoder, unread


def select_backend(
    config: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    ranks: Parallel,
    options: BackendOptions,
) -> Backend:
    """The fastest backend that can run the model here."""
    missing = ""
    if kind_of(device).kernels == "triton" or triton.is_interpreted():
        if lacking := _lacking_on_gpus(config):
            raise ConfigError(
                f"{config.family.name} {lacking}, and there are no kernels for that on a GPU yet. Use device='cpu'."
            )
        if not (missing := triton.lack()):
            from ..backends.triton.backend import TritonBackend  # its kernels import triton

            # A captured step knows tables of blocks alone.
            captures_steps = options.captures_steps and not any(config.states)
            return TritonBackend.create(device, dtype, ranks, replace(options, captures_steps=captures_steps))
    else:
        try:
            return NativeBackend.create(load_library(), config, device, dtype, ranks)
        except LibraryError as error:
            missing = str(error)
    return TorchBackend.create(device, dtype, ranks, options.deterministic, missing)


def _lacking_on_gpus(config: ModelConfig) -> str:
    if config.latent is not None:
        return "keeps latents in place of keys and values (MLA)"
    attention = [group for group in groups_of(config, 1, gives_back=False) if group.state is None]
    if len(attention) > 1:
        return f"has {len(attention)} kinds of heads in its layers"
    if config.scales.score_cap is not None:
        return "caps the scores of attention (soft cap)"
    if config.qk_norm is not None and config.family.norm.has_mean:
        return "takes the mean off queries and keys (LayerNorm by head)"
    if config.family.norms_values:
        return "norms values"
    if config.family.norms_after_rotation:
        return "norms queries and keys behind their rotation"
    return ""


def _layer_formats(config: ModelConfig, backend: Backend, quantization: str | None, lm_head_fp32: bool) -> LayerFormats:
    kinds = quantized_kinds(config, quantization)
    # As small as in the checkpoint, and with less error than the step to 8-bit floats brought (docs/quantization.md).
    default = replace(backend.format, float8="int8") if backend.multiplies_integers else backend.format
    named = {layer: backend.quantized(kind) if kind else default for layer, kind in kinds.items()}
    floats = {layer for layer in named_layers(quantization, kinds) if kinds[layer] is None}
    named |= dict.fromkeys(floats, backend.format)
    if config.quantization is not None and config.quantization.is_mxfp4 and backend.mxfp4 is not None:
        # Taken over as they are, whatever is asked for, but for those that are to be floats.
        named |= {layer: backend.mxfp4 for layer in expert_layers(config) if layer not in floats}
    if lm_head_fp32:
        named[HEAD] = backend.float32_head()
    return LayerFormats(default, named)


def _converted_with(model_folder: Path, backend: Backend) -> str | None:
    """What a conversion was asked for. It left the head as it was, which gets its kind only now, where there are
    products for it."""
    record = read_record(model_folder) if backend.multiplies_integers else None
    return record.quantization if record else None


def resolve_dtype(dtype: torch.dtype | str, config: ModelConfig) -> torch.dtype:
    """The number format asked for, or with "auto" the checkpoint's."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = config.dtype if dtype == "auto" else dtype
    if name not in _DTYPES:
        raise ConfigError(f"The number format {name!r} is not supported. Use one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def _opened_gguf(model_folder: Path, config: ModelConfig) -> GgufCheckpoint | None:
    """The GGUF files that the folder stands for, if it does."""
    if (linked := linked_files(model_folder)) is None:
        return None
    found = GgufCheckpoint(model_folder, linked, config)
    check_layers(origin_of(model_folder), found.names, config)
    return found


def _opened(
    model_folder: Path, config: ModelConfig, ranks: Parallel, expert_parallel: bool
) -> tuple[Source, ModelConfig]:
    """The whole checkpoint, or where it is cut what this rank has of it; and the config with what it shows."""
    check_weight_files(model_folder)
    check_cut(model_folder, ranks.size, wants_whole_experts=expert_parallel and config.experts is not None)
    source: Source
    if ranks_cut_for(model_folder):
        source = CutCheckpoint(model_folder, config.quantization, ranks.rank, ranks.size)
    else:
        source = Checkpoint(model_folder, config.quantization, config)
    check_layers(origin_of(model_folder), source.names, config)
    return source, with_head_as_stored(config, model_folder, source.names)


def _missing_tensors(config: ModelConfig) -> tuple[str, ...]:
    """Endings of the optional tensors that this model does not have."""
    attention = ("q_proj", "k_proj", "v_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
    recurrent = (
        "in_proj_qkvz",
        "in_proj_ba",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_b",
        "in_proj_a",
        "in_proj",
        "out_proj",
        "conv",
    )
    projections = (*attention, *recurrent, "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "lm_head")
    missing = [f"{name}.bias" for name in projections if name not in config.biased] + ["k_b_proj.weight"]
    if config.quantization is None or not config.quantization.is_mxfp4:
        missing.append("_blocks")
    return tuple(missing)
