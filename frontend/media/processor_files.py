"""Reads the settings of a checkpoint's processor (preprocessor_config.json and the like), and applies the option that
changes them.

Since transformers 5 one processor_config.json holds all parts; before, pictures and videos had a file each, and before
that one file served both.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.files.model_file import read_model_settings

Settings = dict[str, Any]
# transformers' groups of a processor's arguments, each for one of its parts.
_GROUPS = {"images_kwargs": "image", "videos_kwargs": "video"}
# FastDeploy's names of settings.
_FASTDEPLOYS = {"target_frames": "num_frames"}
_SIZES = ("min_pixels", "max_pixels")
PIXEL_SIZES = ("shortest_edge", "longest_edge", *_SIZES)  # of a size that counts pixels


class ProcessorFiles(NamedTuple):
    """The files in a model's folder, each an empty dict if it is missing."""

    folder: Path
    config: Settings
    image: Settings
    video: Settings
    processor: Settings  # settings of neither part alone

    @classmethod
    def read(cls, folder: Path) -> "ProcessorFiles":
        processor = read_model_settings(folder / "processor_config.json")
        image = read_model_settings(folder / "preprocessor_config.json")
        video = read_model_settings(folder / "video_preprocessor_config.json")
        return cls(
            folder,
            read_model_settings(folder / "config.json"),
            _dict(processor.get("image_processor")) or image,
            _dict(processor.get("video_processor")) or video or image,
            processor,
        )

    @property
    def vision(self) -> Settings:
        return _dict(self.config.get("vision_config"))

    def changed(
        self,
        given: Mapping[str, Any],
        image_names: Collection[str],
        video_names: Collection[str],
        sizes: Mapping[str, Collection[str]],
    ) -> Any:
        """The same with `mm_processor_kwargs`, whose names must all be known. `sizes` are dicts."""
        image, video = dict(self.image), dict(self.video)
        known = {"image": image_names, "video": video_names}
        parts = {"image": image, "video": video}
        for name, value in _flat(given):
            if not any(name[1] in names for names in known.values()):
                name = _prefixed(name)
            holders = [part for part in parts if name[0] in ("", part) and name[1] in known[part]]
            if not holders:
                names = sorted({*image_names, *video_names})
                raise ConfigError(
                    f"mm_processor_kwargs: this model's processor has no {shown(name[1])}; it has {', '.join(names)}."
                    f"{suggestion(name[1], names)}"
                )
            if value is None:
                continue
            if name[1] in sizes:
                _check_dict(name[1], value, sizes[name[1]])
            for holder in holders:
                if name[1] == "size":  # it counts, whatever other names the file uses
                    parts[holder] = {key: old for key, old in parts[holder].items() if key not in _SIZES}
                parts[holder][name[1]] = value
        return self._replace(image=parts["image"], video=parts["video"])


def _flat(given: Mapping[str, Any]) -> list[tuple[tuple[str, str], Any]]:
    """Each argument with its part, "" for all."""
    found: list[tuple[tuple[str, str], Any]] = []
    for name, value in given.items():
        if name in _GROUPS and isinstance(value, Mapping):
            found += [((_GROUPS[name], inner), each) for inner, each in value.items()]
        else:
            found.append((("", str(name)), value))
    return found


def _prefixed(name: tuple[str, str]) -> tuple[str, str]:
    """Parse a setting of one part in FastDeploy's form: image_min_pixels, video_fps."""
    part, _, setting = name[1].partition("_")
    if name[0] or part not in _GROUPS.values():
        return name
    return part, _FASTDEPLOYS.get(setting, setting)


def _check_dict(name: str, value: Any, names: Collection[str]) -> None:
    if not isinstance(value, dict) or not value or not value.keys() <= set(names):
        form = ", ".join(f'"{each}": …' for each in names)
        raise ConfigError(f"mm_processor_kwargs: this model's processor has {name}={{{form}}}, not {shown(value)}.")


def _dict(value: Any) -> Settings:
    return value if isinstance(value, dict) else {}


def inner(settings: Settings, name: str) -> Settings:
    """The settings within settings that have this name, if there are any."""
    return _dict(settings.get(name))


# --- single figures --------------------------------------------------------------------------------------------------


def whole(settings: Settings, name: str, default: int, most: int = 1 << 31) -> int:
    """A whole number above 0; the default if there is none."""
    value = settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 or not 0 < value <= most:
        raise ConfigError(f"The processor's {name}={shown(value)} must be a whole number from 1 to {most:,}.")
    return int(value)


def same_as_encoders(settings: Settings, name: str, vision: Settings, its_name: str, default: int) -> int:
    """A setting that is in the processor's files, in the encoder's config, or in both."""
    of_encoder = whole(vision, its_name, whole(settings, name, default, 256), 256)
    if (found := whole(settings, name, of_encoder, 256)) != of_encoder:
        raise ConfigError(f"The processor's {name} is {found}, and {its_name} of vision_config {of_encoder}.")
    return found


def number(settings: Settings, name: str, default: float | None, most: float = 1000) -> float | None:
    value = settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise ConfigError(f"The processor's {name}={shown(value)} must be a number above 0, {most:g} at most.")
    return float(value)


def flag(settings: Settings, name: str, default: bool) -> bool:
    value = settings.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError(f"The processor's {name}={shown(value)} must be true or false.")
    return value


def pixel_limits(settings: Settings, least: int, most: int) -> tuple[int, int]:
    """min_pixels and max_pixels, which newer files call size's shortest_edge and longest_edge."""
    size = inner(settings, "size")
    least = _first((settings, "min_pixels"), (size, "shortest_edge"), (size, "min_pixels"), default=least)
    most = _first((settings, "max_pixels"), (size, "longest_edge"), (size, "max_pixels"), default=most)
    return min(least, most), most


def _first(*holders: tuple[Settings, str], default: int) -> int:
    """The whole number in the first of these settings that is present."""
    return next((whole(*holder, default) for holder in holders if holder[0].get(holder[1]) is not None), default)
