"""Prompts that end in numbers: the rows that transformers computes, the same bits in any company."""

import random
from pathlib import Path
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


def asked(form: PoolingForm, lengths: list[int], *, by_token: bool = False, seed: int = 0) -> list[Prompt]:
    """Prompts that share beginnings, so that some are found in the cache."""
    whole = [random.Random(seed).randrange(5, 100) for _ in range(max(lengths))]
    pooled = WantedVectors(by_token, by_token or form.reads_all)
    each = (prompt(number, whole[:length], max_tokens=1) for number, length in enumerate(lengths))
    return [msgspec.structs.replace(one, pooled=pooled) for one in each]


def rows(folder: Path, tokens: bytes) -> numpy.ndarray:
    """The last hidden states that transformers computes."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).model.eval()
    with torch.no_grad():
        return model(torch.tensor([numpy.frombuffer(tokens, numpy.int32).tolist()])).last_hidden_state[0].numpy()


def expected(rows: numpy.ndarray, place: str) -> numpy.ndarray:
    weights = numpy.arange(1, len(rows) + 1)[:, None]
    return {
        "cls": rows[0],
        "lasttoken": rows[-1],
        "max": rows.max(0),
        "mean": rows.mean(0),
        "weightedmean": (rows * weights).sum(0) / weights.sum(),
    }[place]


@for_each("mode", MODES)
def test_a_vector_is_that_of_transformers_and_has_the_same_bits_in_company(mode, tmp_path):
    folder = embedding_model(tmp_path / mode, **MODES[mode])
    form = find_pooled_model(folder, "auto").form
    model = load_model(folder, pooling=form)
    lengths = [1, 2, 17, 64, 64, 33, 100, 128]
    alone = [engine_of(model, max_model_len=128).run(one)[0].vectors for one in asked(form, lengths)]
    for one, vector in zip(asked(form, lengths), alone):
        wanted = numpy.concatenate([expected(rows(folder, one.token_ids), place) for place in form.modes])
        assert numpy.abs(numpy.frombuffer(vector, numpy.float32) - wanted).max() < 1e-4
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
    model = load_model(folder, pooling=found.form)
    by_token = found.form.by_token
    lengths = [1, 9, 70]
    alone = [engine_of(model).run(one)[0].vectors for one in asked(found.form, lengths, by_token=by_token)]
    together = engine_of(model, max_num_batched_tokens=13).run(*asked(found.form, lengths, by_token=by_token))
    assert [each.vectors for each in together] == alone
    generator = numpy.random.default_rng(7)
    hidden = model.config.hidden_size
    weight, bias = (generator.normal(size=size).astype(numpy.float32) for size in ((3, hidden), 3))
    plain = load_model(tiny_model(tmp_path / "plain", "qwen3"), pooling=PoolingForm(["lasttoken"]))
    states = [engine_of(plain).run(one)[0].vectors for one in asked(found.form, lengths, by_token=by_token)]
    for state, scores in zip(states, alone):
        wanted = numpy.frombuffer(state, numpy.float32).reshape(-1, hidden) @ weight.T + bias
        assert numpy.abs(numpy.frombuffer(scores, numpy.float32).reshape(-1, 3) - wanted).max() < 1e-4


@for_each("kind", ENCODERS)
def test_an_encoders_rows_are_those_of_transformers_and_have_the_same_bits_in_company(kind, tmp_path):
    reference = encoder(tmp_path / kind, kind)
    form = PoolingForm(["cls", "mean"])
    model = load_model(tmp_path / kind, pooling=form)
    lengths = [1, 2, 17, 64, 33, 100, 200, 256]
    alone = [whole_texts(model).run(one)[0].vectors for one in asked(form, lengths)]
    for one, vector in zip(asked(form, lengths), alone):
        tokens = torch.tensor([numpy.frombuffer(one.token_ids, numpy.int32).tolist()])
        with torch.no_grad():
            rows = reference(tokens).last_hidden_state[0].numpy()
        wanted = numpy.concatenate([rows[0], rows.mean(0)])
        assert numpy.abs(numpy.frombuffer(vector, numpy.float32) - wanted).max() < 1e-4, len(tokens[0])
    together = whole_texts(model, num_blocks=40, max_num_batched_tokens=128)
    assert [each.vectors for each in together.run(*asked(form, lengths))] == alone
    # A text that is longer than a step has one of its own.
    assert max(len(values(plan.slots)) for plan in together.plans if max(values(plan.num_tokens)) > 128) == 1
    together.scheduler.check()


def whole_texts(model: Model, **options: Any) -> TinyEngine:
    return engine_of(model, max_model_len=256, has_whole_texts=True, **options)


def test_vectors_have_the_same_bits_in_company_where_no_kernels_are(tmp_path):
    encoder(tmp_path, "Bert", hidden_size=80)  # heads of 20 numbers
    form = PoolingForm(["cls", "mean"])
    model = load_model(tmp_path, pooling=form)
    assert model.backend.kernels == "torch"
    lengths = [1, 2, 17, 64, 33, 100]
    alone = [whole_texts(model).run(one)[0].vectors for one in asked(form, lengths)]
    assert [each.vectors for each in whole_texts(model).run(*asked(form, lengths))] == alone


@for_each("kind", ["Bert", "XLMRoberta", "ModernBert"])
def test_an_encoders_classes_have_the_scores_of_transformers(kind, tmp_path):
    reference = encoder(tmp_path / kind, kind, "ForSequenceClassification", num_labels=3)
    found = find_pooled_model(tmp_path / kind, "auto")
    model = load_model(tmp_path / kind, pooling=found.form)
    for one in asked(found.form, [1, 40, 256]):
        tokens = torch.tensor([numpy.frombuffer(one.token_ids, numpy.int32).tolist()])
        with torch.no_grad():
            wanted = reference(tokens).logits[0].numpy()
        vector = whole_texts(model).run(one)[0].vectors
        assert numpy.abs(numpy.frombuffer(vector, numpy.float32) - wanted).max() < 1e-4, len(tokens[0])


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
    model = load_model(folder, pooling=found.form, dtype="float32")
    [one] = asked(found.form, [50])
    with torch.no_grad():
        rows = reference(torch.tensor([values(one.token_ids).tolist()])).last_hidden_state[0].numpy()
    wanted = expected(rows, found.form.modes[0])
    for matrix in dense.values():
        wanted = matrix @ wanted
    vector = numpy.frombuffer(whole_texts(model).run(one)[0].vectors, numpy.float32)
    assert numpy.abs(vector - wanted).max() < 1e-4 * max(1, numpy.abs(wanted).max())


@for_each("kind", ["XLMRoberta", "ModernBert"])
def test_a_reranker_in_a_gguf_file_has_the_scores_of_transformers(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    # Files don't say that ModernBERT's classes are made of the mean; those that are published are.
    reference = encoder(tmp_path / kind, kind, "ForSequenceClassification", num_labels=1, classifier_pooling="mean")
    folder = find_model(encoder_as_gguf(tmp_path / "model.gguf", reference, 4)).folder
    found = find_pooled_model(folder, "auto")
    assert (found.labels, found.activation, found.pairs) == (("LABEL_0",), "sigmoid", "tokenizer")
    model = load_model(folder, pooling=found.form, dtype="float32")
    [one] = asked(found.form, [50])
    with torch.no_grad():
        wanted = reference(torch.tensor([values(one.token_ids).tolist()])).logits[0].numpy()
    vector = numpy.frombuffer(whole_texts(model).run(one)[0].vectors, numpy.float32)
    assert numpy.abs(vector - wanted).max() < 1e-4


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
    reference = encoder(tmp_path, "Bert")
    form = PoolingForm(["mean"])
    model = load_model(tmp_path, pooling=form)
    [one] = asked(form, [90])
    for second in (1, 40, 89):
        one.pooled = WantedVectors(reads_all=True, second_text=second)
        tokens = torch.tensor([numpy.frombuffer(one.token_ids, numpy.int32).tolist()])
        with torch.no_grad():
            types = (torch.arange(90) >= second).long()[None]
            wanted = reference(tokens, token_type_ids=types).last_hidden_state[0].mean(0).numpy()
        vector = whole_texts(model).run(one)[0].vectors
        assert numpy.abs(numpy.frombuffer(vector, numpy.float32) - wanted).max() < 1e-4


def test_norms_of_modernbert_may_have_biases(tmp_path):
    reference = encoder(tmp_path, "ModernBert", norm_bias=True, attention_bias=True, mlp_bias=True)
    form = PoolingForm(["mean"])
    [one] = asked(form, [50])
    with torch.no_grad():
        wanted = reference(torch.tensor([values(one.token_ids).tolist()])).last_hidden_state[0].mean(0).numpy()
    vector = whole_texts(load_model(tmp_path, pooling=form)).run(one)[0].vectors
    assert numpy.abs(numpy.frombuffer(vector, numpy.float32) - wanted).max() < 1e-4


def test_padding_within_a_text_takes_no_position(tmp_path):
    reference = encoder(tmp_path, "XLMRoberta")
    form = PoolingForm(["cls", "mean"])
    model = load_model(tmp_path, pooling=form)
    texts = [[5, 1, 6, 7, 1, 1, 8], [5, 6, 7], [1], [9, 8, 1]]
    requests = [prompt(number, text, max_tokens=1) for number, text in enumerate(texts)]
    for one in requests:
        one.pooled = WantedVectors(reads_all=True)
    for text, each in zip(texts, whole_texts(model).run(*requests)):
        ids = torch.tensor([text])
        with torch.no_grad():
            rows = reference(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
        wanted = numpy.concatenate([rows[0], rows.mean(0)])
        assert numpy.abs(numpy.frombuffer(each.vectors, numpy.float32) - wanted).max() < 1e-4, text


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
