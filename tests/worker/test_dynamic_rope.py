"""Dynamic rope: a request is rotated as transformers rotates it while it is within the trained context, and beyond that
for the length that it has grown into, whatever the length that the tree could serve and whoever shares a prefix.

The reference for a length is the same model with the base that transformers' formula gives for it.
"""

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock import LLM, SamplingParams
from penstock.worker.models.load import load_model

TRAINED, FACTOR, HEAD_DIM = 48, 5.0, 32
STRETCHES = (48, 96, 192, 240)
DYNAMIC = {"rope_type": "dynamic", "factor": FACTOR}
OPTIONS = {"max_position_embeddings": TRAINED, "head_dim": HEAD_DIM, "initializer_range": 0.1}
SHAPE = {"max_model_len": 240, "num_blocks": 120}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("dynamic"), "qwen3", rope=DYNAMIC, **OPTIONS)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The likeliest next token behind every token of a text."""
    from transformers import AutoModelForCausalLM

    def of_length(length: int) -> torch.nn.Module:
        base = 1e6 * (FACTOR * length / TRAINED - (FACTOR - 1)) ** (HEAD_DIM / (HEAD_DIM - 2))
        made = tiny_model(tmp_path_factory.mktemp("fixed"), "qwen3", rope={"rope_theta": base}, **OPTIONS)
        return AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32).eval()

    models = {length: of_length(length) for length in STRETCHES}

    def following(text: list[int]) -> list[int]:
        with torch.inference_mode():
            found = {length: model(torch.tensor([text])).logits[0].argmax(-1) for length, model in models.items()}
        lengths = (min(length for length in STRETCHES if length >= known) for known in range(1, len(text) + 1))
        return [int(found[length][place]) for place, length in enumerate(lengths)]

    return following


def text(length: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def check(reference, given: list[int], answered: list[int]) -> None:
    whole = given + answered
    assert reference(whole)[len(given) - 1 : -1] == answered, f"a prompt of {len(given)}"


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_every_token_is_that_of_the_length_which_holds_the_request(folder, reference, backend):
    engine = TinyEngine(slotted_runner(load_on(backend, folder), **SHAPE), max_num_batched_tokens=40)
    prompts = [text(length, length) for length in (1, 7, 40, 47, 48, 49, 95, 100, 190, 200)]
    asked = [prompt(number, each, max_tokens=min(110, 240 - len(each))) for number, each in enumerate(prompts)]
    for given, answer in zip(prompts, engine.run(*asked), strict=True):
        check(reference, given, answer.tokens)


def test_blocks_of_one_length_are_not_found_by_requests_of_another(folder, reference):
    engine = TinyEngine(slotted_runner(load_model(folder), **SHAPE))
    common = text(64)
    for number, length in enumerate((33, 64, 33, 64)):
        (answer,) = engine.run(prompt(number, common[:length], max_tokens=10))
        check(reference, common[:length], answer.tokens)
    # The second of each length has found the blocks of the first, and nobody those of the other length.
    found = [new.num_computed for plan in engine.plans for new in plan.new]
    assert found == [0, 0, 32, 48]


def test_samples_of_one_request_outgrow_the_trained_context_each(folder):
    engine = TinyEngine(slotted_runner(load_model(folder), **SHAPE))
    given = text(40)
    many = engine.run(prompt(1, given, seed=4, n=3, temperature=1.0, max_tokens=30))
    alone = TinyEngine(slotted_runner(load_model(folder), **SHAPE), shares_prefixes=False)
    again = alone.run(prompt(1, given, seed=4, n=3, temperature=1.0, max_tokens=30))
    assert [each.tokens for each in many] == [each.tokens for each in again]
    assert len({tuple(each.tokens) for each in many}) == 3


def test_a_tree_at_its_default_length_answers_short_prompts_as_transformers_does(folder, reference):
    from transformers import AutoModelForCausalLM

    prompts = [text(length, length) for length in (3, 12, 25)]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with LLM(folder, quiet=True) as llm:
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
        for given, output in zip(prompts, llm.generate(prompts, params), strict=True):
            with torch.inference_mode():
                whole = model.generate(
                    torch.tensor([given]), max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=3
                )
            assert output.outputs.token_ids == whole[0, len(given) :].tolist()
        # Nor does it matter how much they might have said.
        params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
        for given, output in zip(prompts, llm.generate(prompts, params), strict=True):
            assert len(given) + len(output.outputs.token_ids) == 240
            check(reference, given, output.outputs.token_ids)
