"""A whole tree whose worker computes with the GPU's kernels in Triton's interpreter; all processes are real.

Slow: the quick tests have such a worker in their own process (tests/worker/test_triton_worker.py). Captured steps are
called again instead of replayed, with their spare rows.
"""

from pathlib import Path

import pytest
from builders.answering_folders import FOLDERS, questions
from builders.bundled_model import FOLDER

from penstock import LLM, SamplingParams
from penstock.protocol.conversion import Conversion
from penstock.worker.convert.convert import convert

SMALL = {"dtype": "float32", "num_gpu_blocks_override": 16, "max_num_seqs": 4, "quiet": True}
NO_THOUGHT = {"enable_thinking": False}


def conversations(*questions: str) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": question}] for question in questions]


def answers(llm: LLM, questions: tuple[str, ...], max_tokens: int) -> list[list[int]]:
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    found = llm.chat(conversations(*questions), params, chat_template_kwargs=NO_THOUGHT)
    return [list(output.outputs[0].token_ids) for output in found]


@pytest.fixture
def interpreted(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.mark.long
def test_a_small_model_gives_the_processors_greedy_answer(request, model_folder):
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    with LLM(model_folder, **SMALL) as llm:
        expected = llm.generate([[1, 2, 3, 4]], params)[0].outputs.token_ids
    request.getfixturevalue("interpreted")
    with LLM(model_folder, **SMALL) as llm:
        assert llm.generate([[1, 2, 3, 4]], params)[0].outputs.token_ids == expected
        assert llm._session.transport.plan.kernels == "triton, interpreted"


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{}, {"enforce_eager": True}, {"deterministic": True}, {"swap_space": 0.01}], ids=str
)
def test_many_rows_and_long_answers_are_the_processors_too(request, options):
    questions = ("Hello!", "What is 17 + 25?", "Sort these numbers: 5, 3, 99, 12", "What is the capital of France?")
    with LLM("pocket", **SMALL) as llm:
        expected = answers(llm, questions, 12)
    request.getfixturevalue("interpreted")
    with LLM("pocket", **SMALL, **options) as llm:
        assert answers(llm, questions, 12) == expected


@pytest.mark.long
@pytest.mark.parametrize("family", FOLDERS)
def test_questions_about_pictures_get_the_processors_answers(request, tmp_path: Path, family: str):
    write, _ = FOLDERS[family]
    folder, prompts = write(tmp_path / "model"), questions(family)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)

    def tokens() -> list[list[int]]:
        with LLM(folder, max_model_len=96, max_num_batched_tokens=40, **SMALL) as llm:
            outputs = llm.generate(prompts, params, use_tqdm=False)
            assert [output.error_msg for output in outputs] == [None] * len(prompts)
            assert llm.stats().encoded_media == 2
        return [list(output.outputs[0].token_ids) for output in outputs]

    expected = tokens()
    request.getfixturevalue("interpreted")
    assert tokens() == expected


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"deterministic": True}], ids=str)
def test_a_gguf_file_s_blocks_give_the_answers_of_the_numbers_that_they_stand_for(
    request, tmp_path, monkeypatch, options
):
    """Which torch computes with on the processor, where the native kernels make 8-bit integers of rows."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_CPU_VARIANT", "none")
    file = tmp_path / "pocket-Q4_K.gguf"
    convert(Conversion(str(FOLDER), str(FOLDER), str(file), "q4_k", is_gguf=True), lambda said: None)
    asked = ("Hello!", "What is the capital of France?")
    with LLM(file, **SMALL) as llm:
        expected = answers(llm, asked, 8)
    request.getfixturevalue("interpreted")
    with LLM(file, **SMALL, **options) as llm:
        assert answers(llm, asked, 8) == expected
