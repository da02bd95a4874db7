"""Models in Ollama's store, by its names: `ollama:qwen3:0.6b`, `ollama:hf.co/unsloth/Qwen3-0.6B-GGUF:Q4_K_M`.

    manifests/HOST/NAMESPACE/NAME/TAG    JSON: the layers of a model, each with its kind, digest and size
    blobs/sha256-DIGEST                  their content: the GGUF file, its vision encoder, a template, parameters

A manifest may be a stranger's: only valid digests become file names, and sizes must match. The template in the GGUF
file is used; Ollama's own is written in another template language.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....protocol.errors import ConfigError
from ....protocol.fields.rules import shown
from ....protocol.files.model_file import read_model_json, require_regular
from ..gguf.find import GgufFiles
from ..model_names import STORES
from .store import entries, is_part, under_homes

PREFIX, _ = STORES
FORM = f"a name in Ollama's store is {PREFIX}NAME or {PREFIX}NAME:TAG, as `ollama list` has it"
_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_KIND = "application/vnd.ollama.image."
_MODEL, _ENCODER, _ADAPTER = f"{_KIND}model", f"{_KIND}projector", f"{_KIND}adapter"
_PARAMETERS = f"{_KIND}params"
_OF_THE_SERVICE = Path("/usr/share/ollama/.ollama/models")  # the folder of the service that its installer sets up


def folders() -> list[Path]:
    if named := os.environ.get("OLLAMA_MODELS"):
        return [Path(os.path.expanduser(named))]
    return [*under_homes(".ollama/models"), _OF_THE_SERVICE]


def places(name: str) -> list[Path]:
    """Paths where the manifest of a model of this name may be; empty for an impossible name."""
    rest, _, tag = name.removeprefix(PREFIX).partition(":")
    parts = rest.split("/")
    if not all(map(is_part, [*parts, tag or _TAG])) or len(parts) > 3:
        return []
    whole = [*(_HOST, _NAMESPACE)[: 3 - len(parts)], *parts]
    return [folder.joinpath("manifests", *whole, tag or _TAG) for folder in folders()]


def names() -> Iterator[tuple[str, Path]]:
    """The names of all models, with their manifests."""
    for folder in folders():
        for host in entries(folder / "manifests"):
            for namespace in entries(host):
                for model in entries(namespace):
                    for tag in entries(model):
                        yield _short(host.name, namespace.name, model.name, tag.name), tag


def _short(host: str, namespace: str, model: str, tag: str) -> str:
    parts = [host, namespace, model]
    if host == _HOST:
        parts = [model] if namespace == _NAMESPACE else [namespace, model]
    return f"{PREFIX}{'/'.join(parts)}:{tag}"


def read(name: str, path: Path) -> GgufFiles:
    """The files that a manifest names; raises `ConfigError` if they can't be a model here, `FileNotFoundError` if
    there is no such manifest."""
    layers = _layers(read_model_json(path), path)
    if _ADAPTER in layers:
        raise ConfigError(
            f"{name} has a LoRA adapter, and adapters are not read from Ollama's store. Give the model that it "
            "was trained on, with enable_lora=True, and the adapter to load_lora()."
        )
    if len(layers.get(_MODEL, [])) != 1:
        held = "no GGUF file" if _MODEL not in layers else f"{len(layers[_MODEL])} files"
        raise ConfigError(
            f"{name} can't be read from Ollama's store: {path} names {held}, not one. Use the model from the hub, as "
            "OWNER/NAME or OWNER/NAME:Q4_K_M."
        )
    store = path.parents[4]
    model, encoders, parameters = (
        tuple(_blob(layer, store, path) for layer in layers.get(kind, [])) for kind in (_MODEL, _ENCODER, _PARAMETERS)
    )
    return GgufFiles(model, encoders, parameters[-1] if parameters else None)


def _layers(content: Any, manifest: Path) -> dict[str, list[dict[str, Any]]]:
    """The layers of a manifest by kind."""
    listed = content.get("layers") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise ConfigError(f"{manifest} is no manifest of Ollama's: it lists no layers. `ollama pull` the model again.")
    found: dict[str, list[dict[str, Any]]] = {}
    for layer in listed:
        found.setdefault(str(layer.get("mediaType")), []).append(layer)
    return found


def _blob(layer: dict[str, Any], store: Path, manifest: Path) -> Path:
    digest, size = layer.get("digest"), layer.get("size")
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise ConfigError(f"{manifest} names {shown(digest)}, which is no digest. `ollama pull` the model again.")
    path = store / "blobs" / f"sha256-{match[1]}"
    try:
        require_regular(path)
    except FileNotFoundError:
        raise ConfigError(f"{manifest} names {path}, which is not there. `ollama pull` the model again.") from None
    if (there := path.stat().st_size) != size:
        raise ConfigError(
            f"{path} has {there:,} bytes, and {manifest} says {shown(size)}. `ollama pull` the model again."
        )
    return path
