"""The memory of vision in addition to weights: cached rows of media, and the encoder's activations."""

from ....protocol.errors import ConfigError
from ....protocol.files.sizes import size
from ....protocol.media import MediaPlan
from ....protocol.options.config import EngineConfig
from ...description.vision_config import VisionConfig
from ...media.work import MOST_PATCHES, key_cost, layer_products

_MOST_PATCHES = 65_536  # of a medium: 16.8 million pixels of a frame, or of pairs of them, in patches of 16
_MOST_OF_FRAME = 20_480  # patches that attend to one another: a picture of 5 million pixels
_MOST_BYTES = 5 << 28  # for one medium's patches between two steps
_UNASKED = 256 << 20  # of cached rows by default


def most_patches(vision: VisionConfig, item_size: int) -> int:
    """The most patches of one medium."""
    return min(_MOST_PATCHES, _MOST_BYTES // vision.patch_bytes(item_size))


def encoder_bytes(vision: VisionConfig | None, item_size: int) -> int:
    """Bytes of the one medium that is being encoded, and activations of the patches that are computed together."""
    if vision is None:
        return 0
    activations = MOST_PATCHES * vision.activation_floats * item_size
    return most_patches(vision, item_size) * vision.patch_bytes(item_size) + activations


def kept_media_bytes(vision: VisionConfig | None, item_size: int, config: EngineConfig) -> int:
    """Bytes of cached rows."""
    plan = media_plan(vision, item_size, config)
    return 0 if plan is None else plan.kept_bytes


def media_plan(vision: VisionConfig | None, item_size: int, config: EngineConfig) -> MediaPlan | None:
    """Plan the cached rows; at least the largest picture must fit."""
    if vision is None:
        return None
    most, row_bytes = most_patches(vision, item_size), vision.row_parts * vision.out_size * item_size
    largest = min(_MOST_OF_FRAME, most)
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
        most_patches=most,
        most_of_frame=largest,
        frames_together=vision.frames_together,
        num_full_layers=len(vision.full_layers),
        patch_keys=layer_products(vision) // key_cost(vision),
        has_whole_spans=vision.family.has_whole_spans,
    )
