"""Prompts that end in numbers: the rows that transformers computes, the same bits in any company."""

import random
from typing import Any

import msgspec
import numpy
import pytest
import torch
from builders.cases import for_each
from builders.compared_models import converted
from builders.pooled_models import ENCODERS, classifier, embedding_model, encoder, encoder_as_gguf
from builders.runner_harness import TinyEngine, engine_of, prompt
from builders.tiny_model import tiny_model
from safetensors.numpy import load_file, save_file

from penstock.frontend.models.model_files import find_model
from penstock.frontend.models.pooled_model import find_pooled_model
from penstock.protocol.errors import ConfigError
from penstock.protocol.messages import Prompt
from penstock.protocol.pooling import encoders
from penstock.protocol.pooling.form import PoolingForm, WantedVectors
from penstock.protocol.wire import values
from penstock.worker.description.families import encoders as families
from penstock.worker.start.load import load_model
from penstock.worker.start.model import Model

MODES = {
    "last": {"pooling_mode_lasttoken": True},
    "mean": {"pooling_mode_mean_tokens": True},
    "all at once": {f"pooling_mode_{mode}": True for mode in ("cls_token", "max_tokens", "weightedmean_tokens")},
}


def asked(form: PoolingForm, lengths: list[int], by_token: bool = False) -> list[Prompt]:
    """Prompts that share beginnings, so that some are found in the cache."""
    whole = random.Random(0).choices(range(5, 100), k=max(lengths))
    wanted = WantedVectors(by_token, by_token or form.reads_all)
    each = (prompt(number, whole[:length], max_tokens=1) for number, length in enumerate(lengths))
    return [msgspec.structs.replace(one, pooled=wanted) for one in each]


def rows_of(reference: torch.nn.Module, tokens: bytes, **given: torch.Tensor) -> numpy.ndarray:
    """The last hidden states that transformers computes."""
    with torch.no_grad():
        return reference(torch.tensor([values(tokens).tolist()]), **given).last_hidden_state[0].numpy()


def scores_of(reference: torch.nn.Module, tokens: bytes) -> numpy.ndarray:
    with torch.no_grad():
        return reference(torch.tensor([values(tokens).tolist()])).logits[0].numpy()


def pooled(rows: numpy.ndarray, modes: list[str]) -> numpy.ndarray:
    weights = numpy.arange(1, len(rows) + 1)[:, None]
    found = {
        "cls": rows[0], "lasttoken": rows[-1], "max": rows.max(0), "mean": rows.mean(0),
        "weightedmean": (rows * weights).sum(0) / weights.sum(),
    }  # fmt: skip
    return numpy.concatenate([found[mode] for mode in modes])


def assert_near(vector: bytes, wanted: numpy.ndarray) -> None:
    found = numpy.frombuffer(vector, numpy.float32).reshape(wanted.shape)
    assert numpy.abs(found - wanted).max() < 1e-4 * max(1, numpy.abs(wanted).max())


def whole_texts(model: Model, **options: Any) -> TinyEngine:
    return engine_of(model, max_model_len=256, has_whole_texts=True, **options)


@for_each("mode", MODES)
def test_a_vector_is_that_of_transformers_and_has_the_same_bits_in_company(mode, tmp_path):
    from transformers import AutoModelForCausalLM

    folder = embedding_model(tmp_path / mode, **MODES[mode])
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).model.eval()
    form = find_pooled_model(folder, "auto").form
    model = load_model(folder, pooling=form)
    lengths = [1, 2, 17, 64, 64, 33, 100, 128]
    alone = [engine_of(model, max_model_len=128).run(one)[0].vectors for one in asked(form, lengths)]
    for one, vector in zip(asked(form, lengths), alone):
        assert_near(vector, pooled(rows_of(reference, one.token_ids), form.modes))
    # In chunks of odd lengths, with too few blocks for all, and prefixes of one another.
    together = engine_of(model, max_model_len=128, num_blocks=13, max_num_batched_tokens=37)
    assert [each.vectors for each in together.run(*asked(form, lengths))] == alone
    assert together.scheduler.counters.cached_tokens > 0 or form.reads_all
    together.scheduler.check()


