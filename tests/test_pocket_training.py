"""What pocket's trainers compute: mixtures as transformers do, and a resumed training as if nothing had happened.

Pocket-sight is trained on the values that transformers computes for a user, and never on a held-out question.
"""

import functools
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from builders.bundled_model import FOLDER
from builders.cases import for_each
from builders.later import Later
from tokenizers import Tokenizer

from penstock.frontend.models.model_names import BUNDLED

experts, pocket, decoder = (Later(f"lab.pocket.{name}") for name in ("experts", "training", "model"))
asking, model, sight = (Later(f"lab.sight.{name}") for name in ("asking", "model", "training"))
kinds, sizes, text = Later("lab.sight.kinds"), Later("lab.sight.sizes"), Later("lab.text.example")
transformers = Later("transformers")
TOKENIZER = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def small_training(steps: int = 2) -> "pocket.Training":
    torch.manual_seed(0)
    small = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8}
    shape = decoder.Shape(TOKENIZER.get_vocab_size(), **small)
    return pocket.Training(decoder.Decoder(shape), TOKENIZER, steps)


@pytest.fixture(autouse=True)
def uncompiled_and_unmeasured(monkeypatch) -> Iterator[None]:
    """To compile takes longer than all that is computed here."""
    monkeypatch.setattr("lab.training.training.MEASURE_EVERY", 1)
    monkeypatch.setattr("lab.pocket.batches.TOKENS_PER_STEP", 2048)
    monkeypatch.setattr(pocket.Training, "held_out_rights", lambda _: {})
    with torch.compiler.set_stance("force_eager"):
        yield


def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(tmp_path):
    whole, first, second = small_training(), small_training(), small_training()
    whole.run(tmp_path / "whole.pt")
    save = first._save

    def break_off(path: Path) -> None:
        save(path)
        raise KeyboardInterrupt

    first._save = break_off
    with pytest.raises(KeyboardInterrupt):
        first.run(tmp_path / "first.pt")
    state = torch.load(tmp_path / "first.pt", weights_only=True)
    assert state["done"] == 1
    second.resume(state)
    second.run(tmp_path / "second.pt")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name]), name


def test_a_sparse_layer_computes_what_transformers_does():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "head_dim": 8, "num_experts": 6, "moe_intermediate_size": 24}
    shape = experts.SparseShape(64, **sizes)
    layer = experts.Experts(shape)
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = Qwen3MoeConfig(**{key: value for key, value in shape.config().items() if key != "architectures"})
    block = Qwen3MoeSparseMoeBlock(config)
    block.gate.weight.data = layer.gate.weight.data
    those = list(layer.experts)
    block.experts.gate_up_proj.data = torch.stack(
        [torch.cat((expert.gate_proj.weight, expert.up_proj.weight)) for expert in those]
    )
    block.experts.down_proj.data = torch.stack([expert.down_proj.weight for expert in those])
    x = torch.randn(40, 32)
    with torch.no_grad():
        assert torch.allclose(layer(x), block(x[None])[0], atol=1e-5)


# --- pocket-sight -----------------------------------------------------------------------------------------------------


@functools.cache
def words() -> Tokenizer:
    return model.sight_tokenizer()


def seeing() -> "transformers.Qwen3VLForConditionalGeneration":
    config = transformers.Qwen3VLConfig(**model.published_config(words()))
    return transformers.Qwen3VLForConditionalGeneration(config)


@pytest.fixture(scope="module")
def weights():
    torch.manual_seed(0)
    return seeing().state_dict()


@pytest.fixture
def published(weights):
    """Transformers' class as a user has it."""
    network = seeing().float()
    network.load_state_dict(weights)
    return network.eval()


