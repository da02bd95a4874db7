"""Beams on a real runner: forks and copied blocks hold what was computed into them, in several formats."""

from dataclasses import replace

import pytest
from builders.backends import load_on
from builders.runner_harness import Answer, TinyEngine, prompt, slotted_runner
from builders.tiny_model import tiny_model

from penstock.protocol.messages import Prompt
from penstock.protocol.parameters.beams import BeamSearchParams

MODELS = {
    "native": ("native", {}, None),
    "native, int8 keys and values": ("native", {}, "int8"),
    "native int4, uint4 keys and values": ("native", {"quantization": "int4"}, "uint4"),
    "torch": ("invariant", {}, None),
    "native, states": ("native", {"family": "qwen3_5_text"}, None),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    backend, loaded, kv_kind = MODELS[request.param]
    folder = tiny_model(tmp_path_factory.mktemp("model"), loaded.get("family", "qwen3"))
    model = load_on(backend, folder, **{key: value for key, value in loaded.items() if key != "family"})
    return replace(model, kv_default=kv_kind) if kv_kind else model


def searches() -> list[Prompt]:
    asked = []
    for number in range(4):
        params = BeamSearchParams(beam_width=2 + number, max_tokens=20, early_stopping="never")
        tokens = [(13 * number + 5 * place) % 300 + 3 for place in range(3 + 11 * number)]
        one = prompt(number, tokens, n=params.beam_width, max_tokens=20, eos_token_id=[2, 4])
        one.beams = params
        asked.append(one)
    return asked


def samples() -> list[Prompt]:
    return [prompt(10 + number, [7 + number] * 20, seed=number, temperature=1.0, max_tokens=25) for number in range(4)]


@pytest.fixture(scope="module")
def alone(model) -> list[Answer]:
    return [answer for asked in searches() for answer in TinyEngine(slotted_runner(model)).run(asked)]


def test_every_beam_is_another(alone):
    assert len({tuple(answer.tokens) for answer in alone}) == len(alone) == 2 + 3 + 4 + 5


@pytest.mark.parametrize(
    "shape", [{}, {"num_blocks": 14}, {"num_slots": 3}, {"num_blocks": 9, "num_slots": 5}], ids=str
)
def test_beside_samples_and_in_little_room_beams_are_as_alone(model, alone, shape):
    engine = TinyEngine(slotted_runner(model, **shape))
    assert engine.run(*searches(), *samples())[: len(alone)] == alone
    assert engine.scheduler.stats().free_blocks == engine.scheduler.stats().blocks
    if "num_blocks" in shape:
        assert engine.scheduler.stats().preemptions > 0


def test_a_search_whose_logits_are_broken_fails_alone(tmp_path):
    model = load_on("invariant", tiny_model(tmp_path, "llama", poison=306))
    right, broken = searches()[0], prompt(50, [9, 8, 306], n=3, max_tokens=20)
    broken.beams = BeamSearchParams(beam_width=3, max_tokens=20)
    expected = TinyEngine(slotted_runner(model)).run(right)
    answers = TinyEngine(slotted_runner(model)).run(right, broken)
    assert answers[:2] == expected
    assert all("not finite" in answer.error for answer in answers[2:])
