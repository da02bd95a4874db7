"""What a model's own files say about the numbers that it gives instead of text.

sentence-transformers' files come first (`modules.json` and the folders that it names), then the architecture that
`config.json` names. A model whose files say neither writes text.
"""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from ...protocol.errors import ConfigError
from ...protocol.fields.rules import shown
from ...protocol.files.model_file import read_model_json, read_model_settings
from ...protocol.pooling.encoders import architectures_of, is_encoder, sees_both_sides
from ...protocol.pooling.form import MODES, HeadLayer, PoolingForm
from ...records import dataclass

Task = Literal["embed", "classify"]
# How two texts stand in one prompt that gives a score: as the tokenizer joins a pair, by the chat template's roles
# "query" and "document", or in the words that Qwen3-Reranker was published with.
Pairs = Literal["tokenizer", "template", "qwen3"]
_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
_QWEN3_ANSWERS = [9693, 2152]  # "yes" and "no" in the vocabulary of Qwen3-Reranker, whose files don't name them
_ROLE = {role: re.compile(f"""["']{role}["']""") for role in ("query", "document")}


@dataclass(frozen=True)
class PooledModel:
    form: PoolingForm
    task: Task
    normalizes: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)  # that may stand before a text, by name
    default_prompt: str | None = None  # the name of the one that does
    labels: tuple[str, ...] = ()  # of classes
    activation: str = ""  # of scores: "softmax", "sigmoid", or none
    longest: int | None = None  # tokens of a text
    is_guess: bool = False  # the files don't say how rows are pooled
    pairs: Pairs | None = None  # of a model whose one number is a score of two texts


def find_pooled_model(folder: Path, runner: str) -> PooledModel | None:
    """What the model gives; None if it writes text, or `runner` says that it is to."""
    if runner == "generate":
        return None
    config = read_model_settings(folder / "config.json")
    modules = _json(folder / "modules.json")
    if modules is not None and (found := _of_modules(folder, modules, config)) is not None:
        return found
    architecture = _architecture(config)
    if architecture.endswith(_CLASSIFIERS):
        return _classifier(folder, architecture, config)
    if architecture == "Qwen3ForCausalLM" and _is_named_reranker(folder):
        return _reranker(config, _QWEN3_ANSWERS, "qwen3", "sigmoid", is_guess=True)
    if sees_both_sides(config):
        return PooledModel(PoolingForm(["mean"]), "embed", normalizes=True, is_guess=True)
    if runner == "pooling" or architecture.endswith("Model"):
        return PooledModel(PoolingForm(["lasttoken"]), "embed", normalizes=True, is_guess=True)
    return None


def _architecture(config: Mapping[str, Any]) -> str:
    return next(iter(architectures_of(config)), "")


def _is_named_reranker(folder: Path) -> bool:
    """Whether the folder, or the hub's name that its path has, is that of a Qwen3-Reranker."""
    return any("qwen3-reranker" in part.lower() for part in folder.parts[-3:])


def _reranker(
    config: Mapping[str, Any], answers: list[int], pairs: Pairs, activation: str, *, is_guess: bool = False
) -> PooledModel:
    """A model of texts whose score is how much likelier one token follows than another."""
    size = config.get("vocab_size")
    if type(size) is not int or not all(type(token) is int and 0 <= token < size for token in answers):
        raise ConfigError(f"The tokens {shown(answers)} that make a reranker's score aren't in its vocabulary.")
    is_tied = config.get("tie_word_embeddings") is True
    name = "model.embed_tokens.weight" if is_tied else "lm_head.weight"
    head = HeadLayer(name, size, difference=answers)
    return PooledModel(
        PoolingForm(["lasttoken"], [head]),
        "classify",
        labels=("score",),
        activation=activation,
        is_guess=is_guess,
        pairs=pairs,
    )


def _pairs(folder: Path, architecture: str) -> Pairs:
    """How a model with one number takes two texts."""
    from ..text.chat_templates import read_chat_template  # few models need it

    template = read_chat_template(folder, read_model_settings(folder / "tokenizer_config.json"))
    if isinstance(template, str) and all(_ROLE[role].search(template) for role in _ROLE):
        return "template"
    return "qwen3" if architecture.startswith("Qwen3For") and _is_named_reranker(folder) else "tokenizer"


def _classifier(folder: Path, architecture: str, config: Mapping[str, Any]) -> PooledModel:
    names = config.get("id2label")
    if not isinstance(names, dict) or not names or not all(str(key).isdecimal() for key in names):
        names = {str(number): f"LABEL_{number}" for number in range(2)}
    labels = tuple(str(names[key]) for key in sorted(names, key=int))
    by_token = architecture.endswith("ForTokenClassification")
    return PooledModel(
        _form_of_classifier(architecture, config, len(labels), by_token),
        "classify",
        labels=labels,
        activation=_activation(config, len(labels)),
        pairs=_pairs(folder, architecture) if len(labels) == 1 and not by_token else None,
    )


