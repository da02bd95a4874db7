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
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock import LLM, GuidedDecodingParams, SamplingParams

BY_HAND = Path(__file__).with_name("by_hand.jsonl")
UNSEEN = Path(__file__).with_name("unseen.jsonl")
MAX_TOKENS = 200
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class HandQuestion:
    kind: str
    messages: list[dict[str, Any]]
    tools: list[Mapping[str, Any]] | None
    schema: Mapping[str, Any] | None
    judge: str  # accept, json or call
    expected: Any

    def is_answered_by(self, text: str) -> bool:
        """Whether this text, thoughts and all, is a right answer."""
        answer = text.rpartition("</think>")[2].strip()
        if self.judge == "accept":
            return any(re.search(pattern, answer, re.IGNORECASE) for pattern in self.expected)
        if self.judge == "json":
            return _value(answer) == self.expected
        return [_value(call) for call in _CALL.findall(answer)] == [self.expected]

    def params(self) -> SamplingParams:
        guided = GuidedDecodingParams(json=dict(self.schema)) if self.schema else None
        return SamplingParams(temperature=0, max_tokens=MAX_TOKENS, guided_decoding=guided)


def by_hand(path: Path = BY_HAND) -> list[HandQuestion]:
    return [_question(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _question(row: Mapping[str, Any]) -> HandQuestion:
    judge = next(name for name in ("accept", "json", "call") if name in row)
    return HandQuestion(row["kind"], row["messages"], row.get("tools"), row.get("schema"), judge, row[judge])


def _value(text: str) -> Any:
    """What this JSON says; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def answers_by_hand(llm: LLM, asked: list[HandQuestion]) -> list[str]:
    """Greedy answers, in the questions' order. One call asks all that share their tools."""
    order = sorted(range(len(asked)), key=lambda place: _tools_key(asked[place]))
    answers = [""] * len(asked)
    for _, group in groupby(order, key=lambda place: _tools_key(asked[place])):
        places = list(group)
        conversations = [asked[place].messages for place in places]
        params = [asked[place].params() for place in places]
        outputs = llm.chat(conversations, params, use_tqdm=False, tools=asked[places[0]].tools)
        for place, output in zip(places, outputs, strict=True):
            answers[place] = output.outputs.text
    return answers


def _tools_key(question: HandQuestion) -> str:
    return json.dumps(question.tools)
