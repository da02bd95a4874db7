"""Models with LoRA adapters: PEFT's own numbers, whatever computes them, and no influence on anyone else's."""

import json
import math
import os
from pathlib import Path

import numpy
import pytest
import torch
from builders.adapters import ALL, ATTENTION, MLP, adapter, merged
from builders.backends import BACKENDS, load_on
from builders.cases import for_each
from builders.compared_models import logits_of
from builders.hand_driven import HandDriven
from builders.runner_harness import Answer, engine_of, expecting
from builders.runner_harness import prompt as request
from builders.tiny_configs import FAMILIES
from builders.tiny_model import tiny_model
from safetensors.torch import load_file, save_file
from torch import Tensor

from penstock.protocol.adapter_messages import NO_ADAPTER
from penstock.protocol.errors import AdapterError
from penstock.protocol.layer_groups import GroupChanges
from penstock.protocol.messages import Fork, NewSlot, Prompt, StepPlan
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column
from penstock.worker.backends.torch.device import TensorDevice
from penstock.worker.start.model import Model
from penstock.worker.steps.slots import SlotTable

PROMPTS = [list(range(10, 47)), [5, 9, 200], [33] * 20 + [7], list(range(100, 190))]
# Of different ranks and modules, one scaled by the root of its rank, one with patterns.
KINDS = {
    "everything": dict(rank=8, modules=ALL),
    "attention": dict(rank=3, modules=ATTENTION, use_rslora=True, lora_alpha=5),
    "a part of a product": dict(rank=16, modules=("v_proj", "gate_proj"), lora_alpha=8),
    "patterns": dict(rank=4, modules=MLP, alpha_pattern={"up_proj|gate_proj": 1, r"layers\.1\.mlp\.down_proj": 20}),
}


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), "qwen3")


@pytest.fixture(scope="module")
def folders(tmp_path_factory, model_folder) -> list[Path]:
    """One for each of KINDS."""
    base = tmp_path_factory.mktemp("adapters")
    return [
        adapter(base / name, model_folder, seed=number, **given) for number, (name, given) in enumerate(KINDS.items())
    ]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, model_folder, folders) -> list[list[Tensor]]:
    """What PEFT's merged models say of each prompt: one row of lists for each adapter, and one for the model itself."""
    from transformers import AutoModelForCausalLM

    found = []
    for number, folder in enumerate([*folders, None]):
        target = model_folder
        if folder is not None:
            target = merged(model_folder, folder, tmp_path_factory.mktemp(f"merged{number}"))
        model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
        with torch.inference_mode():
            found.append([model(torch.tensor([prompt])).logits[0] for prompt in PROMPTS])
    return found


def with_adapters(backend: str, model_folder: Path, folders: list[Path], **options) -> Model:
    model = load_on(backend, model_folder, max_loras=len(folders), max_lora_rank=16, **options)
    for place, folder in enumerate(folders):
        model.adapters.load(place, folder)
    return model


@for_each("backend", BACKENDS)
def test_rows_of_one_step_each_get_what_peft_merges(model_folder, folders, alone, backend):
    for kind in range(len(KINDS)):  # they make a difference
        assert all((one - other).abs().max() > 0.1 for one, other in zip(alone[kind], alone[-1], strict=True))
    model = with_adapters(backend, model_folder, folders)
    driven = HandDriven(model)
    cases = [(kind, prompt) for prompt in range(len(PROMPTS)) for kind in (0, -1, 2, 1, 3)]
    rows = [driven.add(PROMPTS[prompt], kind) for kind, prompt in cases]
    found = driven.step([(row, len(driven.histories[row])) for row in rows], every_token=True)
    parts = found.split([len(PROMPTS[prompt]) for _, prompt in cases])
    for (kind, prompt), logits in zip(cases, parts, strict=True):
        torch.testing.assert_close(logits, alone[kind][prompt], rtol=1e-4, atol=1e-4)


