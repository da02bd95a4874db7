"""Reads the config of a picture encoder into a frozen description. Imports no torch.

It also reads the colours' normalization from the processor's files, because the encoder gets plain pixels.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_settings
from ...records import dataclass
from .families.vision import VISION_FAMILIES, VisionFamily
from .keys.family_keys import under_read_names
from .keys.unread_keys import ReadKeys, refuse_unsupported, unsupported_keys
from .origin import Origin
from .parts.activations import Activation, read_activation

# Far above any real encoder: a folder may come from a stranger, and memory is planned from these numbers.
_MOST = {"depth": 1024, "num_heads": 1024, "patch_size": 256, "temporal_patch_size": 16, "spatial_merge_size": 16}
_LARGEST = 1 << 20
_CHANNELS = 3
_HEAD_DIM_STEP = 16  # heads are padded to a multiple, which kernels need


@dataclass(frozen=True)
class Colours:
    """Normalization of colours: a byte x becomes (x × scale - mean) / deviation."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True)
class VisionConfig:
    """One encoder of pictures and videos."""

    family: VisionFamily
    num_layers: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    activation: Activation
    patch_size: int  # pixels along each side of a patch
    num_frames: int  # frames of a patch
    merge: int  # patches along each side of the square that becomes a row
    out_size: int  # elements of a row's part: the width of the text part's stream
    window: int | None  # rows along each side of a window
    full_layers: tuple[int, ...]  # layers that attend to a whole frame; the others attend within windows
    taps: tuple[int, ...]  # layers after which further parts of the rows are taken
    table_side: int | None  # of the learned position table
    epsilon: float  # of the encoder's norms
    out_epsilon: float  # of the text part's norms
    rope_theta: float
    image_colours: Colours
    video_colours: Colours

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def padded_head_dim(self) -> int:
        return -(-self.head_dim // _HEAD_DIM_STEP) * _HEAD_DIM_STEP

    @property
    def patch_numbers(self) -> int:
        return _CHANNELS * self.num_frames * self.patch_size**2

    @property
    def frames_together(self) -> int:
        """Frames that form the same rows."""
        return self.num_frames * self.family.row_frames

    @property
    def row_parts(self) -> int:
        """Parts of a row: one replaces an embedding, the others are added after the first layers."""
        return 1 + len(self.taps)

    @property
    def activation_floats(self) -> int:
        """Floats per patch that are in memory at once while a part of a layer is computed."""
        heads = 3 * self.num_heads * self.padded_head_dim
        inner = (3 if len(self.family.mlp) == 3 else 1.5) * self.intermediate_size  # with or without a gate
        return int(5 * self.hidden_size + 2 * heads + inner) + self.patch_numbers

    def patch_bytes(self, item_size: int) -> int:
        """Bytes of a patch while its medium is encoded: stream, query, key, value, rotation, and the pixels of its
        message."""
        numbers = self.hidden_size + 3 * self.num_heads * self.padded_head_dim + 2 * self.padded_head_dim
        return numbers * item_size + 2 * self.patch_numbers


def read_vision(config: dict[str, Any], origin: Origin, hidden_size: int, epsilon: float) -> VisionConfig | None:
    """Read the encoder from a whole config.json; None if there is none, or none that runs here.

    `hidden_size` and `epsilon` (of norms) belong to the text part.
    """
    named = config.get("architectures")
    families = (VISION_FAMILIES.get(each) for each in named or [] if isinstance(each, str))
    family = next((each for each in families if each is not None), None)
    if family is None:
        return None
    given = config.get("vision_config")
    if not isinstance(given, dict):
        raise ConfigError(f"{origin}: vision_config must describe an encoder by an object, and is {shown(given)}.")
    given = under_read_names(given, family.name)
    outer = {key: config.get(key) for key in family.outer_keys}
    stated = {key: value for key, value in (given | outer).items() if value is not None}
    keys = ReadKeys({**family.defaults, **stated})
    described = _described(keys, family, hidden_size, epsilon, origin)
    refuse_unsupported(unsupported_keys(given, keys, family.name), family.name, origin)
    if described.out_size != hidden_size:
        raise ConfigError(
            f"{origin}: {family.out_width} of vision_config is {described.out_size}, and hidden_size of the text part "
            f"{hidden_size}."
        )
    return described


def _described(
    config: ReadKeys, family: VisionFamily, out_size: int, out_epsilon: float, origin: Origin
) -> VisionConfig:
    def count(key: str) -> int:
        key = family.keys.get(key, key)
        value = config.get(key)
        if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:  # both sides of a square
            value = value[0]
        if type(value) is not int or not 0 < value <= _MOST.get(key, _LARGEST):
            most = _MOST.get(key, _LARGEST)
            raise ConfigError(f"{origin}: {key} of vision_config must be from 1 to {most:,}, and is {shown(value)}.")
        return value

    num_layers, hidden_size, num_heads = count("depth"), count(family.width), count("num_heads")
    least = 4 if family.rotates else 1
    if hidden_size % (least * num_heads):
        raise ConfigError(
            f"{origin}: an encoder of {hidden_size} numbers has no {num_heads} heads of a multiple of {least}."
        )
    if count("in_channels") != _CHANNELS:
        raise ConfigError(f"{origin}: in_channels of vision_config is {count('in_channels')}, and only 3 are known.")
    patch_size = count("patch_size")
    table_side = None
    if family.places == "resampled":
        table_side = _side(count, "num_position_embeddings", origin)
    elif family.places is not None:
        table_side = count("image_size") // patch_size
    if family.merging == "mean":
        merge = _pooled(table_side or 0, _side(count, "mm_tokens_per_image", origin), origin)
        _check_size(origin, count("image_size"))
    else:
        merge = count("spatial_merge_size")
    window, full_layers = None, tuple(range(num_layers))
    if family.has_windows:
        window = count("window_size") // merge // patch_size
        full_layers = _layers(config, "fullatt_block_indexes", num_layers, origin)
        if not window:
            raise ConfigError(f"{origin}: window_size of vision_config is less than the {merge * patch_size} of a row.")
    width = count("mlp_ratio") * hidden_size if "mlp_ratio" in family.defaults else count("intermediate_size")
    return VisionConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        intermediate_size=width,
        activation=read_activation(config, "hidden_act", {}),
        patch_size=patch_size,
        num_frames=count("temporal_patch_size") if family.patch_dims == 5 else 1,
        merge=merge,
        out_size=out_size if family.out_width is None else count(family.out_width),
        window=window,
        full_layers=full_layers,
        taps=() if family.taps is None else _layers(config, family.taps, num_layers, origin),
        table_side=table_side,
        epsilon=_epsilon(config, family, origin),
        out_epsilon=out_epsilon,
        rope_theta=_theta(config, family, origin),
        image_colours=_colours(origin, "image", family),
        video_colours=_colours(origin, "video", family),
    )


