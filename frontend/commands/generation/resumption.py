"""Reads which prompts an interrupted run has answered already, from the lines that it left.

Of each answer only its number is kept, and a hash of what it answers, so that a run with other prompts is noticed.
"""

import json

from ....protocol.errors import PenstockError
from .answers import given
from .prompts import Row


class Resumption:
    def __init__(self) -> None:
        self.failed = 0
        self._questions: dict[int, int] = {}  # by the number of the prompt
        self._custom_ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._questions) + len(self._custom_ids)

    def take(self, line: bytes) -> None:
        """A line that was written."""
        try:
            record = dict(json.loads(line))
            if "custom_id" in record:
                self.failed += record["response"]["status_code"] != 200
                self._custom_ids.add(record["custom_id"])
            else:
                self._questions[int(record["index"])] = _hash(record)
                self.failed += "error_code" in record
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            raise PenstockError(
                f"--resume: line {len(self) + 1} of the unfinished file is no answer as --format jsonl writes it. Move "
                "the file away to begin anew."
            ) from None

    def has(self, number: int, row: Row) -> bool:
        if row.batch is not None:
            return row.batch.custom_id in self._custom_ids
        question = self._questions.pop(number, None)
        if question is None:
            return False
        if asked := given(row):
            expected = _hash(asked | ({} if row.name is None else {"id": row.name}))
            if question != expected:
                raise PenstockError(
                    f"--resume: the unfinished file answers another prompt than the {number + 1}. one given here. Move "
                    "the file away to begin anew."
                )
        return True


def _hash(record: dict[str, object]) -> int:
    return hash(json.dumps([record.get(name) for name in ("id", "prompt", "messages")], sort_keys=True))
