"""A GGUF file's chat templates, special tokens and text ends become the tokenizer's, and damaged ones are refused."""

import json
import random

import pytest
import tokenizers
from builders.cases import for_each
from builders.gguf_tokenizers import from_bert, from_sentencepiece, from_tokenizer_json, read, with_templates
from builders.sentencepiece_models import AS_LLAMA, CONTROL, NORMAL, USER_DEFINED, trained
from builders.tokenizer_kinds import CHAT_TEMPLATES, write_tokenizer
from tokenizers import pre_tokenizers, processors

from penstock.frontend.text.gguf import end_token_ids, tokenizer_files
from penstock.frontend.text.gguf import write_tokenizer as write_from_gguf
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import ConfigError, RequestError
from penstock.worker.convert.gguf.vocabulary import vocabulary_metadata

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "f", "description": "Does it", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return from_tokenizer_json(write_tokenizer(tmp_path_factory.mktemp("byte_level"), "byte_level_with_bos"), "gpt-2")


@pytest.fixture(scope="module")
def word_pieces(tmp_path_factory):
    return from_bert(write_tokenizer(tmp_path_factory.mktemp("bert"), "word_piece"))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "tokenizer.model").write_bytes(trained(**AS_LLAMA))
    return from_sentencepiece(folder) | {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}


