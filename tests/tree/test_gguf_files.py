"""The bundled model in one GGUF file: found, translated, read in place, and answering as from its own folder."""

from pathlib import Path
from typing import Any

import pytest
from builders.bundled_model import FOLDER

from penstock import LLM, SamplingParams
from penstock.protocol.conversion import Conversion
from penstock.worker.convert.convert import convert

QUESTIONS = ["What is 20 + 22?", "What is the capital of France?", "Say the word tree twice."]


def answers(model: str | Path, **options: Any) -> list[list[int]]:
    """Token ids of greedy answers."""
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    with LLM(model, max_model_len=512, kv_cache_memory="64MiB", quiet=True, **options) as llm:
        found = llm.chat(chats, SamplingParams(temperature=0, max_tokens=24))
    return [list(each.outputs.token_ids) for each in found]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_pocket_answers_from_a_gguf_file_what_it_answers_from_its_folder(kept: Path):
    file = kept / "pocket.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), None, is_gguf=True), lambda said: None)
    assert answers(file, dtype="float32") == answers("pocket", dtype="float32")


def test_pocket_in_blocks_answers_what_it_answers_in_floats(kept: Path):
    file = kept / "pocket-Q8_0.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), "q8_0", is_gguf=True), lambda said: None)
    alone = answers(file)
    assert all(alone)
    assert alone[0] == answers("pocket")[0]


def test_two_ranks_whose_heads_end_within_blocks_answer_as_one(kept: Path):
    file = kept / "pocket-Q4_K.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), "q4_k", is_gguf=True), lambda said: None)
    assert answers(file, tensor_parallel_size=2)[0] == answers(file)[0]
