"""A trained mixture through a real tree: alone and in a crowd, split over ranks, and as quantized checkpoints."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from builders.float8_model import FLOAT8_FORMS, Float8Form
from builders.quantized_model import Form, quantization_config, quantized_copy
from builders.trained_mixture import FOLDER, LONGEST, questions, share_right

from penstock import LLM, SamplingParams

OPTIONS = {"max_model_len": 256, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
ASKED = questions(per_kind=16)
GREEDY = SamplingParams(temperature=0, max_tokens=LONGEST, logprobs=1)
FORMATS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "int8": {"quantization": "int8"},
    "int4": {"quantization": "int4"},
}
WIDTH, WHOLE = {"tensor_parallel_size": 2}, {"tensor_parallel_size": 2, "enable_expert_parallel": True}
FLOAT8 = {form.name: form for form in FLOAT8_FORMS}
FORMS: dict[str, Form | Float8Form] = {
    "gptq": Form("gptq"),
    "awq": Form("awq", is_symmetric=False),
    "compressed-tensors": Form("pack-quantized"),
    "float8": FLOAT8["deepseek"],
}


def outputs(llm: LLM, asked: list[Any]) -> list[Any]:
    prompts = [question.prompt for question in asked]
    return [output.outputs for output in llm.generate(prompts, GREEDY, use_tqdm=False)]


def answers(folder: Path, **options: Any) -> list[list[int]]:
    with LLM(folder, **OPTIONS, **options) as llm:
        return [list(output.token_ids) for output in outputs(llm, ASKED)]


@cache
def in_a_crowd_and_alone(format: str) -> tuple[list[Any], list[Any]]:
    """All questions at once; every fourth by itself."""
    with LLM(FOLDER, **OPTIONS, **FORMATS[format]) as llm:
        return outputs(llm, ASKED), [outputs(llm, [question])[0] for question in ASKED[::4]]


@pytest.mark.parametrize(
    "format", ["float32", *(pytest.param(each, marks=pytest.mark.long) for each in ("int8", "int4"))]
)
def test_a_crowd_changes_no_bit_of_an_answer(format):
    crowd, alone = in_a_crowd_and_alone(format)
    assert share_right(ASKED, [list(output.token_ids) for output in crowd]) > 0.8
    for one, among_others in zip(alone, crowd[::4], strict=True):
        assert list(one.token_ids) == list(among_others.token_ids)
        assert one.logprobs == among_others.logprobs


def equal_share(some: list[list[int]], others: list[list[int]]) -> float:
    return sum(map(list.__eq__, some, others)) / len(some)


@pytest.mark.parametrize(
    ("format", "shared"),
    [
        ("float32", WHOLE),
        # In two processes for all of them, tests/worker/test_models_split.py has mixtures in both ways.
        *(
            pytest.param(format, shared, marks=pytest.mark.long)
            for format in FORMATS
            for shared in (WIDTH, WHOLE)
            if (format, shared) != ("float32", WHOLE)
        ),
    ],
)
def test_two_ranks_answer_as_one(format, shared):
    one = [list(output.token_ids) for output in in_a_crowd_and_alone(format)[0]]
    both = answers(FOLDER, **shared, **FORMATS[format])
    # In integers each rank rounds its own share of the activations: what hangs on very little may come out otherwise.
    assert both == one if format == "float32" else equal_share(both, one) > 0.9


@pytest.mark.long
@pytest.mark.parametrize("name", FORMS)
def test_a_quantized_checkpoint_answers_right_on_one_rank_and_alike_on_two(tmp_path, name):
    form = FORMS[name]
    config = form.config if isinstance(form, Float8Form) else quantization_config(form)
    shutil.copytree(FOLDER, tmp_path / "twin")
    folder, _ = quantized_copy(
        tmp_path / "twin", tmp_path / "model", lambda module: form if ".experts." in module else None, config
    )
    one = answers(folder)
    assert share_right(ASKED, one) > 0.8
    for split in (WIDTH, WHOLE):
        assert equal_share(answers(folder, **split), one) > 0.9