def test_what_breaks_the_library_is_refused_and_a_full_disk_is_no_fault_of_it(byte_level, tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_from_gguf(byte_level, tmp_path)

    def broken(metadata, tokens):
        raise type("PanicException", (BaseException,), {})("index out of bounds")

    monkeypatch.setattr(tokenizer_files, "byte_level_tokenizer", broken)
    with pytest.raises(ValueError, match=r"^its tokens can't be put together: .* failed \(index out of bounds\)"):
        write_from_gguf(byte_level, tmp_path)


def test_a_template_is_kept_as_it_is_and_named_ones_are_chosen_by_name(byte_level, tmp_path):
    for family in ("everything", "gpt-oss", "llama3"):
        template = CHAT_TEMPLATES[family]
        assert read(tmp_path / family, with_templates(byte_level, default=template)).chat_template == template
    assert read(tmp_path / "none", byte_level | {"tokenizer.chat_template": ""}).chat_template is None
    named = with_templates(byte_level, default="plain", tool_use="{{ tools | length }} tools", rag="documents")
    tokenizer = read(tmp_path / "named", named)
    assert tokenizer.apply_chat_template(MESSAGES) == "plain"
    assert tokenizer.apply_chat_template(MESSAGES, tools=[TOOL]) == "1 tools"
    assert tokenizer.apply_chat_template(MESSAGES, chat_template="rag") == "documents"
    tokenizer = read(tmp_path / "no default", with_templates(byte_level, rag="documents"))
    with pytest.raises(RequestError, match="Choose a chat template by name.*rag"):
        tokenizer.apply_chat_template(MESSAGES)


def test_templates_that_lead_elsewhere_or_take_minutes_to_read_are_refused(byte_level, tmp_path):
    for name in ("../../x", "a/b", "", "a" * 65, "ü", "x.y", "a\0b"):
        with pytest.raises(ValueError, match="chat template .* has a name"):
            read(tmp_path / "made", byte_level | {f"tokenizer.chat_template.{name}": "x"})
    with pytest.raises(ValueError, match="has 2,000,001 characters"):
        read(tmp_path / "made", with_templates(byte_level, default="{{ 1 }}" * 285_714 + "{{}"))
    assert not list((tmp_path / "made").rglob("*.jinja"))


def test_templates_are_there_though_the_vocabulary_cannot_be_used(byte_level, tmp_path):
    """With tokenizer=… the rest of the file is good."""
    metadata = with_templates(byte_level, default="{{ messages[0].content }}") | {"tokenizer.ggml.pre": "unheard-of"}
    with pytest.raises(ValueError, match="'unheard-of', an unknown rule for splitting text"):
        write_from_gguf(metadata, tmp_path)
    assert (tmp_path / "chat_template.jinja").is_file()
    assert not (tmp_path / "tokenizer.json").exists()


def test_a_text_begins_and_ends_as_the_file_says(byte_level, tmp_path):
    for pre, said, has_bos, has_eos in (
        ("gpt-2", {}, False, False), ("llama-bpe", {}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("gpt-2", {"add_bos_token": True, "add_eos_token": True}, True, True),
    ):  # fmt: skip
        flags = {f"tokenizer.ggml.{name}": value for name, value in said.items()}
        tokenizer = read(tmp_path / "made", byte_level | {"tokenizer.ggml.pre": pre} | flags)
        ids = tokenizer.encode("fox")
        assert (ids[0] == tokenizer.bos_token_id, ids[-1] == tokenizer.eos_token_id) == (has_bos, has_eos)
        assert tokenizer.encode("<|start|>fox") == ids if has_bos else True


def with_tokens(metadata, *tokens, kind=CONTROL):
    """Further tokens at the end, and the id of the first."""
    first = len(metadata["tokenizer.ggml.tokens"])
    changed = {
        "tokenizer.ggml.tokens": [*metadata["tokenizer.ggml.tokens"], *tokens],
        "tokenizer.ggml.token_type": [*metadata["tokenizer.ggml.token_type"], *[kind] * len(tokens)],
    }
    return metadata | changed, first


@for_each("tokens, kind, said, expected", [
    (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], CONTROL, {"eos": 2}, [2, 0]),  # as Qwen's generation_config
    (["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], CONTROL, {"eos": 2}, [2, 0, 1]),  # as Llama 3.1's
    (["<|return|>", "<|call|>", "<|end|>", "<|endoftext|>"], CONTROL, {"eos": 0}, [0, 1, 3]),  # as gpt-oss's
    (["<|endoftext|>", "<|end|>"], CONTROL, {"eos": 0}, [0, 1]),  # as Phi's
    (["<|endoftext|>", "<|user|>", "<|observation|>"], CONTROL, {"eos": 0, "eot": 1, "eom": 2}, [0, 1, 2]),  # GLM's
    (["<eos>", "<end_of_turn>", "</s>"], USER_DEFINED, {"eos": 0}, [0, 1]),  # as Gemma's, whose </s> is markup
    (["<|im_end|>", "stop", "end", "next"], NORMAL, {"eos": 1, "eot": 2, "eom": 3}, [1, 2, 3]),
])  # fmt: skip
def test_ends_are_those_of_generation_config(tokens, kind, said, expected, byte_level, tmp_path):
    metadata = {key: value for key, value in byte_level.items() if not key.endswith("token_id")}
    metadata["tokenizer.ggml.tokens"] = [
        f"{token} " if "end" in token else token for token in metadata["tokenizer.ggml.tokens"]
    ]
    metadata, first = with_tokens(metadata, *tokens, kind=kind)
    named = {f"tokenizer.ggml.{task}_token_id": first + at for task, at in said.items()}
    tokens = write_from_gguf(metadata | named, tmp_path)
    assert [at - first for at in end_token_ids(tokens)] == expected
    named_kinds = {tokens.kinds[first + at] for at in said.values()}  # none of them is ever a part of a text
    assert named_kinds == {USER_DEFINED if kind == USER_DEFINED else CONTROL}


def test_special_tokens_are_hidden_others_shown_and_empty_ones_never_found(byte_level, tmp_path):
    metadata, first = with_tokens(byte_level, "<hidden>", "")
    metadata, _ = with_tokens(metadata, "<shown>", kind=USER_DEFINED)
    tokenizer = read(tmp_path / "made", metadata)
    assert tokenizer.encode("a<hidden>b<shown>", add_special_tokens=False)[1::2] == [first, first + 2]
    assert tokenizer.decode(tokenizer.encode("a<hidden>b<shown>")) == "ab<shown>"
    # Without types, the tokens that the file names are special.
    del metadata["tokenizer.ggml.token_type"]
    tokenizer = read(tmp_path / "no types", metadata)
    assert tokenizer.encode("a<|end|>", add_special_tokens=False)[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(tokenizer.encode("a<|end|>")) == "a"
    # A converter writes id 0 for a missing token; a letter must not become special by it.
    letter = byte_level["tokenizer.ggml.tokens"].index("a")
    tokenizer = read(tmp_path / "id 0", byte_level | {"tokenizer.ggml.padding_token_id": letter})
    assert tokenizer.pad_token is None and tokenizer.decode(tokenizer.encode("banana")) == "banana"


GONE = object()


def damaged(metadata, key, value, at=None):
    """With another value for a key or for one of its elements."""
    changed = {name: list(given) if isinstance(given, list) else given for name, given in metadata.items()}
    if at is not None:
        changed[f"tokenizer.ggml.{key}"][at] = value
    elif value is GONE:
        del changed[f"tokenizer.ggml.{key}"]
    else:
        changed[key if "." in key else f"tokenizer.ggml.{key}"] = value
    return changed


REFUSED = [
    ("model", GONE, "the file has none"), ("model", "none", "the file has none"),
    ("model", 3, "tokenizer.ggml.model is 3, and a text belongs there"),
    ("model", "rwkv", "'rwkv', a kind that is not read here; known are gpt2"),
    ("tokens", GONE, "has no tokens"), ("tokens", [], "has no tokens"),
    ("tokens", "abc", "tokens is 'abc', and a list of texts belongs there"),
    ("tokens", 7, "tokens has 7 at index 5, and is a list of texts", 5),
    ("tokens", ["a"], r"tokens has \['a'\] at index 5", 5),
    ("tokens", "e", "tokens has 'e' twice, with the ids", 5),
    ("token_type", [1, 1], r"token_type has 2 numbers for \d+ tokens"),
    ("token_type", 77, "token_type has 77, which is no type", 5),
    ("token_type", True, "token_type has True at index 5", 5),
    ("scores", [0.5], "scores has 1 numbers for"),
    ("scores", [float("nan")] * 3, "scores has NaN at index 0"),
    ("eos_token_id", 1 << 31, "eos_token_id is 2,147,483,648, and the ids"),
    ("bos_token_id", -1, "bos_token_id is -1, and the ids of its tokens go from 0"),
    ("eos_token_id", "2", "eos_token_id is '2', and a whole number belongs"),
    ("add_bos_token", 1, "add_bos_token is 1, and true or false belongs"),
    ("tokenizer.chat_template", [1, 2], "chat_template is a list of 2 values, and a text belongs there"),
]  # fmt: skip
REFUSED_BYTE_PAIRS = [
    ("pre", GONE, "early 2024.*rule for splitting words is unknown"),
    ("pre", "x", "'x', an unknown rule for splitting text into words"),
    ("merges", GONE, "it has no tokenizer.ggml.merges"), ("merges", "abc", "merges has one text at index 5", 5),
    ("merges", 3, "merges has 3 at index 5", 5),
]  # fmt: skip
REFUSED_PIECES = [
    ("tokens", "<0xZZ>", "<0x61> is not one of its", 100),
    ("precompiled_charsmap", [1, 0, 0, 0, 9], "rules for characters are cut short"),
    ("precompiled_charsmap", [300], "has a number that is no byte"),
    ("tokens", "x" * 2000, "length 2,000", 300),
]
CASES = {"byte_level": REFUSED + REFUSED_BYTE_PAIRS, "pieces": REFUSED + REFUSED_PIECES, "word_pieces": REFUSED}


@for_each("kind, case", [(kind, case) for kind, cases in CASES.items() for case in cases])
def test_what_cannot_be_used_is_refused_in_a_sentence(kind, case, tmp_path, request):
    key, value, reason, *at = case
    with pytest.raises(ValueError, match=reason) as caught:
        write_from_gguf(damaged(request.getfixturevalue(kind), key, value, *at), tmp_path)
    told = str(caught.value)
    assert not told.endswith(".") and "\n" not in told and str(tmp_path) not in told
    assert not (tmp_path / "tokenizer.json").exists()


JUNK = (
    *("", "x", "\ufffd", "\0", " ", "a b", "▁", "<0x0A>", 0, 1, -1, 3, 1 << 40, 0.5, float("inf"), float("nan")),
    *(True, [], ["a"], [1], [[]], None, {}, "\ud800", "é" * 3000),
)


@for_each("kind", ["byte_level", "pieces", "word_pieces"])
def test_any_damage_ends_in_a_tokenizer_or_a_sentence(kind, tmp_path, request):
    original = request.getfixturevalue(kind)
    draw = random.Random(kind)
    told = []
    for number in range(100):
        metadata = {key: list(value) if isinstance(value, list) else value for key, value in original.items()}
        for _ in range(draw.randint(1, 3)):
            damage(draw, metadata)
        try:
            read(tmp_path / str(number), metadata).encode_batch(["The fox  <s> 12", "é\n"])
        except ValueError as error:
            told.append(str(error))
    assert 0 < len(told) < 100
    assert [sentence for sentence in told if "\n" in sentence or len(sentence) > 600] == []


def damage(draw, metadata):
    key = draw.choice(sorted(metadata))
    value = metadata[key]
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        change = draw.random()
        if change < 0.6:
            value[at] = draw.choice((*JUNK, value[draw.randrange(len(value))]))
        elif change < 0.8:
            del value[at:]
        else:
            value[:] = value[::-1]
    elif draw.random() < 0.2:
        del metadata[key]
    else:
        metadata[key] = draw.choice(JUNK)


AROUND = ["<begin>", "<end>", "<other>", "<third>", "ab", *sorted(pre_tokenizers.ByteLevel.alphabet())]


def _template(single):
    special = [(token, AROUND.index(token)) for token in AROUND[:4]]
    return processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=special)


@for_each("processor, settings, refusal", [
    (None, {}, None), (_template("<begin> $A <end>"), {}, None),
    (_template("$A <other>"), {}, None),  # as Qwen3-Embedding
    (_template("<other> $A <third>"), {}, None),
    (processors.RobertaProcessing(("<third>", 3), ("<other>", 2)), {}, None),
    (processors.Sequence([processors.ByteLevel(), _template("$A <other>")]), {}, None),
    (None, {"add_bos_token": True}, None),
    (_template("<other> <begin> $A"), {}, "puts 2 tokens before a text"),
    (_template("$A <end> <other>"), {}, "puts 2 tokens behind a text"),
    (_template("$A <other>"), {"chat_template": "{{ eos_token }}"}, "is not eos_token, which its chat template"),
])  # fmt: skip
def test_a_converted_tokenizer_puts_the_same_tokens_around_a_text(tmp_path, processor, settings, refusal):
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({text: n for n, text in enumerate(AROUND)}, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(AROUND[:4])
    if processor is not None:
        backend.post_processor = processor
    backend.save(str(tmp_path / "tokenizer.json"))
    named = {"bos_token": "<begin>", "eos_token": "<end>"} | settings
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    if refusal is not None:
        with pytest.raises(ConfigError, match=refusal):
            vocabulary_metadata(tmp_path, tmp_path, len(AROUND))
        return
    (made := tmp_path / "made").mkdir()
    tokens = write_from_gguf(vocabulary_metadata(tmp_path, tmp_path, len(AROUND)), made)
    assert Tokenizer(made).encode("abba") == Tokenizer(tmp_path).encode("abba")
    assert 1 in end_token_ids(tokens), "the model's own end stays one"
