"""What a model's files say of the numbers that it gives: read, shown with its source, and refused in a sentence."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.cases import for_each
from builders.pooled_models import classifier, embedding_model, reranker

from penstock import PoolingParams, SamplingParams
from penstock.frontend import cli
from penstock.frontend.console import logs
from penstock.frontend.console.number_rows import number_rows
from penstock.frontend.models.digests import digest_of_files, tokenizer_files, weight_files
from penstock.frontend.models.model_files import find_model
from penstock.frontend.models.pooled_model import PooledModel, find_pooled_model
from penstock.frontend.session.session import Session
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.protocol.pooling.form import HeadLayer, PoolingForm
from penstock.worker.start.load import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return embedding_model(tmp_path_factory.mktemp("m") / "vectors", pooling_mode_mean_tokens=True)


def written(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def listed(*modules: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"idx": place, "path": path, "type": f"a.b.{kind}"} for place, (path, kind) in enumerate(modules)]


TRANSFORMER, POOLING = ("", "Transformer"), ("1_Pooling", "Pooling")
DENSE, NORM = ("2_Dense", "Dense"), ("", "Normalize")
MEAN = {"pooling_mode_mean_tokens": True}


@for_each("modules, pooling, dense, says", [
    ({"a": 1}, MEAN, None, "modules.json must be a list of modules"),
    ([1], MEAN, None, "modules.json must be a list of modules"),
    ([{"type": 7}], MEAN, None, "type must be a text, not 7"),
    ([{"type": "Pooling", "path": ["1"]}], MEAN, None, "path must be a text"),
    (listed(TRANSFORMER, ("", "Router")), MEAN, None, "a module 'Router', which isn't supported; Transformer, "),
    (listed(TRANSFORMER, ("../x", "Pooling")), MEAN, None, "isn't a folder of the model"),
    (listed(TRANSFORMER, ("/etc", "Pooling")), MEAN, None, "isn't a folder of the model"),
    (listed(TRANSFORMER, ("nowhere", "Pooling")), MEAN, None, r"nowhere/config\.json is missing"),
    (listed(TRANSFORMER, DENSE), MEAN, {"out_features": 8}, "one Pooling must come before all Dense"),
    (listed(TRANSFORMER, NORM), MEAN, None, "names no Pooling, and its Normalize needs one"),
    (listed(TRANSFORMER, NORM, POOLING), MEAN, None, "one Pooling must come before all Dense"),
    (listed(TRANSFORMER, POOLING), {"pooling_mode": []}, None, "names no pooling that is supported; cls, max"),
    (listed(TRANSFORMER, POOLING), [1], None, "must be an object"),
    (listed(TRANSFORMER, POOLING), {"pooling_mode": 7}, None, r"supported \(7\)"),
    (listed(TRANSFORMER, POOLING), {"pooling_mode": ["mean", {}]}, None, "names no pooling"),
    (listed(TRANSFORMER, POOLING), {"pooling_mode_cls_token": "false"}, None, "must be true or false, not 'false'"),
    (listed(TRANSFORMER, POOLING), MEAN | {"include_prompt": False}, None, "include_prompt=false"),
    (listed(TRANSFORMER, POOLING, DENSE), MEAN, {"out_features": "8"}, "out_features must be a number, and is '8'"),
    (listed(TRANSFORMER, POOLING, DENSE), MEAN, {"out_features": 8, "use_residual": True}, "use_residual adds"),
    (listed(TRANSFORMER, POOLING, DENSE), MEAN, {"out_features": 8}, r"holds nothing else, and weights are read"),
])  # fmt: skip
def test_modules_that_cannot_be_meant_are_refused_in_a_sentence(folder, modules, pooling, dense, says):
    written(folder / "modules.json", modules)
    written(folder / "1_Pooling" / "config.json", pooling)
    written(folder / "2_Dense" / "config.json", dense or {})
    with pytest.raises(ConfigError, match=says):
        find_pooled_model(folder, "auto")


@for_each("pooling, modes", [
    ({}, ["mean"]), ({"pooling_mode_mean_tokens": False}, ["mean"]),
    ({"pooling_mode": ["mean", "cls", "mean"]}, ["mean", "cls", "mean"]),
    ({"pooling_mode": "mean_sqrt_len_tokens"}, ["mean_sqrt_len"]),
    ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ["cls", "mean"]),
    ({"pooling_mode_mean_sqrt_len_tokens": True}, ["mean_sqrt_len"]),
])  # fmt: skip
def test_rows_are_pooled_in_the_order_of_the_file(folder, pooling, modes):
    written(folder / "modules.json", listed(TRANSFORMER, POOLING))
    written(folder / "1_Pooling" / "config.json", pooling)
    assert find_pooled_model(folder, "auto").form.modes == modes


def test_layers_behind_the_pooled_row_come_in_the_order_of_the_modules(tmp_path):
    import torch
    from builders.runner_harness import engine_of, prompt
    from builders.tiny_model import write_safetensors

    from penstock.protocol.pooling.form import WantedVectors

    folder = embedding_model(tmp_path / "m", pooling_mode_mean_tokens=True)
    dense, norm = torch.nn.Linear(64, 24), torch.nn.LayerNorm(24)
    torch.nn.init.normal_(norm.weight)
    for name, layer, path in (("linear", dense, "2_Dense"), ("norm", norm, "3_LayerNorm")):
        config = {"out_features": 24, "activation_function": "torch.nn.modules.activation.Mish"}
        written(folder / path / "config.json", config)
        tensors = {f"{name}.{part}": each.detach().numpy() for part, each in layer.named_parameters()}
        write_safetensors(folder / path / "model.safetensors", tensors, "float32")

    def vector(*modules: tuple[str, str]) -> Any:
        written(folder / "modules.json", listed(TRANSFORMER, POOLING, *modules))
        request = prompt(0, [5, 6, 7], max_tokens=1)
        request.pooled = WantedVectors(reads_all=True)
        model = load_model(folder, pooling=find_pooled_model(folder, "auto").form)
        return torch.frombuffer(bytearray(engine_of(model).run(request)[0].vectors), dtype=torch.float32)

    row = torch.nn.functional.normalize(vector(), dim=0)
    wanted = norm(torch.nn.functional.mish(dense(row)))
    assert (vector(NORM, DENSE, ("3_LayerNorm", "LayerNorm")) - wanted).abs().max() < 1e-5


POINTWISE = (
    "Identity Tanh Sigmoid ReLU ReLU6 LeakyReLU GELU SiLU Mish ELU CELU SELU LogSigmoid Softplus Softsign Softshrink "
    "Hardshrink Tanhshrink Hardtanh Hardsigmoid Hardswish"
)


def test_activations_are_those_of_torch():
    import torch

    from penstock.protocol.pooling.activations import ACTIVATIONS

    x = torch.linspace(-9, 9, 601)
    for name in POINTWISE.split():
        found = ACTIVATIONS[name](x.numpy())
        assert (torch.tensor(found) - getattr(torch.nn, name)()(x)).abs().max() < 2e-6, name


@for_each("settings, config, of_score, of_classes", [
    ({}, {}, "sigmoid", "sigmoid"), ({}, {"problem_type": "regression"}, "sigmoid", ""),
    ({"activation_fn": "torch.nn.modules.linear.Identity"}, {}, "", ""),
    ({"activation_fn": "torch.nn.modules.activation.Tanh"}, {}, "Tanh", "Tanh"),
    ({}, {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "", ""),
    ({}, {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.ReLU"}}, "ReLU", "ReLU"),
    ({"activation_fn": "theirs.Tanh"}, {}, None, None), ({"activation_fn": 7}, {}, None, None),
    ({}, {"sbert_ce_default_activation_function": "torch.nn.Unheard"}, None, None),
])  # fmt: skip
def test_a_score_goes_through_the_activation_that_the_files_name(tmp_path, settings, config, of_score, of_classes):
    folder = classifier(tmp_path / "c", "ForSequenceClassification", 1, **config)
    written(folder / "config_sentence_transformers.json", settings)
    if of_score is None:
        with pytest.raises(ConfigError, match="must be a class of torch.nn that is known here"):
            find_pooled_model(folder, "auto")
    else:
        found = find_pooled_model(folder, "auto")
        assert (found.score_activation, found.activation) == (of_score, of_classes)
        assert dict(number_rows(found, 1))["scores"]


def test_a_dense_layer_of_another_shape_is_refused_with_both(tmp_path):
    from builders.tiny_model import write_safetensors
    from numpy import zeros

    folder = embedding_model(tmp_path / "m", pooling_mode_mean_tokens=True)
    written(folder / "modules.json", listed(TRANSFORMER, POOLING, DENSE))
    written(folder / "2_Dense" / "config.json", {"out_features": 8})
    write_safetensors(folder / "2_Dense" / "model.safetensors", {"linear.weight": zeros((8, 63), "float32")}, "float32")
    form = find_pooled_model(folder, "auto").form
    with pytest.raises(ConfigError, match=r"linear\.weight.*\(8, 63\).*\(8, 64\)"):
        load_model(folder, pooling=form)


def test_each_fact_is_said_with_its_file_and_a_guess_as_one(tmp_path):
    folder = embedding_model(tmp_path / "m", pooling_mode_lasttoken=True)
    prompts = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "document"}
    written(folder / "config_sentence_transformers.json", prompts)
    rows = dict(number_rows(find_pooled_model(folder, "auto"), 64, 64))
    assert rows["gives"] == "vectors of 64 numbers" and rows["pooling"] == "lasttoken (1_Pooling/config.json)"
    assert rows["prompts"].startswith("query, document; before a text unless asked: document (config_sent")
    assert rows["dimensions"] == "64; no file says that vectors may be cut"
    (folder / "modules.json").unlink()
    guessed = dict(number_rows(find_pooled_model(folder, "pooling"), 64))
    assert guessed["pooling"] == "lasttoken: a guess, usual for decoders; no file of this one says it"
    rows = dict(number_rows(find_pooled_model(classifier(tmp_path / "c", "ForSequenceClassification", 3), "auto"), 3))
    assert (rows["gives"], rows["classes"]) == ("3 classes", "class 0, class 1, class 2 (config.json)")
    head = PoolingForm(["cls"], [HeadLayer("a", activation="tanh"), HeadLayer("b", 3)])
    assert dict(number_rows(PooledModel(head, "classify"), 3, 64))["layers"] == "64 → 64 (tanh) → 3"
    ranks = dict(number_rows(find_pooled_model(reranker(tmp_path / "r", true_token_id=5), "auto"), 1))
    assert ranks["gives"] == "scores of two texts" and ranks["pairs"].startswith("by the roles")


def test_lengths_that_files_do_not_speak_of_get_a_notice(tmp_path):
    folder = embedding_model(tmp_path / "m", pooling_mode_lasttoken=True)
    assert "no file of this model says" in find_pooled_model(folder, "auto").notice_of_cut(8)
    link = "- [Introduction to Matryoshka Embedding Models](https://huggingface.co/blog/matryoshka): vectors to cut"
    (folder / "README.md").write_text(link)
    assert "no file of this model says" in find_pooled_model(folder, "auto").notice_of_cut(8)
    (folder / "README.md").write_text("It was trained with Matryoshka losses.")
    assert find_pooled_model(folder, "auto").notice_of_cut(8) == ""
    config = json.loads((folder / "config.json").read_text())
    written(folder / "config.json", config | {"matryoshka_dimensions": [32, 16]})
    found = find_pooled_model(folder, "auto")
    assert found.notice_of_cut(16) == "" and "config.json names 16, 32" in found.notice_of_cut(8)


def test_a_script_is_told_once_of_lengths_that_its_models_files_do_not_speak_of(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logs, "say", lambda text, quiet: said.append(text))
    model = PooledModel(PoolingForm(["mean"]), "embed", dimensions=(16,), sources={"dimensions": "config.json"})
    session = SimpleNamespace(pooled=model, plan=SimpleNamespace(vector_width=32), is_quiet=True, _has_said_cut=False)
    session.notice_of_cut = partial(Session.notice_of_cut, session)
    for dimensions in (None, 32, 16, 8, 4, 8):
        Session._say_cut(session, [SamplingParams(), PoolingParams(dimensions=dimensions)])
    assert [text.split(":")[0] for text in said] == ["dimensions=8"]


@for_each("name, content", [
    ("1_Pooling/config.json", {"pooling_mode": "cls"}), ("modules.json", []),
    ("config_sentence_transformers.json", {"prompts": {"a": "b"}}),
    ("2_Dense/model.safetensors", "other weights"),
])  # fmt: skip
def test_a_changed_file_of_a_module_changes_the_digest(tmp_path, monkeypatch, name, content):
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    folder = embedding_model(tmp_path / name.replace("/", "-"), pooling_mode_mean_tokens=True)
    written(folder / "2_Dense" / "model.safetensors", "weights")

    def digest() -> str:
        return digest_of_files({*weight_files(folder), *tokenizer_files(folder)}, folder)

    before = digest()
    written(folder / name, content)
    assert digest() != before


def test_show_and_models_say_what_a_model_gives(tmp_path, capsys):
    folder = classifier(tmp_path / "c", "ForSequenceClassification", 3)
    assert cli.main(["show", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "runs here yes" in shown and "gives 3 classes" in shown and "answers end at" not in shown
    assert cli.main(["models", str(folder)]) == 0
    assert "3 classes" in capsys.readouterr().out.splitlines()[1]


@for_each("names, longest", [
    ({"sentence_bert_config.json": {"max_seq_length": 32}, "tokenizer_config.json": {"model_max_length": 64}}, 32),
    ({"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 64}}, 64),
    ({"tokenizer_config.json": {"model_max_length": 10**30}}, None),
    ({"tokenizer_config.json": {"model_max_length": 1e30}}, None),
    ({"tokenizer_config.json": {}}, None),
])  # fmt: skip
def test_the_longest_text_is_that_of_either_release_of_sentence_transformers(tmp_path, names, longest):
    written(tmp_path / "config.json", {"architectures": ["BertModel"], "hidden_size": 8})
    written(tmp_path / "modules.json", listed(TRANSFORMER, POOLING))
    written(tmp_path / "1_Pooling" / "config.json", MEAN)
    for name, said in names.items():
        written(tmp_path / name, said)
    found = find_pooled_model(tmp_path, "auto")
    assert found.longest == longest
    assert longest is None or found.sources["longest"] == next(name for name, said in names.items() if said)


def test_a_transformer_in_a_folder_of_its_own_is_named(tmp_path):
    folder = embedding_model(tmp_path / "m", pooling_mode_mean_tokens=True)
    (folder / "0_Transformer").mkdir()
    (folder / "config.json").rename(folder / "0_Transformer" / "config.json")
    with pytest.raises(ModelNotFoundError, match="have it in 0_Transformer: copy what is in"):
        find_model(folder)
