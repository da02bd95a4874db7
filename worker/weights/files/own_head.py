"""Decides whether a stored head is used although the config ties it to the embedding's table.

Many exporters save a tied head a second time; in other checkpoints the head was trained separately and the config is
wrong. The values decide, as in transformers.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy

from ....kernels.arrays import Array
from ....protocol.errors import ConfigError
from ...description.config import ModelConfig
from ...description.products import HEAD
from .checkpoint import Checkpoint

_HEAD, _TABLE = f"{HEAD}.weight", "model.embed_tokens.weight"
_PIECE_ROWS = 4096  # compared at once: a separate head differs in the first of them


def with_head_as_stored(config: ModelConfig, folder: Path, names: Iterable[str]) -> ModelConfig:
    """Untie the config if these tensors have a head with other values than the table's."""
    names = set(names)
    if not config.tie_word_embeddings:
        # A quantized head has no plain weight tensor.
        if _TABLE in names and not any(name.startswith(f"{HEAD}.") and name != f"{HEAD}.bias" for name in names):
            raise ConfigError(
                f"{folder} holds no {_HEAD}, and its config.json says that the head has numbers of its own "
                "(tie_word_embeddings is false, or left out). If the model was saved with a tied head, write "
                '"tie_word_embeddings": true into config.json; otherwise download the model again as a whole.'
            )
        return config
    is_stored_twice = names.issuperset((_HEAD, _TABLE))
    if is_stored_twice and not _are_equal(Checkpoint(folder, config.quantization, config), config):
        return replace(config, tie_word_embeddings=False)
    return config


def _are_equal(checkpoint: Checkpoint, config: ModelConfig) -> bool:
    shape = config.vocab_size, config.hidden_size
    for first in range(0, config.vocab_size, _PIECE_ROWS):
        rows = (0, first, min(first + _PIECE_ROWS, config.vocab_size))
        head, table = (checkpoint.matrix(name, shape, rows) for name in (_HEAD, _TABLE))
        if not isinstance(head, numpy.ndarray) or not isinstance(table, numpy.ndarray):  # 8-bit floats
            return False
        if not numpy.array_equal(_bits(head), _bits(table.astype(head.dtype, copy=False))):
            return False
    return True


def _bits(floats: Array) -> Array:
    """As integers, which are compared much faster than bfloat16."""
    return floats.view(f"u{floats.itemsize}")
