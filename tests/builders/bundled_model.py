"""The bundled model's folder, and what its config says, for tests that need the figures and not the model."""

import json

from penstock.frontend.models.model_names import BUNDLED

FOLDER = BUNDLED["pocket"]
VOCABULARY: int = json.loads((FOLDER / "config.json").read_text())["vocab_size"]
