"""The bundled model's folder, and what its config says, for tests that need the figures and not the model."""

import json
from pathlib import Path

import penstock

FOLDER = Path(penstock.__file__).parent / "frontend" / "pocket"
VOCABULARY: int = json.loads((FOLDER / "config.json").read_text())["vocab_size"]
