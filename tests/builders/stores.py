"""Stores of other programs, in temporary folders, as those programs leave them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from penstock.frontend.models.stores import ollama, store, stored_models

KIND = "application/vnd.ollama.image."


def only_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From now on stores are looked for in this folder alone, and in none of the machine's."""
    for module in (store, stored_models):
        monkeypatch.setattr(module, "homes", lambda: [home])
    monkeypatch.setattr(ollama, "_OF_THE_SERVICE", home / "service")
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return home


def ollama_model(store: Path, name: str, file: bytes, tag: str = "latest", **further: bytes) -> Path:
    """Its manifest. `name` is HOST/NAMESPACE/NAME, or the last of them; `further` are layers by their kind."""
    parts = name.split("/")
    parts = ["registry.ollama.ai", "library"][: 3 - len(parts)] + parts
    layers = [layer(store, kind, content) for kind, content in {"model": file, **further}.items()]
    manifest = store.joinpath("manifests", *parts, tag)
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(manifest, layers)
    return manifest


def layer(store: Path, kind: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(content)
    return {"mediaType": KIND + kind, "digest": f"sha256:{digest}", "size": len(content)}


def write_manifest(manifest: Path, layers: Any) -> None:
    content = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "layers": layers,
    }
    manifest.write_text(json.dumps(content))


def lm_studio_files(home: Path, repository: str, *names: str, content: bytes = b"GGUF") -> Path:
    folder = home / ".lmstudio" / "models" / repository
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content)
    return folder
