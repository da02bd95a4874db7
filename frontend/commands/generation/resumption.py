"""Finds the prompts that an interrupted run has answered already, from the lines that it wrote.

Only each answer's number and a hash of its prompt are kept, so that different prompts are noticed.
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
        """Take in a line that was written."""
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
                f"--resume: line {len(self) + 1} of the unfinished file is not an answer in --format jsonl. Move "
                "the file away to start again."
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
                    f"--resume: the unfinished file has another prompt {number + 1} than this run. Move "
                    "the file away to start again."
                )
        return True


def _hash(record: dict[str, object]) -> int:
    return hash(json.dumps([record.get(name) for name in ("id", "prompt", "messages")], sort_keys=True))
