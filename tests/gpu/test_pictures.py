"""A card says of pictures what a CPU says: encoders, positions in three, pictures that see themselves, experts by kind.

In float32, on random models of a few layers.
"""

from pathlib import Path

import pytest
from builders.answering_folders import FOLDERS, questions
from builders.on_card import SMALL, generated

from penstock import LLM, SamplingParams


@pytest.mark.parametrize("family", FOLDERS)
def test_questions_about_pictures_get_the_cpus_answers(device: str, tmp_path: Path, family: str):
    write, _ = FOLDERS[family]
    folder = write(tmp_path / "model")
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    answers = []
    for where in (device, "cpu"):
        with LLM(folder, device=where, dtype="float32", **{**SMALL, "max_num_batched_tokens": 40}) as llm:
            answers.append([list(each.outputs.token_ids) for each in generated(llm, questions(family), params)])
    assert answers[0] == answers[1]