def _layers(config: ReadKeys, key: str, num_layers: int, origin: Origin) -> tuple[int, ...]:
    """Layer numbers, ascending."""
    value = config.get(key)
    is_list = isinstance(value, list) and all(type(each) is int and 0 <= each < num_layers for each in value)
    if not is_list or sorted(set(value)) != value:
        raise ConfigError(f"{origin}: {key} of vision_config must be layers of {num_layers}, and is {shown(value)}.")
    return tuple(value)


def _side(count: Callable[[str], int], key: str, origin: Origin) -> int:
    """The side of a square with so many positions."""
    side = round(count(key) ** 0.5)
    if side * side != count(key):
        raise ConfigError(f"{origin}: {key} is {count(key)}, which is no square.")
    return side


def _pooled(patches: int, rows: int, origin: Origin) -> int:
    """Patches along each side of a row, for so many along each side of a picture."""
    if patches == 0 or patches % rows:
        raise ConfigError(
            f"{origin}: {patches} patches along a side can't become the {rows} that mm_tokens_per_image says."
        )
    return patches // rows


def _check_size(origin: Origin, side: int) -> None:
    """Check that the processor resizes all pictures to squares of this side."""
    for key, value in (_image_settings(origin.folder).get("size") or {}).items():
        if key in ("height", "width") and value != side:
            size = f"{key}={shown(value)}"
            raise ConfigError(f"{origin.model}: the processor's size has {size}, and image_size is {side}.")


def _epsilon(config: ReadKeys, family: VisionFamily, origin: Origin) -> float:
    key = family.keys.get("epsilon")
    value = family.epsilon if key is None else config.get(key)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise ConfigError(f"{origin}: {key} of vision_config must be from 0 to 1, and is {shown(value)}.")
    return float(value)


def _theta(config: ReadKeys, family: VisionFamily, origin: Origin) -> float:
    figures = config.get("rope_parameters") or {}
    kind = figures.get("rope_type", "axial") if isinstance(figures, dict) else figures
    theta: Any = figures.get("rope_theta", family.rope_theta) if isinstance(figures, dict) else None
    if kind not in ("axial", "default") or type(theta) not in (int, float) or theta <= 1:
        raise ConfigError(f"{origin}: rope_parameters={shown(figures)} of vision_config is not supported.")
    return float(theta)


def _colours(origin: Origin, kind: str, family: VisionFamily) -> Colours:
    """Read the colours' normalization from the processor's files."""
    folder = origin.folder
    both, image = read_model_settings(folder / "processor_config.json"), _image_settings(folder)
    video = both.get("video_processor") or read_model_settings(folder / "video_preprocessor_config.json")
    settings = (video or image) if kind == "video" else image
    mean, deviation = family.colours
    if settings.get("do_normalize") is False:
        mean, deviation = (0.0,) * _CHANNELS, (1.0,) * _CHANNELS
    else:
        mean = _of_colours(settings.get("image_mean"), mean, "image_mean", origin)
        deviation = _of_colours(settings.get("image_std"), deviation, "image_std", origin)
    scale = settings.get("rescale_factor", 1 / 255)
    if type(scale) not in (int, float) or not 0 < scale <= 1:
        raise ConfigError(f"{origin.model}: the processor's rescale_factor must be from 0 to 1, and is {shown(scale)}.")
    return Colours(1.0 if settings.get("do_rescale") is False else scale, mean, deviation)


def _image_settings(folder: Path) -> dict[str, Any]:
    both = read_model_settings(folder / "processor_config.json")
    return both.get("image_processor") or read_model_settings(folder / "preprocessor_config.json")


def _of_colours(value: Any, usual: tuple[float, ...], name: str, origin: Origin) -> tuple[float, ...]:
    if value is None:
        return usual
    least = -1e6 if name == "image_mean" else 1e-6
    is_list = isinstance(value, list) and len(value) == _CHANNELS
    if not is_list or not all(type(each) in (int, float) and least <= each <= 1e6 for each in value):
        raise ConfigError(f"{origin.model}: the processor's {name} must be three numbers, and is {shown(value)}.")
    return tuple(map(float, value))