# Everything that PEFT finds in layers that keep states, in attention and in dense MLPs.
PLACES = (
    *("in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "in_proj", "out_proj"),
    *("w1", "w2", "w3", *ALL),
)
QUICK = ("qwen3_next", "qwen3_5_text", "lfm2")
# Gemma 4's tiny model amplifies rounding ten times as much as others': rounding the merged weights to float32 and
# nothing else moves transformers' logits by 3.7e-5 (0.3e-5 to 0.5e-5 in qwen3 and gemma3), its pass in float32 moves
# them by 8.7e-5 (0.7e-5 to 1e-5), and ours by 6.7e-5 with the adapter and 1.7e-4 with merged weights.
LARGER_ROUNDING = {"gemma4_text": 1e-3}


@pytest.mark.parametrize(
    "family", [*QUICK, *(pytest.param(each, marks=pytest.mark.long) for each in FAMILIES if each not in QUICK)]
)
def test_every_family_has_the_places_that_peft_names(tmp_path, family):
    given = {"attention_bias": True, "mlp_bias": True} if family == "llama" else {}
    folder = tiny_model(tmp_path / "model", family, **given)
    kinds = {name.split(".")[-2] for name in load_file(folder / "model.safetensors")}
    modules = [each for each in PLACES if each in kinds] if family in QUICK else None
    own = adapter(tmp_path / "adapter", folder, rank=5, **({"modules": modules} if modules else {}))
    right = load_on("native", merged(folder, own, tmp_path / "merged"))
    model = with_adapters("native", folder, [own])
    found = logits_of(model, PROMPTS[0], 0)
    atol = LARGER_ROUNDING.get(family, 1e-4)
    torch.testing.assert_close(found, logits_of(right, PROMPTS[0]), rtol=1e-4, atol=atol)
    assert family not in QUICK or (found - logits_of(model, PROMPTS[0])).abs().max() > 1


@pytest.mark.parametrize("backend", ["native", "fast"])
def test_an_adapter_may_change_what_all_layers_have_of_the_tokens(tmp_path, backend):
    """Gemma's projection of the first embedding, which lies in no layer."""
    folder, name = tiny_model(tmp_path / "model", "gemma4_text"), "model.per_layer_model_projection"
    weights = load_file(folder / "model.safetensors")
    outputs, inputs = weights[f"{name}.weight"].shape
    down, up = (
        torch.sin(torch.arange(8.0 * count)).view(shape) / 8 for count, shape in ((inputs, (8, -1)), (outputs, (-1, 8)))
    )
    extra = {f"base_model.model.{name}.lora_{letter}.weight": part.numpy() for letter, part in (("A", down), ("B", up))}
    own = adapter(tmp_path / "adapter", folder, modules=(), extra=extra, target_modules=[name.partition(".")[2]])
    model = with_adapters(backend, folder, [own])
    weights[f"{name}.weight"] = weights[f"{name}.weight"].float() + 2 * up @ down  # lora_alpha is twice the rank
    save_file(weights, folder / "model.safetensors")
    merged_by_hand = load_on(backend, folder)
    torch.testing.assert_close(logits_of(model, adapter=0), logits_of(merged_by_hand), rtol=1e-4, atol=1e-4)


FORMATS = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "int8": {"quantization": "int8"},
    "int4 of bfloat16": {"dtype": "bfloat16", "quantization": "int4"},
}


@for_each("form", ["bfloat16", "int8", "int4 of bfloat16"])
def test_on_coarser_weights_an_adapter_adds_about_the_same(model_folder, folders, alone, form):
    model = with_adapters("native", model_folder, folders, **FORMATS[form])
    found = torch.stack([logits_of(model, PROMPTS[0], kind)[-1] for kind in (0, NO_ADAPTER)])
    right = torch.stack([alone[0][0][-1], alone[-1][0][-1]])
    assert torch.cosine_similarity(found, right).min() > (0.9 if "int4" in form else 0.99)


