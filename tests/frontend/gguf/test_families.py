"""Metadata becomes the config of the checkpoint that was converted: both are read to one and the same description.

Files are those of llama.cpp's own converter, but for their weights. The sampling parameters that Ollama keeps beside a
model are taken where they have a meaning here, and else refused.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.cases import for_each
from builders.converted_gguf import converted, write_converted
from builders.gguf_file import write_gguf, zeros
from builders.gguf_tokenizers import from_tokenizer_json
from builders.stores import ollama_model, only_home
from builders.tiny_model import tiny_model
from builders.tokenizer_kinds import write_tokenizer

from penstock.frontend.models.generation_config import default_params
from penstock.frontend.models.gguf.config import config_of
from penstock.frontend.models.gguf.stored_parameters import with_stored_parameters
from penstock.frontend.models.gguf.translated import translated_folder
from penstock.frontend.models.stores.stored_models import stored_model
from penstock.frontend.text.gguf import write_tokenizer as write_from_gguf
from penstock.kernels.arrays import Array
from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.architectures.table import ARCHITECTURES
from penstock.protocol.files.gguf.header import read_header
from penstock.protocol.files.gguf.parts import read_model
from penstock.protocol.files.gguf.refusals import MalformedError
from penstock.worker.description.config import ModelConfig, read_config
from penstock.worker.description.parts.mixers import with_projections_apart
from penstock.worker.description.parts.rope import RopeConfig
from penstock.worker.layers.rope import Rope

# Families whose files name another family that computes the same.
SAME_AS = {
    "mistral": "llama", "internlm2": "llama", "internlm3": "llama", "solar_open": "glm4_moe",
    "glm4_moe_lite": "deepseek_v3", "granitemoehybrid": "granite",
}  # fmt: skip
# These describe the file's form, not the computation.
OF_THE_FORM = ("family", "dtype", "num_draft_layers", "quantization", "ropes")


def translated(tmp_path: Path, case: str, **metadata: Any) -> ModelConfig:
    config = config_of(read_model((write_converted(tmp_path / "model.gguf", case, **metadata),)))
    folder = tmp_path / "translated"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return read_config(folder)


def original(tmp_path: Path, case: str, **changes: Any) -> ModelConfig:
    each = converted()[case]
    found = read_config(tiny_model(tmp_path / "original", each.family, **(each.overrides | changes)))
    return dataclasses.replace(found, mixers=with_projections_apart(found.mixers))


def rotations(rope: RopeConfig) -> list[Array]:
    """cos and sin of the first positions, for the shortest and the longest requests."""
    table = Rope(rope, False, rope.stretches if len(rope.stretches) > 1 else ())
    end = table.end_of(rope.stretches[-1])
    table.grow_to(end)
    return [part[first : first + 64] for first in (0, end - 64) for part in (table.cos, table.sin)]


def check_same(found: ModelConfig, expected: ModelConfig) -> None:
    for field in dataclasses.fields(ModelConfig):
        if field.name not in OF_THE_FORM:
            assert getattr(found, field.name) == getattr(expected, field.name), field.name
    assert found.family.name == SAME_AS.get(expected.family.name, expected.family.name) or (
        found.family == expected.family
    )
    pairs = [(found.ropes.of(layer), expected.ropes.of(layer)) for layer in range(expected.num_layers)]
    for layer, (mine, theirs) in enumerate(pairs):
        assert (mine is None) == (theirs is None), layer
        if mine is not None and theirs is not None and (mine, theirs) not in pairs[:layer]:
            assert (mine.rotary_dim, mine.max_position) == (theirs.rotary_dim, theirs.max_position)
            assert (mine.query_scale, mine.axes) == (theirs.query_scale, theirs.axes)
            for one, other in zip(rotations(mine), rotations(theirs), strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=2e-4)


@for_each("case", sorted(converted()))
def test_metadata_describes_the_checkpoint_that_was_converted(tmp_path, monkeypatch, case):
    monkeypatch.setattr("builders.tiny_model.checkpoint_shapes", lambda config: {})  # its config alone is read
    monkeypatch.setattr("builders.tiny_model._KEPT", {})
    check_same(translated(tmp_path, case), original(tmp_path, case))


def test_every_architecture_was_converted_or_is_another_name_of_one_that_was():
    known = {each.metadata["general.architecture"] for each in converted().values()}
    others = {"qwen2vl": "qwen2", "qwen3vl": "qwen3", "qwen3vlmoe": "qwen3moe"}
    # tests/worker/test_pooling.py has the encoders.
    assert known | others.keys() | {"bert", "modern-bert", "gemma-embedding"} == ARCHITECTURES.keys()
    assert all(name in known for name in others.values())


@for_each("case, metadata, expected", [
    ("llama", {"llama.rope.freq_base": 500000.0}, {"rope_theta": 500000.0}),
    ("llama", {"llama.rope.scale_linear": 4.0}, {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("llama", {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.type": "none"}, {"rope_scaling": None}),
    ("llama", {"llama.attention.layer_norm_rms_epsilon": 1e-6}, {"rms_norm_eps": 1e-6}),
    ("llama", {"llama.attention.head_count_kv": None}, {"num_key_value_heads": 6}),
    ("llama", {"tokenizer.ggml.eos_token_id": 7}, {"eos_token_id": 7}),
    ("gemma3_text", {"gemma3.attention.sliding_window": None}, {"layer_types": ["full_attention"] * 7}),
    ("gemma3_text", {"gemma3.attention.sliding_window_pattern": 1}, {"layer_types": ["full_attention"] * 7}),
    ("phi3", {"phi3.attention.sliding_window": 0}, {"sliding_window": None}),
    ("deepseek_v3", {"deepseek2.expert_group_count": None}, {"n_group": 1}),
    ("gemma2", {"gemma2.attn_logit_softcapping": None}, {"attn_logit_softcapping": 50.0}),
    ("glm4_moe", {"glm4moe.block_count": 3, "glm4moe.nextn_predict_layers": 1}, {"num_hidden_layers": 2}),
])  # fmt: skip
def test_keys_that_files_have_or_leave_out(tmp_path, case, metadata, expected):
    config = config_of(read_model((write_converted(tmp_path / "model.gguf", case, **metadata),)))
    assert {key: config[key] for key in expected} == expected


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no architecture": ({"general.architecture": None}, "general.architecture=None"),
    "one of a number": ({"general.architecture": 7}, "general.architecture=7"),
    "one that isn't here": ({"general.architecture": "mamba"}, "'mamba', which doesn't run.* These do: llama, "),
    "an encoder": ({"general.type": "mmproj"}, "mmproj.*Give the model's own file"),
    "an old encoder": ({"general.architecture": "clip"}, "mmproj.*Give the model's own file"),
    "an adapter": ({"general.type": "adapter"}, "LoRA adapter"),
    "no layers": ({"llama.block_count": 0}, "0 layers"),
    "a billion layers": ({"llama.block_count": 10**9}, "1,000,000,000 layers"),
    "layers in a text": ({"llama.block_count": "two"}, "llama.block_count='two' where a count belongs"),
    "no width": ({"llama.embedding_length": None}, "no llama.embedding_length"),
    "a width below 0": ({"llama.embedding_length": -4}, "embedding_length=-4"),
    "no heads": ({"llama.attention.head_count": 0}, "0 heads"),
    "heads for other layers": ({"llama.attention.head_count": [6]}, "1 values of .*head_count, and 2 layers"),
    "a base that is none": ({"llama.rope.freq_base": float("nan")}, "freq_base=nan"),
    "a base in a text": ({"llama.rope.freq_base": "10000"}, "where a number belongs"),
    "unknown stretching": ({"llama.rope.scaling.type": "foo"}, "rope.scaling.type='foo'"),
    "half of each head rotates": ({"llama.rope.dimension_count": 8}, "rotates 8 of a head's 16"),
    "an end in a text": ({"tokenizer.ggml.eos_token_id": "2"}, "eos_token_id='2' where the id of a token belongs"),
    "wider values": ({"llama.attention.value_length": 32}, "keys of 16 numbers and values of 32"),
}


@for_each("case", WRONG)
def test_metadata_that_can_not_be_a_models_is_refused(tmp_path, case):
    metadata, says = WRONG[case]
    file = write_converted(tmp_path / "model.gguf", "llama", **metadata)
    with pytest.raises(MalformedError) as raised:
        config_of(read_model((file,)))
    assert re.fullmatch(rf"model.gguf can't be used: it .*{says}.*\.", str(raised.value.said_of(file)))


def test_a_file_with_an_encoder_in_it_or_without_an_embedding_is_refused(tmp_path):
    file = write_converted(tmp_path / "model.gguf", "llama")
    header = read_header(file)
    tensors = {each.name: zeros(each.shape) for each in header.tensors} | {"v.blk.0.attn_k.weight": zeros((4, 4))}
    write_gguf(file, header.metadata, tensors)
    with pytest.raises(MalformedError, match="contains the vision encoder") as raised:
        config_of(read_model((file,)))
    assert "OWNER/NAME:Q4_K_M" in raised.value.advice
    with pytest.raises(MalformedError, match="no matrix token_embd.weight"):
        config_of(read_model((write_gguf(file, header.metadata),)))


OWN = {"eos_token_id": [2], "do_sample": True, "temperature": 0.6, "top_p": 0.95}


def stored(tmp_path: Path, content: bytes | dict) -> Path:
    path = tmp_path / "sha256-0a1b"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


@for_each("parameters, changed", [
    ({}, {}),
    ({"num_ctx": 4096, "mirostat": 1, "temperature": None, "stop": None}, {}),
    ({"temperature": 1, "top_k": 20}, {"temperature": 1, "top_k": 20}),
    ({"top_k": 40.0, "repeat_penalty": 1.1}, {"top_k": 40, "repetition_penalty": 1.1}),
    ({"min_p": 0.05, "presence_penalty": 1.5}, {"min_p": 0.05, "presence_penalty": 1.5}),
    ({"stop": ["User:", ""]}, {"stop_strings": ["User:"]}), ({"stop": "###"}, {"stop_strings": ["###"]}),
])  # fmt: skip
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


@for_each("content, reason", [
    (b"{", "can't be used: "), (b"[1]", "can't be used: "), (b"\xff", "can't be used: "),
    ({"temperature": "hot"}, "temperature is 'hot', which is no number"),
    ({"top_p": True}, "top_p is True, which is no number"), ({"top_k": 20.5}, "top_k"), ({"top_p": 2}, "top_p"),
    ({"repeat_penalty": 0}, "repetition_penalty"),
    ({"stop": [1]}, r"stop is \[1\], and must be a text or a list of them"),
    ({"stop": {"a": 1}}, "must be a text or a list of them"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_in_a_sentence_that_says_what_to_do(tmp_path, content, reason):
    advice = r"\. `ollama pull` the model again, or give the GGUF file itself\.$"
    with pytest.raises(ConfigError, match=f"{reason}.*{advice}"):
        with_stored_parameters(OWN, stored(tmp_path, content), None)


def test_a_model_of_ollamas_store_begins_with_its_parameters(tmp_path, own_cache, monkeypatch):
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
