"""What a model's own files say about the numbers that it gives instead of text.

sentence-transformers' files come first (`modules.json` and the folders that it names), then the architecture that
`config.json` names. A model whose files say neither writes text.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.files.gguf.link import LINK_FILE
from ...protocol.files.model_file import read_model_settings, read_model_text, values_of
from ...protocol.pooling.encoders import architectures_of, is_encoder, sees_both_sides
from ...protocol.pooling.form import HeadLayer, PoolingForm
from ...records import dataclass
from .sentence_modules import MODULES, Modules, read_modules
from .sentence_settings import SETTINGS, Similarity, activation_of, read_longest, read_sentence_settings

Task = Literal["embed", "classify"]
GIVEN: dict[Task, str] = {"embed": "vectors", "classify": "classes"}  # what models of each task give
# Names under which models keep the words that stand before a text to be found.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
# How two texts stand in one prompt that gives a score: as the tokenizer joins a pair, by the chat template's roles
# "query" and "document", or in the words that Qwen3-Reranker was published with.
Pairs = Literal["tokenizer", "template", "qwen3"]
_CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
_QWEN3_ANSWERS = [9693, 2152]  # "yes" and "no" in the vocabulary of Qwen3-Reranker, whose files don't name them
_CARD = "README.md"
_HEADER = "the header of the GGUF file"
_CUT = re.compile(r"matryoshka|\bMRL\b", re.IGNORECASE)
_LINK = re.compile(r"\[[^\[\]\n]*\]\([^()\s]*\)|https?://\S+")
_ROLE = {role: re.compile(f"""["']{role}["']""") for role in ("query", "document")}


@dataclass(frozen=True)
class PooledModel:
    form: PoolingForm
    task: Task
    normalizes: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)  # that may stand before a text, by name
    default_prompt: str | None = None  # the name of the one that does
    labels: tuple[str, ...] = ()  # of classes
    activation: str = ""  # of classes: "softmax", "sigmoid", another of `ACTIVATIONS`, or none
    of_score: str | None = None  # the activation of `score`, if it is another
    longest: int | None = None  # tokens of a text
    is_guess: bool = False  # the files don't say how rows are pooled
    modules: tuple[str, ...] = ()  # sentence-transformers' kinds of them
    # Lengths that vectors may be cut to, as the files say; empty: any length. None: they don't speak of it.
    dimensions: tuple[int, ...] | None = None
    cut: int | None = None  # numbers of a vector, if fewer than the layers make
    similarity: Similarity = "cosine"
    sources: Mapping[str, str] = field(default_factory=dict)  # the file that says so, by the field's name
    pairs: Pairs | None = None  # of a model whose one number is a score of two texts

    def prompt(self, name: str | None) -> str | None:
        """The words of this name, or else the default ones; raises if there are none by the name."""
        if (name := name or self.default_prompt) is None:
            return None
        if name not in self.prompts:
            known = ", ".join(sorted(self.prompts)) or "none"
            hint = suggestion(name, self.prompts)
            raise RequestError(f"The model has no prompt {shown(name)}; its own are: {known}.{hint}")
        return self.prompts[name]

    @property
    def score_activation(self) -> str:
        return self.activation if self.of_score is None else self.of_score

    def notice_of_cut(self, dimensions: int) -> str:
        """What to say of vectors cut to this length, unless the files speak of it."""
        if self.task != "embed" or self.dimensions == () or dimensions in (self.dimensions or ()):
            return ""
        said = "no file of this model says that its vectors may be cut"
        if self.dimensions:
            said = f"{self.sources['dimensions']} names {', '.join(map(str, self.dimensions))}"
        return f"dimensions={dimensions:,}: {said}, so vectors of this length may find less."


def find_pooled_model(folder: Path, runner: str) -> PooledModel | None:
    """What the model gives; None if it writes text, or `runner` says that it is to."""
    config = read_model_settings(folder / "config.json")
    if runner == "generate":
        if is_encoder(config):
            raise ConfigError(
                f"runner='generate': {folder} is an encoder ({_architecture(config)}), which gives numbers and writes "
                "no text. Leave runner out, or give a model that writes."
            )
        return None
    modules = read_modules(folder)
    if (found := _found(folder, modules, config, runner)) is None:
        return None
    if (folder / LINK_FILE).is_file():  # the other files are made of it
        return replace(found, sources={name: _HEADER for name, source in found.sources.items() if source})
    return found if modules is None else replace(found, modules=modules.kinds)


def _found(folder: Path, modules: Modules | None, config: Mapping[str, Any], runner: str) -> PooledModel | None:
    if modules is not None and modules.scores is not None:
        return _of_logits(folder, modules.scores, config)
    if modules is not None and modules.modes:
        return _of_modules(folder, modules, config)
    architecture = _architecture(config)
    if architecture.endswith(_CLASSIFIERS):
        if config.get("is_original_qwen3_reranker") is True:
            return _original_reranker(config)
        with values_of(folder / "config.json"):
            return _classifier(folder, architecture, config)
    if architecture == "Qwen3ForCausalLM" and _is_named_reranker(folder):
        return _reranker(config, _QWEN3_ANSWERS, "qwen3", "sigmoid", is_guess=True)
    both_sides = sees_both_sides(config)
    if both_sides or runner == "pooling" or architecture.endswith("Model"):
        dimensions, source = _dimensions(folder, config)
        return PooledModel(
            PoolingForm(["mean" if both_sides else "lasttoken"]),
            "embed",
            normalizes=True,
            is_guess=True,
            dimensions=dimensions,
            sources={"dimensions": source},
        )
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
    return _by_head(HeadLayer(name, size, difference=answers), pairs, activation, is_guess)


