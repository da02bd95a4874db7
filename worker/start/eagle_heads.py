"""Reads EAGLE-3 heads from a folder of their own, and lets them read the streams of some of the model's layers."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy

from ...kernels.arrays import FLOAT32, Array, DeviceArray
from ...kernels.cpu.program import Buffer
from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ..backends.native.backend import NativeBackend
from ..backends.native.decoder import RecordedStream
from ..description.eagle_heads import EagleForm, check_all_read, head_names, read_eagle_form, read_heads_config
from ..description.origin import CONFIG_FILE, origin_of
from ..description.quantization import read_quantization
from ..layers.decoder import Decoder
from ..layers.eagle_head import EagleHead, EagleParts, WatchedLayer
from ..weights.files.checkpoint import Checkpoint
from ..weights.files.file_checks import check_weight_files
from ..weights.layouts.find_layout import HuggingFaceLayout
from ..weights.weights import Weights
from .draft_heads import HeadPass, head_placement, require_recorded, with_heads
from .model import Model

_NEVER = -1e30  # the logit of a token that a head doesn't have; infinities count as faults


class HeadLayout(HuggingFaceLayout):
    """Each tensor of a head has one name, whatever its folder calls it."""

    def names(self, stored: Iterable[str]) -> dict[str, str]:
        return head_names(stored)


class OwnVocabulary:
    """The tokens of a head with fewer than the model, and their places among the model's."""

    def __init__(self, source: Checkpoint, num_logits: int, vocab_size: int) -> None:
        # Stored are distances to the head's own numbers.
        offsets = source.shaped("d2t", (num_logits,))[...].astype(numpy.int64)
        self.tokens = numpy.arange(num_logits) + offsets
        self.vocab_size = vocab_size
        if num_logits and not 0 <= self.tokens.min() <= self.tokens.max() < vocab_size:
            raise ConfigError(f"{source.folder}: its d2t names tokens beyond the model's {vocab_size:,}.")

    def spread(self, logits: Array) -> Array:
        """Logits of the model's whole vocabulary."""
        found = numpy.full((len(logits), self.vocab_size), _NEVER, FLOAT32)
        found[:, self.tokens] = logits
        return found


class EaglePass(HeadPass):
    def __init__(
        self,
        of_model: RecordedStream,
        of_own: RecordedStream,
        states: Callable[[int], Array],
        vocabulary: OwnVocabulary | None,
    ) -> None:
        super().__init__("eagle3", of_model, of_own, states)
        self._vocabulary = vocabulary

    def logits(self, hidden: DeviceArray, rows: DeviceArray) -> DeviceArray:
        found = super().logits(hidden, rows)
        return found if self._vocabulary is None else self._vocabulary.spread(found)


def with_eagle_heads(model: Model, folder: Path, quantization: str | None = None) -> Model:
    """The model with the heads of a folder to draft; `quantization`: of their projections."""
    backend, recorded = require_recorded(model, "eagle3")
    source = _opened(folder)
    form = read_eagle_form(folder, set(source.names), model.config)
    parts, vocabulary = _read(source, form, model, recorded.decoder, quantization)
    of_model, of_own = EagleHead(parts, reads_model=True), EagleHead(parts, reads_model=False)
    model, states = _watched(model, backend, recorded.decoder, form.reads)
    forward_pass = EaglePass(backend.record(of_model), backend.record(of_own), states, vocabulary)
    return with_heads(model, form.config, of_model, forward_pass)


def _opened(folder: Path) -> Checkpoint:
    check_weight_files(folder)
    quantization = read_quantization(read_heads_config(folder), folder / CONFIG_FILE)
    return Checkpoint(folder, quantization, find_layout=lambda stored, config: HeadLayout())


def _read(
    source: Checkpoint, form: EagleForm, model: Model, decoder: Decoder, quantization: str | None
) -> tuple[EagleParts, OwnVocabulary | None]:
    num_logits = source.stored("d2t").shape[0] if source.has("d2t") else model.vocab_size
    _check_tokens(source, form, num_logits, model.vocab_size)
    vocabulary = OwnVocabulary(source, num_logits, model.vocab_size) if source.has("d2t") else None
    placement = head_placement(model, source, quantization)
    parts = EagleParts(Weights(source, placement), form, decoder, num_logits)
    check_all_read(origin_of(source.folder), source.leftovers())
    return parts, vocabulary


def _check_tokens(source: Checkpoint, form: EagleForm, num_logits: int, vocab_size: int) -> None:
    """Refuse heads whose config, d2t and output head are of different numbers of tokens."""
    if form.num_tokens not in (None, num_logits):
        raise ConfigError(
            f"{source.folder}: draft_vocab_size is {shown(form.num_tokens)}, and its tensors have {num_logits:,} "
            "tokens. Use the config.json that was published with these weights."
        )
    if num_logits != vocab_size and not source.has("lm_head.weight"):
        raise ConfigError(
            f"{source.folder} has a d2t of {num_logits:,} tokens and no lm_head.weight for them. Download the heads "
            "again, or use others."
        )


def _watched(
    model: Model, backend: NativeBackend, decoder: Decoder, reads: tuple[int, ...]
) -> tuple[Model, Callable[[int], Array]]:
    """The model with these layers watched, and what gives the last step's streams, [T, layers × hidden]."""
    decoder = copy(decoder)
    watched = {number: WatchedLayer(decoder, number) for number in reads if number < len(decoder.layers)}
    decoder.layers = [watched.get(number, layer) for number, layer in enumerate(decoder.layers)]
    recorded = backend.forward_pass(decoder)

    def rows_of(number: int, count: int) -> DeviceArray:
        if number not in watched:
            return recorded.last_hidden(count)
        return cast(Buffer, watched[number].entering).rows(count)

    model = replace(model, decoder=decoder, forward_pass=recorded, sample=model.backend.sample(recorded))
    return model, lambda count: numpy.concatenate([rows_of(number, count) for number in reads], 1)