@for_each("kind", ["shapes", "words", "charts"])
def test_a_picture_becomes_the_patches_of_the_published_processor(kind):
    [image] = kinds.PICTURES[kind][0](text.Draw(kind, held_out=False)).images
    processors = Later("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    made = processors.Qwen2VLImageProcessorPil(**model.preprocessor_config())(images=[image], return_tensors="np")
    frame, rows, columns = sizes.patches(image)
    assert made["image_grid_thw"].tolist() == [[1, rows, columns]]
    np.testing.assert_allclose(sight.pixel_values(torch.from_numpy(frame)), made["pixel_values"], atol=1e-2)


@torch.no_grad()
@for_each("kind", ["shapes", "pairs"])
def test_a_branch_is_computed_as_if_it_were_asked_alone(kind, weights, published, monkeypatch):
    draw = text.Draw(f"branches {kind}", held_out=False)
    seen = kinds.PICTURES[kind][0](draw)
    questions = asking.questions_of(draw, seen.asks, 3)
    shown = Later("lab.sight.batches").Patched(tuple(sizes.patches(image) for image in seen.images))
    batch = Later("lab.sight.batches").made_batch(words(), draw, [(shown, questions)], conversations=0.0, systems=0.0)
    with monkeypatch.context() as changed:
        network = model.new_model(words(), changed.setattr)
        network.load_state_dict(weights)
        hidden = network.model(
            input_ids=batch.tokens, position_ids=batch.positions, attention_mask=sight.visible(batch.branches).float(),
            pixel_values=sight.pixel_values(batch.shown.pixels), image_grid_thw=batch.shown.grids,
        ).last_hidden_state[batch.places]  # fmt: skip
    for number, question in enumerate(questions):
        rows = [rows * columns // 4 for _, rows, columns in shown.patches]
        pictures = "".join(f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>" for count in rows)
        prompt = f"<|im_start|>user\n{pictures}{question.text}<|im_end|>\n<|im_start|>assistant\n"
        pieces = [prompt, *(question.answer + "<|im_end|>").split(text.LETTER_GAP)]
        encoded = [words().encode(piece).ids for piece in pieces]
        ids = torch.tensor([list(chain(*encoded))])
        alone = published.model(
            input_ids=ids, pixel_values=sight.pixel_values(batch.shown.pixels), image_grid_thw=batch.shown.grids,
            mm_token_type_ids=(ids == published.config.image_token_id).int(),
        ).last_hidden_state[0, len(encoded[0]) - 1 : -1]  # fmt: skip
        torch.testing.assert_close(hidden[batch.owners == number], alone, atol=2e-3, rtol=2e-3)


@pytest.mark.long
def test_a_training_ends_with_files_that_transformers_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(sight.Training, "held_out_rights", lambda _: {})
    network = model.new_model(words(), monkeypatch.setattr)
    sight_training = sight.Training(network, words(), steps=2, seeing_steps=1)
    with torch.compiler.set_stance("force_eager"):  # to compile takes longer than all that is computed here
        sight_training.run(tmp_path / "checkpoint.pt")
    sight_training.export(tmp_path / "trained")
    loaded = transformers.Qwen3VLForConditionalGeneration.from_pretrained(tmp_path / "trained", dtype=torch.bfloat16)
    trained = network.state_dict()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, trained[name].bfloat16()), name


# Questions of each kind, and pictures of the training.
FEW, MANY = (3, 120), (10, 400)


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "many"])
def sides(request):
    """Questions, and the keys and the questions of a sample of the training."""
    per_kind, pictures = request.param
    draw = text.Draw("a test", held_out=False)
    seen = [kinds.training_seen(draw) for _ in range(pictures)]
    keys = {key for each in seen for ask in each.asks if asking.is_on_side(draw, ask) for key in ask.keys}
    texts = {(question.kind, question.text) for each in seen for question in asking.questions_of(draw, each.asks, 5)}
    return Later("lab.questions.sight").questions(per_kind), keys, texts


def test_no_held_out_question_is_learnt(sides):
    asked, keys, texts = sides
    for question in asked:
        assert (question.kind, question.text) not in texts
        assert not question.key or question.key not in keys


@for_each("with_ids, between", [(False, ""), (True, "Picture 1: ")])
def test_the_template_puts_pictures_where_they_stand_in_the_message(with_ids, between):
    template = sight.TEMPLATE.read_text(encoding="utf-8")
    parts = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "What is it?"}]
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words(), chat_template=template)
    messages = [{"role": "user", "content": parts}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, add_vision_id=with_ids)
    assert shown == (
        f"<|im_start|>user\nLook: {between}<|vision_start|><|image_pad|><|vision_end|>What is it?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_both_bundled_models_take_sixteen_megabytes_at_most():
    sizes = {name: sum(file.stat().st_size for file in folder.iterdir()) for name, folder in BUNDLED.items()}
    assert sum(sizes.values()) <= 16_000_000, sizes
