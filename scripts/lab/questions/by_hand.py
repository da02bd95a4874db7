"""Questions that were written by hand, without a look at the generators: how a stranger asks pocket.

`by_hand.jsonl` holds 300; those that went wrong have shown what the generators lacked. `unseen.jsonl` holds
100 by another hand, which say what to expect because nobody trained with a look at them. One a line: its kind,
its messages, its tools or its schema, and what judges the answer.
`accept` are regular expressions of which one is to be found, `json` the value that the answer is to parse to, `call`
the one call that is to be made. Knows the package's front door, nothing of the generators.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import GuidedDecodingParams, SamplingParams

from .asking import value_of, visible

BY_HAND = Path(__file__).with_name("by_hand.jsonl")
UNSEEN = Path(__file__).with_name("unseen.jsonl")
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class HandQuestion:
    kind: str
    messages: list[dict[str, Any]]
    tools: list[Mapping[str, Any]] | None
    schema: Mapping[str, Any] | None
    judge: str  # accept, json or call
    expected: Any
    template_options: Mapping[str, Any] = field(default_factory=dict)

    def is_answered_by(self, text: str) -> bool:
        """Whether this text, thoughts and all, is a right answer."""
        answer = visible(text)
        if self.judge == "accept":
            return any(re.search(pattern, answer, re.IGNORECASE) for pattern in self.expected)
        if self.judge == "json":
            return value_of(answer) == self.expected
        return [value_of(call) for call in _CALL.findall(answer)] == [self.expected]

    def params(self) -> SamplingParams:
        guided = GuidedDecodingParams(json=dict(self.schema)) if self.schema else None
        return SamplingParams(temperature=0, max_tokens=200, guided_decoding=guided)


def by_hand(path: Path = BY_HAND) -> list[HandQuestion]:
    return [_question(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _question(row: Mapping[str, Any]) -> HandQuestion:
    judge = next(name for name in ("accept", "json", "call") if name in row)
    return HandQuestion(row["kind"], row["messages"], row.get("tools"), row.get("schema"), judge, row[judge])
