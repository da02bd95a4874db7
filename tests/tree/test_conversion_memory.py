"""Converting a model and loading what was made take no more memory than its weights, its largest tensor and 0.3 GB."""

import json

import pytest
from bench_models import SHAPES
from measure_conversion import largest_tensor, loaded, peak_of
from peers.checkpoint import write_checkpoint

from penstock.frontend.models.conversion import convert_model

BASE = 300_000_000  # bytes that Python and torch may take
# Many tensors of a moderate size: whoever keeps the original's 0.95 GB, or both forms of the weights, is found out.
SHAPE = {**SHAPES["0.6b"], "vocab_size": 32768}


@pytest.mark.long
def test_converting_and_loading_stay_within_their_bound(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(SHAPES, "many layers", SHAPE)
    source, target = tmp_path / "original", tmp_path / "converted"
    write_checkpoint(source, "many layers")
    largest = largest_tensor(json.loads((source / "config.json").read_text()))
    with peak_of("penstock.worker.convert") as peak:
        made = convert_model(source, target, quantization="int8")
    taken = {"convert": (peak.nbytes, made.after + largest + BASE)}
    for word in ("load", "load again"):
        peak, weights, _ = loaded(target, largest)
        taken[word] = (peak.nbytes, weights + BASE)
    print({word: f"{most / 1e9:.2f} of {bound / 1e9:.2f} GB" for word, (most, bound) in taken.items()})
    assert {word for word, (most, bound) in taken.items() if not 0 < most <= bound} == set(), taken
