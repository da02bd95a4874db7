"""Pocket's tokens, and those that stand for a picture."""

import json
from pathlib import Path

from tokenizers import Tokenizer

POCKET = Path(__file__).resolve().parents[2] / "frontend" / "pocket"
VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
# Rows of the embedding table; the last of them stand for nothing.
TABLE_ROWS = 2112


def sight_tokenizer() -> Tokenizer:
    state = json.loads((POCKET / "tokenizer.json").read_text(encoding="utf-8"))
    first = max(added["id"] for added in state["added_tokens"] + [{"id": len(state["model"]["vocab"]) - 1}]) + 1
    for number, content in enumerate(VISION):
        added = {"id": first + number, "content": content, "special": True}
        state["added_tokens"].append(dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | added)
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))
