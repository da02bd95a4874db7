"""A model that drafts whatever an answer is expected to be, whether that pays or not.

Only the method that replays a run does. The run here has an answer to a prompt that no test asks, so predictions are
all that is expected.
"""

from pathlib import Path
from typing import Any

_LINE = '{"prompt": "Who is there?", "choices": [{"message": {"content": "Nobody."}}]}\n'


def drafting_whatever_is_expected(folder: Path) -> dict[str, Any]:
    """The `speculative_config` of such a model; a file is written to the folder."""
    (folder / "last.jsonl").write_text(_LINE)
    return {"method": "replay", "file": str(folder / "last.jsonl")}
