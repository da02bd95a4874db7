"""Notes on a loaded model for the table at the start: its number formats, and anything unexpected."""

from collections.abc import Iterator

from ...kernels import DTYPES
from ...protocol.options.config import EngineConfig
from ..description.config import ModelConfig
from ..description.text_config import PICTURE_TENSORS
from ..layers.experts import Experts
from ..weights.weight_bytes import BITS
from .model import Model


def notes_on_weights(unread: list[str], missing: str) -> tuple[str, ...]:
    notes = [f"No native kernels, so this runs many times slower than it could: {missing}"] if missing else []
    others = [name for name in unread if not PICTURE_TENSORS.match(name)]
    if others:
        named = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        notes.append(f"{len(others)} tensors of the checkpoint belong to no layer: {named}")
    if len(others) < len(unread):
        notes.append("Pictures aren't read: of this model only the part for text runs here")
    return tuple(notes)


def notes_on_drafts(config: EngineConfig, is_deterministic: bool) -> Iterator[str]:
    """Explain why a named method drafts nothing."""
    if config.speculative_config is not None and config.drafts and not is_deterministic:
        yield (
            "speculative_config has no effect: with these kernels a token's bits depend on how many tokens its step "
            "has, so drafts could change an answer. deterministic=True lets them be used"
        )


def notes_on_context(config: ModelConfig) -> Iterator[str]:
    """Explain why the context is shorter than the model's own."""
    if config.cut is not None:
        yield (
            f"The context ends at {config.max_position:,} of {config.cut.own:,} tokens, up to which plain attention is "
            f"exact: {config.cut}."
        )


def notes_on_windows(model: Model, longest: int) -> Iterator[str]:
    """Explain the memory of window layers if blocks aren't freed."""
    kept = [window for window in model.config.windows if window is not None and window < longest]
    if kept and not model.backend.gives_back:
        yield (
            f"{len(kept)} layers see a window of {max(kept):,} tokens, and on this device they keep keys and values of "
            "all tokens, as the others do."
        )


def number_formats(model: Model) -> str:
    """The number formats of the projections, for people to read: those smaller than the model's own first."""
    kinds, stored = model.report.kinds, model.config.quantization
    if stored is not None and not stored.is_float8 and stored.bits == BITS["int8"]:
        # Grouped 8-bit values are computed as two 4-bit values.
        kinds = tuple("int8" if kind == "int4" else kind for kind in kinds)
    small = dict.fromkeys(kind for kind in kinds if kind not in DTYPES)
    has_floats = not small or any(kind in DTYPES for kind in kinds)
    return ", ".join([*small, *([model.dtype.name] if has_floats else [])])


def notes_on_experts(model: Model) -> Iterator[str]:
    """Explain experts that take more memory than the checkpoint or the options suggest."""
    sparse = [layer.mlp for layer in model.decoder.layers if isinstance(layer.mlp, Experts)]
    if widened := sum(mlp.is_widened for mlp in sparse):
        yield (
            f"In {widened} layers the experts' products are of unlike kinds of numbers, and the smaller one was "
            "widened, so that they are computed together. Give all products of experts the same kind."
        )
    stored, became_int8 = model.config.quantization, any(mlp.has_int8 for mlp in sparse)
    if became_int8 and stored is not None and stored.is_ordered and stored.bits < BITS["int8"]:
        yield (
            f"The experts are stored in {stored.bits} bits in the order of activations, each in an order of its own, "
            "and take 8 bits here. A checkpoint without desc_act takes half of that."
        )