@for_each("purpose", ["ForSequenceClassification", "ForTokenClassification"])
def test_classes_have_the_scores_of_the_last_row_or_of_each(purpose, tmp_path):
    folder = classifier(tmp_path / purpose, purpose, 3)
    found = find_pooled_model(folder, "auto")
    assert (found.task, found.labels, found.activation) == ("classify", ("class 0", "class 1", "class 2"), "softmax")
    model, given = load_model(folder, pooling=found.form), ([1, 9, 70], found.form.by_token)
    alone = [engine_of(model).run(one)[0].vectors for one in asked(found.form, *given)]
    together = engine_of(model, max_num_batched_tokens=13).run(*asked(found.form, *given))
    assert [each.vectors for each in together] == alone
    head = load_file(folder / "model-score.safetensors")
    plain = load_model(tiny_model(tmp_path / "plain", "qwen3"), pooling=PoolingForm(["lasttoken"]))
    for one, scores in zip(asked(found.form, *given), alone):
        state = numpy.frombuffer(engine_of(plain).run(one)[0].vectors, numpy.float32)
        assert_near(scores, state.reshape(-1, model.config.hidden_size) @ head["score.weight"].T + head["score.bias"])


# With what their configs have otherwise, and what computes them.
SHAPES = [
    *((kind, {}, "native") for kind in ENCODERS),
    ("ModernBert", dict(norm_bias=True, attention_bias=True, mlp_bias=True), "native"),
    ("Bert", dict(hidden_size=80), "torch"),  # heads of 20 numbers
]


@for_each("kind, config, kernels", SHAPES)
def test_an_encoders_rows_are_those_of_transformers_and_have_the_same_bits_in_company(kind, config, kernels, tmp_path):
    reference = encoder(tmp_path, kind, **config)
    form = PoolingForm(["cls", "mean"])
    model = load_model(tmp_path, pooling=form)
    assert (model.backend.kernels == "torch") == (kernels == "torch")
    lengths = [1, 2, 17, 64, 33, 100, 200, 256]
    alone = [whole_texts(model).run(one)[0].vectors for one in asked(form, lengths)]
    for one, vector in zip(asked(form, lengths), alone):
        assert_near(vector, pooled(rows_of(reference, one.token_ids), form.modes))
    together = whole_texts(model, num_blocks=40, max_num_batched_tokens=128)
    assert [each.vectors for each in together.run(*asked(form, lengths))] == alone
    # A text that is longer than a step has one of its own.
    assert max(len(values(plan.slots)) for plan in together.plans if max(values(plan.num_tokens)) > 128) == 1
    together.scheduler.check()


@for_each("kind", ["Bert", "XLMRoberta", "ModernBert"])
def test_an_encoders_classes_have_the_scores_of_transformers(kind, tmp_path):
    reference = encoder(tmp_path / kind, kind, "ForSequenceClassification", num_labels=3)
    found = find_pooled_model(tmp_path / kind, "auto")
    model = load_model(tmp_path / kind, pooling=found.form)
    for one in asked(found.form, [1, 40, 256]):
        assert_near(whole_texts(model).run(one)[0].vectors, scores_of(reference, one.token_ids))


