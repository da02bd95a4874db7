"""A `tokenizer.model` alone gives the ids that SentencePiece gives, whatever the model is like and the text holds."""

import json
import random
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sentencepiece
from builders import sentencepiece_models
from builders.cases import for_each
from builders.sentencepiece_models import AS_LLAMA, BPE, BYTE, CHAR, NORMAL, UNIGRAM, trained, written
from builders.tokenizer_kinds import random_text
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontend.models.model_files import find_tokenizer
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.frontend.text.vocabulary import SEGMENTER_FILE
from penstock.frontend.text.vocabulary.folder import write_tokenizer
from penstock.protocol.errors import ConfigError

FOLDED = dict(model_type="bpe", normalization_rule_name="nfkc_cf")
# How a model was trained.
TRAINED = {
    "as Llama": AS_LLAMA,
    "no prefix": {**AS_LLAMA, "add_dummy_prefix": False},
    "extra spaces removed": {**AS_LLAMA, "remove_extra_whitespaces": True},
    "unknown characters": {**AS_LLAMA, "byte_fallback": False, "character_coverage": 0.98},
    "pieces across spaces": {**AS_LLAMA, "split_by_whitespace": False},
    "user-defined": {**AS_LLAMA, "user_defined_symbols": ["<uds>", "he", "<u", "\n", "▁▁"]},
    "BPE by default": dict(model_type="bpe"),
    "case folded": {**FOLDED, "user_defined_symbols": ["<uds>", "ａ", "  "]},
    "unigram": dict(model_type="unigram"),
    "unigram of bytes": {**AS_LLAMA, "model_type": "unigram"},
    "unigram, user-defined": dict(model_type="unigram", user_defined_symbols=["<uds>", "<u", "he"]),
    "characters": dict(model_type="char", byte_fallback=True),
}
USED_BY_THE_LIBRARY = ("as Llama", "no prefix", "unknown characters", "pieces across spaces")
model_of = cache(lambda name: trained(**TRAINED[name]))


def read(folder, model, settings=None):
    """The tokenizer of a folder that has nothing but the model and its settings."""
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings or {}))
    target = folder / "made"
    target.mkdir(exist_ok=True)
    for file in target.iterdir():
        file.unlink()
    write_tokenizer(folder / "tokenizer.model", target)
    return Tokenizer(target)


def pieces_of(tokenizer, text):
    return [tokenizer.backend.id_to_token(token_id) for token_id in tokenizer.encode(text)]


@cache
def as_llama():
    with TemporaryDirectory() as folder:
        return read(Path(folder), model_of("as Llama"))


def check(folder, model, texts):
    reference = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = read(folder, model)
    for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
        assert ids == reference.encode(text), text


@for_each("name", TRAINED)
def test_ids_are_those_of_sentencepiece_and_the_text_comes_back_as_there(name, tmp_path):
    """Above all the spaces that begin it."""
    draw = random.Random(name)
    check(tmp_path, model_of(name), [random_text(draw) for _ in range(300)])
    assert (tmp_path / "made" / SEGMENTER_FILE).exists() == (name not in USED_BY_THE_LIBRARY)
    reference = sentencepiece.SentencePieceProcessor(model_proto=model_of(name))
    tokenizer = Tokenizer(tmp_path / "made")
    [space, begin] = map(reference.piece_to_id, ("▁", "<s>"))
    for text in ("The fox", "a  fox ", "fox"):
        ids = reference.encode(text)
        for first in ([], [space], [space] * 3, [begin, space], [space, begin, space]):
            expected = reference.decode([*first, *ids])
            assert tokenizer.decode([*first, *ids]) == expected, (first, text)
            stream = tokenizer.decoding.decoder()
            assert "".join([stream.feed([token]) for token in (*first, *ids)]) + stream.flush() == expected


@for_each("algorithm", [BPE, UNIGRAM])
@for_each("kinds", [[NORMAL], [NORMAL, NORMAL, sentencepiece_models.UNUSED, sentencepiece_models.USER_DEFINED]])
@for_each("are_distinct", [True, False])
def test_any_scores_and_kinds_of_pieces_give_the_ids_of_sentencepiece(are_distinct, kinds, algorithm, tmp_path):
    """Two letters, so that pieces overlap in every way; scores that no training gives."""
    draw = random.Random(f"{are_distinct} {kinds} {algorithm}")
    for _ in range(8):
        longer = sorted({"".join(draw.choices("ab", k=draw.randint(2, 6))) for _ in range(draw.randint(2, 30))})
        count = len(longer)
        chosen = draw.sample(range(-1000, 0), count) if are_distinct else draw.choices(range(-4, 1), k=count)
        pieces = [(letter, -2000.0 - at, NORMAL) for at, letter in enumerate("ab▁")]
        pieces += [(piece, float(score), draw.choice(kinds)) for piece, score in zip(longer, chosen, strict=True)]
        options = dict(byte_fallback=draw.random() < 0.5, add_dummy_prefix=draw.random() < 0.5)
        model = written(pieces, algorithm=algorithm, **options)
        check(tmp_path, model, ["".join(draw.choices("ab x", (9, 9, 2, 1), k=draw.randint(0, 25))) for _ in range(40)])


