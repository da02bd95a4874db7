"""Of many answers at temperature 1, in many shapes, those that ended by themselves all have theirs; nearly all end."""

from collections import Counter

import pytest
from builders.guided_cases import CASES, params
from builders.tiny_model import tiny_model
from large_tokenizer import END, SIZE, write_large_tokenizer

from penstock import LLM

SEEDS = 12


@pytest.fixture(scope="module")
def senseless(tmp_path_factory):
    """A model of random weights with a vocabulary of today's size."""
    folder = tmp_path_factory.mktemp("models") / "senseless"
    tiny_model(folder, "qwen3", vocab_size=SIZE, eos_token_id=END)
    write_large_tokenizer(folder)
    (folder / "generation_config.json").unlink()
    with LLM(folder, max_model_len=1024, kv_cache_memory="64MiB", quiet=True) as llm:
        yield llm


@pytest.fixture(scope="module")
def pocket():
    with LLM("pocket", max_model_len=1024, kv_cache_memory="64MiB", quiet=True) as llm:
        yield llm


@pytest.mark.long
@pytest.mark.parametrize("model", ["pocket", "senseless"])
def test_an_answer_that_ended_by_itself_has_its_shape(model, request):
    llm = request.getfixturevalue(model)
    asked = [(name, seed) for name in CASES for seed in range(SEEDS)]
    outputs = llm.generate(
        [f"Make up something: {name}." for name, _ in asked],
        [params(CASES[name], seed) for name, seed in asked],
        use_tqdm=False,
    )
    refused = {output.error_msg for output in outputs if output.error_code != 200}
    assert not refused
    ends = Counter(output.outputs.finish_reason for output in outputs)
    wrong = [
        f"{name}: {output.outputs.text!r}"
        for (name, _), output in zip(asked, outputs, strict=True)
        if output.outputs.finish_reason == "stop" and not CASES[name].is_valid(output.outputs.text)
    ]
    print(f"{model}: {len(asked)} answers in {len(CASES)} shapes, ends {dict(ends)}, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
    assert len(asked) >= 500 and ends["stop"] >= 0.95 * len(asked), ends
