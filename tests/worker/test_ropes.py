"""Layers of one model rotate by several ropes, or not at all; and ropes stretch with a request, as transformers rotates
it, whoever shares a prefix or a step with it.

A dynamic rope is the trained one within the trained context, and beyond it that of the length which the request has
grown into, whatever the length that the tree could serve; the reference for a length is the same model with the base
that transformers' formula gives for it. Longrope has short factors within the original context and long ones beyond
it, for all tokens of a request alike.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
import torch
from builders.backends import load_on
from builders.cases import for_each
from builders.runner_harness import TinyEngine, engine_of, prompt
from builders.tiny_model import tiny_model

from penstock.protocol.errors import ConfigError
from penstock.worker.description.config import read_config
from penstock.worker.description.families.dense import LLAMA
from penstock.worker.description.families.table import FAMILIES
from penstock.worker.description.layer_ropes import LayerRopes
from penstock.worker.description.parts.rope import RopeConfig
from penstock.worker.layers.rope import Rope, Ropes


def text(length: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def original(folder) -> torch.nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def likeliest(model: torch.nn.Module, tokens: list[int]) -> list[int]:
    """Behind every token of a text."""
    with torch.inference_mode():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].argmax(-1).tolist()


def engine_on(folder, backend: str = "native", longest: int = 160, **options) -> TinyEngine:
    return engine_of(load_on(backend, folder), max_model_len=longest, num_blocks=120, **options)


# --- dynamic ----------------------------------------------------------------------------------------------------------

TRAINED, FACTOR, HEAD_DIM = 48, 5.0, 32
STRETCHES = (48, 96, 192, 240)
DYNAMIC = {"max_position_embeddings": TRAINED, "head_dim": HEAD_DIM, "initializer_range": 0.1}


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    rope = {"rope_type": "dynamic", "factor": FACTOR}
    return tiny_model(tmp_path_factory.mktemp("dynamic"), "qwen3", rope=rope, **DYNAMIC)


@pytest.fixture(scope="module")
def check(dynamic, tmp_path_factory):
    """An answer to a prompt has the likeliest token of the length that holds the request so far, at every place."""

    def of_length(length: int) -> torch.nn.Module:
        base = 1e6 * (FACTOR * length / TRAINED - (FACTOR - 1)) ** (HEAD_DIM / (HEAD_DIM - 2))
        return original(tiny_model(tmp_path_factory.mktemp("fixed"), "qwen3", rope={"rope_theta": base}, **DYNAMIC))

    models = {TRAINED: original(dynamic)} | {length: of_length(length) for length in STRETCHES[1:]}

    def checked(given: list[int], answered: list[int]) -> None:
        whole = given + answered
        found = {length: likeliest(model, whole[: min(length, len(whole))]) for length, model in models.items()}
        lengths = (min(length for length in STRETCHES if length >= known) for known in range(1, len(whole) + 1))
        following = [found[length][place] for place, length in enumerate(lengths)]
        assert following[len(given) - 1 : -1] == answered, f"a prompt of {len(given)}"

    return checked


def answers(engine: TinyEngine, lengths: Iterable[int], most: int) -> Iterator[tuple[list[int], list[int]]]:
    """Prompts of these lengths and what is answered to each, all computed together."""
    prompts = [text(length, length) for length in lengths]
    room = engine.runner.table.max_model_len
    asked = [prompt(number, each, max_tokens=min(most, room - len(each))) for number, each in enumerate(prompts)]
    return zip(prompts, (answer.tokens for answer in engine.run(*asked)), strict=True)


# On torch, which takes long for a token, a request within each length and one across each border.
@for_each(
    "backend, most, lengths",
    [("native", 110, (1, 7, 40, 47, 48, 49, 95, 100, 190, 200)), ("fast", 8, (40, 47, 95, 190))],
)
def test_every_token_is_that_of_the_length_which_holds_the_request(dynamic, check, backend, most, lengths):
    assert read_config(dynamic).max_position == STRETCHES[-1]
    engine = engine_on(dynamic, backend, STRETCHES[-1], max_num_batched_tokens=40)
    for given, answered in answers(engine, lengths, most):
        check(given, answered)


def test_blocks_of_one_length_are_not_found_by_requests_of_another(dynamic, check):
    engine, common = engine_on(dynamic, longest=240), text(64)
    for number, length in enumerate((33, 64, 33, 64)):
        (answer,) = engine.run(prompt(number, common[:length], max_tokens=10))
        check(common[:length], answer.tokens)
    # The second of each length has found the blocks of the first, and nobody those of the other length.
    assert [new.num_computed for plan in engine.plans for new in plan.new] == [0, 0, 32, 48]


def test_samples_of_one_request_outgrow_the_trained_context_each(dynamic):
    many, again = (
        engine_on(dynamic, longest=240, shares_prefixes=shares).run(
            prompt(1, text(40), seed=4, n=3, temperature=1.0, max_tokens=30)
        )
        for shares in (True, False)
    )
    assert [each.tokens for each in many] == [each.tokens for each in again]
    assert len({tuple(each.tokens) for each in many}) == 3


# --- longrope ---------------------------------------------------------------------------------------------------------

ORIGINAL, LONGEST = 48, 160
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.7, 2.0, 2.4, 3.0, 4.0],
    "long_factor": [1.2, 1.5, 2.0, 4.0, 8.0, 11.0, 16.0, 20.0],
}
CONTEXTS = {"max_position_embeddings": LONGEST, "original_max_position_embeddings": ORIGINAL}


def check_longrope(reference: torch.nn.Module, given: list[int], answered: list[int]) -> None:
    """With the long factors; short ones are those of requests that end within the original context."""
    whole = given + answered
    short = likeliest(reference, whole[:ORIGINAL])
    following = short + likeliest(reference, whole)[len(short) :]
    assert following[len(given) - 1 : -1] == answered, f"a prompt of {len(given)}"


# With a window the first blocks of a prompt are given back, and computed anew when it outgrows the original context.
@for_each(
    "backend, window, most, lengths",
    [("native", None, 24, (1, 30, 47, 48, 49, 120)), ("native", 20, 24, (30, 47, 100)), ("fast", None, 4, (47, 120))],
)
def test_a_request_that_grows_beyond_the_original_context_is_rotated_by_the_long_factors(
    tmp_path, backend, window, most, lengths
):
    folder = tiny_model(tmp_path, "phi3", rope=LONGROPE, sliding_window=window, **CONTEXTS)
    engine, reference = engine_on(folder, backend, max_num_batched_tokens=40), original(folder)
    for given, answered in answers(engine, lengths, most):
        check_longrope(reference, given, answered)


def test_blocks_of_short_requests_are_not_found_by_long_ones(tmp_path):
    longrope = tiny_model(tmp_path, "phi3", rope=LONGROPE, **CONTEXTS)
    engine, reference, common = engine_on(longrope), original(longrope), text(80)
    for number, length in enumerate((40, 80, 40, 80)):
        (answer,) = engine.run(prompt(number, common[:length], max_tokens=5))
        check_longrope(reference, common[:length], answer.tokens)
    assert [new.num_computed for plan in engine.plans for new in plan.new] == [0, 0, 32, 64]


# The attention factor as given, from a factor as given, and from the contexts.
SPELLED = {
    "contexts": ({}, (1 + torch.log(torch.tensor(LONGEST / ORIGINAL)) / torch.log(torch.tensor(48.0))).sqrt().item()),
    "factor": ({"factor": 1.0}, 1.0),
    "attention factor": ({"attention_factor": 1.19, "factor": 32.0}, 1.19),
    "of early checkpoints": ({"rope_type": "su", "type": "su", "attention_factor": 1.5}, 1.5),
}


@for_each("figures, expected", SPELLED.values(), ids=SPELLED)
def test_cosines_are_multiplied_by_the_attention_factor(tmp_path, figures, expected):
    config = read_config(tiny_model(tmp_path, "phi3", rope={**LONGROPE, **figures}, **CONTEXTS))
    assert config.ropes.stretches == (ORIGINAL, LONGEST)
    rope = Rope(config.ropes.ropes[0], False)
    rope.grow_to(1)
    assert rope.cos[0].tolist() == pytest.approx([expected] * 16)
    # A context within the original one needs the short factors alone.
    within = read_config(tiny_model(tmp_path, "phi3", rope=LONGROPE, **dict.fromkeys(CONTEXTS, ORIGINAL)))
    assert (within.ropes.stretches, within.max_position) == ((), ORIGINAL)


@for_each("figures, said", [
    ({"short_factor": [1.0] * 7}, "short_factor must be a list of 8 numbers, .* and is a list of 7"),
    ({"long_factor": None}, "long_factor must be a list of 8 numbers"),
    ({"long_factor": [1.0] * 7 + [0]}, "long_factor must be a number above 0, and is 0"),
    ({"rope_type": "linear", "factor": 2.0}, "'linear' is not supported; supported are default, longrope"),
])  # fmt: skip
def test_figures_that_mean_nothing_are_refused(tmp_path, figures, said):
    with pytest.raises(ConfigError, match=said):
        read_config(tiny_model(tmp_path, "phi3", rope={**LONGROPE, **figures}, **CONTEXTS))


# --- several ropes of one model ---------------------------------------------------------------------------------------


CPU = torch.device("cpu")
WINDOWS = (7, None, 7)
TWO_ROPES = replace(
    LLAMA, windows=lambda config, num_layers: WINDOWS, ropes_by_kind=True, window_theta=("rope_local_base_freq", 500.0),
    has_whole_context=True,
)  # fmt: skip
LINEAR = {"rope_type": "linear", "factor": 8.0}


@pytest.fixture
def two_ropes(monkeypatch):
    monkeypatch.setitem(FAMILIES, "LlamaForCausalLM", TWO_ROPES)


def written(folder, **keys):
    """With these keys on rotary positions, and no others."""
    path = tiny_model(folder, "llama", num_hidden_layers=len(WINDOWS)) / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("rope_")}
    path.write_text(json.dumps(config | keys))
    return folder


SPELLINGS = {
    "transformers 4": {"rope_theta": 1e6, "rope_local_base_freq": 300.0, "rope_scaling": LINEAR},
    "transformers 5": {
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, **LINEAR},
            "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"},
        }
    },
    "the bases beside the figures": {
        "rope_theta": 1e6, "rope_local_base_freq": 300.0,
        "rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}},
    },
}  # fmt: skip


@for_each("spelling", SPELLINGS)
@pytest.mark.usefixtures("two_ropes")
def test_every_spelling_gives_each_layer_its_own_rope_and_an_option_is_that_of_layers_without_a_window(
    tmp_path, spelling
):
    folder = written(tmp_path, **SPELLINGS[spelling])
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
    for option, expected in ((None, ("linear", 1e6, 8.0, 1024)), (yarn, ("yarn", 1e6, 2.0, 256))):
        config = read_config(folder, rope_scaling=option)
        window, full = config.ropes.ropes
        assert config.ropes.by_layer == (0, 1, 0)
        assert (window.kind, window.theta, window.factor) == ("default", 300.0, 1.0)
        assert (full.kind, full.theta, full.factor) == expected[:3]
        assert (full.original_context if option else config.max_position) == expected[3]


@pytest.mark.usefixtures("two_ropes")
def test_layers_with_a_window_have_the_familys_base_where_none_is_given_and_one_rope_for_all_is_refused(tmp_path):
    config = read_config(written(tmp_path))
    assert [config.ropes.of(layer).theta for layer in range(3)] == [500.0, 10_000.0, 500.0]
    with pytest.raises(ConfigError, match="should have an object for each of full_attention, sliding_attention"):
        read_config(written(tmp_path, rope_parameters=LINEAR))


def test_a_rope_beside_one_that_is_stretched_has_the_same_rows_with_its_own_angles():
    dynamic = RopeConfig("dynamic", 1e4, 16, 16, 3.0, trained_context=64, original_context=64, figures={})
    plain = RopeConfig("default", 500.0, 32, 32, 1.0, trained_context=64, original_context=64, figures={})
    ropes = Ropes(LayerRopes((dynamic, plain), (0, None, 1)), False)
    first, none, other = ropes.by_layer(ropes.tables)
    alone, whole = Rope(plain, False), Rope(dynamic, False)
    for each in (ropes, alone, whole):
        each.grow_to(64 + 128 + 192)
    assert none is None
    rows, positions = [0, 63, 64, 64 + 100, 64 + 128 + 150], [0, 63, 0, 100, 150]
    assert (other.cos[rows] == alone.cos[positions]).all() and (other.sin[rows] == alone.sin[positions]).all()
    assert (first.cos == whole.cos).all() and (first.sin == whole.sin).all()
