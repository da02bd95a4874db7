"""A model with nothing but a `tokenizer.model`: its prompts have SentencePiece's ids, and its answers one text."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sentencepiece
from builders.sentencepiece_models import AS_LLAMA, trained
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams

MODEL = trained(**AS_LLAMA, vocab_size=512, user_defined_symbols=["<uds>"])
SETTINGS = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}


@pytest.fixture(scope="module")
def llm(tmp_path_factory) -> Iterator[LLM]:
    reference = sentencepiece.SentencePieceProcessor(model_proto=MODEL)
    folder: Path = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model(folder, "llama", vocab_size=reference.vocab_size())
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(MODEL)
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    with LLM(folder, load_format="stand-in", max_model_len=256, num_gpu_blocks_override=512, quiet=True) as llm:
        yield llm


def test_prompts_have_the_ids_of_sentencepiece(llm):
    reference = sentencepiece.SentencePieceProcessor(model_proto=MODEL)
    prompts = ["The  answer", "<uds>fox", "\n    return a + b", "你好 🙂", "  ", "fox <uds> "]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=1), use_tqdm=False)
    for prompt, output in zip(prompts, outputs, strict=True):
        assert list(output.prompt_token_ids) == [1, *reference.encode(prompt)], prompt


def test_broken_bytes_are_the_same_text_in_a_batch_in_a_stream_and_decoded(llm):
    """Sampled from all tokens alike: about every second one is a byte, and hardly any make a character."""
    prompt = {"prompt_token_ids": [1]}
    params = [SamplingParams(temperature=9.0, max_tokens=24, ignore_eos=True, seed=seed) for seed in range(20)]
    answers = [output.outputs for output in llm.generate([prompt] * 20, params, use_tqdm=False)]
    assert sum("\ufffd" in answer.text for answer in answers) > 10
    for answer, one in zip(answers, params, strict=True):
        assert answer.text == llm.get_tokenizer().decode(answer.token_ids)
        deltas = [delta.outputs for delta in llm.stream(prompt, one)]
        assert [token for delta in deltas for token in delta.token_ids] == list(answer.token_ids)
        assert "".join(delta.text for delta in deltas) == answer.text
