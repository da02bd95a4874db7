"""Loads a model folder as a model that runs batches: number formats, ranks, weights, and a report on the loading."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels import DTYPES, LoraConfig
from ...kernels.arrays import DType
from ...protocol.conversion import read_record
from ...protocol.errors import ConfigError
from ...protocol.options.quantization import named_layers
from ...protocol.pooling.form import PoolingForm
from ..backends.backend import Backend, BackendOptions
from ..backends.select import select_backend
from ..description.config import ModelConfig, read_config
from ..description.linked_files import linked_files
from ..description.origin import origin_of
from ..description.products import HEAD, expert_layers, quantized_kinds
from ..description.split import check_split
from ..device import Device, HostDevice
from ..layers.decoder import Decoder
from ..lora.adapters import AdapterBank
from ..media.encoder import Encoder
from ..pooling.head import read_head
from ..ranks.parallel import Parallel
from ..weights.files.checkpoint import Checkpoint
from ..weights.files.cut_checkpoint import CutCheckpoint
from ..weights.files.dummy_source import DummySource
from ..weights.files.file_checks import check_weight_files
from ..weights.files.own_head import with_head_as_stored
from ..weights.files.weight_files import check_cut, ranks_cut_for
from ..weights.layer_formats import LayerFormats
from ..weights.layouts.find_layout import own_layout
from ..weights.layouts.tensor_names import check_biases, check_layers, check_unread
from ..weights.weights import Placement, Source, Weights
from .demand import CheckRoom, demand_of, kept_weights, write_through
from .model import LoadReport, Model

if TYPE_CHECKING:
    from ..weights.gguf.checkpoint import GgufCheckpoint

_DTYPES = {dtype.name: dtype for dtype in DTYPES.values()}


def load_model(
    model_folder: Path,
    *,
    device: Device | None = None,
    dtype: str = "auto",
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
    pooling: PoolingForm | None = None,
) -> Model:
    """Read this rank's share of the model in `model_folder`; `dtype` "auto" is the checkpoint's.

    Before anything is read, `check_room` gets the model's demand and returns whether packed weights must be written
    and mapped one by one. `num_threads` pack the weights and compute afterwards; None leaves the threads as they are.
    There is room for `max_loras` adapters. Without `sees` a vision encoder isn't loaded. `rope_scaling` overrides the
    config's own. With `pooling` the model gives vectors of that form instead of logits.
    """
    config = read_config(model_folder, sees, rope_scaling, is_pooled=pooling is not None)
    ranks = ranks or Parallel()
    check_split(config, ranks.size, expert_parallel)
    number = resolve_dtype(dtype, config)
    backend = select_backend(
        config, device or HostDevice(), number, ranks, replace(options or BackendOptions(), pooled=pooling is not None)
    )
    if num_threads is not None:
        backend.use_threads(num_threads)
    formats = _layer_formats(config, backend, quantization or _converted_with(model_folder, backend), lm_head_fp32)
    gguf = None if load_format == "dummy" else _opened_gguf(model_folder, config)
    if gguf is not None:
        formats = backend.stored_formats(formats, config, gguf, lm_head_fp32)
    cache, not_kept = kept_weights(load_format, backend, model_folder, formats, ranks, expert_parallel)
    demand = demand_of(config, backend, formats, ranks, cache, not_kept, number)
    is_written_through = check_room is not None and check_room(demand)
    source: Source = gguf or DummySource(_missing_tensors(config))
    if gguf is None and load_format != "dummy":
        source, config = _opened(model_folder, config, ranks, expert_parallel, has_head=pooling is None)
    adapters = _adapter_bank(backend, config, max_loras, max_lora_rank) if max_loras else None
    placement = Placement(
        formats,
        backend.activations,
        backend.ops,
        ranks,
        cache,
        adapters,
        expert_parallel,
    )
    if cache is not None and is_written_through:
        write_through(cache, demand.weight_bytes)
    decoder, encoder, unread = _read(source, placement, backend, config, model_folder, pooling)
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
        pooling=pooling,
        head=[] if pooling is None else read_head(pooling, config.hidden_size, model_folder, source),
    )


def _read(
    source: Source,
    placement: Placement,
    backend: Backend,
    config: ModelConfig,
    model_folder: Path,
    pooling: PoolingForm | None,
) -> tuple[Decoder, Encoder | None, list[str]]:
    """Read the decoder, the encoder if any, and the names of tensors that neither needs."""
    encoder, origin = None, origin_of(model_folder)
    try:
        decoder = decoder_of(Weights(source, placement), config, has_head=pooling is None)
        if config.vision is not None:
            encoder = Encoder(Weights(source, backend.encoder_placement(placement)), config.vision)
        unread = check_unread(origin, _not_behind(source.leftovers(), pooling), config)
        check_biases(origin, source.names, config)
    except BaseException:
        if placement.cache is not None:
            placement.cache.close()  # remove half-written files
        raise
    if placement.cache is not None:
        placement.cache.complete()
    return decoder, encoder, unread


def decoder_of(weights: Weights, config: ModelConfig, *, has_head: bool) -> Decoder:
    """The layers of a decoder or an encoder, which has no head."""
    if config.text_embedding is None:
        return Decoder(weights, config, has_head=has_head)
    from ..layers.encoder_stack import encoder_stack

    return encoder_stack(weights, config, config.text_embedding)


def _not_behind(names: Sequence[str], pooling: PoolingForm | None) -> list[str]:
    """The names without those of heads behind a model that is pooled."""
    of_layers = ("model.", "blk.")  # the second: unknown tensors of GGUF files
    return list(names) if pooling is None else [name for name in names if name.startswith(of_layers)]


def _layer_formats(config: ModelConfig, backend: Backend, quantization: str | None, lm_head_fp32: bool) -> LayerFormats:
    kinds = quantized_kinds(config, quantization)
    # As small as in the checkpoint, with less error than rounding to 8-bit floats added (docs/quantization.md).
    default = replace(backend.format, float8=backend.float8) if backend.multiplies_integers else backend.format
    named = {layer: backend.quantized(kind) if kind else default for layer, kind in kinds.items()}
    floats = {layer for layer in named_layers(quantization, kinds) if kinds[layer] is None}
    named |= dict.fromkeys(floats, backend.format)
    if config.quantization is not None and config.quantization.is_mxfp4 and backend.mxfp4 is not None:
        # Kept as stored whatever the options say, except for layers that must be floats.
        named |= {layer: backend.mxfp4 for layer in expert_layers(config) if layer not in floats}
    if lm_head_fp32:
        named[HEAD] = backend.float32_head()
    return LayerFormats(default, named)


def _converted_with(model_folder: Path, backend: Backend) -> str | None:
    """The formats requested from a conversion. It left the head unchanged, which gets its format only now, if there
    are products for it."""
    record = read_record(model_folder) if backend.multiplies_integers else None
    return record.quantization if record else None


def resolve_dtype(dtype: str, config: ModelConfig) -> DType:
    """The requested number format, or with "auto" the checkpoint's."""
    name = config.dtype if dtype == "auto" else dtype
    if name not in _DTYPES:
        raise ConfigError(f"The number format {name!r} is not supported. Use one of {', '.join(_DTYPES)}.")
    return _DTYPES[name]