def test_merges_go_by_score_and_not_by_id(tmp_path):
    """As in Mistral's vocabulary, where two spaces have a lower id than a space with a letter, and a lower score."""
    words = ["▁▁", "▁T", "▁Th", "▁The", "▁a", "▁an", "▁ans", "▁answ", "▁answe", "▁answer", "answer", "\n▁▁"]
    scores = dict(zip([*words[1:10], "answer", "▁▁", "\n▁▁"], range(0, -100, -1)))
    letters = [(letter, -1000.0 - at, NORMAL) for at, letter in enumerate("▁The answr\n".replace(" ", ""))]
    model = written([*((word, float(scores[word]), NORMAL) for word in words), *letters], byte_fallback=True)
    tokenizer = read(tmp_path, model)
    assert pieces_of(tokenizer, "The  answer") == ["▁The", "▁", "▁answer"]
    check(tmp_path, model, ["The  answer", "\n    answer", " The", "answer  ", "   "])


def test_sums_of_a_long_text_are_as_fine_as_those_of_a_short_one(tmp_path):
    """SentencePiece counts from zero again before float32 gets too coarse."""
    scores = {"▁": -5.0, "a": -1.1, "b": -1.3, "ab": -2.4004, "ba": -2.3996, "x": -3.7}
    model = written([(piece, score, NORMAL) for piece, score in scores.items()], algorithm=UNIGRAM)
    draw = random.Random(1)
    check(tmp_path, model, ["".join(draw.choices("abx", k=60_000))])


@given(st.text(max_size=20))
def test_any_text_comes_back(text):
    tokenizer = as_llama()
    text = text.replace("▁", "").replace("\ufffd", "")
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_scores_are_what_sentencepiece_takes(tmp_path):
    """Any for characters, which aren't merged whatever the model has, and infinite ones for BPE."""
    scores = (float("-inf"), float("inf"), float("nan"))
    for algorithm, score in (*product((CHAR, BPE), scores[:2]), (CHAR, scores[2])):
        pieces = [("▁", -1.0, NORMAL), ("a", score, NORMAL), ("b", -2.0, NORMAL), ("ab", score, NORMAL)]
        model = written(pieces, algorithm=algorithm)
        check(tmp_path, model, ["a b ab xa", "abab", "ba", " b"])


def test_a_text_begins_and_ends_as_the_settings_ask(tmp_path):
    both = {"add_bos_token": True, "add_eos_token": True, "bos_token": "</s>", "eos_token": "<s>"}
    for settings, begins, ends in (
        ({}, [], []), ({"add_eos_token": True}, [], ["</s>"]), (both, ["</s>"], ["<s>"]),
        ({"add_bos_token": True, "bos_token": None}, [], []),
        ({"add_bos_token": True, "bos_token": {"content": "<s>", "lstrip": False}}, ["<s>"], []),
    ):  # fmt: skip
        tokenizer = read(tmp_path, model_of("as Llama"), settings)
        assert pieces_of(tokenizer, "fox") == [*begins, *pieces_of(as_llama(), "fox"), *ends], settings
        assert pieces_of(tokenizer, "") == [*begins, *ends], settings


@for_each("name", ["as Llama", "user-defined"])
@for_each("settings, first, second", [
    ({}, "▁", ""), ({"legacy": False}, "▁", ""), ({"legacy": True}, "▁", "▁"),
    ({"add_prefix_space": False, "legacy": True}, "", ""),
])  # fmt: skip
def test_spaces_before_a_text_and_behind_special_tokens_go_by_the_settings(name, settings, first, second, tmp_path):
    tokenizer = read(tmp_path, model_of(name), settings)
    for text, expected in (("the", [first]), ("the</s>the", [first, second]), ("<s>the", [second])):
        found = "".join(pieces_of(tokenizer, text)).replace("<s>", "</s>").split("</s>")
        assert [part.removesuffix("the") for part in found if part] == expected, text


def test_special_tokens_are_named_by_the_model_unless_the_settings_do(tmp_path):
    tokenizer = read(tmp_path, trained(**AS_LLAMA, pad_id=3, bos_piece="<begin>"))
    names = {"bos_token": "<begin>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    assert tokenizer.special_tokens == names
    assert tokenizer.decode(tokenizer.encode("<begin>the fox</s>")) == "the fox"
    tokenizer = read(tmp_path, model_of("as Llama"), {"eos_token": "<|end|>", "bos_token": None})
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.eos_token_id) == (None, "<|end|>", len(tokenizer) - 1)


