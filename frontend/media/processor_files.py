"""Reads how a checkpoint's processor is set: preprocessor_config.json and its kin, and what an option changes in them.

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
# Of groups in which transformers takes a processor's arguments, each for one of its parts.
_GROUPS = {"images_kwargs": "image", "videos_kwargs": "video"}
_SIZES = ("min_pixels", "max_pixels")


class ProcessorFiles(NamedTuple):
    """What stands in a model's folder, each an empty dict where there is nothing."""

    folder: Path
    config: Settings
    image: Settings
    video: Settings
    processor: Settings  # what concerns neither alone

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

    def changed(self, given: Mapping[str, Any], image_names: Collection[str], video_names: Collection[str]) -> Any:
        """The same with `mm_processor_kwargs`, of which every name must be one of these."""
        image, video = dict(self.image), dict(self.video)
        known = {"image": image_names, "video": video_names}
        parts = {"image": image, "video": video}
        for name, value in _flat(given):
            places = [part for part in parts if name[0] in ("", part) and name[1] in known[part]]
            if not places:
                names = sorted({*image_names, *video_names})
                raise ConfigError(
                    f"mm_processor_kwargs: this model's processor has no {shown(name[1])}; it has {', '.join(names)}."
                    f"{suggestion(name[1], names)}"
                )
            for place in places:
                if name[1] == "size":  # counts, whatever the file says by other names
                    parts[place] = {key: old for key, old in parts[place].items() if key not in _SIZES}
                parts[place][name[1]] = value
        return self._replace(image=parts["image"], video=parts["video"])


def _flat(given: Mapping[str, Any]) -> list[tuple[tuple[str, str], Any]]:
    """Each argument with the part that it is for, "" for all."""
    found: list[tuple[tuple[str, str], Any]] = []
    for name, value in given.items():
        if name in _GROUPS and isinstance(value, Mapping):
            found += [((_GROUPS[name], inner), each) for inner, each in value.items()]
        else:
            found.append((("", str(name)), value))
    return found


def _dict(value: Any) -> Settings:
    return value if isinstance(value, dict) else {}


def inner(settings: Settings, name: str) -> Settings:
    """The settings within settings that have this name, if there are any."""
    return _dict(settings.get(name))


# --- single figures --------------------------------------------------------------------------------------------------


def whole(settings: Settings, name: str, default: int, most: int = 1 << 31) -> int:
    """A whole number above 0; the default where there is none."""
    value = settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 or not 0 < value <= most:
        raise ConfigError(f"The processor's {name}={shown(value)} must be a whole number from 1 to {most:,}.")
    return int(value)


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
    sized = {
        "min_pixels": size.get("shortest_edge", size.get("min_pixels")),
        "max_pixels": size.get("longest_edge", size.get("max_pixels")),
    }
    named = {name: settings[name] for name in _SIZES if settings.get(name) is not None}
    both = {**sized, **named}
    least, most = whole(both, "min_pixels", least), whole(both, "max_pixels", most)
    return min(least, most), most
