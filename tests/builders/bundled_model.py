"""The bundled model: its folder, its figures, and its door with no tree behind it."""

import json
from typing import Any

from penstock import SamplingParams
from penstock.frontend.models.model_files import find_model
from penstock.frontend.models.model_names import BUNDLED
from penstock.frontend.requests.door import Door
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.options.config import EngineConfig

FOLDER = BUNDLED["pocket"]
VOCABULARY: int = json.loads((FOLDER / "config.json").read_text())["vocab_size"]


def door_of_pocket(**options: Any) -> Door:
    files = find_model("pocket")
    plan = MemoryPlan(
        device="cpu", device_name="", weight_bytes=0, activation_bytes=0, available_bytes=0,
        groups=[GroupPlan("full", 1, 1, 64)],
        max_model_len=1024, model_context=1024, vocab_size=VOCABULARY, dtype="float32", kv_dtype="fp32",
    )  # fmt: skip
    config = EngineConfig.from_options("pocket", **options)
    return Door(config, Tokenizer(files.tokenizer_folder, files.folder), plan, SamplingParams())
