"""Longrope: a request is rotated by the short factors while it is within the original context, and by the long ones
beyond it, all of its tokens alike, as transformers rotates it; whoever shares a prefix or a step with it.
"""

import pytest
import torch
from builders.backends import load_on
from builders.runner_harness import TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.layers.rope import Rope
from penstock.worker.models.config import read_config
from penstock.worker.models.load import load_model

ORIGINAL, LONGEST = 48, 160
FACTORS = {
    "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.4, 3.0, 4.0],
    "long_factor": [1.2, 1.5, 2.0, 4.0, 8.0, 11.0, 16.0, 20.0],
}
LONGROPE = {"rope_type": "longrope", **FACTORS}
OPTIONS = {"max_position_embeddings": LONGEST, "original_max_position_embeddings": ORIGINAL}
SHAPE = {"max_model_len": LONGEST, "num_blocks": 100}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("longrope"), "phi3", rope=LONGROPE, **OPTIONS)


@pytest.fixture(scope="module")
def continued(folder):
    """What transformers answers, each token by a pass over all before it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def greedy(given: list[int], count: int) -> list[int]:
        text = list(given)
        with torch.inference_mode():
            for _ in range(count):
                text.append(int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
        return text[len(given) :]

    return greedy


def text(length: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_a_request_that_grows_beyond_the_original_context_is_rotated_by_the_long_factors(folder, continued, backend):
    engine = TinyEngine(slotted_runner(load_on(backend, folder), **SHAPE), max_num_batched_tokens=40)
    prompts = [text(length, length) for length in (1, 30, 47, 48, 49, 120)]
    asked = [prompt(number, each, max_tokens=24) for number, each in enumerate(prompts)]
    for given, answer in zip(prompts, engine.run(*asked), strict=True):
        assert answer.tokens == continued(given, 24), f"a prompt of {len(given)}"


def test_layers_with_a_window_switch_their_factors_with_the_request(tmp_path):
    """Its prompt's first blocks are given back, and are computed anew when it grows beyond the original context."""
    from transformers import AutoModelForCausalLM

    folder = tiny_model(tmp_path, "phi3", rope=LONGROPE, sliding_window=20, **OPTIONS)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engine = TinyEngine(slotted_runner(load_model(folder), **SHAPE), max_num_batched_tokens=40)
    prompts = [text(length, length) for length in (30, 47, 100)]
    asked = [prompt(number, each, max_tokens=24) for number, each in enumerate(prompts)]
    for given, answer in zip(prompts, engine.run(*asked), strict=True):
        whole = given + answer.tokens
        with torch.inference_mode():  # with the long factors; short ones are those of requests that end there
            long = reference(torch.tensor([whole])).logits[0].argmax(-1).tolist()
            short = reference(torch.tensor([whole[:ORIGINAL]])).logits[0].argmax(-1).tolist()
        following = short + long[len(short) :]
        assert following[len(given) - 1 : -1] == answer.tokens, f"a prompt of {len(given)}"


def test_blocks_of_short_requests_are_not_found_by_long_ones(folder, continued):
    engine = TinyEngine(slotted_runner(load_model(folder), **SHAPE))
    common = text(80)
    for number, length in enumerate((40, 80, 40, 80)):
        (answer,) = engine.run(prompt(number, common[:length], max_tokens=5))
        assert answer.tokens == continued(common[:length], 5)
    found = [new.num_computed for plan in engine.plans for new in plan.new]
    assert found == [0, 0, 32, 64]


# The attention factor as given, from a factor as given, and from the contexts.
SPELLED = {
    "contexts": ({}, (1 + torch.log(torch.tensor(LONGEST / ORIGINAL)) / torch.log(torch.tensor(48.0))).sqrt().item()),
    "factor": ({"factor": 1.0}, 1.0),
    "attention factor": ({"attention_factor": 1.19, "factor": 32.0}, 1.19),
    "of early checkpoints": ({"rope_type": "su", "type": "su", "attention_factor": 1.5}, 1.5),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_cosines_are_multiplied_by_the_attention_factor(tmp_path, spelling):
    figures, expected = SPELLED[spelling]
    config = read_config(tiny_model(tmp_path, "phi3", rope={**LONGROPE, **figures}, **OPTIONS))
    assert config.ropes.stretches == (ORIGINAL, LONGEST)
    rope = Rope(config.ropes.ropes[0], False, torch.device("cpu"))
    found = rope.at(torch.tensor([0]), 1, torch.float32)
    assert found.cos.flatten().tolist() == pytest.approx([expected] * 16)


def test_a_context_within_the_original_one_needs_the_short_factors_alone(tmp_path):
    config = read_config(
        tiny_model(tmp_path, "phi3", rope=LONGROPE, max_position_embeddings=48, original_max_position_embeddings=48)
    )
    assert (config.ropes.stretches, config.max_position) == ((), 48)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"short_factor": [1.0] * 7}, "short_factor must be a list of 8 numbers, .* and is a list of 7"),
        ({"long_factor": None}, "long_factor must be a list of 8 numbers"),
        ({"long_factor": [1.0] * 7 + [0]}, "long_factor must be a number above 0, and is 0"),
        ({"rope_type": "linear", "factor": 2.0}, "'linear' is not supported; supported are default, longrope"),
    ],
)
def test_figures_that_mean_nothing_are_refused(tmp_path, figures, said):
    with pytest.raises(ConfigError, match=said):
        read_config(tiny_model(tmp_path, "phi3", rope={**LONGROPE, **figures}, **OPTIONS))
