"""The number formats of layers whose weights come unchanged from a GGUF file.

Blocks keep their type whatever the options say. Floats keep their format unless they are to be quantized; if the floats
of one product differ, all get the widest format.
"""

from collections.abc import Mapping
from dataclasses import replace

from ....kernels import WeightFormat
from ....kernels.operands import DTYPES
from ....kernels.stored.block_kinds import KINDS_OF_TYPES
from ....kernels.stored.mxfp4 import BLOCK
from ...description.config import ModelConfig
from ...description.products import HEAD, TABLE, VISION, products
from ..layer_formats import LayerFormats
from .checkpoint import GgufCheckpoint
from .tensors import FLOATS

_FLOAT_KINDS = {type: WeightFormat.of(dtype) for type, dtype in FLOATS.items() if dtype in DTYPES.values()}
_BLOCK_KINDS = {type: WeightFormat(kind) for type, kind in KINDS_OF_TYPES.items()} | {
    "MXFP4": WeightFormat("mxfp4", BLOCK)
}


def with_stored_kinds(
    formats: LayerFormats, config: ModelConfig, source: GgufCheckpoint, keeps_head: bool
) -> LayerFormats:
    """Formats for kernels that multiply blocks directly; `keeps_head`: except the head, whose format was requested."""
    named = dict(formats.named)
    for product in products(config):
        types = {layer: _type_of(layer, source) for layer in product.layers}
        named |= {layer: _BLOCK_KINDS[type] for layer, type in types.items() if type in _BLOCK_KINDS}
        floats = [layer for layer, type in types.items() if type in _FLOAT_KINDS and _is_plain(named, layer, formats)]
        named |= dict.fromkeys(floats, _widest([_FLOAT_KINDS[types[layer]] for layer in floats], formats.own))
    if keeps_head:
        named[HEAD] = formats.of(HEAD)
    table = source.type_of(TABLE)
    return LayerFormats(formats.own, named | {TABLE: (_BLOCK_KINDS | _FLOAT_KINDS).get(table, formats.own)})


def with_kinds_of_blocks(
    formats: LayerFormats, config: ModelConfig, source: GgufCheckpoint, keeps_head: bool
) -> LayerFormats:
    """Formats for a GPU's kernels, which multiply blocks directly. The rest is widened: experts whose gate and up have
    different types, an encoder, and the embedding's table, even if it is also the head."""
    named = dict(formats.named)
    for product in products(config):
        types = {layer: source.type_of(layer) for layer in product.layers}
        if product.layers[0].startswith(VISION) or (product.is_of_experts and len({*types.values()}) > 1):
            continue
        kinds = {layer: _BLOCK_KINDS[type].kind for layer, type in types.items() if type in _BLOCK_KINDS}
        named |= {layer: WeightFormat(kind) for layer, kind in kinds.items()}
    if keeps_head:
        named[HEAD] = formats.of(HEAD)
    return LayerFormats(formats.own, named)


def _type_of(layer: str, source: GgufCheckpoint) -> str:
    """The stored type; a head that isn't stored is the embedding's table."""
    return source.type_of(layer) or (source.type_of(TABLE) if layer == HEAD else "")


def _is_plain(named: Mapping[str, WeightFormat], layer: str, formats: LayerFormats) -> bool:
    """Whether no other format is requested."""
    return replace(named[layer], float8=None) == replace(formats.own, float8=None)


def _widest(found: list[WeightFormat], own: WeightFormat) -> WeightFormat:
    unlike = set(found)
    return unlike.pop() if len(unlike) == 1 else WeightFormat("fp32") if unlike else own