def _by_head(head: HeadLayer, pairs: Pairs, activation: str, is_guess: bool = False) -> PooledModel:
    form = PoolingForm(["lasttoken"], [head])
    return PooledModel(form, "classify", labels=("score",), activation=activation, is_guess=is_guess, pairs=pairs)


def _original_reranker(config: Mapping[str, Any]) -> PooledModel:
    """A Qwen3-Reranker whose config calls it a classifier; of a GGUF file, its classes are the head's two rows."""
    if config.get("id2label") == {"0": "yes", "1": "no"}:
        found = _by_head(HeadLayer("score.weight", 2, difference=[0, 1]), "qwen3", "sigmoid")
    else:
        found = _reranker(config, _QWEN3_ANSWERS, "qwen3", "sigmoid")
    return replace(found, sources={"form": "config.json"})


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
    longest, of_longest = read_longest(folder)
    activation, of_score, source = _activations(folder, config, len(labels))
    settings = read_sentence_settings(folder)
    return PooledModel(
        _form_of_classifier(architecture, config, len(labels), by_token),
        "classify",
        labels=labels,
        activation=activation,
        of_score=of_score,
        prompts=settings.prompts,
        default_prompt=settings.default_prompt,
        pairs=_pairs(folder, architecture) if len(labels) == 1 and not by_token else None,
        longest=longest,
        sources={"form": "config.json", "labels": "config.json", "activation": source, "longest": of_longest},
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


def _activations(folder: Path, config: Mapping[str, Any], num_labels: int) -> tuple[str, str, str]:
    """Find the activations of classes and of scores, and the file that names them."""
    said = config.get("sentence_transformers")
    older = {
        "sentence_transformers.activation_fn": said.get("activation_fn") if isinstance(said, dict) else None,
        "sbert_ce_default_activation_function": config.get("sbert_ce_default_activation_function"),
    }
    if (own := read_sentence_settings(folder).activation) is not None:
        return own, own, SETTINGS
    for name, function in older.items():
        if function is not None:
            own = activation_of(function, f"{folder / 'config.json'}: {name}")
            return own, own, "config.json"
    kind = config.get("problem_type")
    of_one = num_labels == 1 or kind == "multi_label_classification"
    found = "" if kind == "regression" else "sigmoid" if of_one else "softmax"
    # A score of sentence-transformers goes through a sigmoid whatever the one label was trained for.
    return found, "sigmoid" if num_labels == 1 else found, "config.json"


def _of_logits(folder: Path, path: str, config: Mapping[str, Any]) -> PooledModel:
    """sentence-transformers' rerankers that write text: a score of the logits of one token, or two."""
    said = read_model_settings(folder / path / "config.json")
    answers = [said[name] for name in ("true_token_id", "false_token_id") if said.get(name) is not None]
    if said.get("true_token_id") is None:
        raise ConfigError(f"{folder / path / 'config.json'} names no true_token_id, which makes the score.")
    settings = read_sentence_settings(folder)
    pairs = _pairs(folder, _architecture(config))
    if pairs == "tokenizer" and _architecture(config).startswith("Qwen3"):
        pairs = "qwen3"
    activation, source = ("sigmoid", "") if settings.activation is None else (settings.activation, SETTINGS)
    longest, of_longest = read_longest(folder)
    return replace(
        _reranker(config, answers, pairs, activation),
        longest=longest,
        prompts=settings.prompts,
        default_prompt=settings.default_prompt,
        sources={"form": f"{path}/config.json", "activation": source, "longest": of_longest},
    )


def _of_modules(folder: Path, modules: Modules, config: Mapping[str, Any]) -> PooledModel:
    said = read_sentence_settings(folder)
    dimensions, source = _dimensions(folder, config)
    longest, file = read_longest(folder)
    names = {"form": modules.pooling, "normalizes": MODULES, "prompts": SETTINGS, "dimensions": source, "longest": file}
    return PooledModel(
        PoolingForm(modules.modes, modules.head),
        "embed",
        modules.normalizes,
        said.prompts,
        said.default_prompt,
        cut=said.cut,
        similarity=said.similarity,
        longest=longest,
        dimensions=dimensions,
        sources=names,
    )


def _dimensions(folder: Path, config: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, str]:
    """The lengths that vectors may be cut to, and the file that says so; None if no file speaks of it."""
    lengths = config.get("matryoshka_dimensions")
    if isinstance(lengths, list) and lengths and all(type(each) is int and each > 0 for each in lengths):
        return tuple(sorted(set(lengths))), "config.json"
    if config.get("is_matryoshka") is True:
        return (), "config.json"
    with suppress(OSError, ConfigError):
        # A link is about something else: every card that sentence-transformers writes has one to its blog.
        if _CUT.search(_LINK.sub("", read_model_text(folder / _CARD))):
            return (), _CARD
    return None, ""