@for_each("backend", BACKENDS)
def test_a_slot_holds_the_adapter_that_was_loaded_last_and_rows_without_one_have_the_bits_of_a_model_with_none(
    model_folder, folders, alone, backend
):
    plain, model = load_on(backend, model_folder), with_adapters(backend, model_folder, folders)
    for prompt in PROMPTS:
        assert torch.equal(logits_of(model, prompt), logits_of(plain, prompt))
    for kind in (1, 0, 3):
        model.adapters.load(2, folders[kind])
        torch.testing.assert_close(logits_of(model, PROMPTS[0], 2), alone[kind][0], rtol=1e-4, atol=1e-4)
    model.adapters.unload(2)
    torch.testing.assert_close(logits_of(model, PROMPTS[0], 2), alone[-1][0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "backend, form",
    [
        ("native", "float32"),
        ("native", "int8"),
        *(pytest.param("native", form, marks=pytest.mark.long) for form in FORMATS if form not in ("float32", "int8")),
        *(pytest.param("invariant", form, marks=pytest.mark.long) for form in ("float32", "bfloat16", "float16")),
    ],
)
def test_scheduled_together_as_alone(model_folder, folders, backend, form):
    model = with_adapters(backend, model_folder, folders, **FORMATS[form])
    names = [f"adapter {place}" for place in range(len(folders))]

    def requests() -> list[Prompt]:
        """Half of them begin alike, and no two that do have the same adapter."""
        chosen = [[*names, None][number % 5] for number in range(7)]
        ids = [(PROMPTS[0] if number % 2 else []) + [11 * number + 7] * (3 + number) for number in range(7)]
        return [
            request(number, ids[number], number, max_tokens=8, logprobs=2, lora_name=chosen[number], temperature=0.8)
            for number in range(7)
        ]

    def answers(asked: list[Prompt], **shape) -> list[Answer]:
        budget = {"max_num_batched_tokens": 48} if shape else {}
        engine = engine_of(model, **shape, **budget)
        engine.load_adapters(*names)
        return engine.run(*asked)

    alone = [answers([asked])[0] for asked in requests()]
    # In chunks, since steps have 48 tokens at most.
    for surroundings in ({"num_blocks": 10}, {"num_slots": 3}, {"layered": 1}, {"drafts": 1}, {"drafts": 2}):
        assert answers(expecting(requests(), alone), **surroundings) == alone, surroundings


def test_a_fork_has_the_adapter_of_its_source():
    table = SlotTable(4, 16, [8], 4, 100, TensorDevice(torch.device("cpu")))
    entered = NewSlot(2, column([5, 6]), 2, 0, SamplingParams(), 0, 0, adapter=3)
    table.apply(StepPlan(0, column([2]), column([2]), [GroupChanges(column([1]), column([0, 1]))], new=[entered]))
    assert table.adapters.tolist() == [NO_ADAPTER, NO_ADAPTER, 3, NO_ADAPTER]
    fork = Fork(2, 0, 1, [column([4])])
    table.apply(StepPlan(1, column([0]), column([1]), [GroupChanges(b"", column([0, 0]))], forks=[fork], freed=b""))
    assert table.adapters.tolist() == [3, NO_ADAPTER, 3, NO_ADAPTER]


def test_the_memory_planned_is_that_of_all_places(model_folder):
    models = {most: load_on("native", model_folder, max_loras=most, max_lora_rank=32) for most in (1, 3)}
    sizes = {most: model.adapters.nbytes for most, model in models.items()}
    config = json.loads((model_folder / "config.json").read_text())
    hidden, inner, heads, shared = config["hidden_size"], config["intermediate_size"], 4 * 32, 2 * 32
    numbers = 2 * 32 * (3 * hidden + heads + 2 * shared + hidden + heads + 2 * (hidden + inner) + inner + hidden)
    assert numbers * 4 <= sizes[1] <= numbers * 4 * 1.3
    assert sizes[3] == 3 * sizes[1]
    assert sum(array.nbytes for array in models[3].adapters.untouched) == sizes[3]


def more(**shapes: tuple[int, ...]) -> dict:
    """Further tensors, with a double underscore for each dot of their names."""
    return {
        "extra": {f"base_model.model.{name.replace('__', '.')}": numpy.zeros(shape) for name, shape in shapes.items()}
    }


# fmt: off
REFUSED: dict[str, tuple[dict, str]] = {
    "DoRA": (dict(use_dora=True), "use_dora=True: only plain LoRA"),
    "trained biases": (dict(bias="lora_only"), "bias='lora_only'"),
    "whole modules": (dict(modules_to_save=["lm_head"]), "modules_to_save"),
    "another method": (dict(peft_type="IA3"), "'IA3'; only LORA"),
    "changed base weights": (dict(init_lora_weights="pissa_niter_4"), "changed base weights"),
    "too large a rank": (dict(rank=32), "rank 32 .* max_lora_rank=16"),
    "matrices of another rank": (dict(r=4), "says r=4 of .*, whose matrices have rank 8"),
    "a scale that is none": (dict(lora_alpha="16"), "says lora_alpha='16' of .*; it must be a number"),
    "a scale without bound": (dict(alpha_pattern={"q_proj": math.inf}), "says lora_alpha=inf of .*q_proj"),
    "an embedding": (more(model__embed_tokens__lora_embedding_A=(4, 307)), "changes an embedding"),
    "a magnitude": (more(model__layers__0__mlp__up_proj__lora_magnitude_vector=(112,)), "belongs to DoRA"),
    "half a pair": (
        more(model__layers__9__mlp__up_proj__lora_A__weight=(8, 64)), "only lora_A of model.layers.9.mlp.up_proj",
    ),
    "a layer that is not there": (
        more(model__layers__9__mlp__up_proj__lora_A__weight=(8, 64),
             model__layers__9__mlp__up_proj__lora_B__weight=(112, 8)),
        "layers.9.mlp.up_proj. This model has up_proj, but not there",
    ),
    "the head": (
        more(lm_head__lora_A__weight=(8, 64), lm_head__lora_B__weight=(307, 8)), "lm_head. Only down_proj, gate_proj",
    ),
}
# fmt: on


@for_each("given, sentence", REFUSED.values(), ids=REFUSED)
def test_anything_but_plain_lora_for_this_model_is_refused_in_a_sentence(tmp_path, model_folder, given, sentence):
    model = load_on("fast", model_folder, max_loras=1, max_lora_rank=16)
    with pytest.raises(AdapterError, match=sentence) as caught:
        model.adapters.load(0, adapter(tmp_path, model_folder, **given))
    assert caught.value.reason == ("rank" if "rank" in given else "files")


def test_an_adapter_for_another_model_is_refused_with_both_shapes(tmp_path, model_folder):
    own = adapter(tmp_path / "adapter", tiny_model(tmp_path / "other", "qwen3", hidden_size=48))
    with pytest.raises(AdapterError, match=r"adds \[48, 8\] x .* which is \[64, \d+\] here"):
        with_adapters("fast", model_folder, [own])


@for_each("damage", ["adapter_config.json", "adapter_model.safetensors"])
@for_each("content", [None, b"", b"\xff{[" * 40, "a pipe"])
def test_missing_and_damaged_files_are_named(tmp_path, model_folder, damage, content):
    folder = adapter(tmp_path, model_folder)
    (folder / damage).unlink()
    if content == "a pipe":
        os.mkfifo(folder / damage)
    elif content is not None:
        (folder / damage).write_bytes(content)
    model = load_on("fast", model_folder, max_loras=1)
    with pytest.raises(AdapterError, match=damage.split(".")[0]):
        model.adapters.load(0, folder)
