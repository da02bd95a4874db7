"""Small random checkpoints of models that give numbers, as transformers and sentence-transformers write them."""

import json
from pathlib import Path
from typing import Any

import numpy

from .tiny_model import tiny_model, write_safetensors


def embedding_model(folder: Path, family: str = "qwen3", **modes: bool) -> Path:
    """A decoder whose rows are pooled as these keys say, such as `pooling_mode_mean_tokens=True`."""
    tiny_model(folder, family)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


def classifier(folder: Path, purpose: str, num_labels: int, **config: Any) -> Path:
    """A decoder with another head; `purpose` ends the architecture's name, as `ForTokenClassification`."""
    labels = {str(number): f"class {number}" for number in range(num_labels)}
    tiny_model(folder, "qwen3", architectures=[f"Qwen3{purpose}"], id2label=labels, **config)
    hidden = json.loads((folder / "config.json").read_text())["hidden_size"]
    generator = numpy.random.default_rng(7)
    head = {
        "score.weight": generator.normal(size=(num_labels, hidden)),
        "score.bias": generator.normal(size=num_labels),
    }
    tensors = {name: values.astype(numpy.float32) for name, values in head.items()}
    write_safetensors(folder / "model-score.safetensors", tensors, "float32")
    return folder
