"""How much of what people ask in words of their own pocket answers, and how that is judged."""

import pytest
from builders.cases import for_each
from pocket_by_hand import HandQuestion, answers_by_hand, by_hand

from penstock import LLM

# The bundled weights reach 0.923 of all, and 0.917 of each fifth; other kernels and formats may cost a little.
EACH_FIFTH, EACH = (5, 0.85), (1, 0.89)


@pytest.mark.parametrize(
    "step, floor", [EACH_FIFTH, pytest.param(*EACH, marks=pytest.mark.long)], ids=["each-fifth", "each"]
)
def test_no_fewer_are_answered_right_than_before(step, floor):
    asked = by_hand()[::step]
    # Judged is what the model writes, so that a call in a wrong form is no call.
    as_written = {"reasoning_parser": "none", "tool_call_parser": "none"}
    with LLM("pocket", max_model_len=1024, quiet=True, **as_written) as llm:
        answers = answers_by_hand(llm, asked)
    rights = [question.is_answered_by(answer) for question, answer in zip(asked, answers, strict=True)]
    assert sum(rights) / len(rights) >= floor


@for_each(
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
