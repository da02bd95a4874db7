"""What a model that sees takes beside its weights: rows of media that are kept, and the encoder's activations."""

from ...protocol.errors import ConfigError
from ...protocol.files.sizes import size
from ...protocol.media import MediaPlan
from ...protocol.options.config import EngineConfig
from ..models.vision_config import VisionConfig

_MOST_AT_ONCE = 20_480  # patches: of a picture of 5 million pixels, or of 20 tiles of 512
_MOST_BYTES = 1 << 30  # of activations
_MOST_OF_STREAM = 256 << 20  # bytes, of one medium's patches between two layers
_UNASKED = 256 << 20  # of rows that are kept, where nobody said how many


def most_at_once(vision: VisionConfig, item_size: int) -> int:
    """Patches that pass through a layer together."""
    return min(_MOST_AT_ONCE, _MOST_BYTES // (item_size * vision.activation_floats))


def encoder_bytes(vision: VisionConfig | None, item_size: int) -> int:
    """Activations, and what is set aside of the largest medium."""
    if vision is None:
        return 0
    return most_at_once(vision, item_size) * vision.activation_floats * item_size + _MOST_OF_STREAM


def kept_media_bytes(vision: VisionConfig | None, item_size: int, config: EngineConfig) -> int:
    """Rows that are kept."""
    plan = media_plan(vision, item_size, config)
    return 0 if plan is None else plan.num_rows * plan.row_bytes


def media_plan(vision: VisionConfig | None, item_size: int, config: EngineConfig) -> MediaPlan | None:
    """Rows of at least the largest picture are kept."""
    if vision is None:
        return None
    row_bytes, largest = vision.row_parts * vision.out_size * item_size, most_at_once(vision, item_size)
    rows_of_largest = largest // vision.merge**2
    num_rows = max(_UNASKED // row_bytes, rows_of_largest)
    if config.mm_cache is not None:
        num_rows = config.mm_cache // row_bytes
        if num_rows < rows_of_largest:
            raise ConfigError(
                f"mm_cache={size(config.mm_cache)} keeps {num_rows:,} rows of {size(row_bytes)}, and one picture may "
                f"have {rows_of_largest:,}. Use mm_cache={rows_of_largest * row_bytes} or more, or leave it out."
            )
    return MediaPlan(
        num_rows=num_rows,
        row_bytes=row_bytes,
        num_layers=vision.num_layers,
        most_patches=max(largest, _MOST_OF_STREAM // (item_size * vision.hidden_size)),
        most_at_once=largest,
        frames_together=vision.frames_together,
        has_whole_spans=vision.family.has_whole_spans,
    )
