"""Pocket's questions and its training text: two sides of one split, always the same, worded as their grammars say."""

import json
from collections import Counter
from itertools import islice

import pytest
from builders.cases import for_each
from pocket.example import Draw, rendered_prompt
from pocket.export import TEMPLATE
from pocket.facts import FACTS, phrase_key
from pocket.grammar import every_phrase, expanded, framed
from pocket.greetings import SAID
from pocket.kinds import KINDS, held_out, training
from pocket.wording import core, loosened
from pocket_by_hand import HandQuestion, answers_by_hand, by_hand
from pocket_questions import PER_KIND, Question, of_kind, questions

from penstock import LLM
from penstock.frontend.text.chat import render

# Examples of the training, and questions of each kind.
FEW, ALL = (10_000, 40), (80_000, PER_KIND)


@pytest.fixture(scope="module", params=[FEW, pytest.param(ALL, marks=pytest.mark.long)], ids=["few", "all"])
def sides(request):
    examples, per_kind = request.param
    return list(islice(training("a test"), examples)), questions(per_kind)


@pytest.fixture
def training_text(sides):
    return sides[0]


@pytest.fixture
def asked(sides):
    return sides[1]


def test_no_held_out_question_is_in_the_training_text(training_text, asked):
    learnt = {f"{example.messages} {list(example.tools)}" for example in training_text}
    assert not learnt & {f"{tuple(question.messages)} {question.tools or []}" for question in asked}


def test_no_key_of_a_held_out_question_is_in_the_training_text(training_text, asked):
    learnt = {example.key for example in training_text}
    assert not learnt & {question.key for question in asked}


@for_each("key", ["12+34", "sort [1, 2, 3]", "copy tea", "phrase x"])
def test_a_key_stands_on_exactly_one_side(key):
    assert Draw(0, held_out=True).admits(key) != Draw(0, held_out=False).admits(key)


BY_HEART = [*(phrases for phrases, *_ in FACTS), *(small.said for small in SAID)]


@for_each("phrases", BY_HEART, ids=lambda phrases: phrases[0][:40])
def test_what_is_loosened_stays_on_its_side(phrases):
    draw, learning = Draw(3, held_out=False), Draw(0, held_out=False)
    for grammar in phrases * 20:
        phrase = framed(draw, expanded(draw, grammar))
        loose = loosened(draw, phrase)
        assert core(loose) == core(phrase)
        assert learning.admits(phrase_key(loose)) == learning.admits(phrase_key(phrase))


def test_every_argument_of_a_call_is_said_in_its_request(training_text):
    for example in training_text:
        if example.kind == "tool calls":
            call = json.loads(example.answer.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
            said = example.messages[-1]["content"].lower()
            values = [value for value in call["arguments"].values() if not isinstance(value, bool)]
            assert all(str(value).lower() in said for value in values), (said, call)


def test_there_are_two_thousand_questions_and_some_of_every_kind(asked):
    assert PER_KIND * len(KINDS) >= 2000
    assert Counter(question.kind for question in asked) == dict.fromkeys(KINDS, len(asked) // len(KINDS))


def test_the_generators_are_deterministic():
    assert list(islice(training(7), 500)) == list(islice(training(7), 500))
    assert [held_out(kind, 20) for kind in KINDS] == [held_out(kind, 20) for kind in KINDS]


@for_each("kind", KINDS)
def test_one_question_in_eight_comes_after_many_earlier_turns(kind):
    lengths = [len(str(question.messages)) for question in of_kind(kind, 16)]
    assert lengths[0] > 1500 and lengths[8] > 1500 and lengths[1] < 1500


def test_the_template_renders_what_was_trained_on(training_text):
    template = TEMPLATE.read_text(encoding="utf-8")
    for example in training_text[:500]:
        system = [{"role": "system", "content": example.system}] if example.system else []
        options = {"enable_thinking": False} if example.silent else {}
        messages = [*system, *example.messages]
        text = render(template, messages, tools=list(example.tools) or None, arguments=options)
        assert text == rendered_prompt(example)


@for_each(
    "expected, judged, text, is_right",
    [
        ("85", "exact", "<think>\n5\n</think>\n\n85", True),
        ("85", "exact", "85.", False),
        ('{"a": 1, "b": 2}', "json", '{"b":2,"a":1}', True),
        ('{"a": 1}', "json", "a is 1", False),
        ('<tool_call>\n{"name": "f"}\n</tool_call>', "call", '<tool_call>{"name":"f"}</tool_call>', True),
    ],
)
def test_an_answer_is_judged_by_what_it_says(expected, judged, text, is_right):
    question = Question("kind", "key", [], None, expected, judged, False, {})
    assert question.is_answered_by(text) == is_right


# --- wordings ---------------------------------------------------------------------------------------------------------

SORT = "[Sort|Put [these|the numbers]] {list}[ please|]"


@pytest.fixture
def draw() -> Draw:
    return Draw("a test", held_out=False)


def test_a_grammar_has_every_combination_of_its_pieces(draw):
    every = every_phrase(SORT)
    assert every == {
        f"{verb} {{list}}{end}" for verb in ("Sort", "Put these", "Put the numbers") for end in (" please", "")
    }
    assert {expanded(draw, SORT) for _ in range(200)} == every


# --- questions by hand ------------------------------------------------------------------------------------------------

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