def _form_of_classifier(architecture: str, config: Mapping[str, Any], num_labels: int, by_token: bool) -> PoolingForm:
    """The layers behind the rows, as transformers' classes have them."""

    def product(name: str, size: int = 0, activation: str = "") -> HeadLayer:
        return HeadLayer(f"{name}.weight", size, f"{name}.bias", activation)

    if architecture.startswith("ModernBert"):
        mode = "mean" if config.get("classifier_pooling") == "mean" else "cls"
        dense = product("head.dense", activation=str(config.get("classifier_activation") or "gelu"))
        norm = HeadLayer("head.norm.weight", 0, "head.norm.bias", epsilon=float(config.get("norm_eps") or 1e-5))
        return PoolingForm(
            [mode], [dense, norm, HeadLayer("classifier.weight", num_labels, "classifier.bias")], by_token
        )
    if not is_encoder(config):
        return PoolingForm(["lasttoken"], [product("score", num_labels)], by_token)
    if by_token:
        return PoolingForm(["cls"], [product("classifier", num_labels)], by_token)
    if architecture.startswith("Bert"):
        return PoolingForm(["cls"], [product("pooler.dense", 0, "tanh"), product("classifier", num_labels)])
    layers = [product("classifier.dense", 0, "tanh"), product("classifier.out_proj", num_labels)]
    return PoolingForm(["cls"], layers)


def _activation(config: Mapping[str, Any], num_labels: int) -> str:
    said = config.get("sentence_transformers")
    own = said.get("activation_fn") if isinstance(said, dict) else None
    if isinstance(own, str):
        return _of_function(own)
    kind = config.get("problem_type")
    if kind == "regression":
        return ""
    return "sigmoid" if num_labels == 1 or kind == "multi_label_classification" else "softmax"


def _of_function(name: str) -> str:
    """The activation that a class of torch computes."""
    return {"Sigmoid": "sigmoid", "Softmax": "softmax"}.get(name.rsplit(".", 1)[-1], "")


def _of_logits(folder: Path, path: str, config: Mapping[str, Any]) -> PooledModel:
    """sentence-transformers' rerankers that write text: a score of the logits of one token, or two."""
    said = _json(folder / path / "config.json") or {}
    answers = [said[name] for name in ("true_token_id", "false_token_id") if said.get(name) is not None]
    if not answers or said.get("true_token_id") is None:
        raise ConfigError(f"{folder / path / 'config.json'} names no true_token_id, which makes the score.")
    settings = _json(folder / "config_sentence_transformers.json") or {}
    own = settings.get("activation_fn") if isinstance(settings, dict) else None
    pairs = _pairs(folder, _architecture(config))
    if pairs == "tokenizer" and _architecture(config).startswith("Qwen3"):
        pairs = "qwen3"
    activation = _of_function(own) if isinstance(own, str) else "sigmoid"
    return replace(_reranker(config, answers, pairs, activation), longest=_longest(folder))


def _of_modules(folder: Path, modules: Any, config: Mapping[str, Any]) -> PooledModel | None:
    """Follow sentence-transformers' modules one after another; None if there is no pooling among them."""
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise ConfigError(f"{folder / 'modules.json'} must be a list of modules.")
    modes: list[str] = []
    head: list[HeadLayer] = []
    normalizes = False
    for module in modules:
        kind, path = str(module.get("type", "")).rsplit(".", 1)[-1], str(module.get("path", ""))
        if kind == "Pooling":
            modes = _modes(_within(folder, path))
        elif kind == "Dense":
            head.append(_dense(_within(folder, path), path))
        elif kind == "Normalize":
            normalizes = True
        elif kind == "LogitScore":
            return _of_logits(folder, path, config)
        elif kind not in ("Transformer", "Dropout"):
            raise ConfigError(f"{folder / 'modules.json'} has a module {shown(kind)}, which isn't supported.")
    if not modes:
        return None
    said = read_model_settings(folder / "config_sentence_transformers.json")
    prompts, default = said.get("prompts"), said.get("default_prompt_name")
    texts = prompts.items() if isinstance(prompts, dict) else ()
    return PooledModel(
        PoolingForm(modes, head),
        "embed",
        normalizes,
        {name: text for name, text in texts if isinstance(text, str)},
        default if isinstance(default, str) else None,
        longest=_longest(folder),
    )


def _within(folder: Path, path: str) -> Path:
    """A module's folder; raises unless it is one of the model's own: files may come from a stranger."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ConfigError(f"{folder / 'modules.json'} names {shown(path)}, which isn't a folder of the model.")
    return folder / path


def _modes(folder: Path) -> list[str]:
    config = read_model_settings(folder / "config.json")
    said = config.get("pooling_mode")  # newer files have one key for what older ones have one key each
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, list):
        suffixes = {"cls": "_token", "lasttoken": ""}
        names = [mode for mode in MODES if config.get(f"pooling_mode_{mode}{suffixes.get(mode, '_tokens')}")]
    if not names or not all(isinstance(name, str) and name in MODES for name in names):
        raise ConfigError(f"{folder / 'config.json'} names no pooling that is supported; {', '.join(MODES)} are.")
    if config.get("include_prompt") is False:
        raise ConfigError(f"{folder / 'config.json'}: include_prompt=false leaves prompts out, which isn't supported.")
    return [mode for mode in MODES if mode in names]


def _dense(folder: Path, path: str) -> HeadLayer:
    config = read_model_settings(folder / "config.json")
    size = config.get("out_features")
    if type(size) is not int or not 0 < size <= 1 << 20:
        raise ConfigError(f"{folder / 'config.json'}: out_features must be a number, and is {shown(size)}.")
    activation = str(config.get("activation_function") or "").rsplit(".", 1)[-1]
    return HeadLayer("linear.weight", size, "linear.bias", activation, folder=path)


def _longest(folder: Path) -> int | None:
    longest = read_model_settings(folder / "sentence_bert_config.json").get("max_seq_length")
    return longest if type(longest) is int and longest > 0 else None


def _json(path: Path) -> Any:
    try:
        return read_model_json(path)
    except FileNotFoundError:
        return None