@for_each("name", ["as Llama", "user-defined"])
def test_tokens_that_the_settings_list_have_their_ids_and_options_and_a_template_goes_along(name, tmp_path):
    size = sentencepiece.SentencePieceProcessor(model_proto=model_of(name)).vocab_size()
    listed = {
        "1": {"content": "<s>", "special": True, "rstrip": True},
        "280": {"content": "<tool>", "special": False, "normalized": False},  # in the place of a piece
        str(size): {"content": "<|end|>", "special": True},
    }
    tokenizer = read(tmp_path, model_of(name), {"added_tokens_decoder": listed})
    ids = tokenizer.encode("<s>  <tool><|end|>")
    assert (ids, len(tokenizer)) == ([1, 280, size], size + 1)
    assert tokenizer.decode(ids) == "<tool>"
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|b|>": size + 1, "<|a|>": size, "the": 5}))
    tokenizer = read(tmp_path, model_of(name))
    assert tokenizer.chat_template == "{{ messages[0].content }}"
    assert tokenizer.encode("<|a|><|b|>") == [size, size + 1]


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 499723\n"
UNREADABLE = [
    (b"", "no pieces"), (LFS_POINTER, "can't be read"), (b"hello world\n" * 50, "can't be read"),
    (lambda: model_of("as Llama")[:-1000], "too early|no whole number"),
    (written([("a", 0.0, NORMAL)] * 2), "'a' once more"),
    (written([("a", float("nan"), NORMAL)]), "has the score nan"),
    (written([("a", float("inf"), NORMAL)], algorithm=UNIGRAM), "has the score inf"),
    (b"\x0a\x02\x08\x05", "in piece 0, its field 1 is a whole number where a text"),
    (b"\x12\x05\xca\x02\x02ab", "trainer.*field 41 is a text.*whole number belongs"),
    (b"\x1a\x02\x10\x05", "normalizer.*its field 2 is a whole number"),
    (b"\x1a\x03\x1a\x01\x01", "normalizer.*its field 3 is a text or a message where"),
    (b"\x0a\x05\x0dabcd", "in piece 0, its field 1 is four bytes where a text"),
    (b"\x0a\x09\x11abcdefgh", "in piece 0, its field 2 is eight bytes where four"),
    (b"\x0a\x02\x18\x09", "in piece 0, its kind is 9"), (b"\x12\x02\x18\x09", "by the algorithm 9"),
    (b"\x12\x0b\x18" + b"\xff" * 9 + b"\x7f", "no whole number at byte 1"),
    (b"\x02\x00", "byte 0 begins a field without a number"),
    (written([(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]), "pieces for bytes"),  # without fallback
    (written([("a" * 2000, 0.0, NORMAL)]), "has the length 2,000"),
    (written([("a", 0.0, NORMAL)], charsmap=b"\x08\0\0\0abcd"), "rules for characters"),
    (lambda: trained(model_type="word", vocab_size=60), "cuts text into words"),
    (lambda: trained(model_type="bpe", treat_whitespace_as_suffix=True), "spaces behind words"),
]  # fmt: skip


@for_each("content, reason", UNREADABLE, ids=[reason for _, reason in UNREADABLE])
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(content, reason, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tokenizer.model").write_bytes(content() if callable(content) else content)
    with pytest.raises(ConfigError, match=f"(?s)tokenizer.model .*({reason}).*tokenizer="):
        find_tokenizer(tmp_path)
    assert list((tmp_path / "cache" / "penstock" / "tokenizers").iterdir()) == [], "nothing half made is left"


def damaged(draw, content):
    """With bytes changed, put in and taken out: at the end stand the descriptions, where a byte says most."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        kind, first = draw.random(), draw.choice((0, max(0, len(content) - 400)))
        at = draw.randrange(first, len(content))
        if kind < 0.7:
            content[at] = draw.randrange(256)
        elif kind < 0.85:
            content.insert(at, draw.randrange(256))
        else:
            del content[max(at, 1) : at + draw.choice((1, 2, len(content)))]
    return bytes(content)


def test_any_damage_gives_ids_or_is_told_of_the_file_that_has_it(tmp_path):
    pieces = [("▁", -1.0, NORMAL), ("a", -2.0, NORMAL), ("b", -3.0, NORMAL), ("ab", -4.0, NORMAL)]
    options = {"remove_extra_whitespaces": True}
    cases = [(written(pieces, algorithm=algorithm, **options), 200) for algorithm in (UNIGRAM, BPE, CHAR)]
    cases += [(model_of(name), 16) for name in ("BPE by default", "unigram of bytes")]  # with rules for characters
    for number, (model, count) in enumerate(cases):
        for seed in range(count):
            draw = random.Random(seed)
            try:
                read(tmp_path, damaged(draw, model)).encode_batch(["a ab", random_text(draw), random_text(draw)])
            except ConfigError as error:
                told = str(error)
            else:
                continue
            assert told.startswith(f"{tmp_path / 'tokenizer.model'} "), (number, seed, told)
