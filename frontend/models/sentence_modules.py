"""sentence-transformers' files of a model: `modules.json`, and the folders of the modules that it names.

A model's files may come from a stranger: whatever they hold that isn't understood is refused in a sentence.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.gguf.link import LINK_FILE
from ...protocol.files.model_file import read_model_json, read_model_settings
from ...protocol.pooling.form import MODES, HeadLayer

MODULES = "modules.json"
_CONFIG = "config.json"  # of a module
_WITHOUT_NUMBERS = ("Transformer", "Dropout")  # they add nothing to what the model's rows become
_MOST = 64
_LARGEST = 1 << 20
_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's, which files of a LayerNorm don't name
_OWN_NAMES = {"mean_sqrt_len_tokens": "mean_sqrt_len"}  # of a mode, where it has another one here


class Modules(NamedTuple):
    kinds: tuple[str, ...] = ()
    modes: list[str] = []
    head: list[HeadLayer] = []
    normalizes: bool = False
    pooling: str = ""  # the file that says how rows are pooled
    scores: str | None = None  # the folder of a module that makes a score of the model's logits


def read_modules(folder: Path) -> Modules | None:
    """Follow the modules one after another; None if the model has no `modules.json`."""
    try:
        listed = read_model_json(folder / MODULES)
    except FileNotFoundError:
        return None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed) or len(listed) > _MOST:
        raise ConfigError(f"{folder / MODULES} must be a list of modules, {_MOST} at most.")
    found = Modules()
    for module in listed:
        kind, path = (_text(folder, module, name) for name in ("type", "path"))
        found = _with(found, folder, kind.rpartition(".")[2], path)
    if not found.modes and (found.head or found.normalizes):
        raise ConfigError(f"{folder / MODULES} names no Pooling, and its {found.kinds[-1]} needs one.")
    return found


def _text(folder: Path, module: Mapping[str, Any], name: str) -> str:
    value = module.get(name, "")
    if not isinstance(value, str):
        raise ConfigError(f"{folder / MODULES}: {name} must be a text, not {shown(value)}.")
    return value


def _with(found: Modules, folder: Path, kind: str, path: str) -> Modules:
    """Add one more module."""
    found = found._replace(kinds=(*found.kinds, kind))
    if kind in _WITHOUT_NUMBERS:
        return found
    if found.normalizes and kind in _LAYERS:
        found = found._replace(head=[*found.head, HeadLayer(is_unit_length=True)], normalizes=False)
    if kind == "Pooling" and not (found.modes or found.head or found.normalizes):
        return found._replace(modes=_modes(_within(folder, path)), pooling=f"{path}/{_CONFIG}")
    if kind in _LAYERS and found.modes:
        return found._replace(head=[*found.head, _LAYERS[kind](_within(folder, path), path)])
    if kind == "Normalize":
        return found._replace(normalizes=True)
    if kind == "LogitScore":
        return found._replace(scores=str(_within(folder, path).relative_to(folder)))
    if kind == "Pooling" or kind in _LAYERS:
        raise ConfigError(f"{folder / MODULES}: one Pooling must come before all Dense and LayerNorm modules.")
    raise ConfigError(
        f"{folder / MODULES} has a module {shown(kind)}, which isn't supported; Transformer, Pooling, Dense, "
        "LayerNorm, Normalize and LogitScore are."
    )


def _within(folder: Path, path: str) -> Path:
    """A module's folder, which must be one of the model's own."""
    if Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path:
        raise ConfigError(f"{folder / MODULES} names {shown(path)}, which isn't a folder of the model.")
    if not (folder / path / _CONFIG).is_file():
        raise ConfigError(
            f"{folder / path / _CONFIG} is missing, which {MODULES} asks for. Download the model again as a whole."
        )
    return folder / path


def _modes(folder: Path) -> list[str]:
    if not isinstance(config := read_model_json(folder / _CONFIG), dict):
        raise ConfigError(f"{folder / _CONFIG} must be an object, not {shown(config)}.")
    said = config.get("pooling_mode")  # newer files have one key for what older ones have one key each
    names = [_OWN_NAMES.get(each, each) if isinstance(each, str) else each for each in _listed(said)]
    if said is None:
        suffixes = {"cls": "_token", "lasttoken": ""}
        keys = {mode: f"pooling_mode_{mode}{suffixes.get(mode, '_tokens')}" for mode in MODES}
        for key in keys.values():
            if type(value := config.get(key, False)) is not bool:
                raise ConfigError(f"{folder / _CONFIG}: {key} must be true or false, not {shown(value)}.")
        names = [mode for mode, key in keys.items() if config.get(key)] or ["mean"]
    if not 0 < len(names) <= _MOST or not all(isinstance(name, str) and name in MODES for name in names):
        given = f" ({shown(said)})" if said else ""
        raise ConfigError(f"{folder / _CONFIG} names no pooling that is supported{given}; {', '.join(MODES)} are.")
    if config.get("include_prompt") is False:
        raise ConfigError(f"{folder / _CONFIG}: include_prompt=false leaves prompts out, which isn't supported.")
    return names


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _dense(folder: Path, path: str) -> HeadLayer:
    config = read_model_settings(folder / _CONFIG)
    size = config.get("out_features")
    if type(size) is not int or not 0 < size <= _LARGEST:
        raise ConfigError(f"{folder / _CONFIG}: out_features must be a number, and is {shown(size)}.")
    if config.get("use_residual"):
        raise ConfigError(f"{folder / _CONFIG}: use_residual adds a layer's input to its output; it isn't supported.")
    activation = str(config.get("activation_function") or "").rpartition(".")[2]
    if isinstance(own := config.get("tensor"), str) and (folder.parent / LINK_FILE).is_file():  # of a GGUF file
        return HeadLayer(f"{own}.weight", size, f"{own}.bias", activation)
    _require_weights(folder)
    # sentence-transformers' own default
    activation = activation if "activation_function" in config else "Tanh"
    return HeadLayer("linear.weight", size, "linear.bias", activation, folder=path)


def _layer_norm(folder: Path, path: str) -> HeadLayer:
    _require_weights(folder)
    return HeadLayer("norm.weight", 0, "norm.bias", folder=path, epsilon=_NORM_EPSILON)


def _require_weights(folder: Path) -> None:
    if not any(folder.glob("*.safetensors")):
        there = ", ".join(sorted(path.name for path in folder.iterdir() if path.name != _CONFIG)) or "nothing else"
        raise ConfigError(f"{folder} holds {there}, and weights are read from *.safetensors alone. Convert them.")


# Modules that are layers behind the pooled row.
_LAYERS: dict[str, Callable[[Path, str], HeadLayer]] = {"Dense": _dense, "LayerNorm": _layer_norm}
