"""How Ollama has a model sampled, which it keeps beside it: taken where that can be meant, else refused."""

import json
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.converted_gguf import write_converted
from builders.gguf_tokenizers import from_tokenizer_json
from builders.stores import ollama_model, only_home
from builders.tokenizer_kinds import write_tokenizer

from penstock.frontend.models.generation_config import default_params
from penstock.frontend.models.gguf.stored_parameters import with_stored_parameters
from penstock.frontend.models.gguf.translated import translated_folder
from penstock.frontend.models.stores.stored_models import stored_model
from penstock.frontend.text.gguf import write_tokenizer as write_from_gguf
from penstock.protocol.errors import ConfigError

OWN = {"eos_token_id": [2], "do_sample": True, "temperature": 0.6, "top_p": 0.95}


def stored(tmp_path: Path, content: bytes | dict) -> Path:
    path = tmp_path / "sha256-0a1b"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@for_each(
    "parameters, changed",
    [
        ({}, {}),
        ({"num_ctx": 4096, "mirostat": 1, "temperature": None, "stop": None}, {}),
        ({"temperature": 1, "top_k": 20}, {"temperature": 1, "top_k": 20}),
        ({"top_k": 40.0, "repeat_penalty": 1.1}, {"top_k": 40, "repetition_penalty": 1.1}),
        ({"min_p": 0.05, "presence_penalty": 1.5}, {"min_p": 0.05, "presence_penalty": 1.5}),
        ({"stop": ["User:", ""]}, {"stop_strings": ["User:"]}),
        ({"stop": "###"}, {"stop_strings": ["###"]}),
    ],
)
def test_parameters_take_the_place_of_the_files_own(tmp_path, parameters, changed):
    path = stored(tmp_path, parameters)
    assert with_stored_parameters(OWN, path, None) == OWN | changed
    recommends_nothing = with_stored_parameters({"eos_token_id": []}, path, None)
    assert recommends_nothing.get("do_sample", False) == bool(changed.keys() - {"stop_strings"})


def test_a_stop_that_is_a_token_of_its_own_ends_answers_by_its_id(tmp_path):
    original = write_tokenizer(tmp_path / "original", "byte_level_with_bos")
    (tmp_path / "made").mkdir()
    tokens = write_from_gguf(from_tokenizer_json(original, "gpt-2"), tmp_path / "made")
    special = tokens.added()[0]
    path = stored(tmp_path, {"stop": [tokens.texts[special], "the"]})
    found = with_stored_parameters({"eos_token_id": [99]}, path, tokens)
    assert (found["eos_token_id"], found["stop_strings"]) == ([99, special], ["the"])


@for_each(
    "content, reason",
    [
        (b"{", "can't be used: "),
        (b"[1]", "can't be used: "),
        (b"\xff", "can't be used: "),
        ({"temperature": "hot"}, "temperature is 'hot', which is no number"),
        ({"top_p": True}, "top_p is True, which is no number"),
        ({"top_k": 20.5}, "top_k"),
        ({"top_p": 2}, "top_p"),
        ({"repeat_penalty": 0}, "repetition_penalty"),
        ({"stop": [1]}, r"stop is \[1\], and must be a text or a list of them"),
        ({"stop": {"a": 1}}, "must be a text or a list of them"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence_that_says_what_to_do(tmp_path, content, reason):
    advice = r"\. `ollama pull` the model again, or give the GGUF file itself\.$"
    with pytest.raises(ConfigError, match=f"{reason}.*{advice}"):
        with_stored_parameters(OWN, stored(tmp_path, content), None)


def test_a_model_of_ollamas_store_begins_with_its_parameters(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    store = only_home(tmp_path, monkeypatch) / ".ollama" / "models"
    model = write_converted(tmp_path / "tiny.gguf", "llama").read_bytes()
    ollama_model(store, "tiny", model, params=b'{"temperature": 0.25, "stop": ["User:"], "num_ctx": 2048}')
    params = default_params(translated_folder(stored_model("ollama:tiny")))
    assert (params.temperature, params.stop) == (0.25, ["User:"])
    ollama_model(store, "tiny", model, params=b'{"temperature": 0.75}')
    assert default_params(translated_folder(stored_model("ollama:tiny"))).temperature == 0.75
    ollama_model(store, "tiny", model)
    assert default_params(translated_folder(stored_model("ollama:tiny"))).stop is None
    ollama_model(store, "tiny", model, params=b'{"temperature": "hot"}')
    with pytest.raises(ConfigError, match="temperature is 'hot'"):
        translated_folder(stored_model("ollama:tiny"))