@for_each("kind, pooling_type", [("Bert", 1), ("XLMRoberta", 2), ("ModernBert", 1), ("Gemma3Text", 1)])
def test_an_encoder_in_a_gguf_file_is_the_same_and_says_how_it_is_pooled(kind, pooling_type, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    reference = encoder(tmp_path / kind, kind)
    draw, dense = numpy.random.default_rng(3), {}
    if kind == "Gemma3Text":
        dense = {"dense_2.weight": (96, 64), "dense_3.weight": (64, 96)}
        dense = {name: draw.normal(size=shape).astype(numpy.float32) for name, shape in dense.items()}
    folder = find_model(encoder_as_gguf(tmp_path / "model.gguf", reference, pooling_type, **dense)).folder
    found = find_pooled_model(folder, "auto")
    assert (found.form.modes, found.normalizes) == (["mean"] if pooling_type == 1 else ["cls"], True)
    [one] = asked(found.form, [50])
    wanted = pooled(rows_of(reference, one.token_ids), found.form.modes)
    for matrix in dense.values():
        wanted = matrix @ wanted
    assert_near(whole_texts(load_model(folder, pooling=found.form, dtype="float32")).run(one)[0].vectors, wanted)


@for_each("kind", ["XLMRoberta", "ModernBert"])
def test_a_reranker_in_a_gguf_file_has_the_scores_of_transformers(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    # Files don't say that ModernBERT's classes are made of the mean; those that are published are.
    reference = encoder(tmp_path / kind, kind, "ForSequenceClassification", num_labels=1, classifier_pooling="mean")
    folder = find_model(encoder_as_gguf(tmp_path / "model.gguf", reference, 4)).folder
    found = find_pooled_model(folder, "auto")
    assert (found.labels, found.activation, found.pairs) == (("LABEL_0",), "sigmoid", "tokenizer")
    [one] = asked(found.form, [50])
    model = load_model(folder, pooling=found.form, dtype="float32")
    assert_near(whole_texts(model).run(one)[0].vectors, scores_of(reference, one.token_ids))


@for_each("kind, purpose", [("Bert", "Model"), ("XLMRoberta", "ForSequenceClassification"), ("Gemma3Text", "Model")])
def test_a_converted_folder_gives_nearly_the_same_numbers(kind, purpose, tmp_path):
    encoder(tmp_path / kind, kind, purpose)
    form = find_pooled_model(tmp_path / kind, "auto").form
    (tmp_path / kind / "1_Pooling").mkdir()
    (tmp_path / kind / "1_Pooling" / "config.json").write_text("{}")
    folder = converted(tmp_path / kind, tmp_path / f"{kind}-int8", "int8", pooling=form)
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert find_pooled_model(folder, "auto").form == form
    [one] = asked(form, [50])
    before, after = (
        numpy.frombuffer(whole_texts(load_model(each, pooling=form)).run(one)[0].vectors, numpy.float32)
        for each in (tmp_path / kind, folder)
    )
    assert before @ after > 0.999 * numpy.linalg.norm(before) * numpy.linalg.norm(after)


def test_the_second_text_of_a_pair_has_a_type_of_its_own(tmp_path):
    reference, form = encoder(tmp_path, "Bert"), PoolingForm(["mean"])
    model, [one] = load_model(tmp_path, pooling=form), asked(form, [90])
    for second in (1, 40, 89):
        one.pooled = WantedVectors(reads_all=True, second_text=second)
        types = (torch.arange(90) >= second).long()[None]
        wanted = pooled(rows_of(reference, one.token_ids, token_type_ids=types), ["mean"])
        assert_near(whole_texts(model).run(one)[0].vectors, wanted)


def test_padding_within_a_text_takes_no_position(tmp_path):
    reference, form = encoder(tmp_path, "XLMRoberta"), PoolingForm(["cls", "mean"])
    texts = [[5, 1, 6, 7, 1, 1, 8], [5, 6, 7], [1], [9, 8, 1]]
    requests = [prompt(number, text, max_tokens=1) for number, text in enumerate(texts)]
    for one in requests:
        one.pooled = WantedVectors(reads_all=True)
    for one, each in zip(requests, whole_texts(load_model(tmp_path, pooling=form)).run(*requests)):
        seen = torch.ones(1, len(values(one.token_ids)), dtype=torch.int64)
        assert_near(each.vectors, pooled(rows_of(reference, one.token_ids, attention_mask=seen), form.modes))


def test_a_model_whose_tokens_see_those_after_them_writes_no_text(tmp_path):
    tiny_model(tmp_path, "llama", is_causal=False, use_bidirectional_attention=True)
    with pytest.raises(ConfigError, match="see those after them, so it writes no text. Use runner='pooling'"):
        load_model(tmp_path)
    load_model(tmp_path, pooling=PoolingForm(["mean"]))


def test_a_model_that_was_saved_without_its_head_is_pooled_all_the_same(tmp_path):
    tiny_model(tmp_path, "qwen3", tie_word_embeddings=False)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {name: each for name, each in tensors.items() if name != "lm_head.weight"}, tmp_path / "model.safetensors"
    )
    with pytest.raises(ConfigError, match="holds no lm_head"):
        load_model(tmp_path)
    form = find_pooled_model(tmp_path, "pooling").form
    assert load_model(tmp_path, pooling=form).pooling == form


def test_a_models_own_files_say_how_its_rows_are_pooled(tmp_path):
    folder = embedding_model(tmp_path / "a", pooling_mode_mean_tokens=True, pooling_mode_cls_token=True)
    found = find_pooled_model(folder, "auto")
    assert (found.form.modes, found.normalizes, found.is_guess) == (["cls", "mean"], True, False)
    assert find_pooled_model(folder, "generate") is None
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    assert find_pooled_model(folder, "auto").form.modes == ["lasttoken"]


def test_the_front_end_and_the_worker_have_the_same_encoders():
    assert set(families.ENCODERS) == set(encoders.ENCODERS)
