"""How much of what people ask in words of their own pocket answers, and how that is judged."""

import pytest
from pocket_by_hand import HandQuestion, answers_by_hand, by_hand

from penstock import LLM

# The bundled weights reach 0.923; other kernels and formats may cost a little.
FLOOR = 0.89


@pytest.fixture(scope="module")
def rights() -> list[bool]:
    """Of every question whether it was answered right."""
    asked = by_hand()
    # Judged is what the model writes, so that a call in a wrong form is no call.
    as_written = {"reasoning_parser": "none", "tool_call_parser": "none"}
    with LLM("pocket", max_model_len=1024, quiet=True, **as_written) as llm:
        answers = answers_by_hand(llm, asked)
    return [question.is_answered_by(answer) for question, answer in zip(asked, answers, strict=True)]


def test_no_fewer_are_answered_right_than_before(rights):
    assert sum(rights) / len(rights) >= FLOOR


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
