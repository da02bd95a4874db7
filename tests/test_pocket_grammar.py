"""Pocket's wordings are put together as their grammars say, and what it is taught is true."""

import pytest
from builders.cases import for_each
from pocket.countries import ALL_CAPITALS, CAPITALS, ZH_CAPITALS
from pocket.everyday import ROWS
from pocket.example import Draw
from pocket.grammar import every_phrase, expanded, framed, mistyped, said
from pocket.sums import in_chinese, in_words
from pocket.tables import GREETINGS_IN_BOTH, TRANSLATIONS
from pocket.vocabulary import WORDS

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


@for_each("phrase", ["What is {a} plus {b}?", "Sort {list}", "Repeat after me: {text}", "{x} backwards"])
def test_what_is_said_around_a_request_leaves_its_values_where_they_are(draw, phrase):
    values = [piece for piece in ("{a}", "{b}", "{list}", "{text}", "{x}") if piece in phrase]
    for _ in range(300):
        around = mistyped(draw, framed(draw, phrase, share=1.0))
        assert all(value in around for value in values)
        assert not phrase.endswith("}") or around.endswith(phrase[phrase.rindex("{") :])


def test_hardly_any_two_requests_are_worded_alike(draw):
    assert len({said(draw, [SORT], list="3, 1, 2") for _ in range(300)}) > 60


def test_every_country_has_one_capital():
    assert len(CAPITALS) > 190
    assert len({country for country, _ in ALL_CAPITALS}) == len(ALL_CAPITALS)
    assert len({country for country, _ in ZH_CAPITALS}) == len(ZH_CAPITALS)


def test_what_is_translated_back_is_told_apart():
    both = (*TRANSLATIONS, *GREETINGS_IN_BOTH)
    assert len({english for english, _ in both}) == len({chinese for _, chinese in both}) == len(both)


def test_no_question_of_the_everyday_has_two_answers():
    answers: dict[str, str] = {}
    for phrases, answer in ROWS:
        for phrase in phrases:
            for each in every_phrase(phrase):
                assert answers.setdefault(each.lower(), answer) == answer, each


@for_each(
    "number, english, chinese",
    [
        (0, "zero", "零"),
        (10, "ten", "十"),
        (13, "thirteen", "十三"),
        (47, "forty-seven", "四十七"),
        (90, "ninety", "九十"),
    ],
)
def test_a_number_in_words(number, english, chinese):
    assert in_words(number) == english
    assert in_chinese(number) == chinese


def test_words_are_letters_alone():
    assert len(WORDS) > 700
    assert all(word.isalpha() and word.islower() for word in WORDS)
