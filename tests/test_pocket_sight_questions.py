"""Pocket-sight's questions and what it is trained on: two sides of one split, always the same."""

from collections import Counter
from pathlib import Path

import pytest
from builders.cases import for_each
from pocket.example import Draw
from pocket_sight.asking import is_on_side, questions_of
from pocket_sight.kinds import KINDS, held_out, training_seen
from pocket_sight.tokens import sight_tokenizer
from pocket_sight_questions import PER_KIND, questions
from transformers import PreTrainedTokenizerFast

from penstock.frontend.models.model_names import BUNDLED

ROOT = Path(__file__).resolve().parents[1]
# Questions of each kind, and pictures of the training.
FEW, MANY = (3, 120), (10, 400)


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def sides(request):
    """Questions, and the keys and the questions of a sample of the training."""
    per_kind, pictures = request.param
    draw = Draw("a test", held_out=False)
    seen = [training_seen(draw) for _ in range(pictures)]
    keys = {key for each in seen for ask in each.asks if is_on_side(draw, ask) for key in ask.keys}
    texts = {(question.kind, question.text) for each in seen for question in questions_of(draw, each.asks, 5)}
    return questions(per_kind), keys, texts


def test_no_held_out_question_is_learnt(sides):
    asked, keys, texts = sides
    for question in asked:
        assert (question.kind, question.text) not in texts
        assert not question.key or question.key not in keys


def test_there_are_two_thousand_questions_of_as_many_kinds_as_there_are():
    assert PER_KIND * len(KINDS) >= 2000
    assert set(Counter(question.kind for question in questions(1))) == set(KINDS)


def test_the_questions_are_always_the_same():
    one, other = held_out("words", 5), held_out("words", 5)
    assert [each.question for each in one] == [each.question for each in other]
    assert [each.images[0].tobytes() for each in one] == [each.images[0].tobytes() for each in other]


@for_each("with_ids, between", [(False, ""), (True, "Picture 1: ")])
def test_the_template_puts_pictures_where_they_stand_in_the_message(with_ids, between):
    template = (ROOT / "scripts" / "pocket_sight" / "chat_template.jinja").read_text(encoding="utf-8")
    parts = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "What is it?"}]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=sight_tokenizer(), chat_template=template)
    messages = [{"role": "user", "content": parts}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, add_vision_id=with_ids)
    assert text == (
        f"<|im_start|>user\nLook: {between}<|vision_start|><|image_pad|><|vision_end|>What is it?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_both_bundled_models_take_sixteen_megabytes_at_most():
    sizes = {name: sum(file.stat().st_size for file in folder.iterdir()) for name, folder in BUNDLED.items()}
    assert sum(sizes.values()) <= 16_000_000, sizes