def _adapter_bank(backend: Backend, config: ModelConfig, max_loras: int, max_lora_rank: int) -> AdapterBank:
    from ..weights.gguf.checkpoint import views_of

    # Cached under the name of the model's own weights, as if they weren't quantized.
    lora = LoraConfig(DTYPES[backend.format.kind], max_loras, max_lora_rank)
    return AdapterBank(lora, backend.ops, own_layout(config), partial(views_of, config=config))


def _opened_gguf(model_folder: Path, config: ModelConfig) -> "GgufCheckpoint | None":
    """Open the GGUF files that the folder links to, if any."""
    if (linked := linked_files(model_folder)) is None:
        return None
    from ..weights.gguf.checkpoint import GgufCheckpoint

    found = GgufCheckpoint(model_folder, linked, config)
    check_layers(origin_of(model_folder), found.names, config)
    return found


def _opened(
    model_folder: Path, config: ModelConfig, ranks: Parallel, expert_parallel: bool, *, has_head: bool = True
) -> tuple[Source, ModelConfig]:
    """Open the checkpoint, or this rank's part of a divided one, and add to the config what its tensors show."""
    check_weight_files(model_folder)
    check_cut(model_folder, ranks.size, wants_whole_experts=expert_parallel and config.experts is not None)
    source: Source
    if ranks_cut_for(model_folder):
        source = CutCheckpoint(model_folder, config.quantization, ranks.rank, ranks.size)
    else:
        source = Checkpoint(model_folder, config.quantization, config)
    check_layers(origin_of(model_folder), source.names, config)
    return source, with_head_as_stored(config, model_folder, source.names) if has_head else config


def opened_again(model_folder: Path, model: Model, ranks: Parallel) -> Source:
    """The checkpoint of a model that was loaded from it."""
    return _opened(model_folder, model.config, ranks, expert_parallel=False)[0]


def _missing_tensors(config: ModelConfig) -> tuple[str, ...]:
    """Suffixes of optional tensors that this model does not have."""
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
