"""Pocket answers what people ask it in words of their own."""

from collections import Counter

import pytest
from pocket_by_hand import HandQuestion, answers_by_hand, by_hand

from penstock import LLM

# What the shipped weights reach, less what other kernels and formats may cost.
WHOLE_FLOOR, KIND_FLOOR = 0.88, 0.6


@pytest.fixture(scope="module")
def rights() -> list[tuple[str, bool]]:
    """Of every question its kind, and whether it was answered right."""
    asked = by_hand()
    with LLM("pocket", max_model_len=1024, quiet=True) as llm:
        answers = answers_by_hand(llm, asked)
    return [(question.kind, question.is_answered_by(answer)) for question, answer in zip(asked, answers, strict=True)]


def test_nearly_all_is_answered_right(rights):
    assert sum(is_right for _, is_right in rights) / len(rights) >= WHOLE_FLOOR


def test_no_kind_is_left_behind(rights):
    asked, right = Counter(kind for kind, _ in rights), Counter(kind for kind, is_right in rights if is_right)
    assert {kind: right[kind] / count for kind, count in asked.items() if right[kind] / count < KIND_FLOOR} == {}


@pytest.mark.parametrize(
    "judge, wanted, text, is_right",
    [
        ("accept", [r"\b15\b"], "<think>\n12\n</think>\n\n15", True),
        ("accept", [r"\b15\b"], "<think>\n15\n</think>\n\n12", False),
        ("json", {"a": 5, "b": "x"}, '{"b": "x", "a": 5.0}', True),
        ("json", {"a": 5}, "a is 5", False),
        ("call", {"name": "f", "arguments": {}}, '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', True),
        ("call", {"name": "f", "arguments": {}}, '{"name": "f", "arguments": {}}', False),
    ],
)
def test_an_answer_is_judged_by_what_is_visible(judge, wanted, text, is_right):
    assert HandQuestion("kind", [], None, None, judge, wanted).is_answered_by(text) == is_right
