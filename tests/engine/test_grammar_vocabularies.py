"""A grammar holds over every kind of tokenizer that models which write text have."""

import random
import re

import numpy
import pytest
from builders.tokenizer_kinds import KINDS, write_tokenizer

from penstock.engine.grammar.matcher import Matcher, Vocabulary
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.parameters.guided import Grammar

EXPRESSION = "[a-z]{2,5} [a-z]{1,6}é? x"


def walked(matcher: Matcher, seed: int) -> list[int]:
    """Tokens taken at random from what is allowed, up to where nothing but an ending is."""
    draw, tokens = random.Random(seed), []
    while not matcher.is_complete:
        bits = numpy.unpackbits(numpy.frombuffer(matcher.mask([]), numpy.uint8), bitorder="little")
        following = matcher.certain() or [draw.choice(numpy.flatnonzero(bits).tolist())]
        assert matcher.take(following)
        tokens += following
    return tokens


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "word_piece"])
def test_whatever_is_allowed_spells_what_the_grammar_says(kind, tmp_path):
    write_tokenizer(tmp_path, kind)
    tokenizer = Tokenizer(tmp_path)
    # A model may have more rows than its tokenizer has tokens, or fewer.
    for size in (len(tokenizer) + 7, len(tokenizer) - 1):
        matcher = Matcher.compiled(Grammar("regex", EXPRESSION), Vocabulary(tmp_path, size))
        assert len(matcher.mask([])) == -(-size // 32) * 4
        for seed in range(8):
            assert re.fullmatch(EXPRESSION, tokenizer.decode(walked(matcher.fork(), seed)))


def test_what_ends_an_answer_is_the_requests_to_say(tmp_path):
    write_tokenizer(tmp_path, "byte_level")
    matcher = Matcher.compiled(Grammar("regex", "a*"), Vocabulary(tmp_path, 420))
    with_endings, without = matcher.mask([7, 300]), matcher.mask([])
    changed = [token for token in range(420) if (with_endings[token >> 3] ^ without[token >> 3]) >> (token & 7) & 1]
    assert changed == [7, 300]
